//! The `charter` binary: the command line, and nothing else.

fn main() -> std::process::ExitCode {
    charter_server::cli::main()
}
