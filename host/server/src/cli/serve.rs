//! `charter serve`: puts the parts together, serves, and takes them apart in order.

use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use charter_adapters::Adapters;
use charter_adapters::providers::Providers;
use charter_engine::{AdmissionConfig, Engine, EngineConfig};
use charter_governance::sums::Sums;
use charter_governance::{Governance, approvals};
use charter_kernel::limits::DEADLINE_MS_MAX;
use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::Space;
use charter_registry::components::Registry;
use charter_registry::components::watch::Folder;
use charter_store::{FolderLock, Store, StoreConfig, StoreStatus};
use charter_tenancy::directory::Directory;
use charter_tenancy::operator::Operator;
use charter_tenancy::secret::Secret;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{files, offline, say};
use crate::app::App;
use crate::bounds::Bounds;
use crate::config::Config;
use crate::description::Description;
use crate::http::drain::Drain;
use crate::http::{Answer, Door, Listener, Serving, tls};
use crate::metrics::Metrics;
use crate::pipeline::{self, guests};
use crate::table::{self, HostTable};
use crate::{routes, telemetry, workers};

/// How long the database gets for a farewell, however short the drain is.
const LEAVE_MIN: Duration = Duration::from_millis(500);

/// The machine's clock: the one place where it is read.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that everybody else is handed"
    )]
    fn now(&self) -> Instant {
        let since =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Instant(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A host that serves.
pub struct Running {
    /// Everything that requests share.
    pub app: Arc<App>,
    /// The address of the API.
    pub address: SocketAddr,
    /// The address of the operator's routes, if they have their own.
    pub operator_address: Option<SocketAddr>,
    /// The operator's token, where it was made just now.
    pub token: Option<Secret>,
    listeners: Vec<JoinHandle<()>>,
    /// Keeps another host off the embedded database.
    _hold: FolderLock,
}

/// The store's settings.
pub(super) fn store_config(config: &Config, clock: Arc<dyn Clock>) -> StoreConfig {
    let mut store = StoreConfig::new(&config.data.dir, clock);
    store.url = config.database.url.as_ref().map(|url| url.reveal().to_owned()).unwrap_or_default();
    store.key_file = config.data.key_file.clone();
    store.database_time = true;
    store.readers = config.database.readers;
    store.lanes = config.database.lanes;
    store.queue_units_max = config.database.queue_max;
    store.size_bytes_max = Some(config.database.file_bytes_max).filter(|bytes| *bytes > 0);
    store.quiet_spaces.push(Space::host("replicas"));
    store.quiet_spaces.push(charter_tenancy::records::erasure::Erasure::all());
    store
}

fn engine_config(config: &Config) -> EngineConfig {
    let engine = &config.engine;
    EngineConfig {
        cache_dir: Some(config.data.code_cache()),
        cache_bytes_max: engine.cache_bytes_max,
        instances_max: engine.instances_max,
        guest_memory_bytes_max: engine.memory_bytes_max,
        cpu_ms_max: engine.compute_ms_max,
        component_bytes_max: engine.component_bytes_max,
        compilations_max: engine.compilations_max,
        jobs_waiting_max: config.jobs.waiting_max,
        schedules_max: config.jobs.schedules_max,
        admission: AdmissionConfig {
            short_max: engine.short_calls_max,
            long_max: engine.long_calls_max,
            tenant_max: engine.tenant_calls_max,
            primitive_max: engine.primitive_calls_max,
            queue_max: engine.queue_max,
            wait_ms_max: engine.queue_ms_max,
            bytes_max: engine.total_bytes_max,
            ..AdmissionConfig::default()
        },
        ..EngineConfig::default()
    }
}

/// The files of a data directory.
const OURS: [&str; 8] = [
    "charter.db",
    "charter.db.new",
    "charter.db-wal",
    "charter.db-shm",
    "charter.ballast",
    "charter.lock",
    "master.key",
    "code",
];

/// Makes the data directory, or makes the one that is there ours alone, unless it holds other
/// things too.
fn data_dir(dir: &Path) -> anyhow::Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.with_context(|| format!("the data directory {} cannot be made (--data)", dir.display()))?;
    check_data_dir(dir)?;
    let is_ours = || {
        let mut names = std::fs::read_dir(dir).ok()?.map(|entry| Some(entry.ok()?.file_name()));
        Some(names.all(|name| name.is_some_and(|name| OURS.iter().any(|ours| name == *ours))))
    };
    let mode = std::fs::metadata(dir).map_or(0, |metadata| metadata.permissions().mode() & 0o077);
    if mode != 0 && is_ours() == Some(true) {
        let closed = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700));
        closed.with_context(|| {
            format!("the data directory {} can be read by others; chmod 700 it", dir.display())
        })?;
    }
    Ok(())
}

/// Refuses a data directory that others may write to.
pub(super) fn check_data_dir(dir: &Path) -> anyhow::Result<()> {
    let mode = std::fs::metadata(dir).map(|metadata| metadata.permissions().mode() & 0o777);
    if mode.is_ok_and(|mode| mode & 0o022 != 0) {
        anyhow::bail!(
            "the data directory {} can be written by others; chmod 700 it",
            dir.display()
        );
    }
    Ok(())
}

