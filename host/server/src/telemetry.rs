//! Logs and, when configured, spans to an OTLP collector.
//!
//! One subscriber for the process. Log lines go to standard error, so that standard output stays
//! the operator's (the first line there is the address). Every line within a request carries its
//! id.

use charter_kernel::line::one_line;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::runtime;
use opentelemetry_sdk::trace::span_processor_with_async_runtime::BatchSpanProcessor;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry};

use crate::config::{LogFormat, Telemetry};

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The collector's address or the exporter's settings.
    #[error("spans cannot be exported")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    /// Another subscriber is installed already.
    #[error("logging is already set up in this process")]
    Installed(#[from] tracing_subscriber::util::TryInitError),
}

/// Spans that still have to leave; flushed by [`Tracing::close`].
#[must_use]
#[derive(Debug)]
pub struct Tracing {
    provider: Option<SdkTracerProvider>,
}

impl Tracing {
    /// Sends what has not been sent, for a few seconds at most.
    pub async fn close(self) {
        let Some(provider) = self.provider else { return };
        let closed = tokio::task::spawn_blocking(move || provider.shutdown()).await;
        if !matches!(closed, Ok(Ok(()))) {
            tracing::warn!("not all spans could be exported");
        }
    }
}

/// Installs the process's subscriber. Must be called within the runtime where spans are exported.
///
/// # Errors
/// See [`TelemetryError`].
pub fn install(settings: &Telemetry) -> Result<Tracing, TelemetryError> {
    // A filter that does not parse was reported as a fault of the configuration.
    let filter: Targets =
        settings.log.parse().unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
    let provider = settings
        .otlp_endpoint
        .as_deref()
        .map(|endpoint| provider(endpoint, settings.sample))
        .transpose()?;
    let spans = provider.as_ref().map(|provider| spans(provider.tracer("charter")));
    Registry::default().with(lines(settings.log_format, filter)).with(spans).try_init()?;
    Ok(Tracing { provider })
}

fn lines<S>(format: LogFormat, filter: Targets) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(|| Lines(std::io::stderr()));
    match format {
        LogFormat::Text => lines.with_ansi(false).with_filter(filter).boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .with_filter(filter)
            .boxed(),
    }
}

/// Writes each event as one line, whatever text it repeats: what a guest or a client says stands in
/// it with its control characters escaped.
#[derive(Debug)]
struct Lines<W>(W);

impl<W: std::io::Write> std::io::Write for Lines<W> {
    /// The layer hands each event over whole, with the break of the line behind it.
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let mut line = one_line(text.strip_suffix('\n').unwrap_or(&text)).into_owned();
        line.push('\n');
        self.0.write_all(line.as_bytes())?;
        Ok(event.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Only our own spans are exported: the exporter's client would otherwise trace itself without end.
fn spans<S>(tracer: SdkTracer) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let ours = Targets::new()
        .with_target("charter_server", tracing::Level::INFO)
        .with_target("charter_engine", tracing::Level::INFO)
        .with_target("charter_store", tracing::Level::INFO);
    tracing_opentelemetry::layer().with_tracer(tracer).with_filter(ours)
}

fn provider(endpoint: &str, sample: f64) -> Result<SdkTracerProvider, TelemetryError> {
    let traces = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let exporter = SpanExporter::builder().with_http().with_endpoint(traces).build()?;
    let processor = BatchSpanProcessor::builder(exporter, runtime::Tokio).build();
    let resource = Resource::builder()
        .with_service_name("charter")
        .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(sample)));
    Ok(SdkTracerProvider::builder()
        .with_span_processor(processor)
        .with_resource(resource)
        .with_sampler(sampler)
        .build())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_of_the_log_is_one_event_in_every_format() {
        let forged = "hello\n2026-11-22T10:00:00Z  INFO charter::forged: \u{1b}[1mdone";
        for json in [false, true] {
            let kept = Kept::default();
            let written = kept.clone();
            let lines = tracing_subscriber::fmt::layer()
                .with_ansi(false)
                .with_writer(move || Lines(written.clone()));
            let lines = if json { lines.json().boxed() } else { lines.boxed() };
            tracing::subscriber::with_default(Registry::default().with(lines), || {
                tracing::info!(said = forged, "{forged}");
                tracing::info!("next");
            });
            let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
            assert_eq!(text.lines().count(), 2, "{text}");
            assert!(!text.trim_end().chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        }
    }
}
