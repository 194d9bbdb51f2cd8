//! A double of Stripe, where no emulation knows its shapes: customers, PaymentIntents, Checkout
//! Sessions, the billing portal, and cards that it issues. It checks what it receives (path,
//! credential, version, idempotency key, form) and keeps the promise of idempotency keys. Beside
//! it, how Stripe signs an event.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::double::{Heard, Reply, listen};
use crate::signature::hmac_sha256;

/// The credential that it takes.
pub const KEY: &str = "sk_test_double";
/// The version of the API that it speaks.
const VERSION: &str = "2024-06-20";

/// `Stripe-Signature` of a body that is sent at `at`, in seconds.
pub fn signature(secret: &str, at: i64, body: &str) -> String {
    format!("t={at},v1={}", hmac_sha256(secret, format!("{at}.{body}").as_bytes()))
}

/// One request, its form decoded.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The path.
    pub path: String,
    /// `Idempotency-Key`.
    pub key: String,
    /// The form's members.
    pub form: BTreeMap<String, String>,
}

#[derive(Default)]
struct State {
    asked: Vec<Asked>,
    /// By key: the form, and what was answered.
    answered: BTreeMap<String, (BTreeMap<String, String>, Value)>,
    made: u32,
    /// Cards that it has issued: their status and limit.
    cards: BTreeMap<String, (String, Option<String>)>,
    faults: Vec<String>,
    /// Answers that get lost after what they answer was done.
    lost: u32,
    /// The path whose answers are kept back, and how many of them were let go.
    kept_back: Option<(String, u32)>,
}

/// A running double.
#[derive(Clone)]
pub struct Stripe {
    /// Its address.
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// Told of each answer that is let go.
    released: Arc<Condvar>,
}

impl Stripe {
    /// Starts one.
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let released = Arc::new(Condvar::new());
        let (own, told) = (state.clone(), released.clone());
        let address = listen(move |heard| {
            let mut state = own.lock().unwrap_or_else(PoisonError::into_inner);
            let reply = state.answer(&heard);
            while !state.releases(&heard.target) {
                state = told.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            reply
        });
        Self { address, state, released }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The requests to a path so far, all of them as Stripe wants them.
    ///
    /// # Panics If a request was not as Stripe wants it.
    #[track_caller]
    pub fn requests(&self, path: &str) -> Vec<Asked> {
        let faults = self.with(|state| state.faults.clone());
        assert!(faults.is_empty(), "asked wrongly: {faults:?}");
        self.with(|state| state.asked.iter().filter(|asked| asked.path == path).cloned().collect())
    }

    /// Different things that were asked of a path: a repetition under the same key is none.
    #[track_caller]
    pub fn effects(&self, path: &str) -> usize {
        let keys: std::collections::BTreeSet<String> =
            self.requests(path).into_iter().map(|asked| asked.key).collect();
        keys.len()
    }

    /// How a card stands that it has issued: its status, and its limit in cents.
    pub fn card(&self, id: &str) -> Option<(String, Option<String>)> {
        self.with(|state| state.cards.get(id).cloned())
    }

    /// Loses its next answers, after it has done what was asked.
    pub fn loses(&self, answers: u32) {
        self.with(|state| state.lost = answers);
    }

    /// Keeps its answers of a path back until they are released, after it has done what was asked.
    pub fn keeps_back(&self, path: &str) {
        self.with(|state| state.kept_back = Some((path.to_owned(), 0)));
    }

    /// Lets one of the answers go that it keeps back.
    pub fn releases(&self) {
        self.with(|state| state.kept_back.iter_mut().for_each(|(_, released)| *released += 1));
        self.released.notify_all();
    }
}

impl State {
    /// Whether an answer of this path goes out now.
    fn releases(&mut self, path: &str) -> bool {
        match &mut self.kept_back {
            Some((kept, released)) if kept == path && *released == 0 => false,
            Some((kept, released)) if kept == path => {
                *released -= 1;
                true
            }
            _ => true,
        }
    }