/// Starts a host: everything is ready when this returns.
///
/// # Errors
/// The fault that keeps it from starting, in words for the operator.
pub async fn start(mut config: Config, clock: Arc<dyn Clock>) -> anyhow::Result<Running> {
    data_dir(&config.data.dir)?;
    // Each listener has as many.
    let listeners = 1 + usize::from(config.operator.listen.is_some());
    let wanted = config.http.connections_max.saturating_mul(listeners);
    config.http.connections_max = (files::fit(wanted) / listeners).max(1);
    let settings = store_config(&config, clock);
    let hold = Store::hold(&settings).map_err(offline::explain_open_error)?;
    let store = Store::open(settings).await.map_err(offline::explain_open_error)?;
    let (operator, token) = Operator::open(store.clone(), config.operator.token.as_ref()).await?;
    let acceptor =
        config.tls.as_ref().map(tls::acceptor).transpose().context("TLS cannot be set up")?;
    let app = assemble(config, store, operator).await?;
    gauges(&app);
    app.registry.refresh().await.context("the installed components cannot be read")?;
    let folder = folder(&app).await?;
    settings_fit(&app)?;
    let door = if app.config.operator.listen.is_some() { Door::Public } else { Door::Both };
    let listen = app.config.http.listen;
    let public = Listener::bind(listen, acceptor.clone(), door).await;
    let public = public.with_context(|| format!("{listen} cannot be listened on (--listen)"))?;
    let address = public.address()?;
    let own = match app.config.operator.listen {
        None => None,
        Some(listen) => {
            let own = Listener::bind(listen, acceptor, Door::Operator).await;
            Some(own.with_context(|| format!("{listen} cannot be listened on (operator.listen)"))?)
        }
    };
    let operator_address = own.as_ref().map(Listener::address).transpose()?;
    guests::attach(&app, std::iter::once(address).chain(operator_address).collect());
    let serving = serving(&app);
    let mut running = Running {
        app: app.clone(),
        address,
        operator_address,
        token,
        listeners: Vec::new(),
        _hold: hold,
    };
    running.listeners.extend(own.map(|own| tokio::spawn(own.serve(serving.clone()))));
    running.listeners.push(tokio::spawn(public.serve(serving)));
    workers::start(&app, folder);
    Ok(running)
}

/// Makes the parts of a host, each of those that it needs.
async fn assemble(config: Config, store: Store, operator: Operator) -> anyhow::Result<Arc<App>> {
    // From here on the deployment's, which all replicas share.
    let clock = store.clock();
    let engine = Engine::new(engine_config(&config), store.clone(), clock.clone())
        .context("the sandbox cannot be started")?;
    let registry = Registry::new(
        store.clone(),
        engine.clone(),
        config.registry(),
        table::reserved_paths(&routes::all()),
        clock.clone(),
    );
    let providers = Providers::open(store.clone(), &config.providers)
        .await
        .context("the bindings cannot be read")?;
    let adapters = Arc::new(Adapters::new(store.clone(), providers, config.outside()));
    let directory = Directory::new(store.clone(), clock.clone(), config.auth.hashes_max)
        .context("passwords cannot be checked on this machine")?;
    let governance = Arc::new(Governance {
        store: store.clone(),
        directory: directory.clone(),
        registry: registry.clone(),
        notices: adapters.clone(),
        biller: config.billing.primitive.clone(),
        approvals_waiting_max: approvals::WAITING_MAX,
        sums: Sums::default().beside_calls_of(config.jobs.deadline_ms.max(DEADLINE_MS_MAX)),
        clock: clock.clone(),
    });
    let table = HostTable::new(routes::all())
        .map_err(|faults| anyhow::anyhow!("the host's own routes are at fault: {faults:?}"))?;
    Ok(Arc::new(App {
        cursor_key: store.derive("cursors"),
        fingerprint_key: store.derive("fingerprints"),
        bounds: Bounds::new(&config),
        hooks: Default::default(),
        routes: table,
        description: Description::default(),
        metrics: Metrics::new(),
        started_at: clock.now(),
        draining: CancellationToken::new(),
        cut: CancellationToken::new(),
        tasks: TaskTracker::new(),
        config,
        store,
        engine,
        directory,
        registry,
        operator,
        governance,
        adapters,
        clock,
    }))
}

/// The service of the listeners: each request goes down the pipeline.
fn serving(app: &Arc<App>) -> Serving {
    let own = app.clone();
    let answer: Answer =
        Arc::new(move |peer, request| Box::pin(pipeline::handle(own.clone(), peer, request)));
    Serving {
        limits: Arc::new(app.config.http.clone()),
        metrics: app.metrics.clone(),
        draining: app.draining.clone(),
        answer,
    }
}

/// Refuses to start under settings that the versions which serve do not take.
fn settings_fit(app: &App) -> anyhow::Result<()> {
    let faults = app.registry.settings_faults();
    let told: String = faults.iter().map(|fault| format!("\n  {fault}")).collect();
    anyhow::ensure!(faults.is_empty(), "what is set of primitives does not fit them:{told}");
    Ok(())
}

