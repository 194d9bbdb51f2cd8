//! The guarded way out of the host on a guest's behalf: to a provider that the operator bound, or
//! to the public web behind the address guard.
//!
//! Each exchange has a connection of its own to an address that was checked: a name is resolved
//! once and what was checked is what is dialled. Redirects are not followed; a guest that follows
//! one is checked like any other request. A credential goes to its binding's origin and below its
//! path only, and never back to the guest.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use charter_engine::{Egress, EgressBody, EgressError, Outbound, Target};
use charter_store::SharedLobby;
use futures::future::BoxFuture;
use http::Uri;
use http_body_util::BodyExt as _;
use tokio::net::TcpStream;

use crate::providers::Providers;
use crate::settings;

mod body;
mod credential;
mod dial;
mod guard;
mod target;
#[cfg(test)]
mod tests;

pub use dial::client_config;

/// Tenants whose connections are counted before those without one are forgotten.
const TENANTS_KEPT_MAX: usize = 4_096;

/// The way out.
pub struct Gate {
    settings: settings::Egress,
    providers: Providers,
    tls: tokio_rustls::TlsConnector,
    /// The host's own listeners, which nobody reaches through it.
    own: Vec<SocketAddr>,
    tenants: Mutex<HashMap<String, Arc<SharedLobby>>>,
}

impl Gate {
    /// A way out with these limits.
    pub fn new(settings: settings::Egress, providers: Providers, own: Vec<SocketAddr>) -> Self {
        Self { settings, providers, tls: dial::tls(), own, tenants: Mutex::default() }
    }

    /// The connections of an organization.
    fn connections(&self, organization: &str) -> Arc<SharedLobby> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= TENANTS_KEPT_MAX {
            tenants.retain(|_, own| Arc::strong_count(own) > 1);
        }
        let max = self.settings.tenant_connections_max as usize;
        let own = tenants.entry(organization.to_owned());
        own.or_insert_with(|| SharedLobby::with_shares(max)).clone()
    }

    async fn exchange(
        &self,
        outbound: Outbound,
    ) -> Result<http::Response<EgressBody>, EgressError> {
        let least =
            |asked: Option<u64>, ours: u64| Duration::from_millis(asked.unwrap_or(ours).min(ours));
        let connect = least(outbound.connect_timeout_ms, self.settings.connect_timeout_ms);
        let own = self.connections(outbound.scope.lane());
        let by = outbound.scope.sharer();
        // One that has all of its connections waits for one as long as for connecting.
        let seat = tokio::time::timeout(connect, own.seat(&by)).await;
        let seat = seat.map_err(|_| EgressError::TooMany)?;
        let first_byte = least(outbound.first_byte_timeout_ms, self.settings.timeout_ms);
        let between_bytes = least(outbound.between_bytes_timeout_ms, self.settings.timeout_ms);
        let end = tokio::time::Instant::now() + Duration::from_millis(self.settings.timeout_ms);
        let (aim, request) = match outbound.target {
            Target::Binding(name) => {
                let binding = self
                    .providers
                    .resolve(&outbound.scope, &name)
                    .ok_or(EgressError::Unbound(name))?;
                target::to_binding(&binding, outbound.request)?
            }
            Target::Public => target::to_public(outbound.request)?,
        };
        let address =
            tokio::time::timeout(connect, guard::resolve(&aim, &self.settings.allow, &self.own));
        let address = address.await.map_err(|_| EgressError::Timeout)??;
        let limits =
            body::Limits { bytes_max: self.settings.response_bytes_max, between_bytes, end };
        let request = request.map(|content| body::outgoing(content, limits.bytes_max));
        let sent = async {
            let mut wire = tokio::time::timeout(connect, dial::dial(&self.tls, &aim, address))
                .await
                .map_err(|_| EgressError::Timeout)??;
            let response = tokio::time::timeout(first_byte, wire.send(request))
                .await
                .map_err(|_| EgressError::Timeout)??;
            Ok((wire, response))
        };
        let (wire, response) =
            tokio::time::timeout_at(end, sent).await.map_err(|_| EgressError::Timeout)??;
        let masks = aim.credential.map(credential::Masks::of).unwrap_or_default();
        let (mut parts, content) = response.into_parts();
        credential::mask_headers(&mut parts.headers, &masks);
        Ok(http::Response::from_parts(parts, body::incoming(content, masks, limits, wire, seat)))
    }
}

impl Gate {
    /// The host's own addresses: the public listener first.
    pub fn own(&self) -> Option<SocketAddr> {
        self.own.first().copied()
    }

    /// Whether an address of the public web may be reached now; resolves it.
    ///
    /// # Errors
    /// The rule that forbids it, or that its name does not resolve.
    pub async fn admits(&self, uri: &Uri) -> Result<(), EgressError> {
        let aim = target::aim(uri)?;
        let within = Duration::from_millis(self.settings.connect_timeout_ms);
        let resolved =
            tokio::time::timeout(within, guard::resolve(&aim, &self.settings.allow, &self.own))
                .await;
        resolved.map_err(|_| EgressError::Timeout)?.map(drop)
    }

    /// A connection of the host's own to what the operator has bound, at any port: the name is
    /// resolved once, and the address that was checked is dialled. A private range takes the
    /// operator's list, however the address is written.
    ///
    /// # Errors
    /// The rule that forbids it, or the error on the way.
    pub async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, EgressError> {
        let aim = target::Aim {
            host: host.to_owned(),
            port,
            tls: false,
            trusted: false,
            bound: true,
            credential: None,
        };
        let connected = async {
            let address = guard::resolve(&aim, &self.settings.allow, &self.own).await?;
            TcpStream::connect(address).await.map_err(|_| EgressError::Connection)
        };
        let within = Duration::from_millis(self.settings.connect_timeout_ms);
        tokio::time::timeout(within, connected).await.map_err(|_| EgressError::Timeout)?
    }

    /// Sends a request of the host's own to the public web, behind the same guard, and answers the
    /// head of what comes back. No redirect is followed, and nothing of the body is read.
    ///
    /// # Errors
    /// The error on the way, `Timeout` included.
    pub async fn post(
        &self,
        request: http::Request<Bytes>,
        within: Duration,
    ) -> Result<http::response::Parts, EgressError> {
        let request = request.map(|body| {
            http_body_util::Full::new(body).map_err(|never| match never {}).boxed_unsync()
        });
        let exchange = async {
            let (aim, request) = target::to_public(request)?;
            let address = guard::resolve(&aim, &self.settings.allow, &self.own).await?;
            let mut wire = dial::dial(&self.tls, &aim, address).await?;
            Ok(wire.send(request).await?.into_parts().0)
        };
        tokio::time::timeout(within, exchange).await.map_err(|_| EgressError::Timeout)?
    }
}

impl Egress for Gate {
    fn send(
        &self,
        outbound: Outbound,
    ) -> BoxFuture<'_, Result<http::Response<EgressBody>, EgressError>> {
        Box::pin(self.exchange(outbound))
    }
}
