//! The target of an approval link: the page that shows the request, and its two buttons.
//!
//! The person is who the link was mailed to, as long as they are a member whose role decides: that
//! is read within the unit. Their word goes the very way that a session's word goes.

use charter_governance::audit::commit_alone;
use charter_governance::decide::{self, Decision, Person};
use charter_kernel::authority::Class;
use charter_kernel::id::{OrganizationId, ProjectId, UserId};
use charter_kernel::money::dollars;
use charter_kernel::refusal::{Code, Refusal};
use charter_store::Txn;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::{Approval, Status};
use charter_tenancy::records::link::{Link, Purpose};
use charter_tenancy::records::member::Member;
use charter_tenancy::records::organization::Organization;
use charter_tenancy::records::user::User;
use charter_tenancy::stored::{self, Versioned};
use http::StatusCode;
use serde_json::json;

use super::{FORM_BYTES_MAX, Form, LinkQuery};
use crate::app::App;
use crate::handler;
use crate::html::{FORM, escape, fact, page};
use crate::pipeline::audit::{self, Subject};
use crate::reply::{AuditLog, Reply};
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::routes::links;
use crate::serve::Params;

/// Characters of a reason.
const REASON_CHARS_MAX: usize = 1_000;

/// The records that a link stands for, read within the unit.
struct Opened {
    link: Versioned<Link>,
    organization: OrganizationId,
    approval: Versioned<Approval>,
    member: Member,
}

/// The link of a token, if it is one for this very approval and request, with the person's place in
/// the organization of now.
async fn open_link(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    token: &str,
) -> Result<Opened, Refusal> {
    let link = links::find_presented(app, request, txn, token).await?;
    let Purpose::Approval { organization, approval, request_sha256 } = &link.record.purpose else {
        return Err(links::no_such_link());
    };
    if approval != request.parameter("id") {
        return Err(links::no_such_link());
    }
    let organization = OrganizationId::parse(organization).ok_or_else(links::no_such_link)?;
    let address = Approval::address(organization.as_str(), approval);
    let approval = stored::get::<Approval>(txn, &address).await?.ok_or_else(links::no_such_link)?;
    if approval.record.request_sha256 != *request_sha256 {
        return Err(links::no_such_link());
    }
    let account = links::account(txn, &link.record).await?.id;
    let member = stored::get::<Member>(txn, &Member::address(&organization, &account)).await?;
    let member = member.ok_or_else(links::no_such_link)?.record;
    Ok(Opened { link, organization, approval, member })
}

/// The rows of these pages.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::Open, "pages.approval", "/approvals/{id}", handler!(show_approval))
            .summary("What a mailed approval link asks")
            .refuses(&[Code::NotFound, Code::StateConflict, Code::RateLimited]),
        HostRoute::post(Class::Open, "pages.decide", "/approvals/{id}", handler!(decide_approval))
            .summary("Decide by a mailed approval link")
            .consumes(FORM, FORM_BYTES_MAX)
            .refuses(&[Code::NotFound, Code::StateConflict, Code::RateLimited]),
    ]
}

/// `GET /approvals/{id}?token=…`: shows what is asked, and decides nothing.
///
/// # Errors
/// 404 for a link that does not count, 403 for who may not decide any more, 409 where it is
/// decided.
pub async fn show_approval(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Params(asked): Params<LinkQuery>,
) -> Result<Reply, Refusal> {
    let token = asked.token();
    let opened = open_link(app, request, txn, token).await?;
    decide::may_decide(opened.member.role)?;
    let approval = &opened.approval.record;
    if let Some(refusal) = decide::refuse_decided(approval, request.now) {
        return Err(refusal);
    }
    let whom = user_name(txn, approval).await?;
    let mut facts = fact("What", &approval.title);
    if let Some(name) = organization(txn, approval).await? {
        facts.push_str(&fact("In", &name));
    }
    if !approval.message.is_empty() {
        facts.push_str(&fact("Why", &approval.message));
    }
    facts.push_str(&fact("Action", &approval.action));
    if let Some(amount) = approval.amount_micro_usd {
        facts.push_str(&fact("Amount", &dollars(amount)));
    }
    if let Some(whom) = whom {
        facts.push_str(&fact("For", &whom));
    }
    facts.push_str(&fact("Asked at", &approval.created_at.to_string()));
    facts.push_str(&fact("Until", &approval.expires_at.to_string()));
    facts.push_str(&fact("You", &opened.link.record.email));
    if approval.approvals_required > 1 {
        facts.push_str(&fact(
            "People",
            &format!(
                "{} must approve, {} did",
                approval.approvals_required,
                decide::count_words(txn, &approval.organization, &approval.decisions).await?
            ),
        ));
    }
    // Relative, so that it leads back here behind a proxy that takes a prefix away.
    let (action, token) = (escape(request.parameter("id")), escape(token));
    let body = format!(
        "<dl>\n{facts}</dl>\n<form method=\"post\" action=\"{action}\">\n\
         <input type=\"hidden\" name=\"token\" value=\"{token}\">\n\
         <p><label>Reason, if you like<br><input type=\"text\" name=\"reason\" maxlength=\"{REASON_CHARS_MAX}\" size=\"60\"></label></p>\n\
         <p><button name=\"decision\" value=\"approve\">Approve</button> <button name=\"decision\" value=\"deny\">Deny</button></p>\n</form>"
    );
    Ok(page(StatusCode::OK, "An action waits for you", &body))
}

