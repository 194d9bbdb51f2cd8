//! `/v1/audit/*`: checkpoints, proofs and exports of the organization's audit log;
//! `/v1/operator/audit/*` of the deployment's own.

use charter_kernel::merkle;
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::FactKind;
use charter_store::Txn;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::shape::object;
use super::stored::reading;
use crate::app::App;
use crate::audit::export::Line;
use crate::audit::{Log, Sealed, text};
use crate::reply::Reply;
use crate::request::HostRequest;

/// Pieces of an export that wait for a slow reader.
const PIECES_MAX: usize = 4;

fn shown(log: &Log, sealed: &Sealed) -> Value {
    json!({
        "origin": log.origin(),
        "size": sealed.size,
        "signed_at": sealed.at,
        "note": sealed.note,
        "public_key": log.verifier().text(),
    })
}

fn checkpoint_schema() -> Value {
    let text = json!({"type": "string"});
    object(&[
        ("origin", text.clone()),
        ("size", json!({"type": "integer"})),
        ("signed_at", super::shape::instant()),
        ("note", text.clone()),
        ("public_key", text),
    ])
}

/// A checkpoint.
pub fn checkpoint_answer() -> Value {
    object(&[("checkpoint", checkpoint_schema())])
}

/// The query of a checkpoint.
pub fn checkpoint_query() -> Value {
    json!({"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}, "additionalProperties": false})
}

/// A proof.
pub fn proof_answer() -> Value {
    let hashes = json!({"type": "array", "items": {"type": "string"}});
    let proof = json!({"type": "object", "properties": {"hashes": hashes, "checkpoint": checkpoint_schema()}});
    object(&[("proof", proof)])
}

/// The query of a proof.
pub fn proof_query() -> Value {
    let number = json!({"type": "integer", "minimum": 1});
    let properties = json!({"seq": number, "from_size": number, "size": number});
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// The query of an export.
pub fn export_query() -> Value {
    json!({"type": "object", "properties": {"after": {"type": "integer", "minimum": 0}}, "additionalProperties": false})
}

fn log(app: &App, request: &HostRequest) -> Result<Log, Refusal> {
    request.audited().map(|organization| Log::of(&app.store, organization))
}

async fn sealed(log: &Log, request: &HostRequest) -> Result<Sealed, Refusal> {
    match request.query["size"].as_u64() {
        Some(size) => log.sealed_at(size).await,
        None => log.sealed().await,
    }
}

/// The signed checkpoint of all rows, or the one of a size.
///
/// # Errors
/// 404 where none of that size was signed.
pub async fn checkpoint(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let log = log(app, request)?;
    Ok(Reply::ok(&json!({ "checkpoint": shown(&log, &sealed(&log, request).await?) })))
}

/// That a row is in the log, or that the log only grew since a size.
///
/// # Errors
/// 400 unless one of `seq` and `from_size` is given, and lies within the checkpoint.
pub async fn proof(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let log = log(app, request)?;
    let (seq, from) = (request.query["seq"].as_u64(), request.query["from_size"].as_u64());
    let sealed = sealed(&log, request).await?;
    let within = |name: &str, value: u64| match value <= sealed.size {
        true => Ok(value),
        false => Err(Refusal::invalid(name, format!("the checkpoint is of {} rows", sealed.size))),
    };
    let mut proof = match (seq, from) {
        (Some(seq), None) => {
            let index = within("seq", seq)? - 1;
            let hashes = log.proof(&merkle::inclusion(index, sealed.size)).await?;
            let rows = app
                .store
                .facts(FactKind::Audit, request.audited()?, index, 1)
                .await
                .map_err(reading)?;
            let row = Line::of(rows.into_iter().next().ok_or_else(Refusal::internal)?);
            json!({ "row": row, "hashes": hashes.iter().map(text::base64).collect::<Vec<_>>() })
        }
        (None, Some(from)) => {
            let hashes =
                log.proof(&merkle::consistency(within("from_size", from)?, sealed.size)).await?;
            json!({ "from_size": from, "hashes": hashes.iter().map(text::base64).collect::<Vec<_>>() })
        }
        _ => return Err(Refusal::invalid("seq", "give either `seq` or `from_size`")),
    };
    proof["checkpoint"] = shown(&log, &sealed);
    Ok(Reply::ok(&json!({ "proof": proof })))
}

/// The whole log, or what came after so many rows, a line a row.
///
/// # Errors
/// 400 for more rows than there are, 429 where the organization has too many streams open.
pub async fn export(app: &App, request: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let log = log(app, request)?;
    let export = log.export(request.query["after"].as_u64().unwrap_or(0)).await?;
    // An export lasts as long as its reader: it takes a place among the organization's streams.
    let place = app.streams.take(request.audited()?, false);
    let place = place.ok_or_else(|| {
        Refusal::rate_limited(5).hint("Close streams that are not read before opening another.")
    })?;
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    app.tasks.spawn(export.write(sender, place));
    Ok(Reply::pieces("application/x-ndjson", pieces))
}
