//! The engine's end of `wasi:http/outgoing-handler`: who may send where, and the claim that goes
//! before an effect.
//!
//! Knows no connection: [`crate::Egress`] sends. Holds of the request are taken before anything is
//! sent, since a provider may charge for an answer. A request that is not a GET is an effect: the
//! idempotency claim is committed before it, and from then on the guest is not run again.

use std::sync::Arc;

use charter_kernel::scope::Scope;
use http_body_util::BodyExt;
use tracing::Instrument as _;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

use crate::call::Call;
use crate::component::Component;
use crate::egress::{EgressBody, EgressError, Outbound, Target};
use crate::shared::Shared;
use crate::story::Marks;

/// The way of a guest's outbound requests.
pub(crate) struct Outbounds(Option<Arc<Permit>>);

/// On whose behalf they go.
pub(crate) struct Permit {
    pub(crate) shared: Arc<Shared>,
    pub(crate) component: Arc<Component>,
    pub(crate) call: Arc<Call>,
    pub(crate) marks: Arc<Marks>,
}

type Io = Box<dyn Future<Output = Result<(), Error>> + Send>;
type Sent = Result<(http::Response<WasiBody>, Io), Error>;

impl Outbounds {
    /// No request goes out.
    pub(crate) fn none() -> Self {
        Self(None)
    }
    /// Requests go out as the call's.
    pub(crate) fn of(permit: Permit) -> Self {
        Self(Some(Arc::new(permit)))
    }
}

impl WasiHttpHooks for Outbounds {
    fn set_host_header(&mut self) -> bool {
        // The server's client sets it from the address that it dials.
        false
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _body_errors: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let permit = self.0.clone();
        Box::new(async move {
            let permit = permit.ok_or_else(|| {
                denial("nothing may be sent while a component describes itself".into())
            })?;
            let response =
                permit.send(request, options.unwrap_or_default()).await.map_err(to_guest)?;
            let response = response.map(|body| body.map_err(to_guest).boxed_unsync());
            Ok((response, Box::new(async { Ok(()) }) as Io))
        })
    }
}

impl Permit {
    fn scope(&self) -> &Scope {
        &self.call.scope
    }

    async fn send(
        &self,
        request: http::Request<WasiBody>,
        options: RequestOptions,
    ) -> Result<http::Response<EgressBody>, EgressError> {
        let target = self.target(request.uri())?;
        let egress = self
            .shared
            .egress()
            .ok_or_else(|| EgressError::Denied("this deployment sends nothing out".into()))?;
        let is_effect = !matches!(
            *request.method(),
            http::Method::GET | http::Method::HEAD | http::Method::OPTIONS
        );
        self.admit(is_effect).await?;
        let ms = |time: Option<std::time::Duration>| {
            time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        };
        let outbound = Outbound {
            scope: self.scope().clone(),
            primitive: self.component.manifest.name.clone(),
            request_id: self.call.request_id.clone(),
            target,
            request: request.map(|body| body.map_err(from_guest).boxed_unsync()),
            connect_timeout_ms: ms(options.connect_timeout),
            first_byte_timeout_ms: ms(options.first_byte_timeout),
            between_bytes_timeout_ms: ms(options.between_bytes_timeout),
        };
        egress.send(outbound).await.inspect_err(|error| {
            tracing::warn!(
                primitive = self.component.manifest.name,
                request = self.call.request_id,
                organization = self.scope().lane(),
                %error,
                "an outbound request failed"
            );
        })
    }

    /// Commits what goes before a request: in a task of its own, for a guest may give its request up
    /// at any moment.
    async fn admit(&self, is_effect: bool) -> Result<(), EgressError> {
        let commit = self.marks.begin_commit().await.map_err(|_| attempt_over())?;
        let (shared, call, marks) = (self.shared.clone(), self.call.clone(), self.marks.clone());
        let admitting = async move {
            let _commit = commit;
            if !is_effect {
                let taken = shared.take_untaken(&call, &marks).await;
                return taken.map_err(|_| attempt_over());
            }
            shared.admit_effect(&call, &marks).await.map_err(|_| attempt_over())?;
            if marks.abort_cause().is_some() {
                return Err(attempt_over());
            }
            marks.dispatch();
            Ok(())
        };
        let admitted = tokio::spawn(admitting.in_current_span()).await;
        admitted.unwrap_or_else(|_| Err(attempt_over()))
    }

    /// The target of the request, if its component may send there.
    fn target(&self, uri: &http::Uri) -> Result<Target, EgressError> {
        let name = &self.component.manifest.name;
        let host = uri.host().unwrap_or_default();
        if let Some(binding) = host.strip_suffix(".binding") {
            if !self.component.http {
                return Err(EgressError::Denied(format!(
                    "`{name}` does not declare the capability `http`"
                )));
            }
            if !self.component.manifest.providers.iter().any(|provider| provider.name == binding) {
                return Err(EgressError::Denied(format!(
                    "`{name}` declares no provider `{binding}`"
                )));
            }
            return Ok(Target::Binding(binding.to_owned()));
        }
        if self.component.public_web {
            return Ok(Target::Public);
        }
        Err(EgressError::Denied(format!(
            "`{name}` may not send to {host}: it reaches its providers as https://<binding>.binding/, and public hosts only with the capability `public-web`"
        )))
    }
}

fn attempt_over() -> EgressError {
    EgressError::Denied("this attempt is over".into())
}

fn denial(text: String) -> Error {
    Error::InternalError(Some(text))
}

/// The error that the guest sees: the denial's own words, and otherwise the nearest code of
/// `wasi:http`.
fn to_guest(error: EgressError) -> Error {
    match error {
        EgressError::Denied(_) | EgressError::Unbound(_) => denial(error.to_string()),
        EgressError::Protocol(_) => Error::HttpProtocolError,
        EgressError::Dns => Error::DnsError { rcode: Some("not found".into()), info_code: None },
        EgressError::Connection => Error::ConnectionTerminated,
        EgressError::Timeout => Error::HttpResponseTimeout,
        EgressError::Tls => Error::TlsProtocolError,
        EgressError::TooLarge { limit } => Error::HttpResponseBodySize(Some(limit)),
        EgressError::TooMany => Error::ConnectionLimitReached,
    }
}

fn from_guest(error: Error) -> EgressError {
    EgressError::Protocol(error.to_string())
}

#[cfg(test)]
mod tests;
