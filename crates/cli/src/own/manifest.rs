//! One JSON object per file, with the fields of the golden manifests (fixtures/golden/README.md).

use std::fmt::Write;

use format::ObjectId;
use sha2::{Digest, Sha256};
use zpl::{FileKind, Filesystem, Piece, Result, Time};

/// Zeros, for holes.
const ZEROS: &[u8] = &[0; 64 << 10];

/// The word for a kind of file.
pub fn word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Fifo => "fifo",
        FileKind::CharDevice => "chardev",
        FileKind::Directory => "dir",
        FileKind::BlockDevice => "blockdev",
        FileKind::Regular => "file",
        FileKind::Symlink => "symlink",
        FileKind::Socket => "socket",
    }
}

/// Nanoseconds since 1970.
pub fn nanoseconds(time: Time) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

/// "major:minor".
pub fn device(rdev: u64) -> String {
    let (major, minor) = format::znode::rdev::from_user(rdev);
    format!("{major}:{minor}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Text with bytes that are no UTF-8 written as `\xff`.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk
            .invalid()
            .iter()
            .for_each(|byte| write!(text, "\\x{byte:02x}").expect("a string takes everything"));
    }
    text
}

/// The line about object `id`.
///
/// # Errors
/// Something of it cannot be read.
pub fn line(fs: &Filesystem, path: &[u8], id: ObjectId, with_sum: bool) -> Result<String> {
    let stat = fs.stat(id)?;
    let mut text = String::with_capacity(256);
    match std::str::from_utf8(path) {
        Ok(path) => write!(text, "{{\"path\": {}", quoted(path)),
        Err(_) => write!(text, "{{\"path_hex\": \"{}\"", hex(path)),
    }
    .expect("a string takes everything");
    let mut add = |key: &str, value: std::fmt::Arguments| {
        write!(text, ", \"{key}\": {value}").expect("a string takes everything");
    };
    add("type", format_args!("\"{}\"", word(stat.kind)));
    add("mode", format_args!("\"{:04o}\"", stat.mode));
    add("uid", format_args!("{}", stat.uid));
    add("gid", format_args!("{}", stat.gid));
    add("nlink", format_args!("{}", stat.nlink));
    add("ino", format_args!("{}", stat.id.0));
    add("size", format_args!("{}", stat.size));
    add("blocks", format_args!("{}", stat.blocks));
    add("mtime_ns", format_args!("{}", nanoseconds(stat.mtime)));
    add("ctime_ns", format_args!("{}", nanoseconds(stat.ctime)));
    match stat.kind {
        FileKind::Regular => {
            let runs: Vec<String> =
                fs.data_runs(id)?.into_iter().map(|(offset, len)| format!("[{offset}, {len}]")).collect();
            add("data", format_args!("[{}]", runs.join(", ")));
            if with_sum {
                add("sha256", format_args!("\"{}\"", hex(&sha256(fs, id)?)));
            }
        }
        FileKind::Symlink => add("target", format_args!("{}", quoted(&escaped(&fs.readlink(id)?)))),
        kind if kind.is_device() => add("rdev", format_args!("\"{}\"", device(stat.rdev))),
        _ => {}
    }
    let mut names = fs.xattr_list(id)?;
    names.sort();
    let mut xattrs = Vec::new();
    for name in names {
        if let Some(value) = fs.xattr_get(id, &name)? {
            xattrs.push(format!("{}: \"{}\"", quoted(&escaped(&name)), hex(&value)));
        }
    }
    if !xattrs.is_empty() {
        add("xattrs", format_args!("{{{}}}", xattrs.join(", ")));
    }
    text.push('}');
    Ok(text)
}

/// The sum over a file's contents, holes being zeros.
pub fn sha256(fs: &Filesystem, id: ObjectId) -> Result<[u8; 32]> {
    let mut sum = Sha256::new();
    for piece in fs.read_records(id)? {
        let piece = piece?;
        match &piece {
            Piece::Data { .. } => sum.update(piece.data().unwrap_or_default()),
            Piece::Hole { len, .. } => {
                let mut left = *len;
                while left > 0 {
                    let now = left.min(ZEROS.len() as u64);
                    sum.update(&ZEROS[..now as usize]);
                    left -= now;
                }
            }
        }
    }
    Ok(sum.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_spelled_out() {
        assert_eq!(escaped(b"a\xffb\xc3\xa9"), "a\\xffbé");
        assert_eq!(hex(&[0, 255, 16]), "00ff10");
    }

    #[test]
    fn times_before_1970_are_negative() {
        assert_eq!(nanoseconds(Time { secs: -1, nanos: 999_999_999 }), -1);
    }
}
