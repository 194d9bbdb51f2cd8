//! The rules of leases, over a real store: what is handed out to whom, for how long, and which token
//! settles it.

use charter_kernel::role::Role;
use charter_kernel::scope::Scope;
use charter_kernel::time::Clock as _;

use super::*;
use crate::bindings::charter::primitive::documents::Host as _;
use crate::run::bed::{Bed, key, long, scope, user, word};

/// Puts items of a group there, due at a moment where one is named.
async fn fill(bed: &Bed, by: &Scope, items: usize, due_at: Option<i64>) {
    let fill = async |guest: &mut State| {
        for _ in 0..items {
            guest.insert("items".into(), r#"{"group":"g"}"#.into(), due_at).await?;
        }
        Ok(())
    };
    bed.by(by.clone(), fill).await.unwrap();
}

async fn take(bed: &Bed, by: &Scope, limit: u32, until: i64) -> Vec<Leased> {
    let take =
        async |guest: &mut State| Host::take(guest, "items".into(), "g".into(), limit, until).await;
    bed.by(by.clone(), take).await.unwrap()
}

/// Ready, held and waiting.
async fn standing(bed: &Bed, by: &Scope) -> (u64, u64, u64) {
    let of = async |guest: &mut State| guest.standing_of("items".into(), "g".into()).await;
    let standing = bed.by(by.clone(), of).await.unwrap();
    (standing.ready, standing.held, standing.waiting)
}

fn soon(bed: &Bed) -> i64 {
    bed.hands.now().0 + 60_000
}

#[tokio::test]
async fn what_is_handed_out_is_due_ones_own_and_bounded() {
    let bed = Bed::new().await;
    fill(&bed, &user(3), 120, None).await;
    fill(&bed, &user(3), 1, Some(i64::MAX)).await;
    fill(&bed, &user(4), 1, None).await;
    assert_eq!(standing(&bed, &user(3)).await, (120, 0, 1));
    assert_eq!(take(&bed, &user(3), 0, soon(&bed)).await.len(), 0);
    assert_eq!(take(&bed, &user(3), u32::MAX, soon(&bed)).await.len(), TAKEN_MAX as usize);
    assert_eq!(take(&bed, &user(3), 100, soon(&bed)).await.len(), 20);
    assert_eq!(take(&bed, &user(3), 100, soon(&bed)).await.len(), 0);
    assert_eq!(standing(&bed, &user(3)).await, (0, 120, 1));
    assert_eq!(take(&bed, &user(4), 100, soon(&bed)).await.len(), 1);
}

#[tokio::test]
async fn a_lease_lasts_a_day_at_most_and_ends_by_itself() {
    let bed = Bed::new().await;
    fill(&bed, &user(3), 1, None).await;
    let taken = take(&bed, &user(3), 1, i64::MAX).await;
    let latest = bed.hands.now().0 + LEASE_MS_MAX;
    assert!(taken[0].until <= latest && taken[0].until > latest - 1_000);
    assert_eq!(taken[0].count, 1);
    bed.hands.turn(LEASE_MS_MAX);
    let again = take(&bed, &user(3), 1, soon(&bed)).await;
    assert_eq!((again.len(), again[0].count), (1, 2), "who takes it sees that it was taken before");
    let settle =
        async |token: String| bed.by(user(3), async |guest| Host::settle(guest, token).await).await;
    let lost = settle(taken[0].token.clone()).await;
    assert_eq!(lost, Err("state_conflict:LEASE_LOST".into()), "the first one's is over");
    assert_eq!(settle(again[0].token.clone()).await, Ok(()));
    assert_eq!(standing(&bed, &user(3)).await, (0, 0, 0));
}

#[tokio::test]
async fn a_lease_until_long_ago_is_over_at_once_and_leaves_the_row_whole() {
    let bed = Bed::new().await;
    fill(&bed, &user(3), 1, None).await;
    for until in [0, -1, i64::MIN] {
        let taken = take(&bed, &user(3), 1, until).await;
        assert_eq!(taken.len(), 1, "{until}");
        let settle = async |guest: &mut State| Host::settle(guest, taken[0].token.clone()).await;
        let said = bed.by(user(3), settle).await;
        assert_eq!(said, Err("state_conflict:LEASE_LOST".into()), "{until}");
    }
    assert_eq!(standing(&bed, &user(3)).await, (1, 0, 0));
}

/// Something that takes a token.
#[derive(Clone, Copy, Debug)]
enum With {
    Extend,
    Release,
    Settle,
}

async fn with(bed: &Bed, by: &Scope, with: With, token: &str) -> Result<(), String> {
    let (token, soon) = (token.to_owned(), soon(bed));
    let act = async |guest: &mut State| match with {
        With::Extend => guest.extend(token, soon).await,
        With::Release => Host::release(guest, token, soon).await,
        With::Settle => Host::settle(guest, token).await,
    };
    bed.by(by.clone(), act).await
}

#[tokio::test]
async fn a_token_counts_for_its_own_row_and_caller() {
    let bed = Bed::new().await;
    fill(&bed, &user(3), 2, None).await;
    fill(&bed, &user(4), 1, None).await;
    let [first, second] = &take(&bed, &user(3), 2, soon(&bed)).await[..] else { panic!() };
    let theirs = take(&bed, &user(4), 1, soon(&bed)).await;
    let parts = |leased: &Leased| Token::parse(&leased.token).unwrap();
    let mixed = Token { random: parts(second).random, ..parts(first) }.text();
    let elsewhere = Token { collection: "notes".into(), ..parts(first) }.text();
    let unknown = Token { collection: "nothing".into(), ..parts(first) }.text();
    let forged = Token { random: String::new(), ..parts(first) }.text();
    let lost = "state_conflict:LEASE_LOST";
    for act in [With::Extend, With::Release, With::Settle] {
        for (by, token, word) in [
            (user(3), mixed.as_str(), lost),
            (user(3), &forged, lost),
            (user(3), &theirs[0].token, lost),
            (user(4), &first.token, lost),
            (user(3), &elsewhere, "internal_error:UNDECLARED"),
            (user(3), &unknown, "internal_error:UNDECLARED"),
            (user(3), "", "invalid_input:token"),
            (user(3), &long(2_000), "invalid_input:token"),
            (
                scope(key(Role::Viewer), 1, Some(2), Some(3)),
                &first.token,
                "forbidden:role_insufficient",
            ),
        ] {
            assert_eq!(with(&bed, &by, act, token).await, Err(word.into()), "{act:?} {token}");
        }
    }
    for (act, token) in [
        (With::Extend, &first.token),
        (With::Release, &first.token),
        (With::Settle, &second.token),
        (With::Settle, &theirs[0].token),
    ] {
        let by = if *token == theirs[0].token { user(4) } else { user(3) };
        assert_eq!(with(&bed, &by, act, token).await, Ok(()), "{act:?}");
        if !matches!(act, With::Extend) {
            assert_eq!(with(&bed, &by, act, token).await, Err(lost.into()), "{act:?} again");
        }
    }
    assert_eq!(standing(&bed, &user(3)).await, (0, 0, 1), "released, and due soon");
}

#[tokio::test]
async fn what_is_released_or_deferred_is_due_when_it_says() {
    let bed = Bed::new().await;
    fill(&bed, &user(3), 1, None).await;
    let taken = take(&bed, &user(3), 1, soon(&bed)).await;
    let release = async |due_at| {
        let token = taken[0].token.clone();
        bed.by(user(3), async |guest| Host::release(guest, token, due_at).await).await
    };
    assert_eq!(release(i64::MIN).await, Ok(()));
    assert_eq!(standing(&bed, &user(3)).await, (1, 0, 0));
    let id = &taken[0].document.id;
    let defer = async |by: Scope, collection: &str, due_at| {
        let defer =
            async |guest: &mut State| guest.defer(collection.into(), id.clone(), due_at).await;
        bed.by(by, defer).await
    };
    assert_eq!(defer(user(3), "items", i64::MAX).await, Ok(()));
    assert_eq!(standing(&bed, &user(3)).await, (0, 0, 1));
    assert!(defer(user(4), "items", 0).await.is_err(), "another's");
    assert_eq!(defer(user(3), "notes", 0).await, Err("internal_error:UNDECLARED".into()));
    assert_eq!(defer(user(3), "items", i64::MIN).await, Ok(()));
    assert_eq!(standing(&bed, &user(3)).await, (1, 0, 0));
}

#[tokio::test]
async fn a_group_is_purged_whole_and_no_other() {
    let bed = Bed::new().await;
    fill(&bed, &user(3), 3, None).await;
    fill(&bed, &user(4), 1, None).await;
    take(&bed, &user(3), 1, soon(&bed)).await;
    let purge = async |collection: &str, group: &str| {
        let (collection, group) = (collection.to_owned(), group.to_owned());
        bed.by(user(3), async |guest| guest.purge(collection, group).await).await
    };
    assert_eq!(purge("items", "other").await, Ok(false));
    assert_eq!(standing(&bed, &user(3)).await, (2, 1, 0));
    assert_eq!(purge("items", "g").await, Ok(false));
    assert_eq!(standing(&bed, &user(3)).await, (0, 0, 0));
    assert_eq!(standing(&bed, &user(4)).await, (1, 0, 0));
    for collection in ["notes", "nothing"] {
        assert_eq!(purge(collection, "g").await, Err("internal_error:UNDECLARED".into()));
    }
}

#[tokio::test]
async fn a_second_run_is_handed_what_the_first_one_was() {
    let bed = Bed::new().await;
    fill(&bed, &user(3), 3, None).await;
    let until = soon(&bed);
    let mut guest = bed.attempt(bed.call(user(3)));
    let ids = |taken: Vec<Leased>| taken.into_iter().map(|one| one.document.id).collect::<Vec<_>>();
    let take = async |guest: &mut State, limit| {
        ids(Host::take(guest, "items".into(), "g".into(), limit, until).await.unwrap())
    };
    let first = take(&mut guest, 1).await;
    let rerun = |guest: &mut State, attempt| {
        let work = guest.work().unwrap();
        (work.story.attempt, work.takes) = (attempt, 0);
    };
    rerun(&mut guest, 2);
    assert_eq!(take(&mut guest, 1).await, first);
    assert_ne!(take(&mut guest, 1).await, first, "a second place is handed another");
    rerun(&mut guest, 3);
    assert_eq!(take(&mut guest, 2).await.len(), 1, "who asks for others gets what is left");
    assert_eq!(guest.work().unwrap().story.takes.len(), 3, "and what it was handed is known");
}

#[tokio::test]
async fn documents_that_are_handed_out_are_the_calls_own_memory() {
    let bed = Bed::new().await;
    let body = format!(r#"{{"group":"g","rest":"{}"}}"#, long(100 << 10));
    let fill = async |guest: &mut State| {
        for _ in 0..5 {
            guest.insert("items".into(), body.clone(), None).await?;
        }
        Ok(())
    };
    bed.by(user(3), fill).await.unwrap();
    let until = soon(&bed);
    let take = async |limit: u32, bytes: usize| {
        let mut guest = bed.attempt_within(&user(3), bytes);
        let taken = Host::take(&mut guest, "items".into(), "g".into(), limit, until).await;
        taken.map(|taken| taken.len()).map_err(|failure| word(&failure))
    };
    assert_eq!(take(2, 350 << 10).await, Err("payload_too_large:too_much_held".into()));
    assert_eq!(take(1, 350 << 10).await, Ok(1));
    assert_eq!(take(2, 1 << 20).await, Ok(2));
}

#[tokio::test]
async fn what_an_attempt_was_handed_is_the_requests_memory_until_a_checkpoint() {
    let bed = Bed::new().await;
    let body = format!(r#"{{"group":"g","rest":"{}"}}"#, long(100 << 10));
    for _ in 0..3 {
        let one = async |guest: &mut State| guest.insert("items".into(), body.clone(), None).await;
        bed.by(user(3), one).await.unwrap();
    }
    let until = soon(&bed);
    let mut guest = bed.attempt(bed.call(user(3)));
    Host::take(&mut guest, "items".into(), "g".into(), 2, until).await.unwrap();
    let held = guest.held_bytes();
    assert!(held > 4 * (100 << 10), "in the transaction, and for the next attempt: {held}");
    // The next attempt begins with what it would be handed again.
    let mut next = bed.attempt(bed.call(user(3)));
    next.work().unwrap().story = guest.work().unwrap().story.clone();
    assert!(next.held_bytes() > 2 * (100 << 10));
    guest.work().unwrap().checkpoint().await.unwrap();
    assert!(guest.held_bytes() < 10 << 10, "what is committed is asked for no more");
    let rest = Host::take(&mut guest, "items".into(), "g".into(), 2, until).await.unwrap();
    assert_eq!(rest.len(), 1);
    bed.end(guest, true).await.unwrap();
    assert_eq!(standing(&bed, &user(3)).await, (0, 3, 0), "and stays handed out");
}

#[tokio::test]
async fn a_group_and_a_document_are_named_as_a_database_holds_them() {
    let bed = Bed::new().await;
    let until = soon(&bed);
    for (name, word) in
        [(long(512), Ok(())), (long(513), Err("group")), ("a\0b".into(), Err("group"))]
    {
        let items = || "items".to_owned();
        let (by, expected) = (user(3), word.map_err(|at: &str| format!("invalid_input:{at}")));
        let taken =
            async |guest: &mut State| Host::take(guest, items(), name.clone(), 1, until).await;
        assert_eq!(bed.by(by.clone(), taken).await.map(drop), expected);
        let of = async |guest: &mut State| guest.standing_of(items(), name.clone()).await;
        assert_eq!(bed.by(by.clone(), of).await.map(drop), expected);
        let purge = async |guest: &mut State| guest.purge(items(), name.clone()).await;
        assert_eq!(bed.by(by, purge).await.map(drop), expected);
    }
    for id in [long(513), "a\0b".into()] {
        let defer = async |guest: &mut State| guest.defer("items".into(), id.clone(), until).await;
        assert_eq!(bed.by(user(3), defer).await, Err("invalid_input:id".into()));
    }
}
