//! The `cenote` program; everything is in its library.
#![forbid(unsafe_code)]

/// Several threads allocate and free records of one size. The system's allocator would return their pages each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cenote_cli::main()
}
