//! `charter component`: the life cycle of components on a running host.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use charter_registry::components::signature;
use clap::{Args, Subcommand};
use http::{HeaderName, Method, header};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::client::{Refused, Sent, Target};
use super::{Usage, say};

/// The commands on components.
#[derive(Subcommand)]
pub(super) enum Verb {
    /// Upload a component; it is checked whole, and every fault is shown at once
    Install {
        /// The .wasm file; a signature beside it (<file>.sig) is sent along
        file: PathBuf,
        /// The primitive's name; if not given the file's, also as cargo writes it:
        /// charter_address_book.wasm is address-book
        #[arg(long)]
        name: Option<String>,
        /// Also swap to it
        #[arg(long)]
        activate: bool,
        /// Terms you agree to, of those it asks for, with commas between; `*` is all of them
        #[arg(long, value_name = "ASKS", default_value = "")]
        agree: String,
        #[command(flatten)]
        operator: Operator,
    },
    /// List primitives, or the versions of one
    List {
        /// The primitive
        name: Option<String>,
        #[command(flatten)]
        operator: Operator,
    },
    /// Swap to an installed version; requests in flight finish on the one they began with
    Activate {
        /// The primitive
        name: String,
        /// Its version, or its digest, or as much of that as says which
        #[arg(id = "which", value_name = "VERSION")]
        version: String,
        /// Terms you agree to, of those it asks for, with commas between; `*` is all of them
        #[arg(long, value_name = "ASKS", default_value = "")]
        agree: String,
        #[command(flatten)]
        operator: Operator,
    },
    /// Go back to the version that served before
    Rollback {
        /// The primitive
        name: String,
        #[command(flatten)]
        operator: Operator,
    },
    /// Remove a version that does not serve
    Remove {
        /// The primitive
        name: String,
        /// Its version, or its digest, or as much of that as says which
        #[arg(id = "which", value_name = "VERSION")]
        version: String,
        #[command(flatten)]
        operator: Operator,
    },
    /// Check a component's signature here, without a host
    Verify {
        /// The .wasm file
        file: PathBuf,
        /// The ed25519 public key: base64 of its 32 bytes, or a PEM file
        #[arg(long, value_name = "KEY")]
        key: String,
        /// The signature file; <file>.sig if not given
        #[arg(long, value_name = "FILE")]
        signature: Option<PathBuf>,
    },
}

/// The operator's token, and the server to ask.
#[derive(Args)]
pub(super) struct Operator {
    #[command(flatten)]
    target: Target,
    /// The operator's token
    #[arg(long, env = "CHARTER_OPERATOR_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

impl Operator {
    fn token(&self) -> anyhow::Result<&str> {
        let token = self.token.as_deref().filter(|token| !token.is_empty());
        token.ok_or_else(|| {
            Usage(
                "there is no operator's token: set CHARTER_OPERATOR_TOKEN, or give --token".into(),
            )
            .into()
        })
    }

    /// The digest of an installed version, by its number, its digest or the beginning of that.
    async fn digest(&self, name: &str, version: &str) -> anyhow::Result<String> {
        let answer = self.send(Method::GET, &format!("/{name}"), None).await?;
        let hex = version.strip_prefix("sha256:").unwrap_or(version);
        let text =
            |known: &Value, member: &str| known[member].as_str().unwrap_or_default().to_owned();
        let versions = || answer["component"]["versions"].as_array().into_iter().flatten();
        let numbered = versions().find(|known| text(known, "version") == version);
        if let Some(numbered) = numbered {
            return Ok(text(numbered, "digest"));
        }
        let begins = |digest: &String| {
            !hex.is_empty() && digest.trim_start_matches("sha256:").starts_with(hex)
        };
        let found: Vec<String> =
            versions().map(|known| text(known, "digest")).filter(begins).collect();
        match found.as_slice() {
            [digest] => Ok(digest.clone()),
            [] => anyhow::bail!(
                "{name} has no version {version}: `charter component list {name}` lists them"
            ),
            _ => anyhow::bail!(
                "several versions of {name} begin with {version}: `charter component list {name}` lists them"
            ),
        }
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let sent = Sent::new(method, format!("/v1/operator/components{path}"), self.token()?);
        self.target
            .send(match body {
                Some(body) => sent.json(&body),
                None => sent,
            })
            .await
    }
}

/// Does it.
pub(super) async fn run(verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Install { file, name, activate, agree, operator } => {
            install(&file, name, activate.then_some(agree), &operator).await
        }
        Verb::List { name: None, operator } => {
            let answer = operator.send(Method::GET, "", None).await?;
            for component in answer["components"].as_array().into_iter().flatten() {
                let active = &component["active"];
                let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
                say(&format!(
                    "{:<24} {:<12} {}",
                    text(&component["name"]),
                    text(&active["version"]),
                    text(&active["digest"])
                ));
            }
            Ok(())
        }
        Verb::List { name: Some(name), operator } => {
            let answer = operator.send(Method::GET, &format!("/{name}"), None).await?;
            for version in answer["component"]["versions"].as_array().into_iter().flatten() {
                show(version);
            }
            Ok(())
        }
        Verb::Activate { name, version, agree, operator } => {
            let digest = operator.digest(&name, &version).await?;
            let answer = operator
                .send(
                    Method::POST,
                    &format!("/{name}/activate"),
                    Some(json!({"digest": digest, "agree": agree})),
                )
                .await?;
            show(&answer["component"]);
            Ok(())
        }
        Verb::Rollback { name, operator } => {
            let answer =
                operator.send(Method::POST, &format!("/{name}/rollback"), Some(json!({}))).await?;
            show(&answer["component"]);
            Ok(())
        }
        Verb::Remove { name, version, operator } => {
            let digest = operator.digest(&name, &version).await?;
            operator.send(Method::DELETE, &format!("/{name}/{digest}"), None).await?;
            say(&format!("removed {name} {digest}"));
            Ok(())
        }
        Verb::Verify { file, key, signature } => verify(&file, &key, signature),
    }
}

