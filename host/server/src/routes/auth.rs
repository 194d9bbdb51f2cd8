//! Registration, sign-in and sign-in links.
//!
//! Whether an account exists is told by registration alone, which has to refuse a second one;
//! sign-in answers and takes as long either way.

use charter_kernel::fault::Fault;
use charter_kernel::governance::policy::Policy;
use charter_kernel::id::{AccountId, KeyId, KitId, OrganizationId, ProjectId, SessionId, UserId};
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_store::Txn;
use charter_tenancy::secret::Plain;
use serde::Deserialize;
use serde_json::{Value, json};

use super::addresses::{self, account_schema, account_view};
use super::kits::pins;
use super::shape::{self, check, checked, id, instant, name, object};
use super::{sessions, stored};
use crate::app::App;
use crate::config::Registration;
use crate::directory::password::{self, PasswordError};
use crate::lifecycle::{self, Billed, Change, Told};
use crate::pipeline::audit::{CHANGES_MAX, Decision, Subject};
use crate::pipeline::identify::bearer;
use crate::public;
use crate::records::account::{Account, email_fault, normalised};
use crate::records::key::ApiKey;
use crate::records::kit::StoredKit;
use crate::records::mail::About;
use crate::records::member::Member;
use crate::records::name as names;
use crate::records::organization::{Loosening, Organization};
use crate::records::project::{Mode, Project};
use crate::records::session::Session;
use crate::records::user::User;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::routes::Head;
use crate::strangers;

/// Who registers, and as what.
#[derive(Deserialize)]
pub struct Register {
    /// The address.
    pub email: String,
    /// The password.
    pub password: String,
    /// The organization's name.
    pub company_name: Option<String>,
    /// The secret of a link that was mailed to the address.
    pub proof: Option<String>,
}

/// The body of a registration.
pub fn register_body() -> Value {
    object(&[
        ("email", shape::email()),
        ("password", shape::new_password()),
        ("company_name?", name()),
        ("proof?", addresses::token()),
    ])
}

/// Its answer.
pub fn register_answer() -> Value {
    let named = || object(&[("id", id()), ("name", name())]);
    let key = object(&[
        ("id", id()),
        ("key", json!({"type": "string"})),
        ("prefix", json!({"type": "string"})),
    ]);
    object(&[
        ("account", account_schema()),
        ("organization", named()),
        ("project", named()),
        ("user", object(&[("id", id())])),
        ("api_key", key),
    ])
}

/// Whether the client may register, ahead of the body: each attempt counts, whatever becomes of it.
/// Whoever has the operator's token registers as often as they like.
///
/// # Errors
/// 403 where registration is not open, 429 after too many.
pub async fn may_register(app: &App, head: Head<'_>) -> Result<(), Refusal> {
    let by_operator = bearer(head.headers).is_some_and(|token| app.operator.admits(token));
    admits_registration(app.config.auth.registration, by_operator)?;
    if by_operator {
        return Ok(());
    }
    app.strangers.admit(&app.strangers.registration(head.peer), head.began)
}

/// Makes an account with an organization, its default project, user and kit, and the platform's
/// first key: all or nothing.
///
/// # Errors
/// When a field is wrong, or the address has an account.
pub async fn register(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let founded = registered(app, request, txn, request.body_as()?).await?;
    Ok(Reply::created(&founded.answer()).about("account", founded.account.id.to_string()))
}

/// The same, of a page too. An address that was not proved is taken from the account that has it,
/// for whoever has a proof, and for the operator.
///
/// # Errors
/// As of [`register`].
pub async fn registered(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    body: Register,
) -> Result<Founded, Refusal> {
    let by_operator = bearer(&request.headers).is_some_and(|token| app.operator.admits(token));
    admits_registration(app.config.auth.registration, by_operator)?;
    let email = body.email.trim().to_owned();
    let company = body.company_name.unwrap_or_else(|| company_of(&email));
    let mut faults: Vec<Fault> = Vec::new();
    check(&mut faults, "email", email_fault(&email));
    check(&mut faults, "password", password::fault(&body.password, &email));
    check(&mut faults, "company_name", names::fault(&company));
    checked(faults)?;
    if let Some(proof) = &body.proof {
        addresses::proof(app, request, txn, proof, &email).await?;
    }
    let proved = by_operator || body.proof.is_some();
    match stored::holder::<Account>(txn, &Account::claim(&email)).await? {
        Some(holder) if proved => addresses::take_from(txn, request, holder.record).await?,
        Some(_) => return Err(taken()),
        None => {}
    }
    let client = strangers::client(request.peer);
    let password_hash =
        app.directory.passwords().hash(&client, body.password).await.map_err(busy)?;
    let founder = Founder { email, password_hash, proved };
    let founded = found(app, txn, request, founder, &company).await?;
    audited(txn, request, "auth.register", 201, &founded.organization.id, &founded.account.id)?;
    Ok(founded)
}

