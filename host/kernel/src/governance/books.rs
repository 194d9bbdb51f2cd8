//! The accounts that a primitive may name, and what it may do with them. The host and the SDK's test
//! double keep these rules alike, since they stand here alone.

use crate::ledger::Account;
use crate::money::AMOUNT_MAX;
use crate::refusal::Failure;
use crate::scope::Scope;
use crate::unit::{Key, Reach};

use super::hold::{CREDIT, accounts_space};

/// Bytes of an account's name.
const NAME_BYTES_MAX: usize = 200;
/// The first character in the name of another user's account.
const ANOTHERS: char = '@';

/// A primitive's books, as a call of it sees them.
#[derive(Clone, Copy, Debug)]
pub struct Books<'a> {
    /// The primitive's name.
    pub primitive: &'a str,
    /// Whether it is the one that bills: its accounts are the organization's, and it alone says what
    /// money came in.
    pub bills: bool,
    /// The call's scope.
    pub scope: &'a Scope,
}

/// The user and the account of a name `@<user>/<account>`.
pub fn another(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(ANOTHERS)?.split_once('/')
}

/// Checks an amount that is moved.
///
/// # Errors
/// `invalid_request` for one that is negative, or beyond every sum.
pub fn check_amount(amount: i64) -> Result<(), Failure> {
    if (0..=AMOUNT_MAX).contains(&amount) {
        return Ok(());
    }
    let told = format!("an amount is 0 to {AMOUNT_MAX} micro-US-dollars");
    Err(Failure::invalid("amount", told))
}

impl Books<'_> {
    /// The key of an account of the caller's: the organization's `credit`, or one of its own.
    ///
    /// # Errors
    /// `invalid_request` for a name that is too long or another user's.
    pub fn account(&self, name: &str) -> Result<Key, Failure> {
        if name == CREDIT {
            let organization = Reach::organization(self.scope.lane());
            return Ok(Key::new(&organization, &accounts_space(), CREDIT));
        }
        if name.starts_with(ANOTHERS) {
            let told = "another user's account is neither opened nor read";
            return Err(Failure::invalid("account", told));
        }
        self.own(&self.here(), name)
    }

    /// The key of an account that the primitive has there.
    ///
    /// # Errors
    /// `invalid_request` for a name that is empty or too long.
    pub fn own(&self, reach: &Reach, name: &str) -> Result<Key, Failure> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let told = format!("an account's name has 1 to {NAME_BYTES_MAX} bytes");
            return Err(Failure::invalid("account", told));
        }
        Ok(Key::new(reach, &accounts_space(), format!("{}.{name}", self.primitive)))
    }

    /// The reach in which its accounts lie.
    fn here(&self) -> Reach {
        match self.bills {
            true => Reach::organization(self.scope.lane()),
            false => self.scope.narrowest(),
        }
    }

    /// The name by which the primitive knows the account of this id.
    pub fn name_of<'i>(&self, id: &'i str) -> &'i str {
        let own = id.strip_prefix(self.primitive).and_then(|rest| rest.strip_prefix('.'));
        own.unwrap_or(id)
    }

    /// Whether the primitive has named the account, wherever it lies.
    fn is_own(&self, account: &Key) -> bool {
        self.name_of(&account.id) != account.id
    }

    /// Nothing is taken from another user by a credential that is pinned to one.
    ///
    /// # Errors
    /// `forbidden`, `pinned_to_user`.
    pub fn check_payer(&self, from: &str) -> Result<(), Failure> {
        if !from.starts_with(ANOTHERS) || !self.scope.principal().is_pinned_to_user() {
            return Ok(());
        }
        let told = "a credential that is pinned to one user takes nothing from another";
        let reason = Some("pinned_to_user".into());
        Err(Failure { reason, ..Failure::new("forbidden", told) })
    }

    /// The organization's `credit` is everybody's to be paid from and to look at what it has; to
    /// stop it, to read what others moved on it, and to report what has left it, is the biller's.
    ///
    /// # Errors
    /// `forbidden` for another.
    pub fn check_billers(&self, account: &Key) -> Result<(), Failure> {
        if account.id != CREDIT || self.bills {
            return Ok(());
        }
        let told = "only the primitive that bills freezes `credit`, reads its entries, or reports what has left it";
        Err(Failure::new("forbidden", told))
    }

    /// Money that a provider has told of moves between accounts of its primitive's own: it overdraws
    /// them, and brings nothing to others that was never there. The biller alone says what came in.
    ///
    /// # Errors
    /// `forbidden` for another account.
    pub fn check_told(&self, to: &Key) -> Result<(), Failure> {
        if self.bills || self.is_own(to) && to.reach == self.here() {
            return Ok(());
        }
        let told =
            "what is reported is paid to an account of the primitive's own, where it is told";
        Err(Failure::new("forbidden", told))
    }

    /// An account that money comes out of without ever having come in is opened, and paid from, by the
    /// primitive that bills, and by nobody else.
    ///
    /// # Errors
    /// `forbidden` for another.
    pub fn check_source(&self, account: &Account) -> Result<(), Failure> {
        if self.bills || !account.is_source() {
            return Ok(());
        }
        let told = "only the primitive that bills opens, or pays from, an account that grows when it is debited or may go negative";
        Err(Failure::new("forbidden", told))
    }

    /// Whether an account may be a source, and has to be looked at before it pays: the biller's may
    /// be one, and `credit` is none.
    pub fn needs_source_check(&self, from: &Key) -> bool {
        !self.bills && from.id != CREDIT
    }

    /// Whether money goes back where the biller may have brought it from: an account of its own. A
    /// source has.
    pub fn may_take_back(&self, to: &Key) -> bool {
        self.bills && self.is_own(to)
    }

    /// Money leaves `credit` by leave, or is taken back by the biller.
    ///
    /// # Errors
    /// `invalid_request` where it is not.
    pub fn check_leaves(from: &Key, is_taken_back: bool) -> Result<(), Failure> {
        if from.id != CREDIT || is_taken_back {
            return Ok(());
        }
        let told = "money leaves `credit` by leave only: name it as `pay` of a proposal";
        Err(Failure::invalid("from_account", told))
    }
}
