//! Who may loosen, and what a pinned key sees.
//!
//! Loosening (raising a cap, restoring a user, moving a kit, members, wider keys) takes the session
//! of an owner or admin, or an admin key that is pinned to no user; an organization can ask for a
//! session always. Knows nothing of what is loosened.

use charter_kernel::id::{ProjectId, UserId};
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;

use crate::directory::{KeyRecord, OrganizationRecord};
use crate::place::Identity;
use crate::records::organization::Loosening;

/// The credential's role; absent without one.
pub fn role(identity: &Identity) -> Option<Role> {
    match identity {
        Identity::Key(key) => Some(key.role),
        Identity::Session(session) => Some(session.role),
        Identity::Anonymous | Identity::Operator => None,
    }
}

/// The tenant user that the credential is pinned to.
pub fn pinned_user(identity: &Identity) -> Option<&UserId> {
    key(identity).and_then(|key| key.user.as_ref())
}

/// The project that the credential is pinned to.
pub fn pinned_project(identity: &Identity) -> Option<&ProjectId> {
    key(identity).and_then(|key| key.project.as_ref())
}

fn key(identity: &Identity) -> Option<&KeyRecord> {
    match identity {
        Identity::Key(key) => Some(key),
        Identity::Anonymous | Identity::Operator | Identity::Session(_) => None,
    }
}

/// The kind and id of who acts, as records keep it.
pub fn actor(identity: &Identity) -> (String, String) {
    match identity {
        Identity::Key(key) => ("key".into(), key.id.to_string()),
        Identity::Session(session) => ("account".into(), session.account.to_string()),
        Identity::Operator => ("operator".into(), "operator".into()),
        Identity::Anonymous => ("anonymous".into(), String::new()),
    }
}

/// Whether the request may loosen.
///
/// # Errors
/// 403 with what it would take.
pub fn loosen(identity: &Identity, organization: &OrganizationRecord) -> Result<(), Refusal> {
    let session_only = organization.loosening == Loosening::Session;
    let by_key = matches!(identity, Identity::Key(_));
    let admits = role(identity).is_some_and(Role::loosens)
        && pinned_user(identity).is_none()
        && !(session_only && by_key);
    if admits {
        return Ok(());
    }
    let hint = if session_only {
        "This organization asks for the session of an owner or admin."
    } else {
        "It takes the session of an owner or admin, or an admin key that is pinned to no user."
    };
    Err(Refusal::forbidden(
        "loosening_not_allowed",
        "This would loosen what the organization has set.",
    )
    .hint(hint))
}

/// Refuses keys that are pinned to a tenant user: they see that user alone.
///
/// # Errors
/// 403.
pub fn unpinned(identity: &Identity) -> Result<(), Refusal> {
    match pinned_user(identity) {
        None => Ok(()),
        Some(_) => Err(Refusal::forbidden(
            "key_user_pinned",
            "The key is pinned to one user and acts for that user only.",
        )
        .hint("Use a key that is pinned to no user.")),
    }
}

/// Hides what is the organization's from a key that is pinned to one user.
///
/// # Errors
/// 404, as if there were none.
pub fn sees_organization(identity: &Identity) -> Result<(), Refusal> {
    unpinned(identity).map_err(|_| Refusal::not_found())
}

/// Refuses keys that are pinned at all: what is the whole organization's is beyond every pin.
///
/// # Errors
/// 403.
pub fn organization_wide(identity: &Identity) -> Result<(), Refusal> {
    unpinned(identity)?;
    match pinned_project(identity) {
        None => Ok(()),
        Some(_) => Err(Refusal::forbidden(
            "key_project_pinned",
            "The key is pinned to one project and changes nothing beyond it.",
        )
        .hint("Use a key that is pinned to no project.")),
    }
}

/// Hides other users from a key that is pinned to one.
///
/// # Errors
/// 404, as if there were none.
pub fn sees_user(identity: &Identity, user: &UserId) -> Result<(), Refusal> {
    match pinned_user(identity) {
        Some(pinned) if pinned != user => Err(Refusal::not_found()),
        _ => Ok(()),
    }
}

/// Refuses another project than the one that the key is pinned to.
///
/// # Errors
/// 403 `key_project_mismatch`.
pub fn sees_project(identity: &Identity, project: &ProjectId) -> Result<(), Refusal> {
    match pinned_project(identity) {
        Some(pinned) if pinned != project => {
            Err(Refusal::forbidden("key_project_mismatch", "The key is pinned to another project."))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use charter_kernel::id::{AccountId, KeyId, OrganizationId, SessionId, uuid_v7};
    use charter_kernel::time::Instant;

    use super::*;
    use crate::directory::SessionRecord;
    use crate::secret::Plain;

    fn id(n: u8) -> String {
        uuid_v7(Instant(1), [n; 10])
    }

    fn organization(loosening: Loosening) -> OrganizationRecord {
        OrganizationRecord {
            id: OrganizationId::parse(&id(1)).unwrap(),
            default_project: ProjectId::parse(&id(2)).unwrap(),
            loosening,
            time_zone: "UTC".into(),
            budget: None,
            policy: Default::default(),
            limits: Vec::new(),
            version: 1,
        }
    }

    fn by_key(role: Role, user: Option<u8>) -> Identity {
        Identity::Key(Arc::new(KeyRecord {
            id: KeyId::parse(&id(3)).unwrap(),
            organization: OrganizationId::parse(&id(1)).unwrap(),
            name: "k".into(),
            role,
            project: None,
            user: user.map(|n| UserId::parse(&id(n)).unwrap()),
            expires_at: None,
            ancestors: vec![],
        }))
    }

    fn by_session(role: Role) -> Identity {
        Identity::Session(Arc::new(SessionRecord {
            id: SessionId::parse(&id(4)).unwrap(),
            account: AccountId::parse(&id(5)).unwrap(),
            organization: OrganizationId::parse(&id(1)).unwrap(),
            role,
            csrf_token: Plain::presented("t"),
            expires_at: Instant(9),
            digest: String::new(),
            membership: 1,
        }))
    }

    #[test]
    fn owners_admins_and_unpinned_admin_keys_loosen() {
        let organization = organization(Loosening::Key);
        for (identity, may) in [
            (by_session(Role::Owner), true),
            (by_session(Role::Admin), true),
            (by_session(Role::Approver), false),
            (by_session(Role::Developer), false),
            (by_session(Role::Viewer), false),
            (by_key(Role::Admin, None), true),
            (by_key(Role::Admin, Some(7)), false),
            (by_key(Role::Developer, None), false),
            (Identity::Anonymous, false),
            (Identity::Operator, false),
        ] {
            assert_eq!(loosen(&identity, &organization).is_ok(), may, "{identity:?}");
        }
    }

    #[test]
    fn an_organization_can_ask_for_a_session_always() {
        let organization = organization(Loosening::Session);
        assert!(loosen(&by_key(Role::Admin, None), &organization).is_err());
        assert!(loosen(&by_session(Role::Admin), &organization).is_ok());
    }

    #[test]
    fn a_key_pinned_to_a_user_sees_that_user_only() {
        let (own, other) = (UserId::parse(&id(7)).unwrap(), UserId::parse(&id(8)).unwrap());
        let pinned = by_key(Role::Admin, Some(7));
        assert!(sees_user(&pinned, &own).is_ok());
        assert_eq!(sees_user(&pinned, &other), Err(Refusal::not_found()));
        assert!(unpinned(&pinned).is_err());
        assert!(sees_user(&by_key(Role::Viewer, None), &other).is_ok());
    }
}
