//! Why an attempt at a batch failed, told apart by what is to be done about it.

use sqlx::error::DatabaseError;

/// The trouble that an attempt ran into. Provably nothing of it was committed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Another committer came first: prefetch and decide again.
    Race,
    /// The connection: again, on a new one.
    Passing(sqlx::Error),
    /// The statement itself was refused: one of the units is guilty of it.
    Guilty(sqlx::Error),
    /// There is no room on the disk.
    Full(sqlx::Error),
    /// Nobody can say what is on the disk: no writes until the next start.
    Torn(sqlx::Error),
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        let Some(database) = error.as_database_error() else {
            return match error {
                sqlx::Error::Encode(_)
                | sqlx::Error::Decode(_)
                | sqlx::Error::ColumnDecode { .. } => Self::Guilty(error),
                _ => Self::Passing(error),
            };
        };
        match kind(database) {
            Kind::Full => Self::Full(error),
            Kind::Race => Self::Race,
            Kind::Passing => Self::Passing(error),
            Kind::Other => Self::Guilty(error),
        }
    }
}

impl Trouble {
    /// The same, for an error of SQLite's COMMIT: after a failed write or sync nobody knows what a
    /// restart will find.
    pub(super) fn of_sqlite_commit(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(sqlite_code);
        match code {
            Some(IOERR) => Self::Torn(error),
            _ => error.into(),
        }
    }
}

enum Kind {
    Full,
    Race,
    Passing,
    Other,
}

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const IOERR: i32 = 10;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const PROTOCOL: i32 = 15;

/// SQLite's primary result code; extended ones carry it in the low byte.
fn sqlite_code(error: &dyn DatabaseError) -> Option<i32> {
    let code = error.code()?;
    // PostgreSQL's codes have five characters, SQLite's at most four digits.
    (code.len() < 5).then(|| code.parse::<i32>().ok().map(|code| code & 0xff)).flatten()
}

fn kind(error: &dyn DatabaseError) -> Kind {
    if let Some(code) = sqlite_code(error) {
        return match code {
            FULL => Kind::Full,
            BUSY | LOCKED | IOERR | CANTOPEN | PROTOCOL => Kind::Passing,
            _ => Kind::Other,
        };
    }
    let code = error.code().unwrap_or_default();
    match code.as_ref() {
        "53100" => Kind::Full,
        // Serialization, deadlock: another was there first.
        "40001" | "40P01" => Kind::Race,
        // A lock not available; query cancelled; a statement whose plan went
        // away; a transaction that stood idle, or went on, for too long, as where the host was
        // stopped.
        "55P03" | "57014" | "0A000" | "26000" | "25P03" | "25P04" => Kind::Passing,
        // Connection, resources, operator intervention, the database's own trouble.
        code if ["08", "53", "57", "58", "XX"].iter().any(|class| code.starts_with(class)) => {
            Kind::Passing
        }
        "25006" => Kind::Passing,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Fault;

    fn error(code: &str) -> sqlx::Error {
        sqlx::Error::Database(Box::new(Fault {
            code: code.to_owned(),
            message: "refused".to_owned(),
        }))
    }

    #[test]
    fn what_is_to_be_done_follows_from_the_code() {
        // SQLite: full; busy; a failed sync, extended; a constraint.
        assert!(matches!(Trouble::from(error("13")), Trouble::Full(_)));
        assert!(matches!(Trouble::from(error("5")), Trouble::Passing(_)));
        assert!(matches!(Trouble::from(error("1034")), Trouble::Passing(_)));
        assert!(matches!(Trouble::from(error("2067")), Trouble::Guilty(_)));
        // PostgreSQL: full; deadlock; shut down; a value that does not fit.
        assert!(matches!(Trouble::from(error("53100")), Trouble::Full(_)));
        assert!(matches!(Trouble::from(error("40P01")), Trouble::Race));
        assert!(matches!(Trouble::from(error("57P01")), Trouble::Passing(_)));
        // The host was stopped amid a batch.
        assert!(matches!(Trouble::from(error("25P03")), Trouble::Passing(_)));
        assert!(matches!(Trouble::from(error("22P02")), Trouble::Guilty(_)));
        assert!(matches!(Trouble::from(sqlx::Error::WorkerCrashed), Trouble::Passing(_)));
    }

    #[test]
    fn a_failed_sync_at_sqlites_commit_stops_writes() {
        assert!(matches!(Trouble::of_sqlite_commit(error("1034")), Trouble::Torn(_)));
        assert!(matches!(Trouble::of_sqlite_commit(error("10")), Trouble::Torn(_)));
        assert!(
            matches!(Trouble::of_sqlite_commit(error("13")), Trouble::Full(_)),
            "full is known not to be committed"
        );
    }
}
