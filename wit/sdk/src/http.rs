//! Outbound HTTP: to a provider that the operator bound (`https://<binding>.binding/…`, the host
//! adds the credential), or with the capability `public-web` to any public page. Every call is
//! bounded in time and bytes; redirects are answers, not followed.
//!
//! Holds no credential and no address of a provider: the host knows both.

#[cfg(any(target_arch = "wasm32", test))]
mod code;
#[cfg(target_arch = "wasm32")]
mod wasi;

pub use crate::exchange::{BODY_BYTES_MAX_DEFAULT, Error, Request, Response, TIMEOUT_MS_DEFAULT};

/// A provider by its binding's name, as the manifest declares it.
#[derive(Clone, Debug)]
pub struct Binding(String);

/// The provider of this name.
pub fn binding(name: &str) -> Binding {
    Binding(name.into())
}

impl Binding {
    /// A `GET` of a path below the binding's URL.
    pub fn get(&self, path: &str) -> Request {
        self.request("GET", path)
    }
    /// A `POST`.
    pub fn post(&self, path: &str) -> Request {
        self.request("POST", path)
    }
    /// Any method.
    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(method, format!("https://{}.binding/{}", self.0, path.trim_start_matches('/')))
    }
}

/// A `GET` of a public page: wherever the URL comes from, it reaches no provider.
pub fn get(url: &str) -> Request {
    Request { public: true, ..Request::new("GET", url.into()) }
}

/// Whether the host would take the URL for a provider's: `https://<binding>.binding/…`, in whatever
/// case.
fn names_a_provider(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host =
        authority.rsplit('@').next().unwrap_or_default().split(':').next().unwrap_or_default();
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    last.eq_ignore_ascii_case("binding")
}

impl Request {
    /// Sends it and reads the whole answer, whatever its status.
    pub fn send(self) -> Result<Response, Error> {
        if self.public && names_a_provider(&self.url) {
            return Err(Error::BadUrl);
        }
        #[cfg(target_arch = "wasm32")]
        return wasi::send(&self);
        #[cfg(not(target_arch = "wasm32"))]
        crate::host::outside::send(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_page_is_no_provider_however_it_is_written() {
        for provider in [
            "https://llm.upstream.binding/v1",
            "http://LLM.upstream.Binding:443/",
            "https://x.binding./",
            "https://binding",
            "https://user@x.binding?q",
            "https://x.binding\\@example.com/",
        ] {
            assert_eq!(get(provider).send(), Err(Error::BadUrl), "{provider}");
        }
        for public in [
            "https://binding.example/",
            "https://bookbinding/",
            "https://example.com/x.binding",
            "http://192.0.2.1/",
        ] {
            assert!(!names_a_provider(public), "{public}");
        }
    }
}
