//! Memory in which who is slow gives way: a client that sends a body slowly, or reads an answer
//! slowly, holds what there is of it, and without a bound many of them hold everything. So where
//! somebody finds no room, a text gives way that has not moved for a while, or has been under way for
//! long: of whoever has most beside that, the one that moved the longest ago.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use charter_store::Lobby;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lock;
use super::memory::{Full, Memory, Piece};
use super::shares::{Path, Share, Taken};

/// How long a text stands still before it gives way to others.
pub const GRACE: Duration = Duration::from_secs(1);
/// How long a text is under way before it gives way to others although it moves.
const LONG: Duration = Duration::from_secs(10);
/// Bytes by which a text has moved.
const MOVE_BYTES: usize = 256 << 10;

/// The memory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Room(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    memory: Memory,
    /// Texts that may give way, by their shares.
    giving: Mutex<Giving>,
    moves: AtomicU64,
    /// The turn of those who take in a large text.
    turn: Arc<Lobby>,
}

/// One text's part of the room; given back when this is dropped.
#[derive(Debug)]
pub struct Hold {
    room: Room,
    text: Arc<Text>,
}

/// A text, or as much of it as there is.
#[derive(Debug)]
struct Text {
    path: Path,
    piece: Mutex<Option<Piece>>,
    /// When it was under way first.
    begun: OnceLock<Instant>,
    /// When it moved last, and its place in that order. Changed where the texts that give way are locked.
    moved: Mutex<(Instant, u64)>,
    /// Bytes that it moved by since.
    bytes_since: AtomicUsize,
    /// Whether it may give way now.
    gives: AtomicBool,
    /// Whether it is among those that do.
    is_listed: AtomicBool,
    /// Once it has given way.
    gone: CancellationToken,
}

/// Texts that may give way, in the share that has them, by the order in which they moved last.
#[derive(Debug, Default)]
struct Giving {
    within: HashMap<Arc<str>, Giving>,
    texts: BTreeMap<u64, Arc<Text>>,
}

impl Room {
    /// A room of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        let memory = Memory::new(bytes_max);
        let (giving, moves, turn) = (Mutex::default(), AtomicU64::new(0), Lobby::open(1));
        Self(Arc::new(Inside { memory, giving, moves, turn }))
    }

    /// Holds nothing yet, in these shares. Once it gives way, `gone` is canceled, which ends its user.
    pub fn hold(&self, path: Path, gone: CancellationToken) -> Hold {
        let [gives, is_listed] = [(); 2].map(|()| AtomicBool::new(false));
        let (piece, begun, bytes_since) = (Mutex::default(), OnceLock::new(), AtomicUsize::new(0));
        let moved = Mutex::new(self.0.next_move());
        let text = Text { path, piece, begun, moved, bytes_since, gives, is_listed, gone };
        Hold { room: self.clone(), text: Arc::new(text) }
    }

    /// How many bytes everybody shares.
    pub fn bytes_max(&self) -> usize {
        self.0.memory.bytes_max()
    }

    /// The bytes held of the room.
    pub fn bytes(&self) -> usize {
        self.0.memory.bytes()
    }

    /// The bytes that one share has.
    #[cfg(test)]
    pub(super) fn of(&self, name: &str) -> usize {
        self.0.memory.look(|has| has(name))
    }

    /// Whether nothing is held, and nothing listed.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.memory.is_empty() && lock(&self.0.giving).is_empty()
    }
}

impl Hold {
    /// How many bytes it holds.
    pub fn bytes(&self) -> usize {
        lock(&self.text.piece).as_ref().map_or(0, Piece::bytes)
    }

    /// Takes so many bytes more, in the place of others where there is no room.
    ///
    /// # Errors
    /// If there is no room; the bytes held stay.
    pub fn grow(&self, bytes: usize) -> Result<(), Full> {
        while let Err(taken) = self.text.grow(&self.room.0.memory, bytes) {
            if !self.room.0.make_way(&self.text, bytes, taken) {
                return Err(taken.into());
            }
        }
        self.advance(bytes);
        if self.text.gives.load(Ordering::Relaxed) {
            self.room.0.list(&self.text);
        }
        Ok(())
    }

