//! TLS from the operator's own files, with HTTP/2 and HTTP/1.1 by ALPN. The client is curl, which
//! trusts that one certificate.

use std::path::Path;
use std::process::{Command, Output};

use charter_tests::artefacts::{Artefacts, Folder};
use charter_tests::server::{Options, Server};

/// A certificate for this machine and its key, made now.
fn certificate(folder: &Path) {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"])
        .args(["-keyout", "key.pem", "-out", "certificate.pem"])
        .current_dir(folder)
        .output()
        .unwrap_or_else(|error| {
            panic!("cannot start openssl (`apt-get install openssl`): {error}")
        });
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn options(data: &Folder) -> Options {
    let file = |name: &str| data.path().join(name).to_string_lossy().into_owned();
    Options {
        data: data.path().to_path_buf(),
        environment: vec![
            ("CHARTER_TLS_CERTIFICATE".into(), file("certificate.pem")),
            ("CHARTER_TLS_KEY".into(), file("key.pem")),
        ],
        ..Options::default()
    }
}

fn curl(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "30", "--noproxy", "*"]).args(arguments).current_dir(folder);
    command
        .output()
        .unwrap_or_else(|error| panic!("cannot start curl (`apt-get install curl`): {error}"))
}

#[test]
fn both_versions_are_spoken_behind_tls() {
    let data = Folder::new();
    certificate(data.path());
    let server = Server::start(&options(&data)).unwrap();
    assert!(server.address().starts_with("https://"), "{}", server.address());
    let health = format!("{}/health", server.address());
    for (version, expected) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let told = curl(
            data.path(),
            &[
                "--cacert",
                "certificate.pem",
                version,
                "-o",
                "/dev/null",
                "-w",
                "%{http_version} %{response_code}",
                &health,
            ],
        );
        assert_eq!(
            String::from_utf8_lossy(&told.stdout),
            format!("{expected} 200"),
            "{}",
            String::from_utf8_lossy(&told.stderr)
        );
    }
    // A whole registration, so that a body goes both ways.
    let body = r#"{"email":"tls@example.com","password":"correct horse battery staple","company_name":"TLS"}"#;
    let register = format!("{}/v1/auth/register", server.address());
    let told = curl(
        data.path(),
        &[
            "--cacert",
            "certificate.pem",
            "-H",
            "content-type: application/json",
            "-d",
            body,
            &register,
        ],
    );
    assert!(
        String::from_utf8_lossy(&told.stdout).contains("api_key"),
        "{}",
        String::from_utf8_lossy(&told.stdout)
    );
    // A client that does not trust our authority does not get in, and nothing is said in the clear.
    assert!(
        !curl(data.path(), &[&health]).status.success(),
        "curl trusted a stranger's certificate"
    );
    let clear = curl(data.path(), &[&health.replace("https", "http")]);
    assert!(!String::from_utf8_lossy(&clear.stdout).contains("ok"), "an answer came in the clear");
    // TLS 1.1 is of the past.
    let old = curl(
        data.path(),
        &[
            "--cacert",
            "certificate.pem",
            "--tls-max",
            "1.1",
            "--ciphers",
            "DEFAULT@SECLEVEL=0",
            &health,
        ],
    );
    assert!(!old.status.success(), "TLS 1.1 was spoken");
    let ended = server.terminate(std::time::Duration::from_secs(40));
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}

#[test]
fn files_that_do_not_fit_keep_the_server_from_starting() {
    let data = Folder::new();
    certificate(data.path());
    std::fs::write(data.path().join("key.pem"), "not a key").unwrap();
    let fault = Server::start(&options(&data)).unwrap_err();
    assert!(fault.contains("key.pem"), "{fault}");
    // Half a pair is a fault of the configuration.
    let told = Command::new(&Artefacts::get().charter)
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data.path())
        .env("CHARTER_TLS_CERTIFICATE", data.path().join("certificate.pem"))
        .output()
        .unwrap();
    assert_eq!(told.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&told.stderr).contains("key"),
        "{}",
        String::from_utf8_lossy(&told.stderr)
    );
}
