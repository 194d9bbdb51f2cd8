//! The permitted destinations of each sender, and the commit before anything leaves.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use charter_kernel::unit::{Draft, Guard, Key, Reach, Space, Write};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_body_util::Full;

use super::*;
use crate::call::Claiming;
use crate::egress::Egress;
use crate::run::bed::{Bed, user};
use crate::story::Abort;

/// A way out that notes what leaves, and answers as it is told to.
#[derive(Default)]
struct Door {
    sent: Mutex<Vec<(Target, Option<u64>)>>,
    fails: Mutex<Option<EgressError>>,
}

impl Egress for Door {
    fn send(
        &self,
        outbound: Outbound,
    ) -> BoxFuture<'_, Result<http::Response<EgressBody>, EgressError>> {
        self.sent.lock().unwrap().push((outbound.target, outbound.first_byte_timeout_ms));
        let fails = self.fails.lock().unwrap().clone();
        let body = Full::new(Bytes::from_static(b"{}")).map_err(|never| match never {});
        let answer = fails.map_or_else(|| Ok(http::Response::new(body.boxed_unsync())), Err);
        async { answer }.boxed()
    }
}

fn permit(bed: &Bed, call: Call) -> Permit {
    let (shared, component) = (bed.shared.clone(), bed.component.clone());
    Permit { shared, component, call: Arc::new(call), marks: Arc::default() }
}

fn request(method: &str, uri: &str) -> http::Request<WasiBody> {
    let body = Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync();
    http::Request::builder().method(method).uri(uri).body(body).unwrap()
}

async fn send(permit: &Permit, method: &str, uri: &str) -> Result<u16, EgressError> {
    let options = RequestOptions {
        first_byte_timeout: Some(Duration::from_millis(250)),
        ..RequestOptions::default()
    };
    let sent = permit.send(request(method, uri), options).await;
    sent.map(|answer| answer.status().as_u16())
}

#[tokio::test]
async fn a_guest_reaches_its_declared_providers_and_nothing_else() {
    let bed = Bed::new().await;
    let permit = permit(&bed, bed.call(user(3)));
    let bound = Target::Binding("shop.peer".into());
    for uri in [
        "https://shop.peer.binding/",
        "http://shop.peer.binding:9/a?b",
        "https://shop.peer.binding",
    ] {
        assert_eq!(permit.target(&uri.parse().unwrap()), Ok(bound.clone()), "{uri}");
    }
    for uri in [
        "https://other.peer.binding/",
        "https://.binding/",
        "https://binding/",
        "https://shop.peer/",
        "https://example.com/",
        "https://shop.peer.binding.example.com/",
        "https://example.com/?shop.peer.binding",
        "https://SHOP.PEER.binding/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://169.254.169.254/latest/meta-data",
        "/relative",
    ] {
        let target = permit.target(&uri.parse().unwrap());
        assert!(matches!(target, Err(EgressError::Denied(_))), "{uri}: {target:?}");
    }
}

#[tokio::test]
async fn who_may_reach_the_public_web_reaches_no_provider_by_that() {
    let mut bed = Bed::new().await;
    let component = Arc::get_mut(&mut bed.component).unwrap();
    (component.http, component.public_web) = (false, true);
    let permit = permit(&bed, bed.call(user(3)));
    let to = |uri: &str| permit.target(&uri.parse().unwrap());
    assert_eq!(to("https://example.com/"), Ok(Target::Public));
    assert!(matches!(to("https://shop.peer.binding/"), Err(EgressError::Denied(_))));
}

/// The claim of an idempotency key.
fn claiming() -> Claiming {
    let key = Key::new(&Reach::user("u"), &Space::host("claims"), "c");
    let draft = Draft { body: "{}".into(), ..Draft::default() };
    let fence = Guard::Unchanged { key: key.clone(), version: 1 };
    let writes = vec![Write::Insert { key: key.clone(), draft }];
    Claiming { key, writes, undo: vec![], guards: vec![], fence }
}

