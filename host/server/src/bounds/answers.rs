//! Memory for answers that nobody has read yet: bounded for the process, for each organization, and
//! there for each credential.
//!
//! Beside that room is a quarter as much for those who have nothing: whoever finds none left by
//! others gets one answer there. The answer of a change is never refused, so a change counts before
//! it is made, and its answer counts whether there is room or not.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::holder::Holder;
use super::room::Full;
use super::shares::{Path, Share, Shares, Taken};
use crate::config::BODIES_SHARE;

/// Bytes that a change counts for before its answer is known.
const CHANGE_BYTES: usize = 64 << 10;
/// All that is unread or under way bounds nobody while it is less than one of so many parts of the
/// room.
const QUIET_SHARE: usize = 32;

/// The room. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Answers {
    bytes_max: usize,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug)]
struct Held {
    /// The shares of everybody.
    shared: Shares,
    /// One answer of each who found nothing left by others.
    floors: Shares,
    /// Changes under way.
    changes: usize,
    /// Bytes of answers, those beyond a share's part too, and what changes count for.
    bytes: usize,
}

/// The shares that bytes count in.
#[derive(Debug)]
enum Counted {
    Shared(Vec<Share>),
    Floor([Share; 2]),
}

/// Bytes of the room; given back when this is dropped.
#[derive(Debug)]
pub struct AnswerHold {
    answers: Answers,
    counted: Counted,
    bytes: usize,
}

/// A change under way. It counts for some bytes once there is less room.
#[derive(Debug)]
pub struct Change {
    answers: Answers,
    hold: Option<AnswerHold>,
}

impl Answers {
    /// A room of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        let shared = Shares::new(bytes_max);
        let floors = Shares::new(bytes_max / BODIES_SHARE);
        let held = Arc::new(Mutex::new(Held { shared, floors, changes: 0, bytes: 0 }));
        Self { bytes_max, held }
    }

    /// Whether there is room for one more answer, however small.
    ///
    /// # Errors
    /// If there is none for this holder.
    pub fn look(&self, organization: &str, holder: impl FnOnce() -> Holder) -> Result<(), Full> {
        if self.is_quiet() {
            return Ok(());
        }
        let path = self.path(organization, &holder());
        self.lock().admit(path, 1).map(drop)
    }

    /// Takes so many bytes for an answer.
    ///
    /// # Errors
    /// If there is no room; nothing is taken.
    pub fn take(
        &self,
        organization: &str,
        holder: &Holder,
        bytes: usize,
    ) -> Result<AnswerHold, Full> {
        let path = self.path(organization, holder);
        let mut held = self.lock();
        let counted = held.admit(path, bytes)?;
        held.add(&counted, bytes);
        Ok(AnswerHold { answers: self.clone(), counted, bytes })
    }

    /// Begins a change of this holder.
    ///
    /// # Errors
    /// If there is no room for its answer.
    pub fn begin_change(
        &self,
        organization: &str,
        holder: impl FnOnce() -> Holder,
    ) -> Result<Change, Full> {
        let hold = if self.is_quiet() {
            None
        } else {
            Some(self.take(organization, &holder(), CHANGE_BYTES)?)
        };
        self.lock().changes += 1;
        Ok(Change { answers: self.clone(), hold })
    }

    /// The bytes held.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// The shares of a holder in the room that is everybody's.
    fn path(&self, organization: &str, holder: &Holder) -> Path {
        holder.path(organization, self.bytes_max / BODIES_SHARE)
    }

    fn is_quiet(&self) -> bool {
        let held = self.lock();
        let bytes = held.shared.total() + held.floors.total() + held.changes * CHANGE_BYTES;
        bytes < self.bytes_max / QUIET_SHARE
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// The shares that so many bytes may be counted in.
    fn admit(&self, path: Path, bytes: usize) -> Result<Counted, Full> {
        let Err(Taken { depth, by_others }) = self.shared.admit(&path.shares, bytes) else {
            return Ok(Counted::Shared(path.shares));
        };
        let full = if depth == 0 && by_others { Full::Process } else { Full::Owner };
        let floor = path.floor().ok_or(full)?;
        if self.shared.of(&floor.name) + self.floors.of(&floor.name) > 0 {
            return Err(full);
        }
        let counted = [&path.shares[0], floor].map(|share| Share {
            name: share.name.clone(),
            // An organization's answers there leave others their half, however large they are.
            max: self.floors.all() / 2,
        });
        // Nothing is too large where nobody has any.
        let fits = self.floors.total() == 0 || self.floors.admit(&counted[..1], bytes).is_ok();
        fits.then_some(Counted::Floor(counted)).ok_or(full)
    }

    fn add(&mut self, counted: &Counted, bytes: usize) {
        self.bytes += bytes;
        match counted {
            Counted::Shared(path) => self.shared.add(path, bytes),
            Counted::Floor(path) => self.floors.add(path, bytes),
        }
    }

    fn remove(&mut self, counted: &Counted, bytes: usize) {
        self.bytes -= bytes;
        match counted {
            Counted::Shared(path) => self.shared.remove(path, bytes),
            Counted::Floor(path) => self.floors.remove(path, bytes),
        }
    }
}

