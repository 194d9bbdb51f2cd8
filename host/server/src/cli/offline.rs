//! The operator's work on the database itself: backup, restore, the token, the master key.
//!
//! Only `restore` makes anything: the others refuse a place where no deployment is, since most of
//! those are misspelt.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use charter_governance::verify;
use charter_kernel::audit::AuditRow;
use charter_kernel::time::{Clock as _, Instant};
use charter_kernel::unit::{Fact, Unit};
use charter_store::{BackupError, FolderLock, OpenError, Store, audit_fact};
use charter_tenancy::operator::{self, Operator};

use super::say;
use super::serve::{SystemClock, check_data_dir, store_config};
use crate::config::Config;

/// Opens what is there, to be looked at only; a host may run on it.
pub(super) async fn look(config: &Config) -> anyhow::Result<Store> {
    check_data_dir(&config.data.dir)?;
    Store::look(store_config(config, Arc::new(SystemClock))).await.map_err(explain_open_error)
}

/// Opens what is there, to be changed: no host may run on it, unless it shares its database.
async fn open(config: &Config) -> anyhow::Result<(Store, FolderLock)> {
    check_data_dir(&config.data.dir)?;
    let settings = store_config(config, Arc::new(SystemClock));
    Store::is_there(&settings).await.map_err(explain_open_error)?;
    let hold = Store::hold(&settings).map_err(explain_open_error)?;
    Ok((Store::open(settings).await.map_err(explain_open_error)?, hold))
}

/// The store's error, with advice.
pub(super) fn explain_open_error(error: OpenError) -> anyhow::Error {
    let advice = match &error {
        OpenError::Absent(_) => Some("give the deployment's --data DIR, or --database URL"),
        OpenError::Held(_) => {
            Some("stop that one first; replicas share a PostgreSQL database (--database)")
        }
        _ => None,
    };
    match advice {
        Some(advice) => anyhow::anyhow!("{error}: {advice}"),
        None => anyhow::Error::new(error).context("the store cannot be opened"),
    }
}

pub(super) async fn backup(config: &Config, file: &Path) -> anyhow::Result<()> {
    if file.exists() {
        anyhow::bail!("{} exists; a backup overwrites nothing", file.display());
    }
    let store = look(config).await?;
    let done = store
        .backup(file)
        .await
        .with_context(|| format!("the backup {} was not written", file.display()));
    store.close().await;
    say(&format!("wrote {} rows to {}", done?, file.display()));
    say(&format!(
        "the master key is not in it: keep {} elsewhere",
        config.data.master_key().display()
    ));
    Ok(())
}

pub(super) async fn verify_ledger(config: &Config) -> anyhow::Result<()> {
    let store = look(config).await?;
    let report = verify::verify(&store).await;
    store.close().await;
    let report = report.context("the books cannot be read")?;
    let looked = format!(
        "{} accounts with {} entries, {} holds, {} meters",
        report.accounts, report.entries, report.holds, report.meters
    );
    if report.faults.is_empty() {
        say(&format!("the books agree: {looked}"));
        return Ok(());
    }
    for fault in &report.faults {
        say(fault);
    }
    anyhow::bail!("the books do not agree in {} places: {looked}", report.faults.len())
}

pub(super) async fn restore(config: &Config, file: &Path) -> anyhow::Result<()> {
    check_data_dir(&config.data.dir)?;
    let row = row("operator.restore", "database", SystemClock.now())?;
    let settings = store_config(config, Arc::new(SystemClock));
    let restored = Store::restore(settings, file, Some(&row)).await;
    let restored = restored.map_err(|error| match error {
        BackupError::Open(error) => explain_open_error(error),
        error => anyhow::Error::new(error),
    });
    let rows = restored.with_context(|| format!("{} was not restored", file.display()))?;
    say(&format!("restored {rows} rows from {}", file.display()));
    let key = config.data.master_key();
    if !key.exists() {
        say(&format!(
            "before the first start: put the master key of the backed-up host at {}, with mode 600",
            key.display()
        ));
    }
    Ok(())
}

pub(super) async fn rotate_token(config: &Config) -> anyhow::Result<()> {
    if config.operator.token.is_some() {
        anyhow::bail!(
            "the token comes from the configuration, and would come from it again at the next start: change or remove it where it is \
             set (CHARTER_OPERATOR_TOKEN in the environment, or [operator] token in the file)"
        );
    }
    let opened = open(config).await;
    let (store, _hold) = opened
        .context("the token was not replaced (a running host does it, with --url and --token)")?;
    let (_, fresh) = Operator::open(store.clone(), None).await?;
    let token = match fresh {
        Some(token) => token,
        None => {
            let mut txn = store.begin("");
            let token = operator::rotate(&mut txn).await?;
            txn.fact(row("operator.token.rotate", "token", store.now())?);
            txn.commit().await?;
            token
        }
    };
    store.close().await;
    say(token.reveal());
    Ok(())
}

pub(super) async fn rotate_master(config: &Config) -> anyhow::Result<()> {
    let (store, _hold) = open(config).await?;
    // Ahead of the file, which no commit holds: what was begun is in the log.
    let row = row("operator.keys.rotate_master", "master_key", store.now())?;
    let noted = store.commit(Unit { facts: vec![row], ..Unit::default() }).await;
    noted.context("the master key was not replaced: the audit log takes no row")?;
    let rotated = store.rotate_master().await;
    store.close().await;
    let rotated = rotated?;
    let by = match rotated.resumed {
        true => "the rotation that had broken off has ended (the next makes a newer key): its",
        false => "a new",
    };
    say(&format!(
        "{by} master key seals {} data keys, the deployment's own among them: {}",
        rotated.data_keys,
        config.data.master_key().display()
    ));
    Ok(())
}

