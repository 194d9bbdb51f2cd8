//! The operator's settings: one struct a section, read from a TOML file, under the environment,
//! under flags.
//!
//! `CHARTER_<SECTION>_<KEY>` overrides `[section] key`, a flag overrides both. All faults are
//! reported at once, each by the key that the person wrote. Nothing outside this module reads the
//! environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use charter_adapters::mail::relay;
use charter_adapters::settings::{self as outside, Egress, Mail, Provider};
use charter_registry::settings::{Components, Primitives, Settings};
use charter_tenancy::secret::Secret;

mod access;
mod billing;
mod http;
mod mail;
mod sandbox;
mod setting;
mod source;
mod storage;
mod telemetry;

pub use access::{Auth, Operator, Rates, Registration};
pub use billing::Billing;
pub use http::{BODIES_SHARE, ClientField, Http, Tls};
pub use sandbox::{Engine, Jobs};
pub use source::{Entry, Fault};
pub use storage::{Data, Database, Retention};
pub use telemetry::{LogFormat, Telemetry};

use source::Source;

/// Everything that can be set.
#[derive(Clone, Debug)]
pub struct Config {
    /// The public listener and its limits.
    pub http: Http,
    /// TLS, where configured.
    pub tls: Option<Tls>,
    /// The data directory and the key file.
    pub data: Data,
    /// The database.
    pub database: Database,
    /// The sandbox's limits.
    pub engine: Engine,
    /// The sources of components, and the trusted signers.
    pub components: Components,
    /// Durable work.
    pub jobs: Jobs,
    /// Registration, sessions and keys.
    pub auth: Auth,
    /// Token buckets.
    pub rates: Rates,
    /// The destinations of outbound requests beyond the public internet.
    pub egress: Egress,
    /// The operator's own door.
    pub operator: Operator,
    /// Bindings by name, from the file and the environment.
    pub providers: BTreeMap<String, Provider>,
    /// The settings of primitives.
    pub primitives: Primitives,
    /// The host's own mail.
    pub mail: Mail,
    /// The biller, and whether anything is stopped for unpaid bills.
    pub billing: Billing,
    /// Logs and traces.
    pub telemetry: Telemetry,
    /// How long things are kept.
    pub retention: Retention,
}

/// The layers before they are read.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// The file's text, and its path for messages.
    pub file: Option<(PathBuf, String)>,
    /// The process's environment.
    pub environment: Vec<(String, String)>,
    /// `section.key`, the flag as typed, and its text.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

impl Config {
    /// Reads all layers, or says everything that is wrong with them.
    pub fn read(layers: Layers) -> Result<Self, Vec<Fault>> {
        let (config, mut source) = Self::gather(layers)?;
        source.finish();
        if source.faults.is_empty() { Ok(config) } else { Err(source.faults) }
    }

    /// Every setting with its default and meaning.
    pub fn reference() -> Vec<Entry> {
        match Self::gather(Layers::default()) {
            Ok((_, source)) => source.entries,
            Err(_) => Vec::new(),
        }
    }

    /// The settings of the adapters.
    pub fn outside(&self) -> outside::Settings {
        outside::Settings {
            egress: self.egress.clone(),
            mail: self.mail.clone(),
            public_url: self.http.public_url.clone(),
            tls: self.tls.is_some(),
        }
    }

    /// The settings of the registry of components.
    pub fn registry(&self) -> Settings {
        Settings {
            components: self.components.clone(),
            primitives: self.primitives.clone(),
            resident_ms: self.engine.resident_ms,
        }
    }

    fn gather(layers: Layers) -> Result<(Self, Source), Vec<Fault>> {
        let table = match &layers.file {
            None => toml::Table::new(),
            Some((path, text)) => text.parse().map_err(|fault| vec![not_toml(path, &fault)])?,
        };
        let mut source = Source::new(table, layers.environment, layers.flags);
        let config = Self {
            http: Http::read(source.section("http")),
            tls: Tls::read(source.section("tls")),
            data: Data::read(source.section("data")),
            database: Database::read(source.section("database")),
            engine: Engine::read(source.section("engine")),
            components: sandbox::components(source.section("components")),
            jobs: Jobs::read(source.section("jobs")),
            auth: Auth::read(source.section("auth")),
            rates: Rates::read(source.section("rates")),
            egress: sandbox::egress(source.section("egress")),
            operator: Operator::read(source.section("operator")),
            mail: mail::read(source.section("mail")),
            billing: Billing::read(source.section("billing")),
            telemetry: Telemetry::read(source.section("telemetry")),
            retention: Retention::read(source.section("retention")),
            providers: sandbox::providers(&mut source),
            primitives: Primitives::new(source.tables("primitives")),
        };
        config.check(&mut source);
        Ok((config, source))
    }
}

impl Config {
    /// Checks the rules that no section sees by itself.
    fn check(&self, source: &mut Source) {
        if self.providers.contains_key(relay::BINDING) && !self.http.has_base() {
            source.fault(
                "http.public_url",
                "is missing: a mail relay is bound, and the links in its mails have to lead somewhere",
            );
        }
    }
}

fn not_toml(path: &Path, fault: &toml::de::Error) -> Fault {
    Fault {
        key: path.display().to_string(),
        message: format!("is not valid TOML: {}", fault.to_string().trim_end()),
    }
}

#[cfg(test)]
mod tests;
