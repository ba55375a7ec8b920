//! The subcommands of `zfs` and `zpool`: a module for each, and the tables of all.
//!
//! From:   a parsed command line.
//! To:     the output of OpenZFS, in its words.
//!
//! A module such as `zfs_send.rs` contains: `COMMAND`, the description of the subcommand; `Options`, its options by name;
//! `read`, the only function that looks options up by their letters; and the function that runs it. A new subcommand is a
//! new module and a line in one of the tables.

mod aux_owner;
mod changing;
pub(crate) mod client_input;
pub(crate) mod damaged;
mod dataset_value;
pub(crate) mod dataset_values;
mod doomed;
mod features;
mod history_event;
mod import_checks;
mod import_places;
mod importable;
mod json_look;
mod key_loading;
mod key_material;
mod key_words;
mod keyed;
mod missing_logs;
pub(crate) mod misspelt_device;
mod mounting;
mod naming;
mod no_effect;
mod not_shared;
mod not_yet;
pub(crate) mod owner_quota;
mod parents;
mod pool_values;
mod pools_named;
mod recovery;
mod repeat;
mod scan;
mod scripts;
mod select;
mod sharing;
mod treated;
mod treating;
mod vdev_spec;
mod vdev_values;
pub(crate) mod version;
mod view;
mod volumes;
mod zfs_allow;
mod zfs_bookmark;
mod zfs_change_key;
mod zfs_clone;
mod zfs_create;
mod zfs_destroy;
mod zfs_diff;
mod zfs_get;
mod zfs_groupspace;
mod zfs_hold;
mod zfs_holds;
mod zfs_inherit;
mod zfs_list;
mod zfs_load_key;
pub(crate) mod zfs_mount;
mod zfs_mount_turns;
mod zfs_project;
mod zfs_projectspace;
mod zfs_promote;
mod zfs_receive;
mod zfs_receive_heal;
mod zfs_receive_options;
mod zfs_receive_props;
mod zfs_receive_tree;
mod zfs_receive_words;
mod zfs_redact;
mod zfs_release;
mod zfs_rename;
mod zfs_rewrite;
mod zfs_rollback;
mod zfs_send;
mod zfs_send_options;
mod zfs_send_rest;
mod zfs_send_words;
mod zfs_set;
mod zfs_share;
mod zfs_snapshot;
mod zfs_unallow;
mod zfs_unload_key;
mod zfs_unmount;
mod zfs_unshare;
mod zfs_upgrade;
mod zfs_userspace;
mod zfs_wait;
mod zpool_add;
mod zpool_attach;
mod zpool_checkpoint;
mod zpool_clear;
mod zpool_condense;
mod zpool_create;
mod zpool_create_wanted;
mod zpool_ddtprune;
mod zpool_destroy;
mod zpool_detach;
mod zpool_devices;
mod zpool_events;
mod zpool_export;
mod zpool_get;
mod zpool_history;
mod zpool_import;
mod zpool_initialize;
pub(crate) mod zpool_iostat;
mod zpool_labelclear;
mod zpool_list;
mod zpool_offline;
mod zpool_online;
mod zpool_prefetch;
mod zpool_props;
mod zpool_reguid;
mod zpool_remove;
mod zpool_reopen;
mod zpool_replace;
mod zpool_resilver;
mod zpool_scrub;
mod zpool_set;
mod zpool_split;
mod zpool_status;
mod zpool_status_advice;
mod zpool_status_dedup;
mod zpool_status_moves;
mod zpool_status_rebuild;
mod zpool_status_stats;
mod zpool_sync;
mod zpool_trim;
pub(crate) mod zpool_upgrade;
mod zpool_vdev_props;
mod zpool_wait;

use crate::command::{Call, Command, Program};

pub(crate) use zpool_attach::note_devices_of;

/// The subcommands of `zfs`, in the order of its usage text.
static ZFS: &[&Command] = &[
    &version::ZFS,
    &zfs_create::COMMAND,
    &zfs_destroy::COMMAND,
    &zfs_snapshot::COMMAND,
    &zfs_rollback::COMMAND,
    &zfs_clone::COMMAND,
    &zfs_promote::COMMAND,
    &zfs_rename::COMMAND,
    &zfs_bookmark::COMMAND,
    &zfs_list::COMMAND,
    &zfs_set::COMMAND,
    &zfs_get::COMMAND,
    &zfs_inherit::COMMAND,
    &zfs_upgrade::COMMAND,
    &zfs_userspace::COMMAND,
    &zfs_groupspace::COMMAND,
    &zfs_projectspace::COMMAND,
    &zfs_project::COMMAND,
    &zfs_mount::COMMAND,
    &zfs_unmount::COMMAND,
    &zfs_share::COMMAND,
    &zfs_unshare::COMMAND,
    &zfs_send::COMMAND,
    &zfs_receive::COMMAND,
    &zfs_allow::COMMAND,
    &zfs_unallow::COMMAND,
    &zfs_hold::COMMAND,
    &zfs_holds::COMMAND,
    &zfs_release::COMMAND,
    &zfs_diff::COMMAND,
    &zfs_load_key::COMMAND,
    &zfs_unload_key::COMMAND,
    &zfs_change_key::COMMAND,
    &zfs_redact::COMMAND,
    &not_yet::zfs::PROGRAM,
    &zfs_rewrite::COMMAND,
    &zfs_wait::COMMAND,
    &not_yet::zfs::ZONE,
    &not_yet::zfs::UNZONE,
    &not_yet::zfs::JAIL,
    &not_yet::zfs::UNJAIL,
];

