//! The cached directory of credentials and tenancy: keys, sessions, organizations with their
//! standing, projects, users and kits.
//!
//! Look-ups answer from memory and fall back to the store; nothing here knows of HTTP. A cached
//! record counts only while the store vouches that no record of the host has changed since it was
//! read. Each request asks the store to catch up with other replicas before it looks here;
//! mutations are guarded at their commit besides (`guards`).

use std::sync::Arc;
use std::time::Duration;

use charter_kernel::governance::limit::Limit;
use charter_kernel::governance::policy::Policy;
use charter_kernel::id::{AccountId, KeyId, KitId, OrganizationId, ProjectId, SessionId, UserId};
use charter_kernel::kit::{Budget, Denied, Entry, Kit};
use charter_kernel::manifest::Gate;
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Principal};
use charter_kernel::standing::Standing;
use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::{Guard, Key, Reach, Row};
use charter_store::{Epoch, Order, Query, Store};
use tokio::sync::watch;

use crate::records::account::{Account, is_of_account};
use crate::records::former::FormerMember;
use crate::records::key::ApiKey;
use crate::records::kit::StoredKit;
use crate::records::member::{Member, still_has_role};
use crate::records::organization::{Loosening, Organization};
use crate::records::project::{Mode, Project};
use crate::records::session::Session;
use crate::records::user::User;
use crate::records::{Record, require_version, still_active};
use crate::secret::{self, Plain};

pub mod cache;
pub mod password;

use cache::Cache;
use password::{PasswordError, Passwords};

/// The collections that each kind of record is read from.
const KEYS: &[&str] = &["host.keys"];
const SESSIONS: &[&str] = &["host.sessions", "host.members", "host.accounts"];
const ORGANIZATIONS: &[&str] = &["host.organizations"];
const PROJECTS: &[&str] = &["host.projects"];
const USERS: &[&str] = &["host.users"];
const KITS: &[&str] = &["host.kits"];
const STANDINGS: &[&str] = &["host.standings"];

/// How old the knowledge of other replicas' changes may be for the cache to be trusted.
const CHANGES_AGE_MAX: Duration = Duration::from_secs(1);
/// How many keys, sessions, users and the like are remembered, each.
const ENTRIES_MAX: usize = 65_536;
/// Projects that one look for a user's reads at once.
const PROJECTS_A_PAGE: u32 = 100;

/// An API key, without its secret.
#[derive(Clone, Debug)]
pub struct KeyRecord {
    /// Its id.
    pub id: KeyId,
    /// The organization that owns it.
    pub organization: OrganizationId,
    /// Its name.
    pub name: String,
    /// The role, which says what it may do.
    pub role: Role,
    /// The project that it is pinned to.
    pub project: Option<ProjectId>,
    /// The tenant user that it is pinned to.
    pub user: Option<UserId>,
    /// When it ends.
    pub expires_at: Option<Instant>,
    /// The keys that it descends from: it counts only while they do.
    pub ancestors: Vec<KeyId>,
    /// The account of the person at the end of its chain of makers.
    pub root: Option<String>,
}

impl KeyRecord {
    /// The principal that acts by it.
    pub fn principal(&self) -> Principal {
        Principal {
            role: Some(self.role),
            project: self.project.clone(),
            user: self.user.clone(),
            root: self.root.clone(),
            ..Principal::of(Actor::new(ActorKind::Key, self.id.as_str()))
        }
    }

    /// The conditions that must still hold when a mutation of this key is committed.
    pub fn guards(&self) -> Vec<Guard> {
        let keys = std::iter::once(&self.id).chain(&self.ancestors);
        keys.map(|id| still_active(ApiKey::address(&self.organization, id))).collect()
    }
}

/// A person's session.
#[derive(Clone, Debug)]
pub struct SessionRecord {
    /// Its id, not its secret.
    pub id: SessionId,
    /// The account that signed in.
    pub account: AccountId,
    /// The organization that is selected.
    pub organization: OrganizationId,
    /// The value that `X-Service-CSRF` must equal; compare in constant time
    /// ([`secret::Plain::is`]).
    pub csrf_token: Plain,
    /// When it ends.
    pub expires_at: Instant,
    /// The row's id.
    pub digest: String,
    /// The account's membership there, with its role.
    pub membership: Membership,
    /// The version of the account's row.
    pub version: u64,
}