#[tokio::test]
async fn what_is_no_question_is_an_effect_and_its_claim_goes_before_it() {
    let bed = Bed::new().await;
    let door = Arc::<Door>::default();
    assert!(bed.shared.egress.set(door.clone()).is_ok());
    for (method, is_effect) in [
        ("GET", false),
        ("HEAD", false),
        ("OPTIONS", false),
        ("POST", true),
        ("PUT", true),
        ("PATCH", true),
        ("DELETE", true),
        ("CONNECT", true),
        ("PURGE", true),
        ("get", true),
    ] {
        let permit = permit(&bed, Call { claim: Some(claiming()), ..bed.call(user(3)) });
        let said = send(&permit, method, "https://shop.peer.binding/a").await;
        assert_eq!(said, Ok(200), "{method}");
        assert_eq!(permit.marks.is_dispatched(), is_effect, "{method}");
        let key = claiming().key;
        let claim = bed.row(&key).await;
        assert_eq!(claim.is_some(), is_effect, "{method}");
        if is_effect {
            let mut txn = bed.store().begin("");
            txn.remove(&key, None).await.unwrap();
            txn.commit().await.unwrap();
        }
    }
    let sent = door.sent.lock().unwrap();
    assert_eq!(sent.len(), 10);
    assert!(sent.iter().all(|(_, first_byte)| *first_byte == Some(250)), "its own patience");
}

#[tokio::test]
async fn nothing_leaves_where_the_claim_is_anothers_or_the_attempt_is_over() {
    let bed = Bed::new().await;
    let door = Arc::<Door>::default();
    assert!(bed.shared.egress.set(door.clone()).is_ok());
    let claimed = || permit(&bed, Call { claim: Some(claiming()), ..bed.call(user(3)) });
    assert!(send(&claimed(), "POST", "https://shop.peer.binding/").await.is_ok());
    let second = claimed();
    assert!(send(&second, "POST", "https://shop.peer.binding/").await.is_err());
    assert_eq!(second.marks.abort_cause(), Some(&Abort::Restart));
    assert!(!second.marks.is_dispatched());
    for method in ["GET", "POST"] {
        let over = permit(&bed, bed.call(user(3)));
        over.marks.abort(Abort::Inactive);
        assert!(send(&over, method, "https://shop.peer.binding/").await.is_err(), "{method}");
    }
    assert_eq!(door.sent.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_deployment_without_a_way_out_says_so() {
    let bed = Bed::new().await;
    let permit = permit(&bed, bed.call(user(3)));
    let said = send(&permit, "POST", "https://shop.peer.binding/").await;
    assert!(matches!(said, Err(EgressError::Denied(_))), "{said:?}");
    assert!(!permit.marks.is_dispatched(), "nothing was done");
}

#[tokio::test]
async fn what_was_tried_stays_an_effect_although_it_failed() {
    let bed = Bed::new().await;
    let door = Arc::<Door>::default();
    *door.fails.lock().unwrap() = Some(EgressError::Timeout);
    assert!(bed.shared.egress.set(door).is_ok());
    let permit = permit(&bed, bed.call(user(3)));
    let said = send(&permit, "POST", "https://shop.peer.binding/").await;
    assert_eq!((said, permit.marks.is_dispatched()), (Err(EgressError::Timeout), true));
}

#[test]
fn a_guest_hears_the_nearest_code_and_a_denials_own_words() {
    for (error, word) in [
        (EgressError::Denied("add the host".into()), "add the host"),
        (EgressError::Unbound("shop.peer".into()), "no provider is bound as shop.peer"),
    ] {
        let told = format!("{:?}", to_guest(error));
        assert!(told.contains("InternalError") && told.contains(word), "{told}");
    }
    for (error, code) in [
        (EgressError::Dns, "DnsError"),
        (EgressError::Connection, "ConnectionTerminated"),
        (EgressError::Timeout, "HttpResponseTimeout"),
        (EgressError::Tls, "TlsProtocolError"),
        (EgressError::TooLarge { limit: 7 }, "HttpResponseBodySize(Some(7))"),
        (EgressError::TooMany, "ConnectionLimitReached"),
        (EgressError::Protocol("told to nobody".into()), "HttpProtocolError"),
    ] {
        let told = format!("{:?}", to_guest(error));
        assert!(told.starts_with(code), "{told}");
    }
}

#[tokio::test]
async fn nothing_is_sent_while_a_component_describes_itself() {
    let mut none = Outbounds::none();
    let sent = none.send_request(
        request("GET", "https://shop.peer.binding/"),
        None,
        Box::new(async { Ok(()) }),
    );
    assert!(Box::into_pin(sent).await.is_err());
    assert!(!none.set_host_header());
}
