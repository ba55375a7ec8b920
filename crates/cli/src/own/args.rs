//! The command lines of cenote's own commands, except those for measuring.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum};

use crate::place::{Place, PoolPath};

/// Words handed on as they are.
#[derive(Debug, Args)]
pub struct Words {
    /// The words of the command.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub words: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
On a terminal it shows how far it is and how long it takes. Out of a pool it first says how long the files are, what they \
take in the pool, and what is free where they go: outside a pool they take their whole length.

A file has a temporary name (.cenote-PROCESS-NUMBER) until it is complete, so a copy that was killed leaves no half file under \
a name of its own. Give the same command with --resume: files of the same size and time are skipped, as rsync does, and what \
has a temporary name is removed. Where the first copy has made DESTINATION, give the source as 'photos/.' then: else a copy in \
it could be meant, and cenote asks. Without -p times are not kept: then a copy of the same size that is not older is skipped.

With --dry-run --json each step is one object, and the summary is the last one.

Examples:
  cenote cp -rp ~/photos tank/home:/
  cenote cp -rp --resume ~/photos tank/home:/
  cenote cp -rpn tank/home:/photos restored
  cenote cp -rp tank/home@monday:/photos restored
  cenote -d disk.img cp -r tank:/ rescued")]
pub struct Cp {
    /// Copy folders with all they hold.
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    pub recursive: bool,
    /// Keep modes, owners, times and extended attributes.
    #[arg(short, long)]
    pub preserve: bool,
    /// Write nothing; say what would be created, replaced and skipped.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Skip files whose copy is complete.
    #[arg(long)]
    pub resume: bool,
    /// Stay in the dataset: do not copy the datasets below it.
    #[arg(short = 'x', long = "one-file-system")]
    pub one_dataset: bool,
    /// Whether a copy inside a pool shares the blocks of its source, which needs the feature block_cloning.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Reflink::Auto)]
    pub reflink: Reflink,
    /// Draw no progress; nothing is drawn on a terminal of the kind 'dumb' either.
    #[arg(long)]
    pub no_progress: bool,
    /// A summary in JSON on standard output.
    #[arg(long)]
    pub json: bool,
    /// What to copy.
    #[arg(required = true, num_args = 1.., value_name = "SOURCE", value_parser = place())]
    pub sources: Vec<Place>,
    /// Where to: a local path or DATASET:/path.
    #[arg(value_name = "DESTINATION", value_parser = place())]
    pub destination: Place,
}

/// When copies share blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reflink {
    /// Where they can; else the bytes are copied.
    Auto,
    /// All bytes are copied.
    Never,
    /// A file that cannot share its blocks is not copied.
    Always,
}

#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  cenote ls -lh tank/home:/photos
  cenote ls -R --json --sha256 tank/home@monday
  cenote -d disk.img ls tank:/"
)]
pub struct Ls {
    /// Modes, links, owners, sizes and times.
    #[arg(short)]
    pub long: bool,
    /// Sizes such as 1.5M (with -l).
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
    /// Folders with all they hold.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// One JSON object per entry.
    #[arg(long)]
    pub json: bool,
    /// The SHA-256 of each file (with --json).
    #[arg(long, requires = "json")]
    pub sha256: bool,
    /// A place in a pool: a dataset or a snapshot, and a path in it (without one, its root).
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT][:/PATH]", value_parser = read_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cenote cat tank/home:/notes.txt
  cenote cat tank/home@monday:/notes.txt > notes.txt")]
pub struct Cat {
    /// A place in a pool: a dataset or a snapshot, and a path in it (without one, its root).
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT][:/PATH]", value_parser = read_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The stream has the pax format, which GNU tar and bsdtar read: modes, owners, times, hard and symbolic links, devices, holes, \
extended attributes and POSIX ACLs. Datasets below are not in it, nor are sockets. -x takes streams of these programs, too. A file gets \
its name when it is complete; names with '..', and names below a symbolic link, are left out.

Examples:
  cenote tar -c tank/home > home.tar
  cenote tar -c tank/home@monday:/photos | tar -x --acls --xattrs -C /restored
  tar -c --format=pax --acls --xattrs -C /photos . | cenote tar -x tank/home:/photos")]
