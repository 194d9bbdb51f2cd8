//! A primitive in another language than the host's: built from the same interface by that
//! language's toolchain, installed and served. The database matters to none of it: one is enough.

use std::process::Command;

use charter_tests::Database;
use charter_tests::artefacts::{Artefacts, Folder};
use charter_tests::world::Builder;
use serde_json::json;

/// The Python primitive.
fn greeter() -> Vec<u8> {
    let folder = Folder::new();
    let output = folder.path().join("greeter-py.wasm");
    let script = Artefacts::get().root.join("tests/other-language/build.py");
    let done = Command::new("python3").arg(script).arg(&output).output();
    let done = done.unwrap_or_else(|error| {
        panic!("cannot run python3: {error}; `apt-get install python3 python3-venv`")
    });
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::read(&output).unwrap()
}

#[test]
fn a_primitive_in_python_is_installed_and_serves() {
    let world = Builder::new().bare().start(Database::Sqlite);
    world.install("greeter-py", &greeter());
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
    let schema = tenant
        .client
        .post("/v1/greetings", &json!({ "name": "" }))
        .expect_error(400, "invalid_input");
    assert_eq!(schema["param"], json!("name"));
    let rule = tenant
        .client
        .post("/v1/greetings", &json!({ "name": "  " }))
        .expect_error(400, "invalid_input");
    assert_eq!(rule["param"], json!("name"));
}
