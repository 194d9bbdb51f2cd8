//! A budget that admits seven, asked for by two hundred clients at once: how many come through,
//! here and at LiteLLM's proxy, whose budget is kept in its memory. Its model is one that it
//! answers itself, with a price.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::load;
use crate::server::OPERATOR;
use crate::table::Row;
use crate::tools::{Scratch, Tools};

const CLIENTS: usize = 200;
const ADMITTED: usize = 7;
const MASTER_KEY: &str = "sk-0f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f1a";
/// Thirty tokens at five cents are a dollar and a half; seven of them are the budget.
const CONFIG: &str = r#"
model_list:
  - model_name: priced
    litellm_params:
      model: openai/priced
      api_key: none
      mock_response: "four words of answer"
      input_cost_per_token: 0.05
      output_cost_per_token: 0.05
router_settings:
  provider_budget_config:
    openai: {budget_limit: 10.5, time_period: 1d}
general_settings:
  master_key: MASTER_KEY
"#;

/// The rows of this part.
pub async fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let ours = charter(tools).await?;
    let theirs = match &tools.litellm {
        Some(folder) => Some(litellm(tools, folder).await?),
        None => None,
    };
    let row = |name, admitted: usize, target: &str| Row {
        name,
        figure: format!("{admitted} of {CLIENTS}"),
        target: target.into(),
        reached: admitted == ADMITTED,
        detail: format!("the budget admits {ADMITTED}"),
    };
    let name = "a budget race: admitted by LiteLLM's proxy, budget in memory";
    let theirs = theirs.map(|admitted| row(name, admitted, "(7)"));
    Ok([row("a budget race: admitted by Charter", ours, "7")].into_iter().chain(theirs).collect())
}

/// Sends one request from each client at once, and counts what was answered 200.
async fn race(address: &str, request: &[u8]) -> Result<usize> {
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let (address, request) = (address.to_owned(), request.to_vec());
        clients.spawn(async move {
            load::exchange(&address, &mut None, &request, &mut Vec::new()).await
        });
    }
    let statuses: Result<Vec<u16>> = clients.join_all().await.into_iter().collect();
    Ok(statuses?.into_iter().filter(|status| *status == 200).count())
}

async fn charter(tools: &Tools) -> Result<usize> {
    let scratch = Scratch::new(tools, "race")?;
    let server = tools.server(&scratch.0).await?;
    let body = json!({"email": "race@example.com", "password": "correct horse battery staple"});
    let account = server.json("POST", "/v1/auth/register", "", Some(&body)).await?;
    let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
    let key = text(&account["api_key"]["key"])?;
    let credit = json!({"organization_id": account["organization"]["id"], "amount_cents": 1_000_000, "memo": "to race"});
    server.json("POST", "/v1/operator/credits", OPERATOR, Some(&credit)).await?;
    let kits = server.json("GET", "/v1/kits", &key, None).await?;
    let budget = json!({"budget": {"cap_cents": 150 * ADMITTED, "period": "month", "hard": true}});
    server
        .json("PATCH", &format!("/v1/kits/{}", text(&kits["kits"][0]["id"])?), &key, Some(&budget))
        .await?;
    let card = server.json("POST", "/v1/cards", &key, Some(&json!({}))).await?;
    let path = format!("/v1/cards/{}/top-up", text(&card["card"]["id"])?);
    let authorization = format!("Bearer {key}");
    let headers = [("authorization", authorization.as_str())];
    race(&server.address, &load::request("POST", &path, &headers, Some(r#"{"amount_cents":150}"#)))
        .await
}

/// A process that ends with its handle.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

async fn litellm(tools: &Tools, folder: &Path) -> Result<usize> {
    let scratch = Scratch::new(tools, "litellm")?;
    let config = scratch.0.join("config.yaml");
    std::fs::write(&config, CONFIG.replace("MASTER_KEY", MASTER_KEY))?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let _proxy = start(folder, &config, port)?;
    let address = format!("127.0.0.1:{port}");
    ready(&address).await?;
    let authorization = format!("Bearer {MASTER_KEY}");
    let body = json!({"model": "priced", "messages": [{"role": "user", "content": "as many words as cost something"}]});
    let headers = [("authorization", authorization.as_str())];
    race(
        &address,
        &load::request("POST", "/v1/chat/completions", &headers, Some(&body.to_string())),
    )
    .await
}

fn start(folder: &Path, config: &Path, port: u16) -> Result<Ended> {
    let mut command = Command::new(folder.join("litellm"));
    command.arg("--config").arg(config).args(["--host", "127.0.0.1", "--port", &port.to_string()]);
    command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Ended(command.spawn().with_context(|| format!("start {command:?}"))?))
}

async fn ready(address: &str) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(120);
    let alive = load::request("GET", "/health/liveliness", &[], None);
    while !matches!(load::exchange(address, &mut None, &alive, &mut Vec::new()).await, Ok(200)) {
        if Instant::now() > until {
            bail!("LiteLLM's proxy does not answer");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
