//! The rules of names, over a real store: who holds one, who releases it, and who is told.

use charter_kernel::role::Role;
use charter_kernel::scope::Scope;
use charter_store::Query;

use super::*;
use crate::bindings::charter::primitive::documents::Host as _;
use crate::bindings::charter::primitive::jobs::{Host as _, Job};
use crate::config::EngineConfig;
use crate::job::{JobRecord, jobs};
use crate::run::bed::{Bed, key, long, scope, shop, user};

/// A note of a user's.
async fn note(bed: &Bed, by: &Scope) -> String {
    let insert = async |guest: &mut State| guest.insert("notes".into(), "{}".into(), None).await;
    bed.by(by.clone(), insert).await.unwrap().id
}

async fn claim(bed: &Bed, by: &Scope, name: &str, note: &str) -> Result<bool, String> {
    let (space, name) = ("domain".to_owned(), name.to_owned());
    let note = note.to_owned();
    bed.by(by.clone(), async |guest| Host::claim(guest, space, name, "notes".into(), note).await)
        .await
}

async fn release(bed: &Bed, by: &Scope, name: &str) -> Result<(), String> {
    let (space, name) = ("domain".to_owned(), name.to_owned());
    bed.by(by.clone(), async |guest| Host::release(guest, space, name).await).await
}

#[tokio::test]
async fn a_name_is_one_documents_until_its_own_holder_releases_it() {
    let bed = Bed::new().await;
    let (mine, theirs) = (note(&bed, &user(3)).await, note(&bed, &user(4)).await);
    assert_eq!(claim(&bed, &user(3), "a.test", &mine).await, Ok(true));
    assert_eq!(claim(&bed, &user(3), "a.test", &mine).await, Ok(true), "it has it");
    assert_eq!(claim(&bed, &user(4), "a.test", &theirs).await, Ok(false));
    assert_eq!(release(&bed, &user(4), "a.test").await, Ok(()), "and learns nothing");
    assert_eq!(claim(&bed, &user(4), "a.test", &theirs).await, Ok(false));
    assert_eq!(release(&bed, &user(3), "a.test").await, Ok(()));
    assert_eq!(claim(&bed, &user(4), "a.test", &theirs).await, Ok(true));
    assert_eq!(release(&bed, &user(3), "nobodys.test").await, Ok(()));
}

#[tokio::test]
async fn a_name_of_one_primitive_is_none_of_another() {
    let mut bed = Bed::new().await;
    let mine = note(&bed, &user(3)).await;
    assert_eq!(claim(&bed, &user(3), "a.test", &mine).await, Ok(true));
    let mut other = shop();
    other["name"] = "other".into();
    bed.beside(other);
    let theirs = note(&bed, &user(4)).await;
    assert_eq!(claim(&bed, &user(4), "a.test", &theirs).await, Ok(true));
}

#[tokio::test]
async fn a_name_and_its_space_are_within_bounds() {
    let bed = Bed::new().await;
    let mine = note(&bed, &user(3)).await;
    for name in ["", "a\0b", &long(251)] {
        let word = Err("invalid_input:name".to_owned());
        assert_eq!(claim(&bed, &user(3), name, &mine).await.map(drop), word);
        assert_eq!(release(&bed, &user(3), name).await, word);
        let spaced = bed.by(user(3), async |guest| {
            guest.deliver(name.to_owned(), "a".into(), "{}".into()).await
        });
        assert_eq!(spaced.await.map(drop), word);
    }
    assert_eq!(claim(&bed, &user(3), &long(250), &mine).await, Ok(true));
    let undeclared = bed.by(user(3), async |guest| {
        Host::claim(guest, "domain".into(), "b".into(), "nothing".into(), "x".into()).await
    });
    assert_eq!(undeclared.await, Err("internal_error:UNDECLARED".into()));
    let shared = bed.by(user(3), async |guest| {
        Host::claim(guest, "domain".into(), "b".into(), "world".into(), "x".into()).await
    });
    assert_eq!(shared.await, Err("forbidden".into()), "nobody's document holds a name of theirs");
}

