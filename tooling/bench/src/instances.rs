//! What a fresh instance costs, without a call.

use anyhow::{Context, Result};

use crate::table::Row;
use crate::tools::{self, Tools};

/// The row of this part.
pub fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let figures = tools::figures(
        &tools.instantiate,
        &[&tools.components.join("queue.wasm").to_string_lossy()],
    )?;
    let figure = |name: &str| figures[name].as_f64().with_context(|| format!("no figure {name}"));
    let micros = figure("instantiate_p50_us")?;
    Ok(vec![Row {
        name: "instantiate, p50",
        figure: format!("{micros:.1} µs"),
        target: "≤ 10 µs".into(),
        reached: micros <= 10.0,
        detail: format!(
            "p99 {:.1} µs; with its store, its WASI context and its end {:.1} µs",
            figure("instantiate_p99_us")?,
            figure("whole_p50_us")?
        ),
    }])
}
