//! The `cenote` program; everything is in its library.
#![forbid(unsafe_code)]

/// Records of one size come and go on several threads; the system's allocator gives their pages back each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cenote_cli::main()
}
