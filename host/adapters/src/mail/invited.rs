//! The mail of an invitation.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use charter_tenancy::records::invitation::Invitation;
use charter_tenancy::records::mail::Cause;
use charter_tenancy::records::organization::Organization;
use charter_tenancy::secret::Plain;
use charter_tenancy::stored;

use super::letter;
use super::outbox::{self, Wanted};
use super::quota::{self, Source};
use crate::Adapters;

/// Has the invitation mailed in the same commit, where that can be; says what becomes of it. The
/// inviter has the token either way. `page` is the path that its link leads to.
///
/// # Errors
/// When the store cannot be asked, or the mail cannot be sealed.
pub async fn enqueue(
    adapters: &Adapters,
    txn: &mut Txn,
    invitation: &Invitation,
    token: &Plain,
    page: &str,
) -> Result<&'static str, Refusal> {
    let Ok(ready) = super::ready(adapters) else { return Ok("not_configured") };
    let (organization, now) = (&invitation.organization, invitation.created_at);
    if super::is_hosted(adapters, &invitation.email) || letter::mailbox(&invitation.email).is_none()
    {
        return Ok("withheld");
    }
    let source = Source::Invitation(organization.as_str());
    if !quota::admit(&adapters.settings.mail, txn, source, &invitation.email, now).await? {
        return Ok("rate_limited");
    }
    let found = stored::get::<Organization>(txn, &Organization::address(organization)).await?;
    let name = found.ok_or_else(Refusal::not_found)?.record.name;
    let link = format!("{}{}?token={}", ready.base, page, token.reveal());
    let wanted = Wanted {
        organization: organization.as_str(),
        to: &invitation.email,
        cause: Cause::Invitation { invitation: invitation.id.to_string() },
        letter: letter::invitation(&name, invitation.role.as_str(), &link, invitation.expires_at),
        until: invitation.expires_at,
        hello: &outbox::hello(&ready.base),
    };
    outbox::enqueue(txn, wanted, now).await?;
    Ok("queued")
}
