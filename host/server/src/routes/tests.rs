//! The races of two requests at the same moment, with their rows put there by hand: handlers over a
//! whole app, without HTTP.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use charter_governance::audit;
use charter_kernel::audit::AuditRow;
use charter_kernel::id::{AccountId, InvitationId, KeyId, OrganizationId, SessionId};
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::role::Role;
use charter_kernel::time::{Clock, Instant};
use charter_tenancy::directory::{KeyRecord, Membership, SessionRecord};
use charter_tenancy::identity::Identity;
use charter_tenancy::place::Named;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::account::Account;
use charter_tenancy::records::invitation::Invitation;
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::records::member::Member;
use charter_tenancy::secret::Plain;
use charter_tenancy::stored;
use serde_json::{Value, json};

use super::{auth, invitations, keys, members, sessions};
use crate::app::App;
use crate::cli::{Running, start};
use crate::config::{Config, Layers};
use crate::reply::{Reply, ReplyBody};
use crate::request::HostRequest;
use crate::serve::BoundHandler;

mod asked;
mod descendants;
mod leftovers;
mod moved;
mod ruled;
mod sparse;
mod statements;

const PASSWORD: &str = "correct horse battery staple";
const NOW: Instant = Instant(1_800_000_000_000);

struct Still;

impl Clock for Still {
    fn now(&self) -> Instant {
        NOW
    }
}

/// A host with one organization.
struct Bed {
    running: Running,
    folder: PathBuf,
    organization: OrganizationId,
    owner: AccountId,
    key: KeyId,
}

