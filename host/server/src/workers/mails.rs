//! Mails what was committed to be mailed: finds out whom a notice concerns, and hands each mail to
//! the relay, at least once.
//!
//! A relay that is down delays nobody: who caused a mail was answered before. Each row is worked on
//! by one host at a time, under a lease, and goes with what becomes of it.

use std::sync::Arc;
use std::time::Duration;

use charter_adapters::mail::smtp::{self, Fate};
use charter_adapters::mail::{self, letter, outbox};
use charter_kernel::audit::AuditRow;
use charter_kernel::governance::hold::Subject;
use charter_kernel::id::{InvitationId, OrganizationId};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Fact, Guard, Key, Rejection, Space, Taken, Unit, Write};
use charter_store::{CommitError, audit_fact};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::account::Account;
use charter_tenancy::records::approval::{Approval, Status};
use charter_tenancy::records::invitation::Invitation;
use charter_tenancy::records::link::{Link, Mailed};
use charter_tenancy::records::mail::{Cause, MAILS, Mail, NOTICES, Notice};
use charter_tenancy::records::member::Member;
use charter_tenancy::stored;
use serde_json::{Value, json};

use super::due::{Due, keep_lease};
use crate::app::App;

mod expand;

/// How long after a host was last heard of another may take up what it worked on.
const LEASE_MS: i64 = 20_000;
/// How long one try may take.
const TRY: Duration = Duration::from_secs(150);
/// Mails sent side by side.
const MAILS_AT_ONCE: usize = 16;
/// Notices looked into side by side.
const NOTICES_AT_ONCE: usize = 4;
/// Before the second try; doubled with each further one.
const BACKOFF_MS: i64 = 5_000;
/// The longest wait between two tries.
const BACKOFF_MS_MAX: i64 = 900_000;

/// Until the host drains; what is being handed over then is handed over first.
pub(super) async fn run(app: Arc<App>) {
    let due = |space, takes, places| Due { space, takes, lease_ms: LEASE_MS, places };
    let notices = due(Space::host(Notice::COLLECTION), |_, kind| kind == NOTICES, NOTICES_AT_ONCE);
    let mails = due(Space::host(Mail::COLLECTION), |_, kind| kind == MAILS, MAILS_AT_ONCE);
    tokio::join!(
        notices.each(&app, |taken| expand::notice(app.clone(), taken)),
        mails.each(&app, |taken| mail_one(app.clone(), taken)),
    );
}

/// Tries one mail.
async fn mail_one(app: Arc<App>, taken: Taken) {
    let app = &*app;
    let Ok(mail) = Mail::read(&taken.row) else { return };
    let fate = tokio::select! {
        fate = try_mail(app, &mail) => fate,
        () = keep_lease(app, &taken.key, &taken.token, LEASE_MS) => return,
    };
    let now = app.store.now();
    let tries = taken.row.lease.as_ref().map_or(1, |lease| lease.count);
    let again = now.plus_ms(backoff(tries));
    match fate {
        None => end(app, &taken, &mail, None, Vec::new()).await,
        Some(Outcome::Withheld(reason)) => {
            tracing::warn!(mail = mail.id, reason, "a mail is not sent");
            let became = Some((Mailed::Withheld, Some(reason.to_owned())));
            end(app, &taken, &mail, became, Vec::new()).await;
        }
        Some(Outcome::Tried(Fate::Sent)) => {
            end(app, &taken, &mail, Some((Mailed::Sent, None)), Vec::new()).await
        }
        Some(Outcome::Tried(Fate::Later(reason))) if again < mail.until => {
            tracing::warn!(
                mail = mail.id,
                tries,
                reason,
                "a mail could not be sent yet; it is tried again"
            );
            put_off(app, &taken, again).await;
        }
        Some(Outcome::Tried(Fate::Later(reason) | Fate::Never(reason))) => {
            tracing::error!(
                mail = mail.id,
                organization = mail.organization,
                tries,
                reason,
                "a mail was given up"
            );
            let subject = subject_of(app, &mail).await;
            let mut details = recipient(app, &mail).await;
            details["reason"] = json!(reason);
            let told = audit_failure(&mail, subject.as_ref(), &details, now).into_iter().collect();
            end(app, &taken, &mail, Some((Mailed::Failed, Some(reason))), told).await;
        }
    }
}

