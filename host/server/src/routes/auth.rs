//! Registration, sign-in and sign-in links.
//!
//! Whether an account exists is told by registration alone, which has to refuse a second one;
//! sign-in answers and takes as long either way.

use charter_adapters::public;
use charter_governance::lifecycle::{self, Billed, Change, Told};
use charter_kernel::authority::Class;
use charter_kernel::fault::Fault;
use charter_kernel::governance::policy::Policy;
use charter_kernel::id::{AccountId, KeyId, KitId, OrganizationId, ProjectId, SessionId, UserId};
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::role::Role;
use charter_kernel::scope::Behind;
use charter_kernel::time::Instant;
use charter_kernel::unit::Guard;
use charter_store::Txn;
use charter_tenancy::directory::password::{self, PasswordError};
use charter_tenancy::operator;
use charter_tenancy::records::account::{Account, email_fault, normalize};
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::records::kit::StoredKit;
use charter_tenancy::records::mail::About;
use charter_tenancy::records::member::Member;
use charter_tenancy::records::name as names;
use charter_tenancy::records::organization::{Loosening, Organization};
use charter_tenancy::records::project::{Mode, Project};
use charter_tenancy::records::session::Session;
use charter_tenancy::records::user::User;
use charter_tenancy::secret::Plain;
use charter_tenancy::stored;
use http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::addresses::{self, LinkRequest};
use super::pins;
use super::sessions::{self, SessionItem};
use super::shape::{
    AccountItem, Email, KnownEmail, Name, Named, NewPassword, Nothing, Optional, Token,
    TriedPassword, check, refuse_faults,
};
use crate::app::App;
use crate::bounds::strangers;
use crate::config::Registration;
use crate::pipeline::audit::{CHANGES_MAX, Decision, Subject};
use crate::pipeline::identify::{bearer, refuse_other_sites};
use crate::request::HostRequest;
use crate::route::{Head, HostRoute};
use crate::serve::{Accepted, Answer, Body, Created};
use crate::{ahead, handler};

/// The rows of registration and sign-in.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::post(Class::Open, "auth.register", "/auth/register", handler!(register))
            .open()
            .summary("Register an account with an organization and its first API key")
            .ahead(ahead!(may_register))
            .refuses(&[Code::DuplicateRecord, Code::RateLimited]),
        HostRoute::post(Class::Open, "auth.login", "/auth/login", handler!(login))
            .open()
            .summary("Sign in with e-mail and password")
            .refuses(&[Code::Unauthorized, Code::Forbidden, Code::RateLimited]),
        HostRoute::post(Class::Open, "auth.link", "/auth/link", handler!(mail_sign_in_link))
            .open()
            .summary("Mail a one-time sign-in link")
            .refuses(&[Code::NotConfigured, Code::RateLimited]),
    ]
}

/// The body of a registration.
#[derive(Deserialize, JsonSchema)]
pub struct Registering {
    /// The address.
    pub email: Email,
    /// The password.
    pub password: NewPassword,
    /// The organization's name.
    pub company_name: Optional<Name>,
    /// The secret of a link that was mailed to the address.
    pub proof: Optional<Token>,
}

/// Everything that a registration has made.
#[derive(Serialize, JsonSchema)]
pub struct Registered {
    account: AccountItem,
    organization: Named,
    project: Named,
    user: FirstUser,
    api_key: FirstKey,
}

/// The profile that the account itself acts as.
#[derive(Serialize, JsonSchema)]
struct FirstUser {
    /// The user's id.
    id: UserId,
}

/// The platform's first key, in the only answer that shows its secret.
#[derive(Serialize, JsonSchema)]
struct FirstKey {
    /// The key's id.
    id: KeyId,
    /// The secret: `Authorization: Bearer <key>`.
    key: String,
    /// The first characters of the secret.
    prefix: String,
}

