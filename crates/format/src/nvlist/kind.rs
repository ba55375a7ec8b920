//! The types of values: their numbers, which both encodings use, and the size of their elements.

use super::NATIVE_LIST;
use crate::Corrupt;

macro_rules! kinds {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// Type of a value. The numbers are those on disk (docs/format/01-labels-uberblock.md §3).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(super) enum NvType {
            $($name = $number),*
        }

        impl NvType {
            /// The type with this number.
            pub(super) fn from_disk(number: u32) -> Result<NvType, Corrupt> {
                match number {
                    $($number => Ok(NvType::$name),)*
                    _ => Err(Corrupt::new("nvlist type", number.into())),
                }
            }
        }

        impl super::NvValue {
            /// Type of the value.
            pub(super) const fn kind(&self) -> NvType {
                match self {
                    $(super::NvValue::$name { .. } => NvType::$name,)*
                }
            }
        }
    };
}
kinds! {
    Boolean = 1,
    Byte = 2,
    Int16 = 3,
    Uint16 = 4,
    Int32 = 5,
    Uint32 = 6,
    Int64 = 7,
    Uint64 = 8,
    String = 9,
    ByteArray = 10,
    Int16Array = 11,
    Uint16Array = 12,
    Int32Array = 13,
    Uint32Array = 14,
    Int64Array = 15,
    Uint64Array = 16,
    StringArray = 17,
    Hrtime = 18,
    List = 19,
    ListArray = 20,
    BooleanValue = 21,
    Int8 = 22,
    Uint8 = 23,
    BooleanArray = 24,
    Int8Array = 25,
    Uint8Array = 26,
    Double = 27,
}

impl NvType {
    /// The number on disk.
    pub(super) const fn to_disk(self) -> u32 {
        self as u32
    }

    /// Refuses an element count that a value of this type cannot have: only arrays may have any count.
    pub(super) fn check_count(self, count: usize) -> Result<(), Corrupt> {
        let is_array =
            self.has_xdr_count() || matches!(self, Self::ByteArray | Self::StringArray | Self::ListArray);
        let scalar_count = if self == Self::Boolean { 0 } else { 1 };
        if !is_array && count != scalar_count {
            return Err(Corrupt::new("nvlist element count of a scalar", count as u64));
        }
        Ok(())
    }

    /// Whether XDR puts the element count before the elements once more.
    pub(super) const fn has_xdr_count(self) -> bool {
        use NvType::*;
        matches!(
            self,
            Int16Array
                | Uint16Array
                | Int32Array
                | Uint32Array
                | Int64Array
                | Uint64Array
                | BooleanArray
                | Int8Array
                | Uint8Array
        )
    }

    /// Bytes of one element in OpenZFS's memory. For strings, only the pointers of an array of them are counted.
    pub(super) const fn native_width(self) -> usize {
        use NvType::*;
        match self {
            Boolean | String => 0,
            Byte | Int8 | Uint8 | ByteArray | Int8Array | Uint8Array => 1,
            Int16 | Uint16 | Int16Array | Uint16Array => 2,
            Int32 | Uint32 | Int32Array | Uint32Array | BooleanValue | BooleanArray => 4,
            Int64 | Uint64 | Int64Array | Uint64Array | StringArray | Hrtime | Double => 8,
            List => NATIVE_LIST,
            ListArray => 8 + NATIVE_LIST,
        }
    }
}
