//! The host's reports to its operator.

use super::source::Section;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// `[telemetry]`
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// The lines to write: `info`, `charter_server=debug,info`, ….
    pub log: String,
    /// How they look.
    pub log_format: LogFormat,
    /// An OTLP/HTTP collector that spans go to.
    pub otlp_endpoint: Option<String>,
    /// The part of the requests that is traced, 0–1.
    pub sample: f64,
}

impl Telemetry {
    pub(super) fn read(mut of: Section<'_>) -> Self {
        let log: String = of.take(
            "log",
            "info".to_owned(),
            "which lines are logged: error, warn, info, debug, or per module",
        );
        if log.parse::<tracing_subscriber::filter::Targets>().is_err() {
            of.fault("log", "is no filter such as info or charter_server=debug,info");
        }
        let sample: f64 = of.take("sample", 1.0, "part of the requests that is traced, 0 to 1");
        if sample > 1.0 {
            of.fault("sample", "must be from 0 to 1");
        }
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        let otlp_endpoint: Option<String> = of.optional(
            "otlp_endpoint",
            "an OTLP/HTTP collector that spans go to, such as http://localhost:4318",
        );
        if otlp_endpoint.as_deref().is_some_and(|url| !charter_adapters::providers::is_address(url))
        {
            of.fault("otlp_endpoint", "must be an http or https address");
        }
        Self {
            log,
            log_format: of
                .choice("log_format", &formats, "text or json")
                .unwrap_or(LogFormat::Text),
            otlp_endpoint,
            sample,
        }
    }
}
