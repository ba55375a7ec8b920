//! Keeping keys of encrypted datasets inside the server's process.

use rustix::process::{DumpableBehavior, Resource, getrlimit, set_dumpable_behavior, setrlimit};

/// Call it before the process holds a key. It disables core dumps, and access to the memory by other processes of the same
/// user.
pub fn keep_secrets() {
    let none = rustix::process::Rlimit { current: Some(0), ..getrlimit(Resource::Core) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!(%error, "a core dump of the server could hold keys");
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "processes of the same user may read keys in the server's memory");
    }
}
