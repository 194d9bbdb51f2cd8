//! Answers that nobody has read yet: they stay in memory until the client takes them, so what each
//! credential has of them is bounded.

use bytes::Bytes;
use charter_kernel::refusal::Refusal;

use super::caller::Caller;
use super::respond::Answered;
use super::trail::Trail;
use crate::app::App;
use crate::bounds::holder::Holder;
use crate::bounds::room::{BodyHold, Full, Owner};
use crate::http::body::Body;

/// Bytes below which an answer costs no more than the request that it answers. Of such requests a
/// connection of HTTP/2 has many at once, and each counts for this much there.
const COUNTED_BYTES_MIN: usize = 4 << 10;
/// Bytes below which all that is unread is nobody's full share.
const QUIET_BYTES: usize = 4 << 20;

/// An answer's bytes, which take up their room until nobody holds them.
struct Piece(Bytes, #[expect(dead_code, reason = "given back with the bytes")] BodyHold);

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Refuses more requests of a caller that does not read what it was answered.
///
/// # Errors
/// 429 until it has read some.
pub fn check(app: &App, caller: &Caller) -> Result<(), Refusal> {
    let room = &app.bounds.answers;
    if caller.place().is_none() || room.bytes() < QUIET_BYTES {
        return Ok(());
    }
    let holder = Holder::of(caller.identity());
    let full = room.is_full(Owner::Credential(caller.organization(), &holder));
    if full { Err(refusal(Full::Owner)) } else { Ok(()) }
}

/// Counts a whole answer until it is read. One that has no room is not given, and can be asked for
/// again, by its key if it was kept; but what a change answers that was made just now is.
///
/// # Errors
/// 429 where the credential has filled its share, 503 where all together have filled the room.
pub fn hold(app: &App, trail: &Trail, answered: Answered) -> Result<Answered, Refusal> {
    let placed = trail.caller.as_ref().filter(|caller| caller.place().is_some());
    let (Some(caller), Some(bytes)) = (placed, answered.body.as_whole()) else {
        return Ok(answered);
    };
    if bytes.is_empty() || (bytes.len() < COUNTED_BYTES_MIN && !trail.http2) {
        return Ok(answered);
    }
    let count = bytes.len().max(COUNTED_BYTES_MIN);
    let holder = Holder::of(caller.identity());
    let mut hold = app.bounds.answers.hold(Owner::Credential(caller.organization(), &holder));
    if let Err(full) = hold.take_whole(count) {
        if !trail.mutates || answered.is_replayed() {
            return Err(refusal(full));
        }
        hold.take_owed(count);
    }
    let body = Body::whole(Bytes::from_owner(Piece(bytes.clone(), hold)));
    Ok(Answered { body, ..answered })
}

fn refusal(full: Full) -> Refusal {
    match full {
        Full::Process => Refusal::overloaded(1),
        Full::Owner => Refusal::rate_limited(1)
            .hint("Read the answers to earlier requests before sending more."),
    }
}
