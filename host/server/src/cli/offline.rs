//! What the operator does on the database itself: backup, restore, the token, the master key.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use charter_store::Store;

use super::say;
use super::serve::{SystemClock, data_dir, store_config};
use crate::config::Config;
use crate::operator::Operator;

pub(super) async fn open(config: &Config) -> anyhow::Result<Store> {
    data_dir(&config.data.dir)?;
    Store::open(store_config(config, Arc::new(SystemClock))).await.context("the store cannot be opened")
}

pub(super) async fn backup(config: &Config, file: &Path) -> anyhow::Result<()> {
    if file.exists() {
        anyhow::bail!("{} exists; a backup overwrites nothing", file.display());
    }
    let store = open(config).await?;
    let done = store.backup(file).await.with_context(|| format!("the backup {} was not written", file.display()));
    store.close().await;
    done?;
    say(&format!("wrote {}", file.display()));
    say(&format!("the master key is not in it: keep {} elsewhere", config.data.master_key().display()));
    Ok(())
}

pub(super) async fn restore(config: &Config, file: &Path) -> anyhow::Result<()> {
    data_dir(&config.data.dir)?;
    let restored = Store::restore(store_config(config, Arc::new(SystemClock)), file).await;
    restored.with_context(|| format!("{} was not restored", file.display()))?;
    say(&format!("restored {}", file.display()));
    say(&format!("secrets open with the master key of the backed-up host: put it at {}", config.data.master_key().display()));
    Ok(())
}

pub(super) async fn rotate_token(config: &Config) -> anyhow::Result<()> {
    if config.operator.token.is_some() {
        anyhow::bail!("the token comes from the configuration (operator.token): change it there and restart");
    }
    let store = open(config).await?;
    let (operator, fresh) = Operator::open(store.clone(), None).await?;
    let token = match fresh {
        Some(token) => token,
        None => operator.rotate().await?,
    };
    store.close().await;
    say(token.reveal());
    Ok(())
}

pub(super) async fn rotate_master(config: &Config) -> anyhow::Result<()> {
    let store = open(config).await?;
    let sealed = store.rotate_master().await.context("the master key was not replaced");
    store.close().await;
    say(&format!("a new master key seals {} organizations' keys: {}", sealed?, config.data.master_key().display()));
    Ok(())
}
