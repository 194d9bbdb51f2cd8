//! Each import, given texts of any size: an attempt counts what it keeps of them before it keeps
//! more than it may.
//!
//! An import that takes a text has a row here, and a new one gets its own: the last test names those
//! that lack it. `texts.of` and `texts.json` stand for an argument each, numbered from 0 within the
//! import; one of them at a time is large.

use std::cell::Cell;
use std::fmt::{self, Write as _};

use crate::bindings::charter::primitive::documents::{Order, Query, Test};
use crate::bindings::charter::primitive::governance::Proposal;
use crate::bindings::charter::primitive::jobs::{Job, Schedule};
use crate::bindings::charter::primitive::ledger::Normal;
use crate::bindings::charter::primitive::log::Level;
use crate::bindings::charter::primitive::types::Failure;
use crate::bindings::charter::primitive::{
    answering, blobs, dns, documents, events, governance, hooks, jobs, leases, ledger, log, mail,
    names, primitives, secrets, settings, streams,
};
use crate::run::bed::{Bed, long, proposal, user};
use crate::state::State;

/// Bytes that an attempt may hold.
const BOUND: usize = 256 << 10;
/// Bytes of a large text.
const LARGE: usize = 100 << 10;
/// Bytes of a text that is no key, and that no limit of a name or an entity is below.
const SMALL: usize = 500;
/// Calls of one import by one attempt.
const CALLS: usize = 4;
/// Bytes that names of fields and the like add to what an attempt keeps, where it is written out.
const SLACK: usize = 32 << 10;

/// The imports that take a text.
const IMPORTS: [&str; 66] = [
    "documents.insert",
    "documents.get",
    "documents.lookup",
    "documents.replace",
    "documents.remove",
    "documents.remove-matching",
    "documents.find",
    "documents.count",
    "documents.search",
    "documents.add",
    "leases.take",
    "leases.extend",
    "leases.release",
    "leases.settle",
    "leases.defer",
    "leases.standing-of",
    "leases.purge",
    "names.claim",
    "names.release",
    "names.deliver",
    "governance.authorize",
    "governance.reopen",
    "governance.report",
    "governance.set-cap",
    "governance.spent",
    "governance.take",
    "ledger.open",
    "ledger.freeze",
    "ledger.balance-of",
    "ledger.transfer",
    "ledger.entries",
    "events.emit",
    "events.audit",
    "streams.append",
    "streams.read",
    "streams.head",
    "streams.close",
    "jobs.enqueue",
    "jobs.cancel",
    "jobs.cancel-key",
    "jobs.progress",
    "jobs.set-schedule",
    "jobs.remove-schedule",
    "hooks.open",
    "hooks.refer",
    "hooks.close",
    "secrets.put",
    "secrets.get",
    "secrets.remove",
    "secrets.generate",
    "secrets.sign",
    "blobs.write",
    "blobs.read",
    "blobs.stat",
    "blobs.remove",
    "blobs.presign-put",
    "blobs.presign-get",
    "mail.domain-of",
    "mail.queue",
    "dns.lookup",
    "settings.get",
    "settings.bindings",
    "primitives.call",
    "primitives.set-standing",
    "log.write",
    "answering.start",
];
/// Those of a handle that no guest can have yet.
const UNREACHABLE: [&str; 1] = ["answering.write"];

/// The texts of one call.
struct Texts {
    /// The argument that is large.
    place: usize,
    large: String,
    /// Whether the import has that argument.
    has_place: Cell<bool>,
}

impl Texts {
    /// An argument: the large text at its place, else the plain one.
    fn of(&self, place: usize, plain: &str) -> String {
        if place != self.place {
            return plain.to_owned();
        }
        self.has_place.set(true);
        self.large.clone()
    }

    /// An argument that is JSON text.
    fn json(&self, place: usize, plain: &str) -> String {
        match place == self.place {
            true => format!("\"{}\"", self.of(place, plain)),
            false => plain.to_owned(),
        }
    }

    fn bytes(&self, place: usize) -> Vec<u8> {
        self.of(place, "plain").into_bytes()
    }

    /// The body of a note, large in a field that is searched.
    fn note(&self, place: usize) -> String {
        format!("{{\"text\":\"{}\"}}", self.of(place, "plain"))
    }
}

