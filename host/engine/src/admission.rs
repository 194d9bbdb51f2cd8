//! Who gets in: places below the pool's size, for the deployment, each tenant and each primitive,
//! with a bounded queue.
//!
//! Knows nothing of wasmtime. A call holds a place of its tenant, of its primitive and of its
//! class. Nested calls take from a reserve without waiting, so that outer calls that wait for inner
//! ones cannot lock each other out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use charter_kernel::manifest::Class;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::AdmissionConfig;

/// The places of this process.
#[derive(Debug)]
pub(crate) struct Admission {
    config: AdmissionConfig,
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
    nested: Arc<Semaphore>,
    waiting: AtomicUsize,
    parked: Arc<AtomicUsize>,
    tenants: Mutex<HashMap<Arc<str>, Arc<Tenant>>>,
    bytes: Arc<Gauge>,
}

/// One tenant's places.
#[derive(Debug)]
pub(crate) struct Tenant {
    name: Arc<str>,
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    parked: AtomicUsize,
    bytes: Gauge,
}

/// A count with a ceiling.
#[derive(Debug)]
struct Gauge {
    used: AtomicUsize,
    max: usize,
}

impl Gauge {
    fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }
    fn take(&self, amount: usize) -> bool {
        self.used
            .fetch_update(Relaxed, Relaxed, |used| {
                used.checked_add(amount).filter(|sum| *sum <= self.max)
            })
            .is_ok()
    }
    fn give(&self, amount: usize) {
        self.used.fetch_sub(amount, Relaxed);
    }
}

/// The bytes that one call's tenant and the process have left.
#[derive(Debug)]
pub(crate) struct Bytes {
    tenant: Arc<Tenant>,
    all: Arc<Gauge>,
}

impl Bytes {
    /// Takes this many, or none.
    pub(crate) fn take(&self, amount: usize) -> bool {
        if !self.tenant.bytes.take(amount) {
            return false;
        }
        let taken = self.all.take(amount);
        if !taken {
            self.tenant.bytes.give(amount);
        }
        taken
    }
    /// Gives this many back.
    pub(crate) fn give(&self, amount: usize) {
        self.tenant.bytes.give(amount);
        self.all.give(amount);
    }
}

/// A call's places; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Place {
    bytes: Arc<Bytes>,
    body_bytes: usize,
    _tenant: Option<OwnedSemaphorePermit>,
    _primitive: Option<OwnedSemaphorePermit>,
    _class: OwnedSemaphorePermit,
}

impl Place {
    /// What the call's guest memory counts against.
    pub(crate) fn bytes(&self) -> &Arc<Bytes> {
        &self.bytes
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.bytes.give(self.body_bytes);
    }
}

/// Why a call was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// Whether the tenant's own share was used up.
    pub(crate) tenant: bool,
}

/// Counts a waiter as long as it lives.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize, max: usize) -> Option<Self> {
        count
            .fetch_update(Relaxed, Relaxed, |n| (n < max).then_some(n + 1))
            .ok()
            .map(|_| Self(count))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A waiting long poll: it holds no place and no instance, but its number is bounded.
#[derive(Debug)]
pub(crate) struct Parked {
    tenant: Arc<Tenant>,
    all: Arc<AtomicUsize>,
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Relaxed);
        self.tenant.parked.fetch_sub(1, Relaxed);
    }
}

impl Admission {
    pub(crate) fn new(config: AdmissionConfig) -> Self {
        Self {
            short: Arc::new(Semaphore::new(config.short_max)),
            long: Arc::new(Semaphore::new(config.long_max)),
            nested: Arc::new(Semaphore::new(config.nested_max)),
            waiting: AtomicUsize::new(0),
            parked: Arc::default(),
            tenants: Mutex::default(),
            bytes: Arc::new(Gauge::new(config.bytes_max)),
            config,
        }
    }