impl Bed {
    async fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "charter-routes-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = std::env::temp_dir().join(name);
        let flags = vec![
            ("data.dir", "--data", folder.display().to_string()),
            ("http.listen", "--listen", "127.0.0.1:0".to_owned()),
        ];
        let environment = vec![("CHARTER_EGRESS_ALLOW".into(), "127.0.0.0/8".into())];
        let config = Config::read(Layers { flags, environment, ..Layers::default() }).unwrap();
        let running = start(config, Arc::new(Still)).await.unwrap();
        let registered = register(&running.app, "founder@example.com").await;
        let id = |noun: &str| registered[noun]["id"].as_str().unwrap().to_owned();
        Self {
            folder,
            organization: OrganizationId::parse(&id("organization")).unwrap(),
            owner: AccountId::parse(&id("account")).unwrap(),
            key: KeyId::parse(&id("api_key")).unwrap(),
            running,
        }
    }

    fn app(&self) -> &App {
        &self.running.app
    }

    async fn end(self) {
        self.running.stop().await;
        let _ = std::fs::remove_dir_all(&self.folder);
    }

    /// A request of this credential, in the organization's default project.
    async fn request(&self, identity: Identity) -> HostRequest {
        let (principal, organization) = identity.principal().unwrap();
        let place = self.app().directory.place(principal, organization, Named::default());
        let place = place.await.unwrap();
        HostRequest { identity, place: Some(place), ..anonymous(Value::Null) }
    }

    async fn by_key(&self) -> HostRequest {
        self.request(Identity::Key(Arc::new(record(&self.stored_key(&self.key).await)))).await
    }

    async fn by_owner(&self) -> HostRequest {
        self.request(Identity::Session(Arc::new(self.session(&self.owner, &self.organization))))
            .await
    }

    fn session(&self, account: &AccountId, organization: &OrganizationId) -> SessionRecord {
        SessionRecord {
            id: SessionId::new(NOW, [1; 10]),
            account: account.clone(),
            organization: organization.clone(),
            csrf_token: Plain::from_client("t"),
            expires_at: NOW.plus_ms(1),
            digest: "none".into(),
            membership: Membership { role: Role::Owner, since: NOW, version: 1 },
            version: 1,
        }
    }

    async fn stored_key(&self, id: &KeyId) -> ApiKey {
        let mut txn = self.app().store.begin("");
        stored::get::<ApiKey>(&mut txn, &ApiKey::address(&self.organization, id))
            .await
            .unwrap()
            .unwrap()
            .record
    }

    async fn account(&self, id: &AccountId) -> Account {
        let mut txn = self.app().store.begin("");
        stored::get::<Account>(&mut txn, &Account::address(id)).await.unwrap().unwrap().record
    }

    /// A key that descends from these.
    async fn put_key(&self, n: u8, ancestors: Vec<KeyId>) -> ApiKey {
        let key = ApiKey {
            id: KeyId::new(NOW, [n; 10]),
            name: format!("key {n}"),
            digest: format!("{n}"),
            ancestors,
            ..self.stored_key(&self.key).await
        };
        let mut txn = self.app().store.begin(self.organization.as_str());
        keys::insert(&mut txn, &key).await.unwrap();
        txn.commit().await.unwrap();
        key
    }

    /// Waits until the workers have removed a key's row.
    async fn sees_gone(&self, key: &ApiKey) {
        let gone = async {
            while self.app().store.get(&key.key()).await.unwrap().is_some() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let gone = tokio::time::timeout(Duration::from_secs(60), gone).await;
        assert!(gone.is_ok(), "the workers remove it");
    }

    /// A member with this role since this moment.
    async fn put_member(&self, n: u8, role: Role, since: Instant) -> AccountId {
        let account = AccountId::new(NOW, [n; 10]);
        let (organization, email) = (self.organization.clone(), format!("member{n}@example.com"));
        let person = Account {
            id: account.clone(),
            email: email.clone(),
            password_hash: String::new(),
            password_version: 0,
            sessions_version: 0,
            session_kept: None,
            organizations: vec![organization.clone()],
            email_verified_at: Some(since),
            created_at: since,
        };
        let member = Member {
            organization,
            account: account.clone(),
            email,
            role,
            created_at: since,
            decides_since: None,
            offers_since: Vec::new(),
        };
        let mut txn = self.app().store.begin(self.organization.as_str());
        stored::insert(&mut txn, &person, "email").await.unwrap();
        stored::insert(&mut txn, &member, "id").await.unwrap();
        txn.commit().await.unwrap();
        account
    }

    /// An invitation of this inviter; its token.
    async fn put_invitation(
        &self,
        role: Role,
        invited_by: (&str, &str),
        ancestors: Vec<KeyId>,
    ) -> String {
        let token = Plain::generate("inv_").unwrap();
        let random = stored::random().unwrap();
        let invitation = Invitation {
            id: InvitationId::new(NOW, random),
            organization: self.organization.clone(),
            email: format!("{}@example.com", InvitationId::new(NOW, random)),
            role,
            digest: token.digest().hex(),
            mailed: None,
            invited_by: (invited_by.0.to_owned(), invited_by.1.to_owned()),
            ancestors,
            created_at: NOW,
            expires_at: NOW.plus_ms(1),
        };
        let mut txn = self.app().store.begin(self.organization.as_str());
        stored::insert(&mut txn, &invitation, "email").await.unwrap();
        txn.claim(&Invitation::claim(&invitation.digest), &invitation.key()).await.unwrap();
        txn.commit().await.unwrap();
        token.reveal().to_owned()
    }

    async fn accepted(&self, token: &str) -> Result<Value, Code> {
        let request = anonymous(json!({"token": token, "password": PASSWORD}));
        called(self.app(), &request, crate::handler!(invitations::accept_invitation))
            .await
            .map_err(|refusal| refusal.code)
    }

    /// How many invitations the list shows.
    async fn open(&self) -> usize {
        let request = self.by_key().await;
        let listed = called(self.app(), &request, crate::handler!(invitations::list_invitations))
            .await
            .unwrap();
        listed["invitations"].as_array().unwrap().len()
    }
}

fn anonymous(body: Value) -> HostRequest {
    HostRequest {
        id: charter_kernel::id::uuid_v7(NOW, [7; 10]),
        now: NOW,
        began: std::time::Instant::now(),
        method: http::Method::POST,
        path: "/".into(),
        peer: [127, 0, 0, 1].into(),
        tls: false,
        identity: Identity::Anonymous,
        place: None,
        parameters: Vec::new(),
        query: json!({}),
        page: largest_page(),
        body,
        bytes: bytes::Bytes::new(),
        headers: http::HeaderMap::new(),
    }
}

/// Runs a handler, and leaves the commit to the caller.
async fn begun(app: &App, request: &HostRequest, handler: BoundHandler) -> charter_store::Txn {
    let organization = request.place.as_ref().map_or("", |place| place.organization().id.as_str());
    let mut txn = app.store.begin(organization);
    (handler.run)(app, request, &mut txn).await.unwrap();
    txn
}

/// Runs a handler and commits what it wrote.
async fn called(app: &App, request: &HostRequest, handler: BoundHandler) -> Result<Value, Refusal> {
    let organization = request.place.as_ref().map_or("", |place| place.organization().id.as_str());
    let mut txn = app.store.begin(organization);
    let reply: Reply = (handler.run)(app, request, &mut txn).await?;
    txn.commit().await.unwrap();
    match reply.body {
        ReplyBody::Json(text) => Ok(serde_json::from_slice(&text).unwrap()),
        _ => Ok(Value::Null),
    }
}