type Said = Result<(), Failure>;

fn query(texts: &Texts) -> Query {
    Query {
        collection: texts.of(0, "notes"),
        matching: vec![(texts.of(1, "kind"), Test::Equal(texts.of(2, "k")))],
        order: Order::Newest,
        limit: 10,
        after: (texts.place == 3).then(|| texts.of(3, "")),
        offset: None,
        relaxed: false,
    }
}

async fn of_documents(guest: &mut State, import: &str, texts: &Texts, id: &str) -> Said {
    use documents::Host;
    let notes = || texts.of(0, "notes");
    match import {
        "insert" => Host::insert(guest, notes(), texts.note(1), None).await.map(drop),
        "get" => Host::get(guest, notes(), texts.of(1, id)).await.map(drop),
        "lookup" => {
            let (field, value) = (texts.of(1, "slug"), texts.json(2, "\"s\""));
            Host::lookup(guest, notes(), field, value).await.map(drop)
        }
        "replace" => {
            let (id, body) = (texts.of(1, id), texts.note(2));
            Host::replace(guest, notes(), id, body, None).await.map(drop)
        }
        "remove" => Host::remove(guest, notes(), texts.of(1, id), None).await.map(drop),
        "remove-matching" => Host::remove_matching(guest, query(texts)).await.map(drop),
        "find" => Host::find(guest, query(texts)).await.map(drop),
        "count" => {
            let Query { collection, matching, .. } = query(texts);
            Host::count(guest, collection, matching, false).await.map(drop)
        }
        "search" => Host::search(guest, notes(), texts.of(1, "word"), 10).await.map(drop),
        "add" => Host::add(guest, notes(), texts.of(1, id), texts.of(2, "n"), 1).await,
        other => panic!("documents.{other} has no row"),
    }
}

async fn of_leases(guest: &mut State, import: &str, texts: &Texts) -> Said {
    use leases::Host;
    let (items, until) = (texts.of(0, "items"), i64::MAX);
    match import {
        "take" => Host::take(guest, items, texts.of(1, "g"), 1, until).await.map(drop),
        "extend" => Host::extend(guest, texts.of(0, "t"), until).await,
        "release" => Host::release(guest, texts.of(0, "t"), until).await,
        "settle" => Host::settle(guest, texts.of(0, "t")).await,
        "defer" => Host::defer(guest, items, texts.of(1, "d"), until).await,
        "standing-of" => Host::standing_of(guest, items, texts.of(1, "g")).await.map(drop),
        "purge" => Host::purge(guest, items, texts.of(1, "g")).await.map(drop),
        other => panic!("leases.{other} has no row"),
    }
}

async fn of_names(guest: &mut State, import: &str, texts: &Texts, id: &str) -> Said {
    use names::Host;
    let (space, name) = (texts.of(0, "space"), texts.of(1, "name"));
    match import {
        "claim" => {
            let (collection, document) = (texts.of(2, "notes"), texts.of(3, id));
            Host::claim(guest, space, name, collection, document).await.map(drop)
        }
        "release" => Host::release(guest, space, name).await,
        "deliver" => Host::deliver(guest, space, name, texts.json(2, "1")).await.map(drop),
        other => panic!("names.{other} has no row"),
    }
}

async fn of_governance(guest: &mut State, import: &str, texts: &Texts) -> Said {
    use governance::Host;
    match import {
        "authorize" | "report" => {
            let plain = proposal(1_000);
            let proposed = Proposal {
                action: texts.of(0, &plain.action),
                entity: texts.of(1, &plain.entity),
                scopes: vec![(texts.of(2, "box"), texts.of(3, "b"))],
                component: texts.of(4, &plain.component),
                title: texts.of(5, &plain.title),
                message: texts.of(6, &plain.message),
                context: texts.json(7, &plain.context),
                pay: (texts.place >= 8).then(|| (texts.of(8, "a"), texts.of(9, "b"))),
                ..plain
            };
            match import {
                "report" => Host::report(guest, proposed).await,
                _ => Host::authorize(guest, proposed).await.map(drop),
            }
        }
        "reopen" => Host::reopen(guest, texts.of(0, "p")).await.map(drop),
        "set-cap" => {
            let (scope, id) = (texts.of(0, "box"), texts.of(1, "b"));
            let (period, zone) = (texts.of(2, "day"), texts.of(3, "UTC"));
            Host::set_cap(guest, scope, id, Some(1), period, zone).await
        }
        "spent" => {
            let (scope, id, by) = (texts.of(0, "box"), texts.of(1, "b"), texts.of(2, "task"));
            Host::spent(guest, scope, id, by).await.map(drop)
        }
        "take" => Host::take(guest, texts.of(0, "rate"), texts.of(1, "user"), 100, 60).await,
        other => panic!("governance.{other} has no row"),
    }
}

