//! The records, leave and requests that the tests are written in. Ids are numbers: 1 is the
//! organization, 2 its project, 3 the user that acts, 4 its kit, 5 another user.

use charter_engine::{Leave, Proposal};
use charter_governance::approvals::{Origin, Request};
use charter_governance::caps::Case;
use charter_kernel::governance::hold::{CREDIT, accounts_space};
use charter_kernel::id::{AccountId, KeyId, KitId, OrganizationId, ProjectId, UserId, uuid_v7};
use charter_kernel::ledger::{Account, Normal};
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Principal, Proof, Scope, Subject};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Phase, Reach, Unit, Write};
use charter_tenancy::records::grant::Given;
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::records::kit::StoredKit;
use charter_tenancy::records::member::Member;
use charter_tenancy::records::organization::Organization;
use charter_tenancy::records::project::Project;
use charter_tenancy::records::user::User;
use serde_json::{Value, json};

use crate::bed::{Bed, START};

/// Micro-US-dollars of a cent.
pub const CENT: i64 = 10_000;
pub const DAY_MS: i64 = 86_400_000;

pub fn id(n: u8) -> String {
    uuid_v7(Instant(1), [n; 10])
}

pub fn organization() -> OrganizationId {
    OrganizationId::parse(&id(1)).unwrap()
}

pub fn project() -> ProjectId {
    ProjectId::parse(&id(2)).unwrap()
}

pub fn user() -> UserId {
    UserId::parse(&id(3)).unwrap()
}

pub fn kit() -> KitId {
    KitId::parse(&id(4)).unwrap()
}

/// The account of the nth person.
pub fn account(n: u8) -> AccountId {
    AccountId::parse(&id(100 + n)).unwrap()
}

/// The person behind the credential that acts.
pub fn asker() -> String {
    account(9).into_string()
}

pub fn organization_record() -> Organization {
    let row =
        json!({ "id": id(1), "name": "Initech", "default_project": id(2), "created_at": START });
    serde_json::from_value(row).unwrap()
}

pub fn project_record() -> Project {
    serde_json::from_value(json!({
        "id": id(2), "organization": id(1), "name": "Main", "mode": "live",
        "default_user": id(3), "default_kit": id(4), "created_at": START,
    }))
    .unwrap()
}

pub fn kit_record() -> StoredKit {
    StoredKit::first(kit(), organization(), project(), START)
}

pub fn user_record(n: u8) -> User {
    serde_json::from_value(json!({
        "id": id(n), "organization": id(1), "project": id(2), "name": "Scout", "email": null,
        "external_id": format!("scout-{n}"), "kit": null, "revoked": null, "created_at": START,
    }))
    .unwrap()
}

pub fn member(n: u8, role: Role) -> Member {
    serde_json::from_value(json!({
        "organization": id(1), "account": account(n).as_str(), "role": role,
        "email": format!("{n}@example.com"), "created_at": START,
    }))
    .unwrap()
}

/// An API key of the person who asks.
pub fn api_key(role: Role) -> ApiKey {
    ApiKey {
        id: KeyId::parse(&id(60)).unwrap(),
        organization: organization(),
        name: "a key".into(),
        prefix: "sk_live_".into(),
        digest: "0".into(),
        role,
        project: None,
        user: None,
        made_by: ("account".into(), asker()),
        ancestors: Vec::new(),
        root: Some(asker()),
        created_at: START,
        expires_at: None,
    }
}

/// Leave for the user, until an hour after the start.
pub fn given(grant: &Value) -> Given {
    let mut whole = json!({
        "id": "g", "user_id": id(3), "actions": ["shop.*"], "until": START.plus_ms(3_600_000),
        "reason": "a sale",
    });
    whole.as_object_mut().unwrap().extend(grant.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "organization": id(1), "grant": whole, "given_by": ["session", "s"], "created_at": START,
    }))
    .unwrap()
}

/// The principal of the key that acts.
pub fn principal(role: Role) -> Principal {
    let actor = Actor::new(ActorKind::Key, id(60));
    Principal { role: Some(role), root: Some(asker()), ..Principal::of(actor) }
}

/// The proof of a principal in the organization's project.
pub fn proof(principal: Principal) -> Proof {
    Proof::of(principal).organization(organization()).project(project(), false, true)
}

/// A key of this role, which acts for the user.
pub fn scope(role: Role) -> Scope {
    proof(principal(role)).user(user(), Subject::Path).scope()
}

