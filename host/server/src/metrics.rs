//! The counters, and their text at `/metrics` (OpenMetrics text).
//!
//! Counting is a few relaxed atomic additions on counters that a route keeps; nothing is locked or
//! looked up on the hot path. Labels come from closed sets: route templates, statuses, outcome
//! classes. No tenant, id or secret is ever a label.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use charter_engine::Engine;
pub use charter_registry::stats::{RequestOutcome, RouteStats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

mod collect;
pub mod hooks;

/// Everything that is counted. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    routes: RwLock<BTreeMap<(&'static str, String), Arc<RouteStats>>>,
    unmatched: Arc<RouteStats>,
    connections: AtomicI64,
    gauges: RwLock<Vec<Reading>>,
    engine: RwLock<Option<Engine>>,
}

/// A value that had to be asked for ahead of a scrape: the database holds it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The gauge's name.
    pub name: &'static str,
    /// Its meaning.
    pub help: &'static str,
    /// The value.
    pub value: f64,
}

/// The numbers of one scrape.
#[derive(Debug)]
struct Scrape {
    metrics: Metrics,
    asked: Vec<Sample>,
}

/// A value that is read when it is asked for.
struct Reading {
    name: &'static str,
    help: &'static str,
    read: Box<dyn Fn() -> f64 + Send + Sync>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Counters at zero.
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            routes: RwLock::default(),
            unmatched: Arc::default(),
            connections: AtomicI64::new(0),
            gauges: RwLock::default(),
            engine: RwLock::default(),
        }))
    }

    /// The counters of a route template, made at first use. Routes keep the `Arc`.
    pub fn route(&self, method: &'static str, template: &str) -> Arc<RouteStats> {
        let mut routes = self.0.routes.write().unwrap_or_else(PoisonError::into_inner);
        routes.entry((method, template.to_owned())).or_default().clone()
    }

    /// The counters of requests that match no route.
    pub fn unmatched_stats(&self) -> Arc<RouteStats> {
        self.0.unmatched.clone()
    }

    /// Counts a connection until what is returned is dropped.
    pub fn connection(&self) -> Open {
        self.0.connections.fetch_add(1, Relaxed);
        Open(self.0.clone())
    }

    /// Shows a value that is read at each scrape: a queue's depth, a flag.
    pub fn gauge(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        let gauge = Reading { name, help, read: Box::new(read) };
        self.0.gauges.write().unwrap_or_else(PoisonError::into_inner).push(gauge);
    }

    /// Shows the sandbox's counters.
    pub fn engine(&self, engine: Engine) {
        *self.0.engine.write().unwrap_or_else(PoisonError::into_inner) = Some(engine);
    }

    /// All of it in the OpenMetrics text format, and what was asked for.
    ///
    /// # Errors
    /// When a label cannot be written.
    pub fn text(&self, asked: Vec<Sample>) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("charter");
        registry.register_collector(Box::new(Scrape { metrics: self.clone(), asked }));
        let mut text = String::with_capacity(16 * 1024);
        text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: prometheus_client::encoding::DescriptorEncoder<'_>) -> fmt::Result {
        collect::all(&self.metrics.0, &self.asked, encoder)
    }
}

/// An open connection.
pub struct Open(Arc<Inner>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_scrape_shows_what_was_counted() {
        let metrics = Metrics::new();
        let route = metrics.route("GET", "/v1/things/{id}");
        route.record(200, RequestOutcome::Answered, Duration::from_micros(300));
        route.record(418, RequestOutcome::Refused, Duration::from_secs(60));
        metrics.gauge("depth", "How deep", || 7.0);
        let _open = metrics.connection();
        let text = metrics
            .text(vec![Sample { name: "asked", help: "What was asked", value: 3.0 }])
            .unwrap();
        for line in [
            r#"charter_requests_total{method="GET",route="/v1/things/{id}",status="200"} 1"#,
            r#"charter_requests_total{method="GET",route="/v1/things/{id}",status="400"} 1"#,
            r#"charter_outcomes_total{method="GET",route="/v1/things/{id}",outcome="refused"} 1"#,
            "charter_depth 7.0",
            "charter_asked 3.0",
            "charter_connections 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(text.contains(r#"le="0.0005",method="GET",route="/v1/things/{id}"} 1"#), "{text}");
    }

    #[test]
    fn the_same_route_has_the_same_counters() {
        let metrics = Metrics::new();
        assert!(Arc::ptr_eq(&metrics.route("GET", "/a"), &metrics.route("GET", "/a")));
        assert!(!Arc::ptr_eq(&metrics.route("GET", "/a"), &metrics.route("PUT", "/a")));
    }
}
