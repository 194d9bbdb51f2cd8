//! Leave to take a regulated action, and caps of the primitive's own.
//!
//! A proposal is refused, or becomes a [`Permit`] behind which the money is held already. The end
//! of the permit is part of the request's own commit: captured, cancelled or kept; dropped, its
//! hold is voided. If an effect leaves the host, call [`Permit::dispatched`] first.

use serde_json::Value;

use crate::bindings::charter::primitive::governance::Proposal as Raw;
use crate::failure::Result;
use crate::host::governance as host;
use crate::time::Instant;

/// A regulated action that the primitive wants to take.
#[derive(Clone, Debug)]
#[must_use]
pub struct Proposal(Raw);

impl Proposal {
    /// One of the actions that the manifest declares, done to `entity`: a card, a recipient, a
    /// record.
    pub fn new(action: &str, entity: &str) -> Self {
        let component = action.split('.').next().unwrap_or_default();
        Self(Raw {
            action: action.into(),
            amount: None,
            entity: entity.into(),
            scopes: Vec::new(),
            component: component.into(),
            title: String::new(),
            message: String::new(),
            context: "{}".into(),
            pay: None,
        })
    }
    /// How much money moves, in micro-US-dollars.
    pub fn amount(mut self, micro_usd: i64) -> Self {
        self.0.amount = Some(micro_usd);
        self
    }
    /// A scope of the primitive's own whose cap it counts against ([`set_cap`]); outermost first.
    /// Name it also while it has no cap: it is counted all the same, and a cap that comes later
    /// begins with that.
    pub fn within(mut self, scope: &str, id: &str) -> Self {
        self.0.scopes.push((scope.into(), id.into()));
        self
    }
    /// Names the purpose of the money, in spend reports; the primitive's name by default.
    pub fn component(mut self, component: &str) -> Self {
        self.0.component = component.into();
        self
    }
    /// Words the proposal for the person who has to decide: a line, and a few sentences.
    pub fn explain(mut self, title: impl Into<String>, message: impl Into<String>) -> Self {
        (self.0.title, self.0.message) = (title.into(), message.into());
        self
    }
    /// Adds what that person should see besides.
    pub fn context(mut self, context: &Value) -> Self {
        self.0.context = context.to_string();
        self
    }
    /// The ledger accounts that the capture posts between. `credit` is the organization's own.
    pub fn pays(mut self, from: &str, to: &str) -> Self {
        self.0.pay = Some((from.into(), to.into()));
        self
    }
    /// Asks for leave. The hold behind the permit is taken already.
    pub fn authorize(self) -> Result<Permit> {
        Ok(Permit(host::authorize(&self.0)?))
    }
    /// Counts and posts what a bound provider has signed as having happened, where leave for it was
    /// refused: whatever rules and caps say, and the narrowest scope of money admits nothing more
    /// until a person has looked. Only while such a word is heard.
    pub fn report(self) -> Result<()> {
        Ok(host::report(&self.0)?)
    }
}

/// Leave to take one regulated action.
#[derive(Debug)]
#[must_use = "a permit that is dropped unsettled is voided"]
pub struct Permit(host::Permit);

impl Permit {
    /// The id that [`reopen`] takes.
    pub fn id(&self) -> String {
        self.0.id()
    }
    /// The key to hand to a provider: the same on every retry.
    pub fn idempotency_key(&self) -> String {
        self.0.idempotency_key()
    }
    /// An effect is about to leave the host. Committed at once: from here on a crash means doubt.
    pub fn dispatched(&self) -> Result<()> {
        Ok(self.0.dispatched()?)
    }
    /// It happened, and this is what was spent.
    pub fn capture(self, actual_micro_usd: i64) -> Result<()> {
        Ok(self.0.capture(actual_micro_usd)?)
    }
    /// Part of it happened, and this is what was spent on it: the rest stays set aside, for a later
    /// request that reopens it. At most 31 days. A part that leaves nothing is the whole.
    pub fn capture_part(self, actual_micro_usd: i64, until: Instant) -> Result<()> {
        Ok(self.0.capture_part(actual_micro_usd, until.as_ms())?)
    }
    /// It will not happen.
    pub fn cancel(self) -> Result<()> {
        Ok(self.0.cancel()?)
    }
    /// The hold outlives this request: a later one of this primitive and user reopens it by its id.
    /// At most 31 days.
    pub fn keep(self, until: Instant) -> Result<()> {
        Ok(self.0.keep(until.as_ms())?)
    }
}

/// A hold that an earlier request kept, or left in doubt, for this request alone: one of this
/// primitive and of the caller's user; of any user of the organization where it is a provider's
/// signed word that is heard for the organization as a whole. While such a word is heard one that is
/// over is reopened too: what is captured of it then is all that it came to.
pub fn reopen(permit: &str) -> Result<Permit> {
    Ok(Permit(host::reopen(permit)?))
}

/// Takes one of a rate: at most `amount` within any `per_seconds`, shared by the caller's `user`,
/// `project` or `organization`. A request that is refused gives it back.
pub fn take(rate: &str, reach: &str, amount: u32, per_seconds: u32) -> Result<()> {
    Ok(host::take(rate, reach, amount, per_seconds)?)
}

/// Caps a scope of the primitive's own, over `total`, `day`, `week`, `month` or `year` in a time
/// zone, empty for the organization's; `None` lifts the cap. A cap that is set or changed begins
/// with what proposals that named the scope have spent in its window and still hold.
pub fn set_cap(
    scope: &str,
    id: &str,
    cap_micro_usd: Option<i64>,
    period: &str,
    time_zone: &str,
) -> Result<()> {
    Ok(host::set_cap(scope, id, cap_micro_usd, period, time_zone)?)
}
