//! Headers of POSIX tar streams in the pax format.
//!
//! From:   what is known of a file.
//! To:     blocks of 512 bytes: an extended header where fields of the old header are too small, then the header itself.

use std::io::{self, Write};

use zpl::{FileKind, Time};

use super::acl;

/// Bytes of a block of a tar stream.
pub const BLOCK: usize = 512;
/// Bytes of a name in a header.
const NAME_MAX: usize = 100;
/// The largest number in a field of seven octal digits.
const SMALL_MAX: u64 = 0o777_7777;
/// The largest number in a field of eleven octal digits.
const LARGE_MAX: u64 = 0o777_7777_7777;

/// The header of a member of a tar stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Path in the stream, without a slash at the end.
    pub path: Vec<u8>,
    /// The type of the member.
    pub kind: FileKind,
    /// One more name of a member before: its path.
    pub linked: Option<Vec<u8>>,
    /// Where a symbolic link leads.
    pub target: Vec<u8>,
    /// Permission bits (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of contents.
    pub mtime: Time,
    /// Last access.
    pub atime: Time,
    /// Major and minor device number.
    pub device: (u64, u64),
    /// Bytes that follow the header.
    pub stored: u64,
    /// Bytes of the file, if it has holes and a map of its data precedes them.
    pub sparse: Option<u64>,
    /// Extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// ACLs that a stream has as text, each with the extended attribute that it becomes.
    pub acls: Vec<(&'static [u8], Vec<u8>)>,
}

impl Member {
    /// Writes the headers.
    ///
    /// # Errors
    /// The reader of the stream is gone.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut name = self.path.clone();
        if self.kind == FileKind::Directory {
            name.push(b'/');
        }
        let link = self.linked.as_ref().unwrap_or(&self.target);
        let records = self.records(&name, link);
        if !records.is_empty() {
            let extended =
                Fields { name: b"PaxHeader", flag: b'x', size: records.len() as u64, ..Fields::EMPTY };
            out.write_all(&extended.block())?;
            out.write_all(&records)?;
            pad(out, records.len() as u64)?;
        }
        let fields = Fields {
            name: &name,
            flag: self.flag(),
            mode: self.mode,
            owner: (self.uid, self.gid),
            size: self.stored,
            mtime: u64::try_from(self.mtime.secs).unwrap_or(0),
            link,
            device: self.device,
        };
        out.write_all(&fields.block())
    }

    fn flag(&self) -> u8 {
        match self.kind {
            _ if self.linked.is_some() => b'1',
            FileKind::Symlink => b'2',
            FileKind::CharDevice => b'3',
            FileKind::BlockDevice => b'4',
            FileKind::Directory => b'5',
            FileKind::Fifo => b'6',
            FileKind::Regular | FileKind::Socket => b'0',
        }
    }

    /// The records of the extended header.
    fn records(&self, name: &[u8], link: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        if [name, link].iter().any(|text| text.len() > NAME_MAX && std::str::from_utf8(text).is_err()) {
            record(&mut all, b"hdrcharset", b"BINARY");
        }
        match self.sparse {
            Some(size) => {
                record(&mut all, b"GNU.sparse.major", b"1");
                record(&mut all, b"GNU.sparse.minor", b"0");
                record(&mut all, b"GNU.sparse.name", name);
                record(&mut all, b"GNU.sparse.realsize", size.to_string().as_bytes());
            }
            None if name.len() > NAME_MAX => record(&mut all, b"path", name),
            None => {}
        }
        if link.len() > NAME_MAX {
            record(&mut all, b"linkpath", link);
        }
        if self.stored > LARGE_MAX {
            record(&mut all, b"size", self.stored.to_string().as_bytes());
        }
        for (key, id) in [(b"uid", self.uid), (b"gid", self.gid)] {
            if u64::from(id) > SMALL_MAX {
                record(&mut all, key, id.to_string().as_bytes());
            }
        }
        // A further name has the attributes of the first one.
        if self.linked.is_none() {
            record(&mut all, b"mtime", decimal(self.mtime).as_bytes());
            record(&mut all, b"atime", decimal(self.atime).as_bytes());
            for (name, value) in &self.xattrs {
                // GNU tar takes the text with --acls, and the attribute without.
                if let Some((key, text)) = acl::record_of(name, value) {
                    record(&mut all, key, text.as_bytes());
                }
                record(&mut all, &xattr_key(name), value);
            }
        }
        all
    }
}

/// The key of an extended attribute. GNU tar and libarchive read `%3D` as `=`, which ends a key.
fn xattr_key(name: &[u8]) -> Vec<u8> {
    let mut key = b"SCHILY.xattr.".to_vec();
    for byte in name {
        match byte {
            b'=' => key.extend_from_slice(b"%3D"),
            b'%' => key.extend_from_slice(b"%25"),
            byte => key.push(*byte),
        }
    }
    key
}

