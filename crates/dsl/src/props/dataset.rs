//! The properties of datasets.
//!
//! Source: docs/format/06-mos-dsl.md §10; releases, headings and words from the `zfs` interface.

use super::words::*;
use super::{
    BYTES, COUNT, DATE, DATE_SECONDS, DERIVED, INTEGER, LIMIT, Property, QUOTA, RATIO, SIZE, TEXT, names,
    number, properties, text,
};

/// Every property that `zfs get all` shows, in its order.
pub static VISIBLE: &[Property] = properties! {
    "type" - "TYPE" TEXT ReadOnly FVSB DERIVED, left 4 "0.6" "filesystem | volume | snapshot | bookmark";
    "creation" - "CREATION" DATE ReadOnly FVSB DERIVED, left 8 "0.6" "<date>";
    "used" - "USED" BYTES ReadOnly FVS DERIVED, right 5 "0.6" "<size>";
    "available" "avail" "AVAIL" BYTES ReadOnly FV DERIVED, right 5 "0.6" "<size>";
    "referenced" "refer" "REFER" BYTES ReadOnly FVSB DERIVED, right 5 "0.6" "<size>";
    "compressratio" "ratio" "RATIO" RATIO ReadOnly FVSB DERIVED, right 5 "0.6" "<1.00x or higher if compressed>";
    "mounted" - "MOUNTED" YES_NO ReadOnly F DERIVED, left 7 "0.6" "yes | no";
    "origin" - "ORIGIN" TEXT ReadOnly FV DERIVED, left 6 "0.6" "<snapshot>";
    "quota" - "QUOTA" QUOTA Set F number(0), right 5 "0.6" "<size> | none";
    "reservation" "reserv" "RESERV" QUOTA Set FV number(0), right 6 "0.6" "<size> | none";
    "volsize" - "VOLSIZE" SIZE Set VS number(0), right 7 "0.6" "<size>";
    "volblocksize" "volblock" "VOLBLOCK" SIZE CreateOnly V number(16 << 10), right 8 "0.6" "512 to 16M, power of 2";
    "recordsize" "recsize" "RECSIZE" SIZE Inherit F number(128 << 10), right 7 "0.6" "512 to 16M, power of 2";
    "mountpoint" - "MOUNTPOINT" TEXT Inherit F DERIVED, left 10 "0.6" "<path> | legacy | none";
    "sharenfs" - "SHARENFS" TEXT Inherit F text("off"), left 8 "0.6" "on | off | NFS share options";
    "checksum" - "CHECKSUM" CHECKSUM Inherit FV number(1), left 9 "0.6" "on | off | fletcher2 | fletcher4 | sha256 | sha512 | skein | edonr | blake3";
    "compression" "compress" "COMPRESS" COMPRESSION Inherit FV number(1), left 14 "0.6" "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]";
    "atime" - "ATIME" ON_OFF Inherit F number(1), left 5 "0.6" "on | off";
    "devices" - "DEVICES" ON_OFF Inherit FS number(1), left 7 "0.6" "on | off";
    "exec" - "EXEC" ON_OFF Inherit FS number(1), left 4 "0.6" "on | off";
    "setuid" - "SETUID" ON_OFF Inherit FS number(1), left 6 "0.6" "on | off";
    "readonly" "rdonly" "RDONLY" ON_OFF Inherit FV number(0), left 6 "0.6" "on | off";
    "zoned" - "ZONED" ON_OFF Inherit F number(0), left 5 "0.6" "on | off";
    "snapdir" - "SNAPDIR" SNAPDIR Inherit F number(0), left 8 "0.6" "disabled | hidden | visible";
    "aclmode" - "ACLMODE" ACLMODE Inherit F number(0), left 11 "2.0" "discard | groupmask | passthrough | restricted";
    "aclinherit" - "ACLINHERIT" ACLINHERIT Inherit F number(4), left 13 "0.6" "discard | noallow | restricted | passthrough | passthrough-x";
    "createtxg" - "CREATETXG" INTEGER ReadOnly FVSB DERIVED, right 9 "0.6" "<uint64>";
    "canmount" - "CANMOUNT" CANMOUNT Set F number(1), left 8 "0.6" "on | off | noauto";
    "xattr" - "XATTR" XATTR Inherit FS number(2), left 5 "0.6" "on | off | dir | sa";
    "copies" - "COPIES" COPIES Inherit FV number(1), left 6 "0.6" "1 | 2 | 3";
    "version" - "VERSION" ZPL_VERSION Set FS number(5), left 7 "0.6" "1 | 2 | 3 | 4 | 5 | current";
    "utf8only" - "UTF8ONLY" ON_OFF CreateOnly FS number(0), left 8 "0.6" "on | off";
    "normalization" - "NORMALIZATION" NORMALIZATION CreateOnly FS number(0), left 13 "0.6" "none | formC | formD | formKC | formKD";
    "casesensitivity" "case" "CASE" CASE CreateOnly FS number(0), left 11 "0.6" "sensitive | insensitive | mixed";
    "vscan" - "VSCAN" ON_OFF Inherit F number(0), left 5 "0.6" "on | off";
    "nbmand" - "NBMAND" ON_OFF Inherit FS number(0), left 6 "0.6" "on | off";
    "sharesmb" - "SHARESMB" TEXT Inherit F text("off"), left 8 "0.6" "on | off | SMB share options";
    "refquota" - "REFQUOTA" QUOTA Set F number(0), right 8 "0.6" "<size> | none";
    "refreservation" "refreserv" "REFRESERV" QUOTA Set FV number(0), right 9 "0.6" "<size> | none";
    "guid" - "GUID" INTEGER ReadOnly FVSB DERIVED, right 5 "0.6" "<uint64>";
    "primarycache" - "PRIMARYCACHE" CACHE Inherit FVS number(2), left 12 "0.6" "all | none | metadata";
    "secondarycache" - "SECONDARYCACHE" CACHE Inherit FVS number(2), left 14 "0.6" "all | none | metadata";
    "usedbysnapshots" "usedsnap" "USEDSNAP" BYTES ReadOnly FV DERIVED, right 8 "0.6" "<size>";
    "usedbydataset" "usedds" "USEDDS" BYTES ReadOnly FV DERIVED, right 6 "0.6" "<size>";
    "usedbychildren" "usedchild" "USEDCHILD" BYTES ReadOnly FV DERIVED, right 9 "0.6" "<size>";
    "usedbyrefreservation" "usedrefreserv" "USEDREFRESERV" BYTES ReadOnly FV DERIVED, right 13 "0.6" "<size>";
    "defer_destroy" - "DEFER_DESTROY" ON_OFF ReadOnly S DERIVED, left 13 "0.6" "yes | no";
    "userrefs" - "USERREFS" COUNT ReadOnly S DERIVED, right 8 "0.6" "<count>";
    "logbias" - "LOGBIAS" LOGBIAS Inherit FV number(0), left 10 "0.6" "latency | throughput";
    "objsetid" - "OBJSETID" INTEGER ReadOnly FVS DERIVED, right 8 "0.6" "<uint64>";
    "dedup" - "DEDUP" DEDUP Inherit FV number(2), left 13 "0.6" "on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | edonr,verify | blake3[,verify]";
    "mlslabel" - "MLSLABEL" TEXT Inherit FVS text("none"), left 8 "0.6" "<sensitivity label>";
    "sync" - "SYNC" SYNC Inherit FV number(0), left 8 "0.6" "standard | always | disabled";
    "dnodesize" "dnsize" "DNSIZE" DNODESIZE Inherit F number(0), left 6 "0.7" "legacy | auto | 1k | 2k | 4k | 8k | 16k";
    "refcompressratio" "refratio" "REFRATIO" RATIO ReadOnly FVS DERIVED, right 8 "0.6" "<1.00x or higher if compressed>";
    "written" - "WRITTEN" SIZE ReadOnly FVS DERIVED, right 7 "0.6" "<size>";
    "clones" - "CLONES" TEXT ReadOnly S DERIVED, left 6 "0.6" "<dataset>[,...]";
    "logicalused" "lused" "LUSED" SIZE ReadOnly FV DERIVED, right 5 "0.6" "<size>";
    "logicalreferenced" "lrefer" "LREFER" SIZE ReadOnly FVSB DERIVED, right 6 "0.6" "<size>";
    "volmode" - "VOLMODE" VOLMODE Inherit FV number(0), left 7 "0.7" "default | full | geom | dev | none";
    "filesystem_limit" "fslimit" "FSLIMIT" LIMIT Set F number(u64::MAX), right 7 "0.6" "<count> | none";
    "snapshot_limit" "sslimit" "SSLIMIT" LIMIT Set FV number(u64::MAX), right 7 "0.6" "<count> | none";
    "filesystem_count" "fscount" "FSCOUNT" LIMIT ReadOnly F DERIVED, right 7 "0.6" "<count>";
    "snapshot_count" "sscount" "SSCOUNT" LIMIT ReadOnly FV DERIVED, right 7 "0.6" "<count>";
    "snapdev" - "SNAPDEV" SNAPDEV Inherit FV number(0), left 7 "0.6" "hidden | visible";
    "acltype" - "ACLTYPE" ACLTYPE Inherit FS number(0), left 8 "0.6" "off | nfsv4 | posix";
    "context" - "CONTEXT" TEXT Set FVS text("none"), left 7 "0.6" "<selinux context>";
    "fscontext" - "FSCONTEXT" TEXT Set FVS text("none"), left 9 "0.6" "<selinux fscontext>";
    "defcontext" - "DEFCONTEXT" TEXT Set FVS text("none"), left 10 "0.6" "<selinux defcontext>";
    "rootcontext" - "ROOTCONTEXT" TEXT Set FVS text("none"), left 11 "0.6" "<selinux rootcontext>";
    "relatime" - "RELATIME" ON_OFF Inherit F number(1), left 8 "0.6" "on | off";
    "redundant_metadata" "redund_md" "REDUND_MD" REDUNDANT_METADATA Inherit FV number(0), left 9 "0.6" "all | most | some | none";
    "overlay" - "OVERLAY" ON_OFF Inherit F number(1), left 7 "0.6" "on | off";
    "receive_resume_token" "resumetok" "RESUMETOK" TEXT ReadOnly FV DERIVED, left 9 "0.7" "<string token>";
    "encryption" - "ENCRYPTION" ENCRYPTION CreateOnly FVS number(2), left 11 "0.8" "on | off | aes-128-ccm | aes-192-ccm | aes-256-ccm | aes-128-gcm | aes-192-gcm | aes-256-gcm";
    "keylocation" - "KEYLOCATION" TEXT Set FV text("none"), left 11 "0.8" "prompt | <file URI> | <https URL> | <http URL>";
    "keyformat" - "KEYFORMAT" KEYFORMAT CreateOnly FV number(0), left 10 "0.8" "none | raw | hex | passphrase";
    "pbkdf2iters" - "PBKDF2ITERS" INTEGER CreateOnly FV number(0), right 11 "0.8" "<iters>";
    "encryptionroot" "encroot" "ENCROOT" TEXT ReadOnly FVS DERIVED, left 7 "0.8" "<filesystem | volume>";
    "keystatus" - "KEYSTATUS" KEYSTATUS ReadOnly FVS DERIVED, left 11 "0.8" "none | unavailable | available";
    "special_small_blocks" - "SPECIAL_SMALL_BLOCKS" SIZE Inherit FV number(0), right 20 "0.8" "0 to 16M";
    "redact_snaps" "rsnaps" "RSNAPS" TEXT ReadOnly FVSB DERIVED, left 6 "2.0" "<snapshot>[,...]";
    "snapshots_changed" - "SNAPSHOTS_CHANGED" DATE_SECONDS ReadOnly FV DERIVED, left 17 "2.2" "<date>";
    "prefetch" - "PREFETCH" CACHE Inherit FVS number(2), left 8 "2.3" "none | metadata | all";
    "volthreading" "volthread" "VOLTHREAD" ON_OFF Set V number(1), left 9 "2.3" "on | off";
    "direct" - "DIRECT" DIRECT Inherit F number(1), left 8 "2.3" "disabled | standard | always";
    "longname" - "LONGNAME" ON_OFF Inherit F number(0), left 8 "2.3" "on | off";
    "defaultuserquota" - "DEFAULTUSERQUOTA" SIZE Set FS number(0), right 16 "2.4" "<size> | none";
    "defaultgroupquota" - "DEFAULTGROUPQUOTA" SIZE Set FS number(0), right 17 "2.4" "<size> | none";
    "defaultprojectquota" - "DEFAULTPROJECTQUOTA" SIZE Set FS number(0), right 19 "2.4" "<size> | none";
    "defaultuserobjquota" - "DEFAULTUSEROBJQUOTA" SIZE Set FS number(0), right 19 "2.4" "<size> | none";
    "defaultgroupobjquota" - "DEFAULTGROUPOBJQUOTA" SIZE Set FS number(0), right 20 "2.4" "<size> | none";
    "defaultprojectobjquota" - "DEFAULTPROJECTOBJQUOTA" SIZE Set FS number(0), right 22 "2.4" "<size> | none";
    "snapshots_changed_nsecs" - "SNAPSHOTS_CHANGED_NSECS" INTEGER ReadOnly FV DERIVED, left 23 "post-2.4" "<nsec>";
    "zoned_uid" - "ZONED_UID" INTEGER Inherit F number(0), right 9 "post-2.4" "<uid> | none";
};

