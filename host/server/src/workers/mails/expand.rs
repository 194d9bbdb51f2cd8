//! The recipients of a notice: for each of them a link and a mail, in one unit with the notice's
//! end, so that each is made once.

use std::sync::Arc;

use charter_adapters::mail::letter::{self, Letter, Question};
use charter_adapters::mail::outbox::{self, Wanted};
use charter_adapters::mail::quota::{self, Source};
use charter_adapters::mail::{self, Missing, Ready, links};
use charter_governance::decide;
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Guard, Reach, Taken, Unit, Write};
use charter_store::{CommitError, TransactError, Txn};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::account::{Account, email_fault};
use charter_tenancy::records::approval::Approval;
use charter_tenancy::records::link::{Link, Mailed, Purpose};
use charter_tenancy::records::mail::{About, Cause, Notice};
use charter_tenancy::records::member::Member;
use charter_tenancy::stored;

use crate::app::App;
use crate::routes::pages;

/// People who are told of one approval.
const PEOPLE_MAX: usize = 100;

/// Makes the mails of a notice; one that cannot be now is left to its lease's end.
pub(super) async fn notice(app: Arc<App>, taken: Taken) {
    let app = &*app;
    let Ok(notice) = Notice::read(&taken.row) else { return };
    let ready = match mail::ready(&app.adapters) {
        Ok(ready) => ready,
        Err(missing) => return drop_untellable(app, &taken, &notice, &missing).await,
    };
    let organization = notice.organization().unwrap_or_default();
    let expanded = app.store.transact(organization, async |txn: &mut Txn| {
        match &notice.about {
            About::Approval { organization, approval } => {
                mail_deciders(app, &ready, txn, organization, approval).await?;
            }
            About::SignIn { email } => {
                mail_link(app, &ready, txn, Leads::SIGN_IN, email, notice.created_at).await?;
            }
            About::Proof { email } => {
                mail_link(app, &ready, txn, Leads::PROOF, email, notice.created_at).await?;
            }
            About::Reset { email } => {
                mail_link(app, &ready, txn, Leads::RESET, email, notice.created_at).await?;
            }
        }
        let (key, token) = (taken.key.clone(), taken.token.clone());
        txn.step(
            vec![Guard::Lease { key: key.clone(), token: token.clone() }],
            vec![Write::Settle { key, token }],
        );
        Ok::<_, Refusal>(())
    });
    match expanded.await {
        // Somebody else has taken it up meanwhile.
        Ok(()) | Err(TransactError::Commit(CommitError::Rejected(_))) => {}
        Err(TransactError::Body(refusal)) => tracing::warn!(
            message = refusal.message,
            "a notice could not be made mails; it is tried again"
        ),
        Err(TransactError::Commit(error)) => {
            tracing::warn!(%error, "a notice could not be made mails; it is tried again")
        }
    }
}

/// There is no relay any more: looked at again when its lease has ended, for as long as a mail
/// would be tried.
async fn drop_untellable(app: &App, taken: &Taken, notice: &Notice, missing: &Missing) {
    tracing::error!(?missing, "nobody can be told by mail");
    if app.store.now() < notice.created_at.plus_ms(outbox::TRIED_MS) {
        return;
    }
    let (key, token) = (taken.key.clone(), taken.token.clone());
    let unit = Unit { writes: vec![Write::Settle { key, token }], ..Unit::default() };
    if let Err(error) = app.store.commit_settling(unit).await {
        tracing::warn!(%error, "a notice that is past its time could not be removed; the next look finds it");
    }
}

