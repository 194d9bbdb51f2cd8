//! Credit that the operator gives by hand.

use charter_governance::lifecycle::Billed;
use charter_kernel::authority::Class;
use charter_kernel::governance::hold::{CREDIT, Pay, accounts_space, entries};
use charter_kernel::id::{OrganizationId, uuid_v7};
use charter_kernel::ledger::{Account, Normal, Phase};
use charter_kernel::money::micro_usd;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::unit::{Key, Reach, Write};
use charter_store::Txn;
use charter_tenancy::records::organization::Organization;
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::routes::shape::{Id, Line, Optional, Reference};
use crate::serve::{Body, Created};

/// Most cents of one credit.
const CENTS_MAX: u64 = 1_000_000_000_000;

/// The row of credit.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::post(
            Class::Operator,
            "operator.credits.create",
            "/credits",
            handler!(create_credit),
        )
        .operator()
        .summary("Give an organization credit")
        .refuses(&[Code::ResourceNotFound]),
    ]
}

/// The body of a credit.
#[derive(Deserialize, JsonSchema)]
pub struct NewCredit {
    /// The organization that gets it.
    organization_id: Reference,
    /// The amount, in cents.
    #[schemars(range(min = 1, max = CENTS_MAX))]
    amount_cents: u64,
    /// Whether it was paid for; `paid` where absent.
    kind: Optional<Kind>,
    /// A line for the statement.
    memo: Line<500>,
    /// The invoice that it pays.
    reference: Optional<Line<200>>,
}

/// Whether credit was paid for.
#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// It was.
    #[default]
    Paid,
    /// It is a gift.
    Comped,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Paid => "paid",
            Self::Comped => "comped",
        }
    }
}

/// Credit that was given.
#[derive(Serialize, JsonSchema)]
struct CreditItem {
    /// The id of the transfer.
    id: Id,
    /// The organization that has it.
    organization_id: OrganizationId,
    /// The amount, in cents.
    amount_cents: u64,
    /// Whether it was paid for.
    kind: Kind,
    /// A line for the statement.
    memo: String,
    /// The invoice that it pays.
    reference: Option<String>,
}

/// Credit that was given.
#[derive(Serialize, JsonSchema)]
pub struct CreditAnswer {
    credit: CreditItem,
}

/// `POST /v1/operator/credits`: a posting from what the deployment has given to the organization's
/// credit. The biller is told of it, so that an invoice which the reference names counts as paid.
///
/// # Errors
/// 404 for an organization that does not exist; 400 where the books could not count the amount.
pub async fn create_credit(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<NewCredit>,
) -> Result<Created<CreditAnswer>, Refusal> {
    let absent = || Refusal::resource_not_found("organization_id");
    let organization = OrganizationId::parse(&body.organization_id).ok_or_else(absent)?;
    stored::get::<Organization>(txn, &Organization::address(&organization))
        .await?
        .ok_or_else(absent)?;
    let kind = body.kind.0.unwrap_or_default();
    let (memo, reference) = (body.memo.0, body.reference.0.map(|reference| reference.0));
    let reach = Reach::organization(organization.as_str());
    let account = |name: &str| Key::new(&reach, &accounts_space(), name);
    // Each kind of money has its own source, so that the books say how much of each was given.
    let (from, to) = (account(&format!("funding.{}", kind.as_str())), account(CREDIT));
    txn.write(Account::new(Normal::Debit, true).open(&from));
    txn.write(Account::credit().open(&to));
    let id = uuid_v7(request.now, stored::random()?);
    let amount = micro_usd(body.amount_cents);
    for key in [&from, &to] {
        check_sum(txn, key, amount).await?;
    }
    txn.write(Write::Transfer { from: from.clone(), to: to.clone(), amount, phase: Phase::Post });
    for entry in entries(&Pay { from, to, memo: memo.clone() }, amount, &id, kind.as_str()) {
        txn.write(entry);
    }
    let payload = json!({"kind": kind, "amount_cents": body.amount_cents, "reference": reference, "memo": memo, "transfer": id});
    let (now, told) = (request.now, &request.id);
    Billed { organization: &organization, kind: "credit", payload, now, request: told }
        .tell(&app.governance, txn)
        .await?;
    let credit = CreditItem {
        id: Id(id),
        organization_id: organization.clone(),
        amount_cents: body.amount_cents,
        kind,
        memo,
        reference,
    };
    let note = json!({"after": credit});
    Ok(Created::of(&CreditAnswer { credit })
        .about("organization", organization.to_string())
        .noting(note))
}

/// Refuses an amount that the sums of an account could not count.
async fn check_sum(txn: &Txn, key: &Key, amount: i64) -> Result<(), Refusal> {
    let Some(row) = txn.get_relaxed(key).await.map_err(stored::reading)? else { return Ok(()) };
    let account: Account = serde_json::from_str(&row.body).map_err(|_| Refusal::internal())?;
    match account.counts(amount) {
        true => Ok(()),
        false => Err(Refusal::invalid("amount_cents", "is more than the account can still count")),
    }
}
