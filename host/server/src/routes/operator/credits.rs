//! Credit that the operator gives by hand.

use charter_kernel::governance::hold::{CREDIT, Pay, accounts_space, entries};
use charter_kernel::id::{OrganizationId, uuid_v7};
use charter_kernel::ledger::{Account, Normal, Phase};
use charter_kernel::money::micro_usd;
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::{Key, Reach, Write};
use charter_store::Txn;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::lifecycle::Billed;
use crate::records::organization::Organization;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::routes::shape::{self, id, object};
use crate::routes::stored;

/// Most cents of one credit.
const CENTS_MAX: u64 = 1_000_000_000_000;

fn kind() -> Value {
    json!({"enum": ["paid", "comped"]})
}

#[derive(Deserialize)]
struct Credit {
    organization_id: String,
    amount_cents: u64,
    kind: Option<String>,
    memo: String,
    reference: Option<String>,
}

/// The body.
pub fn body() -> Value {
    object(&[
        ("organization_id", shape::reference()),
        ("amount_cents", json!({"type": "integer", "minimum": 1, "maximum": CENTS_MAX})),
        ("kind?", kind()),
        ("memo", shape::visible(500)),
        ("reference?", shape::visible(200)),
    ])
}

/// The answer.
pub fn answer() -> Value {
    let cents = json!({"type": "integer"});
    object(&[(
        "credit",
        object(&[
            ("id", id()),
            ("organization_id", id()),
            ("amount_cents", cents),
            ("kind", kind()),
            ("memo", json!({"type": "string"})),
            ("reference", json!({"type": ["string", "null"]})),
        ]),
    )])
}

/// `POST /v1/operator/credits`: a posting from what the deployment has given to the organization's
/// credit. Who bills is told of it, so that an invoice which the reference names counts as paid.
///
/// # Errors
/// 404 for an organization that does not exist.
pub async fn create(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let body: Credit = request.body_as()?;
    let absent = || Refusal::resource_not_found("organization_id");
    let organization = OrganizationId::parse(&body.organization_id).ok_or_else(absent)?;
    stored::get::<Organization>(txn, &Organization::address(&organization))
        .await?
        .ok_or_else(absent)?;
    let kind = body.kind.unwrap_or_else(|| "paid".into());
    let reach = Reach::organization(organization.as_str());
    let account = |name: &str| Key::new(&reach, &accounts_space(), name);
    // Each kind of money has its own source, so that the books say how much of each was given.
    let (from, to) = (account(&format!("funding.{kind}")), account(CREDIT));
    txn.write(Account::new(Normal::Debit, true).opened(&from));
    txn.write(Account::credit().opened(&to));
    let id = uuid_v7(request.now, stored::random()?);
    let amount = micro_usd(body.amount_cents);
    txn.write(Write::Transfer { from: from.clone(), to: to.clone(), amount, phase: Phase::Post });
    for entry in entries(&Pay { from, to, memo: body.memo.clone() }, amount, &id, &kind) {
        txn.write(entry);
    }
    let payload = json!({"kind": kind, "amount_cents": body.amount_cents, "reference": body.reference, "memo": body.memo, "transfer": id});
    let (now, told) = (request.now, &request.id);
    Billed { organization: &organization, kind: "credit", payload, now, request: told }
        .tell(&app.governance, txn)
        .await?;
    let credit = json!({
        "id": id, "organization_id": organization, "amount_cents": body.amount_cents, "kind": kind, "memo": body.memo,
        "reference": body.reference,
    });
    let note = json!({"after": credit});
    Ok(Reply::created(&json!({"credit": credit}))
        .about("organization", organization.to_string())
        .noting(note))
}
