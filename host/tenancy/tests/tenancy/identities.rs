//! The sender of a request, as each kind of credential proves its holder.

use std::sync::Arc;

use charter_kernel::role::Role;
use charter_kernel::scope::ActorKind;
use charter_tenancy::identity::Identity;

use crate::bed::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn each_identity_says_who_acts_where_and_in_which_role() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let organization = &house.organization.id;
    let (secret, key) = bed.key(&house, |key| key.role = Role::Developer).await;
    let key_record = bed.directory.key(secret.reveal()).await.unwrap().unwrap();
    let (cookie, _) = bed.sign_in(&house.owner, organization).await;
    let session = bed.directory.session(cookie.reveal()).await.unwrap().unwrap();
    let account = house.owner.id.to_string();
    for (identity, kind, role, actor) in [
        (Identity::Anonymous, None, None, ("anonymous", "")),
        (Identity::Operator { token: Some(1) }, None, None, ("operator", "operator")),
        (
            Identity::Key(Arc::clone(&key_record)),
            Some(ActorKind::Key),
            Some(Role::Developer),
            ("key", key.id.as_str()),
        ),
        (
            Identity::Session(Arc::clone(&session)),
            Some(ActorKind::Session),
            Some(Role::Owner),
            // Records name the person; the session is one of many.
            ("account", account.as_str()),
        ),
    ] {
        assert_eq!(identity.role(), role, "{identity:?}");
        let (actor_kind, id) = identity.actor();
        assert_eq!((actor_kind.as_str(), id.as_str()), actor);
        let asks = identity.principal();
        assert_eq!(asks.as_ref().map(|(principal, _)| principal.actor.kind), kind);
        if let Some((principal, of)) = asks {
            assert_eq!((principal.role, of), (role, organization));
            assert_eq!(principal.root.as_deref(), Some(account.as_str()), "{identity:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_logged_of_an_identity_holds_its_secret() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (cookie, _) = bed.sign_in(&house.owner, &house.organization.id).await;
    let session = bed.directory.session(cookie.reveal()).await.unwrap().unwrap();
    let csrf = charter_tenancy::directory::csrf_token(&cookie);
    let told = format!("{:?} {cookie:?}", Identity::Session(session));
    assert!(!told.contains(cookie.reveal()) && !told.contains(csrf.reveal()), "{told}");
}
