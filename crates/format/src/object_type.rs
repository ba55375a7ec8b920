//! DMU object types.
//!
//! Source: docs/format/03-dmu.md §4.

use core::fmt;

/// Type of an object, and of the blocks it owns, as dnodes and block pointers store it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectType(pub u8);

/// The byte-swap class of structured contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapClass {
    /// Bytes.
    U8,
    /// 16-bit words.
    U16,
    /// 32-bit words.
    U32,
    /// 64-bit words.
    U64,
    /// ZAP blocks.
    Zap,
    /// Dnode blocks.
    Dnode,
    /// Objset blocks.
    Objset,
    /// Legacy znodes.
    Znode,
    /// Legacy ACLs.
    OldAcl,
    /// ACLs.
    Acl,
}

macro_rules! types {
    ($($name:ident = $id:literal, $swap:ident, $metadata:literal, $encrypted:literal;)*) => {
        #[allow(missing_docs, reason = "docs/format/03-dmu.md describes each object type")]
        impl ObjectType {
            $(pub const $name: ObjectType = ObjectType($id);)*
        }
        /// (swap class, metadata, encrypted) of the old-style types, by number.
        const OLD: [(SwapClass, bool, bool); 54] = [$((SwapClass::$swap, $metadata, $encrypted)),*];
        const NAMES: [&str; 54] = [$(stringify!($name)),*];
    };
}

types! {
    NONE = 0, U8, true, false;
    OBJECT_DIRECTORY = 1, Zap, true, false;
    OBJECT_ARRAY = 2, U64, true, false;
    PACKED_NVLIST = 3, U8, true, false;
    PACKED_NVLIST_SIZE = 4, U64, true, false;
    BPOBJ = 5, U64, true, false;
    BPOBJ_HDR = 6, U64, true, false;
    SPACE_MAP_HEADER = 7, U64, true, false;
    SPACE_MAP = 8, U64, true, false;
    INTENT_LOG = 9, U64, true, true;
    DNODE = 10, Dnode, true, true;
    OBJSET = 11, Objset, true, false;
    DSL_DIR = 12, U64, true, false;
    DSL_DIR_CHILD_MAP = 13, Zap, true, false;
    DSL_DS_SNAP_MAP = 14, Zap, true, false;
    DSL_PROPS = 15, Zap, true, false;
    DSL_DATASET = 16, U64, true, false;
    ZNODE = 17, Znode, true, false;
    OLDACL = 18, OldAcl, true, true;
    PLAIN_FILE_CONTENTS = 19, U8, false, true;
    DIRECTORY_CONTENTS = 20, Zap, true, true;
    MASTER_NODE = 21, Zap, true, false;
    UNLINKED_SET = 22, Zap, true, true;
    ZVOL = 23, U8, false, true;
    ZVOL_PROP = 24, Zap, true, false;
    PLAIN_OTHER = 25, U8, false, true;
    UINT64_OTHER = 26, U64, false, true;
    ZAP_OTHER = 27, Zap, true, false;
    ERROR_LOG = 28, Zap, true, false;
    SPA_HISTORY = 29, U8, true, false;
    SPA_HISTORY_OFFSETS = 30, U64, true, false;
    POOL_PROPS = 31, Zap, true, false;
    DSL_PERMS = 32, Zap, true, false;
    ACL = 33, Acl, true, true;
    SYSACL = 34, U8, true, true;
    FUID = 35, U8, true, true;
    FUID_SIZE = 36, U64, true, false;
    NEXT_CLONES = 37, Zap, true, false;
    SCAN_QUEUE = 38, Zap, true, false;
    USERGROUP_USED = 39, Zap, true, true;
    USERGROUP_QUOTA = 40, Zap, true, true;
    USERREFS = 41, Zap, true, false;
    DDT_ZAP = 42, Zap, true, false;
    DDT_STATS = 43, Zap, true, false;
    SA = 44, U8, true, true;
    SA_MASTER_NODE = 45, Zap, true, true;
    SA_ATTR_REGISTRATION = 46, Zap, true, true;
    SA_ATTR_LAYOUTS = 47, Zap, true, true;
    SCAN_XLATE = 48, Zap, true, false;
    DEDUP = 49, U8, false, true;
    DEADLIST = 50, Zap, true, false;
    DEADLIST_HDR = 51, U64, true, false;
    DSL_CLONES = 52, Zap, true, false;
    BPOBJ_SUBOBJ = 53, U64, true, false;
}

impl ObjectType {
    /// Generic metadata bytes.
    pub const UINT8_METADATA: ObjectType = ObjectType(0xc0);
    /// Words of 32 bits that are metadata.
    pub const UINT32_METADATA: ObjectType = ObjectType(0xc2);
    /// Generic metadata `u64` array.
    pub const UINT64_METADATA: ObjectType = ObjectType(0xc3);
    /// Generic metadata ZAP (feature ZAPs, vdev ZAPs, zapified DSL objects).
    pub const ZAP_METADATA: ObjectType = ObjectType(0xc4);

    /// Whether OpenZFS knows this number.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.0 < 54 || (self.0 & 0x80 != 0 && self.0 & 0x1f < 10)
    }

    /// Whether blocks of this type follow the rules of metadata (compression, copies, checksum).
    #[must_use]
    pub const fn is_metadata(self) -> bool {
        if self.0 & 0x80 != 0 { self.0 & 0x40 != 0 } else { self.0 >= 54 || OLD[self.0 as usize].1 }
    }

    /// Whether blocks of this type are encrypted in encrypted datasets.
    #[must_use]
    pub const fn is_encrypted(self) -> bool {
        if self.0 & 0x80 != 0 { self.0 & 0x20 != 0 } else { self.0 < 54 && OLD[self.0 as usize].2 }
    }

    /// How contents are byte-swapped; `None` for an unknown type.
    #[must_use]
    pub const fn swap_class(self) -> Option<SwapClass> {
        if self.0 & 0x80 == 0 {
            return if self.0 < 54 { Some(OLD[self.0 as usize].0) } else { None };
        }
        Some(match self.0 & 0x1f {
            0 => SwapClass::U8,
            1 => SwapClass::U16,
            2 => SwapClass::U32,
            3 => SwapClass::U64,
            4 => SwapClass::Zap,
            5 => SwapClass::Dnode,
            6 => SwapClass::Objset,
            7 => SwapClass::Znode,
            8 => SwapClass::OldAcl,
            9 => SwapClass::Acl,
            _ => return None,
        })
    }
}

impl fmt::Debug for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "ObjectType({:#x})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chapter 13 lists them; ztest left pools whose blocks of type 27 have three copies in encrypted datasets.
    #[test]
    fn encrypted_types_are_those_of_openzfs() {
        let encrypted: alloc::vec::Vec<u8> = (0..54).filter(|id| ObjectType(*id).is_encrypted()).collect();
        assert_eq!(encrypted, [9, 10, 18, 19, 20, 22, 23, 25, 26, 33, 34, 35, 39, 40, 44, 45, 46, 47, 49]);
    }
}
