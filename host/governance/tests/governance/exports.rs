//! Exports of the audit log, verified offline: one that is whole holds, and of one that was
//! changed the fault is named, by its row where the row tells on itself.

use std::io::Cursor;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use charter_governance::audit::check::{self, Report};
use charter_governance::audit::export::Fill;
use charter_governance::audit::{Log, text};
use charter_kernel::audit::AuditRow;
use charter_kernel::merkle;
use charter_kernel::note::Verifier;
use charter_kernel::unit::{FactKind, Unit};
use charter_store::audit_fact;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::bed::{Bed, on_both};
use crate::logs::add;
use crate::words::id;

on_both!(
    an_export_is_the_whole_log_and_holds,
    an_export_of_the_rest_goes_on_from_what_was_before,
    what_was_erased_is_explained_by_the_row_of_the_removal,
);

/// Room for whatever comes.
async fn room() -> Fill {
    Box::new(Bytes::from)
}

/// An export's lines.
async fn export(bed: &Bed, after: u64) -> Vec<String> {
    let export = Log::of(bed.store(), &id(1)).export(after).await.unwrap();
    let (pieces, mut read) = mpsc::channel(1);
    let write = tokio::spawn(export.write(pieces, || async { true }, room));
    let mut bytes = Vec::new();
    while let Some(piece) = read.recv().await {
        bytes.extend_from_slice(&piece);
    }
    write.await.unwrap();
    String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
}

fn verify(lines: &[String]) -> Result<Report, String> {
    verify_with(lines, None, None)
}

fn verify_with(
    lines: &[String],
    key: Option<&Verifier>,
    since: Option<&str>,
) -> Result<Report, String> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    check::export(Cursor::new(text), key, since)
}

fn faults(lines: &[String]) -> Vec<String> {
    verify(lines).unwrap().faults
}

/// Changes a line.
fn edit(lines: &[String], at: usize, change: impl Fn(&mut Value)) -> Vec<String> {
    let mut lines = lines.to_vec();
    let mut line: Value = serde_json::from_str(&lines[at]).unwrap();
    change(&mut line);
    lines[at] = line.to_string();
    lines
}

/// A log of 12 rows that was signed at 4, 8 and 12.
async fn signed_thrice(bed: &Bed) -> Vec<String> {
    for _ in 0..3 {
        add(bed.store(), &id(1), 4).await;
        Log::of(bed.store(), &id(1)).checkpoint().await.unwrap();
    }
    export(bed, 0).await
}

async fn an_export_is_the_whole_log_and_holds(bed: Bed) {
    // More rows than are read at once.
    add(bed.store(), &id(1), 450).await;
    Log::of(bed.store(), &id(1)).checkpoint().await.unwrap();
    add(bed.store(), &id(1), 50).await;
    let lines = export(&bed, 0).await;
    assert_eq!(lines.len(), 501);
    let report = verify(&lines).unwrap();
    assert_eq!(report.faults, Vec::<String>::new());
    assert_eq!((report.after, report.to, report.checkpoints), (0, 500, 2));
    assert_eq!((report.erased, report.unexplained), (0, 0));
    let log = Log::of(bed.store(), &id(1));
    assert_eq!((report.origin, report.key), (log.origin(), log.verifier().text()));
    assert!(log.export(501).await.is_err_and(|refusal| refusal.param.as_deref() == Some("after")));
}

