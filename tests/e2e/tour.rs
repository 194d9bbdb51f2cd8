//! The README's tour, run as it is printed: one shell, top to bottom, against a server.

use std::process::Command;

use charter_tests::artefacts::Artefacts;
use charter_tests::on_both;
use charter_tests::world::{Builder, OPERATOR_TOKEN};
use serde_json::Value;

use crate::scaffold::{Copy, succeeds};

/// What stands above a block that is run.
const MARK: &str = "<!-- tour -->\n```sh\n";

/// The blocks, in order.
fn blocks() -> Vec<String> {
    let readme = std::fs::read_to_string(Artefacts::get().root.join("README.md")).unwrap();
    let blocks = readme.split(MARK).skip(1);
    blocks.map(|rest| rest.split_once("```").expect("a block ends").0.to_owned()).collect()
}

on_both! {
    fn the_readmes_tour_works_as_printed(world: Builder::new()) {
        let blocks = blocks();
        assert!(blocks.len() >= 8, "the README has {} blocks only", blocks.len());
        let copy = Copy::new();
        // Between the blocks a line that no answer holds, to tell their outputs apart.
        let script: String = blocks.iter().map(|block| format!("{block}\necho; echo =====\n")).collect();
        let environment = copy.cargo();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-ec", &script]).current_dir(&copy.root);
        shell.envs(environment.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.env("BASE", world.server().address()).env("CHARTER_OPERATOR_TOKEN", OPERATOR_TOKEN);
        let output = String::from_utf8(succeeds(&mut shell).stdout).unwrap();
        let said: Vec<&str> = output.split("=====").collect();
        let of = |words: &str| {
            let at = blocks.iter().position(|block| block.contains(words)).unwrap_or_else(|| panic!("no block has {words}"));
            said[at]
        };
        assert!(of("/receive").contains("Initech"), "{output}");
        let refused: Value = serde_json::from_str(of("$AGENT/search")).unwrap();
        assert_eq!(refused["error"]["code"], "not_configured", "{refused}");
        assert_eq!(refused["error"]["details"]["missing"][0], "search.engine", "{refused}");
        assert!(of("xtask new notes").contains("\"text\":\"hello\""), "{output}");
        assert!(of("sed -i").contains("Write a note") && of("sed -i").contains("\"version\":\"0.2.0\""), "{output}");
        assert!(of("/rollback").contains("\"state\":\"active\""), "{output}");
        let listed = world.operator().get("/v1/operator/components/notes").expect(200);
        assert_eq!(listed["component"]["active"]["version"], env!("CARGO_PKG_VERSION"), "{listed}");
        assert!(!world.anonymous().get("/openapi.json").text().contains("Write a note"), "the rollback is not served");
    }
}
