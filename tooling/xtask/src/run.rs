//! `cargo xtask run`: from a fresh clone to a running Charter, and what to do next.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::workspace::Workspace;
use crate::{components, process};

/// How to run it.
#[derive(Args, Debug)]
pub struct Options {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Folder of the database, the key file and the code cache
    #[arg(long, default_value = "target/charter-data")]
    data: PathBuf,
    /// Build without optimisation: quicker to build, slower to serve
    #[arg(long)]
    debug: bool,
    /// Arguments for `charter serve`
    #[arg(last = true)]
    serve: Vec<String>,
}

/// Builds everything, starts Charter and waits for it.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let (folder, charter) = process::side_by_side(
        || components::primitives(workspace),
        || components::host(workspace, !options.debug),
    )?;
    let data = if options.data.starts_with("target") {
        workspace.target.join(options.data.strip_prefix("target").unwrap_or(&options.data))
    } else {
        options.data.clone()
    };
    let names: Vec<String> =
        workspace.members_in("plugins").into_iter().map(|(name, _)| name).collect();
    let base = format!("http://{}", options.listen);
    eprintln!(
        "\nCharter with {primitives}, data in {data}.\n\n\
         Next, in another terminal:\n\
         \x20 curl {base}/health\n\
         \x20 curl {base}/v1/auth/register -H 'Content-Type: application/json' \\\n\
         \x20      -d '{{\"email\": \"you@example.com\", \"password\": \"correct horse battery\"}}'\n\
         \x20 curl {base}/register.md        what to do with the key that this answers\n\
         \x20 curl {base}/openapi.json       every route\n\
         \x20 cargo xtask new <name>         a primitive of your own\n",
        primitives = names.join(", "),
        data = data.display(),
    );
    let mut serve = std::process::Command::new(charter);
    serve.args(["serve", "--listen", &options.listen.to_string()]);
    serve.arg("--data").arg(&data).arg("--components").arg(&folder).args(&options.serve);
    process::run(serve)
}
