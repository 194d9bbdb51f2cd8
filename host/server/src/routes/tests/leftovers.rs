//! All that would be left of what has ended: sessions beyond the most that there are, and webhooks of
//! projects that are gone.

use charter_kernel::unit::Reach;
use charter_tenancy::records::session::Session;
use charter_tenancy::records::webhook::Webhook;
use charter_tests::patience::PATIENCE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::routes::{projects, webhooks};

impl Bed {
    /// A session of the owner's.
    async fn put_session(&self, n: u8) {
        let account = self.account(&self.owner).await;
        let session = Session {
            id: SessionId::new(NOW, [n; 10]),
            digest: format!("digest {n}"),
            account: self.owner.clone(),
            organization: self.organization.clone(),
            password_version: 0,
            sessions_version: account.sessions_version,
            member_since: None,
            created_at: NOW.plus_ms(i64::from(n)),
            expires_at: NOW.plus_ms(60_000),
        };
        let mut txn = self.app().store.begin("");
        stored::insert(&mut txn, &session, "id").await.unwrap();
        txn.commit().await.unwrap();
    }

    /// Ends the owner's sessions, but this one; how many there were.
    async fn end_sessions(&self, but: Option<u8>) -> usize {
        let but = but.map(|n| SessionId::new(NOW, [n; 10]));
        let mut account = self.account(&self.owner).await;
        let mut txn = self.app().store.begin("");
        let ended = sessions::end_all(&mut txn, &mut account, but.as_ref(), NOW).await.unwrap();
        stored::replace(&mut txn, &account, "email").await.unwrap();
        txn.commit().await.unwrap();
        ended
    }

    async fn count_webhooks(&self) -> u64 {
        let reach = Reach::organization(self.organization.as_str());
        let mut txn = self.app().store.begin("");
        stored::count::<Webhook>(&mut txn, &reach, &[]).await.unwrap()
    }

    /// A request of the owner's about a project.
    async fn about(&self, project: &str, body: Value) -> HostRequest {
        let request = self.by_owner().await;
        let (principal, organization) = request.identity.principal().unwrap();
        let named = Named { project: Some(project), user: None };
        let place = self.app().directory.place(principal, organization, named).await.unwrap();
        HostRequest { place: Some(place), body, ..request }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_sessions_there_are_all_of_them_end() {
    let bed = Bed::new().await;
    bed.end_sessions(None).await;
    // More than one has: sign-ins at the same moment do not know of each other.
    for n in 1..=55 {
        bed.put_session(n).await;
    }
    assert_eq!(bed.end_sessions(Some(55)).await, 54);
    assert_eq!(bed.end_sessions(None).await, 1, "the one that asked was kept");
    for n in 1..=55 {
        bed.put_session(n).await;
    }
    let sign_in = anonymous(json!({"email": "founder@example.com", "password": PASSWORD}));
    called(bed.app(), &sign_in, crate::handler!(auth::login)).await.unwrap();
    assert_eq!(bed.end_sessions(None).await, 50, "the next sign-in ends those that are too many");
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_that_is_gone_has_no_webhooks_and_gets_none() {
    let bed = Bed::new().await;
    let making = HostRequest { body: json!({"name": "gone"}), ..bed.by_owner().await };
    let made = called(bed.app(), &making, crate::handler!(projects::create_project)).await.unwrap();
    let id = made["project"]["id"].as_str().unwrap();
    let wish = json!({"url": "http://127.0.0.1:9/", "eventTypes": ["*"]});
    let hooking = bed.about(id, wish.clone()).await;
    called(bed.app(), &hooking, crate::handler!(webhooks::create_webhook)).await.unwrap();
    let own = HostRequest { body: wish, ..bed.by_owner().await };
    called(bed.app(), &own, crate::handler!(webhooks::create_webhook)).await.unwrap();
    assert_eq!(bed.count_webhooks().await, 2);
    let parameters = vec![("id".to_owned(), id.to_owned())];
    let deletion = HostRequest { parameters, ..bed.by_owner().await };
    called(bed.app(), &deletion, crate::handler!(projects::delete_project)).await.unwrap();
    assert_eq!(bed.count_webhooks().await, 1, "the organization's own stays");
    // It was placed before the project went.
    let late = called(bed.app(), &hooking, crate::handler!(webhooks::create_webhook)).await;
    assert_eq!(late.unwrap_err().code, Code::NotFound);
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_row_nobody_found_ends_with_the_others_and_so_does_its_stream() {
    let bed = Bed::new().await;
    let app = bed.app();
    let mut account = bed.account(&bed.owner).await;
    let mut txn = app.store.begin("");
    let opened = auth::sign_in(app, &anonymous(Value::Null), &mut txn, &account).await.unwrap();
    txn.commit().await.unwrap();
    let token = opened.token.reveal();
    let session = app.directory.session(token).await.unwrap().unwrap();
    let (identity, guards) = (Identity::Session(session.clone()), session.guards());
    assert!(identity.lets_go_on(&app.directory, &guards).await);
    app.directory.require_credential(&guards).await.unwrap();
    let mut stream = tokio::net::TcpStream::connect(bed.running.address).await.unwrap();
    let head = format!(
        "GET /v1/events HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncookie: {}={token}\r\n\r\n",
        sessions::COOKIE
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains("retry:") {
        assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0, "it is open");
    }
    let put = async |account: &Account| {
        let mut txn = app.store.begin("");
        stored::replace(&mut txn, account, "email").await.unwrap();
        txn.commit().await.unwrap();
    };
    // The account changes beside it, and keeps it.
    account.end_sessions(Some(&session.id));
    put(&account).await;
    assert!(identity.lets_go_on(&app.directory, &guards).await);
    app.directory.require_credential(&guards).await.unwrap();
    // It was opened beside the one that ends them all, which did not see its row.
    account.end_sessions(None);
    put(&account).await;
    assert!(!identity.lets_go_on(&app.directory, &guards).await);
    let refused = app.directory.require_credential(&guards).await.unwrap_err();
    assert_eq!(refused.code, Code::Unauthorized);
    let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard));
    ended.await.expect("its stream ends").unwrap();
    bed.end().await;
}
