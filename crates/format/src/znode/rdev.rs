//! Device numbers: as Linux OpenZFS stores them, and as programs see them.

/// Major and minor of a stored number. Numbers beyond 32 bits are those of FreeBSD and illumos.
#[must_use]
pub const fn unpack(stored: u64) -> (u32, u32) {
    if stored >> 32 == 0 {
        ((stored >> 20) as u32, (stored & 0xf_ffff) as u32)
    } else {
        ((stored >> 32) as u32, stored as u32)
    }
}

/// The stored number; `None` when major or minor are beyond the 12 and 20 bits that Linux has.
#[must_use]
pub const fn pack(major: u32, minor: u32) -> Option<u64> {
    if major >> 12 != 0 || minor >> 20 != 0 {
        return None;
    }
    Some((major as u64) << 20 | minor as u64)
}

/// `st_rdev` as programs on Linux see it (glibc's `makedev`).
#[must_use]
pub const fn to_user(major: u32, minor: u32) -> u64 {
    let (major, minor) = (major as u64, minor as u64);
    (major & 0xfff) << 8 | (major >> 12) << 44 | (minor & 0xff) | (minor >> 8) << 20
}

/// Major and minor of an `st_rdev`.
#[must_use]
pub const fn from_user(device: u64) -> (u32, u32) {
    let major = (device >> 8 & 0xfff) | (device >> 44) << 12;
    let minor = (device & 0xff) | (device >> 20 & 0xff_ffff) << 8;
    (major as u32, minor as u32)
}