/// The end of a try.
enum Outcome {
    /// The relay was asked, or could not be.
    Tried(Fate),
    /// Its address is not its person's any more.
    Withheld(&'static str),
}

/// Tries to send it; nothing if its occasion is over.
async fn try_mail(app: &App, mail: &Mail) -> Option<Outcome> {
    let looked = match is_wanted(app, mail).await {
        Ok(false) => return None,
        Ok(true) => why_withheld(app, mail).await,
        Err(reason) => Err(reason),
    };
    let fate = match looked {
        Ok(Some(reason)) => return Some(Outcome::Withheld(reason)),
        Err(reason) => Fate::Later(reason),
        Ok(None) if app.store.now() >= mail.until => {
            Fate::Never("its time was over before it could be sent".into())
        }
        Ok(None) => {
            let sent = tokio::time::timeout(TRY, send(app, mail)).await;
            sent.unwrap_or_else(|_| Fate::Later("it took too long".into()))
        }
    };
    Some(Outcome::Tried(fate))
}

/// Why its link does not act for its account any more, where it does not: somebody else may read
/// the mail of the address by now, and the link would lead nowhere.
async fn why_withheld(app: &App, mail: &Mail) -> Result<Option<&'static str>, String> {
    let get = async |key: Key| app.store.get(&key).await.map_err(|error| error.to_string());
    let Some(link) = mail.cause.link() else { return Ok(None) };
    let link = get(Link::address(link)).await?.and_then(|row| Link::read(&row).ok());
    let Some(link) = link else { return Ok(None) };
    let Some(account) = &link.account else { return Ok(None) };
    let account = get(Account::address(account)).await?.and_then(|row| Account::read(&row).ok());
    Ok(account.map_or(Some("address_changed"), |account| link.fault_for(&account)))
}

async fn send(app: &App, mail: &Mail) -> Fate {
    let ready = match mail::ready(&app.adapters) {
        Ok(ready) => ready,
        Err(missing) => return Fate::Later(format!("nothing can be mailed: {missing:?}")),
    };
    // Asked again: a domain may be hosted only since.
    if mail::is_hosted(&app.adapters, &mail.to) {
        return Fate::Never("this deployment receives the address's mail itself".into());
    }
    let Some(gate) = app.adapters.gate.get() else {
        return Fate::Later("the host is starting".into());
    };
    let words = match outbox::open(&app.store, mail).await {
        Ok(words) => words,
        Err(reason) => return Fate::Later(format!("it cannot be opened: {reason}")),
    };
    match letter::message(&words, &ready.relay.from, &mail.to, &mail.message_id, mail.created_at) {
        Ok(sent) => smtp::submit(gate, &ready.relay, &outbox::hello(&ready.base), &sent).await,
        Err(reason) => Fate::Never(reason),
    }
}

/// Whether what it is for still stands: nobody is mailed a link that leads nowhere, or of what is
/// not theirs to know any more.
async fn is_wanted(app: &App, mail: &Mail) -> Result<bool, String> {
    let get = async |key: Key| app.store.get(&key).await.map_err(|error| error.to_string());
    let organization = OrganizationId::parse(&mail.organization);
    Ok(match (&mail.cause, organization) {
        (Cause::Approval { approval, link }, Some(organization)) => {
            let found = get(Approval::address(organization.as_str(), approval))
                .await?
                .and_then(|row| Approval::read(&row).ok());
            let link = get(Link::address(link)).await?.and_then(|row| Link::read(&row).ok());
            let (Some(found), Some(link)) = (found, link) else { return Ok(false) };
            let Some(account) = &link.account else { return Ok(false) };
            let member = get(Member::address(&organization, account))
                .await?
                .and_then(|row| Member::read(&row).ok());
            found.status == Status::PendingApproval
                && !found.is_forgotten()
                && !link.used
                && member.is_some_and(|member| member.role.decides())
        }
        (Cause::Invitation { invitation }, Some(organization)) => {
            match InvitationId::parse(invitation) {
                Some(id) => get(Invitation::address(&organization, &id)).await?.is_some(),
                None => false,
            }
        }
        (Cause::SignIn { link } | Cause::Link { link }, _) => {
            get(Link::address(link)).await?.is_some()
        }
        (Cause::Summary, Some(organization)) => {
            let found = app.directory.account(&mail.to).await;
            let found = found.map_err(|_| "the account cannot be read".to_owned())?;
            let Some(account) = found else { return Ok(false) };
            let member = get(Member::address(&organization, &account.id)).await?;
            let member = member.and_then(|row| Member::read(&row).ok());
            app.store.now() < mail.until && member.is_some_and(|member| member.role.decides())
        }
        (Cause::Approval { .. } | Cause::Invitation { .. } | Cause::Summary, None) => false,
    })
}

/// Up to a fifth longer, so that what failed together does not come back together.
fn backoff(tries: u32) -> i64 {
    let doubled =
        BACKOFF_MS.saturating_mul(1 << tries.saturating_sub(1).min(20)).min(BACKOFF_MS_MAX);
    let mut random = [0; 2];
    // Without randomness it comes back together.
    let _ = getrandom::fill(&mut random);
    doubled + doubled * i64::from(u16::from_le_bytes(random)) / i64::from(u16::MAX) / 5
}

