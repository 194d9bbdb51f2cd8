//! Memory for answers that nobody has read yet, as [`Room`] shares it: a change whose answer finds no
//! room is not made, and one that has acted already is told that its answer was dropped. An answer that
//! is read slowly gives way, and its connection is cut.

use std::sync::Mutex;

use charter_tenancy::identity::Identity;
use tokio_util::sync::CancellationToken;

use super::holder::Holder;
use super::lock;
use super::memory::Full;
use super::room::{Hold, Room};
use super::shares::Path;
use crate::config::BODIES_SHARE;

/// Bytes below which an answer costs no more than the request that it answers. Of such requests a
/// connection of HTTP/2 has many at once, and each counts for this much there.
pub const COUNTED_BYTES_MIN: usize = 4 << 10;
/// Nobody is asked to read first while all that is unread is less than one of so many parts of the
/// room.
const QUIET_SHARE: usize = 32;

/// The room. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Answers(Room);

/// The room for the answer of one request of a credential.
#[derive(Debug)]
pub struct AnswerRoom {
    answers: Answers,
    organization: String,
    identity: Identity,
    wire: Wire,
    /// The room that was taken last, or why there was none.
    taken: Mutex<Option<Result<Hold, Full>>>,
}

/// The connection that an answer goes out by.
#[derive(Clone, Debug, Default)]
pub struct Wire {
    /// Whether it is HTTP/2.
    pub http2: bool,
    /// Cuts it; absent where other clients have it too.
    pub cut: Option<CancellationToken>,
}

impl Answers {
    /// A room of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self(Room::new(bytes_max))
    }

    /// The room for the answer of a request of this sender.
    ///
    /// # Errors
    /// If there is none for one more answer, however small.
    pub fn enter(
        &self,
        organization: &str,
        identity: &Identity,
        wire: Wire,
    ) -> Result<AnswerRoom, Full> {
        if !self.is_quiet() {
            self.take(organization, &Holder::of(identity), 1, None)?;
        }
        Ok(AnswerRoom {
            answers: self.clone(),
            organization: organization.to_owned(),
            identity: identity.clone(),
            wire,
            taken: Mutex::default(),
        })
    }

    /// Takes so many bytes for an answer.
    ///
    /// # Errors
    /// If there is no room; nothing is taken.
    fn take(
        &self,
        organization: &str,
        holder: &Holder,
        bytes: usize,
        cut: Option<&CancellationToken>,
    ) -> Result<Hold, Full> {
        let hold = self.0.hold(self.path(organization, holder), cut.cloned().unwrap_or_default());
        hold.grow(bytes).map(|()| hold)
    }

    /// The bytes held.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// The shares of a holder in the room that is everybody's.
    fn path(&self, organization: &str, holder: &Holder) -> Path {
        holder.path(organization, self.0.bytes_max() / BODIES_SHARE)
    }

    fn is_quiet(&self) -> bool {
        self.bytes() < self.0.bytes_max() / QUIET_SHARE
    }
}

impl AnswerRoom {
    /// Takes room for an answer of so many bytes, in the place of one that was taken before.
    ///
    /// # Errors
    /// If there is none.
    pub fn take(&self, bytes: usize) -> Result<(), Full> {
        let mut taken = lock(&self.taken);
        *taken = None;
        let Some(bytes) = self.count(bytes) else { return Ok(()) };
        let (holder, cut) = (Holder::of(&self.identity), self.wire.cut.as_ref());
        let answer = self.answers.take(&self.organization, &holder, bytes, cut);
        let full = answer.as_ref().err().copied();
        *taken = Some(answer);
        full.map_or(Ok(()), Err)
    }

    /// Why nothing was taken the last time, if there was no room.
    pub fn no_room(&self) -> Option<Full> {
        lock(&self.taken).as_ref()?.as_ref().err().copied()
    }

