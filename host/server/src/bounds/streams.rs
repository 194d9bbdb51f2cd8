//! How many streams each organization has open: a stream costs little, but it costs for as long as
//! it lasts, and one tenant must not have them all. Holds an entry only while an organization has a
//! stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Streams of one organization at once.
const STREAMS_MAX: usize = 1_000;

/// The open streams.
#[derive(Debug, Default)]
pub struct Streams(Arc<Mutex<HashMap<String, usize>>>);

/// One open stream; dropping it closes it.
#[derive(Debug)]
pub struct OpenStream {
    open: Arc<Mutex<HashMap<String, usize>>>,
    organization: String,
}

fn lock_open(open: &Mutex<HashMap<String, usize>>) -> MutexGuard<'_, HashMap<String, usize>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Streams {
    /// A place for one more. `None` where the organization has as many as it may, unless it is owed
    /// one.
    pub fn take(&self, organization: &str, owed: bool) -> Option<OpenStream> {
        let mut open = lock_open(&self.0);
        let count = open.get(organization).copied().unwrap_or_default();
        if count >= STREAMS_MAX && !owed {
            return None;
        }
        open.insert(organization.to_owned(), count + 1);
        Some(OpenStream { open: self.0.clone(), organization: organization.to_owned() })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = lock_open(&self.open);
        match open.get_mut(&self.organization) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.organization)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_organization_fills_its_own_places_only_and_gets_them_back() {
        let places = Streams::default();
        let all: Vec<_> =
            (0..STREAMS_MAX).map(|_| places.take("a", false).expect("there is room")).collect();
        assert!(places.take("a", false).is_none());
        let neighbour = places.take("b", false).expect("another tenant has its own");
        let owed = places.take("a", true).expect("what was done already is answered");
        drop(owed);
        assert!(places.take("a", false).is_none());
        drop(all);
        drop(neighbour);
        assert!(places.0.lock().unwrap().is_empty(), "nobody is remembered");
        assert!(places.take("a", false).is_some());
    }
}
