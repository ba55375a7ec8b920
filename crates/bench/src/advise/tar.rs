//! Where the files of a tar lie, without reading them.
//!
//! `cenote tar -x` has a reader of its own (`cli/own/tar/archive.rs`). That one takes a stream from its start to its end, with
//! contents, owners and attributes, and refuses what is damaged. This one steps over the contents, whose places are all that
//! a survey needs, and takes a tar that is damaged or cut short as far as it goes.
//!
//! Source: POSIX pax interchange format (ustar headers; records of type x and g, GNU's L and K carry names).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const BLOCK: u64 = 512;
/// Longest name record that is read.
const NAME_MAX: u64 = 64 << 10;

/// A regular file in a tar.
pub(crate) struct Member {
    pub(crate) name: Vec<u8>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// A tar while its headers are read, one at a time.
pub(crate) struct Tar<'a> {
    file: &'a File,
    len: u64,
    at: u64,
    long_name: Option<Vec<u8>>,
    long_size: Option<u64>,
}

/// The content of a header.
pub(crate) enum Header {
    File(Member),
    /// Something that is no regular file.
    Other,
    /// The end, also of a tar that is cut short.
    End,
}

impl<'a> Tar<'a> {
    /// The tar in the first `len` bytes of a file; `None` if it is no tar.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn new(file: &'a File, len: u64) -> io::Result<Option<Tar<'a>>> {
        let tar = Tar { file, len, at: 0, long_name: None, long_size: None };
        Ok(tar.header()?.map(|_| tar))
    }

    /// The header that is next, and the bytes that follow it; `None` where there is none.
    fn header(&self) -> io::Result<Option<([u8; BLOCK as usize], u64)>> {
        let mut header = [0u8; BLOCK as usize];
        if self.at + BLOCK > self.len {
            return Ok(None);
        }
        self.file.read_exact_at(&mut header, self.at)?;
        let size = number(&header[124..136]).filter(|_| &header[257..262] == b"ustar");
        Ok(size.map(|size| (header, size)))
    }

    /// Reads the next header.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn next(&mut self) -> io::Result<Header> {
        let Some((header, size)) = self.header()? else { return Ok(Header::End) };
        let is_file = matches!(header[156], b'0' | 0 | b'7');
        let long_size = self.long_size.take();
        let size = match header[156] {
            // They are about the next entry.
            b'x' | b'g' | b'L' | b'K' => {
                self.long_size = long_size;
                size
            }
            // Links, devices, folders and pipes have no contents, whatever the header says.
            b'1'..=b'6' => 0,
            _ => long_size.unwrap_or(size),
        };
        let offset = self.at + BLOCK;
        let Some(next) = offset.checked_add(size).and_then(|end| end.checked_next_multiple_of(BLOCK)) else {
            return Ok(Header::End);
        };
        self.at = next;
        let is_whole = offset + size <= self.len;
        match header[156] {
            _ if is_file && is_whole => {
                let name = self.long_name.take().unwrap_or_else(|| until_zero(&header[..100]).to_vec());
                let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
                return Ok(Header::File(Member { name, offset, size }));
            }
            kind @ (b'L' | b'x') if size <= NAME_MAX && is_whole => {
                let mut data = vec![0; size as usize];
                self.file.read_exact_at(&mut data, offset)?;
                match kind {
                    b'L' => self.long_name = Some(until_zero(&data).to_vec()),
                    _ => self.extend(&data),
                }
            }
            b'x' | b'g' | b'L' | b'K' => {}
            _ => self.long_name = None,
        }
        Ok(Header::Other)
    }

    /// Reads the values that a pax header gives for the next file.
    fn extend(&mut self, data: &[u8]) {
        for (key, value) in pax(data) {
            match key {
                b"path" => self.long_name = Some(value.to_vec()),
                b"size" => self.long_size = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok()),
                _ => {}
            }
        }
    }
}

/// Octal digits, or a big-endian number after a byte with its top bit set.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        return Some(field[4..].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    }
    let text = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Records `LENGTH KEY=VALUE\n`.
fn pax(mut data: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut pairs = Vec::new();
    while let Some(blank) = data.iter().position(|byte| *byte == b' ') {
        let len = std::str::from_utf8(&data[..blank]).ok().and_then(|text| text.parse::<usize>().ok());
        let Some(record) = len.filter(|len| *len > blank + 1).and_then(|len| data.get(blank + 1..len - 1))
        else {
            break;
        };
        if let Some(equals) = record.iter().position(|byte| *byte == b'=') {
            pairs.push((&record[..equals], &record[equals + 1..]));
        }
        data = &data[len.expect("it has a record")..];
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn header(name: &str, size: usize, kind: u8) -> Vec<u8> {
        let mut block = vec![0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        block[156] = kind;
        block[257..262].copy_from_slice(b"ustar");
        block
    }

    fn tar(parts: &[Vec<u8>]) -> (File, u64) {
        let mut file = tempfile::tempfile().unwrap();
        for part in parts {
            let mut padded = part.clone();
            padded.resize(part.len().next_multiple_of(512), 0);
            file.write_all(&padded).unwrap();
        }
        let len = file.metadata().unwrap().len();
        (file, len)
    }

    fn members(file: &File, len: u64) -> Option<Vec<Member>> {
        let mut tar = Tar::new(file, len).unwrap()?;
        let mut members = Vec::new();
        loop {
            match tar.next().unwrap() {
                Header::File(member) => members.push(member),
                Header::Other => {}
                Header::End => return Some(members),
            }
        }
    }

    #[test]
    fn members_are_found_with_their_names_and_places() {
        let pax = b"23 path=long/name.fits\n".to_vec();
        let parts = [
            header("dir/", 0, b'5'),
            header("dir/a.txt", 5, b'0'),
            b"hello".to_vec(),
            header("x", pax.len(), b'x'),
            pax,
            header("short", 600, b'0'),
            vec![1; 600],
            vec![0; 1024],
        ];
        let (file, len) = tar(&parts);
        let members = members(&file, len).unwrap();
        let found: Vec<_> = members
            .iter()
            .map(|m| (String::from_utf8_lossy(&m.name).into_owned(), m.offset, m.size))
            .collect();
        assert_eq!(found[0], ("a.txt".to_owned(), 1024, 5));
        assert_eq!(found[1], ("name.fits".to_owned(), 3072, 600));
    }

    #[test]
    fn a_pax_header_is_valid_only_for_the_next_entry_of_any_type() {
        let pax = b"11 size=512\n".to_vec();
        let parts = [
            header("x", pax.len(), b'x'),
            pax,
            header("dir/", 0, b'5'),
            header("a.txt", 600, b'0'),
            vec![1; 600],
            header("b.txt", 5, b'0'),
            b"hello".to_vec(),
        ];
        let (file, len) = tar(&parts);
        let sizes: Vec<_> = members(&file, len).unwrap().iter().map(|member| member.size).collect();
        assert_eq!(sizes, [600, 5]);
    }

    #[test]
    fn invalid_and_truncated_tars_are_harmless() {
        let (file, len) = tar(&[b"just text".to_vec()]);
        assert!(members(&file, len).is_none());
        let (file, len) = tar(&[header("a", 1 << 30, b'0')]);
        assert_eq!(members(&file, len).unwrap().len(), 0);
    }
}