/// A person's membership of an organization, as it was read. A member who was removed and came back
/// has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The role in it.
    pub role: Role,
    /// Since when its row stands.
    pub since: Instant,
    /// The version of its row.
    pub version: u64,
}

impl Membership {
    fn of(member: &Member, row: &Row) -> Self {
        Self { role: member.role, since: row.created_at, version: row.version }
    }

    /// Requires that the person is a member still: in the very membership that was read, and in its
    /// role. Until a request has acted another role has it decided anew; from then on it is over.
    fn guards(self, member: Key) -> [Guard; 4] {
        [
            still_active(member.clone()),
            Guard::Inserted { key: member.clone(), at: self.since },
            require_version(member.clone(), self.version),
            still_has_role(member, self.role),
        ]
    }
}

impl SessionRecord {
    /// The principal that acts by it.
    pub fn principal(&self) -> Principal {
        Principal {
            role: Some(self.membership.role),
            root: Some(self.account.to_string()),
            member_since: Some(self.membership.since),
            ..Principal::of(Actor::new(ActorKind::Session, self.id.as_str()))
        }
    }

    /// The conditions that must still hold when a mutation of this session is committed.
    pub fn guards(&self) -> Vec<Guard> {
        // A new password ends sessions by the account's row, whatever rows of them are found.
        let mut guards = vec![
            still_active(Session::address(&self.digest)),
            require_version(Account::address(&self.account), self.version),
        ];
        let member = Member::address(&self.organization, &self.account);
        guards.extend(self.membership.guards(member));
        guards
    }
}

/// An organization.
#[derive(Clone, Debug)]
pub struct OrganizationRecord {
    /// Its id.
    pub id: OrganizationId,
    /// The project of requests that name none.
    pub default_project: ProjectId,
    /// The rule about who may loosen.
    pub loosening: Loosening,
    /// The time zone in which its days begin.
    pub time_zone: String,
    /// The spend cap of all of it together.
    pub budget: Option<Budget>,
    /// The policy of regulated actions.
    pub policy: Policy,
    /// How often users may take which.
    pub limits: Vec<Limit>,
    /// Whether an owner of it has ever had an address that was proved.
    pub proved: bool,
    /// Its version.
    pub version: u64,
}

impl OrganizationRecord {
    /// The condition that must still hold when a mutation within it is committed.
    pub fn guard(&self) -> Guard {
        still_active(Organization::address(&self.id))
    }

    /// Requires that its rule about who may loosen is the one that was asked.
    pub fn guard_loosening(&self) -> Guard {
        require_version(Organization::address(&self.id), self.version)
    }
}

/// A project.
#[derive(Clone, Debug)]
pub struct ProjectRecord {
    /// Its id.
    pub id: ProjectId,
    /// The organization that owns it.
    pub organization: OrganizationId,
    /// Whether it reaches sandbox providers only.
    pub test: bool,
    /// The account's default profile in it.
    pub default_user: UserId,
    /// The kit of users that were assigned none.
    pub default_kit: KitId,
    /// The spend cap of all of its users together.
    pub budget: Option<Budget>,
    /// Its version.
    pub version: u64,
}

impl ProjectRecord {
    /// Requires that it is as it was read.
    pub fn guard(&self) -> Guard {
        require_version(Project::address(&self.organization, &self.id), self.version)
    }
}

/// A tenant user.
#[derive(Clone, Debug)]
pub struct UserRecord {
    /// Its id.
    pub id: UserId,
    /// Its project.
    pub project: ProjectId,
    /// The kit that it is assigned.
    pub kit: Option<KitId>,
    /// Its own spend cap.
    pub budget: Option<Budget>,
    /// False once revoked.
    pub active: bool,
    /// Its version.
    pub version: u64,
}

