//! Statements of long accounts are bounded, and a refusal names the end that is to move.

use charter_kernel::governance::hold::{CREDIT, Pay, accounts_space, entries};
use charter_kernel::ledger;
use charter_kernel::unit::{Key, Reach};

use super::*;
use crate::routes::ledger::get_statement;

/// Entries of one statement.
const MOST: usize = 10_000;
/// Entries of one commit.
const AT_ONCE: usize = 500;

impl Bed {
    /// So many entries of the organization's credit, of a micro-US-dollar each.
    async fn put_entries(&self, count: usize) {
        let reach = Reach::organization(self.organization.as_str());
        let account = |name: &str| Key::new(&reach, &accounts_space(), name);
        let (from, to) = (account("funding.paid"), account(CREDIT));
        let pay = Pay { from, to: to.clone(), memo: "a gift".into() };
        for first in (0..count).step_by(AT_ONCE) {
            let mut txn = self.app().store.begin(self.organization.as_str());
            txn.write(ledger::Account::credit().open(&to));
            for n in first..count.min(first + AT_ONCE) {
                let [_, credited] = entries(&pay, 1, &format!("transfer-{n}"), "test");
                txn.write(credited);
            }
            txn.commit().await.unwrap();
        }
    }

    /// The statement of the organization's credit.
    async fn statement(
        &self,
        from: Option<Instant>,
        to: Option<Instant>,
    ) -> Result<Value, Refusal> {
        let mut query = json!({"account": CREDIT});
        for (name, at) in [("from", from), ("to", to)] {
            if let Some(at) = at {
                query[name] = json!(at.to_string());
            }
        }
        let request = HostRequest { query, ..self.by_owner().await };
        let answer = called(self.app(), &request, crate::handler!(get_statement)).await?;
        Ok(answer["statement"].clone())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_of_too_many_entries_is_refused_and_says_which_end_is_to_move() {
    let bed = Bed::new().await;
    bed.put_entries(MOST).await;
    let whole = bed.statement(None, None).await.unwrap();
    assert_eq!(whole["entries"].as_array().unwrap().len(), MOST);
    assert_eq!(
        (&whole["opening_micro_usd"], &whole["closing_micro_usd"]),
        (&json!(0), &json!(MOST))
    );
    bed.put_entries(1).await;
    let later = Some(NOW.plus_ms(1));
    for (from, to, param) in [
        (None, None, "from"),
        (Some(NOW), None, "from"),
        (None, later, "to"),
        (Some(NOW), later, "to"),
    ] {
        let refused = bed.statement(from, to).await.unwrap_err();
        assert_eq!((refused.code, refused.param.as_deref()), (Code::InvalidInput, Some(param)));
        assert!(refused.message.contains("10000 entries"), "{}", refused.message);
    }
    let before = bed.statement(None, Some(NOW)).await.unwrap();
    assert_eq!((&before["entries"], &before["closing_micro_usd"]), (&json!([]), &json!(0)));
    // A time that holds fewer is told, with the balance that all before it has made.
    let rest = bed.statement(later, None).await.unwrap();
    assert_eq!((&rest["entries"], &rest["opening_micro_usd"]), (&json!([]), &json!(MOST + 1)));
    bed.end().await;
}
