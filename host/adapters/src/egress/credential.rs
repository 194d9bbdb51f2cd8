//! A binding's credential: put where the provider wants it, and masked where its answer echoes it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use charter_engine::{EgressBody, EgressError};
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use zeroize::Zeroizing;

use crate::providers::Binding;

/// Texts shorter than this are not masked: they would turn up by chance.
const MASKED_BYTES_MIN: usize = 6;

/// A credential as it was sent.
pub(super) struct Placed {
    plain: Zeroizing<String>,
    /// The text that stood in the header, where it was not the plain one.
    sent: Option<Zeroizing<String>>,
    pair: Option<Zeroizing<String>>,
}

impl std::fmt::Debug for Placed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Placed")
    }
}

impl Placed {
    /// `name=value` for the query, where it goes there.
    pub(super) fn query(&self) -> Option<&str> {
        self.pair.as_ref().map(|pair| pair.as_str())
    }
}

/// Replaces whatever the guest set with the binding's credential. The way is the option `auth`:
/// `bearer` (also where it is not given), `basic`, `header` (its name in the option `header`),
/// `query` (its name in the option `query`) or `none`.
pub(super) fn place(
    binding: &Binding,
    request: &mut Request<EgressBody>,
) -> Result<Option<Placed>, EgressError> {
    let option = |name: &str| binding.options.get(name).and_then(serde_json::Value::as_str);
    let headers = request.headers_mut();
    headers.remove(header::AUTHORIZATION);
    headers.remove(header::COOKIE);
    let own = option("header")
        .map(|name| name.parse::<HeaderName>().map_err(|_| misconfiguration(binding)))
        .transpose()?;
    if let Some(name) = &own {
        headers.remove(name);
    }
    let Some(credential) = &binding.credential else { return Ok(None) };
    let plain = Zeroizing::new(credential.reveal().to_owned());
    let mut placed = Placed { plain: plain.clone(), sent: None, pair: None };
    let mut set = |name: HeaderName, text: &str| {
        let mut value = HeaderValue::from_str(text).map_err(|_| misconfiguration(binding))?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok::<(), EgressError>(())
    };
    match option("auth").unwrap_or("bearer") {
        "none" => return Ok(None),
        "bearer" => set(header::AUTHORIZATION, &Zeroizing::new(format!("Bearer {}", *plain)))?,
        "basic" => {
            let sent = Zeroizing::new(STANDARD.encode(plain.as_bytes()));
            set(header::AUTHORIZATION, &Zeroizing::new(format!("Basic {}", *sent)))?;
            placed.sent = Some(sent);
        }
        "header" => set(own.ok_or_else(|| misconfiguration(binding))?, &plain)?,
        "query" => {
            let name = option("query").ok_or_else(|| misconfiguration(binding))?;
            let sent = Zeroizing::new(percent_encode(&plain));
            placed.pair = Some(Zeroizing::new(format!("{}={}", percent_encode(name), *sent)));
            placed.sent = Some(sent);
        }
        _ => return Err(misconfiguration(binding)),
    }
    Ok(Some(placed))
}

fn misconfiguration(binding: &Binding) -> EgressError {
    EgressError::Denied(format!(
        "the binding {} does not say how its credential is sent: options.auth is bearer, basic, header, query or none",
        binding.name
    ))
}

fn percent_encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte.into());
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The texts that must not come back.
#[derive(Default)]
pub(super) struct Masks(Vec<Zeroizing<String>>);

impl Masks {
    pub(super) fn of(placed: Placed) -> Self {
        let mut texts = vec![placed.plain];
        texts.extend(placed.sent);
        texts.retain(|text| text.len() >= MASKED_BYTES_MIN);
        Self(texts)
    }

    /// Overwrites every occurrence with as many asterisks.
    pub(super) fn apply(&self, bytes: &mut [u8]) {
        for text in &self.0 {
            let mut from = 0;
            while let Some(at) =
                bytes[from..].windows(text.len()).position(|window| window == text.as_bytes())
            {
                bytes[from + at..from + at + text.len()].fill(b'*');
                from += at + text.len();
            }
        }
    }

    /// Bytes that have to be held back, because a text may begin in them and end in the next piece.
    pub(super) fn overlap_bytes(&self) -> usize {
        self.0.iter().map(|text| text.len() - 1).max().unwrap_or(0)
    }
}

/// Masks the values of an answer's headers.
pub(super) fn mask_headers(headers: &mut HeaderMap, masks: &Masks) {
    for value in headers.values_mut() {
        let mut bytes = value.as_bytes().to_vec();
        masks.apply(&mut bytes);
        if bytes != value.as_bytes() {
            *value =
                HeaderValue::from_bytes(&bytes).unwrap_or_else(|_| HeaderValue::from_static("***"));
        }
    }
}