/// Adds `LENGTH KEY=VALUE\n`; the length counts itself.
fn record(all: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    all.extend_from_slice(len.to_string().as_bytes());
    all.push(b' ');
    all.extend_from_slice(key);
    all.push(b'=');
    all.extend_from_slice(value);
    all.push(b'\n');
}

/// A time as a decimal number of seconds.
fn decimal(time: Time) -> String {
    let nanos = i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    let (sign, size) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let (secs, part) = (size / 1_000_000_000, size % 1_000_000_000);
    if part == 0 { format!("{sign}{secs}") } else { format!("{sign}{secs}.{part:09}") }
}

/// Fills the last block of `len` bytes with zeros.
///
/// # Errors
/// The reader of the stream is gone.
pub fn pad(out: &mut impl Write, len: u64) -> io::Result<()> {
    let rest = (len % BLOCK as u64) as usize;
    if rest == 0 { Ok(()) } else { out.write_all(&[0; BLOCK][rest..]) }
}

/// The map of a file with holes: how many pieces of data there are, then where each begins and its length, one number a
/// line, in whole blocks.
pub fn sparse_map(runs: &[(u64, u64)], size: u64) -> Vec<u8> {
    // The last entry says where the file ends.
    let end = runs.last().is_none_or(|(offset, len)| offset + len < size).then_some((size, 0));
    let entries = runs.len() + usize::from(end.is_some());
    let mut map = format!("{entries}\n").into_bytes();
    for (offset, len) in runs.iter().chain(&end) {
        map.extend_from_slice(format!("{offset}\n{len}\n").as_bytes());
    }
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}

/// The fields of one header.
struct Fields<'a> {
    name: &'a [u8],
    flag: u8,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    mtime: u64,
    link: &'a [u8],
    device: (u64, u64),
}

impl Fields<'_> {
    const EMPTY: Fields<'static> = Fields {
        name: b"",
        flag: b'0',
        mode: 0,
        owner: (0, 0),
        size: 0,
        mtime: 0,
        link: b"",
        device: (0, 0),
    };

    /// The block. Values that are too large for a field are in the extended header before it.
    fn block(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        put(&mut block[0..100], self.name);
        octal(&mut block[100..108], self.mode.into());
        octal(&mut block[108..116], self.owner.0.into());
        octal(&mut block[116..124], self.owner.1.into());
        octal(&mut block[124..136], self.size);
        octal(&mut block[136..148], self.mtime);
        block[148..156].fill(b' ');
        block[156] = self.flag;
        put(&mut block[157..257], self.link);
        put(&mut block[257..265], b"ustar\x0000");
        octal(&mut block[329..337], self.device.0);
        octal(&mut block[337..345], self.device.1);
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        octal(&mut block[148..155], sum);
        block
    }
}

/// The beginning of `text`, as much as the field holds.
fn put(field: &mut [u8], text: &[u8]) {
    let len = text.len().min(field.len());
    field[..len].copy_from_slice(&text[..len]);
}

/// A number in octal digits with a zero byte behind it; 0 if the field is too small.
fn octal(field: &mut [u8], number: u64) {
    let digits = field.len() - 1;
    let fits = number >> (3 * digits) == 0;
    let text = format!("{:0digits$o}", if fits { number } else { 0 });
    put(field, text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_record_counts_itself() {
        for len in 0..1200 {
            let mut all = Vec::new();
            record(&mut all, b"path", &vec![b'a'; len]);
            let text = String::from_utf8(all.clone()).expect("ASCII");
            let (number, _) = text.split_once(' ').expect("a length");
            assert_eq!(number.parse::<usize>().expect("a number"), all.len());
        }
    }

    #[test]
    fn times_before_1970_are_negative_numbers() {
        let time = |secs, nanos| decimal(Time { secs, nanos });
        assert_eq!(time(-1, 500_000_000), "-0.500000000");
        assert_eq!(time(-2, 0), "-2");
        assert_eq!(time(7, 1), "7.000000001");
    }

    #[test]
    fn a_map_says_where_the_file_ends() {
        let map = sparse_map(&[(0, 512)], 4096);
        assert!(map.len() == BLOCK && map.starts_with(b"2\n0\n512\n4096\n0\n\0"));
        assert!(sparse_map(&[(512, 512)], 1024).starts_with(b"1\n512\n512\n\0"));
        assert!(sparse_map(&[], 9).starts_with(b"1\n9\n0\n\0"));
    }

    #[test]
    fn numbers_that_do_not_fit_are_left_to_the_extended_header() {
        let mut field = [9; 8];
        octal(&mut field, SMALL_MAX);
        assert_eq!(&field[..7], b"7777777");
        octal(&mut field, SMALL_MAX + 1);
        assert_eq!(&field[..7], b"0000000");
    }
}
