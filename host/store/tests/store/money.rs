//! Accounts that many move money from, on two committers.

use charter_kernel::governance::hold::{CREDIT, accounts_space};
use charter_kernel::ledger::{Account, Normal, Phase};
use charter_kernel::unit::{Key, Reach, Unit, Write};
use charter_store::Store;
use sqlx::Connection;

use crate::bed::{Bed, ORG, draft, number, on_both, unit};

on_both!(two_committers_give_no_more_of_an_account_than_it_has);

fn credit() -> Key {
    Key::new(&Reach::organization(ORG), &accounts_space(), CREDIT)
}

fn card(n: usize) -> Key {
    Key::new(&Reach::user(&format!("usr_{n}")), &accounts_space(), "cards.card")
}

fn holding(cents: i64) -> String {
    serde_json::to_string(&Account { credits: cents, ..Account::new(Normal::Credit, false) })
        .unwrap()
}

fn top_up(n: usize) -> Unit {
    let opened = Write::Ensure { key: card(n), draft: draft(&holding(0)) };
    unit(vec![
        opened,
        Write::Transfer { from: credit(), to: card(n), amount: 1, phase: Phase::Post },
    ])
}

async fn funded(store: &Store, cents: i64) {
    store
        .commit(unit(vec![Write::Insert { key: credit(), draft: draft(&holding(cents)) }]))
        .await
        .unwrap();
}

async fn two_committers_give_no_more_of_an_account_than_it_has(bed: Bed) {
    let other = if bed.store.is_shared() { bed.replica().await } else { bed.store.clone() };
    funded(&bed.store, 70).await;
    let stores = [bed.store.clone(), other];
    let callers = (0..200).map(|n| {
        let store = stores[n % 2].clone();
        tokio::spawn(async move { store.commit(top_up(n % 16)).await.is_ok() })
    });
    let mut given = 0;
    for caller in callers.collect::<Vec<_>>() {
        given += i64::from(caller.await.unwrap());
    }
    assert_eq!(given, 70);
    assert_eq!(number(&bed.store.get(&credit()).await.unwrap().unwrap(), "debits"), 70);
    let mut got = 0;
    for n in 0..16 {
        got += bed.store.get(&card(n)).await.unwrap().map_or(0, |row| number(&row, "credits"));
    }
    assert_eq!(got, 70);
}

/// While another replica's batch is at the account, what comes waits together and is one batch.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_while_another_committer_is_at_an_account_is_one_batch() {
    let Some(bed) = Bed::postgres().await else { return };
    let other = bed.replica().await;
    funded(&bed.store, 70).await;
    let mut outside = sqlx::PgConnection::connect(&bed.config.url).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT 1 FROM documents WHERE id = 'credit' FOR UPDATE")
        .execute(&mut outside)
        .await
        .unwrap();
    let pool = sqlx::PgPool::connect(&bed.config.url).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let mut callers = Vec::new();
    let call = |store: &Store, n: usize| {
        let store = store.clone();
        tokio::spawn(async move { store.commit(top_up(n)).await })
    };
    for (n, store) in [&bed.store, &other].into_iter().enumerate() {
        callers.push(call(store, n));
        while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&pool).await.unwrap() <= n as i64 {}
    }
    callers.extend((2..22).map(|n| call(&other, n)));
    while other.status().queued_units < 20 {
        tokio::task::yield_now().await;
    }
    let before = other.status().batches;
    sqlx::raw_sql("ROLLBACK").execute(&mut outside).await.unwrap();
    for caller in callers {
        caller.await.unwrap().unwrap();
    }
    assert_eq!(other.status().batches - before, 1, "the unit that came first went alone");
}
