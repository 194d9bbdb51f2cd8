//! `/v1/ledger/*`: accounts and their statements, as JSON and as CSV: the organization's credit,
//! and a tenant user's accounts.

use std::borrow::Cow;

use charter_kernel::fault::Fault;
use charter_kernel::governance::hold::{CREDIT, accounts_space, entries_of};
use charter_kernel::ledger::{Account, Normal};
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach};
use charter_store::{LogEntry, Order, PAGE_ROWS_MAX, Query, Txn};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::shape::{self, checked, instant, object};
use super::stored::reading;
use crate::app::App;
use crate::reply::Reply;
use crate::request::HostRequest;

/// Entries of one statement: a longer time is asked for in parts.
const ENTRIES_MAX: usize = 10_000;
/// Bytes of their texts.
const TEXTS_BYTES_MAX: usize = 8 << 20;
/// Entries that are read for one: balances are summed up from the first on.
const READ_MAX: u64 = 1_000_000;

fn account_item() -> Value {
    let number = json!({"type": "integer"});
    object(&[
        ("name", json!({"type": "string"})),
        ("posted_micro_usd", number.clone()),
        ("pending_in_micro_usd", number.clone()),
        ("pending_out_micro_usd", number.clone()),
        ("available_micro_usd", number),
        ("frozen", json!({"type": "boolean"})),
    ])
}

/// A page of accounts.
pub fn accounts_answer() -> Value {
    shape::cursor_page("accounts", &account_item())
}

/// The query of a statement.
pub fn statement_query() -> Value {
    object(&[
        ("account", json!({"type": "string", "minLength": 1, "maxLength": 300})),
        ("from?", instant()),
        ("to?", instant()),
        ("format?", json!({"enum": ["json", "csv"], "default": "json"})),
    ])
}

/// A statement.
pub fn statement_answer() -> Value {
    let entries = json!({"type": "array", "items": {"type": "object"}});
    let text = json!({"type": ["string", "null"]});
    let number = json!({"type": "integer"});
    let statement = object(&[
        ("account", json!({"type": "string"})),
        ("currency", json!({"const": "usd"})),
        ("from", text.clone()),
        ("to", text),
        ("opening_micro_usd", number.clone()),
        ("closing_micro_usd", number),
        ("entries", entries),
    ]);
    object(&[("statement", statement)])
}

/// Whose accounts the request is about: those of the user that it acts for.
fn own(request: &HostRequest) -> Result<Reach, Refusal> {
    let scope = &request.place()?.scope;
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
pub async fn accounts(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let page = &request.page;
    let mut query = Query::all(&own(request)?, &accounts_space()).limit(page.limit).relaxed();
    query.order = Order::Oldest;
    query.after.clone_from(&page.position);
    let found = txn.find(&query).await.map_err(reading)?;
    let mut items = Vec::new();
    if page.position.is_none() && sees_credit(request)? {
        let credit = txn.get_relaxed(&credit(request)?).await.map_err(reading)?;
        items.extend(credit.map(|row| view(CREDIT, &row.body)));
    }
    items.extend(
        found
            .items
            .iter()
            .filter(|(key, _)| key.id != CREDIT)
            .map(|(key, row)| view(&key.id, &row.body)),
    );
    Ok(Reply::ok(&shape::listed_at("accounts", items, page, found.next.as_deref())))
}

fn credit(request: &HostRequest) -> Result<Key, Refusal> {
    Ok(Key::new(
        &Reach::organization(request.place()?.organization.id.as_str()),
        &accounts_space(),
        CREDIT,
    ))
}

fn view(name: &str, body: &str) -> Value {
    let account: Account = serde_json::from_str(body).unwrap_or_else(|_| Account::credit());
    let balance = account.balance();
    json!({
        "name": name,
        "posted_micro_usd": balance.posted,
        "pending_in_micro_usd": balance.pending_in,
        "pending_out_micro_usd": balance.pending_out,
        "available_micro_usd": balance.available,
        "frozen": account.frozen,
    })
}

/// One line of a statement.
#[derive(Serialize)]
struct Line {
    at: String,
    id: String,
    amount_micro_usd: i64,
    balance_micro_usd: i64,
    counter_account: String,
    memo: String,
    reference: String,
}

/// What an entry says, as far as a statement shows it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Told<'a> {
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

/// `GET /v1/ledger/statement`: entries of a time, oldest first, with the balance behind each.
///
/// # Errors
/// 404 for an account that is not the caller's, 400 for a time that holds too many entries.
pub async fn statement(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let name = request.query_text("account").unwrap_or_default();
    let key = match name {
        CREDIT if sees_credit(request)? => credit(request)?,
        CREDIT => return Err(Refusal::resource_not_found("account")),
        name => Key::new(&own(request)?, &accounts_space(), name),
    };
    let row = txn
        .get_relaxed(&key)
        .await
        .map_err(reading)?
        .ok_or_else(|| Refusal::resource_not_found("account"))?;
    let account: Account = serde_json::from_str(&row.body).map_err(|_| Refusal::internal())?;
    let moment = |name: &str| request.query_text(name).and_then(Instant::parse);
    let (from, to) = (moment("from"), moment("to"));
    let (mut opening, mut balance, mut after) = (0, 0, 0);
    let (mut lines, mut bytes) = (Vec::new(), 0);
    'reading: loop {
        let page = txn.log_read(&entries_of(&key), after, PAGE_ROWS_MAX).await.map_err(reading)?;
        for entry in &page.entries {
            if to.is_some_and(|to| entry.at >= to) {
                break 'reading;
            }
            let line = line(entry, account.normal, balance);
            balance = line.balance_micro_usd;
            if from.is_some_and(|from| entry.at < from) {
                opening = balance;
                continue;
            }
            bytes += entry.payload.len();
            if lines.len() == ENTRIES_MAX || bytes > TEXTS_BYTES_MAX {
                let told = format!(
                    "holds more than {ENTRIES_MAX} entries, or {TEXTS_BYTES_MAX} bytes of them: ask for a shorter time"
                );
                checked(vec![Fault::new(if to.is_some() { "to" } else { "from" }, told)])?;
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
                checked(vec![Fault::new("from", told)])?;
            }
            _ => break,
        }
    }
    if request.query_text("format") == Some("csv") {
        return csv(&lines);
    }
    Ok(Reply::ok(&json!({"statement": {
        "account": name,
        "currency": "usd",
        "from": from,
        "to": to,
        "opening_micro_usd": opening,
        "closing_micro_usd": balance,
        "entries": lines,
    }})))
}

fn line(entry: &LogEntry, normal: Normal, balance: i64) -> Line {
    let told: Told = serde_json::from_str(&entry.payload).unwrap_or_default();
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