async fn register(app: &App, email: &str) -> Value {
    let request = anonymous(json!({"email": email, "password": PASSWORD}));
    called(app, &request, crate::handler!(auth::register)).await.unwrap()
}

fn record(key: &ApiKey) -> KeyRecord {
    KeyRecord {
        id: key.id.clone(),
        organization: key.organization.clone(),
        name: key.name.clone(),
        role: key.role,
        project: key.project.clone(),
        user: key.user.clone(),
        expires_at: key.expires_at,
        ancestors: key.ancestors.clone(),
        root: key.root.clone(),
    }
}

async fn names(bed: &Bed) -> Vec<String> {
    let listed =
        called(bed.app(), &bed.by_key().await, crate::handler!(keys::list_keys)).await.unwrap();
    let mut names: Vec<String> = listed["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_whose_person_is_being_removed_has_ended() {
    let bed = Bed::new().await;
    let elsewhere = register(bed.app(), "stranger@example.com").await;
    let elsewhere =
        OrganizationId::parse(elsewhere["organization"]["id"].as_str().unwrap()).unwrap();
    // The records that the directory still vouched for when the request was identified.
    for (account, organization) in
        [(&bed.owner, &elsewhere), (&AccountId::new(NOW, [9; 10]), &bed.organization)]
    {
        let session = Identity::Session(Arc::new(bed.session(account, organization)));
        let request = HostRequest { identity: session, ..anonymous(Value::Null) };
        let refused =
            called(bed.app(), &request, crate::handler!(sessions::get_session)).await.unwrap_err();
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (Code::Unauthorized, "The session has ended.")
        );
    }
    let request = bed.by_owner().await;
    assert!(called(bed.app(), &request, crate::handler!(sessions::get_session)).await.is_ok());
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_not_answered_without_its_row() {
    let bed = Bed::new().await;
    let row = || {
        let row = AuditRow { action: "test", decision: "refused", ..AuditRow::default() };
        charter_store::audit_fact(&row).unwrap()
    };
    audit::commit_alone(&bed.app().store, bed.organization.as_str(), row()).await.unwrap();
    bed.app().store.close().await;
    let refused =
        audit::commit_alone(&bed.app().store, bed.organization.as_str(), row()).await.unwrap_err();
    assert_eq!(refused.code, Code::Overloaded);
    assert!(refused.retry_after_seconds.is_some());
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_opened_by_an_earlier_password_has_ended() {
    let bed = Bed::new().await;
    let credentials = json!({"email": "founder@example.com", "password": PASSWORD});
    // A sign-in that had checked the old password before the new one was committed, and comes
    // after.
    let mut txn = bed.app().store.begin("");
    let claim = Account::claim("founder@example.com");
    let before = stored::holder::<Account>(&mut txn, &claim).await.unwrap().unwrap().record;
    let after = Account { password_version: before.password_version + 1, ..before.clone() };
    stored::replace(&mut txn, &after, "email").await.unwrap();
    txn.commit().await.unwrap();
    let request = anonymous(credentials.clone());
    let mut txn = bed.app().store.begin("");
    let late = auth::sign_in(bed.app(), &request, &mut txn, &before).await.unwrap();
    txn.commit().await.unwrap();
    assert!(bed.app().directory.session(late.token.reveal()).await.unwrap().is_none());
    let mut txn = bed.app().store.begin("");
    let fresh = auth::sign_in(bed.app(), &request, &mut txn, &after).await.unwrap();
    txn.commit().await.unwrap();
    assert!(bed.app().directory.session(fresh.token.reveal()).await.unwrap().is_some());
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_keeps_nobody_from_signing_in() {
    const DAY_MS: i64 = 86_400_000;
    let bed = Bed::new().await;
    let credentials = json!({"email": "founder@example.com", "password": PASSWORD});
    for ahead_ms in [0, 30 * DAY_MS, 0, -DAY_MS] {
        let now = NOW.plus_ms(ahead_ms);
        let request = HostRequest { now, ..anonymous(credentials.clone()) };
        called(bed.app(), &request, crate::handler!(auth::login)).await.unwrap();
    }
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_made_while_its_maker_is_revoked_is_not_listed_and_goes() {
    let bed = Bed::new().await;
    let maker = bed.put_key(1, Vec::new()).await;
    let child = bed.put_key(2, vec![maker.id.clone()]).await;
    assert_eq!(names(&bed).await, ["Registration", "key 1", "key 2"]);
    let mut request = bed.by_key().await;
    request.parameters = vec![("id".into(), maker.id.to_string())];
    called(bed.app(), &request, crate::handler!(keys::revoke_key)).await.unwrap();
    // Committed by another request after the revocation had looked.
    let late = bed.put_key(3, vec![child.id.clone(), maker.id.clone()]).await;
    assert_eq!(names(&bed).await, ["Registration"]);
    bed.sees_gone(&late).await;
    assert_eq!(names(&bed).await, ["Registration"]);
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invitation_is_worth_what_its_inviter_is() {
    let bed = Bed::new().await;
    let nobody = AccountId::new(NOW, [8; 10]);
    let admin = bed.put_member(1, Role::Admin, NOW).await;
    let developer = bed.put_member(2, Role::Developer, NOW).await;
    let returned = bed.put_member(3, Role::Admin, NOW.plus_ms(1)).await;
    let missing = KeyId::new(NOW, [6; 10]);
    let orphan = bed.put_key(4, vec![missing.clone()]).await;
    for (role, inviter, stands) in [
        (Role::Admin, ("account", bed.owner.as_str()), true),
        (Role::Admin, ("account", admin.as_str()), true),
        (Role::Admin, ("key", bed.key.as_str()), true),
        (Role::Owner, ("account", bed.owner.as_str()), true),
        (Role::Owner, ("account", admin.as_str()), false),
        (Role::Owner, ("key", bed.key.as_str()), false),
        (Role::Viewer, ("account", nobody.as_str()), false),
        (Role::Viewer, ("account", developer.as_str()), false),
        (Role::Viewer, ("account", returned.as_str()), false),
        (Role::Viewer, ("key", missing.as_str()), false),
        (Role::Viewer, ("key", orphan.id.as_str()), false),
        (Role::Viewer, ("operator", "operator"), false),
    ] {
        let token = bed.put_invitation(role, inviter, Vec::new()).await;
        assert_eq!(bed.open().await, usize::from(stands), "{role} by {inviter:?}");
        match bed.accepted(&token).await {
            Ok(accepted) => {
                assert!(stands && accepted["role"] == role.as_str(), "{role} by {inviter:?}")
            }
            Err(code) => {
                assert!(!stands && code == Code::Unauthorized, "{role} by {inviter:?}: {code:?}")
            }
        }
    }
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_has_offered_ends_with_them_and_is_named() {
    let bed = Bed::new().await;
    let admin = bed.put_member(1, Role::Owner, NOW).await;
    let maker = bed.put_key(2, Vec::new()).await;
    let child = bed.put_key(3, vec![maker.id.clone()]).await;
    let by_admin = ("account", admin.as_str());
    bed.put_invitation(Role::Owner, by_admin, Vec::new()).await;
    bed.put_invitation(Role::Developer, by_admin, Vec::new()).await;
    bed.put_invitation(Role::Viewer, ("key", child.id.as_str()), child.ancestors.clone()).await;
    let kept = bed.put_invitation(Role::Viewer, ("key", bed.key.as_str()), Vec::new()).await;
    let rows = async || {
        let reach = charter_kernel::unit::Reach::organization(bed.organization.as_str());
        let mut txn = bed.app().store.begin("");
        stored::list::<Invitation>(&mut txn, &reach, &[], 100, 0).await.unwrap().0.len()
    };
    let named = |answer: &Value| answer["invitations"].as_array().unwrap().len();
    let at = async |id: &str, body: Value| {
        let parameters = vec![("id".to_owned(), id.to_owned())];
        HostRequest { parameters, body, ..bed.by_owner().await }
    };
    let demotion = at(admin.as_str(), json!({"role": "admin"})).await;
    let demoted =
        called(bed.app(), &demotion, crate::handler!(members::update_member)).await.unwrap();
    assert_eq!(
        (named(&demoted), rows().await),
        (1, 3),
        "an admin offers no ownership, and everything else"
    );
    let removal = at(admin.as_str(), Value::Null).await;
    let removed =
        called(bed.app(), &removal, crate::handler!(members::remove_member)).await.unwrap();
    assert_eq!((named(&removed), rows().await), (1, 2));
    let revocation = at(maker.id.as_str(), Value::Null).await;
    let revoked = called(bed.app(), &revocation, crate::handler!(keys::revoke_key)).await.unwrap();
    assert_eq!(
        (named(&revoked), rows().await),
        (1, 1),
        "with a key goes what its descendants have offered"
    );
    assert!(bed.accepted(&kept).await.is_ok());
    bed.end().await;
}

fn largest_page() -> crate::paging::Page {
    let mut page = crate::paging::Page::default();
    page.limit = 200;
    page
}