pub struct Tar {
    /// Write the tree at the place to standard output.
    #[arg(short = 'c', long, required_unless_present = "extract", conflicts_with = "extract")]
    pub create: bool,
    /// Unpack a stream from standard input into the folder at the place.
    #[arg(short = 'x', long)]
    pub extract: bool,
    /// With -x: one JSON object with what was unpacked.
    #[arg(long, conflicts_with = "create")]
    pub json: bool,
    /// A place in a pool: a dataset or a snapshot, and a path in it (without one, its root).
    #[arg(value_name = "DATASET[@SNAPSHOT][:/PATH]", value_parser = read_path())]
    pub place: PoolPath,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cenote tree tank/home
  cenote -d disk.img tree tank/home:/photos")]
pub struct Tree {
    /// One JSON object per entry, as 'cenote ls -R --json' prints them.
    #[arg(long)]
    pub json: bool,
    /// A place in a pool: a dataset or a snapshot, and a path in it (without one, its root).
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT][:/PATH]", value_parser = read_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cenote rm tank/home:/old.txt
  cenote rm -r tank/home:/tmp")]
pub struct Rm {
    /// Folders with all they hold.
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    pub recursive: bool,
    /// Ignores places that do not exist.
    #[arg(short, long)]
    pub force: bool,
    /// One JSON object for each place where something was removed.
    #[arg(long)]
    pub json: bool,
    /// A place in a pool: a dataset and a path in it.
    #[arg(required = true, value_name = "DATASET:/PATH", value_parser = pool_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cenote mkdir -p tank/home:/photos/2026")]
pub struct Mkdir {
    /// Make missing parents; a folder that exists is no error.
    #[arg(short, long)]
    pub parents: bool,
    /// One JSON object for each place where something was made.
    #[arg(long)]
    pub json: bool,
    /// A place in a pool: a dataset and a path in it.
    #[arg(required = true, value_name = "DATASET:/PATH", value_parser = pool_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cenote mv tank/home:/a.txt tank/home:/b.txt
  cenote mv tank/home:/a.txt tank/home:/b.txt tank/home:/texts")]
pub struct Mv {
    /// One JSON object for each source that was moved.
    #[arg(long)]
    pub json: bool,
    /// What to move: DATASET:/path.
    #[arg(required = true, num_args = 1.., value_name = "SOURCE", value_parser = pool_path())]
    pub sources: Vec<PoolPath>,
    /// The new name, or a folder of the same dataset.
    #[arg(value_name = "DESTINATION", value_parser = pool_path())]
    pub destination: PoolPath,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cenote stat tank/home:/notes.txt")]
pub struct Stat {
    /// One JSON object per place, with the fields of 'cenote ls --json'.
    #[arg(long)]
    pub json: bool,
    /// A place in a pool: a dataset or a snapshot, and a path in it (without one, its root).
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT][:/PATH]", value_parser = read_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  cenote du -sh tank/home
  cenote du tank/home@monday:/photos"
)]
pub struct Du {
    /// Only the total of each operand.
    #[arg(short, long)]
    pub summarize: bool,
    /// Stay in the dataset: leave out the datasets below it.
    #[arg(short = 'x', long = "one-file-system")]
    pub one_dataset: bool,
    /// Sizes such as 1.5M, not in units of 1024 bytes.
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
    /// One JSON object per line, in bytes.
    #[arg(long)]
    pub json: bool,
    /// A place in a pool: a dataset or a snapshot, and a path in it (without one, its root).
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT][:/PATH]", value_parser = read_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
With SOURCE_DATE_EPOCH set to seconds since 1970, the same folder gives the same image: 'cenote help images' says more.

Examples:
  cenote mkfs -d site -o compression=zstd-9 site.img
  SOURCE_DATE_EPOCH=1700000000 cenote mkfs -d site --name site site.img")]
pub struct Mkfs {
    /// The folder whose contents go into the image.
    #[arg(short, value_name = "DIR")]
    pub dir: PathBuf,
    /// A property of the root dataset (may be repeated).
    #[arg(short, value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// The size of the image, such as 4G; without it, as much as the files need.
    #[arg(long, value_parser = size)]
    pub size: Option<u64>,
    /// The name of the pool; without it, that of the folder.
    #[arg(long)]
    pub name: Option<String>,
    /// What was made, in JSON.
    #[arg(long)]
    pub json: bool,
    /// The image to make; it must not exist yet.
    pub image: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
In the foreground it logs to standard error and ends on SIGTERM or Ctrl-C: everything is written, unmounted and \
exported. 'zpool create' and 'zpool import' start it in the background, 'zpool export' ends it.

Examples:
  cenote serve tank
  systemctl enable --now cenote@tank")]
pub struct Serve {
    /// Stay in the foreground (the default).
    #[arg(long, conflicts_with = "background")]
    pub foreground: bool,
    /// Come back when everything is mounted.
    #[arg(long)]
    pub background: bool,
    /// Mount nothing yet.
    #[arg(long)]
    pub no_mount: bool,
    /// Mount with these options, as zfs mount -o has them (ro,noexec).
    #[arg(long, value_name = "LIST")]
    pub options: Option<String>,
    /// With --background: one JSON object with what is mounted.
    #[arg(long, requires = "background")]
    pub json: bool,
    /// Report on standard output, which the parent process reads.
    #[arg(long, hide = true)]
    pub ready: bool,
    /// The pool was made a moment ago, by the command that starts this server.
    #[arg(long, hide = true)]
    pub created: bool,
    /// The name of the pool.
    #[arg(value_name = "POOL")]
    pub pool: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cenote check disk.img
  cenote check --json tank")]
pub struct Check {
    /// The verdict in JSON.
    #[arg(long)]
    pub json: bool,
    /// Imported pools by name, or images and devices by path.
    #[arg(required = true, value_name = "POOL|IMAGE")]
    pub pools: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Clients connect to a Unix socket in the runtime directory, which is this user's alone, unless --socket or --listen says \
otherwise. The address is printed as clients take it. The export comes back when the pool is imported again, until \
'cenote unexport'; one that other machines reach does not. With the name of a pool: its exports, with their access, \
clients and address.

Examples:
  cenote export tank/vm
  cenote export tank/vm@before --read-only
  cenote export tank/vm --listen 127.0.0.1:10809
  cenote export tank/vm --listen 0.0.0.0 --tls /etc/pki/nbd
  cenote export tank/home --nfs
  cenote export tank/home --nfs --listen 192.168.1.5 --options rw=192.168.1.0/24
  cenote export tank")]
pub struct Export {
    /// Listen on this Unix socket.
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub socket: Option<PathBuf>,
    /// Listen on TCP, as in 127.0.0.1:10809. Everyone who can connect to the address can use the volume.
    #[arg(long, value_name = "ADDRESS[:PORT]|PORT")]
    pub listen: Option<String>,
    /// Encrypt with the certificates in this folder: server-cert.pem, server-key.pem, ca-cert.pem. Clients need a
    /// certificate that this authority signed.
    #[arg(long, value_name = "FOLDER")]
    pub tls: Option<PathBuf>,
    /// Clients may not write.
    #[arg(long)]
    pub read_only: bool,
    /// Serve a file system over NFS (version 3), on loopback unless --listen says otherwise.
    #[arg(long, conflicts_with_all = ["socket", "tls"])]
    pub nfs: bool,
    /// With --nfs: who may use it, and as whom, in the words of the property sharenfs.
    #[arg(short, long, value_name = "OPTIONS", requires = "nfs", conflicts_with = "read_only")]
    pub options: Option<String>,
    /// One JSON object per export.
    #[arg(long)]
    pub json: bool,
    /// What to serve, or a pool whose exports are listed.
    #[arg(value_name = "VOLUME|SNAPSHOT|FILESYSTEM|POOL")]
    pub name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cenote unexport tank/vm
  cenote unexport tank/home")]
pub struct Unexport {
    /// Although clients are connected.
    #[arg(short, long)]
    pub force: bool,
    /// One JSON object with what is served no more.
    #[arg(long)]
    pub json: bool,
    /// What is served.
    #[arg(value_name = "VOLUME|SNAPSHOT|FILESYSTEM")]
    pub name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  cenote engines
  cenote engines tank")]
pub struct Engines {
    /// Everything in JSON.
    #[arg(long)]
    pub json: bool,
    /// Instead: how many records each engine of gzip has made in this pool since it was imported.
    #[arg(value_name = "POOL")]
    pub pool: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The first part tells of the cache in memory, the second of the cache devices (`zpool add tank cache DEVICE`). Counting \
begins when the pool is imported.

Examples:
  cenote cache tank")]
pub struct Cache {
    /// Everything in JSON.
    #[arg(long)]
    pub json: bool,
    /// The name of the pool.
    #[arg(value_name = "POOL")]
    pub pool: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without a pool: the values that pools are opened with, and where each comes from. NAME=VALUE is written into \
$XDG_CONFIG_HOME/cenote/config.toml; the environment (CENOTE_ZFS_TXG_TIMEOUT=10) comes before the files. With a pool: \
the values in effect there; NAME=VALUE changes them until the pool is exported.

Examples:
  cenote tune zfs_txg_timeout=10
  cenote tune tank zfs_arc_max")]
pub struct Tune {
    /// The values in JSON.
    #[arg(long)]
    pub json: bool,
    /// A pool, then tunables to show, or to set.
    #[arg(value_name = "[POOL] [NAME[=VALUE]]")]
    pub words: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Below DIR come man1 and man8, or bash, zsh and fish. Pages and completions tell of zfs, zpool and cenote as this program \
reads them.

Examples:
  cenote generate man ~/.local/share/man
  cenote generate completions completions")]
pub struct Generate {
    /// One JSON object with the files that were written.
    #[arg(long)]
    pub json: bool,
    /// What to write.
    pub what: What,
    /// The folder to write into.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// A local path, or a place in a pool.
pub(super) fn place() -> impl TypedValueParser<Value = Place> {
    OsStringValueParser::new().try_map(Place::try_from)
}

/// A place that is only read: the name of a dataset alone is its root.
pub(super) fn read_path() -> impl TypedValueParser<Value = PoolPath> {
    OsStringValueParser::new().try_map(|word| Place::parse_to_read(&word))
}

fn pool_path() -> impl TypedValueParser<Value = PoolPath> {
    OsStringValueParser::new().try_map(|word| Place::parse_in_pool(&word))
}

/// A size such as 128K.
pub(super) fn size(text: &str) -> Result<u64, pool::props::PropertyError> {
    pool::props::size::parse_size(text)
}

/// What can be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Manual pages: cenote(1), zfs(8), zpool(8), and one for each of their subcommands.
    Man,
    /// Completions for bash, zsh and fish.
    Completions,
}
