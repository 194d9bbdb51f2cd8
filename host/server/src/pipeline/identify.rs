//! The sender of the request: the credential that the route asks for is found and checked.
//!
//! Comparisons are in constant time or by digest; nothing of a credential is logged. A cookie is
//! honoured only as the browser of the person would send it: with the CSRF token, JSON and a
//! same-site origin for whatever changes something.

use std::sync::Arc;

use charter_kernel::refusal::{Code, Refusal};
use charter_registry::served::Auth;
use charter_tenancy::directory::SessionRecord;
use charter_tenancy::identity::Identity;
use http::{HeaderMap, HeaderName, Method, header};

use super::family::Located;
use super::trail::Trail;
use crate::app::App;

/// The cookie of a signed-in person.
pub const COOKIE: &str = "service_session";
/// The header that a mutation by cookie must carry.
const CSRF: HeaderName = HeaderName::from_static("x-service-csrf");
/// The header in which browsers say where a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// A request whose sender is known, or need not be. Only [`identify`] makes one.
pub struct Identified<'a> {
    located: Located<'a>,
    identity: Identity,
}

impl<'a> Identified<'a> {
    /// The request, and its sender.
    pub(super) fn into_parts(self) -> (Located<'a>, Identity) {
        (self.located, self.identity)
    }
}

/// Finds the credential that the route asks for.
pub async fn identify<'a>(
    app: &App,
    trail: &mut Trail,
    located: Located<'a>,
) -> Result<Identified<'a>, Refusal> {
    let headers = &located.accepted.headers;
    let identity = match located.target.auth() {
        Auth::Open => Identity::Anonymous,
        Auth::Operator => operator(app, headers).await?,
        Auth::Key | Auth::Session => {
            // A change that another replica has committed before now (a revocation, a grant) holds
            // for this request.
            app.store.refresh_epoch().await.map_err(charter_tenancy::stored::reading)?;
            caller(app, &located).await?
        }
        Auth::SharedSecret(binding) => shared_secret(app, headers, binding)?,
        // Inbound URLs are found by their id: none is open, so that each reads as absent.
        Auth::Hook => return Err(Refusal::not_found()),
    };
    trail.private = !matches!(identity, Identity::Anonymous);
    Ok(Identified { located, identity })
}

async fn operator(app: &App, headers: &HeaderMap) -> Result<Identity, Refusal> {
    let presented = bearer(headers).ok_or_else(|| {
        Refusal::unauthorized(
            "This route needs the operator's token: Authorization: Bearer <token>.",
        )
    })?;
    match app.operator.admit(presented).await {
        Some(token) => Ok(Identity::Operator { token: Some(token) }),
        None => Err(Refusal::unauthorized("The operator's token is not valid.")),
    }
}

fn shared_secret(app: &App, headers: &HeaderMap, binding: &str) -> Result<Identity, Refusal> {
    match bearer(headers) {
        Some(secret) if app.adapters.providers.admits(binding, secret) => {
            Ok(Identity::Operator { token: None })
        }
        _ => Err(Refusal::unauthorized(
            "This route needs the secret that the deployment shares with its caller.",
        )),
    }
}

async fn caller(app: &App, located: &Located<'_>) -> Result<Identity, Refusal> {
    let headers = &located.accepted.headers;
    if headers.contains_key(header::AUTHORIZATION) {
        let key = bearer(headers).ok_or_else(|| {
            Refusal::unauthorized("Send the API key as Authorization: Bearer <key>.")
        })?;
        let found = app.directory.key(key).await.map_err(unreadable)?;
        return found
            .map(Identity::Key)
            .ok_or_else(|| Refusal::unauthorized("The API key is not valid."));
    }
    let Some(cookie) = cookie(headers, COOKIE) else {
        return Err(Refusal::unauthorized("Send an API key as Authorization: Bearer <key>.")
            .hint("POST /v1/auth/register makes an account and its first key."));
    };
    let found = app.directory.session(cookie).await.map_err(unreadable)?;
    let session =
        found.ok_or_else(|| Refusal::unauthorized("The session has ended; sign in again."))?;
    if located.accepted.method != Method::GET {
        by_its_own_page(app, headers, &located.accepted.method, &session)?;
    }
    Ok(Identity::Session(session))
}

/// A mutation by cookie must come from the person's own page.
fn by_its_own_page(
    app: &App,
    headers: &HeaderMap,
    method: &Method,
    session: &Arc<SessionRecord>,
) -> Result<(), Refusal> {
    let token = headers.get(CSRF).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !session.csrf_token.is(token) {
        return Err(Refusal::forbidden(
            "csrf_token_invalid",
            "A change by cookie needs the session's token in X-Service-CSRF.",
        )
        .hint("GET /v1/auth/session answers the token."));
    }
    let json = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/json"));
    if !json && *method != Method::DELETE {
        return Err(Refusal::new(
            Code::UnsupportedMediaType,
            "A change by cookie needs Content-Type: application/json.",
        ));
    }
    if !same_site(headers, app.config.http.public_url.as_deref()) {
        return Err(Refusal::forbidden(
            "cross_site",
            "A change by cookie must come from this site.",
        ));
    }
    Ok(())
}