    /// The hold on the room for an answer of so many bytes, which goes out now: what was taken for it, else
    /// as much. None where it is too small to be counted.
    ///
    /// # Errors
    /// If there is none.
    pub fn hold(&self, bytes: usize) -> Result<Option<Hold>, Full> {
        let mut taken = lock(&self.taken).take().and_then(Result::ok);
        if taken.as_ref().map(Hold::bytes) != self.count(bytes) {
            drop(taken);
            self.take(bytes)?;
            taken = lock(&self.taken).take().transpose()?;
        }
        if let Some(hold) = taken.as_ref().filter(|_| self.wire.cut.is_some()) {
            hold.give_way();
        }
        Ok(taken)
    }

    /// The bytes that an answer counts for, where it counts at all.
    fn count(&self, bytes: usize) -> Option<usize> {
        let counts = bytes >= COUNTED_BYTES_MIN || (self.wire.http2 && bytes > 0);
        counts.then_some(bytes.max(COUNTED_BYTES_MIN))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use charter_kernel::id::{AccountId, OrganizationId, SessionId};
    use charter_kernel::role::Role;
    use charter_kernel::time::Instant;
    use charter_tenancy::directory::{Membership, SessionRecord};
    use charter_tenancy::secret::Plain;

    use super::*;

    const MIB: usize = 1 << 20;

    fn take(answers: &Answers, of: &str, holder: &Holder, bytes: usize) -> Result<Hold, Full> {
        answers.take(of, holder, bytes, None)
    }

    /// Holds pieces of so many bytes until there is no room.
    fn fill(answers: &Answers, holder: &Holder, bytes: usize) -> Vec<Hold> {
        std::iter::from_fn(|| take(answers, "a", holder, bytes).ok()).collect()
    }

    /// The same of another organization, in pieces that get smaller.
    fn fill_of(answers: &Answers, of: &str, holder: &Holder) -> Vec<Hold> {
        let pieces = (10..23).rev().map(|power| 1 << power);
        pieces
            .flat_map(|bytes| std::iter::from_fn(move || take(answers, of, holder, bytes).ok()))
            .collect()
    }

    fn is_empty(answers: &Answers) -> bool {
        answers.0.is_empty()
    }

    fn session(person: u8) -> Identity {
        let now = Instant(1);
        Identity::Session(Arc::new(SessionRecord {
            id: SessionId::new(now, [person; 10]),
            account: AccountId::new(now, [person; 10]),
            organization: OrganizationId::new(now, [9; 10]),
            csrf_token: Plain::from_client("token"),
            expires_at: now,
            digest: String::new(),
            membership: Membership { role: Role::Owner, since: now, version: 1 },
            version: 1,
        }))
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
        assert!(matches!(take(&answers, "a", &one, 1), Err(Full::Owner)));
        assert!(take(&answers, "a", &two, 1).is_ok());
        let of_two = fill(&answers, &two, 1 << 10);
        let owner = Holder::from(["key own"]);
        assert_eq!((of_two.len(), fill(&answers, &owner, 1 << 10).len()), (64, 416), "half");
        drop((all, of_two));
        let large = take(&answers, "a", &one, 3 * MIB);
        assert!(large.is_ok(), "nothing is too large where nobody has any");
        assert!(matches!(take(&answers, "a", &one, 3 * MIB), Err(Full::Owner)), "but not twice");
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
            assert!(take(&answers, "a", holder, bytes).is_ok(), "{holder:?} {bytes}");
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
            first.extend(take(&answers, "a", &holder, MIB));
        }
        let most = 16 + 16 / 2;
        assert!((8..=most).contains(&first.len()), "{}", first.len());
        let neighbour = Holder::from(["person n", "key own"]);
        assert!(take(&answers, "b", &neighbour, MIB).is_ok(), "another tenant has its own");
        assert!(take(&answers, "b", &neighbour, 8 * MIB).is_ok(), "with room of its own beside");
        drop(first);
        assert!(is_empty(&answers));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_read_slowly_gives_way_to_who_has_less_and_its_connection_is_cut() {
        let answers = Answers::new(64 * MIB);
        let person = Holder::from(["person p", "key one"]);
        let mut held = Vec::new();
        for (n, bytes) in
            (0..40).flat_map(|n| [(n, 4 * MIB), (n, MIB), (n, 64 << 10), (n, 4 << 10)])
        {
            let cut = CancellationToken::new();
            let hold = answers.take(&format!("o{n}"), &person, bytes, Some(&cut));
            held.extend(hold.map(|hold| (hold, cut)));
        }
        held.iter().for_each(|(hold, _)| hold.give_way());
        let late = || take(&answers, "neighbour", &person, MIB);
        let own = take(&answers, "neighbour", &person, 4 << 10).unwrap();
        assert!(late().is_err(), "nobody is slow yet");
        tokio::time::advance(crate::bounds::room::GRACE).await;
        let before = answers.bytes();
        let given = late().unwrap();
        let gone = held.iter().filter(|(_, cut)| cut.is_cancelled());
        assert!(gone.clone().count() >= 1 && gone.count() < held.len());
        assert!(answers.bytes() <= before + MIB);
        drop((held, given, own));
        assert!(is_empty(&answers));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_moves_stays_and_one_that_stands_still_gives_way() {
        let answers = Answers::new(64 * MIB);
        let person = Holder::from(["person p", "key one"]);
        let organizations = (0..40).map(|n| format!("o{n}"));
        let mut held: Vec<_> = organizations
            .flat_map(|of| [4 * MIB, MIB, 64 << 10, 4 << 10].map(|bytes| (of.clone(), bytes)))
            .filter_map(|(of, bytes)| {
                let cut = CancellationToken::new();
                let hold = answers.take(&of, &person, bytes, Some(&cut)).ok()?;
                Some((of, hold, cut))
            })
            .collect();
        held.iter().for_each(|(_, hold, _)| hold.give_way());
        let late = || take(&answers, "late", &person, MIB);
        let own = take(&answers, "late", &person, 4 << 10).unwrap();
        let pass = async |held: &[(String, Hold, CancellationToken)]| {
            for _ in 0..2 {
                tokio::time::advance(crate::bounds::room::GRACE / 2).await;
                let moving = held.iter().filter(|(of, ..)| of != "o3");
                moving.for_each(|(_, hold, _)| hold.advance(256 << 10));
            }
        };
        pass(&held).await;
        let given = late().unwrap();
        let gone = |held: &[(String, Hold, CancellationToken)]| -> Vec<String> {
            let gone = held.iter().filter(|(.., cut)| cut.is_cancelled());
            gone.map(|(of, ..)| of.clone()).collect()
        };
        assert_eq!(gone(&held), ["o3"], "which has less than others");
        drop(given);
        held.retain(|(of, ..)| of != "o3");
        // The room is filled again.
        let others = (0..40).map(|n| format!("p{n}"));
        let filled: Vec<_> = others.flat_map(|of| fill_of(&answers, &of, &person)).collect();
        assert!(late().is_err(), "all that can give way move");
        for _ in 0..10 {
            pass(&held).await;
        }
        assert!(late().is_ok(), "but not for ever");
        assert!((1..held.len()).contains(&gone(&held).len()));
        drop((held, filled, own));
        assert!(is_empty(&answers));
    }

    #[test]
    fn a_sender_takes_room_before_it_changes_anything_and_reads_before_it_asks_for_more() {
        let answers = Answers::new(64 * MIB);
        let [owner, other] = [session(1), session(2)];
        let enter = |identity: &Identity| answers.enter("a", identity, Wire::default());
        let [one, two] = [(); 2].map(|()| enter(&owner).unwrap());
        assert_eq!(one.take(5 * MIB), Ok(()), "more than its share, which is free");
        let first = one.hold(5 * MIB).unwrap().unwrap();
        assert_eq!(two.take(5 * MIB), Err(Full::Owner), "and so it is not made");
        assert_eq!(two.no_room(), Some(Full::Owner));
        assert!(two.hold(5 * MIB).is_err() && two.hold(100).unwrap().is_none());
        assert!(matches!(enter(&owner), Err(Full::Owner)), "until some are read");
        assert_eq!(enter(&other).unwrap().take(2 * MIB), Ok(()));
        assert_eq!(answers.bytes(), 5 * MIB);
        drop(first);
        assert_eq!(enter(&owner).unwrap().take(MIB), Ok(()));
        assert!(is_empty(&answers));
    }
}
