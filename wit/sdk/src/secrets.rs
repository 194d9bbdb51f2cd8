//! Encrypted values of the caller's scope. Nothing here prints a value.

use crate::failure::Result;
use crate::host::secrets as host;

/// Sets a value.
pub fn put(name: &str, value: &[u8]) -> Result<()> {
    Ok(host::put(name, value)?)
}

/// The value, if there is one.
pub fn get(name: &str) -> Result<Option<Vec<u8>>> {
    Ok(host::get(name)?)
}

/// Removes a value; false if there was none.
pub fn remove(name: &str) -> Result<bool> {
    Ok(host::remove(name)?)
}

/// The names in use, never the values.
pub fn names() -> Result<Vec<String>> {
    Ok(host::names()?)
}

/// Makes a key pair (`ed25519`, …) whose private half never leaves the host; answers the public
/// half.
pub fn generate(name: &str, algorithm: &str) -> Result<Vec<u8>> {
    Ok(host::generate(name, algorithm)?)
}

/// Signs with such a key.
pub fn sign(name: &str, message: &[u8]) -> Result<Vec<u8>> {
    Ok(host::sign(name, message)?)
}