    /// Counts bytes that were read or came in: each [`MOVE_BYTES`] of them are a move.
    pub fn advance(&self, bytes: usize) {
        let since = self.text.bytes_since.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if since >= MOVE_BYTES {
            self.text.bytes_since.store(0, Ordering::Relaxed);
            self.room.0.restart(&self.text);
        }
    }

    /// Waits for the turn to take in more of a large text: of all of them one goes on at a time, an
    /// organization's after another's, so that what is small has no more than one before it.
    pub async fn take_turn(&self) {
        let widest = self.text.path.shares.first().map(|share| share.name.clone());
        let _turn = self.room.0.turn.seat(&widest.unwrap_or_default()).await;
        tokio::task::yield_now().await;
    }

    /// From now on it may give way.
    pub fn give_way(&self) {
        self.text.begun.get_or_init(Instant::now);
        self.room.0.restart(&self.text);
        self.text.gives.store(true, Ordering::Relaxed);
        self.room.0.list(&self.text);
    }

    /// Does what it may give way in; nothing where it has.
    pub async fn giving_way<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.give_way();
        let given = Given(self);
        let done = self.text.gone.run_until_cancelled(work).await;
        drop(given);
        // From here on it gives way no more.
        done.filter(|_| !self.text.gone.is_cancelled())
    }

    /// From now on it stays.
    fn stay(&self) {
        self.text.gives.store(false, Ordering::Relaxed);
        if self.text.is_listed.load(Ordering::Relaxed) {
            lock(&self.room.0.giving).remove(&self.text);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.stay();
    }
}

/// The time in which something may give way.
struct Given<'a>(&'a Hold);

impl Drop for Given<'_> {
    fn drop(&mut self) {
        self.0.stay();
    }
}

impl Text {
    fn grow(&self, memory: &Memory, bytes: usize) -> Result<(), Taken> {
        if bytes == 0 {
            return Ok(());
        }
        let mut piece = lock(&self.piece);
        match &mut *piece {
            Some(piece) => piece.grow(&self.path, bytes)?,
            None => *piece = Some(memory.take(&self.path, bytes)?),
        }
        Ok(())
    }

    /// Its place among those that are under way.
    fn number(&self) -> u64 {
        lock(&self.moved).1
    }

    /// Whether it stands still, or has been under way for long.
    fn is_slow(&self) -> bool {
        let is_long = self.begun.get().is_some_and(|begun| begun.elapsed() >= LONG);
        is_long || lock(&self.moved).0.elapsed() >= GRACE
    }
}

impl Inside {
    /// Has one text give way to another, which wants so many bytes more and finds a share taken: by those
    /// beside it, or by those within. Answers whether one did: nobody gives way to who has more.
    fn make_way(&self, to: &Text, bytes: usize, Taken { depth, .. }: Taken) -> bool {
        let own = &to.path.shares;
        let mut giving = lock(&self.giving);
        let most = self.memory.look(|has| {
            (depth..own.len()).find_map(|at| {
                let (around, beside) = (giving.around(&own[..at])?, &own[at].name);
                let wanted = has(beside) + bytes;
                around.find_slow(has, &|name, bytes| name != &**beside && bytes >= wanted).cloned()
            })
        });
        let Some(text) = most else { return false };
        giving.remove(&text);
        drop(giving);
        text.gone.cancel();
        *lock(&text.piece) = None;
        true
    }

    /// The present, and the next place in the order of moves.
    fn next_move(&self) -> (Instant, u64) {
        (Instant::now(), self.moves.fetch_add(1, Ordering::Relaxed))
    }

    /// Puts a text behind all that moved before.
    fn restart(&self, text: &Arc<Text>) {
        let mut giving = lock(&self.giving);
        let was_listed = giving.remove(text);
        *lock(&text.moved) = self.next_move();
        if was_listed {
            giving.add(text);
        }
    }

    /// Lists a text that has something to give.
    fn list(&self, text: &Arc<Text>) {
        if lock(&text.piece).is_some() && !text.is_listed.load(Ordering::Relaxed) {
            lock(&self.giving).add(text);
        }
    }
}

