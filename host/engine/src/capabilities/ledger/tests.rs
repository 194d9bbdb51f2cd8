//! The rules of accounts, over a real store: names, bounds, who may move what, and that nothing is
//! lost or made.

use std::sync::atomic::Ordering::SeqCst;

use charter_kernel::money::AMOUNT_MAX;
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Principal, Scope};
use proptest::prelude::*;

use super::*;
use crate::call::Call;
use crate::config::EngineConfig;
use crate::run::bed::{Bed, handle, id, key, long, proposal, scope, shop, user, word};

/// One thing that a guest does with accounts.
#[derive(Clone, Copy, Debug)]
enum Do<'a> {
    Open(&'a str),
    OpenSource(&'a str),
    OpenDebit(&'a str),
    Freeze(&'a str, bool),
    Move(&'a str, &'a str, i64),
    Balance(&'a str),
    Entries(&'a str),
}

use Do::{Balance as Look, Entries, Freeze, Move, Open, OpenDebit, OpenSource};

async fn act(guest: &mut State, acts: &[Do<'_>]) -> Result<Vec<i64>, Failure> {
    let mut seen = Vec::new();
    for act in acts {
        match *act {
            Open(name) => guest.open(name.into(), Normal::Credit, false).await?,
            OpenSource(name) => guest.open(name.into(), Normal::Debit, true).await?,
            OpenDebit(name) => guest.open(name.into(), Normal::Debit, false).await?,
            Freeze(name, frozen) => guest.freeze(name.into(), frozen).await?,
            Move(from, to, amount) => {
                let (from, to) = (from.to_owned(), to.to_owned());
                guest.transfer(from, to, amount, "memo".into(), "ref".into()).await.map(drop)?;
            }
            Look(name) => seen.push(guest.balance_of(name.into()).await?.posted),
            Entries(name) => {
                let (entries, _) = guest.entries(name.into(), None, 200).await?;
                seen.extend(entries.iter().map(|entry| entry.amount));
            }
        }
    }
    Ok(seen)
}

/// A call that does so: what it saw, or the word of its refusal.
async fn play(bed: &Bed, by: &Scope, acts: &[Do<'_>]) -> Result<Vec<i64>, String> {
    bed.by(by.clone(), async |guest| act(guest, acts).await).await
}

/// A bed on which the shop has brought so much into the first organization's credit, and bills no
/// more.
async fn fund(amount: i64) -> Bed {
    let bed = Bed::new().await;
    bed.desk.let_bill("shop");
    let acts = [OpenSource("bank"), Open("credit"), Move("bank", "credit", amount)];
    play(&bed, &user(3), &acts).await.unwrap();
    bed.desk.let_bill("nobody");
    bed
}

#[tokio::test]
async fn an_account_is_named_within_bounds_and_is_not_anothers() {
    let bed = Bed::new().await;
    let (most, over) = (long(200), long(201));
    for name in ["till", "a.b/c", "ünï", "credit", most.as_str()] {
        assert_eq!(play(&bed, &user(3), &[Open(name)]).await, Ok(vec![]), "{name}");
        assert_eq!(play(&bed, &user(3), &[Look(name)]).await, Ok(vec![0]), "{name}");
    }
    for name in ["", over.as_str(), "@", "@x", "@x/till", &format!("@{}/till", id(4))] {
        for acts in [[Open(name)], [Freeze(name, true)], [Look(name)], [Entries(name)]] {
            let said = play(&bed, &user(3), &acts).await;
            assert_eq!(said, Err("invalid_input:account".into()), "{acts:?}");
        }
    }
    let hidden = play(&bed, &user(3), &[Open("a\0b")]).await;
    assert!(hidden.is_err_and(|word| word.starts_with("commit:")), "no row's id holds a NUL");
}

#[tokio::test]
async fn an_account_is_its_users_and_its_primitives() {
    let mut bed = fund(100).await;
    play(&bed, &user(3), &[Open("till")]).await.unwrap();
    let missing = Err("not_found".to_owned());
    assert_eq!(play(&bed, &user(3), &[Look("till")]).await, Ok(vec![0]));
    assert_eq!(play(&bed, &user(4), &[Look("till")]).await, missing);
    let elsewhere = scope(key(Role::Developer), 9, Some(8), Some(7));
    assert_eq!(play(&bed, &elsewhere, &[Look("till")]).await, missing);
    assert_eq!(play(&bed, &elsewhere, &[Look("credit")]).await, Ok(vec![0]), "its own");
    assert_eq!(play(&bed, &user(4), &[Look("credit")]).await, Ok(vec![100]));
    let mut other = shop();
    other["name"] = "other".into();
    bed.beside(other);
    assert_eq!(play(&bed, &user(3), &[Look("till")]).await, missing);
    assert_eq!(play(&bed, &user(3), &[Look("credit")]).await, Ok(vec![100]));
}

#[tokio::test]
async fn a_transfer_beyond_what_there_is_moves_nothing() {
    let bed = Bed::new().await;
    bed.desk.let_bill("shop");
    let opened = [OpenSource("bank"), Open("a"), Open("b"), Move("bank", "a", 10)];
    play(&bed, &user(3), &opened).await.unwrap();
    let most = AMOUNT_MAX;
    for (acts, word) in [
        (vec![Move("a", "b", 11)], "commit:insufficient_credits:OVERDRAWN"),
        (vec![Move("a", "b", 6), Move("a", "b", 6)], "commit:insufficient_credits:OVERDRAWN"),
        (vec![Move("a", "b", -1)], "invalid_input:amount"),
        (vec![Move("a", "b", i64::MIN)], "invalid_input:amount"),
        (vec![Move("bank", "b", most + 1)], "invalid_input:amount"),
        (vec![Move("a", "nowhere", 1)], "commit:not_found"),
        (vec![Move("nowhere", "a", 1)], "commit:not_found"),
        (vec![Freeze("b", true), Move("a", "b", 1)], "commit:state_conflict:FROZEN"),
        (vec![Freeze("a", true), Move("a", "b", 1)], "commit:state_conflict:FROZEN"),
        (vec![Freeze("nowhere", true)], "not_found"),
    ] {
        assert_eq!(play(&bed, &user(3), &acts).await, Err(word.into()), "{acts:?}");
        assert_eq!(play(&bed, &user(3), &[Look("a"), Look("b")]).await, Ok(vec![10, 0]));
    }
    let moves = [Move("a", "b", 0), Move("a", "b", 10), Move("bank", "b", most)];
    assert_eq!(play(&bed, &user(3), &moves).await, Ok(vec![]));
    let seen = play(&bed, &user(3), &[Look("a"), Look("b"), Look("bank")]).await;
    assert_eq!(seen, Ok(vec![0, most + 10, most + 10]), "a source says how much came from it");
}

#[tokio::test]
async fn a_frozen_account_thaws() {
    let bed = Bed::new().await;
    bed.desk.let_bill("shop");
    play(&bed, &user(3), &[OpenSource("bank"), Open("a")]).await.unwrap();
    play(&bed, &user(3), &[Freeze("a", true)]).await.unwrap();
    let pay = [Move("bank", "a", 1)];
    assert!(play(&bed, &user(3), &pay).await.is_err());
    play(&bed, &user(3), &[Freeze("a", false)]).await.unwrap();
    assert_eq!(play(&bed, &user(3), &pay).await, Ok(vec![]));
}

#[tokio::test]
async fn credit_is_left_by_leave_only_and_stopped_and_read_by_the_biller() {
    let bed = fund(100).await;
    play(&bed, &user(3), &[Open("till")]).await.unwrap();
    for (act, word) in [
        (Move("credit", "till", 1), "invalid_input:from_account"),
        (Move("credit", "credit", 1), "invalid_input:from_account"),
        (Freeze("credit", true), "forbidden"),
        (Entries("credit"), "forbidden"),
        (OpenSource("bank"), "forbidden"),
        // It grows by what it pays: nothing would bound that.
        (OpenDebit("bank"), "forbidden"),
    ] {
        assert_eq!(play(&bed, &user(3), &[act]).await, Err(word.into()), "{act:?}");
    }
    // To give it and to ask what there is takes no biller, and to open it opens nothing.
    assert_eq!(play(&bed, &user(3), &[Open("credit"), Look("credit")]).await, Ok(vec![100]));
    bed.desk.let_bill("shop");
    let acts = [Freeze("credit", true), Entries("credit"), Freeze("credit", false)];
    assert_eq!(play(&bed, &user(3), &acts).await, Ok(vec![100]));
}

#[tokio::test]
async fn the_biller_takes_back_to_its_source_and_nowhere_else() {
    let bed = fund(100).await;
    bed.desk.let_bill("shop");
    play(&bed, &user(3), &[Open("purse")]).await.unwrap();
    bed.desk.users.lock().unwrap().push(id(4));
    for to in ["purse", "absent", &format!("@{}/till", id(4))] {
        let said = play(&bed, &user(3), &[Move("credit", to, 1)]).await;
        assert_eq!(said, Err("invalid_input:from_account".into()), "{to}");
    }
    let over = play(&bed, &user(3), &[Move("credit", "bank", 101)]).await;
    assert_eq!(over, Err("commit:insufficient_credits:OVERDRAWN".into()));
    play(&bed, &user(3), &[Move("credit", "bank", 40)]).await.unwrap();
    assert_eq!(play(&bed, &user(4), &[Look("credit"), Look("bank")]).await, Ok(vec![60, 60]));
}

#[tokio::test]
async fn no_source_pays_unless_the_biller_does_it() {
    let bed = Bed::new().await;
    bed.desk.let_bill("shop");
    // With the organization itself as the narrowest, an account lies where the biller's do.
    let by = scope(key(Role::Admin), 1, None, None);
    play(&bed, &by, &[OpenSource("bank"), Open("purse"), Move("bank", "purse", 5)]).await.unwrap();
    play(&bed, &by, &[OpenDebit("till"), Move("till", "purse", 1)]).await.unwrap();
    bed.desk.let_bill("nobody");
    for (from, to) in [("bank", "credit"), ("bank", "purse"), ("till", "credit"), ("till", "purse")]
    {
        let said = play(&bed, &by, &[Move(from, to, 1)]).await;
        assert_eq!(said, Err("forbidden".into()), "{from} {to}");
    }
    assert_eq!(
        play(&bed, &by, &[Move("purse", "credit", 5), Look("credit")]).await,
        Ok(vec![0]),
        "of six"
    );
    assert_eq!(play(&bed, &by, &[Look("credit")]).await, Ok(vec![5]), "from the commit on");
}

#[tokio::test]
async fn another_users_account_is_paid_where_that_user_is_there() {
    let bed = Bed::new().await;
    let by = scope(key(Role::Admin), 1, None, None);
    bed.desk.let_bill("shop");
    play(&bed, &by, &[OpenSource("bank"), Open("purse"), Move("bank", "purse", 5)]).await.unwrap();
    bed.desk.let_bill("nobody");
    let (theirs, strangers) = (format!("@{}/till", id(4)), format!("@{}/till", id(5)));
    bed.desk.users.lock().unwrap().push(id(4));
    play(&bed, &by, &[Move("purse", &theirs, 2)]).await.unwrap();
    assert_eq!(play(&bed, &user(4), &[Look("till"), Entries("till")]).await, Ok(vec![2, 2]));
    let long = format!("@{}/{}", id(4), long(201));
    for (to, word) in [
        (strangers.as_str(), "not_found"),
        ("@nobody/till", "not_found"),
        (&format!("@{}/", id(4)), "invalid_input:account"),
        (&long, "invalid_input:account"),
        ("@", "invalid_input:account"),
    ] {
        assert_eq!(play(&bed, &by, &[Move("purse", to, 1)]).await, Err(word.into()), "{to}");
    }
    let back = play(&bed, &by, &[Move(&theirs, "purse", 1)]).await;
    assert_eq!(back, Err("invalid_input:account".into()), "a transfer takes from nobody else");
}

#[tokio::test]
async fn who_may_only_read_moves_nothing() {
    let bed = Bed::new().await;
    bed.desk.let_bill("shop");
    let opened = [OpenSource("bank"), Open("a"), Move("bank", "a", 1)];
    play(&bed, &user(3), &opened).await.unwrap();
    let viewer = scope(key(Role::Viewer), 1, Some(2), Some(3));
    let stranger = Principal {
        role: Some(Role::Viewer),
        ..Principal::of(Actor::new(ActorKind::Hook, "anybody"))
    };
    let strangers = Call {
        entry: crate::Entry::React(crate::Signal {
            kind: "hook".into(),
            payload: "{}".into(),
            blob: None,
        }),
        ..bed.call(scope(stranger, 1, Some(2), Some(3)))
    };
    let strangers = &strangers;
    let calls = || {
        [
            (bed.call(viewer.clone()), "forbidden:role_insufficient"),
            (
                Call { entry: strangers.entry.clone(), ..bed.call(strangers.scope.clone()) },
                "forbidden:role_insufficient",
            ),
            (
                Call { mutates: false, entry: handle("shop.look"), ..bed.call(user(3)) },
                "internal_error:UNDECLARED",
            ),
        ]
    };
    for acts in [[Move("bank", "a", 1)], [Freeze("a", true)]] {
        for (call, word) in calls() {
            let said = bed.play(call, async |guest| act(guest, &acts).await).await;
            assert_eq!(said, Err(word.into()), "{acts:?}");
        }
    }
    for (call, _) in calls() {
        let seen = bed.play(call, async |guest| act(guest, &[Look("a"), Entries("a")]).await).await;
        assert_eq!(seen, Ok(vec![1, 1]));
    }
}

#[tokio::test]
async fn entries_come_in_pages_that_lose_and_repeat_none() {
    let bed = Bed::new().await;
    bed.desk.let_bill("shop");
    play(&bed, &user(3), &[OpenSource("bank"), Open("a"), Open("b")]).await.unwrap();
    for amount in 1..=5 {
        play(&bed, &user(3), &[Move("bank", "a", amount)]).await.unwrap();
    }
    play(&bed, &user(3), &[Move("a", "b", 15)]).await.unwrap();
    let page = async |after: Option<&str>, limit| {
        let after = after.map(str::to_owned);
        bed.by(user(3), async |guest| guest.entries("a".into(), after, limit).await).await
    };
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let (entries, next) = page(after.as_deref(), 2).await.unwrap();
        assert!(entries.len() <= 2);
        seen.extend(entries.iter().map(|entry| (entry.amount, entry.counter_account.clone())));
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let mut expected: Vec<_> = (1..=5).map(|amount| (amount, "bank".to_owned())).collect();
    expected.push((-15, "b".into()));
    assert_eq!(seen, expected);
    let (all, next) = page(None, u32::MAX).await.unwrap();
    assert_eq!((all.len(), next), (6, None));
    assert_eq!((all[0].memo.as_str(), all[0].reference.as_str()), ("memo", "ref"));
    assert_eq!(page(None, 0).await.unwrap().0.len(), 1);
    for after in ["x", "-1", "99999999999999999999", ""] {
        let said = page(Some(after), 2).await.map(drop);
        assert_eq!(said, Err("invalid_input:after".into()), "{after}");
    }
}

/// Leave to pay `credit` to the caller's `till`.
async fn leave_to_pay(guest: &mut State, amount: i64) -> Result<(), Failure> {
    use crate::bindings::charter::primitive::governance::{Host as _, Proposal};
    let pay = Some(("credit".into(), "till".into()));
    guest.authorize(Proposal { pay, ..proposal(amount) }).await.map(drop)
}

#[tokio::test]
async fn a_balance_counts_what_the_request_has_leave_to_pay_taken_or_not() {
    let bed = fund(100).await;
    play(&bed, &user(3), &[Open("till")]).await.unwrap();
    let by = user(3);
    for at_once in [false, true] {
        let seen = bed.by(by.clone(), async |guest| {
            if at_once {
                guest.work.as_ref().unwrap().story.marks.take_at_once();
            }
            leave_to_pay(guest, 30).await?;
            Ok((guest.balance_of("credit".into()).await?, guest.balance_of("till".into()).await?))
        });
        let (credit, till) = seen.await.unwrap();
        assert_eq!((credit.posted, credit.pending_out, credit.available), (100, 30, 70));
        assert_eq!((till.posted, till.pending_in, till.available), (0, 30, 0), "{at_once}");
        // Nothing was captured: it is all there again.
        assert_eq!(play(&bed, &user(3), &[Look("credit"), Look("till")]).await, Ok(vec![100, 0]));
    }
    bed.till.refuses.store(true, SeqCst);
    let refused = bed.by(user(3), async |guest| leave_to_pay(guest, 30).await).await;
    assert_eq!(refused, Err("budget_exceeded".into()));
}

/// So many cases; each is a few commits.
fn few() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) }
}

#[test]
fn whatever_is_moved_the_accounts_sum_up_to_nothing_and_none_is_overdrawn() {
    const NAMES: [&str; 4] = ["bank", "a", "b", "c"];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bed = runtime.block_on(Bed::new());
    bed.desk.let_bill("shop");
    let organization = std::sync::atomic::AtomicU8::new(10);
    let moves = proptest::collection::vec((0_usize..4, 0_usize..4, -2_i64..40), 1..12);
    let mut runner = proptest::test_runner::TestRunner::new(few());
    let run = runner.run(&moves, |moves| {
        let by = scope(key(Role::Developer), organization.fetch_add(1, SeqCst), Some(2), Some(3));
        let balances = runtime.block_on(async {
            let open = [OpenSource("bank"), Open("a"), Open("b"), Open("c")];
            play(&bed, &by, &open).await.unwrap();
            for (from, to, amount) in moves {
                let _ = play(&bed, &by, &[Move(NAMES[from], NAMES[to], amount)]).await;
            }
            play(&bed, &by, &NAMES.map(Look)).await.unwrap()
        });
        // The source says how much came from it.
        prop_assert_eq!(balances[0], balances[1..].iter().sum::<i64>());
        prop_assert!(balances[1..].iter().all(|balance| *balance >= 0));
        Ok(())
    });
    run.unwrap();
}

#[tokio::test]
async fn the_texts_of_one_requests_transfers_are_its_own_memory() {
    let config = EngineConfig { guest_memory_bytes_max: 1 << 20, ..EngineConfig::default() };
    let bed = Bed::with(config).await;
    bed.desk.let_bill("shop");
    play(&bed, &user(3), &[OpenSource("bank"), Open("a")]).await.unwrap();
    let said = bed.by(user(3), async |guest| {
        for _ in 0..100 {
            let (from, to) = ("bank".to_owned(), "a".to_owned());
            guest.transfer(from, to, 1, long(200 << 10), String::new()).await?;
        }
        Ok(())
    });
    assert_eq!(said.await, Err("payload_too_large:too_much_held".into()));
    assert_eq!(play(&bed, &user(3), &[Look("a")]).await, Ok(vec![0]));
}

#[tokio::test]
async fn entries_that_a_guest_is_handed_are_the_calls_own_memory_and_end_when_a_page_is_full() {
    let bed = Bed::new().await;
    bed.desk.let_bill("shop");
    play(&bed, &user(3), &[OpenSource("bank"), Open("a")]).await.unwrap();
    for _ in 0..5 {
        let pay = async |guest: &mut State| {
            let (from, to) = ("bank".to_owned(), "a".to_owned());
            guest.transfer(from, to, 1, long(1 << 20), String::new()).await
        };
        bed.by(user(3), pay).await.unwrap();
    }
    let page = async |after: Option<&str>, bytes: usize| {
        let mut guest = bed.attempt_within(&user(3), bytes);
        let page = guest.entries("a".into(), after.map(str::to_owned), PAGE_MAX).await;
        page.map(|(entries, next)| (entries.len(), next)).map_err(|failure| word(&failure))
    };
    assert_eq!(page(None, 1 << 20).await, Err("payload_too_large:too_much_held".into()));
    assert_eq!(page(None, 16 << 20).await, Ok((3, Some("3".into()))));
    assert_eq!(page(Some("3"), 16 << 20).await, Ok((2, None)));
}
