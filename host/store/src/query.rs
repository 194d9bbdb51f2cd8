//! Questions about the rows of one space, and their answers.

use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Row, Space};

/// Most rows of one page.
pub const PAGE_ROWS_MAX: u32 = 1_000;
/// Most bytes of one page: it ends before the row that would not fit, and holds one in any case.
pub const PAGE_BYTES_MAX: usize = 4 << 20;
/// Most tests of one query.
pub const TESTS_MAX: usize = 16;

/// A selection of a space's rows, and their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The reach that shares the rows.
    pub reach: Reach,
    /// The space of the rows.
    pub space: Space,
    /// Indexed field and what its encoded value ([`charter_kernel::index`]) must be; all must hold.
    pub matching: Vec<(String, Test)>,
    /// By id, which for ids of the host's making is by age.
    pub order: Order,
    /// Rows of a page, at most [`PAGE_ROWS_MAX`].
    pub limit: u32,
    /// The position that the page before handed out: the id of its last row.
    pub after: Option<String>,
    /// Rows to leave out first.
    pub offset: u32,
    /// Leaves the read out of the commit's validation.
    pub relaxed: bool,
}

impl Query {
    /// Everything in a space, newest first.
    pub fn all(reach: &Reach, space: &Space) -> Self {
        Self {
            reach: reach.clone(),
            space: space.clone(),
            matching: Vec::new(),
            order: Order::Newest,
            limit: 100,
            after: None,
            offset: 0,
            relaxed: false,
        }
    }
    /// Only rows whose field has this encoded value.
    pub fn equal(mut self, field: &str, value: impl Into<String>) -> Self {
        self.matching.push((field.into(), Test::Equal(value.into())));
        self
    }
    /// At most so many rows.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }
    /// Not validated at the commit.
    pub fn relax(mut self) -> Self {
        self.relaxed = true;
        self
    }
}

/// A condition on an encoded index value. Encoded values compare by bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// This.
    Equal(String),
    /// Within these bounds, both inclusive.
    Between(Option<String>, Option<String>),
}

/// By id, ascending or descending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Highest id first.
    #[default]
    Newest,
    /// Lowest id first.
    Oldest,
}

/// Rows found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In the query's order. Fewer than asked for where their bytes are full.
    pub items: Vec<(Key, Row)>,
    /// The position at which the next page begins; present when there is more.
    pub next: Option<String>,
}

impl Page {
    /// Whether there are rows after these.
    pub fn has_more(&self) -> bool {
        self.next.is_some()
    }
}

/// The numbers of one group of a leased space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStanding {
    /// Due and held by nobody.
    pub ready: u64,
    /// Held under a lease.
    pub held: u64,
    /// Not due yet.
    pub waiting: u64,
    /// When the oldest row that is ready or waiting was inserted.
    pub oldest: Option<Instant>,
}

/// A page of groups of leased rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupsDue {
    /// Those whose next row is due, by their names.
    pub due: Vec<GroupDue>,
    /// When the next one of the others is.
    pub next: Option<Instant>,
    /// The last name of the page, where there may be more behind it.
    pub last: Option<String>,
}

/// A group whose next row is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDue {
    /// Its name.
    pub name: String,
    /// Since when its next row is due.
    pub due: Instant,
    /// The reach of that row.
    pub reach: Reach,
}

/// The rows of a group that are asked for by [`crate::Store::put_off`].
#[derive(Clone, Copy, Debug)]
pub struct PutOff {
    /// They are due later than this.
    pub beyond: Instant,
    /// One that was never handed out was inserted after this.
    pub inserted_after: Instant,
}

/// One entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// From 1, without gaps.
    pub sequence: u64,
    /// When it was committed.
    pub at: Instant,
    /// Its name.
    pub name: String,
    /// UTF-8 JSON text.
    pub payload: String,
}

/// Entries of a log that follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// Oldest first.
    pub entries: Vec<LogEntry>,
    /// Whether it ended because it was full, in rows or in bytes: there may be more.
    pub full: bool,
}

/// How far a log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogHead {
    /// The last entry's sequence; 0 while there is none.
    pub head: u64,
    /// Whether it takes no more.
    pub closed: bool,
}

/// A fact that has its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequencedFact {
    /// From 1 within the organization and kind, without gaps.
    pub sequence: u64,
    /// The fact.
    pub fact: charter_kernel::unit::Fact,
}
