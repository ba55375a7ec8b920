//! The options of `zfs receive`, and their meaning together.

/// The options of `zfs receive`.
pub(super) struct Options {
    pub(super) abort: bool,
    pub(super) force: bool,
    pub(super) unmount: bool,
    pub(super) heal: bool,
    pub(super) without_pool: bool,
    pub(super) last_element: bool,
    pub(super) no_holds: bool,
    pub(super) dry_run: bool,
    pub(super) resumable: bool,
    pub(super) unmounted: bool,
    pub(super) verbose: bool,
    pub(super) properties: Vec<String>,
    pub(super) left_out: Vec<String>,
}

impl Options {
    /// The letter of an option that healing a snapshot leaves no room for.
    pub(super) fn contradicts_heal(&self) -> Option<char> {
        let given = [
            (self.abort, 'A'),
            (self.force, 'F'),
            (self.without_pool, 'd'),
            (self.last_element, 'e'),
            (self.resumable, 's'),
            (!self.properties.is_empty(), 'o'),
            (!self.left_out.is_empty(), 'x'),
        ];
        given.into_iter().find_map(|(is_given, letter)| is_given.then_some(letter))
    }
}