impl UserRecord {
    /// The condition that must still hold when a mutation on its behalf is committed.
    pub fn guard(&self) -> Guard {
        still_active(User::address(&self.project, &self.id))
    }

    /// Requires that it has the kit that was asked.
    pub fn guard_kit(&self) -> Guard {
        require_version(User::address(&self.project, &self.id), self.version)
    }
}

/// An account kit, decoded.
#[derive(Clone, Debug)]
pub struct KitRecord {
    /// Its id.
    pub id: KitId,
    /// Its project.
    pub project: ProjectId,
    /// Whether it is the project's default kit.
    pub default: bool,
    /// The rules. A default kit's do not name what it has by default; ask [`KitRecord::decide`].
    pub kit: Kit,
}

impl KitRecord {
    /// Requires that it says what it said.
    pub fn guard(&self) -> Guard {
        require_version(StoredKit::address(&self.project, &self.id), self.kit.version)
    }

    /// Whether the kit admits a primitive, and the version it pins.
    ///
    /// # Errors
    /// [`Denied`] where it does not.
    pub fn decide(&self, primitive: &str, gate: Gate) -> Result<Option<&str>, Denied> {
        if self.default
            && !self.kit.primitives.contains_key(primitive)
            && Entry::by_default(gate).enabled
        {
            return Ok(None);
        }
        charter_kernel::kit::decide(primitive, gate, Some(&self.kit))
    }
}

/// The directory. Cheap to clone.
#[derive(Clone)]
pub struct Directory {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    changes: watch::Receiver<Epoch>,
    clock: Arc<dyn Clock>,
    passwords: Passwords,
    keys: Cache<KeyRecord>,
    sessions: Cache<SessionRecord>,
    organizations: Cache<OrganizationRecord>,
    projects: Cache<ProjectRecord>,
    users: Cache<UserRecord>,
    kits: Cache<KitRecord>,
    standings: Cache<Option<(Standing, u64)>>,
}

/// The store could not be asked.
#[derive(Debug, thiserror::Error)]
#[error("the directory cannot be read")]
pub struct Unreadable;

