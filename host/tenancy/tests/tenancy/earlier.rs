//! Records that an earlier build wrote: read as they were meant, with what has come since left as
//! it was.

use charter_kernel::id::uuid_v7;
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::Row;
use charter_tenancy::records::Record;
use charter_tenancy::records::account::Account;
use charter_tenancy::records::invitation::Invitation;
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::records::link::Link;
use charter_tenancy::records::member::Member;
use charter_tenancy::records::organization::{Loosening, Organization};
use charter_tenancy::records::project::Project;
use charter_tenancy::records::session::Session;
use charter_tenancy::records::user::User;
use charter_tenancy::records::webhook::{Delivery, Webhook};
use serde_json::{Value, json};

const AT: &str = "2026-01-02T03:04:05.678Z";

fn id(n: u8) -> String {
    uuid_v7(Instant(1_700_000_000_000), [n; 10])
}

fn read<R: Record>(body: Value) -> R {
    let now = Instant(1);
    let row = Row {
        version: 1,
        user: None,
        created_at: now,
        updated_at: now,
        body: body.to_string(),
        index: Vec::new(),
        unique: Vec::new(),
        text: None,
        lease: None,
    };
    let record = R::read(&row).unwrap();
    // Written again and read again it says the same.
    let again = record.draft().unwrap().body;
    let again = R::read(&Row { body: again.clone(), ..row }).unwrap().draft().unwrap().body;
    assert_eq!(again, record.draft().unwrap().body);
    record
}

#[test]
fn an_account_had_no_version_of_its_password_and_proved_no_address() {
    let account: Account = read(json!({
        "id": id(1), "email": "ann@example.com", "password_hash": "x", "organizations": [id(2)],
        "created_at": AT,
    }));
    assert_eq!(account.password_version, 0);
    assert!(!account.is_verified());
    let session: Session = read(json!({
        "id": id(3), "digest": "d", "account": id(1), "organization": id(2), "created_at": AT,
        "expires_at": AT,
    }));
    // Sessions of before passwords had versions stay open until the next change.
    assert_eq!(session.password_version, account.password_version);
    assert!(account.admits(&session) && !account.has_ended(&session));
    let member: Member = read(json!({
        "organization": id(2), "account": id(1), "email": "ann@example.com", "role": "admin",
        "created_at": AT,
    }));
    assert!(session.is_of(&member), "it was opened in whatever membership there is");
    assert!(member.offers_since(Role::Viewer, member.created_at));
    assert!(!member.offers_since(Role::Owner, member.created_at));
}

#[test]
fn an_organization_had_no_rules_of_its_own() {
    let organization: Organization = read(json!({
        "id": id(1), "name": "Acme", "default_project": id(2), "created_at": AT,
    }));
    assert_eq!(organization.loosening, Loosening::Key);
    assert_eq!(organization.time_zone, "UTC");
    assert_eq!((organization.budget, organization.limits.len()), (None, 0));
    assert!(!organization.proved, "nobody is taken for proved who was not");
}

#[test]
fn a_project_and_a_user_had_no_budget() {
    let project: Project = read(json!({
        "id": id(1), "organization": id(2), "name": "p", "mode": "test", "default_user": id(3),
        "default_kit": id(4), "created_at": AT,
    }));
    assert_eq!(project.budget, None);
    let user: User = read(json!({
        "id": id(3), "organization": id(2), "project": id(1), "name": "u", "email": null,
        "external_id": null, "kit": null, "revoked": {"at": AT, "reason": null}, "created_at": AT,
    }));
    assert_eq!((user.budget, user.status()), (None, "revoked"));
    assert!(user.metadata.is_empty());
}

#[test]
fn a_key_had_no_ancestors_and_no_person() {
    let key: ApiKey = read(json!({
        "id": id(1), "organization": id(2), "name": "k", "prefix": "sk_live_", "digest": "d",
        "role": "admin", "project": null, "user": null, "made_by": ["account", id(3)],
        "created_at": AT, "expires_at": null,
    }));
    assert_eq!((key.ancestors.len(), key.root), (0, None));
    let invitation: Invitation = read(json!({
        "id": id(4), "organization": id(2), "email": "a@b.c", "role": "viewer", "digest": "d",
        "invited_by": ["key", id(1)], "created_at": AT, "expires_at": AT,
    }));
    assert_eq!(invitation.digests().collect::<Vec<_>>(), ["d"]);
}

#[test]
fn a_webhook_heard_all_projects_and_was_never_resumed() {
    let webhook: Webhook = read(json!({
        "id": "w", "organization": id(2), "tenant_user_id": null, "url": "https://example.com",
        "event_types": ["*"], "secret": "s", "active": true, "since": 0, "created_at": AT,
    }));
    assert!(webhook.hears(&["any.event"], (Some("p"), Some("u")), Instant(1)));
    assert_eq!((webhook.failures, webhook.previous.len()), (0, 0));
    let delivery: Delivery = read(json!({
        "id": "d", "organization": id(2), "webhook": "w", "event_id": "e", "event": "a.b",
        "body": "{}", "status": "pending", "created_at": AT,
    }));
    assert!(delivery.attempts.is_empty() && delivery.ended_at.is_none());
}

#[test]
fn a_link_was_somebodys_and_unused() {
    let link: Link = read(json!({
        "digest": "d", "purpose": "sign_in", "account": id(1), "email": "a@b.c",
        "mailed": "waiting", "created_at": AT, "expires_at": AT,
    }));
    assert!(!link.used && link.reason.is_none());
}

#[test]
fn a_record_without_what_it_always_had_is_none() {
    for body in ["", "{}", "[]", "{\"id\": 7}", "null"] {
        let now = Instant(1);
        let row = Row {
            version: 1,
            user: None,
            created_at: now,
            updated_at: now,
            body: body.into(),
            index: Vec::new(),
            unique: Vec::new(),
            text: None,
            lease: None,
        };
        let told = Account::read(&row).unwrap_err().to_string();
        assert_eq!(told, "a row of accounts cannot be read", "{body}");
    }
}