    /// Places for one primitive.
    pub(crate) fn primitive(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(self.config.primitive_max))
    }

    /// The tenant's places, made at first use and forgotten when nobody has one.
    pub(crate) fn tenant(&self, name: &str) -> Arc<Tenant> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tenant) = tenants.get(name) {
            return tenant.clone();
        }
        if tenants.len() >= 4_096 {
            tenants.retain(|_, tenant| Arc::strong_count(tenant) > 1);
        }
        let name: Arc<str> = Arc::from(name);
        let tenant = Arc::new(Tenant {
            name: name.clone(),
            places: Arc::new(Semaphore::new(self.config.tenant_max)),
            waiting: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
            bytes: Gauge::new(self.config.bytes_max / 2),
        });
        tenants.insert(name, tenant.clone());
        tenant
    }

    /// What a tenant's guest memory counts against.
    pub(crate) fn bytes(&self, tenant: &Arc<Tenant>) -> Arc<Bytes> {
        Arc::new(Bytes { tenant: tenant.clone(), all: self.bytes.clone() })
    }

    /// Waits for places, at most `wait` and the configured time.
    pub(crate) async fn enter(
        &self,
        tenant: &Arc<Tenant>,
        primitive: &Arc<Semaphore>,
        class: Class,
        nested: bool,
        body_bytes: usize,
        wait: Duration,
    ) -> Result<Place, Full> {
        let bytes = self.bytes(tenant);
        if nested {
            let class =
                self.nested.clone().try_acquire_owned().map_err(|_| Full { tenant: false })?;
            return place(bytes, body_bytes, None, None, class);
        }
        let class = match class {
            Class::Short => &self.short,
            Class::Long => &self.long,
        };
        let wait = wait.min(Duration::from_millis(self.config.wait_ms_max));
        let deadline = tokio::time::Instant::now() + wait;
        let own = match tenant.places.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let full = Full { tenant: true };
                let _turn =
                    Waiting::enter(&tenant.waiting, self.config.queue_max / 4).ok_or(full)?;
                self.queue(&tenant.places, deadline, full).await?
            }
        };
        let full = Full { tenant: false };
        let primitive = self.queue(primitive, deadline, full).await?;
        let class = self.queue(class, deadline, full).await?;
        place(bytes, body_bytes, Some(own), Some(primitive), class)
    }

    async fn queue(
        &self,
        places: &Arc<Semaphore>,
        deadline: tokio::time::Instant,
        full: Full,
    ) -> Result<OwnedSemaphorePermit, Full> {
        if let Ok(permit) = places.clone().try_acquire_owned() {
            return Ok(permit);
        }
        let _turn = Waiting::enter(&self.waiting, self.config.queue_max).ok_or(full)?;
        match tokio::time::timeout_at(deadline, places.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(full),
        }
    }

    /// Counts a call that waits for a change without holding a place.
    pub(crate) fn park(&self, tenant: &Arc<Tenant>) -> Result<Parked, Full> {
        let below = |max: usize| move |n: usize| (n < max).then_some(n + 1);
        if tenant
            .parked
            .fetch_update(Relaxed, Relaxed, below(self.config.parked_tenant_max))
            .is_err()
        {
            return Err(Full { tenant: true });
        }
        if self.parked.fetch_update(Relaxed, Relaxed, below(self.config.parked_max)).is_err() {
            tenant.parked.fetch_sub(1, Relaxed);
            return Err(Full { tenant: false });
        }
        Ok(Parked { tenant: tenant.clone(), all: self.parked.clone() })
    }
}

impl Tenant {
    /// The organization.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }
}

fn place(
    bytes: Arc<Bytes>,
    body_bytes: usize,
    tenant: Option<OwnedSemaphorePermit>,
    primitive: Option<OwnedSemaphorePermit>,
    class: OwnedSemaphorePermit,
) -> Result<Place, Full> {
    if !bytes.take(body_bytes) {
        return Err(Full { tenant: false });
    }
    Ok(Place { bytes, body_bytes, _tenant: tenant, _primitive: primitive, _class: class })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn small() -> Admission {
        Admission::new(AdmissionConfig {
            short_max: 3,
            long_max: 1,
            nested_max: 1,
            tenant_max: 2,
            primitive_max: 3,
            bytes_max: 100,
            parked_max: 2,
            parked_tenant_max: 1,
            ..AdmissionConfig::default()
        })
    }

    #[tokio::test]
    async fn a_tenant_that_used_its_share_up_leaves_room_for_others() {
        let admission = small();
        let (hog, other, primitive) =
            (admission.tenant("hog"), admission.tenant("other"), admission.primitive());
        let _one = admission.enter(&hog, &primitive, Class::Short, false, 0, NOW).await.unwrap();
        let _two = admission.enter(&hog, &primitive, Class::Short, false, 0, NOW).await.unwrap();
        let full =
            admission.enter(&hog, &primitive, Class::Short, false, 0, NOW).await.unwrap_err();
        assert_eq!(full, Full { tenant: true });
        let _three =
            admission.enter(&other, &primitive, Class::Short, false, 0, NOW).await.unwrap();
        let full =
            admission.enter(&other, &primitive, Class::Short, false, 0, NOW).await.unwrap_err();
        assert_eq!(full, Full { tenant: false });
    }

    #[tokio::test]
    async fn long_calls_and_nested_ones_have_places_of_their_own() {
        let admission = small();
        let (tenant, primitive) = (admission.tenant("t"), admission.primitive());
        let _long = admission.enter(&tenant, &primitive, Class::Long, false, 0, NOW).await.unwrap();
        let _short =
            admission.enter(&tenant, &primitive, Class::Short, false, 0, NOW).await.unwrap();
        let _nested =
            admission.enter(&tenant, &primitive, Class::Short, true, 0, NOW).await.unwrap();
        assert!(admission.enter(&tenant, &primitive, Class::Short, true, 0, NOW).await.is_err());
    }

    #[tokio::test]
    async fn bytes_are_counted_for_the_tenant_and_for_all_and_given_back() {
        let admission = small();
        let (tenant, primitive) = (admission.tenant("t"), admission.primitive());
        let place =
            admission.enter(&tenant, &primitive, Class::Short, false, 40, NOW).await.unwrap();
        assert!(place.bytes().take(10));
        assert!(!place.bytes().take(1), "half of all bytes is a tenant's share");
        place.bytes().give(10);
        drop(place);
        assert!(admission.enter(&tenant, &primitive, Class::Short, false, 50, NOW).await.is_ok());
    }

    #[tokio::test]
    async fn waiting_calls_are_counted_and_bounded() {
        let admission = small();
        let (a, b) = (admission.tenant("a"), admission.tenant("b"));
        let parked = admission.park(&a).unwrap();
        assert_eq!(admission.park(&a).unwrap_err(), Full { tenant: true });
        drop(parked);
        let _again = admission.park(&a).unwrap();
        let _other = admission.park(&b).unwrap();
        assert_eq!(admission.park(&admission.tenant("c")).unwrap_err(), Full { tenant: false });
    }
}
