//! An organization's policy: which regulated actions are allowed, denied, or decided by a person.
//!
//! Deny beats require-approval beats allow, whatever the order of the rules; a shadow rule is
//! reported and never acts. A grant is time-boxed leave: it stands in for a missing allow and for a
//! person's approval, never against a deny. Knows neither caps nor amounts spent: those are
//! [`super::meter`]'s.

use std::collections::BTreeSet;

use jiff::civil::Weekday;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::names::{Names, Numbers};
use crate::fault::Fault;
use crate::id::{canonical, is_id, read_list, read_set};
use crate::time::{Instant, Zone};

/// Rules of one organization. Closed on the wire: an unknown member is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// In any order; ids are unique.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// The fate of an action that no rule matches.
    #[serde(default)]
    pub default: Otherwise,
}

/// The fate of an action that no rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Otherwise {
    /// It is allowed, within caps.
    #[default]
    Allow,
    /// It is denied.
    Deny,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Named in decisions, approvals and audit rows.
    #[schemars(length(min = 1, max = TEXT_CHARS_MAX))]
    pub id: String,
    /// Its word.
    pub effect: Effect,
    /// The actions that it is about: `shop.buy`, `payments.*`, `*`.
    #[schemars(length(min = 1, max = NAMED_MAX), inner(length(min = 1, max = TEXT_CHARS_MAX)))]
    pub actions: Vec<String>,
    /// The condition on those; all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "When")]
    pub when: Option<When>,
    /// Whether it acts.
    #[serde(default)]
    pub mode: Mode,
    /// How many distinct people must approve; 1 where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8", range(min = 1, max = APPROVALS_MAX))]
    pub approvals_required: Option<u8>,
}

/// The word of a rule.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It may happen.
    Allow,
    /// A person decides.
    RequireApproval,
    /// It may not happen.
    Deny,
}

/// Whether a rule acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It acts.
    #[default]
    Enforce,
    /// It is evaluated and reported.
    Shadow,
}

/// All of what is named must hold. Closed on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// The amount is larger, in micro-US-dollars; an action that spends without naming an amount
    /// counts as larger than any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 0))]
    pub amount_over_micro_usd: Option<i64>,
    /// The tenant user is one of these.
    #[serde(default, deserialize_with = "read_set", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    #[schemars(length(min = 1, max = NAMED_MAX), inner(length(min = 1, max = TEXT_CHARS_MAX)))]
    pub users: Option<BTreeSet<String>>,
    /// The user's kit is one of these.
    #[serde(default, deserialize_with = "read_set", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    #[schemars(length(min = 1, max = NAMED_MAX), inner(length(min = 1, max = TEXT_CHARS_MAX)))]
    pub kits: Option<BTreeSet<String>>,
    /// The project is one of these.
    #[serde(default, deserialize_with = "read_set", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    #[schemars(length(min = 1, max = NAMED_MAX), inner(length(min = 1, max = TEXT_CHARS_MAX)))]
    pub projects: Option<BTreeSet<String>>,
    /// The thing it is done to (a recipient, a merchant, a card) matches one of these, `*` standing
    /// for any text. An id is one in either case.
    #[serde(default, deserialize_with = "read_list", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    #[schemars(length(min = 1, max = NAMED_MAX), inner(length(min = 1, max = TEXT_CHARS_MAX)))]
    pub entities: Option<Vec<String>>,
    /// It happens within these hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Hours")]
    pub hours: Option<Hours>,
}

/// Hours of the week, in the organization's time zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hours {
    /// The first minute, `09:00`.
    #[schemars(regex(pattern = TIME), extend("x-words" = TIME_WORDS))]
    pub from: String,
    /// The first minute after, `17:30`; where it is not later than `from`, the hours go on past
    /// midnight.
    #[schemars(regex(pattern = TIME), extend("x-words" = TIME_WORDS))]
    pub to: String,
    /// `mon` … `sun`, the day on which the hours begin; every day where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Day>", length(min = 1, max = 7))]
    pub days: Option<BTreeSet<Day>>,
}