/// The subcommands of `zpool`, in the order of its usage text.
static ZPOOL: &[&Command] = &[
    &version::ZPOOL,
    &zpool_create::COMMAND,
    &zpool_destroy::COMMAND,
    &zpool_add::COMMAND,
    &zpool_remove::COMMAND,
    &zpool_labelclear::COMMAND,
    &zpool_checkpoint::COMMAND,
    &zpool_prefetch::COMMAND,
    &zpool_list::COMMAND,
    &zpool_iostat::COMMAND,
    &zpool_status::COMMAND,
    &zpool_online::COMMAND,
    &zpool_offline::COMMAND,
    &zpool_clear::COMMAND,
    &zpool_attach::COMMAND,
    &zpool_detach::COMMAND,
    &zpool_replace::COMMAND,
    &zpool_split::COMMAND,
    &zpool_initialize::COMMAND,
    &zpool_resilver::COMMAND,
    &zpool_scrub::COMMAND,
    &zpool_trim::COMMAND,
    &zpool_import::COMMAND,
    &zpool_export::COMMAND,
    &zpool_upgrade::COMMAND,
    &zpool_reguid::COMMAND,
    &zpool_reopen::COMMAND,
    &zpool_history::COMMAND,
    &zpool_events::COMMAND,
    &zpool_get::COMMAND,
    &zpool_set::COMMAND,
    &zpool_sync::COMMAND,
    &zpool_wait::COMMAND,
    &zpool_ddtprune::COMMAND,
    &zpool_condense::COMMAND,
];

/// All subcommands of a program.
pub fn commands(program: Program) -> &'static [&'static Command] {
    match program {
        Program::Zfs => ZFS,
        Program::Zpool => ZPOOL,
    }
}

/// The subcommand called `word`.
pub fn command(program: Program, word: &str) -> Option<&'static Command> {
    commands(program).iter().find(|c| c.name == word || c.alias == Some(word)).copied()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::command::Run;

    /// The name of the module of a command.
    fn module_of(command: &Command) -> String {
        match command.name {
            "version" => "version".to_owned(),
            name => format!("{}_{}", command.program.name(), name.replace('-', "_")),
        }
    }

    fn sources() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/compat")
    }

    /// The text of a module, without its tests.
    fn text_of(path: &Path) -> String {
        let text = std::fs::read_to_string(path).unwrap();
        text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
    }

    /// The function of a module that looks options up by their letters; nothing if it has none.
    fn reader_in(text: &str) -> &str {
        let from = text.find("\nfn read(args: &Parsed) -> Options {").unwrap_or(text.len());
        let reader = &text[from..];
        reader.find("\n}\n").map_or(reader, |end| &reader[..end])
    }

    /// The letters that a text looks up.
    fn looked_up(text: &str) -> Vec<&str> {
        let after = |call: &str| {
            let parts: Vec<&str> = text.split(call).skip(1).collect();
            parts.into_iter().flat_map(|part| part.split(')').next()).collect::<Vec<_>>()
        };
        let calls =
            ["args.has(", "args.text(", "args.texts(", "args.count(", "args.mixed(", "args.in_order("];
        let words = calls.into_iter().flat_map(after).flat_map(|arguments| arguments.split(", "));
        let mut words: Vec<&str> = words.map(|word| word.trim_matches(['"', '[', ']'])).collect();
        words.sort_unstable();
        words
    }

    #[test]
    fn every_option_is_read_once_by_the_module_of_its_command_or_has_no_effect() {
        for command in Program::ALL.into_iter().flat_map(commands) {
            if matches!(command.run, Run::Missing(_)) {
                continue;
            }
            let module = module_of(command);
            let path = sources().join(format!("{module}.rs"));
            let path = if path.exists() { path } else { sources().join(&module).join("mod.rs") };
            let text = text_of(&path);
            let mut options: Vec<&str> =
                command.options.iter().filter(|choice| !choice.is_idle).map(|choice| choice.name()).collect();
            options.sort_unstable();
            assert_eq!(looked_up(reader_in(&text)), options, "{module}");
        }
    }

    #[test]
    fn no_other_function_looks_options_up() {
        let mut waiting = vec![sources()];
        while let Some(path) = waiting.pop() {
            if path.is_dir() {
                waiting.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            if path.ends_with("compat.rs") || path.extension().is_none_or(|end| end != "rs") {
                continue;
            }
            let text = text_of(&path);
            let rest = text.replace(reader_in(&text), "");
            assert_eq!(looked_up(&rest), Vec::<&str>::new(), "{}", path.display());
        }
    }
}
