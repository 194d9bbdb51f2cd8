//! The rules of secrets, over a real store: whose they are, what rows say, and keys that sign.

use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Principal, Scope};
use charter_store::PAGE_BYTES_MAX;
use ed25519_dalek::{Signature, VerifyingKey};

use super::*;
use crate::call::Call;
use crate::config::{AdmissionConfig, EngineConfig};
use crate::run::bed::{Bed, alone, handle, key, long, scope, shop, user, word};

async fn put(bed: &Bed, by: &Scope, name: &str, value: &[u8]) -> Result<(), String> {
    let (name, value) = (name.to_owned(), value.to_vec());
    bed.by(by.clone(), async |guest| guest.put(name, value).await).await
}

async fn get(bed: &Bed, by: &Scope, name: &str) -> Result<Option<Vec<u8>>, String> {
    bed.by(by.clone(), async |guest| guest.get(name.to_owned()).await).await
}

#[tokio::test]
async fn a_secret_is_read_back_by_its_user_and_primitive_and_by_nobody_else() {
    let mut bed = Bed::new().await;
    put(&bed, &user(3), "token", b"first").await.unwrap();
    put(&bed, &user(3), "token", b"second").await.unwrap();
    assert_eq!(get(&bed, &user(3), "token").await, Ok(Some(b"second".to_vec())));
    let project = scope(key(Role::Admin), 1, Some(2), None);
    let elsewhere = scope(key(Role::Admin), 9, Some(8), Some(7));
    for by in [user(4), project, elsewhere] {
        assert_eq!(get(&bed, &by, "token").await, Ok(None), "{by:?}");
        let removed = bed.by(by, async |guest| guest.remove("token".into()).await).await;
        assert_eq!(removed, Ok(false));
    }
    let mut other = shop();
    other["name"] = "other".into();
    bed.beside(other);
    assert_eq!(get(&bed, &user(3), "token").await, Ok(None));
    let names = bed.by(user(3), async |guest| guest.names().await).await;
    assert_eq!(names, Ok(vec![]));
}

#[tokio::test]
async fn no_row_says_what_a_secret_is() {
    let bed = Bed::new().await;
    put(&bed, &user(3), "token", b"very-visible-text").await.unwrap();
    let key = Key::new(&user(3).narrowest(), &space(), "shop/token");
    let row = bed.row(&key).await.unwrap();
    let told = format!("{row:?}");
    assert!(!told.contains("very-visible"), "{told}");
    assert!(!told.contains(&STANDARD.encode("very-visible-text")), "{told}");
}

#[tokio::test]
async fn a_sealed_value_opens_in_its_own_row_alone() {
    let bed = Bed::new().await;
    put(&bed, &user(3), "mine", b"m").await.unwrap();
    put(&bed, &user(3), "theirs", b"t").await.unwrap();
    let key = |name: &str| Key::new(&user(3).narrowest(), &space(), format!("shop/{name}"));
    // As if somebody with the database at hand moved one.
    let body = bed.row(&key("theirs")).await.unwrap().body;
    let mut txn = bed.store().begin(user(3).lane());
    txn.put(key("mine"), Draft { body, ..Draft::default() }).await.unwrap();
    txn.commit().await.unwrap();
    assert_eq!(get(&bed, &user(3), "mine").await, Err("internal_error".into()));
    assert_eq!(get(&bed, &user(3), "theirs").await, Ok(Some(b"t".to_vec())));
}

#[tokio::test]
async fn a_secret_is_bounded_in_name_and_bytes() {
    let bed = Bed::new().await;
    for name in ["", "a\0b", &long(201)] {
        let word = Err("invalid_input:name".to_owned());
        assert_eq!(put(&bed, &user(3), name, b"x").await, word);
        assert_eq!(get(&bed, &user(3), name).await.map(drop), word);
    }
    let most = vec![7; VALUE_BYTES_MAX];
    assert_eq!(put(&bed, &user(3), &long(200), &most).await, Ok(()));
    assert_eq!(get(&bed, &user(3), &long(200)).await, Ok(Some(most.clone())));
    let over = [most, vec![7]].concat();
    assert_eq!(put(&bed, &user(3), "a", &over).await, Err("payload_too_large".into()));
    assert_eq!(put(&bed, &user(3), "empty", b"").await, Ok(()));
    assert_eq!(get(&bed, &user(3), "empty").await, Ok(Some(vec![])));
}

#[tokio::test]
async fn names_are_those_that_are_kept() {
    let bed = Bed::new().await;
    for name in ["b", "a", "a/b"] {
        put(&bed, &user(3), name, b"x").await.unwrap();
    }
    put(&bed, &user(4), "c", b"x").await.unwrap();
    bed.by(user(3), async |guest| guest.remove("a".into()).await).await.unwrap();
    let mut names = bed.by(user(3), async |guest| guest.names().await).await.unwrap();
    names.sort();
    assert_eq!(names, ["a/b", "b"]);
}