/// Whether the client may register, ahead of the body: each attempt counts, whatever becomes of it.
/// The operator's token registers as often as it likes.
///
/// # Errors
/// 403 where registration is not open, 429 after too many.
pub async fn may_register(app: &App, head: Head<'_>) -> Result<(), Refusal> {
    let by_operator = admit_operator(app, head.headers).await.is_some();
    admits_registration(app.config.auth.registration, by_operator)?;
    if by_operator {
        return Ok(());
    }
    app.bounds.strangers.admit(&app.bounds.strangers.registration(head.peer), head.began)
}

/// The guard of the operator's token, where the request carries it.
async fn admit_operator(app: &App, headers: &HeaderMap) -> Option<Guard> {
    app.operator.admit(bearer(headers)?).await.map(operator::guard)
}

/// Makes an account with an organization, its default project, user and kit, and the platform's
/// first key: all or nothing.
///
/// # Errors
/// When a field is wrong, or the address has an account.
pub async fn register(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<Registering>,
) -> Result<Created<Registered>, Refusal> {
    let founded = create_account(app, request, txn, body).await?;
    Ok(Created::of(&founded.answer()).about("account", founded.account.id.to_string()))
}

/// Registers for a page too. An address that was not proved is taken from the account that has it,
/// for whoever has a proof, and for the operator.
///
/// # Errors
/// As of [`register`].
pub async fn create_account(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    body: Registering,
) -> Result<Founded, Refusal> {
    let operator = admit_operator(app, &request.headers).await;
    let by_operator = operator.is_some();
    operator.into_iter().for_each(|guard| txn.guard(guard));
    admits_registration(app.config.auth.registration, by_operator)?;
    let email = body.email.trim().to_owned();
    let company = body.company_name.0.map_or_else(|| company_of(&email), |name| name.0);
    let mut faults: Vec<Fault> = Vec::new();
    check(&mut faults, "email", email_fault(&email));
    check(&mut faults, "password", password::fault(&body.password, &email));
    check(&mut faults, "company_name", names::fault(&company));
    refuse_faults(faults)?;
    if let Some(proof) = &body.proof.0 {
        addresses::proof(app, request, txn, proof, &email).await?;
    }
    let proved = by_operator || body.proof.0.is_some();
    match stored::holder::<Account>(txn, &Account::claim(&email)).await? {
        Some(holder) if proved => addresses::take_from(txn, request, holder.record).await?,
        Some(_) => return Err(duplicate_account()),
        None => {}
    }
    let client = strangers::client(request.peer);
    let password_hash =
        app.directory.passwords().hash(&client, body.password.0).await.map_err(busy)?;
    let founder = Founder { email, password_hash, proved };
    let founded = create_organization(app, txn, request, founder, &company).await?;
    audit(txn, request, "auth.register", 201, &founded.organization.id, &founded.account.id)?;
    Ok(founded)
}

/// The founder of an organization.
struct Founder {
    email: String,
    password_hash: String,
    /// Whether the address is proved.
    proved: bool,
}

/// Leaves an audit row of what a person did without a credential.
///
/// # Errors
/// When the operating system gives no randomness.
pub fn audit(
    txn: &mut Txn,
    request: &HostRequest,
    operation: &str,
    status: u16,
    organization: &OrganizationId,
    account: &AccountId,
) -> Result<(), Refusal> {
    if let Some(subject) =
        Subject::of_person(request, operation, organization.as_str(), account.as_str())
    {
        let changes = txn.changes(CHANGES_MAX);
        let decision = Decision { status, refused: None, changes: &changes, details: None };
        txn.fact(subject.fact(decision).map_err(stored::no_randomness)?);
    }
    Ok(())
}

/// The answer to a second registration of one address.
pub fn duplicate_account() -> Refusal {
    Refusal::duplicate("email", "An account with this e-mail address exists.")
        .hint("Sign in with POST /v1/auth/login; or prove that it is yours with POST /v1/auth/proof, and register with the proof.")
}

