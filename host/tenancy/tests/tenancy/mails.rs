//! The mails to send, their recipients, and when each is due.

use charter_kernel::lease::group;
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_tenancy::records::link::Mailed;
use charter_tenancy::records::mail::{About, Cause, MAILS, Mail, NOTICES, Notice, Quota};
use charter_tenancy::records::{EXPIRES, Record as _};

use crate::bed::Bed;

const AT: Instant = Instant(1_800_000_000_000);

#[test]
fn a_notice_lies_with_whom_it_is_about() {
    let email = || "ann@example.com".to_owned();
    let about_approval = About::Approval { organization: "o".into(), approval: "a".into() };
    for (about, reach, organization) in [
        (about_approval, Reach::organization("o"), "o"),
        (About::SignIn { email: email() }, Reach::deployment(), ""),
        (About::Proof { email: email() }, Reach::deployment(), ""),
        (About::Reset { email: email() }, Reach::deployment(), ""),
    ] {
        let notice = Notice { id: "n".into(), about, created_at: AT };
        assert_eq!(notice.key().reach, reach);
        assert_eq!(notice.due(AT).unwrap().lease, Some((group(organization, NOTICES), AT)));
    }
}

#[test]
fn a_mail_lies_with_its_organization_or_the_deployment() {
    for (organization, reach) in [("o", Reach::organization("o")), ("", Reach::deployment())] {
        let mail = Mail {
            id: "m".into(),
            organization: organization.into(),
            to: "ann@example.com".into(),
            sealed: "c2VhbGVk".into(),
            message_id: "m@host".into(),
            cause: Cause::Summary,
            created_at: AT,
            until: AT,
        };
        assert_eq!(mail.key().reach, reach);
        assert_eq!(mail.due(AT).unwrap().lease, Some((group(organization, MAILS), AT)));
        let row = mail.draft().unwrap();
        assert!(row.index.is_empty(), "nothing finds a mail by its address: {:?}", row.index);
    }
}

#[test]
fn a_mail_that_carries_a_link_names_it() {
    let link = || "digest".to_owned();
    for (cause, wanted) in [
        (Cause::Approval { approval: "a".into(), link: link() }, Some("digest")),
        (Cause::SignIn { link: link() }, Some("digest")),
        (Cause::Link { link: link() }, Some("digest")),
        (Cause::Summary, None),
        (Cause::Invitation { invitation: "i".into() }, None),
    ] {
        assert_eq!(cause.link(), wanted, "{cause:?}");
    }
}

#[test]
fn the_state_of_a_mail_is_a_word_on_the_wire() {
    for (mailed, word) in [
        (Mailed::Waiting, "waiting"),
        (Mailed::Sent, "sent"),
        (Mailed::Failed, "failed"),
        (Mailed::Withheld, "withheld"),
    ] {
        assert_eq!(mailed.as_str(), word);
        assert_eq!(serde_json::to_value(mailed).unwrap(), word, "one word in rows and answers");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_two_organizations_and_of_an_address_are_apart() {
    let bed = Bed::new().await;
    let quota = |organization: Option<&str>, count| Quota {
        id: "x".into(),
        organization: organization.map(str::to_owned),
        began_at: bed.now(),
        count,
        expires_at: bed.now().plus_ms(1),
    };
    let all = [quota(None, 1), quota(Some("a"), 2), quota(Some("b"), 3)];
    for quota in &all {
        bed.put(quota).await;
    }
    for quota in &all {
        let row = bed.store.get(&Quota::address(quota.organization.as_deref(), "x")).await;
        assert_eq!(Quota::read(&row.unwrap().unwrap()).unwrap().count, quota.count);
    }
    let before = bed.now().plus_ms(2).to_string();
    let swept = bed.store.find_expired(&Quota::space(), EXPIRES, &before, 10).await.unwrap();
    assert_eq!(swept.len(), 3);
}
