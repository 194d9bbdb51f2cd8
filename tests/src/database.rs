//! The two databases that everything is tested on.

use crate::postgres::Postgres;

/// The kind of database on which a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// Embedded, a file in the server's data folder.
    Sqlite,
    /// A private server, one database each.
    Postgresql,
}

impl Database {
    /// Both of them.
    pub const BOTH: [Self; 2] = [Self::Sqlite, Self::Postgresql];

    /// The URL of a new, empty database; `None` where the server's own default is meant.
    pub fn create(self) -> Option<String> {
        match self {
            Self::Sqlite => None,
            Self::Postgresql => Some(Postgres::shared().database()),
        }
    }

    /// The URL of a database with what is in the one at `url`, whose server was stopped. The
    /// embedded one lies in the data folder.
    pub fn copy(self, url: Option<&str>) -> Option<String> {
        url.map(|url| Postgres::shared().copy(url))
    }
}
