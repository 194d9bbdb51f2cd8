//! Round trips of printing and parsing: ids, cursors, keys, names, roles; and of the record that is
//! kept of a request under its key.

use charter_kernel::cursor::{Binding, Unverified, open, seal};
use charter_kernel::id::{ApprovalId, HoldId, KitId, UserId, uuid_v7};
use charter_kernel::idempotency::{
    ClientKey, Fingerprint, Lineage, Recall, Record, RecordPlace, Request, State, decide, record_id,
};
use charter_kernel::line::one_line;
use charter_kernel::money::{AMOUNT_MAX, cents, dollars, micro_usd};
use charter_kernel::role::Role;
use charter_kernel::standing::{Reason, Standing};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key as RowKey, LogKey, Reach, Space};
use proptest::prelude::*;

const SECRET: [u8; 32] = [3; 32];

fn binding() -> Binding<'static> {
    Binding { tenant: "o/1", operation: "notes.list", filters: "" }
}

fn request(body: &[u8]) -> Request<'_> {
    Request { method: "POST", path: "/notes", query: &[], content_type: "", body }
}

#[test]
fn an_id_of_one_kind_is_its_text_and_no_other() {
    let text = uuid_v7(Instant(1_700_000_000_000), [9; 10]);
    let id = UserId::parse(&text).unwrap();
    assert_eq!(
        (id.to_string(), format!("{id:?}"), id.as_str()),
        (text.clone(), text.clone(), text.as_str())
    );
    assert_eq!(id.as_ref() as &str, text);
    assert_eq!(HoldId::parse(&text).map(HoldId::into_string), Some(text.clone()));
    assert!(serde_json::from_str::<KitId>("\"me\"").is_err());
    assert_eq!(ApprovalId::new(Instant(-5), [0; 10]), ApprovalId::new(Instant(0), [0; 10]));
}

#[test]
fn a_cursor_of_no_position_is_one_too() {
    let cursor = seal(&SECRET, binding(), "").unwrap();
    assert_eq!(open(&SECRET, binding(), &cursor).as_deref(), Ok(""));
    assert_eq!(open(&SECRET, binding(), ""), Err(Unverified));
    assert_eq!(open(&SECRET, binding(), &cursor[..cursor.len() - 1]), Err(Unverified));
    assert_eq!(open(&SECRET, binding(), &format!("{cursor}=")), Err(Unverified));
    assert!(Unverified.to_string().contains("leave it out to start over"));
}

fn print(request: Request<'_>) -> Fingerprint {
    Fingerprint::new(&SECRET, request)
}

#[test]
fn every_member_of_a_request_is_in_its_fingerprint() {
    let query = [("a".to_owned(), "1".to_owned())];
    let base = request(b"{}");
    let prints = [
        print(base),
        print(Request { method: "PUT", ..base }),
        print(Request { path: "/notes/1", ..base }),
        print(Request { query: &query, ..base }),
        print(Request { content_type: "application/json", ..base }),
        print(request(b"[]")),
        print(Request { path: "/note", content_type: "s", ..base }),
    ];
    for (place, one) in prints.iter().enumerate() {
        assert!(!prints[..place].contains(one), "{place}");
    }
    assert_eq!(print(base), print(request(b"{}")));
}

#[test]
fn a_record_begins_running_and_is_its_owners() {
    let print = print(request(b"{}"));
    let record = Record::begin(&print, "run-1".into(), Instant(9));
    assert_eq!(
        (record.state, record.owner.as_str(), record.expires_at),
        (State::Running, "run-1", Instant(9))
    );
    assert_eq!((record.status, record.body.as_str(), record.headers.len()), (0, "", 0));
    assert_eq!(decide(&record, &print), Recall::Running);
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    let earlier = r#"{"fingerprint":"00","state":"in_doubt","expires_at":"2026-11-21T00:00:00Z"}"#;
    let earlier: Record = serde_json::from_str(earlier).unwrap();
    assert_eq!((earlier.approval, earlier.job, earlier.state), (None, None, State::InDoubt));
}

#[test]
fn a_record_lies_where_its_request_was_made() {
    let key = ClientKey::parse("k").unwrap();
    let place = RecordPlace {
        organization: "o",
        project: "p",
        user: "u",
        principal: ("key", "1"),
        operation: "a.b",
        key: &key,
    };
    let moved = [
        RecordPlace { organization: "x", ..place },
        RecordPlace { project: "x", ..place },
        RecordPlace { user: "x", ..place },
        RecordPlace { principal: ("session", "1"), ..place },
        RecordPlace { principal: ("key", "2"), ..place },
        RecordPlace { operation: "a.c", ..place },
        RecordPlace { user: "uk", principal: ("ey", "1"), ..place },
    ];
    for other in moved {
        assert_ne!(record_id(other), record_id(place), "{other:?}");
    }
}

