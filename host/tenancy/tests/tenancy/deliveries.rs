//! Webhooks: which events each hears, and where a delivery stands.

use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_tenancy::records::webhook::{
    AFTER, Delivery, DeliveryOutcome, ENDED, Feed, OFF, TENANT, Webhook,
};
use charter_tenancy::records::{EXPIRES, Record as _};
use charter_tenancy::stored;

use crate::bed::Bed;

async fn webhook(bed: &Bed, id: &str) -> Webhook {
    Webhook {
        id: id.into(),
        organization: bed.house().await.organization.id,
        project_id: None,
        tenant_user_id: None,
        url: "https://example.com/".into(),
        event_types: vec!["notes.made".into()],
        secret: String::new(),
        previous: Vec::new(),
        active: true,
        disabled_reason: None,
        failures: 0,
        since: 0,
        resumed_at: None,
        created_at: bed.now(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_hears_its_types_within_its_project_and_its_tenant() {
    let bed = Bed::new().await;
    let plain = webhook(&bed, "w").await;
    let all = Webhook { event_types: vec!["*".into()], ..plain.clone() };
    let of_project = Webhook { project_id: Some("p".into()), ..plain.clone() };
    let of_user = Webhook { tenant_user_id: Some("u".into()), ..plain.clone() };
    let of_both = Webhook { project_id: Some("p".into()), ..of_user.clone() };
    let off = Webhook { active: false, ..all.clone() };
    let (made, gone) = ("notes.made", "notes.gone");
    for (webhook, event, project, user, hears) in [
        (&plain, made, None, None, true),
        (&plain, made, Some("p"), Some("u"), true),
        (&plain, gone, None, None, false),
        (&plain, "notes", None, None, false),
        (&plain, "notes.made.twice", None, None, false),
        (&all, gone, Some("p"), None, true),
        (&of_project, made, Some("p"), None, true),
        (&of_project, made, Some("p"), Some("u"), true),
        (&of_project, made, Some("q"), None, false),
        // An event of the whole organization is of no project.
        (&of_project, made, None, None, false),
        (&of_user, made, Some("p"), Some("u"), true),
        (&of_user, made, Some("p"), Some("v"), false),
        (&of_user, made, Some("p"), None, false),
        (&of_both, made, Some("p"), Some("u"), true),
        (&of_both, made, Some("q"), Some("u"), false),
        (&of_both, gone, Some("p"), Some("u"), false),
        (&off, made, None, None, false),
    ] {
        let told = webhook.hears(&[event], (project, user), bed.now());
        assert_eq!(told, hears, "{event} of {project:?} {user:?} by {webhook:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_while_a_webhook_was_off_is_never_told() {
    let bed = Bed::new().await;
    let resumed_at = Some(bed.now());
    let webhook = Webhook { resumed_at, ..webhook(&bed, "w").await };
    for (ms, hears) in [(-60_000, false), (-1, false), (0, true), (1, true)] {
        let at = bed.now().plus_ms(ms);
        assert_eq!(webhook.hears(&["notes.made"], (None, None), at), hears, "{ms}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_found_by_its_tenant_and_by_the_hosts_having_switched_it_off() {
    let bed = Bed::new().await;
    let plain = webhook(&bed, "plain").await;
    let of_user = Webhook { id: "own".into(), tenant_user_id: Some("u".into()), ..plain.clone() };
    let off = Webhook {
        id: "off".into(),
        active: false,
        disabled_reason: Some("it is gone".into()),
        ..plain.clone()
    };
    let paused = Webhook { id: "paused".into(), active: false, ..plain.clone() };
    for webhook in [&plain, &of_user, &off, &paused] {
        bed.put(webhook).await;
    }
    let reach = Reach::organization(plain.organization.as_str());
    for (field, value, wanted) in [(TENANT, "u", "own"), (OFF, "1", "off")] {
        let mut txn = bed.store.begin("");
        let found = stored::list::<Webhook>(&mut txn, &reach, &[(field, value)], 10, 0).await;
        let ids: Vec<_> = found.unwrap().0.into_iter().map(|found| found.record.id).collect();
        assert_eq!(ids, [wanted], "a person's own pause is no fault of the endpoint");
    }
}

fn delivery(status: DeliveryOutcome, at: Instant) -> Delivery {
    Delivery {
        id: "d".into(),
        organization: "o".into(),
        webhook: "w".into(),
        event_id: "e".into(),
        event: "notes.made".into(),
        user: Some("u".into()),
        body: "{}".into(),
        status,
        attempts: Vec::new(),
        created_at: at,
        ended_at: (status != DeliveryOutcome::Pending).then_some(at),
    }
}

#[test]
fn a_delivery_is_due_among_its_webhooks_until_it_is_over() {
    let at = Instant(1_800_000_000_000);
    for (status, group) in [
        (DeliveryOutcome::Pending, "w"),
        (DeliveryOutcome::Succeeded, ENDED),
        (DeliveryOutcome::Failed, ENDED),
        (DeliveryOutcome::Dropped, ENDED),
    ] {
        let draft = delivery(status, at).due(at).unwrap();
        assert_eq!(draft.lease, Some((group.to_owned(), at)), "{status:?}");
        let swept = draft.index.iter().any(|(field, _)| field == EXPIRES);
        assert_eq!(swept, status != DeliveryOutcome::Pending, "what is tried still is not swept");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_is_over_is_kept_for_thirty_days() {
    let bed = Bed::new().await;
    let mut txn = bed.store.begin("");
    let over = delivery(DeliveryOutcome::Succeeded, bed.now());
    txn.put(over.key(), over.due(bed.now()).unwrap()).await.unwrap();
    txn.commit().await.unwrap();
    for (days, count) in [(29, 0), (30, 0), (31, 1)] {
        let before = bed.now().plus_ms(days * 86_400_000).to_string();
        let found = bed.store.find_expired(&Delivery::all(), EXPIRES, &before, 10).await.unwrap();
        assert_eq!(found.len(), count, "{days}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_organization_has_one_feed_and_its_place_is_found() {
    let bed = Bed::new().await;
    let feed = |after| Feed { organization: "o".into(), after };
    bed.put(&feed(3)).await;
    bed.put(&feed(4)).await;
    let mut txn = bed.store.begin("");
    let reach = Reach::organization("o");
    let found = stored::list::<Feed>(&mut txn, &reach, &[(AFTER, "4")], 10, 0).await.unwrap();
    assert_eq!(found.0.len(), 1);
    assert_eq!(found.0[0].record.key(), Feed::address(&reach));
    let none = stored::list::<Feed>(&mut txn, &reach, &[(AFTER, "3")], 10, 0).await.unwrap();
    assert!(none.0.is_empty());
}
