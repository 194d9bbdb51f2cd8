//! Answers that nobody has read yet: they stay in memory until the client takes them, so what each
//! credential has of them is bounded.

use charter_kernel::refusal::Refusal;

use super::matched::Matched;
use super::respond::Answered;
use super::trail::Trail;
use crate::app::App;
use crate::bounds::holder::Holder;
use crate::bounds::{self, room::Full};
use crate::http::body::Body;

/// Bytes below which an answer costs no more than the request that it answers. Of such requests a
/// connection of HTTP/2 has many at once, and each counts for this much there.
const COUNTED_BYTES_MIN: usize = 4 << 10;

/// Refuses more requests of a caller that does not read what it was answered. A change counts from
/// here on: its answer will be given.
///
/// # Errors
/// 429 until it has read some.
pub fn admit(app: &App, trail: &mut Trail, matched: &Matched) -> Result<(), Refusal> {
    let caller = matched.caller();
    if caller.place().is_none() || trail.change.is_some() {
        return Ok(());
    }
    let (answers, organization) = (&app.bounds.answers, caller.organization());
    let holder = || Holder::of(caller.identity());
    if matched.operation().contract().mutates {
        let change = answers.begin_change(organization, holder).map_err(refusal)?;
        trail.change = Some(change);
        return Ok(());
    }
    answers.look(organization, holder).map_err(refusal)
}

/// Counts a whole answer until it is read. One that has no room is not given, and can be asked for
/// again, by its key if it was kept; but what a change answers that was made just now is.
///
/// # Errors
/// 429 where the credential has filled its share, 503 where all together have filled the room.
pub fn hold(app: &App, trail: &mut Trail, answered: Answered) -> Result<Answered, Refusal> {
    let change = trail.change.take().filter(|_| !answered.is_replayed());
    let placed = trail.caller.as_ref().filter(|caller| caller.place().is_some());
    let (Some(caller), Some(bytes)) = (placed, answered.body.as_whole()) else {
        return Ok(answered);
    };
    if bytes.is_empty() || (bytes.len() < COUNTED_BYTES_MIN && !trail.http2) {
        return Ok(answered);
    }
    let count = bytes.len().max(COUNTED_BYTES_MIN);
    let (holder, organization) = (Holder::of(caller.identity()), caller.organization());
    let hold = match change {
        Some(change) => change.owe(organization, &holder, count),
        None => app.bounds.answers.take(organization, &holder, count).map_err(refusal)?,
    };
    let body = Body::whole(bounds::keep(bytes.clone(), hold));
    Ok(Answered { body, ..answered })
}

fn refusal(full: Full) -> Refusal {
    match full {
        Full::Process => Refusal::overloaded(1),
        Full::Owner => Refusal::rate_limited(1)
            .hint("Read the answers to earlier requests before sending more."),
    }
}
