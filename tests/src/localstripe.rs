//! localstripe: a stateful emulation of Stripe's API by somebody else, run from PyPI on loopback.
//! It signs its webhooks; it knows no Checkout Sessions and no portal, and does not look at
//! idempotency keys.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::artefacts::Artefacts;
use crate::client::Client;
use crate::tether::{Launch, Tethered};

/// A key that it takes.
pub const KEY: &str = "sk_test_of_the_tests";

/// A running emulation, with a state of its own.
#[derive(Debug)]
pub struct LocalStripe {
    client: Client,
    _process: Tethered,
}

impl LocalStripe {
    /// Starts one; installs it first where that was never done.
    ///
    /// # Panics If Python or its `venv` is missing: it says what to install.
    pub fn start() -> Self {
        let script = Artefacts::get().root.join("tests/localstripe/serve.py");
        let mut launch = Launch::new(Path::new("/usr/bin/env"), "KILL", None);
        launch.command().arg("python3").arg(script).stdout(Stdio::piped());
        let mut process =
            launch.start().unwrap_or_else(|error| panic!("cannot run python3: {error}"));
        let mut line = String::new();
        if let Some(output) = process.child().stdout.take() {
            BufReader::new(output)
                .read_line(&mut line)
                .unwrap_or_else(|error| panic!("localstripe says nothing: {error}"));
        }
        let address = line.trim();
        assert!(
            address.starts_with("http://127.0.0.1:"),
            "localstripe did not start; what it said is above"
        );
        Self { client: Client::new(address).bearer(KEY), _process: process }
    }

    /// Its address.
    pub fn url(&self) -> &str {
        self.client.base()
    }

    /// Reads a resource.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.client.get(path).expect(200)
    }

    /// Sends a form.
    #[track_caller]
    pub fn post(&self, path: &str, form: &str) -> Value {
        let call = self
            .client
            .call("POST", path)
            .header("content-type", "application/x-www-form-urlencoded");
        call.bytes(form.as_bytes().to_vec()).send().expect(200)
    }

    /// A card that was typed in, as a payment method.
    #[track_caller]
    pub fn card(&self, number: &str) -> String {
        let form = format!(
            "type=card&card[number]={number}&card[exp_month]=12&card[exp_year]=2040&card[cvc]=123"
        );
        let made = self.post("/v1/payment_methods", &form);
        made["id"].as_str().unwrap_or_else(|| panic!("no payment method: {made}")).to_owned()
    }

    /// Has its events sent there.
    #[track_caller]
    pub fn tells(&self, url: &str, secret: &str) {
        let answer =
            self.client.post("/_config/webhooks/host", &json!({ "url": url, "secret": secret }));
        assert_eq!(answer.status, 200, "{answer}");
    }

    /// Its events of a type, the newest first.
    #[track_caller]
    pub fn events(&self, kind: &str) -> Vec<Value> {
        self.get(&format!("/v1/events?type={kind}"))["data"].as_array().cloned().unwrap_or_default()
    }
}
