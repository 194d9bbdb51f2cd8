//! The README's tour and the one about governing an agent, run as they are printed: one shell, top
//! to bottom, against a server.

use std::process::Command;

use charter_tests::artefacts::{Artefacts, Folder};
use charter_tests::on_both;
use charter_tests::world::{Builder, OPERATOR_TOKEN};
use serde_json::Value;

use crate::author::{Copy, succeeds};

/// The line above a block that is run.
const MARK: &str = "<!-- tour -->\n```sh\n";

/// The blocks of a page, in order.
fn blocks(page: &str) -> Vec<String> {
    let page = std::fs::read_to_string(Artefacts::get().root.join(page)).unwrap();
    let blocks = page.split(MARK).skip(1);
    blocks.map(|rest| rest.split_once("```").expect("a block ends").0.to_owned()).collect()
}

/// The output of the block with these words.
fn output_of<'o>(blocks: &[String], output: &'o str, words: &str) -> &'o str {
    let at = blocks
        .iter()
        .position(|block| block.contains(words))
        .unwrap_or_else(|| panic!("no block has {words}"));
    output.split("=====").nth(at).unwrap_or_default()
}

on_both! {
    fn the_tour_of_governance_works_as_printed(world: Builder::as_shipped()) {
        let blocks = blocks("docs/govern.md");
        assert!(blocks.len() >= 8, "the page has {} blocks only", blocks.len());
        let folder = Folder::new();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-ec", &blocks.join("\necho; echo =====\n")]).current_dir(folder.path());
        shell.env("BASE", world.server().address()).env("CHARTER_OPERATOR_TOKEN", OPERATOR_TOKEN);
        shell.env("CHARTER", &Artefacts::get().charter);
        let output = String::from_utf8(succeeds(&mut shell).stdout).unwrap();
        let of = |words: &str| output_of(&blocks, &output, words);
        assert!(of("\"amount_cents\": 3000").contains("\"balance_cents\":3000"), "{output}");
        let refused: Value = serde_json::from_str(of("\"amount_cents\": 2500")).unwrap();
        assert_eq!((&refused["error"]["reason"], &refused["error"]["details"]["scope"]), (&"budget_exceeded".into(), &"kit".into()));
        assert!(of("simulate").contains("\"verdict\":\"require_approval\""), "{output}");
        assert!(of("/approve").contains("\"decision\":\"approve\""), "{output}");
        assert!(of("until curl").contains("\"balance_cents\":4500"), "{output}");
        assert!(of("/v1/logs").contains("ask-first"), "{output}");
        assert!(of("ledger/statement").contains("amount_micro_usd,balance_micro_usd"), "{output}");
        assert!(of("audit verify").contains("are what was signed"), "{output}");
        world.books_agree();
    }

    fn the_readmes_tour_works_as_printed(world: Builder::as_shipped()) {
        let blocks = blocks("README.md");
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
        let of = |words: &str| output_of(&blocks, &output, words);
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