async fn of_ledger(guest: &mut State, import: &str, texts: &Texts) -> Said {
    use ledger::Host;
    let name = texts.of(0, "till");
    match import {
        "open" => Host::open(guest, name, Normal::Credit, false).await,
        "freeze" => Host::freeze(guest, name, true).await,
        "balance-of" => Host::balance_of(guest, name).await.map(drop),
        "transfer" => {
            let (to, memo, reference) = (texts.of(1, "box"), texts.of(2, "m"), texts.of(3, "r"));
            Host::transfer(guest, name, to, 1, memo, reference).await.map(drop)
        }
        "entries" => {
            let after = (texts.place == 1).then(|| texts.of(1, ""));
            Host::entries(guest, name, after, 10).await.map(drop)
        }
        other => panic!("ledger.{other} has no row"),
    }
}

async fn of_events(guest: &mut State, import: &str, texts: &Texts) -> Said {
    use events::Host;
    match import {
        "emit" => Host::emit(guest, texts.of(0, "shop.sold"), texts.json(1, "1")).await,
        "audit" => {
            let (action, kind) = (texts.of(0, "shop.looked"), texts.of(1, "card"));
            Host::audit(guest, action, kind, texts.of(2, "1"), texts.json(3, "{}")).await
        }
        other => panic!("events.{other} has no row"),
    }
}

async fn of_streams(guest: &mut State, import: &str, texts: &Texts) -> Said {
    use streams::Host;
    let log = texts.of(0, "log");
    match import {
        "append" => Host::append(guest, log, texts.of(1, "line"), texts.json(2, "1")).await,
        "read" => Host::read(guest, log, 0, 10).await.map(drop),
        "head" => Host::head(guest, log).await.map(drop),
        "close" => Host::close(guest, log).await,
        other => panic!("streams.{other} has no row"),
    }
}

fn job(texts: &Texts) -> Job {
    Job {
        name: texts.of(0, "job"),
        payload: texts.json(1, "1"),
        run_at: None,
        key: (texts.place == 2).then(|| texts.of(2, "")),
        attempts_max: 1,
        deadline_ms: None,
        public: false,
    }
}

async fn of_jobs(guest: &mut State, import: &str, texts: &Texts) -> Said {
    use jobs::Host;
    match import {
        "enqueue" => Host::enqueue(guest, job(texts)).await.map(drop),
        "cancel" => Host::cancel(guest, texts.of(0, "j")).await.map(drop),
        "cancel-key" => Host::cancel_key(guest, texts.of(0, "k")).await.map(drop),
        "progress" => Host::progress(guest, texts.of(0, "j"), 0.5, texts.of(1, "note")).await,
        "set-schedule" => {
            let (key, cron) = (texts.of(3, "key"), texts.of(4, "* * * * *"));
            let schedule = Schedule { key, cron, time_zone: texts.of(5, "UTC"), job: job(texts) };
            Host::set_schedule(guest, schedule).await.map(drop)
        }
        "remove-schedule" => Host::remove_schedule(guest, texts.of(0, "k")).await.map(drop),
        other => panic!("jobs.{other} has no row"),
    }
}

async fn of_hooks(guest: &mut State, import: &str, texts: &Texts, id: &str) -> Said {
    use hooks::Host;
    match import {
        "open" => {
            let (collection, document) = (texts.of(0, "notes"), texts.of(1, id));
            Host::open(guest, collection, document, texts.of(2, "none")).await.map(drop)
        }
        "refer" => Host::refer(guest, texts.of(0, "h"), texts.of(1, "r")).await,
        "close" => Host::close(guest, texts.of(0, "h")).await.map(drop),
        other => panic!("hooks.{other} has no row"),
    }
}