/// A day of the week.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Day {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
}

impl From<Weekday> for Day {
    fn from(day: Weekday) -> Self {
        [Day::Mon, Day::Tue, Day::Wed, Day::Thu, Day::Fri, Day::Sat, Day::Sun]
            [day.to_monday_zero_offset().unsigned_abs() as usize]
    }
}

/// The action that is asked about.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// `<primitive>.<verb>`.
    pub action: &'a str,
    /// In micro-US-dollars.
    pub amount: Amount,
    /// The thing it is done to.
    pub entity: &'a str,
    /// The tenant user.
    pub user: Option<&'a str>,
    /// The user's kit.
    pub kit: Option<&'a str>,
    /// The project.
    pub project: Option<&'a str>,
    /// When.
    pub at: Instant,
    /// The organization's time zone.
    pub zone: &'a Zone,
}

/// How much an action is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// No money moves.
    None,
    /// This much.
    Of(i64),
    /// Money moves, and nobody said how much.
    Unbounded,
}

/// The outcome for an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may happen, within caps.
    Allow,
    /// A person decides.
    RequireApproval,
    /// It may not happen.
    Deny,
}

/// A verdict and its reasons, as it is stored with the decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The outcome.
    pub verdict: Verdict,
    /// The rules that decided; empty where the default did.
    pub rules: Vec<String>,
    /// The grant that stood in for what was missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// Shadow rules that matched, and what they would have said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shadow: Vec<Shadow>,
    /// How many distinct people must approve; 0 where nobody has to.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub approvals_required: u8,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u8) -> bool {
    *count == 0
}

/// The word that a shadow rule would have had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shadow {
    /// The rule.
    pub rule: String,
    /// Its effect.
    pub effect: Effect,
}

/// Time-boxed leave for one user. How often and how much it may be used is counted by meters of its
/// own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Its id.
    pub id: String,
    /// The user it is for.
    pub user_id: String,
    /// The actions it covers, as in a rule.
    pub actions: Vec<String>,
    /// How often it may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u32>,
    /// How much it may be used for in all, in micro-US-dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_micro_usd: Option<i64>,
    /// The first moment at which it is over.
    pub until: Instant,
    /// Why it was given.
    pub reason: String,
}

/// Most rules of a policy.
pub const RULES_MAX: usize = 200;
/// Most actions, users, kits, projects or entities that one rule names.
pub(super) const NAMED_MAX: usize = 200;
/// Most people whose approval a rule can ask for.
const APPROVALS_MAX: u8 = 10;
/// Characters of an id, a glob or an entity.
const TEXT_CHARS_MAX: usize = 200;
/// A time of day, and the same in words.
const TIME: &str = "^[0-9]{2}:[0-9]{2}$";
const TIME_WORDS: &str = "must be a time of day such as `09:30`";
/// The rule of [`are_ids`] in words, behind how many there are.
pub(super) const IDS_WORDS: &str = "ids, each a UUID, or be left out";

/// Whether a rule or a limit may name these users, kits or projects.
pub(super) fn are_ids(named: &BTreeSet<String>) -> bool {
    (1..=NAMED_MAX).contains(&named.len()) && named.iter().all(|id| is_id(id))
}

