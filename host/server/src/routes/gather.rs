//! Pages of lists that look at more rows than they show.

use charter_kernel::refusal::Refusal;
use charter_kernel::unit::{Key, Row};
use charter_store::{PAGE_BYTES_MAX, Query, Txn};
use charter_tenancy::stored::reading;

/// Rows of a look where most of them are shown nobody.
pub const LOOK_ROWS: u32 = 200;
/// Looks of one page.
const LOOKS_MAX: u32 = 20;
/// Bytes of rows that are read at once, on the thread that serves others.
const QUICK_BYTES: usize = 256 << 10;

/// The items that are shown of a query's rows, so many at most; and behind which row the next page begins, where
/// there may be one. A page ends early where its rows are large, and where few of many are shown.
///
/// # Errors
/// When the store cannot be asked, and those of `show`.
pub async fn gather<T>(
    txn: &mut Txn,
    mut query: Query,
    most: u32,
    show: impl Fn(&Key, &Row) -> Result<Option<T>, Refusal>,
) -> Result<(Vec<T>, Option<String>), Refusal> {
    let (mut items, mut bytes) = (Vec::new(), 0);
    for _ in 0..LOOKS_MAX {
        let found = txn.find(&query).await.map_err(reading)?;
        let mut read = 0;
        for (key, row) in found.items {
            read += row.body.len();
            if read > QUICK_BYTES {
                read = 0;
                tokio::task::yield_now().await;
            }
            let Some(item) = show(&key, &row)? else { continue };
            if items.len() == most as usize {
                return Ok((items, query.after));
            }
            bytes += row.body.len();
            items.push(item);
            query.after = Some(key.id);
        }
        query.after = found.next;
        if query.after.is_none() || bytes >= PAGE_BYTES_MAX / 2 {
            break;
        }
    }
    Ok((items, query.after))
}