async fn put_off(app: &App, taken: &Taken, due_at: Instant) {
    let write =
        Write::Release { key: taken.key.clone(), token: taken.token.clone(), due_at, undo: false };
    if let Err(error) =
        app.store.commit_settling(Unit { writes: vec![write], ..Unit::default() }).await
    {
        tracing::warn!(%error, "a mail could not be put back; it is tried again when its lease has ended");
    }
}

/// The mail goes, and its link says what became of it: read anew where somebody uses it at the same
/// moment.
async fn end(
    app: &App,
    taken: &Taken,
    mail: &Mail,
    became: Option<(Mailed, Option<String>)>,
    told: Vec<Fact>,
) {
    let (key, token) = (&taken.key, &taken.token);
    let mut attempts = app.store.attempts(&mail.organization);
    while let Some(mut txn) = attempts.begin() {
        let guard = Guard::Lease { key: key.clone(), token: token.clone() };
        txn.step(vec![guard], vec![Write::Settle { key: key.clone(), token: token.clone() }]);
        told.iter().for_each(|fact| txn.fact(fact.clone()));
        if let Some(link) = mail.cause.link()
            && let Some((mailed, reason)) = &became
            && let Err(refusal) = mark_link(&mut txn, link, *mailed, reason.as_deref()).await
        {
            return tracing::warn!(
                message = refusal.message,
                "what became of a mail could not be written; it is sent once more"
            );
        }
        match txn.commit_settling().await {
            Ok(_) => return,
            Err(CommitError::Rejected(Rejection::Conflict { keys })) => {
                attempts.wait_turn(&keys).await;
            }
            // Somebody else has taken it up meanwhile.
            Err(error) if error.refusal().is_some() => return,
            Err(error) => {
                return tracing::warn!(%error, "what became of a mail could not be written; it is sent once more");
            }
        }
    }
}

async fn mark_link(
    txn: &mut charter_store::Txn,
    link: &str,
    mailed: Mailed,
    reason: Option<&str>,
) -> Result<(), charter_kernel::refusal::Refusal> {
    let Some(found) = stored::get::<Link>(txn, &Link::address(link)).await? else { return Ok(()) };
    let link = Link { mailed, reason: reason.map(str::to_owned), ..found.record };
    stored::replace(txn, &link, "link").await.map(drop)
}

/// The subject of the approval that a mail is about: rows about it are its tenant user's, in the
/// user's project, and what is private in them goes with the user.
async fn subject_of(app: &App, mail: &Mail) -> Option<Subject> {
    let Cause::Approval { approval, .. } = &mail.cause else { return None };
    let key = Approval::address(&mail.organization, approval);
    let row = app.store.get(&key).await.ok().flatten()?;
    Some(Approval::read(&row).ok()?.subject)
}

/// The recipient of a mail, as its row names them. A member is named by their account: a row about
/// an approval is read in its project, whose keys read no member's address.
async fn recipient(app: &App, mail: &Mail) -> Value {
    let account = match &mail.cause {
        Cause::Approval { link, .. } => {
            let row = app.store.get(&Link::address(link)).await.ok().flatten();
            row.and_then(|row| Link::read(&row).ok()).and_then(|link| link.account)
        }
        Cause::Summary => {
            let found = app.directory.account(&mail.to).await.ok().flatten();
            found.map(|account| account.id)
        }
        Cause::Invitation { .. } | Cause::SignIn { .. } | Cause::Link { .. } => {
            return json!({ "to": mail.to });
        }
    };
    json!({ "account_id": account })
}

/// The audit row of a mail that was given up.
fn audit_failure(
    mail: &Mail,
    subject: Option<&Subject>,
    details: &Value,
    now: Instant,
) -> Option<Fact> {
    let (kind, id) = match &mail.cause {
        Cause::Approval { approval, .. } => ("approval", approval.as_str()),
        Cause::Invitation { invitation } => ("invitation", invitation.as_str()),
        Cause::Summary | Cause::SignIn { .. } | Cause::Link { .. } => ("mail", mail.id.as_str()),
    };
    let row = AuditRow {
        organization: &mail.organization,
        at: now,
        actor: ("system", "mail"),
        on_behalf_of: subject.and_then(|subject| subject.user.as_deref()),
        project: subject.and_then(|subject| subject.project.as_deref()),
        action: "mail.give_up",
        entity_type: Some(kind),
        entity_id: Some(id),
        decision: "refused",
        reason: Some("mail_failed"),
        details: Some(details),
        ..AuditRow::default()
    };
    audit_fact(&row).ok()
}
