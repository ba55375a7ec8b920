//! The `cenote` program; everything is in its library.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    cenote_cli::main()
}