/// While registration is not open, the operator's token opens it.
fn admits_registration(setting: Registration, by_operator: bool) -> Result<(), Refusal> {
    let (reason, hint) = match setting {
        Registration::Open => return Ok(()),
        _ if by_operator => return Ok(()),
        Registration::Invitation => (
            "registration_by_invitation",
            "Ask a member to invite you, and accept with POST /v1/auth/invitations/accept.",
        ),
        Registration::Closed => {
            ("registration_closed", "Ask the operator of this deployment for an account.")
        }
    };
    Err(Refusal::forbidden(reason, "Registration is not open on this deployment.").hint(hint))
}

fn company_of(email: &str) -> String {
    let local = email.split('@').next().unwrap_or_default();
    format!("{local}'s organization")
}

/// Everything that a registration makes.
pub struct Founded {
    account: Account,
    /// The organization.
    pub organization: Organization,
    project: Project,
    key: ApiKey,
    /// The secret of its first key.
    pub secret: Plain,
}

impl Founded {
    fn answer(&self) -> Registered {
        Registered {
            account: AccountItem::of(&self.account),
            organization: Named::of(self.organization.id.as_str(), &self.organization.name),
            project: Named::of(self.project.id.as_str(), &self.project.name),
            user: FirstUser { id: self.project.default_user.clone() },
            api_key: FirstKey {
                id: self.key.id.clone(),
                key: self.secret.reveal().to_owned(),
                prefix: self.key.prefix.clone(),
            },
        }
    }
}

async fn create_organization(
    app: &App,
    txn: &mut Txn,
    request: &HostRequest,
    founder: Founder,
    company: &str,
) -> Result<Founded, Refusal> {
    let now = request.now;
    let organization_id = OrganizationId::new(now, stored::random()?);
    let account_id = AccountId::new(now, stored::random()?);
    let account = Account {
        id: account_id.clone(),
        email: founder.email.clone(),
        password_hash: founder.password_hash,
        password_version: 0,
        sessions_version: 0,
        session_kept: None,
        organizations: vec![organization_id.clone()],
        email_verified_at: founder.proved.then_some(now),
        created_at: now,
    };
    let first = (organization_id.clone(), "Default", Mode::Live);
    let project = new_project(app, txn, request, first, None).await?;
    let organization = Organization {
        id: organization_id.clone(),
        name: company.to_owned(),
        default_project: project.id.clone(),
        loosening: Loosening::default(),
        loosening_since: None,
        time_zone: "UTC".into(),
        budget: None,
        budget_agreed: true,
        policy: Policy::default(),
        limits: Vec::new(),
        policy_version: 0,
        proved: founder.proved,
        created_at: now,
    };
    let member = Member {
        organization: organization_id.clone(),
        account: account_id.clone(),
        email: founder.email,
        role: Role::Owner,
        created_at: now,
        decides_since: None,
        offers_since: Vec::new(),
    };
    let (key, secret) = first_key(organization_id, &account_id, now)?;
    stored::insert(txn, &account, "email").await?;
    stored::insert(txn, &organization, "id").await?;
    stored::insert(txn, &member, "id").await?;
    super::keys::insert(txn, &key).await?;
    let payload = json!({"organization_id": organization.id, "at": now});
    let told = Billed {
        organization: &organization.id,
        kind: "registered",
        payload,
        now,
        request: &request.id,
    };
    told.tell(&app.governance, txn).await?;
    Ok(Founded { account, organization, project, key, secret })
}

