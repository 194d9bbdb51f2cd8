//! `/v1/ledger/*`: accounts and their statements, as JSON and as CSV: the organization's credit,
//! and a tenant user's accounts.

use std::borrow::Cow;

use charter_kernel::authority::Class;
use charter_kernel::fault::Fault;
use charter_kernel::governance::hold::{CREDIT, accounts_space, entries_of};
use charter_kernel::ledger::{Account, Normal};
use charter_kernel::manifest::Paging;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach};
use charter_store::{LogEntry, Order, PAGE_ROWS_MAX, Query, Txn};
use charter_tenancy::stored::reading;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shape::{Cursor, Moment, Optional, refuse_faults};
use crate::app::App;
use crate::handler;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::route::{HostRoute, Walk};
use crate::serve::{Answer, Params};

/// Entries of one statement: a longer time is asked for in parts.
const ENTRIES_MAX: usize = 10_000;
/// Bytes of their texts.
const TEXTS_BYTES_MAX: usize = 8 << 20;
/// Entries that are read for one: balances are summed up from the first on.
const READ_MAX: u64 = 1_000_000;

/// The rows of accounts and their statements.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(
            Class::ProfileRead,
            "ledger.accounts",
            "/ledger/accounts",
            handler!(list_accounts),
        )
        .both_mounts()
        .summary("The accounts of a tenant, and the organization's credit")
        .paging(Paging::Cursor),
        HostRoute::get(
            Class::ProfileRead,
            "ledger.statement",
            "/ledger/statement",
            handler!(get_statement),
        )
        .both_mounts()
        .walk(Walk::All)
        .summary("What moved on an account, as JSON or CSV")
        .refuses(&[Code::ResourceNotFound]),
    ]
}

/// An account of money.
#[derive(Serialize, JsonSchema)]
struct AccountItem {
    /// The account's name.
    name: String,
    /// The balance.
    posted_micro_usd: i64,
    /// The amount that is on its way in.
    pending_in_micro_usd: i64,
    /// The amount that is held to go out.
    pending_out_micro_usd: i64,
    /// The amount that can be spent.
    available_micro_usd: i64,
    /// Whether it pays nothing.
    frozen: bool,
}

impl AccountItem {
    fn of(name: &str, body: &str) -> Self {
        let account: Account = serde_json::from_str(body).unwrap_or_else(|_| Account::credit());
        let balance = account.balance();
        Self {
            name: name.to_owned(),
            posted_micro_usd: balance.posted,
            pending_in_micro_usd: balance.pending_in,
            pending_out_micro_usd: balance.pending_out,
            available_micro_usd: balance.available,
            frozen: account.frozen,
        }
    }
}

/// A page of accounts.
#[derive(Serialize, JsonSchema)]
pub struct AccountPage {
    accounts: Vec<AccountItem>,
    #[serde(flatten)]
    page: Cursor,
}

/// The query of a statement.
#[derive(Deserialize, JsonSchema)]
pub struct StatementQuery {
    /// The account's name.
    #[schemars(length(min = 1, max = 300))]
    account: String,
    /// The moment of the first entry.
    from: Optional<Moment>,
    /// The moment behind the last entry.
    to: Optional<Moment>,
    /// The media type.
    #[serde(default)]
    format: Format,
}

/// The media type of a statement.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Json,
    Csv,
}

/// The entries of an account over a time.
#[derive(Serialize, JsonSchema)]
struct Statement {
    /// The account's name.
    account: String,
    #[schemars(extend("const" = "usd"))]
    currency: &'static str,
    /// The moment of the first entry.
    #[schemars(with = "Option<String>")]
    from: Option<Instant>,
    /// The moment behind the last entry.
    #[schemars(with = "Option<String>")]
    to: Option<Instant>,
    /// The balance ahead of the first entry.
    opening_micro_usd: i64,
    /// The balance behind the last entry.
    closing_micro_usd: i64,
    entries: Vec<Line>,
}

/// A statement.
#[derive(Serialize, JsonSchema)]
pub struct StatementAnswer {
    statement: Statement,
}

/// The reach of the accounts that the request is about: those of the user that it acts for.
fn own_reach(request: &HostRequest) -> Result<Reach, Refusal> {
    let scope = request.place()?.scope();
    Ok(scope.narrowest())
}

/// The organization's credit is beyond every pin.
fn sees_credit(request: &HostRequest) -> Result<bool, Refusal> {
    Ok(!request.principal()?.is_pinned())
}

