//! With the operator's keys configured, only what one of them signed gets in, whichever door it
//! comes to.

use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use charter_tests::artefacts::{Artefacts, Folder};
use charter_tests::patience::until;
use charter_tests::world::{Builder, OPERATOR_TOKEN};
use charter_tests::{Answer, World, on_both};
use ed25519_dalek::{Signer, SigningKey};
use serde_json::json;
use sha2::{Digest, Sha256};

fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

fn public(key: &SigningKey) -> String {
    STANDARD.encode(key.verifying_key().as_bytes())
}

fn signature(key: &SigningKey, wasm: &[u8]) -> String {
    let digest: [u8; 32] = Sha256::digest(wasm).into();
    STANDARD.encode(key.sign(&digest).to_bytes())
}

/// A deployment that trusts the first two keys.
fn trusting() -> Builder {
    let keys =
        format!("[components]\nsigning_keys = [{:?}, {:?}]\n", public(&key(1)), public(&key(2)));
    Builder::new().bare().configuration(&keys)
}

fn upload(world: &World, wasm: &[u8], signature: Option<&str>) -> Answer {
    let operator = world.operator();
    let call = operator
        .call("PUT", "/v1/operator/components/probe?activate=true")
        .header("content-type", "application/wasm");
    let call =
        signature.map_or(call.clone(), |signature| call.header("x-component-signature", signature));
    call.bytes(wasm.to_vec()).send()
}

#[track_caller]
fn expect_refusal(answer: &Answer, says: &str) {
    let error = answer.expect_error(422, "invalid_component");
    let faults = error["details"]["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 1, "{answer}");
    assert_eq!(faults[0]["path"], "signature", "{answer}");
    assert!(faults[0]["message"].as_str().unwrap().contains(says), "{answer}");
}

on_both! {
    fn only_what_a_configured_key_signed_is_installed(world: trusting()) {
        let wasm = Artefacts::get().fixture("probe");
        expect_refusal(&upload(world, &wasm, None), "is not signed");
        expect_refusal(&upload(world, &wasm, Some("rubbish")), "base64 of 64 bytes");
        expect_refusal(&upload(world, &wasm, Some(&signature(&key(3), &wasm))), "none of the configured keys");
        expect_refusal(&upload(world, &wasm, Some(&signature(&key(1), b"other bytes"))), "none of the configured keys");
        let mut other = wasm.clone();
        other.extend([0, 5, 4, b't', b'e', b's', b't']);
        expect_refusal(&upload(world, &other, Some(&signature(&key(1), &wasm))), "none of the configured keys");
        // Signed over the file itself, as somebody who has not read the manual would.
        expect_refusal(&upload(world, &wasm, Some(&STANDARD.encode(key(1).sign(&wasm).to_bytes()))), "none of the configured keys");
        let tenant = world.register();
        tenant.client.get("/v1/probe").expect_error(404, "not_found");
        assert_eq!(world.operator().get("/v1/operator/components").expect(200)["components"], json!([]), "something was kept");
        upload(world, &wasm, Some(&signature(&key(2), &wasm))).expect(201);
        tenant.client.get("/v1/probe").expect(200);
        // A version that was trusted is served after a restart; nobody signs it again.
        world.stop();
        world.start();
        tenant.client.at(world.server().address()).get("/v1/probe").expect(200);
    }

    fn the_folder_asks_for_the_file_beside(world: Builder::new().bare()) {
        let folder = Folder::new();
        let wasm = Artefacts::get().fixture("probe");
        std::fs::write(folder.path().join("probe.wasm"), &wasm).unwrap();
        std::fs::write(world.data().join("signed.toml"), format!("[components]\nsigning_keys = [{:?}]\n", public(&key(1)))).unwrap();
        let configuration = world.data().join("signed.toml").to_string_lossy().into_owned();
        world.options().arguments.extend(["--config".to_owned(), configuration]);
        world.options().components = Some(folder.path().to_path_buf());
        world.stop();
        world.start();
        let tenant = world.register();
        tenant.client.get("/v1/probe").expect_error(404, "not_found");
        assert!(world.server().log().contains("is not signed"), "{}", world.server().log());
        std::fs::write(folder.path().join("probe.wasm.sig"), signature(&key(1), &wasm)).unwrap();
        world.stop();
        world.start();
        tenant.client.at(world.server().address()).get("/v1/probe").expect(200);
    }

    fn a_signature_that_comes_later_is_taken(world: trusting()) {
        let folder = Folder::new();
        world.options().components = Some(folder.path().to_path_buf());
        world.stop();
        world.start();
        let world = &*world;
        let tenant = world.register();
        let file = |name: &str| folder.path().join(name);
        let told = |says: &str| until(says, || world.server().log().contains(says));
        let serves = |build: &str| {
            until(&format!("build {build} serves"), || {
                let answer = tenant.client.get("/v1/probe");
                answer.status != 404 && answer.expect(200)["build"] == build
            });
        };
        // The component comes first, as whoever copies a folder in alphabetical order sends it, and
        // waits for its signature.
        let wasm = Artefacts::get().probe(900_001);
        std::fs::write(file("probe.wasm"), &wasm).unwrap();
        told("is not signed");
        tenant.client.get("/v1/probe").expect_error(404, "not_found");
        std::fs::write(file("probe.wasm.sig"), signature(&key(1), &wasm)).unwrap();
        serves("900001");
        // The next one lies beside the signature of the last one until its own is there.
        let wasm = Artefacts::get().probe(900_002);
        std::fs::write(file("probe.wasm"), &wasm).unwrap();
        told("none of the configured keys");
        assert_eq!(tenant.client.get("/v1/probe").expect(200)["build"], "900001");
        std::fs::write(file("probe.wasm.sig"), signature(&key(1), &wasm)).unwrap();
        serves("900002");
        // A signature that is written again brings nothing back that was rolled back from.
        world.operator().post("/v1/operator/components/probe/rollback", &json!({})).expect(200);
        std::fs::write(file("probe.wasm.sig"), format!("{}\n", signature(&key(1), &wasm))).unwrap();
        // Files are looked at in the order of their names.
        std::fs::write(file("unsigned.wasm"), &wasm).unwrap();
        until("the file behind it is looked at", || {
            world.server().log().lines().any(|line| line.contains("unsigned.wasm") && line.contains("is not signed"))
        });
        assert_eq!(tenant.client.get("/v1/probe").expect(200)["build"], "900001", "a rollback stays");
    }
}

fn charter(arguments: &[&str], folder: &Path) -> (bool, String) {
    let told = Command::new(&Artefacts::get().charter)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&told.stdout),
        String::from_utf8_lossy(&told.stderr)
    );
    (told.status.success(), text)
}