impl Policy {
    /// Everything that is wrong with it, by dotted path.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.rules.len() > RULES_MAX {
            faults.push(Fault::new("rules", format!("must have at most {RULES_MAX} rules")));
        }
        let mut seen = BTreeSet::new();
        for (at, rule) in self.rules.iter().enumerate() {
            let is_repeated = !seen.insert(&rule.id);
            rule.check(is_repeated, &mut |member, message| {
                faults.push(Fault::new(format!("rules.{at}.{member}"), message))
            });
        }
        faults
    }

    /// Decides an action. Grants of other users, and those that are over, may be among
    /// `grants`.
    pub fn decide(&self, ask: &Ask<'_>, grants: &[Grant]) -> Decision {
        let matching: Vec<&Rule> = self.rules.iter().filter(|rule| rule.matches(ask)).collect();
        let (enforced, shadow): (Vec<&Rule>, Vec<&Rule>) =
            matching.into_iter().partition(|rule| rule.mode == Mode::Enforce);
        let strongest = enforced.iter().map(|rule| rule.effect).max();
        let deciding = || enforced.iter().filter(|rule| Some(rule.effect) == strongest);
        let mut decision = Decision {
            verdict: match (strongest, self.default) {
                (Some(Effect::Deny), _) | (None, Otherwise::Deny) => Verdict::Deny,
                (Some(Effect::RequireApproval), _) => Verdict::RequireApproval,
                (Some(Effect::Allow), _) | (None, Otherwise::Allow) => Verdict::Allow,
            },
            rules: deciding().map(|rule| rule.id.clone()).collect(),
            grant: None,
            shadow: shadow
                .iter()
                .map(|rule| Shadow { rule: rule.id.clone(), effect: rule.effect })
                .collect(),
            approvals_required: 0,
        };
        let lifts = decision.verdict == Verdict::RequireApproval
            || (decision.verdict == Verdict::Deny && strongest.is_none());
        if lifts && let Some(grant) = grants.iter().find(|grant| grant.covers(ask)) {
            decision.verdict = Verdict::Allow;
            decision.grant = Some(grant.id.clone());
        } else if decision.verdict == Verdict::RequireApproval {
            decision.approvals_required =
                deciding().filter_map(|rule| rule.approvals_required).max().unwrap_or(1);
        }
        decision
    }

    /// Whether `next` lets anything happen that this one does not: a denial or an approval that is
    /// gone or weaker, leave that is new where the default is to deny. It may say so where nothing
    /// is loosened in effect, never the other way round.
    pub fn is_loosened_by<'a>(&'a self, next: &'a Policy) -> bool {
        if self.default == Otherwise::Deny && next.default == Otherwise::Allow {
            return true;
        }
        let restricts = |rule: &&Rule| rule.mode == Mode::Enforce && rule.effect != Effect::Allow;
        let mut names = Names::default();
        let mut named = |rules: &'a [Rule]| -> Vec<Named<'a>> {
            rules.iter().filter(restricts).map(|rule| Named::of(rule, &mut names)).collect()
        };
        let (before, after) = (named(&self.rules), named(&next.rules));
        if !before.iter().all(|old| after.iter().any(|new| new.restricts_at_least(old))) {
            return true;
        }
        // Under a default to deny, a rule that says anything else gives leave.
        let gives_leave = |rule: &&Rule| rule.mode == Mode::Enforce && rule.effect != Effect::Deny;
        let denies = next.default == Otherwise::Deny && self.default == Otherwise::Deny;
        denies && next.rules.iter().filter(gives_leave).any(|new| !self.rules.contains(new))
    }
}

impl Rule {
    /// Names each fault by its member and in words.
    fn check(&self, is_repeated: bool, fault: &mut impl FnMut(&str, String)) {
        if self.id.is_empty() || self.id.chars().count() > TEXT_CHARS_MAX {
            fault("id", format!("must have 1 to {TEXT_CHARS_MAX} characters"));
        } else if is_repeated {
            fault("id", "is the id of an earlier rule too".into());
        }
        if self.actions.is_empty()
            || self.actions.len() > NAMED_MAX
            || !self.actions.iter().all(|glob| is_glob(glob))
        {
            fault(
                "actions",
                format!(
                    "must name 1 to {NAMED_MAX} actions: `shop.buy`, `payments.*` or `*`, in lower case"
                ),
            );
        }
        match (self.effect, self.approvals_required) {
            (_, None) | (Effect::RequireApproval, Some(1..=APPROVALS_MAX)) => {}
            (Effect::RequireApproval, Some(_)) => {
                fault("approvals_required", format!("must be 1 to {APPROVALS_MAX}"));
            }
            _ => fault(
                "approvals_required",
                "is only for rules whose effect is `require_approval`".into(),
            ),
        }
        self.when.iter().for_each(|when| when.check(fault));
    }

