//! The books of a deployment: after whatever has happened they agree, and each row that was changed
//! behind them is found.

use charter_governance::verify::verify;
use charter_kernel::governance::hold::{
    accounts_space, entries_of, key as hold_key, meters_space, space,
};
use charter_kernel::unit::{Draft, Key, Unit, Write};
use charter_store::Query;
use serde_json::{Value, json};

use crate::bed::{Bed, on_both};
use crate::words::{
    CENT, DAY_MS, budget, card, credit, fund, id, leave, payment, soft_budget, user_reach,
};

on_both!(books_agree_after_all_that_can_happen, each_row_that_was_changed_is_found);

/// Payments that are held, captured, cancelled and wait; and a day later one more.
async fn busy(bed: &Bed) -> String {
    fund(bed, 50 * CENT).await;
    bed.set_organization(soft_budget(10)).await;
    bed.set_user(budget(30)).await;
    let captured = bed.grant(payment(4 * CENT)).await;
    bed.capture(&captured.id, 3 * CENT).await;
    let voided = bed.grant(payment(CENT)).await;
    bed.void(&voided.id).await;
    bed.wait(payment(9 * CENT)).await;
    let doubted = bed.grant(leave(CENT)).await;
    let hold = bed.hold(&doubted.id).await;
    bed.step(hold.doubt(&doubted.id)).await.unwrap();
    bed.clock.forward_ms(DAY_MS);
    bed.grant(payment(2 * CENT)).await.id
}

async fn faults(bed: &Bed) -> Vec<String> {
    verify(bed.store()).await.unwrap().faults
}

async fn books_agree_after_all_that_can_happen(bed: Bed) {
    assert_eq!(faults(&bed).await, Vec::<String>::new(), "empty books agree");
    busy(&bed).await;
    let report = verify(bed.store()).await.unwrap();
    assert_eq!(report.faults, Vec::<String>::new());
    // Cash, credit and the card; the top-up and one payment, in two logs each.
    assert_eq!((report.accounts, report.entries, report.holds), (3, 4, 5));
    assert_eq!(report.meters, 3, "the organization's, the kit's and the user's");
}

/// Changes the body of a row behind the books.
async fn change(bed: &Bed, key: &Key, change: impl FnOnce(&mut Value)) -> String {
    let before = bed.row(key).await.unwrap().body;
    let mut body: Value = serde_json::from_str(&before).unwrap();
    change(&mut body);
    put(bed, key, body.to_string()).await;
    before
}

async fn put(bed: &Bed, key: &Key, body: String) {
    let draft = Draft { body, ..Draft::default() };
    let writes = vec![Write::Put { key: key.clone(), draft }];
    bed.commit(Unit { writes, ..Unit::default() }).await.unwrap();
}

async fn each_row_that_was_changed_is_found(bed: Bed) {
    let hold = busy(&bed).await;
    let hold = hold_key(&id(1), &hold);
    let kit = Key::new(&user_reach(), &meters_space(), "kit");
    let captured = {
        let found = bed.store().find(&Query::all(&hold.reach, &space())).await.unwrap();
        let is = |row: &charter_kernel::unit::Row| row.body.contains(r#""state":"captured""#);
        found.items.into_iter().find(|(_, row)| is(row)).unwrap().0
    };
    let all = |counts: &mut Value, field: &str| {
        counts["counts"].as_object_mut().unwrap().values_mut().for_each(|count| {
            count[field] = json!(7);
        });
    };
    type Change<'a> = &'a dyn Fn(&mut Value);
    let changes: [(&Key, Change<'_>, &str); 8] = [
        (&kit, &|meter| all(meter, "reserved"), "the meter kit of"),
        (&kit, &|meter| all(meter, "over_reserved"), "the meter kit of"),
        (&kit, &|meter| meter["counts"] = json!({}), "which has none"),
        (&hold, &|hold| hold["charges"] = json!([]), "reserves 20000 in"),
        (&hold, &|hold| hold["pay"] = Value::Null, "sets 11"),
        (&captured, &|hold| hold["actual"] = Value::Null, "is captured and says otherwise"),
        (&credit(), &|account| account["credits"] = json!(1), "debits and credits differ by"),
        (&card(), &|account| account["pending_credits"] = json!(1), "the account card-1 of"),
    ];
    for (key, changed, wanted) in changes {
        let before = change(&bed, key, changed).await;
        let found = faults(&bed).await;
        let wanted = wanted.replace("sets 11", "sets");
        assert!(found.iter().any(|fault| fault.contains(&wanted)), "{wanted}: {found:?}");
        put(&bed, key, before).await;
        assert_eq!(faults(&bed).await, Vec::<String>::new(), "{wanted}");
    }
    // Two accounts that are wrong by the same are found by their entries.
    let mut before = Vec::new();
    for (account, field) in [(credit(), "debits"), (card(), "credits")] {
        let more =
            |account: &mut Value| account[field] = json!(account[field].as_i64().unwrap() + 5);
        before.push((account.clone(), change(&bed, &account, more).await));
    }
    let found = faults(&bed).await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|fault| fault.contains("its entries")), "{found:?}");
    for (account, body) in before {
        put(&bed, &account, body).await;
    }
    // An entry too many is one, and so is a row that nobody can read.
    let entry = json!({ "amount_micro_usd": 1 }).to_string();
    let append = Write::Append { log: entries_of(&card()), name: "credit".into(), payload: entry };
    bed.commit(Unit { writes: vec![append], ..Unit::default() }).await.unwrap();
    assert_eq!(faults(&bed).await.len(), 1);
    put(&bed, &Key::new(&user_reach(), &accounts_space(), "broken"), "{}".into()).await;
    let found = faults(&bed).await;
    assert!(found.iter().any(|fault| fault.contains("broken cannot be read")), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn books_of_more_rows_than_a_page_are_read_whole() {
    let bed = Bed::sqlite().await;
    fund(&bed, CENT).await;
    let entries = |from: i64| {
        (from..from + 400).map(|_| Write::Append {
            log: entries_of(&card()),
            name: "credit".into(),
            payload: json!({ "amount_micro_usd": 1 }).to_string(),
        })
    };
    for from in [0, 400, 800] {
        let writes = entries(from).collect();
        bed.commit(Unit { writes, ..Unit::default() }).await.unwrap();
    }
    let meter = json!({ "current": "day UTC 2027-01-15", "counts": {} }).to_string();
    for page in 0..3 {
        let writes = (page * 400..(page + 1) * 400)
            .map(|n| {
                let key = Key::new(&user_reach(), &meters_space(), format!("shop.card:{n:05}"));
                Write::Put { key, draft: Draft { body: meter.clone(), ..Draft::default() } }
            })
            .collect();
        bed.commit(Unit { writes, ..Unit::default() }).await.unwrap();
    }
    let mut account = charter_kernel::ledger::Account::credit();
    account.credits = 1_200;
    put(&bed, &card(), json!(account).to_string()).await;
    let report = verify(bed.store()).await.unwrap();
    assert_eq!((report.meters, report.entries), (1_200, 1_202));
    assert_eq!(report.faults, ["debits and credits differ by -1200"]);
}