async fn of_secrets(guest: &mut State, import: &str, texts: &Texts) -> Said {
    use secrets::Host;
    let name = texts.of(0, "name");
    match import {
        "put" => Host::put(guest, name, texts.bytes(1)).await,
        "get" => Host::get(guest, name).await.map(drop),
        "remove" => Host::remove(guest, name).await.map(drop),
        "generate" => Host::generate(guest, name, texts.of(1, "ed25519")).await.map(drop),
        "sign" => Host::sign(guest, name, texts.bytes(1)).await.map(drop),
        other => panic!("secrets.{other} has no row"),
    }
}

async fn of_blobs(guest: &mut State, import: &str, texts: &Texts) -> Said {
    use blobs::Host;
    let key = texts.of(0, "key");
    match import {
        "write" => Host::write(guest, key, texts.of(1, "a/b"), texts.bytes(2)).await.map(drop),
        "read" => Host::read(guest, key, 0, 1).await.map(drop),
        "stat" => Host::stat(guest, key).await.map(drop),
        "remove" => Host::remove(guest, key).await.map(drop),
        "presign-put" => Host::presign_put(guest, key, Some(texts.of(1, "a/b")), 1).await.map(drop),
        "presign-get" => Host::presign_get(guest, key).await.map(drop),
        other => panic!("blobs.{other} has no row"),
    }
}

async fn of_primitives(guest: &mut State, import: &str, texts: &Texts) -> Said {
    use primitives::Host;
    match import {
        "call" => {
            let parameters = vec![(texts.of(1, "p"), texts.of(2, "v"))];
            let (body, key) = (Some(texts.json(3, "1")), Some(texts.of(4, "key")));
            let scopes = vec![(texts.of(5, "s"), texts.of(6, "v"))];
            let operation = texts.of(0, "other.do");
            Host::call(guest, operation, parameters, body, key, scopes).await.map(drop)
        }
        "set-standing" => Host::set_standing(guest, Some(texts.of(0, "trial_expired"))).await,
        other => panic!("primitives.{other} has no row"),
    }
}

/// Calls the import once.
async fn call(guest: &mut State, import: &str, texts: &Texts, id: &str) -> Said {
    let (interface, import) = import.split_once('.').unwrap();
    match (interface, import) {
        ("documents", _) => of_documents(guest, import, texts, id).await,
        ("leases", _) => of_leases(guest, import, texts).await,
        ("names", _) => of_names(guest, import, texts, id).await,
        ("governance", _) => of_governance(guest, import, texts).await,
        ("ledger", _) => of_ledger(guest, import, texts).await,
        ("events", _) => of_events(guest, import, texts).await,
        ("streams", _) => of_streams(guest, import, texts).await,
        ("jobs", _) => of_jobs(guest, import, texts).await,
        ("hooks", _) => of_hooks(guest, import, texts, id).await,
        ("secrets", _) => of_secrets(guest, import, texts).await,
        ("blobs", _) => of_blobs(guest, import, texts).await,
        ("mail", "domain-of") => {
            mail::Host::domain_of(guest, texts.of(0, "example.org")).await.map(drop)
        }
        ("mail", "queue") => {
            let (sender, recipients) = (texts.of(0, "a@b"), vec![texts.of(1, "c@d")]);
            mail::Host::queue(guest, sender, recipients, texts.of(2, "blob")).await.map(drop)
        }
        ("dns", "lookup") => {
            dns::Host::lookup(guest, texts.of(0, "example.org"), texts.of(1, "MX")).await.map(drop)
        }
        ("settings", "get") => settings::Host::get(guest, texts.of(0, "tone")).await.map(drop),
        ("settings", "bindings") => {
            settings::Host::bindings(guest, texts.of(0, "shop.peer")).await.map(drop)
        }
        ("primitives", _) => of_primitives(guest, import, texts).await,
        ("log", "write") => {
            let fields = vec![(texts.of(1, "f"), texts.of(2, "v"))];
            log::Host::write(guest, Level::Debug, texts.of(0, "line"), fields).await;
            Ok(())
        }
        ("answering", "start") => {
            let headers = vec![(texts.of(0, "etag"), texts.of(1, "\"1\""))];
            answering::Host::start(guest, 200, headers).await.map(drop)
        }
        _ => panic!("{interface}.{import} has no row"),
    }
}