    fn answer(&mut self, heard: &Heard) -> Reply {
        let (status, body) = match self.check(heard) {
            Ok(asked) => self.serve(asked),
            Err(fault) => {
                self.faults.push(format!("{} {}: {fault}", heard.method, heard.target));
                (400, json!({ "error": { "type": "invalid_request_error", "message": fault } }))
            }
        };
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Reply { status, headers, body: body.to_string().into_bytes() }
    }

    fn check(&self, heard: &Heard) -> Result<Asked, String> {
        let header = |name: &str| heard.header(name).unwrap_or_default().to_owned();
        let wanted = [
            ("authorization", format!("Bearer {KEY}")),
            ("stripe-version", VERSION.to_owned()),
            ("content-type", "application/x-www-form-urlencoded".to_owned()),
        ];
        let reads = match heard.method.as_str() {
            "GET" => true,
            "POST" => false,
            _ => return Err("is neither GET nor POST".into()),
        };
        let wanted = if reads { &wanted[..2] } else { &wanted[..] };
        if let Some((name, _)) = wanted.iter().find(|(name, value)| header(name) != *value) {
            return Err(format!("{name} is {:?}", header(name)));
        }
        let key = header("idempotency-key");
        if key.is_empty() != reads {
            return Err(format!("has the idempotency key {key:?}"));
        }
        let (path, query) = heard.target.split_once('?').unwrap_or((&heard.target, ""));
        let text = String::from_utf8(heard.body.clone()).map_err(|_| "is no text")?;
        let members = if reads { query } else { &text };
        let mut form = BTreeMap::new();
        for pair in members.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // A list's members have one name.
            form.entry(decode(name))
                .and_modify(|held: &mut String| *held += ",")
                .or_default()
                .push_str(&decode(value));
        }
        Ok(Asked { path: path.to_owned(), key, form })
    }

    fn serve(&mut self, asked: Asked) -> (u16, Value) {
        self.asked.push(asked.clone());
        if asked.key.is_empty() {
            return self.number(&asked);
        }
        if let Some((form, answer)) = self.answered.get(&asked.key) {
            if *form != asked.form {
                self.faults.push(format!("{} repeats {} with another form", asked.path, asked.key));
            }
            return self.lose(answer.clone());
        }
        let answer = match self.make(&asked) {
            Ok(answer) => answer,
            Err(missing) => {
                self.faults.push(format!("{}: {missing}", asked.path));
                return (
                    400,
                    json!({ "error": { "type": "invalid_request_error", "message": missing } }),
                );
            }
        };
        self.answered.insert(asked.key, (asked.form, answer.clone()));
        self.lose(answer)
    }

    fn lose(&mut self, answer: Value) -> (u16, Value) {
        if self.lost > 0 {
            self.lost -= 1;
            return (503, json!({ "error": { "type": "api_error" } }));
        }
        (200, answer)
    }

    /// A card with its number.
    fn number(&mut self, asked: &Asked) -> (u16, Value) {
        let id =
            asked.path.strip_prefix("/v1/issuing/cards/").filter(|id| self.cards.contains_key(*id));
        match (id, asked.form.get("expand[]").map(String::as_str)) {
            (Some(id), Some("number,cvc")) => (
                200,
                json!({ "id": id, "number": "4000009990000018", "cvc": "123", "exp_month": 9, "exp_year": 2031, "last4": "0018" }),
            ),
            _ => (
                404,
                json!({ "error": { "type": "invalid_request_error", "code": "resource_missing" } }),
            ),
        }
    }

    /// How a form bounds a card: its status and its limit.
    fn read_bounds(form: &BTreeMap<String, String>) -> Result<(String, Option<String>), String> {
        let status = form
            .get("status")
            .filter(|status| ["active", "inactive", "canceled"].contains(&status.as_str()));
        let limit = form.get("spending_controls[spending_limits][0][amount]");
        let interval =
            form.get("spending_controls[spending_limits][0][interval]").map(String::as_str);
        let known = interval.is_none_or(|interval| {
            ["daily", "weekly", "monthly", "yearly", "all_time"].contains(&interval)
        });
        if limit.is_some() != interval.is_some() || !known {
            return Err(format!("a limit of {limit:?} each {interval:?}"));
        }
        Ok((status.ok_or("status is none that there is")?.clone(), limit.cloned()))
    }

