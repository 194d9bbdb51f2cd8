//! A primitive in another language than the host's: built from the same interface by that
//! language's toolchain, installed and served.

use std::process::Command;
use std::sync::OnceLock;

use charter_tests::artefacts::{Artefacts, Folder};
use charter_tests::on_both;
use charter_tests::world::Builder;
use serde_json::json;

/// The Python primitive, built once a test process.
fn greeter() -> &'static [u8] {
    static BUILT: OnceLock<Vec<u8>> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Folder::new();
        let output = folder.path().join("greeter-py.wasm");
        let script = Artefacts::get().root.join("tests/other-language/build.py");
        let done = Command::new("python3").arg(script).arg(&output).output();
        let done = done.unwrap_or_else(|error| {
            panic!("cannot run python3: {error}; `apt-get install python3 python3-venv`")
        });
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::read(&output).unwrap()
    })
}

on_both! {
    fn a_primitive_in_python_is_installed_and_serves(world: Builder::new().bare()) {
        world.install("greeter-py", greeter());
        let (tenant, stranger) = (world.register(), world.register());
        for name in ["Ada", "Grace"] {
            let made = tenant.client.post("/v1/greetings", &json!({ "name": name })).expect(201);
            assert_eq!(made["greeting"]["text"], json!(format!("Hello, {name}!")));
        }
        let list = tenant.client.get("/v1/greetings?limit=1").expect(200);
        assert_eq!((&list["greetings"][0]["name"], &list["has_more"]), (&json!("Grace"), &json!(true)));
        let own = tenant.client.get(&format!("/v1/users/{}/greetings", tenant.user)).expect(200);
        assert_eq!(own["greetings"].as_array().map(Vec::len), Some(2));
        assert_eq!(stranger.client.get("/v1/greetings").expect(200)["greetings"], json!([]));
        let schema = tenant.client.post("/v1/greetings", &json!({ "name": "" })).expect_error(400, "invalid_input");
        assert_eq!(schema["param"], json!("name"));
        let rule = tenant.client.post("/v1/greetings", &json!({ "name": "  " })).expect_error(400, "invalid_input");
        assert_eq!(rule["param"], json!("name"));
    }
}