async fn install(
    file: &Path,
    name: Option<String>,
    activate: Option<String>,
    operator: &Operator,
) -> anyhow::Result<()> {
    let bytes = tokio::fs::read(file)
        .await
        .with_context(|| format!("{} cannot be read", file.display()))?;
    let named = name.is_some();
    let name =
        name.or_else(|| name_of(file)).context("the file has no name: give one with --name")?;
    let query = activate
        .map(|agree| format!("?activate=true&agree={}", encode_query(&agree)))
        .unwrap_or_default();
    let mut sent =
        Sent::new(Method::PUT, format!("/v1/operator/components/{name}{query}"), operator.token()?);
    sent.headers.push((header::CONTENT_TYPE, "application/wasm".into()));
    if let Ok(signature) = tokio::fs::read_to_string(signature_path(file)).await {
        sent.headers
            .push((HeaderName::from_static("x-component-signature"), signature.trim().to_owned()));
    }
    sent.body = bytes.into();
    let answer = operator.target.send(sent).await.map_err(|error| {
        match error.downcast_ref::<Refused>() {
            Some(refused) if !named && refused.names("name") => {
                anyhow::anyhow!("{error}\n  the name came from the file's: give --name")
            }
            _ => error,
        }
    })?;
    let installed = &answer["component"];
    show(installed);
    if installed["state"] == "staged" {
        let version = installed["version"].as_str().unwrap_or_default();
        say(&format!("it does not serve yet: charter component activate {name} {version}"));
        for ask in installed["asks"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            say(&format!("  it asks for {ask}: agree with --agree"));
        }
    }
    Ok(())
}

/// A text as it stands in a query.
fn encode_query(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~*,/".contains(&byte);
    let one = |byte: u8| {
        if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(one).collect()
}

/// The primitive's name by its file's. Cargo writes `charter_address_book.wasm` for the crate of
/// `address-book`.
fn name_of(file: &Path) -> Option<String> {
    let stem = file.file_stem()?.to_str()?;
    Some(stem.strip_prefix("charter_").unwrap_or(stem).replace('_', "-"))
}

fn show(version: &Value) {
    let text = |name: &str| version[name].as_str().unwrap_or("-");
    say(&format!(
        "{:<24} {:<12} {:<12} {}",
        text("name"),
        text("version"),
        text("state"),
        text("digest")
    ));
}

fn signature_path(file: &Path) -> PathBuf {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".sig");
    beside.into()
}

fn verify(file: &Path, key: &str, signature_file: Option<PathBuf>) -> anyhow::Result<()> {
    let key = match std::fs::read_to_string(key) {
        Ok(text) => signature::public_key(&text)
            .with_context(|| format!("--key {key} holds no ed25519 public key"))?,
        Err(error) => signature::public_key(key).with_context(|| {
            format!(
                "--key {key} is neither a file ({error}) nor the base64 of an ed25519 public key"
            )
        })?,
    };
    let bytes =
        std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let at = signature_file.unwrap_or_else(|| signature_path(file));
    let signed = std::fs::read_to_string(&at)
        .with_context(|| format!("the signature {} cannot be read", at.display()))?;
    let digest: [u8; 32] = Sha256::digest(&bytes).into();
    match signature::check(&[key], &digest, Some(signed.trim())) {
        Ok(()) => {
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            say(&format!("good signature over sha256:{hex}"));
            Ok(())
        }
        Err(message) => Err(anyhow::anyhow!("{} {message}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_named_by_its_file() {
        for (file, name) in [
            ("a/notes.wasm", "notes"),
            ("charter_address_book.wasm", "address-book"),
            ("charter.wasm", "charter"),
        ] {
            assert_eq!(name_of(Path::new(file)).as_deref(), Some(name));
        }
    }
}