    fn matches(&self, ask: &Ask<'_>) -> bool {
        self.actions.iter().any(|glob| action_matches(glob, ask.action))
            && self.when.as_ref().is_none_or(|when| when.holds(ask))
    }
}

/// A rule that acts, with its lists as numbers: absent where it is about all.
struct Named<'a> {
    rule: &'a Rule,
    actions: Numbers,
    /// Users, kits, projects and entities.
    among: [Option<Numbers>; 4],
}

impl<'a> Named<'a> {
    fn of(rule: &'a Rule, names: &mut Names<'a>) -> Self {
        let when = rule.when.as_ref();
        let mut set = |of: fn(&When) -> &Option<BTreeSet<String>>| {
            when.and_then(|when| of(when).as_ref()).map(|list| names.number(list))
        };
        let [users, kits, projects] =
            [set(|when| &when.users), set(|when| &when.kits), set(|when| &when.projects)];
        let entities = when.and_then(|when| when.entities.as_ref());
        let entities = entities.map(|list| names.number(list));
        let actions = names.number(&rule.actions);
        Self { rule, actions, among: [users, kits, projects, entities] }
    }

    /// Whether it forbids all that `other` forbids, and asks as many people; as far as that can be
    /// seen without asking.
    fn restricts_at_least(&self, other: &Self) -> bool {
        let people = |rule: &Rule| rule.approvals_required.unwrap_or(1);
        let (mine, others) = (self.rule, other.rule);
        let among = || self.among.iter().zip(&other.among);
        mine.effect >= others.effect
            && (mine.effect > others.effect || people(mine) >= people(others))
            && match (&mine.when, &others.when) {
                (None, _) => true,
                (Some(mine), Some(others)) => mine.is_as_wide_as(others),
                (Some(_), None) => false,
            }
            && self.actions.contain(&other.actions)
            && among().all(|lists| match lists {
                (None, _) => true,
                (Some(mine), Some(others)) => mine.contain(others),
                (Some(_), None) => false,
            })
    }
}

impl When {
    fn check(&self, fault: &mut impl FnMut(&str, String)) {
        if self.amount_over_micro_usd.is_some_and(|amount| amount < 0) {
            fault("when.amount_over_micro_usd", "must be 0 or more".into());
        }
        let lists = [("users", &self.users), ("kits", &self.kits), ("projects", &self.projects)];
        for (name, list) in lists {
            if !list.as_ref().is_none_or(are_ids) {
                fault(&format!("when.{name}"), format!("must name 1 to {NAMED_MAX} {IDS_WORDS}"));
            }
        }
        let long = |entity: &String| entity.is_empty() || entity.chars().count() > TEXT_CHARS_MAX;
        if self
            .entities
            .as_ref()
            .is_some_and(|list| list.is_empty() || list.len() > NAMED_MAX || list.iter().any(long))
        {
            fault("when.entities", format!("must name 1 to {NAMED_MAX} entities, or be left out"));
        }
        let Some(hours) = &self.hours else { return };
        for (name, text) in [("from", &hours.from), ("to", &hours.to)] {
            if minute(text).is_none() {
                fault(&format!("when.hours.{name}"), TIME_WORDS.into());
            }
        }
        if hours.days.as_ref().is_some_and(BTreeSet::is_empty) {
            fault("when.hours.days", "must name a day, or be left out".into());
        }
    }

