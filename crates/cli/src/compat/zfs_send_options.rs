//! The options of `zfs send`, and their meaning together.

/// The options of `zfs send`.
pub(super) struct Options {
    pub(super) recursive: bool,
    pub(super) skip_missing: bool,
    pub(super) redact: Option<String>,
    pub(super) props: bool,
    pub(super) parsable: bool,
    pub(super) dedup: bool,
    pub(super) proctitle: bool,
    pub(super) verbose: bool,
    pub(super) dry_run: bool,
    pub(super) large_blocks: bool,
    pub(super) embedded: bool,
    pub(super) token: Option<String>,
    pub(super) compressed: bool,
    pub(super) raw: bool,
    pub(super) backup: bool,
    pub(super) holds: bool,
    pub(super) saved: bool,
    pub(super) decrypts: bool,
    pub(super) excluded: Vec<String>,
    pub(super) from: Vec<String>,
    pub(super) between: Vec<String>,
}

impl Options {
    /// Whether the stream is a package: of several datasets, or with more than the contents.
    pub(super) fn is_packed(&self) -> bool {
        self.recursive || self.props || self.backup || self.holds
    }

    /// Whether an option for new streams only is given. For a resumed stream the token has the values of these options;
    /// the other options are allowed with a token.
    pub(super) fn begins_anew(&self) -> bool {
        let is_incremental = !self.from.is_empty() || !self.between.is_empty();
        is_incremental || self.is_packed() || self.saved || self.redact.is_some() || !self.excluded.is_empty()
    }

    /// Whether one is given of which a saved stream has its own.
    pub(super) fn contradicts_saved(&self) -> bool {
        let is_incremental = !self.from.is_empty() || !self.between.is_empty();
        let has_form = self.large_blocks || self.embedded || self.compressed || self.raw;
        is_incremental || self.is_packed() || has_form || self.redact.is_some()
    }
}
