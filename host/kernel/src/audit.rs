//! A row of the audit log: who did what to which thing on whose behalf, by which rules it was
//! decided, and what came of it.
//!
//! A row has two halves. The public one is a leaf of the organization's Merkle log and stays for
//! good. The private one, with a salt in it, is in the leaf by its SHA-256 only, so that it can go
//! when the person it is about is erased, and every proof still holds.

use serde::Serialize;
use serde_json::Value;

use crate::hex::{hex, sha256};
use crate::id::FactId;
use crate::json_text;
use crate::time::Instant;
use crate::unit::{Fact, FactKind};

/// Bytes of randomness of a row: ten for its id, sixteen for its salt.
pub const RANDOM_BYTES: usize = 26;

/// The content of a row.
#[derive(Clone, Debug, Default)]
pub struct AuditRow<'a> {
    /// The organization whose log it is.
    pub organization: &'a str,
    /// When.
    pub at: Instant,
    /// Kind and id of who did it.
    pub actor: (&'a str, &'a str),
    /// The account behind the credential: whose session it is, or whose key it began with.
    pub account: Option<&'a str>,
    /// The tenant user.
    pub on_behalf_of: Option<&'a str>,
    /// The project.
    pub project: Option<&'a str>,
    /// The primitive that wrote the row, or asked for leave; absent for the host's own.
    pub primitive: Option<&'a str>,
    /// The action.
    pub action: &'a str,
    /// The kind of thing it was done to.
    pub entity_type: Option<&'a str>,
    /// The entity's id. Private: it can be an address.
    pub entity_id: Option<&'a str>,
    /// `allowed`, `refused`, `denied` or `pending_approval`.
    pub decision: &'a str,
    /// The refusal's code.
    pub code: Option<&'a str>,
    /// The refusal's reason.
    pub reason: Option<&'a str>,
    /// The request.
    pub request: &'a str,
    /// The answer's HTTP status.
    pub status: Option<u16>,
    /// How much money it is about, in micro-US-dollars.
    pub amount: Option<i64>,
    /// The rules that decided.
    pub rules: &'a [String],
    /// SHA-256 of what each changed thing was and is. Private.
    pub changes: &'a [Change],
    /// Everything else. Private.
    pub details: Option<&'a Value>,
}

/// The leaf. Its members stand in the order of their names, as do those of the other half: a proof
/// is of these very bytes.
#[derive(Serialize)]
struct Public<'a> {
    action: &'a str,
    actor: Actor<'a>,
    amount_micro_usd: Option<i64>,
    at: Instant,
    code: Option<&'a str>,
    decision: &'a str,
    entity_type: Option<&'a str>,
    id: &'a str,
    on_behalf_of: Option<&'a str>,
    policy_ids: &'a [String],
    primitive: Option<&'a str>,
    private_sha256: String,
    project_id: Option<&'a str>,
    reason: Option<&'a str>,
    request_id: &'a str,
    status: Option<u16>,
}

#[derive(Serialize)]
struct Actor<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    account_id: Option<&'a str>,
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
}

#[derive(Serialize)]
struct Private<'a> {
    changes: &'a [Change],
    details: Option<&'a Value>,
    entity_id: Option<&'a str>,
    salt: String,
}

/// The change of one thing: a keyed digest of its content before and after, in hexadecimal; absent
/// where it was or is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// After.
    pub after: Option<String>,
    /// Before.
    pub before: Option<String>,
    /// Its collection and id.
    pub what: String,
}

impl AuditRow<'_> {
    /// The row as it is committed.
    pub fn fact(&self, random: [u8; RANDOM_BYTES]) -> Fact {
        let (id, salt) = random.split_at(10);
        let mut own = [0; 10];
        own.copy_from_slice(id);
        let id = FactId::new(self.at, own).into_string();
        let (changes, details, entity_id) = (self.changes, self.details, self.entity_id);
        let private = json_text(&Private { changes, details, entity_id, salt: hex(salt) });
        let body = json_text(&Public {
            action: self.action,
            actor: Actor { account_id: self.account, id: self.actor.1, kind: self.actor.0 },
            amount_micro_usd: self.amount,
            at: self.at,
            code: self.code,
            decision: self.decision,
            entity_type: self.entity_type,
            id: &id,
            on_behalf_of: self.on_behalf_of,
            policy_ids: self.rules,
            primitive: self.primitive,
            private_sha256: sha256(&private),
            project_id: self.project,
            reason: self.reason,
            request_id: self.request,
            status: self.status,
        });
        Fact {
            id,
            kind: FactKind::Audit,
            organization: self.organization.to_owned(),
            at: self.at,
            name: self.action.to_owned(),
            body,
            private: Some(private),
            user: self.on_behalf_of.map(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_stand_in_the_order_of_their_names() {
        let details = json!({ "to": "a@example.com", "at": { "z": 1, "a": [1, 2] } });
        let changes = [Change { what: "cards 1".into(), before: Some("00".into()), after: None }];
        let rules = ["r".to_owned()];
        let row = AuditRow {
            organization: "o",
            actor: ("key", "k"),
            action: "shop.send",
            entity_id: Some("e"),
            rules: &rules,
            changes: &changes,
            details: Some(&details),
            ..AuditRow::default()
        };
        let fact = row.fact([1; RANDOM_BYTES]);
        for text in [fact.body, fact.private.unwrap()] {
            // A map of `serde_json` is sorted.
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_private_is_in_the_leaf_by_its_salted_hash_only() {
        let details = json!({ "to": "a@example.com" });
        let row = AuditRow {
            organization: "o",
            action: "shop.send",
            entity_id: Some("a@example.com"),
            details: Some(&details),
            ..AuditRow::default()
        };
        let (one, two) = (row.fact([1; RANDOM_BYTES]), row.fact([2; RANDOM_BYTES]));
        let private = one.private.unwrap();
        assert!(private.contains("a@example.com") && !one.body.contains("example"), "{}", one.body);
        let hash =
            |body: &str| serde_json::from_str::<Value>(body).unwrap()["private_sha256"].clone();
        assert_eq!(hash(&one.body), sha256(&private));
        assert_ne!(
            hash(&one.body),
            hash(&two.body),
            "equal details tell nobody that they are equal"
        );
    }
}