/// The key that a founder is given with the account.
fn first_key(
    organization: OrganizationId,
    account: &AccountId,
    now: Instant,
) -> Result<(ApiKey, Plain), Refusal> {
    let secret = Plain::generate(Mode::Live.key_prefix()).map_err(stored::no_randomness)?;
    let key = ApiKey {
        id: KeyId::new(now, stored::random()?),
        organization,
        name: "Registration".into(),
        prefix: secret.prefix(),
        digest: secret.digest().hex(),
        role: Role::Admin,
        project: None,
        user: None,
        made_by: ("account".into(), account.to_string()),
        root: Some(account.to_string()),
        ancestors: Vec::new(),
        created_at: now,
        expires_at: None,
    };
    Ok((key, secret))
}

/// Makes a project with its default user and kit. It begins as bounded as `like` is, the
/// organization's default project with its default kit: one more project is no more room than that.
///
/// # Errors
/// When the store cannot be asked.
pub async fn new_project(
    app: &App,
    txn: &mut Txn,
    request: &HostRequest,
    (organization, name, mode): (OrganizationId, &str, Mode),
    like: Option<(Project, StoredKit)>,
) -> Result<Project, Refusal> {
    let now = request.now;
    let project = Project {
        id: ProjectId::new(now, stored::random()?),
        organization: organization.clone(),
        name: name.to_owned(),
        mode,
        default_user: UserId::new(now, stored::random()?),
        default_kit: KitId::new(now, stored::random()?),
        budget: like.as_ref().and_then(|(project, _)| project.budget),
        budget_agreed: like.as_ref().is_none_or(|(project, _)| project.budget_agreed),
        created_at: now,
    };
    let user = User {
        id: project.default_user.clone(),
        organization: organization.clone(),
        project: project.id.clone(),
        name: "Default".into(),
        email: None,
        external_id: None,
        kit: None,
        budget: None,
        revoked: None,
        metadata: std::collections::BTreeMap::new(),
        created_at: now,
    };
    let (id, of) = (project.default_kit.clone(), project.id.clone());
    let kit = match like {
        Some((_, kit)) => StoredKit { id, project: of, created_at: now, ..kit },
        None => StoredKit::first(id, organization, of, now),
    };
    stored::insert(txn, &project, "name").await?;
    stored::insert(txn, &user, "id").await?;
    stored::insert(txn, &kit, "name").await?;
    pins::follow(txn, None, Some(&kit)).await?;
    let (test, behind) = (lifecycle::is_test(&project), Behind::Organization);
    let told = Told { user: &user, test, now, request: &request.id, behind };
    told.tell(&app.governance, txn, Change::Created).await?;
    Ok(project)
}

/// The body of a sign-in.
#[derive(Deserialize, JsonSchema)]
pub struct Login {
    /// The address of the account.
    email: KnownEmail,
    /// Its password.
    password: TriedPassword,
}

/// A session that was opened; its secret is in the cookie alone.
#[derive(Serialize, JsonSchema)]
pub struct LoggedIn {
    account: AccountItem,
    organization: Named,
    session: SessionItem,
}

/// Signs a person in.
///
/// # Errors
/// 401 for a wrong address or password alike, 403 for a page of another site, 429 after too many.
pub async fn login(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<Login>,
) -> Result<Answer<LoggedIn>, Refusal> {
    refuse_other_sites(app, &request.headers)?;
    let account = authenticate(app, request, &body.email, body.password.0)
        .await?
        .ok_or_else(wrong_credentials)?;
    let SignedIn { organization, session, token, cookie } =
        sign_in(app, request, txn, &account).await?;
    let answer = LoggedIn {
        account: AccountItem::of(&account),
        organization: Named::of(organization.id.as_str(), &organization.name),
        session: SessionItem::of(&session, &token),
    };
    audit(txn, request, "auth.login", 200, &organization.id, &account.id)?;
    Ok(Answer::of(&answer)
        .header(http::header::SET_COOKIE, &cookie)
        .about("session", session.id.to_string()))
}

/// A session that was opened.
pub struct SignedIn {
    /// The organization that is selected.
    pub organization: Organization,
    /// The session.
    pub session: Session,
    /// Its secret.
    pub token: Plain,
    /// The line that has the browser keep it.
    pub cookie: String,
}