/// Properties that may be asked for by name but are not in `get all`.
pub static HIDDEN: &[Property] = properties! {
    "name" - "NAME" TEXT ReadOnly FVSB DERIVED, left 4 "0.6" "<name>";
    "numclones" - "NUMCLONES" INTEGER ReadOnly S DERIVED, right 9 "0.6" "<count>";
    "unique" - "UNIQUE" BYTES ReadOnly FVSB DERIVED, right 6 "0.6" "<size>";
    "inconsistent" - "INCONSISTENT" ON_OFF ReadOnly FVS DERIVED, left 12 "0.6" "yes | no";
    "prevsnap" - "PREVSNAP" TEXT ReadOnly FV DERIVED, left 8 "0.6" "<string>";
    "ivsetguid" - "IVSETGUID" INTEGER ReadOnly FVSB DERIVED, right 9 "0.8" "<uint64>";
    "keyguid" - "KEYGUID" INTEGER ReadOnly FV DERIVED, right 7 "0.8" "<uint64>";
    "redacted" - "REDACTED" ON_OFF ReadOnly FVS DERIVED, left 8 "2.0" "yes | no";
    "useraccounting" - "USERACCOUNTING" ON_OFF ReadOnly F DERIVED, left 14 "0.6" "yes | no";
    "iscsioptions" - "ISCSIOPTIONS" TEXT ReadOnly V DERIVED, left 12 "0.6" "<string>";
    "stmf_sbd_lu" - "STMF_SBD_LU" TEXT ReadOnly V DERIVED, left 11 "0.6" "<string>";
    "remaptxg" - "REMAPTXG" INTEGER ReadOnly FV DERIVED, right 8 "0.8" "<uint64>";
    "pbkdf2salt" - "PBKDF2SALT" INTEGER ReadOnly FV DERIVED, right 10 "0.8" "<uint64>";
};