/// Everybody who may decide is told, with a link of their own.
async fn mail_deciders(
    app: &App,
    ready: &Ready,
    txn: &mut Txn,
    organization: &str,
    id: &str,
) -> Result<(), Refusal> {
    let now = app.store.now();
    let Some(approval) = stored::get::<Approval>(txn, &Approval::address(organization, id)).await?
    else {
        return Ok(());
    };
    let approval = approval.record;
    if decide::refuse_decided(&approval, now).is_some() {
        return Ok(());
    }
    let (name, whom) = (
        pages::approval::organization(txn, &approval).await?,
        pages::approval::user_name(txn, &approval).await?,
    );
    let asked = Question {
        title: &approval.title,
        action: &approval.action,
        amount: approval.amount_micro_usd,
        organization: name.as_deref(),
        whom: whom.as_deref(),
        until: approval.expires_at,
        people: approval.approvals_required,
    };
    for member in deciders(txn, &approval).await? {
        mail_decider(app, ready, txn, &approval, &asked, &member, now).await?;
    }
    Ok(())
}

/// The members who may decide on it: the one who asked is left out, unless nobody else could.
async fn deciders(txn: &mut Txn, approval: &Approval) -> Result<Vec<Member>, Refusal> {
    let reach = Reach::organization(approval.organization.as_str());
    let mut deciders = Vec::new();
    for role in Role::ALL.into_iter().rev().filter(|role| role.decides()) {
        let limit = PEOPLE_MAX as u32 + 1;
        let (found, _) =
            stored::list::<Member>(txn, &reach, &[("role", role.as_str())], limit, 0).await?;
        deciders.extend(found.into_iter().map(|found| found.record));
    }
    let is_own = |member: &Member| approval.asked_by.as_deref() == Some(member.account.as_str());
    if !deciders.iter().all(is_own) {
        deciders.retain(|member| !is_own(member));
    }
    if deciders.len() > PEOPLE_MAX {
        tracing::warn!(
            approval = approval.id,
            people = deciders.len(),
            "more people may decide than are told by mail"
        );
        deciders.truncate(PEOPLE_MAX);
    }
    Ok(deciders)
}

/// One person is told, or it is written down why not.
async fn mail_decider(
    app: &App,
    ready: &Ready,
    txn: &mut Txn,
    approval: &Approval,
    asked: &Question<'_>,
    member: &Member,
    now: Instant,
) -> Result<(), Refusal> {
    let organization = approval.organization.as_str();
    let purpose = Purpose::Approval {
        organization: organization.to_owned(),
        approval: approval.id.clone(),
        request_sha256: approval.request_sha256.clone(),
    };
    let account = stored::get::<Account>(txn, &Account::address(&member.account)).await?;
    let Some(account) = account.map(|found| found.record) else { return Ok(()) };
    let email = account.email.as_str();
    let acts_for = Some((&account.id, account.password_version));
    let (link, token) = links::make(purpose, acts_for, email, now, approval.expires_at)?;
    // Those of builds that did not say who asked are few, and count as one.
    let by = approval.by.clone().unwrap_or_default();
    let source = Source::Approval { organization, by: &by };
    let withheld = match () {
        () if mail::is_hosted(&app.adapters, email) => Some("hosted_domain"),
        () if letter::mailbox(email).is_none() => Some("no_mailbox"),
        () if !quota::admit(&app.adapters.settings.mail, txn, source, email, now).await? => {
            Some("rate_limited")
        }
        () => None,
    };
    if let Some(reason) = withheld {
        tracing::warn!(
            approval = approval.id,
            account = member.account.as_str(),
            reason,
            "a person is not told by mail"
        );
        if reason == "rate_limited" {
            mail_summary(ready, txn, organization, member, now).await?;
        }
        // A token that nobody has: the row only says that there was no mail.
        let link = Link { mailed: Mailed::Withheld, reason: Some(reason.to_owned()), ..link };
        return stored::insert(txn, &link, "link").await.map(drop);
    }
    stored::insert(txn, &link, "link").await?;
    let address = format!("{}/approvals/{}?token={}", ready.base, approval.id, token.reveal());
    let wanted = Wanted {
        organization,
        to: email,
        cause: Cause::Approval { approval: approval.id.clone(), link: link.digest },
        letter: letter::approval(asked, &address),
        until: approval.expires_at,
        hello: &outbox::hello(&ready.base),
    };
    outbox::enqueue(txn, wanted, now).await
}

