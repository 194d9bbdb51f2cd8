//! The watched folder: a file that is done changing is staged and activated, once; the database
//! stays the truth.

use std::path::Path;
use std::time::Duration;

use charter_tests::artefacts::{Artefacts, Folder};
use charter_tests::patience::until;
use charter_tests::world::Builder;
use charter_tests::{Client, World, on_both};
use serde_json::{Value, json};

fn write(folder: &Path, wasm: &[u8]) {
    std::fs::write(folder.join("probe.wasm"), wasm).unwrap();
}

fn build(client: &Client) -> Option<String> {
    let answer = client.get("/v1/probe");
    match answer.status {
        404 => None,
        _ => Some(answer.expect(200)["build"].as_str().unwrap().to_owned()),
    }
}

/// Begins to watch `folder`, which may hold something already.
fn watching(world: &mut World, folder: &Path) {
    world.stop();
    world.options().components = Some(folder.to_path_buf());
    world.start();
}

/// The probe's versions as the operator sees them: numbers and states.
fn versions(world: &World) -> Vec<(String, String)> {
    let listed = world.operator().get("/v1/operator/components/probe").expect(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let versions = listed["component"]["versions"].as_array().unwrap().iter();
    versions.map(|version| (text(&version["version"]), text(&version["state"]))).collect()
}

on_both! {
    fn a_change_is_taken_while_running_and_a_rollback_stays(world: Builder::new().bare()) {
        let folder = Folder::new();
        write(folder.path(), &Artefacts::get().probe(900_001));
        watching(world, folder.path());
        let tenant = world.register();
        assert_eq!(build(&tenant.client).as_deref(), Some("900001"), "what lies there at the start serves from the first request on");
        // Nobody is refused while it changes.
        write(folder.path(), &Artefacts::get().probe(900_002));
        until("the changed file serves", || build(&tenant.client).as_deref() == Some("900002"));
        world.operator().post("/v1/operator/components/probe/rollback", &json!({})).expect(200);
        assert_eq!(build(&tenant.client).as_deref(), Some("900001"));
        // The folder still holds what was rolled back from: a restart does not bring it back.
        world.stop();
        world.start();
        let client = tenant.client.at(world.server().address());
        assert_eq!(build(&client).as_deref(), Some("900001"), "a rollback stays however old the folder is");
        // A newer one is taken again, now that somebody put it there.
        write(folder.path(), &Artefacts::get().probe(900_003));
        until("the newest file serves", || build(&client).as_deref() == Some("900003"));
        // A file that goes takes nothing away.
        std::fs::remove_file(folder.path().join("probe.wasm")).unwrap();
        world.stop();
        world.start();
        assert_eq!(build(&tenant.client.at(world.server().address())).as_deref(), Some("900003"));
    }

    fn a_broken_file_changes_nothing_and_says_why(world: Builder::new().bare()) {
        let folder = Folder::new();
        write(folder.path(), &Artefacts::get().probe(900_001));
        watching(world, folder.path());
        let tenant = world.register();
        let before = versions(world);
        for (name, bytes, says) in [
            ("nonsense.wasm", b"no component at all".to_vec(), "not fit"),
            ("forbidden-import.wasm", Artefacts::get().fixture("forbidden-import"), "import"),
            ("malformed.wasm", Artefacts::get().fixture("malformed"), "not fit"),
            // Half of the probe, that nobody finishes.
            ("probe.wasm", Artefacts::get().probe(900_002)[..50_000].to_vec(), "not fit"),
        ] {
            std::fs::write(folder.path().join(name), bytes).unwrap();
            let told = |line: &str| line.contains(name) && line.contains("ERROR") && line.contains(says);
            until(&format!("{name} is spoken of"), || world.server().log().lines().any(told));
        }
        assert_eq!(versions(world), before);
        assert_eq!(build(&tenant.client).as_deref(), Some("900001"));
        // A start with them in the folder serves as well.
        world.stop();
        world.start();
        let client = tenant.client.at(world.server().address());
        assert_eq!(build(&client).as_deref(), Some("900001"));
        // Once it is whole it is taken.
        write(folder.path(), &Artefacts::get().probe(900_002));
        until("the mended file serves", || build(&client).as_deref() == Some("900002"));
    }

    fn a_file_is_left_alone_while_it_is_written(world: Builder::new().bare()) {
        let folder = Folder::new();
        watching(world, folder.path());
        let tenant = world.register();
        assert_eq!(build(&tenant.client), None);
        // Written in small pieces over a second and more, as over a slow line; whatever pause it
        // makes, a part is never taken.
        let wasm = Artefacts::get().probe(900_001);
        let mut file = std::fs::File::create(folder.path().join("probe.wasm")).unwrap();
        for piece in wasm.chunks(wasm.len().div_ceil(40)) {
            std::io::Write::write_all(&mut file, piece).unwrap();
            std::thread::sleep(Duration::from_millis(30));
        }
        drop(file);
        until("the finished file serves", || build(&tenant.client).is_some());
        assert_eq!(versions(world).len(), 1, "a part of the file was taken for a whole one");
        let refused = world.server().log().matches("not fit").count();
        // A program that puts files in place whole is never seen at its work either.
        std::fs::write(folder.path().join("probe.wasm.part"), &Artefacts::get().probe(900_002)[..50_000]).unwrap();
        std::fs::write(folder.path().join("probe.wasm.part"), Artefacts::get().probe(900_002)).unwrap();
        std::fs::rename(folder.path().join("probe.wasm.part"), folder.path().join("probe.wasm")).unwrap();
        until("the file in its place serves", || build(&tenant.client).as_deref() == Some("900002"));
        assert_eq!(versions(world).len(), 2, "what was not yet in its place was taken");
        let log = world.server().log();
        assert_eq!(log.matches("not fit").count(), refused, "what was not yet in its place was looked at: {log}");
    }
}