/// The native property called `word` (name or alias).
pub fn parse(word: &str) -> Option<&'static Property> {
    VISIBLE.iter().chain(HIDDEN).find(|p| p.is_called(word))
}

/// Everything that a word may ask for of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<'a> {
    /// A property of OpenZFS itself.
    Native(&'static Property),
    /// `module:name`
    User(&'a str),
    /// `userused@root` and its family.
    Account(Account<'a>),
    /// `written@snapshot`: the name of the snapshot, with or without that of its file system.
    WrittenSince(&'a str),
}

/// Space or objects of one user, group or project, or the quota on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account<'a> {
    /// Which of the three kinds of owner `who` is.
    pub owner: Owner,
    /// Whether it is the limit; otherwise it is the used amount.
    pub quota: bool,
    /// Counts objects; else bytes.
    pub objects: bool,
    /// Name or number of the user, group or project.
    pub who: &'a str,
}

/// The kind of owner for which space and objects are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// By the uid of a file.
    User,
    /// By the gid of a file.
    Group,
    /// By the project id of a file.
    Project,
}

/// The property that `word` asks for; `None` if it is neither a native property nor has the form of another.
pub fn ask(word: &str) -> Option<Asked<'_>> {
    if let Some(property) = parse(word) {
        return Some(Asked::Native(property));
    }
    if let Some((family, who)) = word.split_once('@') {
        if family == "written" {
            return Some(Asked::WrittenSince(who));
        }
        if let Some(account) = account(family, who) {
            return Some(Asked::Account(account));
        }
    }
    names::is_user_property(word).then_some(Asked::User(word))
}