impl Change {
    /// Holds so many bytes for the answer of the change, whether there is room or not.
    pub fn owe(mut self, organization: &str, holder: &Holder, bytes: usize) -> AnswerHold {
        if let Some(hold) = self.hold.take() {
            return hold.resize(bytes);
        }
        let counted = Counted::Shared(self.answers.path(organization, holder).shares);
        self.answers.lock().add(&counted, bytes);
        AnswerHold { answers: self.answers.clone(), counted, bytes }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.answers.lock().changes -= 1;
    }
}

impl AnswerHold {
    fn resize(mut self, bytes: usize) -> Self {
        let mut held = self.answers.lock();
        held.remove(&self.counted, self.bytes);
        held.add(&self.counted, bytes);
        drop(held);
        self.bytes = bytes;
        self
    }
}

impl Drop for AnswerHold {
    fn drop(&mut self) {
        self.answers.lock().remove(&self.counted, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Holds pieces of so many bytes until there is no room.
    fn fill(answers: &Answers, holder: &Holder, bytes: usize) -> Vec<AnswerHold> {
        std::iter::from_fn(|| answers.take("a", holder, bytes).ok()).collect()
    }

    fn is_empty(answers: &Answers) -> bool {
        let held = answers.lock();
        held.shared.is_empty() && held.floors.is_empty() && held.changes + held.bytes == 0
    }

    fn agent(user: &str) -> Holder {
        ["pinned", "project p", user].into()
    }

    #[test]
    fn what_one_credential_does_not_read_leaves_room_to_the_others() {
        let answers = Answers::new(4 * MIB);
        let [one, two] = ["user one", "user two"].map(agent);
        let all = fill(&answers, &one, 1 << 10);
        assert_eq!(all.len(), 128, "an eighth of the organization's quarter");
        assert_eq!(answers.look("a", || one.clone()), Err(Full::Owner));
        assert_eq!(answers.look("a", || two.clone()), Ok(()));
        let of_two = fill(&answers, &two, 1 << 10);
        let owner = Holder::from(["key own"]);
        assert_eq!((of_two.len(), fill(&answers, &owner, 1 << 10).len()), (64, 416), "half");
        drop((all, of_two));
        let large = answers.take("a", &one, 3 * MIB);
        assert!(large.is_ok(), "nothing is too large where nobody has any");
        assert!(matches!(answers.take("a", &one, 3 * MIB), Err(Full::Owner)), "but not twice");
        drop(large);
        assert!(is_empty(&answers));
    }

    #[test]
    fn keys_of_one_project_and_keys_of_a_person_keep_neither_others_nor_a_session_from_theirs() {
        let answers = Answers::new(64 * MIB);
        let of_project = |project: &str| Holder::from(["pinned", project, "no user"]);
        let other = of_project("project b");
        let held = [
            fill(&answers, &of_project("project a"), MIB),
            fill(&answers, &agent("user one"), MIB),
            fill(&answers, &["person p", "key one"].into(), MIB),
        ];
        let session = Holder::signed_in("person p");
        for (holder, bytes) in [(&other, 1), (&other, 4 * MIB), (&session, 1), (&session, 2 * MIB)]
        {
            assert!(answers.take("a", holder, bytes).is_ok(), "{holder:?} {bytes}");
        }
        drop(held);
        assert!(is_empty(&answers));
    }

    #[test]
    fn those_who_have_nothing_get_one_answer_each_but_not_without_end() {
        let answers = Answers::new(64 * MIB);
        let projects = (0..1_000).map(|n| Holder::from(["pinned", &format!("project {n}"), "all"]));
        let mut first = Vec::new();
        for holder in projects {
            first.extend(answers.take("a", &holder, MIB));
        }
        let most = 16 + 16 / 2;
        assert!((8..=most).contains(&first.len()), "{}", first.len());
        let neighbour = Holder::from(["person n", "key own"]);
        assert!(answers.take("b", &neighbour, MIB).is_ok(), "another tenant has its own");
        assert!(answers.take("b", &neighbour, 8 * MIB).is_ok(), "with room of its own beside");
        drop(first);
        assert!(is_empty(&answers));
    }

    #[test]
    fn changes_count_before_they_are_made_and_their_answers_take_nothing_from_others() {
        let answers = Answers::new(64 * MIB);
        let keys: Vec<_> =
            (0..30).map(|n| Holder::from(["person p", &format!("key {n}")])).collect();
        let (mut under_way, mut owed) = (Vec::new(), Vec::new());
        for key in keys.iter().cycle().take(3_000) {
            under_way.extend(answers.begin_change("a", || key.clone()).map(|change| (key, change)));
        }
        assert!(under_way.len() <= 160, "{}: of a person's eight MiB", under_way.len());
        for (key, change) in under_way.drain(..) {
            owed.push(change.owe("a", key, MIB));
        }
        for key in &keys {
            assert!(answers.begin_change("a", || key.clone()).is_err(), "until some are read");
        }
        let session = Holder::signed_in("person p");
        assert!(answers.begin_change("a", || session.clone()).is_ok(), "but the person decides");
        let other = Holder::from(["person other", "key own"]);
        assert!(answers.take("a", &other, 2 * MIB).is_ok());
        assert!(answers.take("b", &other, 4 * MIB).is_ok());
        owed.clear();
        assert!(answers.begin_change("a", || keys[0].clone()).is_ok());
        assert!(is_empty(&answers));
    }
}