/// The watched folder, its first visit made.
async fn folder(app: &Arc<App>) -> anyhow::Result<Option<Folder>> {
    let Some(dir) = app.config.components.dir.clone() else { return Ok(None) };
    let mut folder = Folder::new(dir.clone(), app.config.engine.component_bytes_max);
    let first = folder.first(&app.registry).await;
    first.with_context(|| {
        format!("the components folder {} cannot be read (--components)", dir.display())
    })?;
    Ok(Some(folder))
}

fn gauges(app: &Arc<App>) {
    app.metrics.engine(app.engine.clone());
    app.hooks.show(&app.metrics);
    let registry = app.registry.clone();
    let read = move || registry.step_backs() as f64;
    app.metrics.gauge(
        "components_stepped_back",
        "Times the breaker of this replica stepped a component back",
        read,
    );
    let registry = app.registry.clone();
    app.metrics.gauge("components_live", "Primitives that are served", move || {
        registry.current().primitives().count() as f64
    });
    type Read = fn(StoreStatus) -> f64;
    let shown: [(&'static str, &'static str, Read); 4] = [
        ("store_queued_units", "Units that wait for the committers", |status| {
            status.queued_units as f64
        }),
        ("store_units", "Units that the committers of this replica have committed", |status| {
            status.units as f64
        }),
        ("store_batches", "Batches that they were committed in", |status| status.batches as f64),
        ("store_retries", "Batches run again because another committer came first", |status| {
            status.retries as f64
        }),
    ];
    for (name, help, read) in shown {
        let store = app.store.clone();
        app.metrics.gauge(name, help, move || read(store.status()));
    }
    let room = app.bounds.room.clone();
    app.metrics.gauge("request_body_bytes", "Bytes of request bodies that are held", move || {
        room.bytes() as f64
    });
    let answers = app.bounds.answers.clone();
    app.metrics.gauge("answer_body_bytes", "Bytes of answers that are not read yet", move || {
        answers.bytes() as f64
    });
    let store = app.store.clone();
    app.metrics.gauge("store_read_only", "1 while no mutations are taken", move || {
        f64::from(u8::from(store.status().read_only.is_some()))
    });
    let fallen_back = app.engine.mode() != "pooling";
    app.metrics.gauge(
        "sandbox_fallback",
        "1 where instances are not pooled as they should be",
        move || f64::from(u8::from(fallen_back)),
    );
}

impl Running {
    /// Lets what is in flight finish, as far as it does in the configured time: calls that do not
    /// are cut, and what they were asked is answered so. Jobs that were cut go back.
    pub async fn stop(self) {
        let drain = Drain::of(self.app.config.http.drain_ms);
        let began = tokio::time::Instant::now();
        self.app.draining.cancel();
        let app = self.app.clone();
        let cutting = tokio::spawn(async move {
            tokio::time::sleep_until(began + drain.cut).await;
            app.cut.cancel();
            app.engine.cut();
        });
        for listener in self.listeners {
            let _ = listener.await;
        }
        self.app.tasks.close();
        if tokio::time::timeout_at(began + drain.left, self.app.tasks.wait()).await.is_err() {
            tracing::warn!(
                left = self.app.tasks.len(),
                "background work did not end in time; it is taken up by the next start"
            );
        }
        cutting.abort();
        let leave = async {
            self.app.registry.leave().await;
            self.app.store.close().await;
        };
        let over = (began + drain.over).max(tokio::time::Instant::now() + LEAVE_MIN);
        if tokio::time::timeout_at(over, leave).await.is_err() {
            tracing::warn!(
                "the database was not left in time; this host's place in it ends by itself"
            );
        }
    }
}

/// Serves until SIGTERM or SIGINT.
pub(super) async fn run(config: Config) -> anyhow::Result<()> {
    let tracing = telemetry::install(&config.telemetry).context("telemetry cannot be set up")?;
    let mut signals = Signals::new()?;
    let running = start(config, Arc::new(SystemClock)).await?;
    welcome(&running);
    let signal = signals.wait().await;
    tracing::info!(signal, "draining");
    let stopping = running.stop();
    tokio::select! {
        () = stopping => tracing::info!("stopped"),
        signal = signals.wait() => tracing::warn!(signal, "told to stop again: leaving at once"),
    }
    tracing.close().await;
    Ok(())
}

/// The first line is the address, for programs; the rest is for a person.
fn welcome(running: &Running) {
    let scheme = if running.app.config.tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", running.address);
    say(&format!("listening on {url}"));
    if let Some(address) = running.operator_address {
        say(&format!("operator on {scheme}://{address}"));
    }
    if let Some(token) = &running.token {
        say(&format!("operator token (shown once; keep it): {}", token.reveal()));
    }
    let live = running.app.registry.current();
    let names: Vec<&str> = live.primitives().map(|primitive| primitive.name.as_str()).collect();
    match names.as_slice() {
        [] => {
            say("no components yet: charter component install FILE, or start with --components DIR")
        }
        names => say(&format!("serving {}", names.join(", "))),
    }
    say(&format!("next: curl {url}/register.md"));
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