fn account<'a>(family: &str, who: &'a str) -> Option<Account<'a>> {
    let (owner, rest) = [("user", Owner::User), ("group", Owner::Group), ("project", Owner::Project)]
        .into_iter()
        .find_map(|(word, owner)| Some((owner, family.strip_prefix(word)?)))?;
    let (objects, what) = match rest.strip_prefix("obj") {
        Some(what) => (true, what),
        None => (false, rest),
    };
    let quota = match what {
        "used" => false,
        "quota" => true,
        _ => return None,
    };
    Some(Account { owner, quota, objects, who })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_properties_answer_to_one_word() {
        let mut words = HashSet::new();
        for p in VISIBLE.iter().chain(HIDDEN) {
            assert!(words.insert(p.name), "{}", p.name);
            if let Some(alias) = p.alias {
                assert!(words.insert(alias), "{alias}");
                assert_eq!(alias, p.heading.to_lowercase());
            }
        }
        assert_eq!(VISIBLE.len(), 95);
    }

    #[test]
    fn short_names_are_understood_and_upper_case_is_not() {
        for (alias, name) in [
            ("compress", "compression"),
            ("recsize", "recordsize"),
            ("avail", "available"),
            ("refer", "referenced"),
            ("ratio", "compressratio"),
            ("lrefer", "logicalreferenced"),
            ("case", "casesensitivity"),
        ] {
            assert_eq!(parse(alias).map(|p| p.name), Some(name));
        }
        assert_eq!((parse("NAME"), parse("compuress"), parse("")), (None, None, None));
    }

    #[test]
    fn defaults_are_those_of_openzfs_2_4() {
        for (name, value) in [
            ("compression", "on"),
            ("relatime", "on"),
            ("recordsize", "128K"),
            ("volblocksize", "16K"),
            ("xattr", "sa"),
            ("checksum", "on"),
            ("quota", "none"),
            ("filesystem_limit", "none"),
            ("sharenfs", "off"),
            ("version", "5"),
            ("encryption", "off"),
            ("dedup", "off"),
            ("pbkdf2iters", "0"),
            ("acltype", "off"),
            ("primarycache", "all"),
            ("aclinherit", "restricted"),
            ("snapdir", "hidden"),
            ("volmode", "default"),
        ] {
            let property = parse(name).expect(name);
            let preset = property.default_value().expect(name);
            assert_eq!(property.format_value(&preset, false), value, "{name}");
        }
    }

    #[test]
    fn families_of_properties_and_user_properties_are_distinguished() {
        assert_eq!(ask("com.example:note"), Some(Asked::User("com.example:note")));
        assert_eq!(ask("written@s1"), Some(Asked::WrittenSince("s1")));
        assert_eq!(
            ask("groupobjquota@staff"),
            Some(Asked::Account(Account { owner: Owner::Group, quota: true, objects: true, who: "staff" }))
        );
        assert!(matches!(ask("userused@root"), Some(Asked::Account(a)) if !a.quota && !a.objects));
        assert_eq!((ask("usedby@x"), ask("userfoo@x"), ask("nosuch")), (None, None, None));
    }
}