/// `GET /v1/ledger/accounts`: the user's, and the organization's credit first.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list_accounts(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<AccountPage>, Refusal> {
    let page = &request.page;
    let mut query = Query::all(&own_reach(request)?, &accounts_space()).limit(page.limit).relax();
    query.order = Order::Oldest;
    query.after.clone_from(&page.position);
    let found = txn.find(&query).await.map_err(reading)?;
    let mut items = Vec::new();
    if page.position.is_none() && sees_credit(request)? {
        let credit = txn.get_relaxed(&credit(request)?).await.map_err(reading)?;
        items.extend(credit.map(|row| AccountItem::of(CREDIT, &row.body)));
    }
    items.extend(
        found
            .items
            .iter()
            .filter(|(key, _)| key.id != CREDIT)
            .map(|(key, row)| AccountItem::of(&key.id, &row.body)),
    );
    let page = Cursor::of(page, found.next.as_deref());
    Ok(Answer::of(&AccountPage { accounts: items, page }))
}

fn credit(request: &HostRequest) -> Result<Key, Refusal> {
    Ok(Key::new(
        &Reach::organization(request.place()?.organization().id.as_str()),
        &accounts_space(),
        CREDIT,
    ))
}

/// An entry of a statement.
#[derive(Serialize, JsonSchema)]
struct Line {
    /// Its moment.
    at: String,
    /// The id of the transfer.
    id: String,
    /// The amount, negative where it leaves the account.
    amount_micro_usd: i64,
    /// The balance behind it.
    balance_micro_usd: i64,
    /// The account at the other end.
    counter_account: String,
    /// A line for people.
    memo: String,
    /// The record that it is about.
    reference: String,
}

/// The members of an entry that a statement shows.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry<'a> {
    amount_micro_usd: i64,
    #[serde(borrow)]
    transfer: Cow<'a, str>,
    #[serde(borrow)]
    counter_account: Cow<'a, str>,
    #[serde(borrow)]
    memo: Cow<'a, str>,
    #[serde(borrow)]
    reference: Cow<'a, str>,
}

/// The side of a statement's boundaries on which an entry of the log stands.
///
/// The boundary of a moment is the first entry, by its sequence, that is not earlier. All that
/// follows is behind it, whatever its own moment: several hosts write one log, and a batch may have
/// begun ahead of one that was written before it. So statements that adjoin share one boundary, and
/// each entry stands in exactly one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    /// Ahead of the first boundary: it counts in the opening balance.
    Ahead,
    /// Between the two.
    Within,
    /// Behind the second one.
    Behind,
}

impl Side {
    /// The side of the next entry: it is never gone back from.
    fn advance(self, at: Instant, (from, to): (Option<Instant>, Option<Instant>)) -> Self {
        let by_moment = if to.is_some_and(|to| at >= to) {
            Self::Behind
        } else if from.is_none_or(|from| at >= from) {
            Self::Within
        } else {
            Self::Ahead
        };
        self.max(by_moment)
    }
}

/// `GET /v1/ledger/statement`: entries of a time, oldest first, with the balance behind each.
///
/// # Errors
/// 404 for an account that is not the caller's, 400 for a time that holds too many entries.
pub async fn get_statement(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Params(asked): Params<StatementQuery>,
) -> Result<Answer<StatementAnswer>, Refusal> {
    let key = match asked.account.as_str() {
        CREDIT if sees_credit(request)? => credit(request)?,
        CREDIT => return Err(Refusal::resource_not_found("account")),
        name => Key::new(&own_reach(request)?, &accounts_space(), name),
    };
    let row = txn
        .get_relaxed(&key)
        .await
        .map_err(reading)?
        .ok_or_else(|| Refusal::resource_not_found("account"))?;
    let account: Account = serde_json::from_str(&row.body).map_err(|_| Refusal::internal())?;
    let moment = |at: &Optional<Moment>| at.0.as_ref().and_then(Moment::instant);
    let (from, to) = (moment(&asked.from), moment(&asked.to));
    let (mut opening, mut balance, mut after) = (0, 0, 0);
    let (mut lines, mut bytes, mut side) = (Vec::new(), 0, Side::Ahead);
    'reading: loop {
        let page = txn.log_read(&entries_of(&key), after, PAGE_ROWS_MAX).await.map_err(reading)?;
        for entry in &page.entries {
            side = side.advance(entry.at, (from, to));
            if side == Side::Behind {
                break 'reading;
            }
            let line = line(entry, account.normal, balance);
            balance = line.balance_micro_usd;
            if side == Side::Ahead {
                opening = balance;
                continue;
            }
            bytes += entry.payload.len();
            if lines.len() == ENTRIES_MAX || bytes > TEXTS_BYTES_MAX {
                let told = format!(
                    "holds more than {ENTRIES_MAX} entries, or {TEXTS_BYTES_MAX} bytes of them: ask for a shorter time"
                );
                refuse_faults(vec![Fault::new(if to.is_some() { "to" } else { "from" }, told)])?;
            }
            lines.push(line);
        }
        // A long account is read page by page, and others have their turn in between.
        tokio::task::yield_now().await;
        match page.entries.last() {
            Some(last) if page.full && last.sequence < READ_MAX => after = last.sequence,
            Some(last) if last.sequence >= READ_MAX => {
                let told = format!(
                    "lies behind the first {READ_MAX} entries of the account, which is as far as statements go"
                );
                refuse_faults(vec![Fault::new("from", told)])?;
            }
            _ => break,
        }
    }
    if asked.format == Format::Csv {
        return csv(&lines).map(Answer::other);
    }
    let statement = Statement {
        account: asked.account,
        currency: "usd",
        from,
        to,
        opening_micro_usd: opening,
        closing_micro_usd: balance,
        entries: lines,
    };
    Ok(Answer::of(&StatementAnswer { statement }))
}