#[tokio::test]
async fn what_is_sent_to_a_name_is_told_in_its_holders_scope() {
    let bed = Bed::new().await;
    let holder = user(3);
    let mine = note(&bed, &holder).await;
    claim(&bed, &holder, "a.test", &mine).await.unwrap();
    let deliver = async |name: &str, payload: &str| {
        let (name, payload) = (name.to_owned(), payload.to_owned());
        bed.by(user(4), async |guest| guest.deliver("domain".into(), name, payload).await).await
    };
    assert_eq!(deliver("a.test", r#"{"n":1}"#).await, Ok(true));
    assert_eq!(deliver("nobodys.test", "{}").await, Ok(false));
    assert_eq!(deliver("a.test", "{").await, Err("invalid_input:payload".into()));
    let found = bed.store().find(&Query::all(&holder.narrowest(), &jobs())).await.unwrap();
    let [(_, row)] = found.items.as_slice() else { panic!("{} jobs", found.items.len()) };
    let job: JobRecord = serde_json::from_str(&row.body).unwrap();
    assert_eq!(
        (job.signal.as_str(), job.owner.user.as_deref()),
        (NAME, holder.user().map(|id| id.as_str()))
    );
    assert_eq!(job.asked, None, "who sends lends no power");
    assert_eq!(
        (&job.payload.value()["document"], &job.payload.value()["payload"]),
        (&json!(mine), &json!({ "n": 1 }))
    );
    assert!(!job.payload.text().contains(user(4).user().unwrap().as_str()));
    let sender = bed.store().find(&Query::all(&user(4).narrowest(), &jobs())).await.unwrap();
    assert!(sender.items.is_empty());
}

#[tokio::test]
async fn what_is_sent_to_a_name_is_bounded_as_a_jobs_payload_is() {
    let bed = Bed::new().await;
    let mine = note(&bed, &user(3)).await;
    claim(&bed, &user(3), "a.test", &mine).await.unwrap();
    let deliver = async |bytes: usize| {
        let payload = format!("\"{}\"", long(bytes - 2));
        let deliver = async |guest: &mut State| {
            guest.deliver("domain".into(), "a.test".into(), payload).await
        };
        bed.by(user(4), deliver).await
    };
    assert_eq!(deliver(PAYLOAD_BYTES_MAX).await, Ok(true));
    assert_eq!(deliver(PAYLOAD_BYTES_MAX + 1).await, Err("payload_too_large".into()));
}

#[tokio::test]
async fn what_others_send_to_a_name_leaves_its_holder_room_for_jobs_of_its_own() {
    let config = EngineConfig { jobs_waiting_max: 6, ..EngineConfig::default() };
    let bed = Bed::with(config).await;
    let holder = user(3);
    let mine = note(&bed, &holder).await;
    claim(&bed, &holder, "a.test", &mine).await.unwrap();
    let elsewhere = scope(key(Role::Developer), 9, Some(8), Some(7));
    let deliver = async || {
        let deliver = async |guest: &mut State| {
            guest.deliver("domain".into(), "a.test".into(), "{}".into()).await
        };
        bed.by(elsewhere.clone(), deliver).await
    };
    let enqueue = async || {
        let job = Job {
            name: "own".into(),
            payload: "{}".into(),
            run_at: None,
            key: None,
            attempts_max: 1,
            deadline_ms: None,
            public: false,
        };
        bed.by(holder.clone(), async |guest| guest.enqueue(job).await).await
    };
    for _ in 0..2 {
        assert_eq!(deliver().await, Ok(true), "strangers leave as much as they have");
    }
    let full = "rate_limited:jobs_full".to_owned();
    assert_eq!(deliver().await, Err(full.clone()));
    for _ in 0..4 {
        assert!(enqueue().await.is_ok());
    }
    assert_eq!(enqueue().await, Err(full));
}
