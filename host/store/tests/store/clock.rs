//! The clock of the store: where replicas share a database, the database's.

use charter_kernel::time::Clock as _;
use charter_store::Store;
use sqlx::Connection;

use crate::bed;

const MINUTE_MS: i64 = 60_000;
const YEAR_MS: i64 = 365 * 86_400_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_clock_is_wrong_or_jumps_goes_by_the_databases() {
    let Some(server) = bed::server() else { return };
    let url = server.database();
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    let (mut stores, mut hands, mut data_dir) = (Vec::new(), Vec::new(), None);
    for years in [-10, 10] {
        let (mut config, clock) = bed::config(url.clone());
        clock.forward_ms(years * YEAR_MS);
        config.database_time = true;
        // Replicas share the master key.
        config.data_dir.clone_from(data_dir.get_or_insert(config.data_dir.clone()));
        stores.push(Store::open(config).await.unwrap());
        hands.push(clock);
    }
    let asked = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
    for jump in [0, YEAR_MS, -3 * YEAR_MS] {
        hands.iter().for_each(|clock| clock.forward_ms(jump));
        let there: i64 = sqlx::query_scalar(asked).fetch_one(&mut connection).await.unwrap();
        for (store, own) in stores.iter().zip(&hands) {
            assert!((store.now().0 - there).abs() < MINUTE_MS, "{} against {there}", store.now());
            assert!(
                (own.now().0 - there).abs() > YEAR_MS,
                "the machine's own clock is what is wrong"
            );
        }
    }
}
