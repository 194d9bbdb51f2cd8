//! The one list of the kernel's limits: a name, a unit (last in the name) and the reason.
//!
//! Every loop, depth and length that a caller or a guest can choose is bounded by one of these, and
//! each has a test that hits it. Limits of machinery (pools, queues, time) live with the crate that
//! owns the machine.

/// Rows that one unit of work may touch.
pub const UNIT_ROWS_MAX: usize = 1_000;
/// Bytes of bodies, entries and payloads that one unit of work may write.
pub const UNIT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of a row's id, of an indexed or unique value, and of a claimed name: what a database index
/// holds everywhere.
pub const KEY_BYTES_MAX: usize = 512;
/// Elements of an indexed array: one index entry each.
pub const INDEX_ENTRIES_MAX: usize = 100;
/// Bytes of text that full-text search reads of one document; the rest is not found by.
pub const SEARCH_TEXT_BYTES_MAX: usize = 64 * 1024;
/// Levels of arrays and objects in a JSON document from outside, checked before it is parsed. Below
/// the 127 of the parser, so that the envelopes which the host and guests put around a document
/// still parse.
pub const JSON_DEPTH_MAX: usize = 120;
/// Values in a body above which validation stops at the first fault: naming all of a million costs
/// more than it helps.
pub const FAULT_SEARCH_VALUES_MAX: usize = 10_000;
/// Faults reported for one document; more are not looked for.
pub const FAULTS_MAX: usize = 50;
/// Bytes of a JSON Schema in a manifest, as compact JSON.
pub const SCHEMA_BYTES_MAX: usize = 256 * 1024;
/// Levels of arrays and objects in a JSON Schema.
pub const SCHEMA_DEPTH_MAX: usize = 64;
/// Visits of the subschemas that one JSON Schema applies to one value, counted as often as they are
/// come by: two references to each of a chain of definitions double them with every link.
pub const SCHEMA_VISITS_MAX: u64 = 1_000;
/// Subschemas within each other while the deepest value is checked: what the validator's stack
/// holds.
pub const SCHEMA_NESTED_MAX: usize = 1_000;
/// Visits that `unevaluatedProperties` and `unevaluatedItems` of one JSON Schema take to compile.
pub const SCHEMA_MARKS_MAX: u64 = 1_000_000;
/// Steps that checking one value against a JSON Schema may take (a step is about a comparison of
/// two short texts): a second of one core.
pub const CHECK_STEPS_MAX: u64 = 500_000_000;
/// Steps of a check that is made at once, on the thread that serves others: a few milliseconds.
pub const CHECK_STEPS_QUICK: u64 = 2_000_000;
/// Bytes of a pattern, as it is written.
pub const PATTERN_TEXT_BYTES_MAX: usize = 4_096;
/// Letters and classes of one pattern, repeated ones as often as they are counted: what matching
/// takes for each byte of a text, at worst.
pub const PATTERN_STATES_MAX: u64 = 2_000;
/// Patterns of all JSON Schemas of a manifest.
pub const PATTERNS_MAX: usize = 1_000;
/// Bytes of one compiled pattern of a JSON Schema.
pub const PATTERN_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a manifest, before it is parsed.
pub const MANIFEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Operations of one manifest.
pub const OPERATIONS_MAX: usize = 500;
/// Collections of one manifest.
pub const COLLECTIONS_MAX: usize = 100;
/// Indexed fields of one collection.
pub const INDEXES_MAX: usize = 16;
/// Milliseconds that a manifest may ask for one call: a long poll or a stream.
pub const DEADLINE_MS_MAX: u32 = 15 * 60 * 1_000;
/// The same for one that is declared short: a call that waits longer holds a place that everybody
/// wants.
pub const SHORT_DEADLINE_MS_MAX: u32 = 30 * 1_000;
/// Milliseconds that an operator can give to one run or one exchange: no call takes longer.
pub const CALL_MS_MAX: u32 = 60 * 60 * 1_000;
/// Jobs of one organization that wait or run, where the operator sets no other number.
pub const JOBS_WAITING_MAX: u64 = 10_000;
/// Bytes of a request that waits for a change: its body, and its query as JSON. Many wait at once, and
/// hold them as long as they do.
pub const WAITING_REQUEST_BYTES_MAX: usize = 16 * 1024;
/// Schedules of one organization, where the operator sets no other number.
pub const SCHEDULES_MAX: u64 = 1_000;
/// Calls of primitives within each other, the outermost not counted.
pub const NESTED_DEPTH_MAX: u8 = 4;
/// Bytes of the rows that one take hands out; one row in any case.
pub const TAKEN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Milliseconds from now on for which a row may be held under a lease: who holds one for longer
/// extends it.
pub const LEASE_MS_MAX: i64 = 24 * 60 * 60 * 1_000;
/// Bytes of a request path, before decoding.
pub const PATH_BYTES_MAX: usize = 4_096;
/// Segments of a request path or a path template.
pub const PATH_SEGMENTS_MAX: usize = 32;
/// Bytes of a query string, before decoding.
pub const QUERY_BYTES_MAX: usize = 8_192;
/// Pairs of a query string.
pub const QUERY_PAIRS_MAX: usize = 100;
/// Bytes of a cursor as it stands in a URL.
pub const CURSOR_BYTES_MAX: usize = 1_024;
/// Characters of an idempotency key.
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 255;
/// How long an idempotency record is kept after its request ended.
pub const IDEMPOTENCY_KEPT_MS: i64 = 24 * 60 * 60 * 1_000;
/// Runs of one job or signal, at most.
pub const LATER_RUNS_MAX: i64 = 100;
/// Milliseconds between two runs of one job or signal, at most, where the operator sets no other
/// number.
pub const LATER_BACKOFF_MS: i64 = 60 * 60 * 1_000;
/// How long the idempotency record of a change is kept that a job or signal has another primitive
/// make: as long as the job may be run again, so that no run makes the change a second time.
///
/// [`LATER_RUNS_MAX`] runs that wait for [`LATER_BACKOFF_MS`] and take [`CALL_MS_MAX`], the longest
/// that any setting admits, are done within 9 days. The other five are for what does not count as a
/// run: days that people take to decide (one at most for each approval), and a host that is down or
/// has no room. This assumes that `jobs.backoff_ms_max` is its default or less: a longer one adds
/// what it has beyond that for each run.
pub const LATER_KEPT_MS: i64 = 14 * 24 * 60 * 60 * 1_000;
/// Characters of a message, hint or reason that a guest hands out with a refusal.
pub const REFUSAL_TEXT_CHARS_MAX: usize = 2_000;
/// Seconds after which a guest may have a client try again: a day.
pub const RETRY_AFTER_SECONDS_MAX: u32 = 24 * 60 * 60;
/// Bytes of the details that a guest hands out with a refusal.
pub const REFUSAL_DETAILS_BYTES_MAX: usize = 64 * 1024;
/// Response headers that one answer of a guest may have.
pub const ANSWER_HEADERS_MAX: usize = 32;
/// Bytes of their names and values.
pub const ANSWER_HEADER_BYTES_MAX: usize = 8 * 1024;
/// `limit` of a page where none is given.
pub const PAGE_LIMIT_DEFAULT: u32 = 20;
/// `limit` of a page in the offset, cursor and log styles.
pub const PAGE_LIMIT_MAX: u32 = 200;
/// `limit` of a page in the envelope style.
pub const ENVELOPE_LIMIT_MAX: u32 = 100;
