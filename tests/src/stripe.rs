//! A double of Stripe, where no emulation knows its shapes: customers, PaymentIntents, Checkout Sessions and the billing portal. It checks
//! what it receives (path, credential, version, idempotency key, form) and keeps the promise of idempotency keys. Beside it, how
//! Stripe signs an event.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::double::{Heard, Reply, listen};

/// The credential that it takes.
pub const KEY: &str = "sk_test_double";
/// The version of the API that it speaks.
const VERSION: &str = "2024-06-20";

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
    faults: Vec<String>,
    /// Answers that get lost after what they answer was done.
    lost: u32,
}

/// A running double.
#[derive(Clone)]
pub struct Stripe {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Stripe {
    /// Starts one.
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let own = state.clone();
        let address = listen(move |heard| own.lock().unwrap_or_else(PoisonError::into_inner).answer(&heard));
        Self { address, state }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was asked of a path so far; and that nothing was asked wrongly.
    ///
    /// # Panics
    /// Where a request was not as Stripe wants it.
    #[track_caller]
    pub fn asked(&self, path: &str) -> Vec<Asked> {
        let faults = self.with(|state| state.faults.clone());
        assert!(faults.is_empty(), "asked wrongly: {faults:?}");
        self.with(|state| state.asked.iter().filter(|asked| asked.path == path).cloned().collect())
    }

    /// Different things that were asked of a path: a repetition under the same key is none.
    #[track_caller]
    pub fn done(&self, path: &str) -> usize {
        let keys: std::collections::BTreeSet<String> = self.asked(path).into_iter().map(|asked| asked.key).collect();
        keys.len()
    }

    /// Loses its next answers, after it has done what was asked.
    pub fn loses(&self, answers: u32) {
        self.with(|state| state.lost = answers);
    }
}

impl State {
    fn answer(&mut self, heard: &Heard) -> Reply {
        let (status, body) = match self.checked(heard) {
            Ok(asked) => self.serve(asked),
            Err(fault) => {
                self.faults.push(format!("{} {}: {fault}", heard.method, heard.target));
                (400, json!({ "error": { "type": "invalid_request_error", "message": fault } }))
            }
        };
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Reply { status, headers, body: body.to_string().into_bytes() }
    }

    fn checked(&self, heard: &Heard) -> Result<Asked, String> {
        let header = |name: &str| heard.header(name).unwrap_or_default().to_owned();
        let wanted = [
            ("authorization", format!("Bearer {KEY}")),
            ("stripe-version", VERSION.to_owned()),
            ("content-type", "application/x-www-form-urlencoded".to_owned()),
        ];
        if heard.method != "POST" {
            return Err("is no POST".into());
        }
        if let Some((name, _)) = wanted.iter().find(|(name, value)| header(name) != *value) {
            return Err(format!("{name} is {:?}", header(name)));
        }
        let key = header("idempotency-key");
        if key.is_empty() {
            return Err("has no idempotency key".into());
        }
        let text = String::from_utf8(heard.body.clone()).map_err(|_| "is no text")?;
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        Ok(Asked { path: heard.target.clone(), key, form: pairs.collect() })
    }

    fn serve(&mut self, asked: Asked) -> (u16, Value) {
        self.asked.push(asked.clone());
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
                return (400, json!({ "error": { "type": "invalid_request_error", "message": missing } }));
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
                for name in ["customer", "payment_method", "metadata[charter_hook]", "metadata[charter_invoice]"] {
                    need(name)?;
                }
                let amount: u64 = need("amount")?.parse().map_err(|_| "amount is no number")?;
                Ok(json!({ "id": id("pi"), "object": "payment_intent", "status": "succeeded", "amount": amount }))
            }
            "/v1/checkout/sessions" => {
                is("mode", "payment")?;
                is("line_items[0][quantity]", "1")?;
                is("line_items[0][price_data][currency]", "usd")?;
                is("payment_intent_data[setup_future_usage]", "off_session")?;
                for name in ["customer", "success_url", "cancel_url", "line_items[0][price_data][product_data][name]"] {
                    need(name)?;
                }
                is("client_reference_id", &need("metadata[charter_hook]")?)?;
                is("payment_intent_data[metadata][charter_hook]", &need("metadata[charter_hook]")?)?;
                is("payment_intent_data[metadata][charter_invoice]", &need("metadata[charter_invoice]")?)?;
                need("line_items[0][price_data][unit_amount]")?.parse::<u64>().map_err(|_| "unit_amount is no number")?;
                let session = id("cs");
                Ok(json!({ "id": session, "url": format!("https://checkout.example/{session}"), "status": "open" }))
            }
            "/v1/billing_portal/sessions" => {
                need("customer")?;
                let session = id("bps");
                Ok(json!({ "id": session, "url": format!("https://portal.example/{session}") }))
            }
            _ => Err("there is no such path".into()),
        }
    }
}

fn decoded(text: &str) -> String {
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
