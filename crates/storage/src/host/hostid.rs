//! The number of the machine, as OpenZFS knows it.

/// Where the number of the machine is: of the kernel's module, of the machine.
const MODULE: &str = "/sys/module/spl/parameters/spl_hostid";
const FILE: &str = "/etc/hostid";
/// The variable that says another number.
const VARIABLE: &str = "ZFS_HOSTID";

/// The number of this machine; 0 if it has none. The variable `ZFS_HOSTID` comes first, then the kernel's module, then
/// `/etc/hostid`.
#[must_use]
pub fn hostid() -> u32 {
    if let Some(given) = std::env::var(VARIABLE).ok().and_then(|text| number(&text)) {
        return given;
    }
    let module = || number(&std::fs::read_to_string(MODULE).ok()?).filter(|id| *id != 0);
    let file = || Some(u32::from_le_bytes(*std::fs::read(FILE).ok()?.first_chunk()?));
    module().or_else(file).unwrap_or(0)
}

/// A number, hexadecimal after `0x`. Only its last 32 bits count.
fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.ok().map(|number| number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!(number("0x00bab10c\n"), Some(0x00ba_b10c));
        assert_eq!((number("12"), number("0"), number("x")), (Some(12), Some(0), None));
    }
}
