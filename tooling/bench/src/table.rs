//! The table that a person reads: figure, what was measured, target, reached or not.

/// One row.
pub struct Row {
    /// What is measured.
    pub name: &'static str,
    /// The figure, as text with its unit.
    pub figure: String,
    /// What it should be, as text.
    pub target: &'static str,
    /// Whether it is.
    pub reached: bool,
    /// The absolute figures behind it.
    pub detail: String,
}

/// Prints the rows in columns.
pub fn print(rows: &[Row]) {
    println!("\n| figure | measured | target | | behind it |\n|---|---|---|---|---|");
    for row in rows {
        let mark = if row.reached { "reached" } else { "missed" };
        println!("| {} | {} | {} | {mark} | {} |", row.name, row.figure, row.target, row.detail);
    }
}