/// The one mail that stands for all that are not sent within this hour.
async fn mail_summary(
    ready: &Ready,
    txn: &mut Txn,
    organization: &str,
    member: &Member,
    now: Instant,
) -> Result<(), Refusal> {
    let Some(until) = quota::summary(txn, organization, member.account.as_str(), now).await? else {
        return Ok(());
    };
    let wanted = Wanted {
        organization,
        to: &member.email,
        cause: Cause::Summary,
        letter: letter::summary(&ready.base, until),
        until,
        hello: &outbox::hello(&ready.base),
    };
    outbox::enqueue(txn, wanted, now).await
}

/// The target of a link that somebody asked for.
struct Leads {
    purpose: Purpose,
    path: &'static str,
    lifetime_ms: i64,
    letter: fn(&str, Instant) -> Letter,
}

impl Leads {
    const SIGN_IN: Self = Self {
        purpose: Purpose::SignIn,
        path: pages::sign_in::PATH,
        lifetime_ms: links::SIGN_IN_MS,
        letter: letter::sign_in,
    };
    const PROOF: Self = Self {
        purpose: Purpose::Proof,
        path: pages::address::PATH,
        lifetime_ms: links::PROOF_MS,
        letter: letter::proof,
    };
    const RESET: Self = Self {
        purpose: Purpose::Reset,
        path: pages::password::PATH,
        lifetime_ms: links::SIGN_IN_MS,
        letter: letter::reset,
    };

    /// Whether such a link goes to the address of this account, or to this one that none has, in the
    /// spelling that one could get it in. An address that was proved is not proved again.
    fn concerns(&self, account: Option<&Account>, email: &str) -> bool {
        match (&self.purpose, account) {
            (Purpose::Proof, Some(account)) => !account.is_verified(),
            (Purpose::Proof, None) => email_fault(email).is_none(),
            (_, account) => account.is_some(),
        }
    }
}

/// The address is mailed a link, if it is one that such a link goes to: nobody is told either way.
async fn mail_link(
    app: &App,
    ready: &Ready,
    txn: &mut Txn,
    leads: Leads,
    email: &str,
    asked_at: Instant,
) -> Result<(), Refusal> {
    let now = app.store.now();
    let expires_at = asked_at.plus_ms(leads.lifetime_ms);
    let account = stored::holder::<Account>(txn, &Account::claim(email)).await?;
    let account = account.map(|found| found.record);
    if !leads.concerns(account.as_ref(), email) || now >= expires_at {
        return Ok(());
    }
    let email = account.as_ref().map_or(email, |account| account.email.as_str());
    let withheld = match () {
        () if mail::is_hosted(&app.adapters, email) => Some("the address is not one for links"),
        () if letter::mailbox(email).is_none() => Some("no mail can have the address"),
        () if !quota::admit(&app.adapters.settings.mail, txn, Source::Asker, email, now)
            .await? =>
        {
            Some("the address got too many mails")
        }
        () => None,
    };
    let acts_for = account.as_ref().map(|account| (&account.id, account.password_version));
    if let Some(reason) = withheld {
        let account = acts_for.map_or("", |(id, _)| id.as_str());
        tracing::warn!(account, reason, purpose = ?leads.purpose, "a link is not mailed");
        return Ok(());
    }
    let (link, token) = links::make(leads.purpose.clone(), acts_for, email, now, expires_at)?;
    stored::insert(txn, &link, "link").await?;
    let address = format!("{}{}?token={}", ready.base, leads.path, token.reveal());
    let cause = match leads.purpose {
        Purpose::SignIn => Cause::SignIn { link: link.digest },
        _ => Cause::Link { link: link.digest },
    };
    let wanted = Wanted {
        organization: "",
        to: email,
        cause,
        letter: (leads.letter)(&address, expires_at),
        until: expires_at,
        hello: &outbox::hello(&ready.base),
    };
    outbox::enqueue(txn, wanted, now).await
}
