//! `ledger`: linked; this version keeps no accounts.

use crate::bindings::charter::primitive::ledger::{Balance, Entry, Host, Normal};
use crate::bindings::charter::primitive::types::Failure;
use crate::failure::not_configured;
use crate::state::State;

fn missing<T>() -> Result<T, Failure> {
    Err(not_configured("the ledger", "ledger").into())
}

impl Host for State {
    async fn open(&mut self, _account: String, _normal: Normal, _may_go_negative: bool) -> Result<(), Failure> {
        missing()
    }
    async fn freeze(&mut self, _account: String, _frozen: bool) -> Result<(), Failure> {
        missing()
    }
    async fn balance_of(&mut self, _account: String) -> Result<Balance, Failure> {
        missing()
    }
    async fn transfer(
        &mut self,
        _from_account: String,
        _to_account: String,
        _amount: i64,
        _memo: String,
        _reference: String,
    ) -> Result<String, Failure> {
        missing()
    }
    async fn transfer_to_user(
        &mut self,
        _from_account: String,
        _user: String,
        _to_account: String,
        _amount: i64,
        _memo: String,
        _reference: String,
    ) -> Result<String, Failure> {
        missing()
    }
    async fn entries(
        &mut self,
        _account: String,
        _after: Option<String>,
        _limit: u32,
    ) -> Result<(Vec<Entry>, Option<String>), Failure> {
        missing()
    }
}
