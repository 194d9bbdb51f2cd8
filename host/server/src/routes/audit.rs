//! `/v1/audit/*`: checkpoints, proofs and exports of the organization's audit log;
//! `/v1/operator/audit/*` of the deployment's own.

use std::sync::Arc;

use charter_governance::audit::export::{Fill, Line};
use charter_governance::audit::{Log, Sealed, text};
use charter_kernel::authority::Class;
use charter_kernel::merkle;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::time::Instant;
use charter_kernel::unit::FactKind;
use charter_store::Txn;
use charter_tenancy::identity::Identity;
use charter_tenancy::stored::reading;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::shape::Optional;
use crate::app::App;
use crate::bounds::holder::Holder;
use crate::handler;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::route::{HostRoute, Walk};
use crate::serve::{Answer, Params};

/// Pieces of an export that wait for a slow reader: what waits is shown also where its credential has
/// ended meanwhile.
const PIECES_MAX: usize = 1;

/// The rows of proofs: of an organization's log, and of the deployment's own.
pub fn routes() -> Vec<HostRoute> {
    let checkpoint = HostRoute::get(
        Class::OrganizationRead,
        "audit.checkpoint",
        "/audit/checkpoint",
        handler!(get_checkpoint),
    )
    .summary("The signed checkpoint of the audit log")
    .refuses(&[Code::ResourceNotFound]);
    let proof =
        HostRoute::get(Class::OrganizationRead, "audit.proof", "/audit/proof", handler!(get_proof))
            .walk(Walk::All)
            .summary("Proof that a row is in the audit log, or that the log only grew")
            .refuses(&[Code::ResourceNotFound]);
    let export = HostRoute::get(
        Class::OrganizationRead,
        "audit.export",
        "/audit/export",
        handler!(export_log),
    )
    .summary("The audit log, a line of JSON a row, for `charter audit verify`")
    .produces("application/x-ndjson");
    vec![
        checkpoint,
        proof,
        export,
        checkpoint.for_operator("operator.audit.checkpoint"),
        proof.for_operator("operator.audit.proof"),
        export.for_operator("operator.audit.export"),
    ]
}

/// The query of a checkpoint.
#[derive(Deserialize, JsonSchema)]
pub struct CheckpointQuery {
    /// The checkpoint of so many rows; the latest where absent.
    #[schemars(range(min = 1))]
    size: Optional<u64>,
}

/// The query of a proof: either `seq` or `from_size`.
#[derive(Deserialize, JsonSchema)]
pub struct ProofQuery {
    /// The row that is to be in the log.
    #[schemars(range(min = 1))]
    seq: Optional<u64>,
    /// The size from which the log is to have grown.
    #[schemars(range(min = 1))]
    from_size: Optional<u64>,
    /// The checkpoint of so many rows; the latest where absent.
    #[schemars(range(min = 1))]
    size: Optional<u64>,
}

/// The query of an export.
#[derive(Deserialize, JsonSchema)]
pub struct ExportQuery {
    /// How many rows the reader has already.
    after: Optional<u64>,
}

/// A signed statement of the log's size and root.
#[derive(Serialize, JsonSchema)]
struct Checkpoint {
    /// The log's name.
    origin: String,
    /// How many rows it is of.
    size: u64,
    /// The moment of its signature.
    signed_at: Instant,
    /// The signed note (C2SP tlog-checkpoint).
    note: String,
    /// The key that verifies it.
    public_key: String,
}

impl Checkpoint {
    fn of(log: &Log, sealed: Sealed) -> Self {
        Self {
            origin: log.origin(),
            size: sealed.size,
            signed_at: sealed.at,
            note: sealed.note,
            public_key: log.verifier().text(),
        }
    }
}

/// A checkpoint.
#[derive(Serialize, JsonSchema)]
pub struct CheckpointAnswer {
    checkpoint: Checkpoint,
}

/// The hashes that lead from a row, or from a smaller log, to the root of a checkpoint.
#[derive(Serialize, JsonSchema)]
struct Proof {
    /// The row that is in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map<String, Value>")]
    row: Option<Line>,
    /// The size that the log has grown from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    from_size: Option<u64>,
    /// The hashes, base64.
    hashes: Vec<String>,
    checkpoint: Checkpoint,
}