fn line(entry: &LogEntry, normal: Normal, balance: i64) -> Line {
    let told: Entry = serde_json::from_str(&entry.payload).unwrap_or_default();
    let amount = told.amount_micro_usd;
    let grows = (entry.name == "debit") == (normal == Normal::Debit);
    let amount = if grows { amount } else { -amount };
    Line {
        at: entry.at.to_string(),
        id: told.transfer.into(),
        amount_micro_usd: amount,
        balance_micro_usd: balance + amount,
        counter_account: told.counter_account.into(),
        memo: told.memo.into(),
        reference: told.reference.into(),
    }
}

/// RFC 4180. A text that a spreadsheet would take for a formula begins with an apostrophe.
fn csv(lines: &[Line]) -> Result<Reply, Refusal> {
    let mut out = csv::Writer::from_writer(Vec::new());
    let plain = |text: &str| match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => format!("'{text}"),
        false => text.to_owned(),
    };
    let failed = |error: csv::Error| {
        tracing::error!(%error, "a statement cannot be written");
        Refusal::internal()
    };
    out.write_record([
        "at",
        "id",
        "amount_micro_usd",
        "balance_micro_usd",
        "counter_account",
        "memo",
        "reference",
    ])
    .map_err(failed)?;
    for line in lines {
        let (amount, balance) =
            (line.amount_micro_usd.to_string(), line.balance_micro_usd.to_string());
        let texts = [&line.counter_account, &line.memo, &line.reference].map(|text| plain(text));
        let [counter, memo, reference] = &texts;
        out.write_record([&line.at, &line.id, &amount, &balance, counter, memo, reference])
            .map_err(failed)?;
    }
    let bytes = out.into_inner().map_err(|_| Refusal::internal())?;
    Ok(Reply::text("text/csv; charset=utf-8", bytes))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;

    use super::*;

    /// The places of a statement's entries in a log whose entries have these moments.
    fn cut(moments: &[i64], from: Option<i64>, to: Option<i64>) -> Range<usize> {
        let times = (from.map(Instant), to.map(Instant));
        let mut side = Side::Ahead;
        let mut sides = Vec::new();
        for at in moments {
            side = side.advance(Instant(*at), times);
            sides.push(side);
        }
        let first = sides.partition_point(|side| *side == Side::Ahead);
        first..sides.partition_point(|side| *side < Side::Behind)
    }

    #[test]
    fn a_statement_is_cut_by_sequence_at_the_first_entry_that_is_not_earlier() {
        let moments = [10, 30, 20, 40, 25, 50];
        for (from, to, places) in [
            (None, None, 0..6),
            (Some(10), None, 0..6),
            // Those at 20 and at 25 lie behind a later one, and count as behind.
            (Some(30), None, 1..6),
            (Some(25), None, 1..6),
            (Some(35), None, 3..6),
            (Some(51), None, 6..6),
            (None, Some(10), 0..0),
            (None, Some(20), 0..1),
            (None, Some(30), 0..1),
            (None, Some(31), 0..3),
            (None, Some(50), 0..5),
            (Some(20), Some(40), 1..3),
            (Some(40), Some(50), 3..5),
            (Some(35), Some(35), 3..3),
            // The other way round nothing lies between.
            (Some(40), Some(20), 1..1),
        ] {
            assert_eq!(cut(&moments, from, to), places, "{from:?} {to:?}");
        }
        assert_eq!(cut(&[], Some(1), Some(2)), 0..0);
    }

    proptest! {
        #[test]
        fn each_entry_stands_in_exactly_one_of_statements_that_adjoin(
            moments in proptest::collection::vec(0..20_i64, 0..30),
            bounds in proptest::collection::btree_set(0..20_i64, 0..6),
        ) {
            let inner: Vec<Option<i64>> = bounds.into_iter().map(Some).collect();
            let bounds = [&[None][..], &inner[..], &[None][..]].concat();
            let mut next = 0;
            for pair in bounds.windows(2) {
                let places = cut(&moments, pair[0], pair[1]);
                // The closing of one is the opening of the next.
                prop_assert_eq!(places.start, next);
                next = places.end;
            }
            prop_assert_eq!(next, moments.len());
        }
    }
}