/// The name of the organization that it is of.
///
/// # Errors
/// When the store cannot be asked.
pub async fn organization(txn: &mut Txn, approval: &Approval) -> Result<Option<String>, Refusal> {
    let row = txn
        .get_relaxed(&Organization::address(&approval.organization))
        .await
        .map_err(stored::reading)?;
    let organization =
        row.map(|row| Organization::read(&row)).transpose().map_err(stored::unreadable)?;
    Ok(organization.map(|organization| organization.name))
}

/// The name of the tenant user that it is for.
///
/// # Errors
/// When the store cannot be asked.
pub async fn user_name(txn: &mut Txn, approval: &Approval) -> Result<Option<String>, Refusal> {
    let subject = &approval.subject;
    let project = subject.project.as_deref().and_then(ProjectId::parse);
    let (Some(project), Some(user)) = (project, subject.user.as_deref().and_then(UserId::parse))
    else {
        return Ok(None);
    };
    let row = txn.get_relaxed(&User::address(&project, &user)).await.map_err(stored::reading)?;
    let user = row.map(|row| User::read(&row)).transpose().map_err(stored::unreadable)?;
    Ok(user.map(|user| user.name))
}

/// `POST /approvals/{id}`: the person's word.
///
/// # Errors
/// As of `POST /v1/approvals/{id}/approve`, and 404 for a link that does not count.
pub async fn decide_approval(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Reply, Refusal> {
    let form = Form::read(app, request)?;
    let (decision, reason) = read_decision(&form)?;
    let Opened { link, organization, approval, member } =
        open_link(app, request, txn, form.field("token")).await?;
    let standing = app
        .directory
        .organization(&organization)
        .await
        .map_err(crate::pipeline::identify::unreadable)?;
    txn.guard(standing.ok_or_else(links::no_such_link)?.guard());
    let id = approval.record.id.clone();
    let subject = Subject::of_person(
        request,
        operation(decision),
        organization.as_str(),
        member.account.as_str(),
    );
    let subject = subject.map(|subject| subject.about("approval", &id));
    let whose = &approval.record.subject;
    let log = AuditLog::of(whose.project.as_deref(), whose.user.as_deref());
    let subject = subject.map(|subject| subject.with_log(&log));
    let person = Person {
        organization: &organization,
        account: member.account.as_str(),
        role: member.role,
        via: "mail_link",
    };
    let said = match decide::decide(txn, &person, approval, decision, reason, request.now).await {
        Ok(said) => said,
        Err(refusal) => {
            audit_refusal(app, subject, &refusal).await?;
            return Err(refusal);
        }
    };
    stored::replace(txn, &Link { used: true, ..link.record }, "token").await?;
    if let (Some(subject), Some(note)) = (subject, &said.note) {
        let changes = txn.changes(audit::CHANGES_MAX);
        let decision =
            audit::Decision { status: 200, refused: None, changes: &changes, details: Some(note) };
        txn.fact(subject.fact(decision).map_err(stored::no_randomness)?);
    }
    let told = match (said.approval.status, decision) {
        (Status::PendingApproval, _) => "Your approval counts. Others have to approve as well.",
        (_, Decision::Approve) => "You have approved it. It is done now, once, as it was asked.",
        (_, Decision::Deny) => "You have denied it. It is not done.",
    };
    Ok(page(StatusCode::OK, "Thank you", &format!("<p>{told}</p>")))
}

/// The person's word, and the reason that they gave.
fn read_decision(form: &Form) -> Result<(Decision, Option<String>), Refusal> {
    let decision = match form.field("decision") {
        "approve" => Decision::Approve,
        "deny" => Decision::Deny,
        _ => return Err(Refusal::invalid("decision", "must be approve or deny")),
    };
    let reason = Some(form.field("reason").trim()).filter(|reason| !reason.is_empty());
    if reason.is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
        return Err(Refusal::invalid(
            "reason",
            format!("must have at most {REASON_CHARS_MAX} characters"),
        ));
    }
    Ok((decision, reason.map(str::to_owned)))
}

fn operation(decision: Decision) -> &'static str {
    match decision {
        Decision::Approve => "approvals.approve",
        Decision::Deny => "approvals.deny",
    }
}

/// A word that did not count is a row of the audit log too, in a unit of its own.
async fn audit_refusal(
    app: &App,
    subject: Option<Subject>,
    refusal: &Refusal,
) -> Result<(), Refusal> {
    let Some(subject) = subject.filter(|_| !refusal.should_retry()) else { return Ok(()) };
    let named = (refusal.code.own_name(), refusal.reason.as_deref());
    let details = json!({"via": "mail_link"});
    let status = refusal.status(charter_kernel::manifest::Catalogue::Primary);
    let decision =
        audit::Decision { status, refused: Some(named), changes: &[], details: Some(&details) };
    let fact = subject.fact(decision).map_err(stored::no_randomness)?;
    commit_alone(&app.store, subject.organization(), fact).await
}