pub fn proposal(amount: Option<i64>) -> Proposal {
    Proposal {
        action: "shop.buy".into(),
        spends: true,
        amount,
        capturable: amount.unwrap_or(0),
        reported: false,
        entity: "card-1".into(),
        scopes: Vec::new(),
        component: "shop".into(),
        title: "A book".into(),
        message: "For the shelf".into(),
        context: json!({ "isbn": "1" }),
        pay: None,
    }
}

/// Leave for so many micro-US-dollars.
pub fn leave(amount: i64) -> Leave {
    leave_for(proposal(Some(amount)))
}

pub fn leave_for(proposal: Proposal) -> Leave {
    Leave {
        scope: scope(Role::Developer),
        primitive: "shop".into(),
        request: id(50),
        ordinal: 0,
        proposal,
        guards: Vec::new(),
        until: START.plus_ms(600_000),
        defers: false,
        waiting: None,
    }
}

/// The same of another user.
pub fn leave_of(n: u8, amount: i64) -> Leave {
    let user = UserId::parse(&id(n)).unwrap();
    let scope = proof(principal(Role::Developer)).user(user, Subject::Path).scope();
    Leave { scope, ..leave(amount) }
}

/// A client's request that can be made again.
pub fn client() -> Origin {
    Origin::Request(Box::new(request()))
}

pub fn request() -> Request {
    let scope = scope(Role::Developer);
    Request {
        operation: "shop.buy".into(),
        parameters: vec![("id".into(), "1".into())],
        body: Some(r#"{"note":"for Ada"}"#.into()),
        headers: Vec::new(),
        organization: id(1),
        project: (id(2), false),
        user: Some(id(3)),
        naming: Some(scope.naming()),
        actor: ("key".into(), id(60)),
        account: scope.principal().root.clone(),
        role: scope.role(),
        principal: Some(scope.principal().clone()),
        base: "https://charter.example".into(),
        tells: None,
        nested: None,
        job: None,
        salt: None,
    }
}

/// A budget of a day.
pub fn budget(cents: i64) -> Value {
    json!({ "budget": { "cap_cents": cents, "period": "day", "hard": true } })
}

/// A budget of a day whose excess waits for a person.
pub fn soft_budget(cents: i64) -> Value {
    json!({ "budget": { "cap_cents": cents, "period": "day", "hard": false } })
}

/// A policy of one rule.
pub fn policy(rule: &Value) -> Value {
    let mut whole = json!({ "id": "r", "effect": "deny", "actions": ["shop.*"] });
    whole.as_object_mut().unwrap().extend(rule.as_object().unwrap().clone());
    json!({ "policy": { "rules": [whole] } })
}

/// A policy that asks so many people.
pub fn asking(people: u8) -> Value {
    policy(&json!({ "effect": "require_approval", "approvals_required": people }))
}

pub fn organization_reach() -> Reach {
    Reach::organization(&id(1))
}

pub fn user_reach() -> Reach {
    Reach::user(&id(3))
}

/// The organization's own account.
pub fn credit() -> Key {
    Key::new(&organization_reach(), &accounts_space(), CREDIT)
}

/// An account of the user's.
pub fn card() -> Key {
    Key::new(&user_reach(), &accounts_space(), "card-1")
}

/// Leave to move so much from the organization's credit to the card.
pub fn payment(amount: i64) -> Leave {
    leave_for(Proposal { pay: Some((credit(), card())), ..proposal(Some(amount)) })
}

/// Gives the organization credit out of the deployment's cash.
pub async fn fund(bed: &Bed, amount: i64) {
    let cash = Key::new(&Reach::deployment(), &accounts_space(), "cash");
    let pay = charter_kernel::governance::hold::Pay {
        from: cash.clone(),
        to: credit(),
        memo: "top-up".into(),
    };
    let mut writes = vec![
        Account::new(Normal::Debit, true).open(&cash),
        Account::credit().open(&credit()),
        Write::Transfer { from: cash, to: credit(), amount, phase: Phase::Post },
    ];
    writes.extend(charter_kernel::governance::hold::entries(&pay, amount, "t", "top-up"));
    bed.commit(Unit { writes, ..Unit::default() }).await.unwrap();
}

/// The user with what is set for it.
pub async fn case(bed: &Bed) -> Case {
    charter_governance::gateway::case(&bed.governance, &scope(Role::Developer)).await.unwrap()
}