#[test]
fn a_lineage_says_how_deep_a_call_is() {
    let deep = (0..300).fold(Lineage::outermost("r"), |lineage, _| lineage.child(1));
    assert_eq!(deep.depth(), u8::MAX, "it does not begin anew");
    assert_ne!(Lineage::outermost("r").child(12), Lineage::outermost("r").child(1).child(2));
}

#[test]
fn reaches_and_spaces_are_told_by_their_texts() {
    let reaches = [
        (Reach::user("1"), "u/1", false),
        (Reach::project("1"), "p/1", true),
        (Reach::organization("1"), "o/1", true),
        (Reach::deployment(), "d", true),
    ];
    for (reach, text, is_shared) in reaches {
        assert_eq!((reach.as_str(), reach.is_shared()), (text, is_shared));
        assert_eq!(Reach::from_store(text.to_owned()), reach);
    }
    assert_eq!(Space::of("queue", "messages").as_str(), "queue.messages");
    assert_eq!(Space::host("jobs").as_str(), "host.jobs");
    let key = RowKey::new(&Reach::user("1"), &Space::host("jobs"), "a");
    let text = serde_json::to_string(&key).unwrap();
    assert_eq!(text, r#"{"reach":"u/1","space":"host.jobs","id":"a"}"#);
    assert_eq!(serde_json::from_str::<RowKey>(&text).unwrap(), key);
    let log = LogKey { reach: Reach::deployment(), log: "l".into() };
    assert_eq!(serde_json::from_str::<LogKey>(&serde_json::to_string(&log).unwrap()).unwrap(), log);
}

#[test]
fn a_role_is_known_by_its_name_and_a_standing_by_its_place() {
    for role in Role::ALL {
        assert_eq!(
            (Role::parse(role.as_str()), role.to_string()),
            (Some(role), role.as_str().to_owned())
        );
        assert_eq!(serde_json::to_value(role).unwrap(), role.as_str());
        assert_eq!(role.loosens(), matches!(role, Role::Admin | Role::Owner));
    }
    assert_eq!(Role::parse("Admin"), None);
    let key = Standing::address("o");
    assert_eq!(
        (key.reach, key.space, key.id.as_str()),
        (Reach::organization("o"), Standing::space(), "standing")
    );
    assert_eq!(Reason::parse("credits_exhausted"), Some(Reason::CreditsExhausted));
    assert!(!Reason::LlmRoutingRequiresPayment.stops(false));
}

#[test]
fn money_is_counted_in_whole_numbers() {
    assert_eq!((micro_usd(0), micro_usd(1), cents(9_999), cents(10_000)), (0, 10_000, 0, 1));
    assert_eq!((cents(-10_000), cents(-10_001)), (-1, -2));
    assert_eq!(dollars(-1_500_000), "$-1.50");
    assert_eq!(dollars(AMOUNT_MAX), "$9000000000.00");
    assert!(AMOUNT_MAX.checked_mul(1_000).is_some(), "a thousand of them still fit");
    assert_eq!(one_line("a\tb"), "a\\tb");
}

proptest! {
    #[test]
    fn a_cursor_comes_back_under_its_own_binding_alone(
        position in "\\PC{0,60}", tenant in "[a-z/]{0,8}", other in "[a-z/]{0,8}", filters in "[a-z=&]{0,8}",
    ) {
        let own = Binding { tenant: &tenant, operation: "a.list", filters: &filters };
        let cursor = seal(&SECRET, own, &position).unwrap();
        prop_assert_eq!(open(&SECRET, own, &cursor), Ok(position));
        let foreign = Binding { tenant: &other, ..own };
        prop_assert_eq!(open(&SECRET, foreign, &cursor).is_ok(), other == tenant);
        prop_assert_eq!(open(&[4; 32], own, &cursor), Err(Unverified));
    }

    #[test]
    fn ids_sort_by_age_and_come_back(a in 0..4_000_000_000_000_i64, b in 0..4_000_000_000_000_i64, random in any::<[u8; 10]>()) {
        let (older, newer) = (uuid_v7(Instant(a.min(b)), random), uuid_v7(Instant(a.max(b)), random));
        prop_assert!(older <= newer);
        let id = UserId::parse(&older.to_uppercase()).unwrap();
        prop_assert_eq!(UserId::parse(id.as_str()), Some(id));
    }

    #[test]
    fn amounts_come_back_by_the_cent(value in 0..=900_000_000_000_u64) {
        prop_assert_eq!(cents(micro_usd(value)), i64::try_from(value).unwrap());
        let text = dollars(micro_usd(value));
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        prop_assert_eq!(digits.parse::<u64>().unwrap(), value);
    }

    #[test]
    fn a_strangers_text_stays_on_its_line(text in "\\PC{0,20}[\\x00-\\x1f\u{2028}]{0,4}\\PC{0,20}") {
        let line = one_line(&text);
        let breaks = line.chars().any(|c| c.is_control() || c == '\u{2028}');
        prop_assert!(!breaks);
        prop_assert_eq!(one_line(&line), line.clone());
    }
}