    fn make(&mut self, asked: &Asked) -> Result<Value, String> {
        let form = &asked.form;
        let need = |name: &str| form.get(name).cloned().ok_or_else(|| format!("{name} is missing"));
        let is = |name: &str, value: &str| match form.get(name).map(String::as_str) {
            Some(found) if found == value => Ok(()),
            found => Err(format!("{name} is {found:?}, not {value}")),
        };
        self.made += 1;
        let id = |kind: &str| format!("{kind}_double_{}", self.made);
        match asked.path.as_str() {
            "/v1/customers" => {
                need("metadata[charter_organization]")?;
                Ok(json!({ "id": id("cus"), "object": "customer" }))
            }
            "/v1/payment_intents" => {
                is("currency", "usd")?;
                is("confirm", "true")?;
                for name in [
                    "customer",
                    "payment_method",
                    "metadata[charter_hook]",
                    "metadata[charter_invoice]",
                ] {
                    need(name)?;
                }
                let amount: u64 = need("amount")?.parse().map_err(|_| "amount is no number")?;
                Ok(
                    json!({ "id": id("pi"), "object": "payment_intent", "status": "succeeded", "amount": amount }),
                )
            }
            "/v1/checkout/sessions" => {
                is("mode", "payment")?;
                is("line_items[0][quantity]", "1")?;
                is("line_items[0][price_data][currency]", "usd")?;
                is("payment_intent_data[setup_future_usage]", "off_session")?;
                for name in [
                    "customer",
                    "success_url",
                    "cancel_url",
                    "line_items[0][price_data][product_data][name]",
                ] {
                    need(name)?;
                }
                is("client_reference_id", &need("metadata[charter_hook]")?)?;
                is(
                    "payment_intent_data[metadata][charter_hook]",
                    &need("metadata[charter_hook]")?,
                )?;
                is(
                    "payment_intent_data[metadata][charter_invoice]",
                    &need("metadata[charter_invoice]")?,
                )?;
                need("line_items[0][price_data][unit_amount]")?
                    .parse::<u64>()
                    .map_err(|_| "unit_amount is no number")?;
                let session = id("cs");
                Ok(
                    json!({ "id": session, "url": format!("https://checkout.example/{session}"), "status": "open" }),
                )
            }
            "/v1/billing_portal/sessions" => {
                need("customer")?;
                let session = id("bps");
                Ok(json!({ "id": session, "url": format!("https://portal.example/{session}") }))
            }
            "/v1/issuing/cardholders" => {
                if !["individual", "company"].contains(&need("type")?.as_str()) {
                    return Err("type is neither individual nor company".into());
                }
                for name in [
                    "name",
                    "billing[address][line1]",
                    "billing[address][city]",
                    "billing[address][postal_code]",
                ] {
                    need(name)?;
                }
                if need("billing[address][country]")?.len() != 2 {
                    return Err("country is no code of a country".into());
                }
                Ok(json!({ "id": id("ich"), "object": "issuing.cardholder", "status": "active" }))
            }
            "/v1/issuing/cards" => {
                is("currency", "usd")?;
                is("type", "virtual")?;
                is("status", "active")?;
                for name in ["cardholder", "metadata[charter_hook]", "metadata[charter_card]"] {
                    need(name)?;
                }
                let card = id("ic");
                self.cards.insert(card.clone(), Self::read_bounds(form)?);
                Ok(
                    json!({ "id": card, "object": "issuing.card", "last4": "0018", "status": "active" }),
                )
            }
            path => {
                let card =
                    path.strip_prefix("/v1/issuing/cards/").ok_or("there is no such path")?;
                let held = self.cards.get_mut(card).ok_or("there is no such card")?;
                if held.0 == "canceled" {
                    return Err("a canceled card stays so".into());
                }
                *held = Self::read_bounds(form)?;
                Ok(
                    json!({ "id": card, "object": "issuing.card", "last4": "0018", "status": held.0 }),
                )
            }
        }
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match (first, code.and_then(|code| u8::from_str_radix(code, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            (byte, _) => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
