//! Kinds of files, by their names or by how they begin.

/// Files whose name says nothing.
pub(crate) const NONE: &str = "(none)";
/// A longer extension is no kind but a part of a name.
const EXTENSION_MAX: usize = 8;

/// The kind by the extension: `A.TXT` → `txt`, `libc.so.6` → `so`, `README` → [`NONE`].
pub(crate) fn by_name(name: &[u8]) -> String {
    let mut parts = name.split(|byte| *byte == b'.').rev();
    let mut left = parts.clone().count();
    let kind = parts.find(|part| {
        left -= 1;
        // The part before the first point is the name; versions are no kinds.
        left == 0 || !part.iter().all(u8::is_ascii_digit)
    });
    match kind {
        Some(kind)
            if left > 0
                && (1..=EXTENSION_MAX).contains(&kind.len())
                && kind.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-+".contains(byte)) =>
        {
            String::from_utf8_lossy(kind).to_ascii_lowercase()
        }
        _ => NONE.to_owned(),
    }
}

/// How files of some kinds begin: (offset, bytes, kind).
const BEGINNINGS: [(usize, &[u8], &str); 16] = [
    (0, b"\x1f\x8b", "gz"),
    (0, b"\xfd7zXZ\0", "xz"),
    (0, b"\x28\xb5\x2f\xfd", "zst"),
    (0, b"BZh", "bz2"),
    (0, b"\x04\x22\x4d\x18", "lz4"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (0, b"PK\x03\x04", "zip"),
    (0, b"\x89PNG", "png"),
    (0, b"\xff\xd8\xff", "jpg"),
    (0, b"GIF8", "gif"),
    (0, b"%PDF", "pdf"),
    (0, b"\x7fELF", "elf"),
    (0, b"SQLite format 3", "sqlite"),
    (0, b"SIMPLE  =", "fits"),
    (4, b"ftyp", "mp4"),
    (257, b"ustar", "tar"),
];

/// The kind by the first bytes, where they say anything.
pub(crate) fn by_content(head: &[u8]) -> Option<&'static str> {
    let known =
        BEGINNINGS.iter().find(|(at, bytes, _)| head.get(*at..).is_some_and(|rest| rest.starts_with(bytes)));
    known.map(|(_, _, kind)| *kind).or_else(|| {
        let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..);
        (!head.is_empty() && std::str::from_utf8(head).is_ok() && head.iter().all(is_text))
            .then_some("(text)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_is_the_kind() {
        for (name, kind) in [
            ("A.TXT", "txt"),
            ("libcrypto.so.3", "so"),
            ("syslog.1", NONE),
            ("app.log.12", "log"),
            ("x.tar.gz", "gz"),
            ("README", NONE),
            (".bashrc", "bashrc"),
            ("linux-6.1", NONE),
            ("a.much-too-long", NONE),
            ("1", NONE),
            ("", NONE),
        ] {
            assert_eq!(by_name(name.as_bytes()), kind, "{name}");
        }
    }

    #[test]
    fn files_without_an_extension_are_recognised_by_their_first_bytes() {
        assert_eq!(by_content(b"\x7fELF\x02\x01"), Some("elf"));
        assert_eq!(by_content(b"#!/bin/sh\n"), Some("(text)"));
        assert_eq!(by_content(b"\x00\x01\x02"), None);
        assert_eq!(by_content(b""), None);
    }
}
