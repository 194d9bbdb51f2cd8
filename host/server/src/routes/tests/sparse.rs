//! Searches of the audit log that find little end after some rows, and say that there are more.

use charter_kernel::unit::{Fact, FactKind, Unit};

use super::*;
use crate::routes::logs;

#[tokio::test(flavor = "multi_thread")]
async fn a_search_that_finds_nothing_looks_at_a_thousand_rows_a_page() {
    let bed = Bed::new().await;
    let organization = bed.organization.as_str();
    for part in 0..3 {
        let fact = |n: usize| Fact {
            id: format!("row-{part}-{n}"),
            kind: FactKind::Audit,
            organization: organization.into(),
            at: NOW,
            name: "thing.done".into(),
            body: json!({"action": "thing.done"}).to_string(),
            private: None,
            user: None,
        };
        let facts = (0..400).map(fact).collect();
        let unit = Unit { organization: organization.into(), facts, ..Unit::default() };
        bed.app().store.commit(unit).await.unwrap();
    }
    let query = json!({"action": "nothing.done"});
    let mut request = HostRequest { query, ..bed.by_key().await };
    let first = called(bed.app(), &request, crate::handler!(logs::list_logs)).await.unwrap();
    assert_eq!((&first["logs"], &first["has_more"]), (&json!([]), &json!(true)));
    let head = bed.app().store.facts_head(FactKind::Audit, organization).await.unwrap();
    request.page.position = Some((head - 999).to_string());
    let second = called(bed.app(), &request, crate::handler!(logs::list_logs)).await.unwrap();
    assert_eq!((&second["logs"], &second["has_more"]), (&json!([]), &json!(false)));
    bed.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_ends_where_its_rows_have_four_mebibytes_and_the_next_goes_on_behind() {
    let bed = Bed::new().await;
    let organization = bed.organization.as_str();
    for n in 0..6 {
        let fact = Fact {
            id: format!("row-{n}"),
            kind: FactKind::Audit,
            organization: organization.into(),
            at: NOW,
            name: "thing.done".into(),
            body: json!({"action": "thing.done"}).to_string(),
            private: Some(json!({"details": "x".repeat(1_500 << 10), "entity_id": n}).to_string()),
            user: None,
        };
        let facts = vec![fact];
        let unit = Unit { organization: organization.into(), facts, ..Unit::default() };
        bed.app().store.commit(unit).await.unwrap();
    }
    let query = json!({"action": "thing.done"});
    let mut request = HostRequest { query, ..bed.by_key().await };
    let mut seen = Vec::new();
    loop {
        let page = called(bed.app(), &request, crate::handler!(logs::list_logs)).await.unwrap();
        let rows = page["logs"].as_array().unwrap().clone();
        assert!(rows.len() <= 2 && !(rows.is_empty() && page["has_more"] == true));
        seen.extend(rows.iter().map(|row| row["entity_id"].as_u64().unwrap()));
        if page["has_more"] == false {
            break;
        }
        // Behind the last row that it has.
        request.page.position = Some(rows[rows.len() - 1]["seq"].to_string());
    }
    assert_eq!(seen, [5, 4, 3, 2, 1, 0]);
    bed.end().await;
}
