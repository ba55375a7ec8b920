//! The subcommands of `zpool`.

use super::Command;
use crate::args::Spec;

const fn command(name: &'static str, options: &'static str, syntax: &'static [&'static str]) -> Command {
    Command { name, alias: None, options: Spec(options), syntax }
}

pub(super) const COMMANDS: &[Command] = &[
    command("version", "j|json", &["version [-j]"]),
    command(
        "create",
        "d f n m: o: O: R: t:",
        &[
            "create [-dfn] [-m MOUNTPOINT] [-o PROPERTY=VALUE]… [-O FSPROPERTY=VALUE]… [-R ROOT] [-t TEMPNAME] \
         POOL VDEV…",
        ],
    ),
    command("destroy", "f", &["destroy [-f] POOL"]),
    command(
        "add",
        "f g L n P o: allow-in-use allow-replication-mismatch allow-ashift-mismatch",
        &[
            "add [-fgLnP] [--allow-in-use] [--allow-replication-mismatch] [--allow-ashift-mismatch] [-o PROPERTY=VALUE] \
         POOL VDEV…",
        ],
    ),
    command("remove", "n p w s", &["remove [-npw] POOL DEVICE…", "remove -s POOL"]),
    command("labelclear", "f", &["labelclear [-f] DEVICE"]),
    command("checkpoint", "d|discard w|wait", &["checkpoint [-d [-w]] POOL"]),
    command("prefetch", "t:", &["prefetch [-t TYPE] POOL"]),
    command(
        "list",
        "g H L p P v j|json json-int json-pool-key-guid o: T:",
        &["list [-gHLpPv] [-o PROPERTY[,…]] [-j [--json-int] [--json-pool-key-guid]] [-T d|u] [POOL]… \
         [INTERVAL [COUNT]]"],
    ),
    command(
        "iostat",
        "g h H L n p P v y l q r w c: T:",
        &["iostat [[-c SCRIPT[,…]]|[-lq]]|[-rw] [-T d|u] [-ghHLnpPvy] [[POOL…]|[POOL VDEV…]|[VDEV…]] \
         [INTERVAL [COUNT]]"],
    ),
    command(
        "status",
        "d D e g i L p P s t v x power j|json json-int json-flat-vdevs json-pool-key-guid c: T:",
        &[
            "status [-dDegiLpPstvx] [-c SCRIPT[,…]] [-j [--json-int] [--json-flat-vdevs] [--json-pool-key-guid]] \
             [--power] [-T d|u] [POOL]… [INTERVAL [COUNT]]",
        ],
    ),
    command("online", "e power", &["online [--power] [-e] POOL DEVICE…"]),
    command("offline", "f t power", &["offline [--power]|[-ft] POOL DEVICE…"]),
    command("clear", "F n X power", &["clear [[--power]|[-nF]] POOL [DEVICE]"]),
    command("attach", "f s w o:", &["attach [-fsw] [-o PROPERTY=VALUE] POOL DEVICE NEWDEVICE"]),
    command("detach", "", &["detach POOL DEVICE"]),
    command("replace", "f s w o:", &["replace [-fsw] [-o PROPERTY=VALUE] POOL DEVICE [NEWDEVICE]"]),
    command(
        "split",
        "g L l n P o: R:",
        &["split [-gLlnP] [-o PROPERTY=VALUE]… [-R ROOT] POOL NEWPOOL [DEVICE]…"],
    ),
    command("initialize", "a c s u w z", &["initialize [-c|-s|-u] [-w] -a|POOL [DEVICE]…"]),
    command("resilver", "", &["resilver POOL…"]),
    command("scrub", "a e p s C t w S: E:", &["scrub [-e|-s|-p|-C] [-t] [-w] [-S DATE] [-E DATE] -a|POOL…"]),
    command("trim", "a d w c s r:", &["trim [-dw] [-r RATE] [-c|-s] -a|POOL [DEVICE]…"]),
    command(
        "import",
        "a D f l m N F n T: X s t c: d: o: R: rewind-to-checkpoint",
        &[
            "import [-D] [-d DIRECTORY|DEVICE]…|[-c CACHEFILE]",
            "import -a [-DflmN] [-F [-nTX]] [-c CACHEFILE|-d DIRECTORY|DEVICE] [-o MOUNTOPTIONS] [-o PROPERTY=VALUE]… \
         [-R ROOT] [-s] [--rewind-to-checkpoint]",
            "import [-Dflmt] [-F [-nTX]] [-c CACHEFILE|-d DIRECTORY|DEVICE] [-o MOUNTOPTIONS] [-o PROPERTY=VALUE]… \
         [-R ROOT] [-s] [--rewind-to-checkpoint] POOL|ID [NEWPOOL]",
        ],
    ),
    command("export", "a f", &["export [-af] POOL…"]),
    command("upgrade", "a v V:", &["upgrade [-v]", "upgrade [-V VERSION] -a|POOL…"]),
    command("reguid", "g:", &["reguid [-g GUID] POOL"]),
    command("reopen", "n", &["reopen [-n] [POOL]"]),
    command("history", "i l", &["history [-il] [POOL]…"]),
    command("events", "c f H v", &["events [-vHf] [POOL]", "events -c"]),
    command(
        "get",
        "H p j|json json-int json-pool-key-guid o:",
        &[
            "get [-Hp] [-j [--json-int] [--json-pool-key-guid]] [-o all|FIELD[,…]] all|PROPERTY[,PROPERTY]… [POOL]…",
            "get [-Hp] [-o all|FIELD[,…]] all|PROPERTY[,PROPERTY]… POOL all-vdevs|VDEV…",
        ],
    ),
    command("set", "", &["set PROPERTY=VALUE POOL", "set VDEVPROPERTY=VALUE POOL VDEV"]),
    command("sync", "f", &["sync [-f] [POOL]…"]),
    command("wait", "H p T: t:", &["wait [-Hp] [-T d|u] [-t ACTIVITY[,…]] POOL [INTERVAL]"]),
    command("ddtprune", "d: p:", &["ddtprune -d DAYS|-p PERCENT POOL"]),
    command("condense", "types", &["condense POOL", "condense --types"]),
];
