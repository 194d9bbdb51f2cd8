//! The part of an answer that leaves the host, and the guest's view of its caller and request.

use charter_kernel::limits::ANSWER_HEADERS_MAX;
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, Principal};

use super::*;
use crate::bindings::AnswerBody as Body;
use crate::config::EngineConfig;
use crate::run::bed::{Bed, alone, handle, id, key, long, scope, shop, user};

fn answer(body: Body) -> bindings::Answer {
    bindings::Answer { status: None, headers: Vec::new(), body }
}

fn bytes(media: &str, bytes: &[u8]) -> Body {
    Body::Bytes((media.into(), bytes.into()))
}

#[tokio::test]
async fn an_answers_body_is_what_it_is_called_and_within_bounds() {
    let config = EngineConfig { answer_bytes_max: 10, ..EngineConfig::default() };
    let bed = Bed::with(config).await;
    let mut guest = bed.attempt(bed.call(user(3)));
    let work = guest.work().unwrap();
    for body in [
        Body::None,
        Body::Json("{}".into()),
        Body::Json("\"12345678\"".into()),
        bytes("text/plain", &[0xff; 10]),
        bytes("application/json", b"[1]"),
        Body::Blob("b".into()),
        Body::Job("j".into()),
        Body::Follow(("log".into(), 3)),
    ] {
        let words = format!("{body:?}");
        assert!(matches!(check_answer(work, answer(body)), Ok(Said::Answer(_))), "{words}");
    }
    for (body, word) in [
        (Body::Json(String::new()), "not JSON"),
        (Body::Json("{".into()), "not JSON"),
        (Body::Json("{} {}".into()), "not JSON"),
        (Body::Json("\"123456789\"".into()), "11 bytes; at most 10"),
        (bytes("text/plain", &[0; 11]), "11 bytes; at most 10"),
        (bytes("a\r\nb", b""), "malformed"),
        (bytes("application/json", b"\"\xff\""), "not UTF-8"),
        (bytes("application/json; charset=utf-8", b"{"), "not JSON"),
        (Body::Follow((String::new(), 0)), "a log's name"),
        (Body::Follow((long(201), 0)), "a log's name"),
        (Body::Written, "was not"),
    ] {
        let words = format!("{body:?}");
        let fault = check_answer(work, answer(body)).err().unwrap_or_default();
        assert!(fault.contains(word), "{words}: {fault}");
    }
}

#[tokio::test]
async fn an_answer_that_shows_a_secret_is_no_jobs() {
    let mut bed = Bed::new().await;
    let mut manifest = shop();
    manifest["operations"][0]["authority"] = json!("profile_secret");
    bed.beside(manifest);
    let mut guest = bed.attempt(bed.call(user(3)));
    let work = guest.work().unwrap();
    let fault = check_answer(work, answer(Body::Job("j".into()))).err().unwrap_or_default();
    assert!(fault.contains("answer it from the request itself"), "{fault}");
    let shown = check_answer(work, answer(Body::Json("{}".into())));
    assert!(matches!(shown, Ok(Said::Answer(_))), "the request itself shows it");
}

#[tokio::test]
async fn a_followed_log_is_the_primitives_own_in_its_callers_reach() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    let follow = answer(Body::Follow(("host.audit".into(), 7)));
    let Ok(Said::Answer(Answer { body: AnswerBody::Follow { log, after }, .. })) =
        check_answer(guest.work().unwrap(), follow)
    else {
        panic!("it is followed")
    };
    assert_eq!((log.log.as_str(), after), ("shop.host.audit", 7));
    assert_eq!(log.reach, user(3).narrowest());
}