    fn holds(&self, ask: &Ask<'_>) -> bool {
        let among = |named: &Option<BTreeSet<String>>, id: Option<&str>| {
            named.as_ref().is_none_or(|named| id.is_some_and(|id| named.contains(id)))
        };
        let large = self.amount_over_micro_usd.is_none_or(|over| match ask.amount {
            Amount::None => false,
            Amount::Of(amount) => amount > over,
            Amount::Unbounded => true,
        });
        large
            && among(&self.users, ask.user)
            && among(&self.kits, ask.kit)
            && among(&self.projects, ask.project)
            && self.entities.as_ref().is_none_or(|named| {
                let entity = canonical(ask.entity.to_owned());
                named.iter().any(|glob| text_matches(glob, &entity))
            })
            && self.hours.as_ref().is_none_or(|hours| hours.hold(ask.at, ask.zone))
    }

    /// Whether it holds wherever `other` does, apart from what both name.
    fn is_as_wide_as(&self, other: &When) -> bool {
        let lower = match (self.amount_over_micro_usd, other.amount_over_micro_usd) {
            (None, _) => true,
            (Some(mine), Some(others)) => mine <= others,
            (Some(_), None) => false,
        };
        lower && (self.hours.is_none() || self.hours == other.hours)
    }
}

impl Hours {
    fn hold(&self, at: Instant, zone: &Zone) -> bool {
        let (Some(from), Some(to)) = (minute(&self.from), minute(&self.to)) else { return false };
        let Some(local) = zone.local(at) else { return false };
        let now =
            u16::from(local.hour().unsigned_abs()) * 60 + u16::from(local.minute().unsigned_abs());
        let on = |day: Weekday| self.days.as_ref().is_none_or(|days| days.contains(&day.into()));
        let today = local.weekday();
        if from < to {
            return on(today) && (from..to).contains(&now);
        }
        (on(today) && now >= from) || (on(today.previous()) && now < to)
    }
}

impl Grant {
    /// Whether it is leave for what is asked now.
    fn covers(&self, ask: &Ask<'_>) -> bool {
        ask.user == Some(self.user_id.as_str())
            && ask.at < self.until
            && self.actions.iter().any(|glob| action_matches(glob, ask.action))
            && (self.cap_micro_usd.is_none() || ask.amount != Amount::Unbounded)
    }
}

/// Minutes since midnight of `HH:MM`; `24:00` is the day's end.
fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    if hours.len() != 2
        || minutes.len() != 2
        || !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':')
    {
        return None;
    }
    let minute = hours.parse::<u16>().ok()? * 60
        + minutes.parse::<u16>().ok().filter(|minutes| *minutes < 60)?;
    (minute <= 24 * 60).then_some(minute)
}

/// Whether a text is `*`, `<primitive>.*` or `<primitive>.<verb>`.
pub fn is_glob(text: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty()
            && word.bytes().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte)
            })
    };
    if text == "*" {
        return true;
    }
    text.len() <= TEXT_CHARS_MAX
        && text
            .split_once('.')
            .is_some_and(|(first, rest)| word(first) && (rest == "*" || word(rest)))
}

/// Whether an action is one of those that a glob names.
pub fn action_matches(glob: &str, action: &str) -> bool {
    match glob.strip_suffix('*') {
        Some(prefix) => action.starts_with(prefix),
        None => glob == action,
    }
}

/// Whether a text is one that a glob names, `*` standing for any run of characters: in time of both
/// lengths' product.
fn text_matches(glob: &str, text: &str) -> bool {
    let mut pieces = glob.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut last = None;
    for piece in pieces {
        if let Some(earlier) = last.replace(piece) {
            let Some(at) = rest.find(earlier) else { return false };
            rest = &rest[at + earlier.len()..];
        }
    }
    match last {
        None => rest.is_empty(),
        Some(last) => rest.len() >= last.len() && rest.ends_with(last),
    }
}

#[cfg(test)]
mod tests;
