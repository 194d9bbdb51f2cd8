//! Sessions that are moved, and opened, while all of them end: nothing of theirs delays the end, and
//! what it did not find is over all the same.

use charter_tenancy::records::session::Session;

use super::*;

impl Bed {
    /// Somebody signs in, as this account was read.
    async fn sign_in(&self, account: &Account) -> auth::SignedIn {
        let mut txn = self.app().store.begin("");
        let signed_in =
            auth::sign_in(self.app(), &anonymous(Value::Null), &mut txn, account).await.unwrap();
        txn.commit().await.unwrap();
        signed_in
    }

    /// The session's row is written, as by a move to another organization.
    async fn write_session(&self, session: &Session) {
        let mut txn = self.app().store.begin("");
        stored::replace(&mut txn, session, "id").await.unwrap();
        txn.commit().await.unwrap();
    }

    async fn counts(&self, signed_in: &auth::SignedIn) -> bool {
        self.app().directory.session(signed_in.token.reveal()).await.unwrap().is_some()
    }

    async fn has_row(&self, signed_in: &auth::SignedIn) -> bool {
        self.app().store.get(&signed_in.session.key()).await.unwrap().is_some()
    }

    /// The ids of the sessions that one of them lists.
    async fn listed(&self, request: &HostRequest) -> Vec<String> {
        let listed = called(self.app(), request, crate::handler!(sessions::list_sessions)).await;
        let listed = listed.unwrap()["sessions"].as_array().unwrap().clone();
        listed.iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_other_sessions_end_whatever_they_do_meanwhile() {
    let bed = Bed::new().await;
    let before = bed.account(&bed.owner).await;
    let (own, other) = (bed.sign_in(&before).await, bed.sign_in(&before).await);
    let found = bed.app().directory.session(own.token.reveal()).await.unwrap().unwrap();
    let request = bed.request(Identity::Session(found)).await;
    assert_eq!(bed.listed(&request).await.len(), 2);
    let handler = crate::handler!(sessions::revoke_other_sessions);
    let txn = begun(bed.app(), &request, handler).await;
    bed.write_session(&other.session).await;
    bed.write_session(&own.session).await;
    let late = bed.sign_in(&before).await;
    txn.commit().await.unwrap();
    assert!(bed.has_row(&late).await, "it was opened since the end has looked");
    assert!(!bed.counts(&other).await && !bed.counts(&late).await && bed.counts(&own).await);
    assert_eq!(bed.listed(&request).await, [own.session.id.to_string()]);
    let again = bed.sign_in(&bed.account(&bed.owner).await).await;
    assert!(bed.counts(&again).await && bed.counts(&own).await);
    assert!(!bed.has_row(&late).await, "the next sign-in removes what is left");
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_removed_whatever_their_sessions_do_meanwhile() {
    let bed = Bed::new().await;
    let person = bed.put_member(1, Role::Developer, NOW).await;
    let account = bed.account(&person).await;
    let first = bed.sign_in(&account).await;
    let parameters = vec![("id".to_owned(), person.to_string())];
    let request = HostRequest { parameters, ..bed.by_owner().await };
    let txn = begun(bed.app(), &request, crate::handler!(members::remove_member)).await;
    bed.write_session(&first.session).await;
    let late = bed.sign_in(&account).await;
    txn.commit().await.unwrap();
    assert!(!bed.counts(&first).await && !bed.counts(&late).await);
    let back = Member {
        organization: bed.organization.clone(),
        account: person.clone(),
        email: account.email.clone(),
        role: Role::Developer,
        created_at: NOW.plus_ms(1),
        decides_since: None,
        offers_since: Vec::new(),
    };
    let mut txn = bed.app().store.begin("");
    stored::insert(&mut txn, &back, "id").await.unwrap();
    txn.commit().await.unwrap();
    assert!(bed.has_row(&late).await, "it was opened since the removal has looked");
    assert!(!bed.counts(&late).await, "it is of the membership that ended");
    assert!(bed.counts(&bed.sign_in(&account).await).await);
    bed.end().await;
}
