//! The decision alone: a policy of fifty rules, and five caps that must all admit the amount, in
//! memory.

use std::time::Instant as Moment;

use anyhow::{Context, Result};
use charter_kernel::apply::{State, apply};
use charter_kernel::calendar::Calendar;
use charter_kernel::governance::meter::{Admission, Meter};
use charter_kernel::governance::policy::{Amount, Ask, Policy};
use charter_kernel::kit::Period;
use charter_kernel::time::{Instant, Zone};
use charter_kernel::unit::{Draft, Key, Reach, Space, Unit, Write};
use serde_json::{Value, json};

use crate::table::Row;
use crate::tools::Tools;

const ROUNDS: usize = 20_000;
const TARGET_US: f64 = 20.0;

/// The row of this part.
pub fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let rounds = tools.pace.count(ROUNDS);
    let rules: Vec<Value> = (0..50)
        .map(|n| {
            let when = json!({"amount_over_micro_usd": 1_000_000 * n, "users": [format!("u{n}")], "hours": {"from": "08:00", "to": "18:00"}});
            json!({"id": format!("r{n}"), "effect": "require_approval", "actions": ["shop.*", "post.send"], "when": when})
        })
        .collect();
    let policy: Policy = serde_json::from_value(json!({ "rules": rules }))?;
    let zone = Zone::parse("Europe/Zurich").context("the time zone")?;
    let calendar = Calendar::new(Period::Month, "Europe/Zurich")
        .map_err(|fault| anyhow::anyhow!("{fault:?}"))?;
    let at = Instant::parse("2026-11-21T12:00:00Z").context("a moment")?;
    let slot = calendar.window(at).slot;
    let reaches = ["o", "p", "k", "u", "c"].map(Reach::user);
    let meters: Vec<Key> =
        reaches.iter().map(|reach| Key::new(reach, &Space::host("meters"), "meter")).collect();
    let mut state = State::new(true);
    for (key, reach) in meters.iter().zip(&reaches) {
        let body = serde_json::to_string(&Meter::new(slot.clone(), 0))?;
        state.know_row(key.clone(), None);
        state.know_space(reach.clone(), Space::host("meters"), Some(0));
        let unit = Unit {
            writes: vec![Write::Insert {
                key: key.clone(),
                draft: Draft { body, ..Draft::default() },
            }],
            ..Unit::default()
        };
        apply(&mut state, &unit, at).map_err(|refused| anyhow::anyhow!("{refused:?}"))?;
    }
    let began = Moment::now();
    for n in 0..rounds {
        let ask = Ask {
            action: "shop.buy",
            amount: Amount::Of(i64::try_from(n)?),
            entity: "card-1",
            user: Some("u"),
            kit: Some("k"),
            project: Some("p"),
            at,
            zone: &zone,
        };
        std::hint::black_box(policy.decide(&ask, &[]));
        let slot = calendar.window(at).slot;
        let admission = Admission::Within(i64::MAX);
        let reserve = |meter: &Key| Write::Reserve {
            meter: meter.clone(),
            slot: slot.clone(),
            amount: 1,
            admission,
        };
        let unit = Unit { writes: meters.iter().map(reserve).collect(), ..Unit::default() };
        apply(&mut state, &unit, at).map_err(|refused| anyhow::anyhow!("{refused:?}"))?;
    }
    let each = began.elapsed().as_secs_f64() * 1e6 / rounds as f64;
    Ok(vec![Row {
        name: "a decision: fifty rules and five caps, in memory",
        figure: format!("{each:.1} µs"),
        target: format!("≤ {TARGET_US:.0} µs"),
        reached: each <= TARGET_US,
        detail: format!("{rounds} in turn"),
    }])
}