/// Counts what is written to it.
struct Count(usize);

impl fmt::Write for Count {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// The bytes of all that an attempt keeps, written out, whatever it counts of them.
fn count_kept(guest: &State) -> usize {
    let work = guest.work.as_ref().unwrap();
    let mut count = Count(0);
    write!(count, "{:?}{:?}{:?}{:?}", work.txn, work.story, work.facts, work.groups).unwrap();
    count.0
}

/// Has one attempt call an import with a large text at a place; false where it has none there.
async fn try_import(bed: &Bed, import: &str, place: usize, bytes: usize) -> bool {
    let at = format!("{import}, argument {place} of {bytes} bytes");
    let mut guest = bed.attempt_within(&user(3), BOUND);
    let note = documents::Host::insert(&mut guest, "notes".into(), "{}".into(), None).await;
    let id = note.unwrap().id;
    let start = guest.held_bytes();
    for n in 0..CALLS {
        let large = format!("{n}{}", long(bytes));
        let texts = Texts { place, large, has_place: Cell::new(false) };
        let before = guest.held_bytes();
        let said = call(&mut guest, import, &texts, &id).await;
        if !texts.has_place.get() {
            return false;
        }
        let (held, kept) = (guest.held_bytes(), count_kept(&guest));
        assert!(kept <= held + SLACK, "{at}: it keeps {kept} and counts {held}");
        assert!(held <= BOUND + 3 * LARGE, "{at}: it holds {held} of {BOUND}");
        if said.is_err() {
            break;
        }
        let known = guest.limiter.held();
        assert!(before == start || known >= before, "{at}: it held {before}, and told {known}");
    }
    true
}

#[tokio::test]
async fn whatever_texts_an_import_is_given_the_attempt_counts_what_it_keeps_of_them() {
    let bed = Bed::new().await;
    bed.desk.let_bill("shop");
    for import in IMPORTS {
        for bytes in [SMALL, LARGE] {
            let mut places = 0;
            while try_import(&bed, import, places, bytes).await {
                places += 1;
            }
            assert!(places > 0, "{import} takes a text");
        }
    }
}

#[tokio::test]
async fn groups_that_a_guest_looks_at_are_kept_once_and_so_many() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    for n in 0..300 {
        let group = format!("g{}", n / 2);
        leases::Host::standing_of(&mut guest, "items".into(), group).await.unwrap();
    }
    let groups = &guest.work.as_ref().unwrap().groups;
    assert_eq!(groups.len(), 100);
    assert!((0..100).all(|n| groups[n].2 == format!("g{n}")), "each once");
}

/// The imports of the interface with an argument that is no number, no flag and no word of a list.
fn imports_of_texts() -> Vec<String> {
    const PLAIN: [&str; 15] = [
        "u16",
        "u32",
        "u64",
        "s64",
        "f32",
        "bool",
        "instant",
        "micro-usd",
        "normal",
        "level",
        "option<instant>",
        "option<u32>",
        "option<u64>",
        "option<micro-usd>",
        "",
    ];
    let wit = include_str!("../../../../wit/primitive.wit");
    let (mut interface, mut imports) = ("", Vec::new());
    for line in wit.lines().map(str::trim).take_while(|line| !line.starts_with("world ")) {
        if let Some(rest) = line.strip_prefix("interface ") {
            interface = rest.split(' ').next().unwrap();
        }
        let Some((name, rest)) = line.split_once(": func(") else { continue };
        let (arguments, _) = rest.split_once(')').unwrap();
        fn kind(argument: &str) -> &str {
            argument.split_once(": ").map_or("", |(_, kind)| kind.trim())
        }
        let is_plain = |argument: &str| PLAIN.contains(&kind(argument));
        if !line.starts_with("//") && !arguments.split(", ").all(is_plain) {
            imports.push(format!("{interface}.{name}"));
        }
    }
    imports
}

#[test]
fn each_import_that_takes_a_text_has_a_row() {
    let mut known: Vec<String> =
        IMPORTS.iter().chain(&UNREACHABLE).map(|name| (*name).to_owned()).collect();
    let mut all = imports_of_texts();
    known.sort();
    all.sort();
    assert_eq!(known, all);
}
