//! How many files the process may have open: each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files beside connections: the database's, the components', what guests and hooks call.
const OTHERS: usize = 1_024;

/// Has the system allow as many open files as `connections` need, as far as it lets us; answers the
/// connections for which there are files.
pub(super) fn fit(connections: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = u64::try_from(connections.saturating_add(OTHERS)).unwrap_or(u64::MAX);
    let Some(now) = limit.current.filter(|now| *now < wanted) else { return connections };
    let most = limit.maximum.map_or(wanted, |most| wanted.min(most));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit });
    let files = if raised.is_ok() { most } else { now };
    let room = room(usize::try_from(files).unwrap_or(usize::MAX)).min(connections);
    if room < connections {
        tracing::warn!(
            files,
            connections = room,
            "the system lets this process open too few files for http.connections_max: raise its limit (ulimit -n, LimitNOFILE=)"
        );
    }
    room
}

/// The connections for which so many files have room.
fn room(files: usize) -> usize {
    files.saturating_sub(OTHERS).max(files / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_files_leave_half_of_them_to_connections() {
        let of = [(0, 1), (256, 128), (1_024, 512), (4_096, 3_072), (20_000, 18_976)];
        for (files, connections) in of {
            assert_eq!(room(files), connections, "{files}");
        }
    }

    #[test]
    fn as_many_files_as_connections_need_are_allowed_where_the_system_lets_us() {
        let most = getrlimit(Resource::Nofile).maximum;
        let connections = fit(300);
        let allowed = getrlimit(Resource::Nofile).current;
        assert!(allowed.is_none_or(|files| files >= connections as u64), "{allowed:?} of {most:?}");
    }
}
