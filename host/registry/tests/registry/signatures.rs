//! While keys are configured, only components that one of them signed are installed.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use charter_registry::components::{LifeCycleError, Upload, signature};
use charter_registry::served::Reserved;
use charter_registry::settings::{Components, Settings};
use ed25519_dalek::{Signer as _, SigningKey};
use sha2::{Digest as _, Sha256};

use crate::bed::{Bed, reason, settings, upload};
use crate::fixture::{fixture, probe};

fn key(n: u8) -> SigningKey {
    SigningKey::from_bytes(&[n; 32])
}

fn sign(key: &SigningKey, wasm: &[u8]) -> String {
    let digest: [u8; 32] = Sha256::digest(wasm).into();
    STANDARD.encode(key.sign(&digest).to_bytes())
}

async fn trusting(keys: &[&SigningKey]) -> Bed {
    let signing_keys = keys.iter().map(|key| key.verifying_key()).collect();
    let components = Components { signing_keys, ..settings().components };
    Bed::with(Settings { components, ..settings() }, Reserved::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_signature_of_a_configured_key_over_these_bytes_lets_it_in() {
    let (ours, second, theirs) = (key(1), key(2), key(3));
    let bed = trusting(&[&ours, &second]).await;
    let wasm = probe(900_001);
    let cut = |text: String| text[..text.len() - 4].to_owned();
    for (signature, told) in [
        (None, "is not signed"),
        (Some(sign(&theirs, &wasm)), "none of the configured keys"),
        (Some(sign(&ours, &probe(900_002))), "none of the configured keys"),
        (Some("rubbish!".into()), "not the base64 of 64 bytes"),
        (Some(cut(sign(&ours, &wasm))), "not the base64 of 64 bytes"),
        (Some(String::new()), "not the base64 of 64 bytes"),
    ] {
        let upload = Upload { signature: signature.clone(), ..upload(wasm.clone()) };
        let refused = bed.registry.install(upload, &|_, _| None).await.unwrap_err();
        let LifeCycleError::Unfit(faults) = &refused else { panic!("{refused}") };
        assert_eq!(faults[0].path, "signature");
        assert!(reason(refused).contains(told), "{signature:?}");
    }
    for signer in [&ours, &second] {
        let upload = Upload { signature: Some(sign(signer, &wasm)), ..upload(wasm.clone()) };
        let installed = bed.registry.install(upload, &|_, _| None).await.unwrap();
        assert!(installed.version.signature.is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_trusted_is_not_even_looked_at() {
    let bed = trusting(&[&key(1)]).await;
    let told = reason(bed.install(fixture("malformed")).await.unwrap_err());
    assert!(told.contains("is not signed") && !told.contains("operations"), "{told}");
}

#[test]
fn a_signature_travels_in_either_alphabet() {
    let wasm = b"component";
    let raw = STANDARD.decode(sign(&key(1), wasm)).unwrap();
    let digest: [u8; 32] = Sha256::digest(wasm).into();
    let keys = [key(1).verifying_key()];
    for text in [
        STANDARD.encode(&raw),
        format!(" {}\n", STANDARD.encode(&raw)),
        URL_SAFE_NO_PAD.encode(&raw),
    ] {
        assert_eq!(signature::check(&keys, &digest, Some(&text)), Ok(()), "{text}");
    }
}

#[test]
fn a_public_key_is_pem_or_its_bytes() {
    let public = key(1).verifying_key();
    let bytes = STANDARD.encode(public.as_bytes());
    assert_eq!(signature::public_key(&bytes), Some(public));
    // The PEM of an Ed25519 key is these twelve bytes (RFC 8410) and its own.
    let prefix = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
    let der: Vec<u8> = prefix.into_iter().chain(*public.as_bytes()).collect();
    let pem =
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der));
    assert_eq!(signature::public_key(&pem), Some(public));
    for text in ["", "key", &bytes[4..], "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----"] {
        assert_eq!(signature::public_key(text), None, "{text}");
    }
}
