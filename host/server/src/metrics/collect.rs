//! Writes the counters in the order of their names' families. Knows the text format only through
//! `prometheus_client`.

use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use charter_engine::stats::{LATENCY_BOUNDS_US, OutcomeClass, Stats};
use charter_registry::stats::{BOUNDS_US, RequestOutcome};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{Inner, Sample};

type NoLabels = [(&'static str, &'static str); 0];

/// All families.
pub(super) fn all(
    inner: &Inner,
    asked: &[Sample],
    mut encoder: DescriptorEncoder<'_>,
) -> fmt::Result {
    requests(inner, &mut encoder)?;
    gauge(
        &mut encoder,
        "connections",
        "Open connections",
        inner.connections.load(Relaxed) as f64,
        true,
    )?;
    for shown in inner.gauges.read().unwrap_or_else(PoisonError::into_inner).iter() {
        gauge(&mut encoder, shown.name, shown.help, (shown.read)(), false)?;
    }
    for shown in asked {
        gauge(&mut encoder, shown.name, shown.help, shown.value, false)?;
    }
    let engine = inner.engine.read().unwrap_or_else(PoisonError::into_inner).clone();
    engine.map_or(Ok(()), |engine| sandbox(engine.stats(), &mut encoder))
}

fn requests(inner: &Inner, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let routes = inner.routes.read().unwrap_or_else(PoisonError::into_inner).clone();
    let unmatched = (("ANY", "unmatched".to_owned()), inner.unmatched.clone());
    let routes: Vec<_> = routes.into_iter().chain([unmatched]).collect();
    let mut counts = encoder.encode_descriptor(
        "requests",
        "Requests by route and status",
        None,
        MetricType::Counter,
    )?;
    for ((method, route), stats) in &routes {
        for (status, count) in stats.statuses() {
            let status = status.to_string();
            let labels = [("method", *method), ("route", route), ("status", &status)];
            counter(&mut counts, &labels, count)?;
        }
    }
    let mut outcomes = encoder.encode_descriptor(
        "outcomes",
        "Requests by route and outcome",
        None,
        MetricType::Counter,
    )?;
    for ((method, route), stats) in &routes {
        for outcome in RequestOutcome::ALL {
            let labels = [("method", *method), ("route", route), ("outcome", outcome.label())];
            counter(&mut outcomes, &labels, stats.count(outcome))?;
        }
    }
    let mut latency = encoder.encode_descriptor(
        "request_seconds",
        "Time from accepted to answered",
        None,
        MetricType::Histogram,
    )?;
    for ((method, route), stats) in &routes {
        let labels = [("method", *method), ("route", route.as_str())];
        histogram(&mut latency, &labels, &BOUNDS_US, &stats.latency(), stats.latency_sum_us())?;
    }
    Ok(())
}

fn sandbox(stats: &Stats, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    gauge(
        encoder,
        "instances",
        "Guest instances alive",
        stats.instances.load(Relaxed) as f64,
        true,
    )?;
    gauge(
        encoder,
        "guest_memory_bytes",
        "Guest memory in use",
        stats.memory_bytes.load(Relaxed) as f64,
        true,
    )?;
    for (name, help, value) in [
        ("guest_reruns", "Guests run again after a conflict", stats.reruns.load(Relaxed)),
        (
            "code_cache_hits",
            "Components loaded from the code cache",
            stats.cache_hits.load(Relaxed),
        ),
        (
            "code_cache_misses",
            "Components that had to be compiled",
            stats.cache_misses.load(Relaxed),
        ),
    ] {
        let single = ConstCounter::new(value);
        single.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
    }
    let primitives = stats.all();
    let mut calls = encoder.encode_descriptor(
        "guest_calls",
        "Guest calls by outcome",
        None,
        MetricType::Counter,
    )?;
    for (name, primitive) in &primitives {
        for class in OutcomeClass::ALL {
            counter(
                &mut calls,
                &[("primitive", name), ("outcome", class.label())],
                primitive.count(class),
            )?;
        }
    }
    let mut latency = encoder.encode_descriptor(
        "guest_seconds",
        "Time of guest calls",
        None,
        MetricType::Histogram,
    )?;
    for (name, primitive) in &primitives {
        let labels = [("primitive", name.as_str())];
        histogram(
            &mut latency,
            &labels,
            &LATENCY_BOUNDS_US,
            &primitive.latency(),
            primitive.latency_sum_us(),
        )?;
    }
    Ok(())
}

/// Zero counts are left out: the set of labels is large and mostly never met.
fn counter(family: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: u64) -> fmt::Result {
    if value == 0 {
        return Ok(());
    }
    family.encode_family(&labels)?.encode_counter::<NoLabels, _, u64>(&value, None)
}

fn histogram(
    family: &mut MetricEncoder<'_>,
    labels: &[(&str, &str)],
    bounds_us: &[u64],
    counts: &[u64],
    sum_us: u64,
) -> fmt::Result {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return Ok(());
    }
    let bounds = bounds_us.iter().map(|bound| *bound as f64 / 1e6).chain([f64::MAX]);
    let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
    family.encode_family(&labels)?.encode_histogram::<NoLabels>(
        sum_us as f64 / 1e6,
        total,
        &buckets,
        None,
    )
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: f64,
    whole: bool,
) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    if whole {
        ConstGauge::new(value as i64).encode(metric)
    } else {
        ConstGauge::new(value).encode(metric)
    }
}
