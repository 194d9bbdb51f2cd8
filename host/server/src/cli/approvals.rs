//! `charter approvals`: what waits for people, and their word on it. By a person's own sign-in: no
//! key decides.

use charter_kernel::money::dollars;
use clap::{Args, Subcommand};
use http::{HeaderName, Method, header};
use serde_json::{Value, json};

use super::client::{Sent, Target};
use super::{Usage, say};

/// Characters of a message in a list.
const MESSAGE_CHARS_MAX: usize = 60;
const CSRF: HeaderName = HeaderName::from_static("x-service-csrf");

/// The commands on approvals.
#[derive(Subcommand)]
pub(super) enum Verb {
    /// List approvals, newest first
    List {
        /// Only in this state: `pending_approval`, `approved`, `succeeded`, `failed`, `denied`,
        /// `expired`
        #[arg(long, default_value = "pending_approval")]
        status: String,
        #[command(flatten)]
        person: Person,
    },
    /// Show one approval, as JSON
    Show {
        /// Its id
        id: String,
        #[command(flatten)]
        person: Person,
    },
    /// Approve: the request is made, once, as who asked for it
    Approve {
        #[command(flatten)]
        word: Word,
    },
    /// Deny: the request is not made, and its funds are free again
    Deny {
        #[command(flatten)]
        word: Word,
    },
}

/// A word on an approval.
#[derive(Args)]
pub(super) struct Word {
    /// Its id
    id: String,
    /// Why, for the record
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    person: Person,
}

/// The person who decides, and the server to tell.
#[derive(Args)]
pub(super) struct Person {
    #[command(flatten)]
    target: Target,
    /// The e-mail address that you sign in with
    #[arg(long, env = "CHARTER_EMAIL")]
    email: Option<String>,
    /// Your password; asked for at a terminal if it is not given
    #[arg(long, env = "CHARTER_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// The organization, if you belong to several
    #[arg(long, value_name = "ID")]
    organization: Option<String>,
}

/// A person who is signed in, until the command ends.
struct SignedIn<'a> {
    target: &'a Target,
    cookie: String,
    csrf: String,
}

impl Person {
    async fn sign_in(&self) -> anyhow::Result<SignedIn<'_>> {
        let email = self.email.as_deref().filter(|email| !email.is_empty());
        let email = email
            .ok_or_else(|| Usage("nobody signs in: set CHARTER_EMAIL, or give --email".into()))?;
        let password = match &self.password {
            Some(password) => password.clone(),
            None => rpassword::prompt_password(format!("Password of {email}: ")).map_err(|_| {
                Usage(
                    "there is no password: set CHARTER_PASSWORD, or run this at a terminal".into(),
                )
            })?,
        };
        let sent = Sent::new(Method::POST, "/v1/auth/login", "")
            .json(&json!({ "email": email, "password": password }));
        let (headers, answer) = self.target.answer(sent).await?;
        let cookie = headers.get(header::SET_COOKIE).and_then(|value| value.to_str().ok());
        let cookie =
            cookie.and_then(|cookie| cookie.split(';').next()).unwrap_or_default().to_owned();
        let csrf = answer["session"]["csrf_token"].as_str().unwrap_or_default().to_owned();
        let person = SignedIn { target: &self.target, cookie, csrf };
        if let Some(organization) = &self.organization {
            person
                .send(
                    Method::POST,
                    "/v1/auth/session/switch-company",
                    Some(&json!({ "company_id": organization })),
                )
                .await?;
        }
        Ok(person)
    }
}

impl SignedIn<'_> {
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let sent = Sent::new(method, path, "")
            .header(header::COOKIE, &self.cookie)
            .header(CSRF, &self.csrf);
        let sent = sent.header(header::ORIGIN, self.target.origin());
        let sent = body.into_iter().fold(sent, |sent, body| sent.json(body));
        self.target.send(sent).await
    }

    /// Ends the session; one that cannot be ended ends with its time.
    async fn sign_out(self) {
        let _ = self.send(Method::DELETE, "/v1/auth/session", Some(&json!({}))).await;
    }
}

/// An agent's words, short and in quotes, so that it is no line of the list's own.
fn quote(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let words = words.join(" ");
    let short = match words.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &words[..at]),
        None => words,
    };
    Value::from(short).to_string()
}

/// Does it.
pub(super) async fn run(verb: Verb) -> anyhow::Result<()> {
    let person = match &verb {
        Verb::List { person, .. } | Verb::Show { person, .. } => person,
        Verb::Approve { word } | Verb::Deny { word } => &word.person,
    };
    let signed_in = person.sign_in().await?;
    let done = decide(&verb, &signed_in).await;
    signed_in.sign_out().await;
    done
}

async fn decide(verb: &Verb, person: &SignedIn<'_>) -> anyhow::Result<()> {
    let word = async |word: &Word, how: &str| {
        let body = json!({ "reason": word.reason });
        let answer = person
            .send(Method::POST, &format!("/v1/approvals/{}/{how}", word.id), Some(&body))
            .await?;
        let approval = &answer["approval"];
        say(&format!("{}  {}", word.id, approval["status"].as_str().unwrap_or_default()));
        anyhow::Ok(())
    };
    match verb {
        Verb::List { status, .. } => {
            let answer = person
                .send(Method::GET, &format!("/v1/approvals?limit=200&status={status}"), None)
                .await?;
            for approval in answer["approvals"].as_array().into_iter().flatten() {
                let text = |name: &str| approval[name].as_str().unwrap_or("-").to_owned();
                let amount = approval["amount_micro_usd"].as_i64().map_or("-".into(), dollars);
                say(&format!(
                    "{}  {:<16} {:>12}  {:<24} {}",
                    text("id"),
                    text("status"),
                    amount,
                    text("action"),
                    quote(&text("message"))
                ));
            }
            Ok(())
        }
        Verb::Show { id, .. } => {
            let answer = person.send(Method::GET, &format!("/v1/approvals/{id}"), None).await?;
            say(&serde_json::to_string_pretty(&answer["approval"])?);
            Ok(())
        }
        Verb::Approve { word: own } => word(own, "approve").await,
        Verb::Deny { word: own } => word(own, "deny").await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_stands_within_its_quotes() {
        assert_eq!(quote("Buy\tpaper\r\n  \"now\""), "\"Buy paper \\\"now\\\"\"");
        let long = quote(&"x".repeat(90));
        assert_eq!((long.chars().count(), long.ends_with("…\"")), (MESSAGE_CHARS_MAX + 3, true));
    }
}
