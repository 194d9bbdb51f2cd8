//! Another primitive, called as the same caller, under the same kit, caps and approvals.

use serde::Serialize;
use serde_json::Value;

use crate::failure::Result;
use crate::host::primitives as host;

/// The reply of another primitive.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Value,
}

/// Has the organization stand so with who bills it, from this request's commit on: what it stops is
/// named in the interface, `None` stops nothing. `forbidden` unless the operator has named this
/// primitive as the one that bills.
pub fn set_standing(reason: Option<&str>) -> Result<()> {
    Ok(host::set_standing(reason)?)
}

/// Calls an operation. A mutation commits on its own and counts as an outbound call; its key
/// derives from this request's.
pub fn call<B: Serialize>(
    operation: &str,
    parameters: &[(&str, &str)],
    body: Option<&B>,
) -> Result<Reply> {
    let parameters: Vec<_> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let body = body.map(serde_json::to_string).transpose()?;
    let reply = host::call(operation, &parameters, body.as_deref(), None, &[])?;
    Ok(Reply { status: reply.status, body: serde_json::from_str(&reply.body)? })
}
