//! Detached ed25519 signatures (RFC 8032) over a component's SHA-256 digest.
//!
//! The signed message is the 32 bytes of the digest; a signature travels as base64 in
//! `X-Component-Signature`, or beside the file as `<name>.wasm.sig`. Knows nothing of components
//! beyond their digest.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ed25519_dalek::pkcs8::DecodePublicKey;
use ed25519_dalek::{Signature, VerifyingKey};

/// A public key as the operator writes it: PEM, or base64 of its 32 bytes.
pub fn public_key(text: &str) -> Option<VerifyingKey> {
    let text = text.trim();
    if text.starts_with("-----BEGIN") {
        return VerifyingKey::from_public_key_pem(text).ok();
    }
    let bytes: [u8; 32] = decode(text)?.try_into().ok()?;
    VerifyingKey::from_bytes(&bytes).ok()
}

/// A signature as it travels.
pub fn signature(text: &str) -> Option<Signature> {
    let bytes: [u8; 64] = decode(text.trim())?.try_into().ok()?;
    Some(Signature::from_bytes(&bytes))
}

/// The key that signed this digest, if one of them did. `verify_strict` refuses weak keys and
/// malleable signatures.
pub fn signer<'a>(
    keys: &'a [VerifyingKey],
    digest: &[u8; 32],
    signature: &Signature,
) -> Option<&'a VerifyingKey> {
    keys.iter().find(|key| key.verify_strict(digest, signature).is_ok())
}

/// The fault of a component's signature under the operator's keys, in plain words.
///
/// # Errors
/// When keys are configured and none of them signed the digest.
pub fn check(
    keys: &[VerifyingKey],
    digest: &[u8; 32],
    presented: Option<&str>,
) -> Result<(), String> {
    if keys.is_empty() {
        return Ok(());
    }
    let Some(text) = presented else {
        return Err("is not signed, and this deployment admits signed components only (components.signing_keys): \
                    send the base64 ed25519 signature of its SHA-256 digest in X-Component-Signature"
            .into());
    };
    let Some(signature) = signature(text) else {
        return Err("has a signature that is not the base64 of 64 bytes".into());
    };
    match signer(keys, digest, &signature) {
        Some(_) => Ok(()),
        None => {
            Err("has a signature that none of the configured keys made over this digest".into())
        }
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text.trim_end_matches('='))).ok()
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};

    use super::*;

    #[test]
    fn only_a_configured_key_over_this_digest_is_admitted() {
        let ours = SigningKey::from_bytes(&[7; 32]);
        let other = SigningKey::from_bytes(&[8; 32]);
        let digest = [1; 32];
        let keys = [public_key(&STANDARD.encode(ours.verifying_key().as_bytes())).expect("a key")];
        let by = |key: &SigningKey, digest: &[u8; 32]| STANDARD.encode(key.sign(digest).to_bytes());
        assert!(check(&keys, &digest, Some(&by(&ours, &digest))).is_ok());
        assert!(check(&keys, &digest, Some(&by(&other, &digest))).is_err());
        assert!(check(&keys, &digest, Some(&by(&ours, &[2; 32]))).is_err());
        assert!(check(&keys, &digest, None).is_err());
        assert!(check(&keys, &digest, Some("rubbish")).is_err());
        assert!(check(&[], &digest, None).is_ok());
    }
}
