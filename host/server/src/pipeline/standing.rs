//! Whether the organization has paid: how it stands with who bills it, and what it is told where
//! that stops an operation.
//!
//! The host's own routes and the biller are never stopped. A refused caller is told how to pay by
//! the biller's own manifest.

use charter_kernel::governance::hold::{CREDIT, accounts_space};
use charter_kernel::id::OrganizationId;
use charter_kernel::ledger::Account;
use charter_kernel::manifest::{Mount, Pays};
use charter_kernel::money::cents;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::standing::{Reason, Standing};
use charter_kernel::unit::{Guard, Key, Reach};
use charter_registry::served::template_at;
use charter_tenancy::stored::reading;
use serde_json::{Map, Value, json};

use super::identify::unreadable;
use crate::app::App;

/// Refuses an operation of a primitive that the organization's standing stops; answers what a
/// change requires to be so still when it is committed.
///
/// # Errors
/// 402 with what to do about it.
pub async fn ask(
    app: &App,
    organization: &OrganizationId,
    primitive: &str,
    llm_routing: bool,
) -> Result<Option<Guard>, Refusal> {
    if !app.config.billing.enforce || app.config.billing.is(primitive) {
        return Ok(None);
    }
    let standing = app.directory.standing(organization).await.map_err(unreadable)?;
    match standing.map(|(standing, _)| standing.reason).filter(|reason| reason.stops(llm_routing)) {
        None => {
            let (key, version) =
                (Standing::address(organization.as_str()), standing.map(|(_, version)| version));
            Ok(Some(Guard::Version { key, version }))
        }
        Some(reason @ Reason::LlmRoutingRequiresPayment) => {
            Err(payment_required(app, reason, balance(app, organization.as_str()).await?))
        }
        Some(reason) => Err(billing_blocked(app, reason)),
    }
}

fn billing_blocked(app: &App, reason: Reason) -> Refusal {
    let told = "The organization's billing stops this; nothing was done.";
    with_actions(
        app,
        Refusal::new(Code::BillingBlocked, told).extra("block_reason", reason.as_str()),
    )
}

fn payment_required(app: &App, reason: Reason, cents: i64) -> Refusal {
    let refusal = Refusal::new(
        Code::LlmRoutingRequiresPayment,
        "Only credit that was bought pays for model calls.",
    )
    .extra("block_reason", reason.as_str())
    .extra("credit_kind", "trial")
    .extra("balance", cents)
    .extra(
        "balance_note",
        "In cents. The balance is not what was refused: all of it was given, and none bought.",
    );
    with_actions(app, refusal)
}

fn with_actions(app: &App, refusal: Refusal) -> Refusal {
    refusal.hint("Pay as error.actions says.").extra("actions", actions(app))
}

/// How to pay, by what the biller's operations say of themselves: `POST /v1/…` each.
fn actions(app: &App) -> Value {
    let live = app.registry.current();
    let Some(biller) = live.primitive(&app.config.billing.primitive) else { return json!({}) };
    let declared = &biller.active().manifest.operations;
    let found = Pays::ALL.into_iter().filter_map(|pays| {
        let operation = declared.iter().find(|operation| operation.pays == Some(pays))?;
        let path = template_at(Mount::Company, &operation.path);
        Some((pays.as_str().to_owned(), Value::String(format!("{} {path}", operation.method))))
    });
    Value::Object(found.collect::<Map<_, _>>())
}

/// The organization's credit now, in cents.
async fn balance(app: &App, organization: &str) -> Result<i64, Refusal> {
    let key = Key::new(&Reach::organization(organization), &accounts_space(), CREDIT);
    let Some(row) = app.store.get(&key).await.map_err(reading)? else { return Ok(0) };
    let account: Account = serde_json::from_str(&row.body).map_err(|_| Refusal::internal())?;
    Ok(cents(account.balance().available))
}