/// The steps that the manual prints, with openssl's own key.
#[test]
fn a_signature_made_by_openssl_is_verified_and_admitted() {
    let folder = Folder::new();
    let openssl = |arguments: &[&str]| {
        let told = Command::new("openssl").args(arguments).current_dir(folder.path()).output();
        let told = told.unwrap_or_else(|error| {
            panic!("cannot start openssl (`apt-get install openssl`): {error}")
        });
        assert!(
            told.status.success(),
            "openssl {arguments:?}: {}",
            String::from_utf8_lossy(&told.stderr)
        );
        told.stdout
    };
    std::fs::write(folder.path().join("probe.wasm"), Artefacts::get().fixture("probe")).unwrap();
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", "signing.pem"]);
    let pem = String::from_utf8(openssl(&[
        "pkey",
        "-in",
        "signing.pem",
        "-pubout",
        "-out",
        "signing-public.pem",
    ]))
    .unwrap();
    assert_eq!(pem, "");
    let pem = std::fs::read_to_string(folder.path().join("signing-public.pem")).unwrap();
    openssl(&["dgst", "-sha256", "-binary", "-out", "digest", "probe.wasm"]);
    let made = openssl(&["pkeyutl", "-sign", "-rawin", "-in", "digest", "-inkey", "signing.pem"]);
    let verify = ["component", "verify", "probe.wasm", "--key", "signing-public.pem"];
    let (good, told) = charter(&verify, folder.path());
    assert!(!good && told.contains("probe.wasm.sig"), "{told}");
    std::fs::write(folder.path().join("probe.wasm.sig"), STANDARD.encode(&made)).unwrap();
    let (good, told) = charter(&verify, folder.path());
    assert!(good && told.contains("good signature over sha256:"), "{told}");
    let (good, told) =
        charter(&["component", "verify", "probe.wasm", "--key", &public(&key(1))], folder.path());
    assert!(!good && told.contains("none of the configured keys"), "{told}");
    // The key as PEM in the configuration, the signature beside the file that the command line
    // uploads.
    let configuration = format!("[components]\nsigning_keys = ['''{pem}''']\n");
    let world =
        Builder::new().bare().configuration(&configuration).start(charter_tests::Database::Sqlite);
    let install = [
        "component",
        "install",
        "probe.wasm",
        "--activate",
        "--url",
        world.server().address(),
        "--token",
        OPERATOR_TOKEN,
    ];
    let (good, told) = charter(&install, folder.path());
    assert!(good && told.contains("active"), "{told}");
    world.register().client.get("/v1/probe").expect(200);
    std::fs::write(folder.path().join("probe.wasm.sig"), STANDARD.encode([0; 64])).unwrap();
    let (good, told) = charter(&install, folder.path());
    assert!(!good && told.contains("signature"), "{told}");
}
