//! The `charter` binary: the command line, and nothing else.

/// A request makes many small allocations on one thread and frees them on another, which is what
/// this allocator is made for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    charter_server::cli::main()
}