#[tokio::test]
async fn an_answers_status_is_one_and_a_redirect_is_declared() {
    let mut bed = Bed::new().await;
    let mut manifest = shop();
    manifest["operations"][0]["answers"] = json!({ "303": {}, "404": {} });
    bed.beside(manifest);
    let mut guest = bed.attempt(bed.call(user(3)));
    let location = ("Location".to_owned(), "/there".to_owned());
    let mut with = |status: u16| {
        let headers = vec![location.clone()];
        let given = bindings::Answer { status: Some(status), headers, body: Body::None };
        match check_answer(guest.work().unwrap(), given) {
            Ok(Said::Answer(answer)) => Ok(answer.headers.len()),
            Ok(Said::Again { .. }) => panic!("it waits for nothing"),
            Err(fault) => Err(fault),
        }
    };
    for status in [200, 201, 204, 304, 400, 404, 418, 500, 599] {
        assert_eq!(with(status), Ok(0), "{status}: and no location leaves");
    }
    assert_eq!(with(303), Ok(1));
    for status in [0, 99, 100, 199, 600, u16::MAX, 301, 302, 307, 308] {
        assert!(with(status).is_err(), "{status}");
    }
    // A primitive that is told of a signal redirects nobody.
    let signal = Signal { kind: "hook".into(), payload: "{}".into(), blob: None };
    let call = Call { entry: Entry::React(signal), ..bed.call(user(3)) };
    let mut guest = bed.attempt(call);
    let given = bindings::Answer { status: Some(303), headers: vec![], body: Body::None };
    assert!(check_answer(guest.work().unwrap(), given).is_err());
}

#[tokio::test]
async fn how_long_to_wait_is_said_to_the_host_and_to_nobody_else() {
    let bed = Bed::new().await;
    let mut guest = bed.attempt(bed.call(user(3)));
    let mut again = |value: &str| {
        let headers = vec![("Wait-Until".to_owned(), value.to_owned())];
        let given = bindings::Answer { headers, ..answer(Body::Again("notes".into())) };
        match check_answer(guest.work().unwrap(), given) {
            Ok(Said::Again { collection, until }) => (collection, until),
            _ => panic!("it waits"),
        }
    };
    for (value, until) in [
        ("1700000000000", Some(1_700_000_000_000)),
        ("-1", Some(-1)),
        ("", None),
        ("soon", None),
        ("99999999999999999999", None),
    ] {
        assert_eq!(again(value), ("notes".to_owned(), until), "{value}");
    }
    let headers = vec![("wait-until".to_owned(), "1".to_owned())];
    let given = bindings::Answer { headers, ..answer(Body::None) };
    let Ok(Said::Answer(Answer { headers, .. })) = check_answer(guest.work().unwrap(), given)
    else {
        panic!("it is answered")
    };
    assert_eq!(headers, []);
    let many = vec![("etag".to_owned(), "1".to_owned()); ANSWER_HEADERS_MAX + 1];
    let given = bindings::Answer { headers: many, ..answer(Body::None) };
    assert!(check_answer(guest.work().unwrap(), given).is_err());
}

#[test]
fn a_guest_is_told_who_calls_and_nothing_of_the_credential() {
    let person = Principal { root: Some("ada".into()), ..key(Role::Owner) };
    let told = caller(&scope(person, 1, Some(2), Some(3)));
    assert_eq!((told.organization, told.project), (id(1), id(2)));
    assert_eq!((told.user, told.subject.as_str()), (Some(id(3)), "path"));
    assert_eq!(told.actor, ("key".to_owned(), "k".to_owned()));
    assert_eq!(told.role.as_deref(), Some("owner"));
    let pinned = Principal { user: user(3).user().cloned(), ..key(Role::Owner) };
    let told = caller(&scope(pinned, 1, Some(2), Some(3)));
    assert_eq!((told.subject.as_str(), told.role.as_deref()), ("credential", Some("developer")));
    let nobody = caller(&alone(Principal::of(Actor::anonymous())));
    assert_eq!((nobody.organization.as_str(), nobody.project.as_str()), ("", ""));
    assert_eq!((nobody.user, nobody.role), (None, None));
}

#[tokio::test]
async fn each_attempt_is_told_its_number_and_when_the_request_began() {
    let bed = Bed::new().await;
    let Entry::Handle(mut given) = handle("shop.do") else { panic!("it is a request") };
    given.context.insert("test".into(), json!(true));
    given.context.insert("attempt".into(), json!("forged"));
    let call = bed.call(user(3));
    let context = |attempt| {
        let told = request(&call, &given, attempt, 5);
        serde_json::from_str::<serde_json::Value>(&told.context).unwrap()
    };
    for attempt in [1, 2] {
        let expected = json!({ "test": true, "attempt": attempt, "started_at": 5 });
        assert_eq!(context(attempt), expected);
    }
    given.context.insert("started_at".into(), json!(3));
    let told: serde_json::Value =
        serde_json::from_str(&request(&call, &given, 1, 5).context).unwrap();
    assert_eq!(told["started_at"], 3, "a job began when it was asked for");
}