/// Opens a session of somebody who has proven who they are.
///
/// # Errors
/// 403 for a member of no organization.
pub async fn sign_in(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    account: &Account,
) -> Result<SignedIn, Refusal> {
    let (organization, member) = membership(txn, account).await?;
    let token = Plain::generate("").map_err(stored::no_randomness)?;
    let id = SessionId::new(request.now, stored::random()?);
    let lifetime_ms = i64::from(app.config.auth.session_hours) * 3_600_000;
    let session =
        sessions::open(txn, id, &token, account, &member, request.now, lifetime_ms).await?;
    let cookie = sessions::cookie(
        token.reveal(),
        lifetime_ms,
        public::is_secure(&app.adapters, request.tls),
    );
    Ok(SignedIn { organization, session, token, cookie })
}

/// The account of this address, if the password is its own. Attempts are counted, and take as long
/// where there is none.
///
/// # Errors
/// 429 after too many attempts, 503 while too many are being checked.
pub async fn authenticate(
    app: &App,
    request: &HostRequest,
    email: &str,
    password: String,
) -> Result<Option<Account>, Refusal> {
    let attempt = app.bounds.strangers.sign_in(request.peer, &normalize(email));
    app.bounds.strangers.admit(&attempt, request.began)?;
    let account = app.directory.account(email).await.map_err(|_| Refusal::overloaded(1))?;
    let stored_hash = account.as_ref().map(|account| account.password_hash.clone());
    let client = strangers::client(request.peer);
    match app.directory.passwords().verify(&client, password, stored_hash).await {
        Ok(true) => {
            app.bounds.strangers.give_back(&attempt);
            Ok(account)
        }
        Ok(false) => Ok(None),
        Err(error) => {
            app.bounds.strangers.give_back(&attempt);
            Err(busy(error))
        }
    }
}

fn wrong_credentials() -> Refusal {
    Refusal::unauthorized("The e-mail address or the password is wrong.")
}

/// A hashing that was not done, in the words of the wire.
pub fn busy(error: PasswordError) -> Refusal {
    match error {
        PasswordError::Busy => Refusal::overloaded(1),
        PasswordError::Failed => Refusal::internal(),
    }
}

/// The first organization that the account is still a member of.
async fn membership(txn: &mut Txn, account: &Account) -> Result<(Organization, Member), Refusal> {
    for id in &account.organizations {
        let Some(member) = stored::get::<Member>(txn, &Member::address(id, &account.id)).await?
        else {
            continue;
        };
        if let Some(organization) =
            stored::get::<Organization>(txn, &Organization::address(id)).await?
        {
            return Ok((organization.record, member.record));
        }
    }
    Err(Refusal::forbidden("no_organization", "The account is a member of no organization.")
        .hint("Ask an owner or admin to invite you."))
}

/// Mails a sign-in link. Whether anybody has the address is found out behind the answer, so
/// that neither the answer nor its time tells.
///
/// # Errors
/// 501 without a relay, 429 after too many.
pub async fn mail_sign_in_link(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<LinkRequest>,
) -> Result<Accepted<Nothing>, Refusal> {
    let about = ("sign-in link", (|email| About::SignIn { email }) as fn(String) -> About);
    addresses::mail_link(app, request, txn, &body, about)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_operator_registers_where_registration_is_not_open() {
        for setting in [Registration::Closed, Registration::Invitation] {
            assert!(admits_registration(setting, false).is_err());
            assert!(admits_registration(setting, true).is_ok());
        }
        assert!(admits_registration(Registration::Open, false).is_ok());
    }

    #[test]
    fn an_organization_without_a_name_is_called_after_its_founder() {
        assert_eq!(company_of("ann@example.com"), "ann's organization");
        assert!(names::fault(&company_of(&format!("{}@example.com", "x".repeat(64)))).is_none());
    }
}