impl Giving {
    fn add(&mut self, text: &Arc<Text>) {
        let own = (text.path.shares.iter())
            .fold(self, |around, share| around.within.entry(share.name.clone()).or_default());
        own.texts.insert(text.number(), text.clone());
        text.is_listed.store(true, Ordering::Relaxed);
    }

    /// Answers whether it was there.
    fn remove(&mut self, text: &Text) -> bool {
        let was_listed = text.is_listed.swap(false, Ordering::Relaxed);
        if was_listed {
            self.prune(&text.path.shares, text.number());
        }
        was_listed
    }

    fn prune(&mut self, path: &[Share], number: u64) {
        let Some((share, rest)) = path.split_first() else {
            self.texts.remove(&number);
            return;
        };
        if let Some(own) = self.within.get_mut(&share.name) {
            own.prune(rest, number);
            if own.is_empty() {
                self.within.remove(&share.name);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.within.is_empty() && self.texts.is_empty()
    }

    fn around(&self, path: &[Share]) -> Option<&Self> {
        path.iter().try_fold(self, |around, share| around.within.get(&share.name))
    }

    /// Of the shares within that are asked for, the one that has most comes first: the text of it that
    /// moved the longest ago, if that is slow, else one of a share within it.
    fn find_slow(
        &self,
        has: &dyn Fn(&str) -> usize,
        is_asked: &dyn Fn(&str, usize) -> bool,
    ) -> Option<&Arc<Text>> {
        let shares = self.within.iter().map(|(name, share)| (has(name), name, share));
        let mut asked: Vec<_> = shares.filter(|(bytes, name, _)| is_asked(name, *bytes)).collect();
        asked.sort_unstable_by_key(|(bytes, ..)| Reverse(*bytes));
        asked.iter().find_map(|(.., share)| {
            let own = share.texts.values().next().filter(|text| text.is_slow());
            own.or_else(|| share.find_slow(has, &|_, _| true))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use bytes::Bytes;
    use futures::FutureExt as _;
    use http_body_util::{BodyExt as _, Full as Whole};

    use super::*;
    use crate::http::body::{Body, read};

    fn hold(room: &Room, bytes: usize) -> Hold {
        let share = Share { name: "o".into(), max: 8 << 20 };
        let path = Path { shares: Arc::new([share]), floor: None };
        let hold = room.hold(path, CancellationToken::new());
        hold.grow(bytes).unwrap();
        hold
    }

    #[tokio::test]
    async fn a_large_body_waits_for_its_turn_and_a_small_one_for_nothing() {
        let room = Room::new(16 << 20);
        let turn = room.0.turn.seat(&"another".into()).await;
        let [large, small] =
            [64 << 10, 1 << 10].map(|bytes| Whole::new(Bytes::from(vec![0; bytes])));
        let [held, held_small] = [(); 2].map(|()| hold(&room, 0));
        let time_max = Duration::from_secs(60);
        let mut large = pin!(read(large, 1 << 20, time_max, Some(&held)));
        assert!(large.as_mut().now_or_never().is_none());
        let small = read(small, 1 << 20, time_max, Some(&held_small)).await;
        assert_eq!(small.map(|bytes| bytes.len()), Ok(1 << 10));
        drop(turn);
        assert_eq!(large.await.map(|bytes| bytes.len()), Ok(64 << 10));
    }

    #[tokio::test]
    async fn an_answer_is_handed_on_in_pieces_and_keeps_its_room_until_the_last_is_gone() {
        let room = Room::new(16 << 20);
        let text: Bytes = (0..1_000_000_u32).map(|n| n as u8).collect::<Vec<_>>().into();
        let mut body = Body::with_hold(text.clone(), hold(&room, text.len()));
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.push(frame.unwrap().into_data().unwrap());
        }
        assert!(pieces.iter().all(|piece| piece.len() <= 64 << 10), "each moves it on");
        assert_eq!(pieces.concat(), text);
        drop(body);
        let last = pieces.pop();
        drop(pieces);
        assert_eq!(room.bytes(), text.len());
        drop(last);
        assert!(room.is_empty());
    }
}
