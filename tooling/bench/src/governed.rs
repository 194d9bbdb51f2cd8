//! The cost of governing: top-ups that pass policy, caps and the ledger beside ungoverned durable
//! writes, a cap that all contend for beside caps of their own, and two replicas beside one.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result};
use charter_tests::postgres::Postgres;
use serde_json::{Value, json};

use crate::load::{self, Plan, Requests};
use crate::server::{OPERATOR, Server};
use crate::table::{Row, median};
use crate::tools::{Scratch, Tools};

const CONNECTIONS: usize = 64;
/// Clients of each replica: few enough that two replicas, their clients and PostgreSQL do not fill
/// two cores. Four of one replica's fill five sixths of them.
const REPLICA_CLIENTS: usize = 1;
/// Rounds in turns: what is compared was measured in the same minutes.
const ROUNDS: usize = 3;
/// The same, of replicas: how long a sync takes moves them more.
const REPLICA_ROUNDS: usize = 7;

/// An organization whose users have cards, and what each connection asks for.
struct Bed {
    key: String,
    organization: String,
    /// A user's header and card, one a connection.
    cards: Vec<(String, String)>,
    queues: Vec<String>,
}

fn text(value: &Value, path: &[&str]) -> Result<String> {
    let found = path.iter().fold(value, |value, name| &value[name]);
    found.as_str().map(str::to_owned).with_context(|| format!("no {} in {value}", path.join(".")))
}

impl Bed {
    async fn new(server: &Server, name: &str, connections: usize) -> Result<Self> {
        let body = json!({"email": format!("{name}@example.com"), "password": "correct horse battery staple"});
        let account = server.json("POST", "/v1/auth/register", "", Some(&body)).await?;
        let (key, organization) =
            (text(&account, &["api_key", "key"])?, text(&account, &["organization", "id"])?);
        let mut bed = Self { key, organization, cards: Vec::new(), queues: Vec::new() };
        let credit = json!({"organization_id": bed.organization, "amount_cents": 1_000_000_000, "memo": "to measure"});
        server.json("POST", "/v1/operator/credits", OPERATOR, Some(&credit)).await?;
        let kits = server.json("GET", "/v1/kits", &bed.key, None).await?;
        let kit = text(&kits["kits"][0], &["id"])?;
        let budget = json!({"budget": {"cap_cents": 900_000_000, "period": "month"}});
        server.json("PATCH", &format!("/v1/kits/{kit}"), &bed.key, Some(&budget)).await?;
        let rules: Vec<Value> = (0..20)
            .map(|n| json!({"id": format!("r{n}"), "effect": "require_approval", "actions": ["cards.*"], "when": {"amount_over_micro_usd": 1_000_000_000 + n}}))
            .collect();
        server
            .json("PUT", "/v1/governance/policy", &bed.key, Some(&json!({ "rules": rules })))
            .await?;
        for n in 0..connections {
            let user = server
                .json("POST", "/v1/users", &bed.key, Some(&json!({"name": format!("u{n}")})))
                .await?;
            let user = text(&user, &["user", "id"])?;
            let card = server
                .json("POST", &format!("/v1/users/{user}/cards"), &bed.key, Some(&json!({})))
                .await?;
            let queue = server
                .json(
                    "POST",
                    &format!("/v1/users/{user}/queue"),
                    &bed.key,
                    Some(&json!({"name": "q"})),
                )
                .await?;
            bed.queues.push(format!(
                "/v1/users/{user}/queue/{}/messages",
                text(&queue, &["queue", "id"])?
            ));
            bed.cards.push((user, text(&card, &["card", "id"])?));
        }
        Ok(bed)
    }

