//! A small primitive of the usual make. The benchmark installs it under fifty names: it replaces
//! the placeholder `bench-aa`, wherever it stands in the built file, by names of the same length.

use charter_sdk::prelude::*;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Pong {
    pong: bool,
}

/// The declaration.
pub fn primitive() -> Primitive {
    Primitive::new("bench-aa", env!("CARGO_PKG_VERSION"))
        .title("Ping")
        .operation(get("bench-aa.ping", "/bench-aa/ping", ping).summary("Answer"))
}

charter_sdk::export!(primitive);

fn ping() -> Result<Pong> {
    Ok(Pong { pong: true })
}
