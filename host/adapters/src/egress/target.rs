//! From the address that a guest wrote to the one that is dialled.
//!
//! Invariant: a request to a binding stays at the binding's origin and below its path, whatever the
//! guest's path looks like.

use charter_engine::{EgressBody, EgressError};
use http::{HeaderValue, Request, Uri, header};

use super::credential::{self, Placed};
use crate::providers::{self, Binding};

/// The address that a request goes to.
#[derive(Debug)]
pub(super) struct Aim {
    /// The name or address.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: bool,
    /// Whether the operator named the address: a binding's own host is not checked against the
    /// private ranges where it is an address itself, or where the binding says `private: true`.
    pub(super) trusted: bool,
    /// Whether the operator bound it at all: any port, then.
    pub(super) bound: bool,
    /// The credential that was added, to be masked in the answer.
    pub(super) credential: Option<Placed>,
}

type Aimed = (Aim, Request<EgressBody>);

/// A request of the public web.
pub(super) fn to_public(mut request: Request<EgressBody>) -> Result<Aimed, EgressError> {
    let aim = aim(request.uri())?;
    dress(&mut request, &aim)?;
    Ok((aim, request))
}

/// A request to a binding: its origin, its path before the guest's, its credential.
pub(super) fn to_binding(
    binding: &Binding,
    mut request: Request<EgressBody>,
) -> Result<Aimed, EgressError> {
    let base: Uri = binding.url.parse().map_err(|_| {
        EgressError::Denied(format!("the address bound as {} is malformed", binding.name))
    })?;
    let path = request.uri().path().to_owned();
    if escapes(&path) {
        return Err(EgressError::Denied("a path to a binding may not contain `..`".into()));
    }
    let prefix = base.path().trim_end_matches('/');
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let placed = credential::place(binding, &mut request)?;
    let query = match placed.as_ref().and_then(Placed::query) {
        Some(pair) if query.is_empty() => format!("?{pair}"),
        Some(pair) => format!("{query}&{pair}"),
        None => query,
    };
    let authority = base.authority().map(ToString::to_string).unwrap_or_default();
    let uri = Uri::builder()
        .scheme(base.scheme_str().unwrap_or("https"))
        .authority(authority)
        .path_and_query(format!("{prefix}{path}{query}"));
    *request.uri_mut() =
        uri.build().map_err(|_| EgressError::Protocol("the address is malformed".into()))?;
    let mut aim = aim(request.uri())?;
    let private =
        binding.options.get("private").and_then(serde_json::Value::as_bool).unwrap_or(false);
    aim.trusted = private || aim.host == "localhost" || literal(&aim.host).is_some();
    aim.bound = true;
    if placed.is_some() {
        // An answer that is packed could echo the credential where nobody can mask it.
        request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    aim.credential = placed;
    dress(&mut request, &aim)?;
    Ok((aim, request))
}

/// Whether a path has a segment that leads upwards, in any spelling.
fn escapes(path: &str) -> bool {
    let plain =
        path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "\\");
    plain.split(['/', '\\']).any(|segment| segment == "..")
}

/// The address behind a literal host, brackets or not.
pub(super) fn literal(host: &str) -> Option<std::net::IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

pub(super) fn aim(uri: &Uri) -> Result<Aim, EgressError> {
    let tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => {
            return Err(EgressError::Denied("only http and https addresses can be reached".into()));
        }
    };
    let authority =
        uri.authority().ok_or_else(|| EgressError::Protocol("the address names no host".into()))?;
    if authority.as_str().contains('@') {
        return Err(EgressError::Denied("an address may not hold a user and password".into()));
    }
    let host = authority.host().trim_end_matches('.').to_ascii_lowercase();
    if host.is_empty() {
        return Err(EgressError::Protocol("the address names no host".into()));
    }
    let port = providers::port(authority, if tls { 443 } else { 80 })
        .ok_or_else(|| EgressError::Denied("a port is a number from 1 to 65535".into()))?;
    Ok(Aim { host, port, tls, trusted: false, bound: false, credential: None })
}

