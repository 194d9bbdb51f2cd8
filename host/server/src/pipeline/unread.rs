//! Answers that nobody has read yet: they stay in memory until the client takes them, so what each
//! credential has of them is bounded.

use std::sync::Arc;

use charter_kernel::refusal::Refusal;

use super::matched::Matched;
use super::respond::Answered;
use super::trail::Trail;
use crate::app::App;
use crate::bounds::answers::COUNTED_BYTES_MIN;
use crate::bounds::memory::Full;
use crate::http::body::Body;

/// Refuses more requests of a caller that does not read what it was answered.
///
/// # Errors
/// 429 until it has read some, 503 where others have filled the room.
pub fn admit(app: &App, trail: &mut Trail, matched: &Matched) -> Result<(), Refusal> {
    let caller = matched.caller();
    if caller.place().is_none() || trail.room.is_some() {
        return Ok(());
    }
    let wire = trail.wire.clone();
    let entered = app.bounds.answers.enter(caller.organization(), caller.identity(), wire);
    trail.room = Some(Arc::new(entered.map_err(refusal)?));
    Ok(())
}

/// Counts a whole answer until it is read. One that has no room is not given, and can be asked for
/// again, by its key if it was kept.
///
/// # Errors
/// As [`admit`]; 409 `answer_dropped` for the large answer of a change that was made.
pub fn hold(trail: &Trail, answered: Answered) -> Result<Answered, Refusal> {
    let (Some(room), Some(bytes)) = (&trail.room, answered.body.as_whole()) else {
        return Ok(answered);
    };
    let is_made = trail.mutates && !answered.is_replayed();
    let held = match room.hold(bytes.len()) {
        // That a request waits for people, or why it was not made, is small and told in any case.
        Err(_) if is_made && bytes.len() <= COUNTED_BYTES_MIN => None,
        Err(_) if is_made => return Err(answer_dropped()),
        Err(full) => return Err(refusal(full)),
        Ok(held) => held,
    };
    let Some(hold) = held else { return Ok(answered) };
    let body = Body::with_hold(bytes.clone(), hold);
    Ok(Answered { body, ..answered })
}

/// The refusal of an answer for which there is no room, to a change that was made or waits for
/// people.
pub fn answer_dropped() -> Refusal {
    let message = "The request stands; its answer found no room, for earlier ones are not read or streams are open.";
    Refusal::state_conflict("answer_dropped", message).hint(
        "Read what it made, or what waits for people, or ask again under its Idempotency-Key.",
    )
}

/// The refusal of a request whose answer finds no room.
pub fn refusal(full: Full) -> Refusal {
    match full {
        Full::Process => Refusal::overloaded(1),
        Full::Owner => Refusal::rate_limited(1)
            .hint("Read the answers to earlier requests before sending more."),
    }
}
