//! The table that a person reads: figure, what was measured, target, reached or not.

/// One row.
pub struct Row {
    /// The figure.
    pub name: &'static str,
    /// The figure, as text with its unit.
    pub figure: String,
    /// The target, as text.
    pub target: String,
    /// Whether it is.
    pub reached: bool,
    /// The absolute figures behind it.
    pub detail: String,
}

impl Row {
    /// A ratio of two rates a second that should be at least `least`.
    pub fn at_least(name: &'static str, ours: f64, theirs: f64, least: f64) -> Self {
        Self {
            name,
            figure: format!("{:.1} ×", ours / theirs),
            target: format!("≥ {least} ×"),
            reached: ours / theirs >= least,
            detail: format!("{ours:.0}/s and {theirs:.0}/s"),
        }
    }
    /// The same as a share of a whole.
    pub fn share(name: &'static str, ours: f64, whole: f64, least: f64) -> Self {
        Self {
            figure: format!("{:.1} %", 100.0 * ours / whole),
            target: format!("≥ {:.0} %", 100.0 * least),
            ..Self::at_least(name, ours, whole, least)
        }
    }
}

/// Prints the rows in columns.
pub fn print(rows: &[Row]) {
    println!("\n| figure | measured | target | | behind it |\n|---|---|---|---|---|");
    for row in rows {
        let mark = if row.reached { "reached" } else { "missed" };
        println!("| {} | {} | {} | {mark} | {} |", row.name, row.figure, row.target, row.detail);
    }
}

/// The figure in the middle; none of none.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
