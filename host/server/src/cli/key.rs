//! `charter key`: API keys of an organization, by a key of it.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value};

use super::client::{Refused, Sent, Target};
use super::{Usage, say};

/// The commands on keys.
#[derive(Subcommand)]
pub(super) enum Verb {
    /// Make a key and print it, once
    Create {
        /// Its name, for people
        name: String,
        /// viewer, developer or admin; never more than the key that makes it
        #[arg(long)]
        role: Option<String>,
        /// Pin it to one project
        #[arg(long, value_name = "ID")]
        project: Option<String>,
        /// Pin it to one user: what an agent gets
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// When it ends, as 2027-01-31T00:00:00Z
        #[arg(long, value_name = "MOMENT")]
        expires_at: Option<String>,
        #[command(flatten)]
        caller: Caller,
    },
    /// List keys, without their secrets
    List {
        #[command(flatten)]
        caller: Caller,
    },
    /// Revoke a key and every key that it made
    Revoke {
        /// Its id
        id: String,
        #[command(flatten)]
        caller: Caller,
    },
}

/// The caller's key, and the server to ask.
#[derive(Args)]
pub(super) struct Caller {
    #[command(flatten)]
    target: Target,
    /// A key of the organization
    #[arg(long, env = "CHARTER_KEY", hide_env_values = true)]
    key: Option<String>,
}

impl Caller {
    fn key(&self) -> anyhow::Result<&str> {
        let key = self.key.as_deref().filter(|key| !key.is_empty());
        key.ok_or_else(|| {
            Usage("there is no key of the organization: set CHARTER_KEY, or give --key".into())
                .into()
        })
    }
}

/// Does it.
pub(super) async fn run(verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create { name, role, project, user, expires_at, caller } => {
            let given = [
                ("name", Some(name)),
                ("role", role),
                ("project_id", project),
                ("user_id", user),
                ("expires_at", expires_at),
            ];
            let body: Map<String, Value> = given
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?))))
                .collect();
            let sent =
                Sent::new(Method::POST, "/v1/auth/keys", caller.key()?).json(&Value::Object(body));
            let made = caller.target.send(sent).await?;
            say(made["key"].as_str().unwrap_or_default());
        }
        Verb::List { caller } => {
            let answer = caller
                .target
                .send(Sent::new(Method::GET, "/v1/auth/keys?limit=200", caller.key()?))
                .await?;
            for key in answer["keys"].as_array().into_iter().flatten() {
                let text = |name: &str| key[name].as_str().unwrap_or("-").to_owned();
                say(&format!(
                    "{}  {:<16} {:<10} {}",
                    text("id"),
                    text("prefix"),
                    text("role"),
                    text("name")
                ));
            }
        }
        Verb::Revoke { id, caller } => {
            let sent = Sent::new(Method::DELETE, format!("/v1/auth/keys/{id}"), caller.key()?);
            caller.target.send(sent).await.map_err(|error| {
                match error.downcast_ref::<Refused>() {
                    Some(refused) if refused.is_absent() => {
                        error.context(format!("there is no key {id} (charter key list)"))
                    }
                    _ => error,
                }
            })?;
            say(&format!("revoked {id}"));
        }
    }
    Ok(())
}