/// The audit row of what is done here, for the commit that does it.
fn row(action: &str, thing: &str, at: Instant) -> anyhow::Result<Fact> {
    let row = AuditRow {
        at,
        actor: ("operator", "command line"),
        action,
        entity_type: Some("operator"),
        entity_id: Some(thing),
        decision: "allowed",
        ..AuditRow::default()
    };
    audit_fact(&row).context("the operating system has no randomness")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use super::super::{doctor, serve};
    use super::*;
    use crate::config::Layers;

    /// A folder of its own for a test, and the configuration of a host below it.
    struct Bed {
        folder: PathBuf,
        config: Config,
    }

    impl Bed {
        fn new(name: &str) -> Self {
            let folder =
                std::env::temp_dir().join(format!("charter-offline-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir(&folder).expect("a folder");
            Self { config: at(&folder.join("data")), folder }
        }

        fn mode(&self, name: &str) -> u32 {
            let found = std::fs::metadata(self.config.data.dir.join(name)).expect(name);
            found.permissions().mode() & 0o777
        }
    }

    impl Drop for Bed {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    fn at(data: &Path) -> Config {
        let flags = vec![
            ("data.dir", "--data", data.display().to_string()),
            ("http.listen", "--listen", "127.0.0.1:0".to_owned()),
        ];
        Config::read(Layers { flags, ..Layers::default() }).expect("the configuration is whole")
    }

    fn refusal<T>(done: anyhow::Result<T>) -> String {
        match done {
            Ok(_) => panic!("it was done"),
            Err(error) => format!("{error:#}"),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn where_no_deployment_is_none_is_made() {
        let bed = Bed::new("absent");
        let file = bed.folder.join("backup");
        for told in [
            refusal(backup(&bed.config, &file).await),
            refusal(rotate_master(&bed.config).await),
            refusal(rotate_token(&bed.config).await),
        ] {
            assert!(told.contains("no deployment in") && told.contains("--data"), "{told}");
        }
        doctor::run(&bed.config).await;
        refusal(restore(&bed.config, &bed.folder.join("no-backup")).await);
        assert!(!bed.config.data.dir.exists() && !file.exists(), "something was made");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_host_runs_on_a_directory_that_is_its_alone() {
        let bed = Bed::new("held");
        let dir = &bed.config.data.dir;
        std::fs::create_dir(dir).expect("a folder");
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        let running =
            serve::start(bed.config.clone(), Arc::new(SystemClock)).await.expect("a host starts");
        assert_eq!(bed.mode(""), 0o700);
        for name in [
            "charter.db",
            "charter.db-wal",
            "charter.db-shm",
            "charter.ballast",
            "charter.lock",
            "master.key",
        ] {
            assert_eq!(bed.mode(name), 0o600, "{name}");
        }
        let second = refusal(serve::start(bed.config.clone(), Arc::new(SystemClock)).await);
        for words in [&dir.display().to_string(), "is running", "PostgreSQL"] {
            assert!(second.contains(words), "{second}");
        }
        assert!(refusal(rotate_master(&bed.config).await).contains("is running"));
        assert!(refusal(rotate_token(&bed.config).await).contains("--url"));
        backup(&bed.config, &bed.folder.join("backup")).await.expect("a backup is online");
        running.stop().await;
        rotate_master(&bed.config).await.expect("nobody holds it");
        rotate_token(&bed.config).await.expect("nobody holds it");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_restore_makes_no_key_and_a_failed_one_nothing() {
        let bed = Bed::new("restore");
        let running =
            serve::start(bed.config.clone(), Arc::new(SystemClock)).await.expect("a host starts");
        let file = bed.folder.join("backup");
        backup(&bed.config, &file).await.expect("a backup");
        running.stop().await;
        assert!(refusal(restore(&bed.config, &file).await).contains("empty"));
        assert!(
            bed.config.data.dir.join("charter.db").exists(),
            "a refused restore took the database that was there"
        );
        // Under another deployment's key.
        let other = bed.folder.join("other.key");
        std::fs::write(&other, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=").expect("a key");
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).expect("a mode");
        let fresh = bed.folder.join("deep").join("new");
        let mut wrong = at(&fresh);
        wrong.data.key_file = Some(other);
        assert!(refusal(restore(&wrong, &file).await).contains("key file"));
        assert!(!bed.folder.join("deep").exists(), "a failed restore left something behind");
        // Without one.
        let config = at(&fresh);
        restore(&config, &file).await.expect("it restores");
        assert!(!config.data.master_key().exists(), "a restore made a key");
        let told = refusal(serve::start(config.clone(), Arc::new(SystemClock)).await);
        assert!(told.contains("master.key is missing"), "{told}");
        assert!(!config.data.master_key().exists(), "a start made a key that opens nothing");
        std::fs::copy(bed.config.data.master_key(), config.data.master_key()).expect("a copy");
        serve::start(config, Arc::new(SystemClock)).await.expect("it serves").stop().await;
    }
}
