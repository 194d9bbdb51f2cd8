//! The accounts that a primitive may name, and what it may do with them.

use charter_kernel::governance::books::{self, Books};
use charter_kernel::governance::hold::CREDIT;
use charter_kernel::id::{OrganizationId, ProjectId, UserId, uuid_v7};
use charter_kernel::ledger::{Account, Normal};
use charter_kernel::money::AMOUNT_MAX;
use charter_kernel::refusal::Failure;
use charter_kernel::scope::{Actor, ActorKind, Principal, Proof, Scope, Subject};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach};

fn id(n: u8) -> String {
    uuid_v7(Instant(1), [n; 10])
}

/// A call about the user 3 of the project 2.
fn scope(principal: Principal) -> Scope {
    let organization = OrganizationId::parse(&id(1)).unwrap();
    let project = ProjectId::parse(&id(2)).unwrap();
    let user = UserId::parse(&id(3)).unwrap();
    let proof = Proof::of(principal).organization(organization).project(project, false, true);
    proof.user(user, Subject::Path).scope()
}

fn key() -> Principal {
    Principal::of(Actor::new(ActorKind::Key, "k"))
}

fn code<T>(outcome: Result<T, Failure>) -> Option<String> {
    outcome.err().map(|failure| failure.param.unwrap_or(failure.code))
}

fn refused(what: &str) -> Option<String> {
    Some(what.to_owned())
}

#[test]
fn an_account_lies_where_its_primitive_works_and_bears_its_name() {
    let scope = scope(key());
    for (bills, reach) in [(false, Reach::user(&id(3))), (true, Reach::organization(&id(1)))] {
        let books = Books { primitive: "cards", bills, scope: &scope };
        let own = books.account("merchants").unwrap();
        assert_eq!((&own.reach, own.id.as_str()), (&reach, "cards.merchants"));
        assert_eq!(books.name_of(&own.id), "merchants");
        let credit = books.account(CREDIT).unwrap();
        assert_eq!((credit.reach, credit.id.as_str()), (Reach::organization(&id(1)), CREDIT));
        assert_eq!(books.name_of(CREDIT), CREDIT);
        assert_eq!(books.name_of("cards2.merchants"), "cards2.merchants", "it is another's");
        for name in ["", "@u/main", "@", &"n".repeat(201)] {
            assert_eq!(code(books.account(name)), refused("account"), "{name}");
        }
        assert!(books.account(&"n".repeat(200)).is_ok());
    }
    assert_eq!(books::another("@u/main"), Some(("u", "main")));
    assert_eq!((books::another("main"), books::another("@u")), (None, None));
}

#[test]
fn what_comes_into_credit_and_leaves_it_is_the_billers() {
    let scope = scope(key());
    let other = Books { primitive: "cards", bills: false, scope: &scope };
    let biller = Books { primitive: "billing", bills: true, scope: &scope };
    let credit = other.account(CREDIT).unwrap();
    let (of_cards, of_billing) =
        (other.account("merchants").unwrap(), biller.account("provider").unwrap());
    assert_eq!(code(other.check_billers(&credit)), refused("forbidden"));
    assert_eq!(code(other.check_billers(&of_cards)), None);
    assert_eq!(code(biller.check_billers(&credit)), None);
    // Money that a provider has told of stays with the primitive, and where it was told.
    let elsewhere = Key { reach: Reach::user(&id(9)), ..of_cards.clone() };
    for (to, allowed) in [(&of_cards, true), (&credit, false), (&elsewhere, false)] {
        assert_eq!(other.check_told(to).is_ok(), allowed, "{}", to.id);
        assert!(biller.check_told(to).is_ok());
    }
    assert_eq!(code(other.check_told(&of_billing)), refused("forbidden"));
    // Nothing is made of what nothing bounds, unless by the biller, which alone opens such accounts.
    for (normal, may_go_negative, is_source) in [
        (Normal::Credit, false, false),
        (Normal::Credit, true, true),
        (Normal::Debit, false, true),
        (Normal::Debit, true, true),
    ] {
        let account = Account::new(normal, may_go_negative);
        let refusal = if is_source { refused("forbidden") } else { None };
        assert_eq!(code(other.check_source(&account)), refusal, "{account:?}");
        assert_eq!(code(biller.check_source(&account)), None);
    }
    assert!(other.needs_source_check(&of_cards) && !other.needs_source_check(&credit));
    assert!(!biller.needs_source_check(&of_billing));
    assert_eq!(code(Books::check_leaves(&credit, false)), refused("from_account"));
    assert!(Books::check_leaves(&credit, true).is_ok());
    assert!(Books::check_leaves(&of_cards, false).is_ok());
    assert!(biller.may_take_back(&of_billing) && !biller.may_take_back(&of_cards));
    assert!(!other.may_take_back(&of_cards));
}

#[test]
fn a_credential_of_one_user_takes_nothing_from_another() {
    let (free, pinned) = (scope(key()), scope(Principal { user: UserId::parse(&id(3)), ..key() }));
    for (scope, from, allowed) in [
        (&free, "@u/main", true),
        (&pinned, "main", true),
        (&pinned, CREDIT, true),
        (&pinned, "@u/main", false),
        (&pinned, "@", false),
    ] {
        let books = Books { primitive: "payments", bills: false, scope };
        let reason = books.check_payer(from).err().and_then(|failure| failure.reason);
        assert_eq!(reason.is_none(), allowed, "{from} {reason:?}");
    }
}

#[test]
fn an_amount_is_within_its_range() {
    for (amount, fits) in [(-1, false), (0, true), (AMOUNT_MAX, true), (AMOUNT_MAX + 1, false)] {
        assert_eq!(books::check_amount(amount).is_ok(), fits, "{amount}");
    }
}
