//! Lines in the operator's log, bounded by the host. Never a secret.

use crate::bindings::charter::primitive::log::Level;
use crate::host::log as host;

/// For whoever debugs the primitive.
pub fn debug(message: &str, fields: &[(&str, &str)]) {
    write(Level::Debug, message, fields);
}

/// Something an operator may want to know.
pub fn info(message: &str, fields: &[(&str, &str)]) {
    write(Level::Info, message, fields);
}

/// Something an operator should look at.
pub fn warn(message: &str, fields: &[(&str, &str)]) {
    write(Level::Warn, message, fields);
}

/// Something is broken.
pub fn error(message: &str, fields: &[(&str, &str)]) {
    write(Level::Error, message, fields);
}

fn write(level: Level, message: &str, fields: &[(&str, &str)]) {
    let fields: Vec<_> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    host::write(level, message, &fields);
}