#[tokio::test]
async fn a_signing_key_signs_and_is_not_handed_out() {
    let bed = Bed::new().await;
    let algorithm = "ed25519".to_owned();
    let public =
        bed.by(user(3), async |guest| guest.generate("k".into(), algorithm).await).await.unwrap();
    let sign = async |by: Scope, name: &str| {
        bed.by(by, async |guest| guest.sign(name.to_owned(), b"message".to_vec()).await).await
    };
    let signature = sign(user(3), "k").await.unwrap();
    let public = VerifyingKey::from_bytes(&public.try_into().unwrap()).unwrap();
    let signature = Signature::from_slice(&signature).unwrap();
    assert!(public.verify_strict(b"message", &signature).is_ok());
    assert!(public.verify_strict(b"another", &signature).is_err());
    assert_eq!(get(&bed, &user(3), "k").await, Err("forbidden".into()));
    put(&bed, &user(3), "plain", &[7; 32]).await.unwrap();
    assert_eq!(sign(user(3), "plain").await, Err("invalid_input:name".into()));
    assert_eq!(sign(user(3), "absent").await, Err("not_found".into()));
    assert_eq!(sign(user(4), "k").await, Err("not_found".into()));
    for algorithm in ["", "rsa", "ED25519"] {
        let made = async |guest: &mut State| guest.generate("r".into(), algorithm.into()).await;
        assert_eq!(bed.by(user(3), made).await.map(drop), Err("invalid_input:algorithm".into()));
    }
}

#[tokio::test]
async fn secrets_are_an_organizations_and_changed_by_who_may_change_things() {
    let bed = Bed::new().await;
    let nobodys = alone(Principal::of(Actor::new(ActorKind::System, "s")));
    assert_eq!(put(&bed, &nobodys, "a", b"x").await, Err("invalid_input".into()));
    let viewer = scope(key(Role::Viewer), 1, Some(2), Some(3));
    put(&bed, &user(3), "a", b"x").await.unwrap();
    assert_eq!(put(&bed, &viewer, "a", b"y").await, Err("forbidden:role_insufficient".into()));
    let reads = || Call { mutates: false, entry: handle("shop.look"), ..bed.call(user(3)) };
    let put = async |guest: &mut State| guest.put("a".into(), b"y".to_vec()).await;
    assert_eq!(bed.play(reads(), put).await, Err("internal_error:UNDECLARED".into()));
    let read = bed.play(reads(), async |guest| guest.get("a".into()).await).await;
    assert_eq!(read, Ok(Some(b"x".to_vec())));
}

#[tokio::test]
async fn secrets_of_one_request_are_its_own_memory() {
    let config = EngineConfig { guest_memory_bytes_max: 1 << 20, ..EngineConfig::default() };
    let bed = Bed::with(config).await;
    let said = bed.by(user(3), async |guest| {
        for n in 0..100 {
            guest.put(n.to_string(), vec![7; VALUE_BYTES_MAX]).await?;
        }
        Ok(())
    });
    assert_eq!(said.await, Err("payload_too_large:too_much_held".into()));
}

#[tokio::test]
async fn what_a_guest_is_handed_of_secrets_is_the_calls_own_memory() {
    let bed = Bed::new().await;
    let filled = bed.by(user(3), async |guest| {
        guest.put("large".into(), vec![7; VALUE_BYTES_MAX]).await?;
        guest.generate("key".into(), "ed25519".into()).await?;
        for n in 0..50 {
            guest.put(format!("{n:0200}"), Vec::new()).await?;
        }
        Ok(())
    });
    filled.await.unwrap();
    let read = async |way: &str, bytes: usize| {
        let mut guest = bed.attempt_within(&user(3), bytes);
        let read = match way {
            "get" => guest.get("large".into()).await.map(drop),
            "sign" => guest.sign("key".into(), vec![7; 64 << 10]).await.map(drop),
            _ => guest.names().await.map(drop),
        };
        read.map_err(|failure| word(&failure))
    };
    // The row of the large one is read as well: its value counts beside it.
    for (way, bytes) in [("get", 120 << 10), ("sign", 32 << 10), ("names", 4 << 10)] {
        assert_eq!(read(way, bytes).await, Err("payload_too_large:too_much_held".into()), "{way}");
        assert_eq!(read(way, 1 << 20).await, Ok(()), "{way}");
    }
}

#[tokio::test]
async fn secrets_are_read_where_there_is_room_for_a_page_of_them() {
    let admission = AdmissionConfig { bytes_max: PAGE_BYTES_MAX, ..AdmissionConfig::default() };
    let bed = Bed::with(EngineConfig { admission, ..EngineConfig::default() }).await;
    put(&bed, &user(3), "a", b"x").await.unwrap();
    let refused = Err("payload_too_large:too_much_held".to_owned());
    assert_eq!(get(&bed, &user(3), "a").await.map(drop), refused);
    let names = bed.by(user(3), async |guest| guest.names().await).await;
    assert_eq!(names.map(drop), refused);
}
