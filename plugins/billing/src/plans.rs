//! The price list: plans, packs of credit, and the credit of a trial. Every number stands here, as
//! the default of a setting.

use charter_sdk::manifest::Setting;
use charter_sdk::prelude::*;
use charter_sdk::settings;

/// A plan. The price paid for it is credit; the amount it includes beyond its price is given on
/// top.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Plan {
    #[schemars(length(min = 1, max = 100))]
    pub(crate) id: String,
    #[schemars(length(min = 1, max = 200))]
    pub(crate) name: String,
    #[schemars(range(min = 1, max = 100_000_000))]
    pub(crate) price_cents: u64,
    pub(crate) period: Period,
    #[schemars(range(max = 100_000_000))]
    pub(crate) included_credit_cents: u64,
}

/// How often a plan is paid for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Period {
    Month,
}

/// Credit that is bought at once.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Pack {
    #[schemars(length(min = 1, max = 100))]
    pub(crate) id: String,
    #[schemars(range(min = 1, max = 100_000_000))]
    pub(crate) price_cents: u64,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Plans {
    plans: Vec<Plan>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Packs {
    packs: Vec<Pack>,
}

impl Plan {
    /// The credit given beyond the price.
    pub(crate) fn bonus_cents(&self) -> u64 {
        self.included_credit_cents.saturating_sub(self.price_cents)
    }
}

fn first_plans() -> Vec<Plan> {
    let plan = |id: &str, name: &str, price_cents, included_credit_cents| {
        let (id, name, period) = (id.into(), name.into(), Period::Month);
        Plan { id, name, price_cents, period, included_credit_cents }
    };
    vec![plan("starter", "Starter", 2_000, 2_000), plan("pro", "Pro", 10_000, 11_000)]
}

fn first_packs() -> Vec<Pack> {
    [("pack_10", 1_000), ("pack_50", 5_000), ("pack_200", 20_000)]
        .map(|(id, price_cents)| Pack { id: id.into(), price_cents })
        .into()
}

/// Plans, and packs, that can be offered.
const OFFERS_MAX: u32 = 50;
/// Days of a trial; none where 0.
const TRIAL_DAYS: u32 = 14;
/// Cents that a trial gives.
const SIGNUP_CREDIT_CENTS: u64 = 500;

/// The same, of a list that has an end.
fn bound_list(mut setting: Setting) -> Setting {
    setting.schema["maxItems"] = OFFERS_MAX.into();
    setting
}

pub(crate) fn plans_setting() -> Setting {
    bound_list(Setting::by_operator(
        "plans",
        &first_plans(),
        "The plans; of two with one id the first counts.",
    ))
}

pub(crate) fn packs_setting() -> Setting {
    bound_list(Setting::by_operator(
        "packs",
        &first_packs(),
        "The packs of credit; of two with one id the first counts.",
    ))
}

pub(crate) fn trial_setting() -> Setting {
    let schema = json!({ "type": "integer", "minimum": 0, "maximum": 365 });
    let description = "Days of a trial; 0: none.";
    Setting { key: "trial_days", schema, default: TRIAL_DAYS.into(), by: "operator", description }
}

pub(crate) fn signup_setting() -> Setting {
    let schema = json!({ "type": "integer", "minimum": 0, "maximum": 1_000_000 });
    let description = "Cents of credit that a trial begins with.";
    Setting {
        key: "signup_credit_cents",
        schema,
        default: SIGNUP_CREDIT_CENTS.into(),
        by: "operator",
        description,
    }
}

fn offers() -> Result<Vec<Plan>> {
    Ok(settings::get("plans")?.unwrap_or_else(first_plans))
}

fn pack_offers() -> Result<Vec<Pack>> {
    Ok(settings::get("packs")?.unwrap_or_else(first_packs))
}

/// Days of a trial.
pub(crate) fn trial_days() -> Result<u32> {
    Ok(settings::get("trial_days")?.unwrap_or(TRIAL_DAYS))
}

/// The credit that a trial gives.
pub(crate) fn signup_credit_cents() -> Result<u64> {
    Ok(settings::get("signup_credit_cents")?.unwrap_or(SIGNUP_CREDIT_CENTS))
}

/// The plan that a caller names.
pub(crate) fn plan(id: &str) -> Result<Plan> {
    let found = offers()?.into_iter().find(|plan| plan.id == id);
    found.ok_or_else(|| {
        Failure::invalid("plan", "there is no such plan").hint("GET /v1/billing/plans lists them.")
    })
}

/// The plan that was subscribed to, if it is still offered.
pub(crate) fn find(id: &str) -> Result<Option<Plan>> {
    Ok(offers()?.into_iter().find(|plan| plan.id == id))
}

/// The pack that a caller names.
pub(crate) fn pack(id: &str) -> Result<Pack> {
    let found = pack_offers()?.into_iter().find(|pack| pack.id == id);
    found.ok_or_else(|| {
        Failure::invalid("pack", "there is no such pack").hint("GET /v1/billing/packs lists them.")
    })
}

pub(crate) fn list() -> Result<Plans> {
    Ok(Plans { plans: offers()? })
}

pub(crate) fn packs() -> Result<Packs> {
    Ok(Packs { packs: pack_offers()? })
}
