//! Behind a checkpoint nothing that was read before is written over what is there by now.

use charter_double::Host;
use charter_sdk::{documents, prelude::*};

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Count {
    count: u32,
}

const COUNTS: Collection<Count> = Collection::new("counts");

#[derive(Deserialize, JsonSchema)]
struct Course {
    /// Whether the request reads the count anew behind its checkpoint.
    reads_anew: bool,
}

fn count_twice(Body(Course { reads_anew }): Body<Course>) -> Result<Count> {
    let begun = COUNTS.insert(Count { count: 0 })?;
    COUNTS.replace(begun.at(), Count { count: 1 })?;
    COUNTS.replace(begun.at(), Count { count: 2 })?;
    documents::checkpoint()?;
    let read = if reads_anew { COUNTS.get(&begun.id)?.or_not_found("count")? } else { begun };
    Ok(COUNTS.replace(read.at(), Count { count: read.count + 1 })?.body)
}

fn primitive() -> Primitive {
    Primitive::new("counts", "0.1.0")
        .title("Counts")
        .collection(&COUNTS)
        .operation(post("counts.twice", "/counts", count_twice).summary("Count in two commits"))
}

#[test]
fn behind_a_checkpoint_a_document_is_replaced_as_it_was_read_or_not_at_all() {
    let host = Host::new(primitive);
    let counted = host.post("/counts", json!({ "reads_anew": true })).unwrap();
    assert_eq!(counted.body["count"], 3);
    let stale = host.post("/counts", json!({ "reads_anew": false })).unwrap_err();
    assert_eq!(stale.code(), "version_conflict");
}