    fn top_up(&self, at: usize) -> Vec<u8> {
        let (user, card) = &self.cards[at];
        self.post(&format!("/v1/users/{user}/cards/{card}/top-up"), r#"{"amount_cents":1}"#)
    }

    fn post(&self, path: &str, body: &str) -> Vec<u8> {
        let authorization = format!("Bearer {}", self.key);
        load::request("POST", path, &[("authorization", &authorization)], Some(body))
    }

    /// Each connection tops up a card of its own.
    fn own_cards(&self) -> Requests {
        let all: Vec<_> = (0..self.cards.len()).map(|n| self.top_up(n)).collect();
        Arc::new(move |connection, _| all[connection % all.len()].clone())
    }

    /// The same, from the other end.
    fn other_cards(&self) -> Requests {
        let all: Vec<_> = (0..self.cards.len()).rev().map(|n| self.top_up(n)).collect();
        Arc::new(move |connection, _| all[connection % all.len()].clone())
    }

    /// All top up one card of one user.
    fn one_card(&self) -> Requests {
        load::repeat(self.top_up(0))
    }

    /// Each connection writes a message to a queue of its own.
    fn writes(&self) -> Requests {
        let body = r#"{"messages":[{"body":{"company":"Initech","employees":42}}]}"#;
        let all: Vec<_> = self.queues.iter().map(|path| self.post(path, body)).collect();
        Arc::new(move |connection, _| all[connection % all.len()].clone())
    }
}

async fn run(tools: &Tools, at: &Server, connections: usize, requests: Requests) -> Result<f64> {
    let plan = Plan {
        address: at.address.clone(),
        connections,
        duration: tools.pace.time(3.0),
        rate: None,
    };
    load::run(&plan, requests).await.rate()
}

/// The rows of this part.
pub async fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let scratch = Scratch::new(tools, "governed")?;
    let charter = tools.server(&scratch.0).await?;
    let connections = tools.pace.count(CONNECTIONS);
    let bed = Bed::new(&charter, "governed", connections).await?;
    let (mut writes, mut own, mut one) = (Vec::new(), Vec::new(), Vec::new());
    run(tools, &charter, connections, bed.writes()).await?;
    for _ in 0..tools.pace.count(ROUNDS) {
        writes.push(run(tools, &charter, connections, bed.writes()).await?);
        own.push(run(tools, &charter, connections, bed.own_cards()).await?);
        one.push(run(tools, &charter, connections, bed.one_card()).await?);
    }
    drop(charter);
    let (writes, own, one) = (median(writes), median(own), median(one));
    let mut rows = vec![
        Row::share("governed durable top-ups / ungoverned durable writes", own, writes, 0.5),
        Row::share("one cap that 64 clients contend for / caps of their own", one, own, 0.6),
    ];
    rows.push(replicas(tools).await?);
    Ok(rows)
}

/// A replica with one worker thread, so that the machine is not what is measured.
fn replica(tools: &Tools, data: &Path, database: &str) -> Result<Server> {
    std::fs::create_dir_all(data)?;
    let mut command = Command::new(&tools.charter);
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .arg("--components")
        .arg(&tools.components);
    command.args(["--database", database]);
    command
        .env("CHARTER_OPERATOR_TOKEN", OPERATOR)
        .env("CHARTER_TELEMETRY_LOG", "warn")
        .env("CHARTER_AUTH_REGISTRATIONS_PER_HOUR", "0")
        .env("TOKIO_WORKER_THREADS", "1");
    Server::start(command.stderr(Stdio::null()))
}

/// Two replicas beside one, on one PostgreSQL, within one organization.
async fn replicas(tools: &Tools) -> Result<Row> {
    let scratch = Scratch::new(tools, "replicas")?;
    let postgres =
        Postgres::durable("governed").map_err(anyhow::Error::msg).context("PostgreSQL")?;
    let database = postgres.database();
    let first = replica(tools, &scratch.0.join("first"), &database)?;
    first.reachable().await?;
    let bed = Bed::new(&first, "replicas", tools.pace.count(CONNECTIONS)).await?;
    // The second one has the same master key.
    std::fs::create_dir_all(scratch.0.join("second"))?;
    for entry in std::fs::read_dir(scratch.0.join("first"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), scratch.0.join("second").join(entry.file_name()))?;
        }
    }
    let second = replica(tools, &scratch.0.join("second"), &database)?;
    second.reachable().await?;
    let (mut alone, mut both) = (Vec::new(), Vec::new());
    let clients = REPLICA_CLIENTS;
    run(tools, &first, clients, bed.own_cards()).await?;
    run(tools, &second, clients, bed.own_cards()).await?;
    for _ in 0..tools.pace.count(REPLICA_ROUNDS) {
        alone.push(run(tools, &first, clients, bed.own_cards()).await?);
        let (one, two) = tokio::join!(
            run(tools, &first, clients, bed.own_cards()),
            run(tools, &second, clients, bed.other_cards()),
        );
        both.push(one? + two?);
    }
    Ok(Row::at_least(
        "two replicas / one, as many clients each, one organization",
        median(both),
        median(alone),
        1.5,
    ))
}
