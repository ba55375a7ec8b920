//! Keeping keys of encrypted datasets inside the server's process.

use rustix::process::{DumpableBehavior, Resource, getrlimit, set_dumpable_behavior, setrlimit};

/// From now on no core dump is made of this process, and no process of the same user may look into its memory: it is about
/// to hold a key.
pub fn keep_secrets() {
    let none = rustix::process::Rlimit { current: Some(0), ..getrlimit(Resource::Core) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!(%error, "a core dump of the server could hold keys");
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "processes of the same user may read keys in the server's memory");
    }
}