/// The headers that the host answers for.
fn dress(request: &mut Request<EgressBody>, aim: &Aim) -> Result<(), EgressError> {
    let standard = aim.port == if aim.tls { 443 } else { 80 };
    let host = if standard { aim.host.clone() } else { format!("{}:{}", aim.host, aim.port) };
    let host = HeaderValue::from_str(&host)
        .map_err(|_| EgressError::Protocol("the host's name is malformed".into()))?;
    let headers = request.headers_mut();
    for name in [
        header::CONNECTION,
        header::UPGRADE,
        header::TE,
        header::TRAILER,
        header::PROXY_AUTHORIZATION,
    ] {
        headers.remove(name);
    }
    headers.insert(header::HOST, host);
    headers
        .entry(header::USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!("charter/", env!("CARGO_PKG_VERSION"))));
    Ok(())
}

#[cfg(test)]
mod tests {
    use charter_tenancy::secret::Secret;
    use http_body_util::BodyExt;

    use super::*;
    use crate::providers::Whose;

    fn binding(url: &str, options: serde_json::Value) -> Binding {
        Binding {
            name: "engine".into(),
            whose: Whose::Deployment,
            kind: "http".into(),
            url: url.into(),
            credential: Some(Secret::new("s3cret-token".into())),
            webhook_secrets: [None, None],
            options,
            configured: true,
        }
    }

    fn request(uri: &str) -> Request<EgressBody> {
        let empty = http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync();
        let mut request = Request::new(empty);
        *request.uri_mut() = uri.parse().unwrap();
        request
            .headers_mut()
            .insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer forged"));
        request
    }

    #[test]
    fn a_binding_gets_its_own_origin_path_and_credential() {
        let bound_to = binding("https://api.example.com/v1/", serde_json::json!({}));
        let (aim, sent) =
            to_binding(&bound_to, request("https://engine.binding/find?q=a")).unwrap();
        assert_eq!(sent.uri(), "https://api.example.com/v1/find?q=a");
        assert_eq!(sent.headers()[header::AUTHORIZATION], "Bearer s3cret-token");
        assert_eq!(sent.headers()[header::HOST], "api.example.com");
        assert!(!aim.trusted);
    }

    #[test]
    fn a_path_cannot_leave_the_bindings_prefix() {
        let bound_to = binding("https://api.example.com/v1", serde_json::json!({}));
        for path in ["/../admin", "/a/%2e%2E/b", "/..%2fadmin", "/a\\..\\b"] {
            let address = format!("https://engine.binding{}", path.replace('\\', "%5c"));
            assert!(
                matches!(to_binding(&bound_to, request(&address)), Err(EgressError::Denied(_))),
                "{path}"
            );
        }
        assert!(to_binding(&bound_to, request("https://engine.binding/a..b/...")).is_ok());
    }

    #[test]
    fn a_credential_can_be_a_header_of_its_own_or_a_query_member() {
        let own = binding(
            "http://127.0.0.1:9/",
            serde_json::json!({ "auth": "header", "header": "x-api-key" }),
        );
        let (aim, sent) = to_binding(&own, request("https://engine.binding/")).unwrap();
        assert_eq!(sent.headers()["x-api-key"], "s3cret-token");
        assert!(!sent.headers().contains_key(header::AUTHORIZATION), "the guest's own was sent");
        assert!(aim.trusted, "an address that the operator wrote down is meant");
        let query = binding(
            "https://api.example.com",
            serde_json::json!({ "auth": "query", "query": "key" }),
        );
        let (_, sent) = to_binding(&query, request("https://engine.binding/a?b=c")).unwrap();
        assert_eq!(sent.uri(), "https://api.example.com/a?b=c&key=s3cret-token");
    }

    #[test]
    fn addresses_with_a_user_another_scheme_or_no_port_that_exists_are_denied() {
        for address in [
            "https://user:pw@example.com/",
            "ftp://example.com/",
            "http://example.com:99999/",
            "http://example.com:0/",
        ] {
            assert!(
                matches!(to_public(request(address)), Err(EgressError::Denied(_))),
                "{address}"
            );
        }
    }
}
