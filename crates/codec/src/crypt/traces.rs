//! The stack after work with keys.
//!
//! From:   functions that expand, derive or unwrap keys.
//! To:     the same results, with no copy of a key left on the stack.
//!
//! A library that expands a key has parts of it in variables, and moves the result: the bytes stay on the stack when its
//! functions have returned. Later functions overwrite most of them, but not all, and may even copy them elsewhere as padding
//! of their own values. So a key could be found in a server's memory long after it was changed or unloaded.

use zeroize::Zeroize;

/// Words of the stack that are overwritten: more than expanding a key or PBKDF2 takes, also without optimisation.
const DEPTH: usize = 4096;

/// Calls `work`, and overwrites the stack that it used.
pub(super) fn without_traces<T>(work: impl FnOnce() -> T) -> T {
    let done = apart(work);
    overwrite();
    done
}

/// A function with a stack frame of its own, below that of its caller. `overwrite` writes over the traces of this
/// function and of those that it calls.
#[inline(never)]
fn apart<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[inline(never)]
fn overwrite() {
    let mut below = [0_u64; DEPTH];
    below.zeroize();
    std::hint::black_box(&below);
}