/// Refuses what signs somebody in for a page of another site, whose visitor would be somebody else
/// from then on. A client that is no browser says nothing of sites.
///
/// # Errors
/// 403 `cross_site`.
pub fn refuse_other_sites(app: &App, headers: &HeaderMap) -> Result<(), Refusal> {
    match from_elsewhere(headers, app.config.http.public_url.as_deref()) {
        true => Err(Refusal::forbidden("cross_site", "A sign-in must come from this site.")),
        false => Ok(()),
    }
}

/// Whether the browser says that the request comes from a page of this very host.
fn same_site(headers: &HeaderMap, public_url: Option<&str>) -> bool {
    headers.contains_key(header::ORIGIN) && !from_elsewhere(headers, public_url)
}

/// Whether the browser says that it comes from a page of another. The public address counts alone,
/// if the operator has said it, and not the one that the request was sent to: a name of somebody
/// else's can lead here.
fn from_elsewhere(headers: &HeaderMap, public_url: Option<&str>) -> bool {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let site = headers.contains_key(FETCH_SITE).then(|| text(&FETCH_SITE));
    if site.is_some_and(|site| !matches!(site, Some("same-origin" | "same-site"))) {
        return true;
    }
    if !headers.contains_key(header::ORIGIN) {
        return false;
    }
    let own = match public_url {
        Some(url) => host_of(url),
        None => text(&header::HOST).map(without_port),
    };
    let origin = text(&header::ORIGIN).and_then(host_of);
    !origin.zip(own).is_some_and(|(origin, own)| origin.eq_ignore_ascii_case(own))
}

fn host_of(origin: &str) -> Option<&str> {
    let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"))?;
    Some(without_port(rest.split('/').next().unwrap_or(rest)))
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// The token of `Authorization: Bearer <token>`.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// One cookie's value.
pub fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    })
}

/// The directory could not be asked: nothing was done.
pub fn unreadable(_: charter_tenancy::directory::Unreadable) -> Refusal {
    Refusal::overloaded(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_bearer_token_is_found_whatever_the_case_of_its_scheme() {
        assert_eq!(bearer(&headers(&[("authorization", "Bearer sk_1")])), Some("sk_1"));
        assert_eq!(bearer(&headers(&[("authorization", "bearer  sk_1 ")])), Some("sk_1"));
        for value in ["Basic abc", "Bearer", "Bearer ", "sk_1"] {
            assert_eq!(bearer(&headers(&[("authorization", value)])), None, "{value}");
        }
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let sent = headers(&[("cookie", "a=1; service_session=abc=; b=2")]);
        assert_eq!(cookie(&sent, COOKIE), Some("abc="));
        assert_eq!(cookie(&sent, "session"), None);
    }

    #[test]
    fn only_a_page_of_this_host_is_same_site() {
        let from = |origin: &str, site: &str| {
            headers(&[
                ("host", "api.example.com:8080"),
                ("origin", origin),
                ("sec-fetch-site", site),
            ])
        };
        assert!(same_site(&from("http://api.example.com:3000", "same-site"), None));
        assert!(same_site(
            &from("https://app.example.com", "same-site"),
            Some("https://app.example.com/")
        ));
        assert!(!same_site(&from("https://evil.example.net", "same-origin"), None));
        assert!(!same_site(&from("http://api.example.com", "cross-site"), None));
        assert!(!same_site(&from("null", "same-origin"), None));
        assert!(!same_site(&headers(&[("host", "api.example.com")]), None));
    }

    #[test]
    fn where_the_public_url_is_known_no_host_that_a_request_names_stands_for_it() {
        let public = Some("https://api.example.com");
        let from = |host: &str| {
            let origin = format!("https://{host}");
            headers(&[("host", host), ("origin", &origin), ("sec-fetch-site", "same-origin")])
        };
        assert!(same_site(&from("api.example.com"), public));
        assert!(!same_site(&from("rebound.example.net"), public));
        assert!(same_site(&from("rebound.example.net"), None));
    }

    #[test]
    fn a_client_that_says_nothing_of_sites_comes_from_none() {
        let elsewhere = |pairs: &[(&'static str, &str)]| from_elsewhere(&headers(pairs), None);
        assert!(!elsewhere(&[("host", "api.example.com")]));
        assert!(!elsewhere(&[("sec-fetch-site", "same-origin")]));
        assert!(elsewhere(&[("sec-fetch-site", "cross-site")]));
        assert!(elsewhere(&[("host", "api.example.com"), ("origin", "null")]));
        assert!(elsewhere(&[("host", "api.example.com"), ("origin", "https://evil.example.net")]));
    }
}