impl Directory {
    /// A directory over this store. `hashes_max`: passwords hashed at once.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        hashes_max: usize,
    ) -> Result<Self, PasswordError> {
        Ok(Self {
            inner: Arc::new(Inner {
                changes: store.epoch(),
                store,
                clock,
                passwords: Passwords::new(hashes_max)?,
                keys: Cache::new(ENTRIES_MAX),
                sessions: Cache::new(ENTRIES_MAX),
                organizations: Cache::new(ENTRIES_MAX),
                projects: Cache::new(ENTRIES_MAX),
                users: Cache::new(ENTRIES_MAX),
                kits: Cache::new(ENTRIES_MAX),
                standings: Cache::new(ENTRIES_MAX),
            }),
        })
    }

    /// The bounded place that hashes passwords.
    pub fn passwords(&self) -> &Passwords {
        &self.inner.passwords
    }

    /// The key that was presented, by its secret; absent if there is none, or it has expired or was
    /// revoked.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn key(&self, presented: &str) -> Result<Option<Arc<KeyRecord>>, Unreadable> {
        let digest = Plain::from_client(presented).digest();
        let stored = digest.hex();
        let found = self.recall(&self.inner.keys, KEYS, &stored, self.load_key(&stored)).await?;
        let now = self.inner.clock.now();
        Ok(found.filter(|key| key.expires_at.is_none_or(|end| now < end)))
    }

    /// The session of a cookie; absent if there is none, or it has expired, or its account is no
    /// member any more.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn session(&self, cookie: &str) -> Result<Option<Arc<SessionRecord>>, Unreadable> {
        let token = Plain::from_client(cookie);
        let stored = token.digest().hex();
        let found = self
            .recall(&self.inner.sessions, SESSIONS, &stored, self.load_session(&token, &stored))
            .await?;
        let now = self.inner.clock.now();
        Ok(found.filter(|session| now < session.expires_at))
    }

    /// An organization.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn organization(
        &self,
        id: &OrganizationId,
    ) -> Result<Option<Arc<OrganizationRecord>>, Unreadable> {
        let decode = |found: Organization, row: &Row| OrganizationRecord {
            version: row.version,
            id: found.id,
            default_project: found.default_project,
            loosening: found.loosening,
            time_zone: found.time_zone,
            budget: found.budget,
            policy: found.policy,
            limits: found.limits,
            proved: found.proved,
        };
        let load = async { self.load(Organization::address(id), decode).await };
        self.recall(&self.inner.organizations, ORGANIZATIONS, id.as_str(), load).await
    }

    /// A project of the organization; another organization's is absent.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn project(
        &self,
        organization: &OrganizationId,
        id: &ProjectId,
    ) -> Result<Option<Arc<ProjectRecord>>, Unreadable> {
        let decode = |found: Project, row: &Row| ProjectRecord {
            version: row.version,
            budget: found.budget,
            id: found.id,
            organization: found.organization,
            test: found.mode == Mode::Test,
            default_user: found.default_user,
            default_kit: found.default_kit,
        };
        let load = async { self.load(Project::address(organization, id), decode).await };
        let found = self.recall(&self.inner.projects, PROJECTS, id.as_str(), load).await?;
        Ok(found.filter(|project| project.organization == *organization))
    }

    /// A tenant user of the project; another's is absent.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn user(
        &self,
        project: &ProjectId,
        id: &UserId,
    ) -> Result<Option<Arc<UserRecord>>, Unreadable> {
        let decode = |found: User, row: &Row| UserRecord {
            version: row.version,
            active: found.revoked.is_none(),
            budget: found.budget,
            id: found.id,
            project: found.project,
            kit: found.kit,
        };
        let load = async { self.load(User::address(project, id), decode).await };
        let found = self.recall(&self.inner.users, USERS, id.as_str(), load).await?;
        Ok(found.filter(|user| user.project == *project))
    }

    /// A kit of the project: the named one, or the default one; another project's is absent.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn kit(
        &self,
        project: &ProjectRecord,
        id: Option<&KitId>,
    ) -> Result<Option<Arc<KitRecord>>, Unreadable> {
        let id = id.unwrap_or(&project.default_kit);
        let decode = |found: StoredKit, row: &Row| KitRecord {
            id: found.id.clone(),
            project: found.project.clone(),
            default: found.default,
            kit: found.rules(row.version),
        };
        let load = async { self.load(StoredKit::address(&project.id, id), decode).await };
        let found = self.recall(&self.inner.kits, KITS, id.as_str(), load).await?;
        Ok(found.filter(|kit| kit.project == project.id))
    }

    /// How the organization stands with who bills it, and the row's version; absent where nothing
    /// is stopped.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn standing(
        &self,
        organization: &OrganizationId,
    ) -> Result<Option<(Standing, u64)>, Unreadable> {
        let load = async {
            let Some(row) = self.row(&Standing::address(organization.as_str())).await? else {
                return Ok(Some(None));
            };
            serde_json::from_str(&row.body)
                .map(|standing| Some(Some((standing, row.version))))
                .map_err(|error| {
                    tracing::error!(%error, "a standing cannot be read");
                    Unreadable
                })
        };
        let found =
            self.recall(&self.inner.standings, STANDINGS, organization.as_str(), load).await?;
        Ok(found.and_then(|standing| *standing))
    }

    /// The account of an e-mail address. Not cached: it is asked at sign-in only.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn account(&self, email: &str) -> Result<Option<Account>, Unreadable> {
        let mut txn = self.inner.store.begin("");
        let holder = txn.lookup(&Account::claim(email)).await.map_err(unreadable)?;
        let Some(address) = holder else { return Ok(None) };
        self.record(address).await
    }

    /// Answers from the cache, or loads and remembers. `depends` names the collections that the
    /// value was read from. `load` costs nothing until it is awaited: most look-ups are hits.
    async fn recall<V>(
        &self,
        cache: &Cache<V>,
        depends: &[&str],
        id: &str,
        load: impl Future<Output = Result<Option<V>, Unreadable>>,
    ) -> Result<Option<Arc<V>>, Unreadable> {
        // The epoch from before the read: a change in between makes the entry useless, not wrong.
        let epoch = self.epoch(depends);
        if let Some(epoch) = epoch
            && let Some(hit) = cache.get(id, epoch)
        {
            return Ok(Some(hit));
        }
        let Some(value) = load.await?.map(Arc::new) else { return Ok(None) };
        if let Some(epoch) = epoch {
            cache.put(id, epoch, Arc::clone(&value));
        }
        Ok(Some(value))
    }

    /// A number that every write of these collections changes; `None` while nobody knows what other
    /// replicas have written.
    fn epoch(&self, depends: &[&str]) -> Option<u64> {
        if self.inner.store.last_poll_age() >= CHANGES_AGE_MAX {
            return None;
        }
        let changes = self.inner.changes.borrow();
        let number = |space: &&str| changes.spaces.get(*space).copied().unwrap_or(0);
        // Odd multiplier: no two states of one collection fall together, and of several collections
        // practically none.
        Some(depends.iter().map(number).fold(0, |mixed: u64, number| {
            mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number)
        }))
    }

    async fn load<R: Record, V>(
        &self,
        key: Key,
        decode: impl FnOnce(R, &Row) -> V,
    ) -> Result<Option<V>, Unreadable> {
        let Some(row) = self.row(&key).await? else { return Ok(None) };
        let record = R::read(&row).map_err(|_| Unreadable)?;
        Ok(Some(decode(record, &row)))
    }

    async fn record<R: Record>(&self, key: Key) -> Result<Option<R>, Unreadable> {
        self.load(key, |record, _| record).await
    }

    async fn load_key(&self, digest: &str) -> Result<Option<KeyRecord>, Unreadable> {
        let holder =
            self.inner.store.begin("").lookup(&ApiKey::claim(digest)).await.map_err(unreadable)?;
        let Some(address) = holder else { return Ok(None) };
        let Some(key) = self.record::<ApiKey>(address).await? else { return Ok(None) };
        if !secret::same(&key.digest, digest) {
            return Ok(None);
        }
        self.record_of(key).await
    }

    /// The key of this id, without its secret being shown; absent if it has expired or was revoked.
    pub(crate) async fn key_of(
        &self,
        organization: &OrganizationId,
        id: &KeyId,
    ) -> Result<Option<KeyRecord>, Unreadable> {
        let Some(key) = self.record(ApiKey::address(organization, id)).await? else {
            return Ok(None);
        };
        let now = self.inner.clock.now();
        let found = self.record_of(key).await?;
        Ok(found.filter(|key| key.expires_at.is_none_or(|end| now < end)))
    }

    /// A key as it counts: absent where one that it descends from was revoked.
    async fn record_of(&self, key: ApiKey) -> Result<Option<KeyRecord>, Unreadable> {
        // Keys of before roots were kept: the eldest was made by the person.
        let mut maker = key.made_by.clone();
        for ancestor in &key.ancestors {
            let address = ApiKey::address(&key.organization, ancestor);
            let Some(ancestor) = self.record::<ApiKey>(address).await? else { return Ok(None) };
            maker = ancestor.made_by;
        }
        let by_person = (maker.0 == "account").then_some(maker.1);
        Ok(Some(KeyRecord {
            root: key.root.or(by_person),
            id: key.id,
            organization: key.organization,
            name: key.name,
            role: key.role,
            project: key.project,
            user: key.user,
            expires_at: key.expires_at,
            ancestors: key.ancestors,
        }))
    }

    async fn load_session(
        &self,
        token: &Plain,
        digest: &str,
    ) -> Result<Option<SessionRecord>, Unreadable> {
        let Some((session, version)) = self.find_session(digest).await? else { return Ok(None) };
        if !secret::same(&session.digest, digest) {
            return Ok(None);
        }
        let address = Member::address(&session.organization, &session.account);
        let decode = |member: Member, row: &Row| {
            session.is_of(&member).then(|| Membership::of(&member, row))
        };
        let Some(membership) = self.load(address, decode).await?.flatten() else { return Ok(None) };
        Ok(Some(SessionRecord {
            id: session.id,
            account: session.account,
            organization: session.organization,
            csrf_token: csrf_token(token),
            expires_at: session.expires_at,
            digest: session.digest,
            membership,
            version,
        }))
    }

    /// A session that its account admits, and the version of the account's row.
    async fn find_session(&self, digest: &str) -> Result<Option<(Session, u64)>, Unreadable> {
        let Some(session) = self.record::<Session>(Session::address(digest)).await? else {
            return Ok(None);
        };
        let admitted =
            |account: Account, row: &Row| account.admits(&session).then_some(row.version);
        let version = self.load(Account::address(&session.account), admitted).await?.flatten();
        Ok(version.map(|version| (session, version)))
    }

    /// The membership that an account has in an organization now, where it is a member, and what
    /// requires that it keeps it.
    pub(crate) async fn membership(
        &self,
        organization: &OrganizationId,
        account: &str,
    ) -> Result<Option<(Membership, [Guard; 4])>, Unreadable> {
        let Some(account) = AccountId::parse(account) else { return Ok(None) };
        let address = Member::address(organization, &account);
        let decode = |member: Member, row: &Row| Membership::of(&member, row);
        let found = self.load(address.clone(), decode).await?;
        Ok(found.map(|membership| (membership, membership.guards(address))))
    }

    /// The role that an account had in an organization that it was a member of, at the end.
    pub(crate) async fn former_role(
        &self,
        organization: &OrganizationId,
        account: &str,
    ) -> Result<Option<Role>, Unreadable> {
        let Some(account) = AccountId::parse(account) else { return Ok(None) };
        let address = FormerMember::address(organization, &account);
        self.load(address, |former: FormerMember, _| former.role).await
    }

    /// The project of a user of which nothing else is known: a name's holder is known by its reach
    /// only.
    pub(crate) async fn project_of(
        &self,
        organization: &OrganizationId,
        user: &UserId,
    ) -> Result<Option<Arc<ProjectRecord>>, Unreadable> {
        let reach = Reach::organization(organization.as_str());
        let mut query = Query::all(&reach, &Project::space()).limit(PROJECTS_A_PAGE);
        query.order = Order::Oldest;
        loop {
            let page = self.inner.store.find(&query).await.map_err(unreadable)?;
            for (key, _) in &page.items {
                let Some(id) = ProjectId::parse(&key.id) else { continue };
                if self.user(&id, user).await?.is_some() {
                    return self.project(organization, &id).await;
                }
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(None),
            }
        }
    }

    /// Requires that the guards of a credential hold now, as its next commit does: who is refused
    /// there anyway runs nothing before.
    ///
    /// # Errors
    /// 401 where the credential was revoked, 503 where its person's role or membership is another
    /// by now: what was decided by it is to be decided anew.
    pub async fn require_credential(&self, guards: &[Guard]) -> Result<(), Refusal> {
        let revoked = || Refusal::unauthorized("The credential was revoked.");
        for guard in guards {
            let (holds, refusal) = match guard {
                Guard::Entry { key, field, value } => {
                    let has =
                        |row: Row| row.index.iter().any(|(at, is)| at == field && is == value);
                    (self.row(key).await?.is_some_and(has), revoked())
                }
                guard if is_of_account(guard) => (self.keeps_session(guards).await?, revoked()),
                Guard::Unchanged { key, version } => {
                    let row = self.row(key).await?;
                    (row.is_some_and(|row| row.version == *version), Refusal::overloaded(1))
                }
                Guard::Inserted { key, at } => {
                    let row = self.row(key).await?;
                    (row.is_some_and(|row| row.created_at == *at), Refusal::overloaded(1))
                }
                // No credential has others, and the commit asks in any case.
                _ => continue,
            };
            if !holds {
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// The guards of a credential that was proven before, by the account's row as it is now: what they
    /// require of that is still to be asked, by [`Directory::require_credential`].
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn renew(&self, mut guards: Vec<Guard>) -> Result<Vec<Guard>, Unreadable> {
        for guard in &mut guards {
            if is_of_account(guard)
                && let Guard::Unchanged { key, version } = guard
                && let Some(row) = self.row(key).await?
            {
                *version = row.version;
            }
        }
        Ok(guards)
    }

    /// Whether the account of the session that these are the guards of has not ended it.
    async fn keeps_session(&self, guards: &[Guard]) -> Result<bool, Unreadable> {
        let of_session = |guard: &&Guard| matches!(guard, Guard::Entry { key, .. } if key.space == Session::space());
        let Some(Guard::Entry { key, .. }) = guards.iter().find(of_session) else {
            return Ok(false);
        };
        Ok(self.find_session(&key.id).await?.is_some())
    }

    /// Whether a moment has come.
    pub(crate) fn is_past(&self, at: Instant) -> bool {
        at <= self.inner.clock.now()
    }

    async fn row(&self, key: &Key) -> Result<Option<Row>, Unreadable> {
        self.inner.store.begin("").get_relaxed(key).await.map_err(unreadable)
    }
}

/// The CSRF token of a session's cookie: only who holds the cookie can know it, and it need not be
/// kept.
pub fn csrf_token(cookie: &Plain) -> Plain {
    cookie.derive("csrf")
}

/// The tenant user is revoked.
pub fn profile_revoked() -> Refusal {
    Refusal::forbidden(
        "profile_revoked",
        "The profile is revoked: its reads still answer, its changes do not.",
    )
    .hint("POST /v1/users/{id}/restore lifts a revocation.")
}

fn unreadable(error: charter_store::ReadError) -> Unreadable {
    tracing::error!(error = &error as &dyn std::error::Error, "the directory cannot be read");
    Unreadable
}

#[cfg(test)]
mod tests {
    use charter_kernel::id::uuid_v7;

    use super::*;

    fn kit(default: bool, primitives: serde_json::Value) -> KitRecord {
        let id = uuid_v7(Instant(1), [1; 10]);
        let kit: Kit = serde_json::from_value(
            serde_json::json!({"id": id, "name": "k", "primitives": primitives}),
        )
        .unwrap();
        let project = ProjectId::parse(&uuid_v7(Instant(1), [2; 10])).unwrap();
        KitRecord { id: kit.id.clone(), project, default, kit }
    }

    #[test]
    fn what_is_cached_depends_on_the_collections_it_is_read_from() {
        let name = |space: charter_kernel::unit::Space| space.as_str().to_owned();
        assert_eq!(KEYS, [name(ApiKey::space())]);
        let sessions = [Session::space(), Member::space(), Account::space()].map(name);
        assert_eq!(SESSIONS, sessions);
        assert_eq!(ORGANIZATIONS, [name(Organization::space())]);
        assert_eq!(PROJECTS, [name(Project::space())]);
        assert_eq!(USERS, [name(User::space())]);
        assert_eq!(KITS, [name(StoredKit::space())]);
        assert_eq!(STANDINGS, [name(Standing::space())]);
    }

    #[test]
    fn a_default_kit_has_what_is_installed_later_unless_it_is_opt_in() {
        let kit = kit(true, serde_json::json!({"off": {"enabled": false}}));
        assert_eq!(kit.decide("new", Gate::Open), Ok(None));
        assert_eq!(kit.decide("new", Gate::Strict), Ok(None));
        assert!(kit.decide("new", Gate::OptIn).is_err());
        assert!(kit.decide("off", Gate::Open).is_err());
    }

    #[test]
    fn any_other_kit_leaves_it_to_the_gate() {
        let kit = kit(false, serde_json::json!({"pinned": {"enabled": true, "version": "1.2.0"}}));
        assert_eq!(kit.decide("new", Gate::Open), Ok(None));
        assert!(kit.decide("new", Gate::Strict).is_err());
        assert!(kit.decide("new", Gate::OptIn).is_err());
        assert_eq!(kit.decide("pinned", Gate::OptIn), Ok(Some("1.2.0")));
    }
}