async fn an_export_of_the_rest_goes_on_from_what_was_before(bed: Bed) {
    signed_thrice(&bed).await;
    let kept = Log::of(bed.store(), &id(1)).checkpoint_at(8).await.unwrap().note;
    for after in [0, 1, 5, 8, 11] {
        let rest = export(&bed, after).await;
        assert_eq!(rest.len() as u64, 13 - after);
        let report = verify(&rest).unwrap();
        assert_eq!((report.faults, report.after, report.to), (Vec::new(), after, 12));
        // A reader who kept a checkpoint finds out whether it is still the same log.
        let report = verify_with(&rest, None, Some(&kept)).unwrap();
        assert_eq!(report.faults.is_empty(), after <= 8, "{after}: {:?}", report.faults);
    }
    let none = export(&bed, 12).await;
    assert_eq!(faults(&none), ["the export holds no row: there is nothing to verify"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_of_an_export_is_found_and_located() {
    let bed = Bed::sqlite().await;
    let whole = signed_thrice(&bed).await;
    assert_eq!(faults(&whole), Vec::<String>::new());
    let without = |rows: std::ops::Range<usize>| {
        let mut lines = whole.clone();
        lines.drain(rows);
        lines
    };
    let swapped = {
        let mut lines = whole.clone();
        lines.swap(5, 6);
        lines
    };
    // A forger can make the hash of a row anew, but not the tree.
    let forged = edit(&whole, 6, |line| {
        let leaf = line["leaf"].as_str().unwrap().replace("notes.write", "notes.erase");
        line["hash"] = json!(text::base64(&merkle::leaf(leaf.as_bytes())));
        line["leaf"] = json!(leaf);
    });
    let more = {
        let mut lines = whole.clone();
        let mut line: Value = serde_json::from_str(&lines[12]).unwrap();
        line["seq"] = json!(13);
        lines.push(line.to_string());
        lines
    };
    let torn = [whole.clone(), vec!["{".to_owned()]].concat();
    for (lines, wanted) in [
        (without(3..4), "row 3 is missing"),
        (without(3..6), "rows 3 to 5 are missing"),
        (without(10..13), "the export ends with row 9, but 12 rows were signed: it was cut off"),
        (without(1..13), "the export ends with row 0, but 12 rows were signed: it was cut off"),
        (swapped, "row 5 stands behind row 6, out of its place"),
        (
            edit(&whole, 6, |line| line["leaf"] = json!("{}")),
            "row 6 was edited: it is not what its hash says",
        ),
        (
            edit(&whole, 6, |line| line["private"] = json!("{}")),
            "row 6 was edited: its private half is not what its leaf says",
        ),
        (
            edit(&whole, 6, |line| line["private"] = Value::Null),
            "the private half of row 6 was left out: no row says that its user was removed",
        ),
        (forged, "rows 5 to 8 are not those that were signed"),
        (more, "no checkpoint holds for the rows from 13 on"),
        (torn, "the line after row 12 is no row"),
    ] {
        let found = faults(&lines);
        assert!(found.iter().any(|fault| fault == wanted), "{wanted}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_private_half_of_a_row_of_nobody_is_never_erased() {
    let bed = Bed::sqlite().await;
    let organization = id(1);
    let row = AuditRow {
        organization: &organization,
        action: "members.add",
        decision: "allowed",
        request: "r",
        ..AuditRow::default()
    };
    let facts = vec![audit_fact(&row).unwrap()];
    bed.commit(Unit { facts, ..Unit::default() }).await.unwrap();
    let lines = export(&bed, 0).await;
    let left_out = edit(&lines, 1, |line| line["private"] = Value::Null);
    assert_eq!(
        faults(&left_out),
        ["the private half of row 1 was left out: only rows of users are ever erased"]
    );
}

async fn what_was_erased_is_explained_by_the_row_of_the_removal(bed: Bed) {
    add(bed.store(), &id(1), 3).await;
    // An earlier build could name the user in capitals.
    let (organization, other) = (id(1), id(0xab));
    let capitals = other.to_uppercase();
    assert_ne!(capitals, other);
    let row = AuditRow {
        organization: &organization,
        on_behalf_of: Some(&capitals),
        action: "governance.grants.create",
        decision: "allowed",
        request: "r",
        ..AuditRow::default()
    };
    let facts = vec![audit_fact(&row).unwrap()];
    bed.commit(Unit { facts, ..Unit::default() }).await.unwrap();
    bed.store().facts_head_settled(FactKind::Audit, &id(1)).await.unwrap();
    for user in [id(3), capitals] {
        while bed.store().forget_private(&user, 2).await.unwrap() {}
    }
    let lines = export(&bed, 0).await;
    assert!(faults(&lines)[0].contains("no row says that its user was removed"));
    let user = id(3);
    let removal = |user, decision: &'static str| AuditRow {
        organization: &organization,
        action: "users.delete",
        entity_id: Some(user),
        decision,
        request: "r",
        ..AuditRow::default()
    };
    // One that was refused removed nobody.
    for (decision, explained) in [("refused", false), ("allowed", true)] {
        let facts =
            [&user, &other].map(|user| audit_fact(&removal(user, decision)).unwrap()).into();
        bed.commit(Unit { facts, ..Unit::default() }).await.unwrap();
        bed.store().facts_head_settled(FactKind::Audit, &id(1)).await.unwrap();
        let report = verify(&export(&bed, 0).await).unwrap();
        assert_eq!((report.faults.is_empty(), report.erased), (explained, 4), "{decision}");
    }
    // The removal may stand before an export's first row: that is said, and no fault.
    let report = verify(&export(&bed, 1).await).unwrap();
    assert_eq!((report.faults, report.erased, report.unexplained), (Vec::new(), 3, 0));
    let rest = export(&bed, 1).await;
    let unexplained = edit(&rest, rest.len() - 1, |line| {
        line["private"] = Value::Null;
    });
    let report = verify(&unexplained).unwrap();
    assert_eq!(report.unexplained, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_of_the_log_and_the_key_that_it_says() {
    let bed = Bed::sqlite().await;
    let lines = signed_thrice(&bed).await;
    let own = Log::of(bed.store(), &id(1)).verifier();
    assert_eq!(verify_with(&lines, Some(&own), None).unwrap().faults, Vec::<String>::new());
    let other = Log::of(bed.store(), &id(7)).verifier();
    let found = verify_with(&lines, Some(&other), None).unwrap().faults;
    assert!(
        found.iter().any(|fault| fault.starts_with("the export names another key")),
        "{found:?}"
    );
    assert!(found.iter().any(|fault| fault.contains("did not sign it")), "{found:?}");
    let renamed = edit(&lines, 0, |head| head["origin"] = json!("charter/audit/other"));
    assert!(faults(&renamed)[0].starts_with("the export says that it is of charter/audit/other"));
    // A note with another's signature under it.
    let unsigned = edit(&lines, 0, |head| {
        let note = head["checkpoints"][2].as_str().unwrap();
        let (text, signature) = note.rsplit_once(' ').unwrap();
        let mut bytes = STANDARD.decode(signature.trim_end()).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        head["checkpoints"][2] = json!(format!("{text} {}\n", STANDARD.encode(bytes)));
    });
    let found = faults(&unsigned);
    assert!(found[0].contains("its signature is not the key's"), "{found:?}");
    assert!(found.iter().all(|fault| !fault.contains("edited")), "{found:?}");
    let since = "charter/audit/none\n1\nAAAA\n\n";
    let found = verify_with(&lines, None, Some(since)).unwrap().faults;
    assert!(found[0].starts_with("the checkpoint that was kept does not hold"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_export_is_not_verified() {
    let bed = Bed::sqlite().await;
    let lines = signed_thrice(&bed).await;
    let head = |change: &dyn Fn(&mut Value)| edit(&lines, 0, change);
    for (lines, wanted) in [
        (Vec::new(), "the file is empty"),
        (vec!["{}".to_owned()], "the first line is not that of an export"),
        (
            head(&|head| head["format"] = json!("charter-audit/9")),
            "the file is charter-audit/9, not charter-audit/1",
        ),
        (head(&|head| head["public_key"] = json!("none")), "the first line has no public key"),
        (
            head(&|head| head["after"] = json!(3)),
            "the first line has no roots for the rows before it",
        ),
        (
            head(&|head| head["frontier"] = json!(["AAAA"])),
            "the first line has no roots for the rows before it",
        ),
        (vec!["x".repeat(2 << 20)], "a line is longer than any row"),
    ] {
        assert_eq!(verify(&lines).unwrap_err(), wanted);
    }
    let bytes = Cursor::new(vec![0xff, 0xfe, b'\n']);
    assert!(check::export(bytes, None, None).unwrap_err().starts_with("the file cannot be read"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_nothing_but_faults_is_not_told_in_full() {
    let bed = Bed::sqlite().await;
    add(bed.store(), &id(1), 80).await;
    let lines: Vec<String> = export(&bed, 0).await;
    let mut broken = lines.clone();
    for at in 1..lines.len() {
        broken = edit(&broken, at, |line| line["leaf"] = json!("{}"));
    }
    assert_eq!(faults(&broken).len(), 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_gone_is_written_for_no_longer() {
    let bed = Bed::sqlite().await;
    add(bed.store(), &id(1), 450).await;
    let export = Log::of(bed.store(), &id(1)).export(0).await.unwrap();
    let (pieces, mut read) = mpsc::channel(1);
    let (place, mut held) = mpsc::channel::<()>(1);
    let room = move || {
        let _ = &place;
        room()
    };
    let write = tokio::spawn(export.write(pieces, || async { true }, room));
    read.recv().await.unwrap();
    drop(read);
    write.await.unwrap();
    assert_eq!(held.recv().await, None, "its place among the streams is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_is_read_while_there_is_no_room_for_it() {
    let bed = Bed::sqlite().await;
    add(bed.store(), &id(1), 450).await;
    let export = Log::of(bed.store(), &id(1)).export(0).await.unwrap();
    let (pieces, mut read) = mpsc::channel(1);
    let (wish, mut wishes) = mpsc::unbounded_channel();
    let room = move || {
        let (give, given) = tokio::sync::oneshot::channel::<Fill>();
        wish.send(give).unwrap();
        async { given.await.unwrap() }
    };
    let write = tokio::spawn(export.write(pieces, || async { true }, room));
    read.recv().await.unwrap();
    let first = wishes.recv().await.unwrap();
    assert!(read.is_empty() && wishes.is_empty());
    assert!(first.send(Box::new(Bytes::from)).is_ok());
    read.recv().await.unwrap();
    // A reader that leaves meanwhile is not waited for.
    let _second = wishes.recv().await.unwrap();
    drop(read);
    write.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_read_no_more_gets_no_further_page() {
    let bed = Bed::sqlite().await;
    add(bed.store(), &id(1), 450).await;
    let export = Log::of(bed.store(), &id(1)).export(0).await.unwrap();
    let (pieces, mut read) = mpsc::channel(1);
    let asked = AtomicU32::new(0);
    let may_read = move || {
        let is_first = asked.fetch_add(1, SeqCst) == 0;
        async move { is_first }
    };
    let write = tokio::spawn(export.write(pieces, may_read, room));
    let mut bytes = Vec::new();
    while let Some(piece) = read.recv().await {
        bytes.extend_from_slice(&piece);
    }
    write.await.unwrap();
    let lines = String::from_utf8(bytes).unwrap().lines().count();
    assert!((2..450).contains(&lines), "the head and one page: {lines}");
}

#[test]
fn a_hash_is_text_and_back() {
    let hash = [7; 32];
    assert_eq!(text::hash(&text::base64(&hash)), Some(hash));
    for none in ["", "AAAA", "no base64!"] {
        assert_eq!(text::hash(none), None, "{none:?}");
    }
}
