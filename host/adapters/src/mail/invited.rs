//! The mail of an invitation.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use charter_tenancy::secret::Plain;

use super::outbox::{self, Wanted};
use super::{letter, quota};
use crate::app::App;
use crate::records::invitation::Invitation;
use crate::records::mail::Cause;
use crate::records::organization::Organization;
use crate::routes::{pages, stored};

/// Has the invitation mailed in the same commit, where that can be; says what becomes of it. The
/// inviter has the token either way.
///
/// # Errors
/// When the store cannot be asked, or the mail cannot be sealed.
pub async fn mailed(
    app: &App,
    txn: &mut Txn,
    invitation: &Invitation,
    token: &Plain,
) -> Result<&'static str, Refusal> {
    let Ok(ready) = super::ready(app) else { return Ok("not_configured") };
    let (organization, now) = (&invitation.organization, invitation.created_at);
    if super::is_hosted(app, &invitation.email) || letter::mailbox(&invitation.email).is_none() {
        return Ok("withheld");
    }
    if !quota::admit(app, txn, Some(organization.as_str()), &invitation.email, now).await? {
        return Ok("rate_limited");
    }
    let found = stored::get::<Organization>(txn, &Organization::address(organization)).await?;
    let name = found.ok_or_else(Refusal::not_found)?.record.name;
    let link = format!("{}{}?token={}", ready.base, pages::invitation::PATH, token.reveal());
    let wanted = Wanted {
        organization: organization.as_str(),
        to: &invitation.email,
        cause: Cause::Invitation { invitation: invitation.id.to_string() },
        letter: letter::invitation(&name, invitation.role.as_str(), &link, invitation.expires_at),
        until: invitation.expires_at,
        hello: &outbox::hello(&ready.base),
    };
    outbox::enqueue(txn, wanted, now).await?;
    app.mail_wanted.notify_one();
    Ok("queued")
}
