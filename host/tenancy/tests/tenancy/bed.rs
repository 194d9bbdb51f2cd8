//! A store of its own for each test, organizations to fill it with, and the few words that the
//! tests are written in.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst};

use charter_kernel::id::{AccountId, KeyId, KitId, OrganizationId, ProjectId, SessionId, UserId};
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Principal};
use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::Key;
use charter_store::{Store, StoreConfig};
use charter_tenancy::directory::Directory;
use charter_tenancy::records::Record;
use charter_tenancy::records::account::Account;
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::records::kit::StoredKit;
use charter_tenancy::records::member::Member;
use charter_tenancy::records::organization::{Loosening, Organization};
use charter_tenancy::records::project::{Mode, Project};
use charter_tenancy::records::session::{LIFETIME_MS, Session};
use charter_tenancy::records::user::{Revocation, User};
use charter_tenancy::secret::Plain;

/// A clock that tests move.
#[derive(Debug)]
pub struct Hands(AtomicI64);

impl Hands {
    pub fn forward_ms(&self, ms: i64) {
        self.0.fetch_add(ms, SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Instant {
        Instant(self.0.load(SeqCst))
    }
}

/// A database, and the directory over it.
pub struct Bed {
    pub store: Store,
    pub directory: Directory,
    pub clock: Arc<Hands>,
    folder: PathBuf,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Bed {
    pub async fn new() -> Self {
        static BEDS: AtomicU32 = AtomicU32::new(0);
        let name = format!("charter-tenancy-{}-{}", std::process::id(), BEDS.fetch_add(1, SeqCst));
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let clock = Arc::new(Hands(AtomicI64::new(1_800_000_000_000)));
        let mut config = StoreConfig::new(&folder, clock.clone());
        config.ballast_bytes = 1024 * 1024;
        let store = Store::open(config).await.unwrap();
        let directory = Directory::new(store.clone(), clock.clone(), 1).unwrap();
        Self { store, directory, clock, folder }
    }

    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Writes a record, whether or not it is there.
    pub async fn put(&self, record: &impl Record) {
        let mut txn = self.store.begin("");
        txn.put(record.key(), record.draft().unwrap()).await.unwrap();
        txn.commit().await.unwrap();
    }

    pub async fn remove(&self, key: &Key) {
        let mut txn = self.store.begin("");
        assert!(txn.remove(key, None).await.unwrap(), "there was nothing to remove");
        txn.commit().await.unwrap();
    }

    /// An organization with an owner, and two projects, the second of them a test project.
    pub async fn house(&self) -> House {
        let now = self.now();
        let id = OrganizationId::new(now, random());
        let main = self.estate(&id, Mode::Live).await;
        let side = self.estate(&id, Mode::Test).await;
        let organization = Organization {
            id,
            name: "Acme".into(),
            default_project: main.project.id.clone(),
            loosening: Loosening::Key,
            loosening_since: None,
            time_zone: "UTC".into(),
            budget: None,
            budget_agreed: true,
            policy: charter_kernel::governance::policy::Policy::default(),
            limits: Vec::new(),
            policy_version: 0,
            proved: false,
            created_at: now,
        };
        self.put(&organization).await;
        let owner = self.member(&organization.id, Role::Owner).await;
        House { organization, main, side, owner }
    }

    async fn estate(&self, organization: &OrganizationId, mode: Mode) -> Estate {
        let now = self.now();
        let id = ProjectId::new(now, random());
        let kit = KitId::new(now, random());
        let kit = StoredKit::first(kit, organization.clone(), id.clone(), now);
        let own = self.user_of(organization, &id).await;
        let agent = self.user_of(organization, &id).await;
        let project = Project {
            id,
            organization: organization.clone(),
            name: "a project".into(),
            mode,
            default_user: own.id.clone(),
            default_kit: kit.id.clone(),
            budget: None,
            budget_agreed: true,
            created_at: now,
        };
        self.put(&project).await;
        self.put(&kit).await;
        Estate { project, kit, own, agent }
    }

    async fn user_of(&self, organization: &OrganizationId, project: &ProjectId) -> User {
        let user = User {
            id: UserId::new(self.now(), random()),
            organization: organization.clone(),
            project: project.clone(),
            name: "an agent".into(),
            email: None,
            external_id: None,
            kit: None,
            budget: None,
            revoked: None,
            metadata: Default::default(),
            created_at: self.now(),
        };
        self.put(&user).await;
        user
    }

    /// A person who is a member.
    pub async fn member(&self, organization: &OrganizationId, role: Role) -> Account {
        let id = AccountId::new(self.now(), random());
        let account = Account {
            email: format!("{id}@example.com"),
            id,
            password_hash: "none".into(),
            password_version: 0,
            sessions_version: 0,
            session_kept: None,
            organizations: vec![organization.clone()],
            email_verified_at: None,
            created_at: self.now(),
        };
        self.put(&account).await;
        self.put(&membership(organization, &account, role)).await;
        account
    }

    /// The person signs in: the cookie and its session.
    pub async fn sign_in(&self, account: &Account, into: &OrganizationId) -> (Plain, Session) {
        let cookie = Plain::generate("").unwrap();
        let session = Session {
            id: SessionId::new(self.now(), random()),
            digest: cookie.digest().hex(),
            account: account.id.clone(),
            organization: into.clone(),
            password_version: account.password_version,
            sessions_version: account.sessions_version,
            member_since: None,
            created_at: self.now(),
            expires_at: self.now().plus_ms(LIFETIME_MS),
        };
        self.put(&session).await;
        (cookie, session)
    }

    /// An API key of the house's owner, as `set` makes it: its secret and its row.
    pub async fn key(&self, house: &House, set: impl FnOnce(&mut ApiKey)) -> (Plain, ApiKey) {
        let secret = Plain::generate("sk_live_").unwrap();
        let mut key = ApiKey {
            id: KeyId::new(self.now(), random()),
            organization: house.organization.id.clone(),
            name: "a key".into(),
            prefix: secret.prefix(),
            digest: secret.digest().hex(),
            role: Role::Admin,
            project: None,
            user: None,
            made_by: ("account".into(), house.owner.id.to_string()),
            ancestors: Vec::new(),
            root: Some(house.owner.id.to_string()),
            created_at: self.now(),
            expires_at: None,
        };
        set(&mut key);
        let mut txn = self.store.begin("");
        txn.insert(key.key(), key.draft().unwrap()).await.unwrap();
        assert!(txn.claim(&ApiKey::claim(&key.digest), &key.key()).await.unwrap());
        txn.commit().await.unwrap();
        (secret, key)
    }

    /// Revokes a key as the host does: its row goes, and what its secret is found by.
    pub async fn revoke_key(&self, key: &ApiKey) {
        let mut txn = self.store.begin("");
        txn.unclaim(&ApiKey::claim(&key.digest), &key.key());
        txn.remove(&key.key(), None).await.unwrap();
        txn.commit().await.unwrap();
    }

    pub async fn revoke_user(&self, user: &User) {
        let revoked = Some(Revocation { at: self.now(), reason: None });
        self.put(&User { revoked, ..user.clone() }).await;
    }
}

/// One organization.
pub struct House {
    pub organization: Organization,
    /// Its default project.
    pub main: Estate,
    /// A test project.
    pub side: Estate,
    pub owner: Account,
}

/// One project.
pub struct Estate {
    pub project: Project,
    pub kit: StoredKit,
    /// The default profile.
    pub own: User,
    /// Another one.
    pub agent: User,
}

pub fn membership(organization: &OrganizationId, account: &Account, role: Role) -> Member {
    Member {
        organization: organization.clone(),
        account: account.id.clone(),
        email: account.email.clone(),
        role,
        created_at: account.created_at,
        decides_since: None,
        offers_since: Vec::new(),
    }
}

/// Bits that no other call gives.
pub fn random() -> [u8; 10] {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut bits = [0; 10];
    bits[2..].copy_from_slice(&NEXT.fetch_add(1, SeqCst).to_be_bytes());
    bits
}

/// A principal with these pins.
pub fn principal(role: Role, project: Option<&Project>, user: Option<&User>) -> Principal {
    Principal {
        role: Some(role),
        project: project.map(|project| project.id.clone()),
        user: user.map(|user| user.id.clone()),
        ..Principal::of(Actor::new(ActorKind::Key, "k"))
    }
}

/// A refusal in short: its code, and its reason where it has one.
pub fn short(refusal: &Refusal) -> String {
    match &refusal.reason {
        Some(reason) => format!("{:?} {reason}", refusal.code),
        None => format!("{:?}", refusal.code),
    }
}