/// A proof.
#[derive(Serialize, JsonSchema)]
pub struct ProofAnswer {
    proof: Proof,
}

fn log(app: &App, request: &HostRequest) -> Result<Log, Refusal> {
    request.audit_organization().map(|organization| Log::of(&app.store, organization))
}

async fn find_checkpoint(log: &Log, size: Option<u64>) -> Result<Sealed, Refusal> {
    match size {
        Some(size) => log.checkpoint_at(size).await,
        None => log.checkpoint().await,
    }
}

/// The signed checkpoint of all rows, or the one of a size.
///
/// # Errors
/// 404 where none of that size was signed.
pub async fn get_checkpoint(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
    Params(asked): Params<CheckpointQuery>,
) -> Result<Answer<CheckpointAnswer>, Refusal> {
    let log = log(app, request)?;
    let sealed = find_checkpoint(&log, asked.size.0).await?;
    Ok(Answer::of(&CheckpointAnswer { checkpoint: Checkpoint::of(&log, sealed) }))
}

/// That a row is in the log, or that the log only grew since a size.
///
/// # Errors
/// 400 unless one of `seq` and `from_size` is given, and lies within the checkpoint.
pub async fn get_proof(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
    Params(asked): Params<ProofQuery>,
) -> Result<Answer<ProofAnswer>, Refusal> {
    let log = log(app, request)?;
    let (seq, from) = (asked.seq.0, asked.from_size.0);
    let sealed = find_checkpoint(&log, asked.size.0).await?;
    let within = |name: &str, value: u64| match value <= sealed.size {
        true => Ok(value),
        false => Err(Refusal::invalid(name, format!("the checkpoint is of {} rows", sealed.size))),
    };
    let (row, hashes) = match (seq, from) {
        (Some(seq), None) => {
            let index = within("seq", seq)? - 1;
            let hashes = log.proof(&merkle::inclusion(index, sealed.size)).await?;
            let rows = app
                .store
                .facts(FactKind::Audit, request.audit_organization()?, index, 1)
                .await
                .map_err(reading)?;
            let row = Line::of(rows.into_iter().next().ok_or_else(Refusal::internal)?);
            (Some(row), hashes)
        }
        (None, Some(from)) => {
            let hashes =
                log.proof(&merkle::consistency(within("from_size", from)?, sealed.size)).await?;
            (None, hashes)
        }
        _ => return Err(Refusal::invalid("seq", "give either `seq` or `from_size`")),
    };
    let hashes = hashes.iter().map(text::base64).collect();
    let proof = Proof { row, from_size: from, hashes, checkpoint: Checkpoint::of(&log, sealed) };
    Ok(Answer::of(&ProofAnswer { proof }))
}

/// The whole log, or what came after so many rows, a line a row.
///
/// # Errors
/// 400 for more rows than there are, 429 where the organization has too many streams open.
pub async fn export_log(
    app: &App,
    request: &HostRequest,
    _: &mut Txn,
    Params(asked): Params<ExportQuery>,
) -> Result<Reply, Refusal> {
    let log = log(app, request)?;
    let export = log.export(asked.after.0.unwrap_or(0)).await?;
    // An export lasts as long as its reader: it takes a place among the organization's streams.
    let holder = Holder::of(&request.identity);
    let place = app.bounds.streams.take(request.audit_organization()?, &holder);
    let place = place.ok_or_else(|| {
        Refusal::rate_limited(5).hint("Close streams that are not read before opening another.")
    })?;
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    let room = move || -> BoxFuture<'static, Fill> {
        let place = place.clone();
        Box::pin(async move {
            let room = place.room().await;
            Box::new(move |text| room.fill(text)) as Fill
        })
    };
    app.tasks.spawn(export.write(sender, ask_anew(app, &request.identity), room));
    Ok(Reply::pieces("application/x-ndjson", pieces))
}

/// Asks whether a credential counts, at each call of what it answers.
fn ask_anew(
    app: &App,
    identity: &Identity,
) -> impl Fn() -> BoxFuture<'static, bool> + Send + Sync + use<> {
    let asked = Arc::new((app.directory.clone(), identity.clone(), identity.guards()));
    move || -> BoxFuture<'static, bool> {
        let asked = asked.clone();
        Box::pin(async move {
            let (directory, identity, guards) = &*asked;
            identity.lets_go_on(directory, guards).await
        })
    }
}
