//! The rules of logs, over a real store: whose they are, their bounds, and their pages.

use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Principal, Scope};

use super::*;
use crate::run::bed::{Bed, alone, key, long, scope, shop, user};

async fn append(bed: &Bed, by: &Scope, log: &str, payload: &str) -> Result<(), String> {
    let (log, payload) = (log.to_owned(), payload.to_owned());
    bed.by(by.clone(), async |guest| guest.append(log, "line".into(), payload).await).await
}

async fn read(bed: &Bed, by: &Scope, after: u64, limit: u32) -> Vec<(u64, String)> {
    let read = bed.by(by.clone(), async |guest| guest.read("log".into(), after, limit).await).await;
    read.unwrap().into_iter().map(|entry| (entry.sequence, entry.payload)).collect()
}

#[tokio::test]
async fn entries_are_numbered_without_a_gap_and_read_from_where_one_was() {
    let bed = Bed::new().await;
    for n in 1..=5 {
        append(&bed, &user(3), "log", &n.to_string()).await.unwrap();
        let refused = append(&bed, &user(3), "log", "{").await;
        assert_eq!(refused, Err("invalid_input:payload".into()));
    }
    let entry = |n: u64| (n, n.to_string());
    assert_eq!(read(&bed, &user(3), 0, 1_000).await, (1..=5).map(entry).collect::<Vec<_>>());
    assert_eq!(read(&bed, &user(3), 2, 2).await, [entry(3), entry(4)]);
    assert_eq!(read(&bed, &user(3), 0, 0).await, [entry(1)]);
    assert_eq!(read(&bed, &user(3), 5, u32::MAX).await, []);
    assert_eq!(read(&bed, &user(3), u64::MAX, 1).await, []);
    let head = bed.by(user(3), async |guest| guest.head("log".into()).await).await;
    assert_eq!(head, Ok(5));
}

#[tokio::test]
async fn a_log_is_its_users_and_its_primitives() {
    let mut bed = Bed::new().await;
    append(&bed, &user(3), "log", "1").await.unwrap();
    let project = scope(key(Role::Admin), 1, Some(2), None);
    for by in [user(4), project] {
        assert_eq!(read(&bed, &by, 0, 10).await, [], "{by:?}");
    }
    let mut other = shop();
    other["name"] = "other".into();
    bed.beside(other);
    assert_eq!(read(&bed, &user(3), 0, 10).await, []);
    let nobodys = alone(Principal::of(Actor::new(ActorKind::System, "s")));
    assert_eq!(append(&bed, &nobodys, "log", "1").await, Err("invalid_input".into()));
}

#[tokio::test]
async fn a_logs_name_and_an_entry_are_bounded() {
    let bed = Bed::new().await;
    for name in ["", "a\0b", &long(201)] {
        assert_eq!(append(&bed, &user(3), name, "1").await, Err("invalid_input:log".into()));
    }
    assert_eq!(append(&bed, &user(3), &long(200), "1").await, Ok(()));
    let text = |bytes: usize| format!("\"{}\"", long(bytes));
    assert_eq!(append(&bed, &user(3), "log", &text(1 << 20)).await, Ok(()));
    let over = append(&bed, &user(3), "log", &text(5 << 20)).await;
    assert_eq!(over, Err("payload_too_large".into()));
    for name in ["", "a\0b", &long(513)] {
        let line =
            async |guest: &mut State| guest.append("log".into(), name.to_owned(), "1".into()).await;
        let said = bed.by(user(3), line).await;
        assert_eq!(said, Err("invalid_input:name".into()), "a name no database holds, or none");
    }
    assert_eq!(read(&bed, &user(3), 0, 10).await.len(), 1);
}

#[tokio::test]
async fn a_read_hands_over_a_page_of_bytes_and_not_all_there_is() {
    let bed = Bed::new().await;
    let megabyte = format!("\"{}\"", long(1 << 20));
    for _ in 0..8 {
        append(&bed, &user(3), "log", &megabyte).await.unwrap();
    }
    let (mut after, mut seen) = (0, 0);
    while seen < 8 {
        let page = read(&bed, &user(3), after, 1_000).await;
        let bytes: usize = page.iter().map(|(_, payload)| payload.len()).sum();
        assert!(!page.is_empty() && bytes <= charter_store::PAGE_BYTES_MAX, "{bytes}");
        after = page[page.len() - 1].0;
        seen += page.len();
    }
    assert_eq!(after, 8);
}

#[tokio::test]
async fn a_closed_log_takes_no_more_and_is_read_still() {
    let bed = Bed::new().await;
    append(&bed, &user(3), "log", "1").await.unwrap();
    bed.by(user(3), async |guest| guest.close("log".into()).await).await.unwrap();
    assert_eq!(append(&bed, &user(3), "log", "2").await, Err("commit:state_conflict".into()));
    assert_eq!(append(&bed, &user(4), "log", "2").await, Ok(()), "another's goes on");
    assert_eq!(read(&bed, &user(3), 0, 10).await.len(), 1);
}

#[tokio::test]
async fn what_the_host_holds_for_a_read_is_the_calls_own_memory() {
    let bed = Bed::new().await;
    for _ in 0..3 {
        let text = format!("\"{}\"", long(1 << 20));
        append(&bed, &user(3), "log", &text).await.unwrap();
    }
    let read = async |bytes: usize| {
        let mut guest = bed.attempt_within(&user(3), bytes);
        guest.read("log".into(), 0, 1_000).await.map(|page| page.len())
    };
    let refused = read(1 << 20).await.unwrap_err();
    assert_eq!(refused.reason.as_deref(), Some("too_much_held"));
    assert_eq!(read(16 << 20).await.unwrap(), 3);
}
