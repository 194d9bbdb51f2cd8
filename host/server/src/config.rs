//! The configuration: one struct per section, read once from file, environment and flags.

/// Everything that can be configured.
#[derive(Clone, Debug, Default)]
pub struct Config {}