/// Who founds an organization.
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
pub fn audited(
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
pub fn taken() -> Refusal {
    Refusal::duplicate("email", "An account with this e-mail address exists.")
        .hint("Sign in with POST /v1/auth/login; or prove that it is yours with POST /v1/auth/proof, and register with the proof.")
}

/// Where registration is not open, the operator's token opens it.
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
    fn answer(&self) -> Value {
        json!({
            "account": account_view(&self.account),
            "organization": {"id": self.organization.id, "name": self.organization.name},
            "project": {"id": self.project.id, "name": self.project.name},
            "user": {"id": self.project.default_user},
            "api_key": {"id": self.key.id, "key": self.secret.reveal(), "prefix": self.key.prefix},
        })
    }
}

async fn found(
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
        time_zone: "UTC".into(),
        budget: None,
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
    };
    let secret = Plain::generate(Mode::Live.key_prefix()).map_err(stored::no_randomness)?;
    let key = ApiKey {
        id: KeyId::new(now, stored::random()?),
        organization: organization_id,
        name: "Registration".into(),
        prefix: secret.prefix(),
        digest: secret.digest().stored(),
        role: Role::Admin,
        project: None,
        user: None,
        made_by: ("account".into(), account_id.to_string()),
        root: Some(account_id.to_string()),
        ancestors: Vec::new(),
        created_at: now,
        expires_at: None,
    };
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
    let told = Told { user: &user, test: lifecycle::is_test(&project), now, request: &request.id };
    told.tell(&app.governance, txn, Change::Created).await?;
    Ok(project)
}

#[derive(Deserialize)]
struct Login {
    email: String,
    password: String,
}

/// The body of a sign-in.
pub fn login_body() -> Value {
    object(&[("email", shape::known_email()), ("password", shape::tried_password())])
}

/// Its answer.
pub fn login_answer() -> Value {
    let session = object(&[
        ("id", id()),
        ("expires_at", instant()),
        ("csrf_token", json!({"type": "string"})),
    ]);
    object(&[
        ("account", account_schema()),
        ("organization", object(&[("id", id()), ("name", name())])),
        ("session", session),
    ])
}

/// Signs a person in.
///
/// # Errors
/// 401 for a wrong address or password alike, 429 after too many.
pub async fn login(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let body: Login = request.body_as()?;
    let account =
        authenticate(app, request, &body.email, body.password).await?.ok_or_else(wrong)?;
    let SignedIn { organization, session, token, cookie } =
        signed_in(app, request, txn, &account).await?;
    let answer = json!({
        "account": account_view(&account),
        "organization": {"id": organization.id, "name": organization.name},
        "session": sessions::view(&session, &token),
    });
    audited(txn, request, "auth.login", 200, &organization.id, &account.id)?;
    Ok(Reply::ok(&answer)
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
pub async fn signed_in(
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
        sessions::open(txn, id, &token, account, &member.organization, request.now, lifetime_ms)
            .await?;
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
    let attempt = app.strangers.sign_in(request.peer, &normalised(email));
    app.strangers.admit(&attempt, request.began)?;
    let account = app.directory.account(email).await.map_err(|_| Refusal::overloaded(1))?;
    let stored_hash = account.as_ref().map(|account| account.password_hash.clone());
    let client = strangers::client(request.peer);
    match app.directory.passwords().verify(&client, password, stored_hash).await {
        Ok(true) => {
            app.strangers.give_back(&attempt);
            Ok(account)
        }
        Ok(false) => Ok(None),
        Err(error) => {
            app.strangers.give_back(&attempt);
            Err(busy(error))
        }
    }
}

fn wrong() -> Refusal {
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

/// Has a sign-in link mailed. Whether anybody has the address is found out behind the answer, so
/// that neither the answer nor its time tells.
///
/// # Errors
/// 501 without a relay, 429 after too many.
pub async fn link(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    addresses::mailed(app, request, txn, "sign-in link", |email| About::SignIn { email })
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
