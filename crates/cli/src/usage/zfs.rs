//! The subcommands of `zfs`.

use super::Command;
use crate::args::Spec;

const fn command(name: &'static str, options: &'static str, syntax: &'static [&'static str]) -> Command {
    Command { name, alias: None, options: Spec(options), syntax }
}

const fn aliased(
    name: &'static str,
    alias: &'static str,
    options: &'static str,
    syntax: &'static [&'static str],
) -> Command {
    Command { name, alias: Some(alias), options: Spec(options), syntax }
}

pub(super) const COMMANDS: &[Command] = &[
    command("version", "j|json", &["version [-j]"]),
    command(
        "create",
        "P n p u v s b: o: V:",
        &[
            "create [-Pnpuv] [-o PROPERTY=VALUE]… FILESYSTEM",
            "create [-Pnpsv] [-b BLOCKSIZE] [-o PROPERTY=VALUE]… -V SIZE VOLUME",
        ],
    ),
    command(
        "destroy",
        "R d f n p r v",
        &[
            "destroy [-Rfnprv] FILESYSTEM|VOLUME",
            "destroy [-Rdnprv] FILESYSTEM|VOLUME@SNAP[%SNAP][,SNAP]…",
            "destroy FILESYSTEM|VOLUME#BOOKMARK",
        ],
    ),
    aliased("snapshot", "snap", "r o:", &["snapshot [-r] [-o USERPROPERTY=VALUE]… FILESYSTEM|VOLUME@SNAP…"]),
    command("rollback", "R f r", &["rollback [-Rfr] SNAPSHOT"]),
    command("clone", "p u o:", &["clone [-pu] [-o PROPERTY=VALUE]… SNAPSHOT FILESYSTEM|VOLUME"]),
    command("promote", "", &["promote CLONE"]),
    command(
        "rename",
        "f p r u",
        &[
            "rename [-f] DATASET DATASET",
            "rename -p [-f] FILESYSTEM|VOLUME FILESYSTEM|VOLUME",
            "rename -u [-f] FILESYSTEM FILESYSTEM",
            "rename -r SNAPSHOT SNAPSHOT",
        ],
    ),
    command("bookmark", "r", &["bookmark [-r] SNAPSHOT|BOOKMARK BOOKMARK"]),
    command(
        "list",
        "H p r j|json json-int d: o: s: S: t:",
        &[
            "list [-r|-d DEPTH] [-Hp] [-j [--json-int]] [-o PROPERTY[,PROPERTY]…] [-s PROPERTY]… [-S PROPERTY]… \
         [-t TYPE[,TYPE]…] [DATASET|PATH]…",
        ],
    ),
    command("set", "u", &["set [-u] PROPERTY=VALUE… FILESYSTEM|VOLUME|SNAPSHOT…"]),
    command(
        "get",
        "H p r j|json json-int d: o: s: t:",
        &[
            "get [-r|-d DEPTH] [-Hp] [-j [--json-int]] [-o all|FIELD[,FIELD]…] [-t TYPE[,TYPE]…] [-s SOURCE[,SOURCE]…] \
         all|PROPERTY[,PROPERTY]… [DATASET|PATH]…",
        ],
    ),
    command("inherit", "r S", &["inherit [-rS] PROPERTY FILESYSTEM|VOLUME|SNAPSHOT…"]),
    command("upgrade", "a r v V:", &["upgrade [-v]", "upgrade [-r] [-V VERSION] -a|FILESYSTEM…"]),
    command(
        "userspace",
        "H i n p o: s: S: t:",
        &["userspace [-Hinp] [-o FIELD[,…]] [-s FIELD]… [-S FIELD]… [-t TYPE[,…]] FILESYSTEM|SNAPSHOT|PATH"],
    ),
    command(
        "groupspace",
        "H i n p o: s: S: t:",
        &["groupspace [-Hinp] [-o FIELD[,…]] [-s FIELD]… [-S FIELD]… [-t TYPE[,…]] FILESYSTEM|SNAPSHOT|PATH"],
    ),
    command(
        "projectspace",
        "H p o: s: S:",
        &["projectspace [-Hp] [-o FIELD[,…]] [-s FIELD]… [-S FIELD]… FILESYSTEM|SNAPSHOT|PATH"],
    ),
    command(
        "project",
        "c C d r k s 0 p:",
        &[
            "project [-d|-r] DIRECTORY|FILE…",
            "project -c [-0] [-d|-r] [-p ID] DIRECTORY|FILE…",
            "project -C [-k] [-r] DIRECTORY|FILE…",
            "project [-p ID] [-r] [-s] DIRECTORY|FILE…",
        ],
    ),
    command(
        "mount",
        "O a f l v R j|json o:",
        &["mount [-j]", "mount [-Oflv] [-o OPTIONS] -a|-R FILESYSTEM|FILESYSTEM"],
    ),
    aliased("unmount", "umount", "a f u", &["unmount [-fu] -a|FILESYSTEM|MOUNTPOINT"]),
    command("share", "a l", &["share [-l] -a [nfs|smb]|FILESYSTEM"]),
    command("unshare", "a", &["unshare -a [nfs|smb]|FILESYSTEM|MOUNTPOINT"]),
    command(
        "send",
        "R|replicate s|skip-missing d|redact: p|props P|parsable D|dedup V|proctitle v|verbose n|dryrun \
         L|large-block e|embed t|resume: c|compressed w|raw b|backup h|holds S|saved X|exclude: \
         U|no-preserve-encryption i: I:",
        &[
            "send [-DLPVbcehnpsvw] [-R [-X DATASET[,DATASET]…]] [-i|-I SNAPSHOT] SNAPSHOT",
            "send [-DLPVcenvw] [-i SNAPSHOT|BOOKMARK] FILESYSTEM|VOLUME|SNAPSHOT",
            "send --redact BOOKMARK [-DLPVcenpv] [-i SNAPSHOT|BOOKMARK] SNAPSHOT",
            "send [-Penv] -t TOKEN",
            "send [-PVnv] --saved FILESYSTEM|VOLUME",
        ],
    ),
    aliased(
        "receive",
        "recv",
        "A F M c d e h n s u v o: x:",
        &[
            "receive [-FMhnsuv] [-o origin=SNAPSHOT] [-o PROPERTY=VALUE]… [-x PROPERTY]… FILESYSTEM|VOLUME|SNAPSHOT",
            "receive [-FMhnsuv] [-d|-e] [-o origin=SNAPSHOT] [-o PROPERTY=VALUE]… [-x PROPERTY]… FILESYSTEM",
            "receive -A FILESYSTEM|VOLUME",
            "receive -c [-vn] FILESYSTEM|SNAPSHOT",
        ],
    ),
    command(
        "allow",
        "d g l u e c s:",
        &[
            "allow FILESYSTEM|VOLUME",
            "allow [-dglu] WHO[,WHO]… PERMISSION|@SET[,…] FILESYSTEM|VOLUME",
            "allow [-dl] -e PERMISSION|@SET[,…] FILESYSTEM|VOLUME",
            "allow -c PERMISSION|@SET[,…] FILESYSTEM|VOLUME",
            "allow -s @SET PERMISSION|@SET[,…] FILESYSTEM|VOLUME",
        ],
    ),
    command(
        "unallow",
        "d g l r u e c s:",
        &[
            "unallow [-dglru] WHO[,WHO]… [PERMISSION|@SET[,…]] FILESYSTEM|VOLUME",
            "unallow [-dlr] -e [PERMISSION|@SET[,…]] FILESYSTEM|VOLUME",
            "unallow [-r] -c [PERMISSION|@SET[,…]] FILESYSTEM|VOLUME",
            "unallow [-r] -s @SET [PERMISSION|@SET[,…]] FILESYSTEM|VOLUME",
        ],
    ),
    command("hold", "r", &["hold [-r] TAG SNAPSHOT…"]),
    command("holds", "r H p", &["holds [-rHp] SNAPSHOT…"]),
    command("release", "r", &["release [-r] TAG SNAPSHOT…"]),
    command("diff", "F H t h", &["diff [-FHth] SNAPSHOT [SNAPSHOT|FILESYSTEM]"]),
    command("load-key", "a n r L:", &["load-key [-nr] [-L KEYLOCATION] -a|FILESYSTEM|VOLUME"]),
    command("unload-key", "a r", &["unload-key [-r] -a|FILESYSTEM|VOLUME"]),
    command(
        "change-key",
        "i l o:",
        &["change-key [-l] [-o PROPERTY=VALUE]… FILESYSTEM|VOLUME", "change-key -i [-l] FILESYSTEM|VOLUME"],
    ),
    command("redact", "", &["redact SNAPSHOT BOOKMARK SNAPSHOT…"]),
    command("program", "j n t: m:", &["program [-jn] [-t INSTRUCTIONS] [-m BYTES] POOL SCRIPT [ARGUMENT]…"]),
    command("rewrite", "C P S r v x o: l:", &["rewrite [-CPSrvx] [-o OFFSET] [-l LENGTH] DIRECTORY|FILE…"]),
    command("wait", "t:", &["wait [-t ACTIVITY[,…]] FILESYSTEM"]),
    command("zone", "", &["zone NAMESPACE FILESYSTEM"]),
    command("unzone", "", &["unzone NAMESPACE FILESYSTEM"]),
    command("jail", "", &["jail JAIL FILESYSTEM"]),
    command("unjail", "", &["unjail JAIL FILESYSTEM"]),
];
