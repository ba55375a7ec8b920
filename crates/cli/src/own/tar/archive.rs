//! Members of a tar stream: POSIX (pax and ustar) and GNU headers.
//!
//! From:   a stream of unknown origin.
//! To:     `extract`, which makes what the members say. Any bytes give members or an error, in bounded memory.
//! Source: POSIX.1-2017, pax; the GNU tar manual, "Storing sparse files".

use std::io::{self, Read};

use zpl::{FileKind, Time};

use super::acl;
use super::header::{BLOCK, Member};

/// Bytes of an extended header at most: attributes of 64 KiB each, and names.
const EXTENDED_MAX: u64 = 8 << 20;
/// Bytes of a long name at most.
const LONG_MAX: u64 = 64 << 10;
/// Pieces of data of a file with holes at most.
const PIECES_MAX: u64 = 1 << 20;
/// Bytes of a file at most, as everywhere in Linux.
const SIZE_MAX: u64 = i64::MAX as u64;
/// The latest time that a stream may have. A later time counts as damage.
const SECONDS_MAX: u64 = 1 << 40;

/// Why a stream ends before its end.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The stream ends in the middle of a member.
    #[error("the stream is cut off")]
    CutOff,
    /// The bytes there are no header.
    #[error("this is no tar stream, or it is damaged: {0}")]
    Damaged(&'static str),
    /// The stream has a part that is not supported.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}

/// A tar stream that is read from its start to its end.
pub struct Archive<R> {
    stream: R,
    /// Bytes of the last member that were not read, with what fills its last block.
    left: u64,
    padding: u64,
}

/// The values that extended headers give for the next member.
#[derive(Default)]
struct Extended {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
    mtime: Option<Time>,
    atime: Option<Time>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    acls: Vec<(&'static [u8], Vec<u8>)>,
    /// The size of a file with holes.
    real_size: Option<u64>,
    /// The version of the format for holes.
    sparse: Option<(u64, u64)>,
    sparse_path: Option<Vec<u8>>,
}

impl<R: Read> Archive<R> {
    pub fn new(stream: R) -> Archive<R> {
        Archive { stream, left: 0, padding: 0 }
    }

    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, Broken> {
        let mut block = [0; BLOCK];
        let mut at = 0;
        while at < BLOCK {
            match self.stream.read(&mut block[at..]) {
                Ok(0) if at == 0 => return Ok(None),
                Ok(0) => return Err(Broken::CutOff),
                Ok(read) => at += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(block))
    }

    fn exact(&mut self, buffer: &mut [u8]) -> Result<(), Broken> {
        self.stream.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Broken::CutOff,
            _ => error.into(),
        })
    }

    /// Reads bytes of the member: none at its end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Broken> {
        let len = (buffer.len() as u64).min(self.left) as usize;
        self.exact(&mut buffer[..len])?;
        self.left -= len as u64;
        Ok(len)
    }

    fn skip(&mut self) -> Result<(), Broken> {
        let all = self.left + self.padding;
        let skipped = io::copy(&mut self.stream.by_ref().take(all), &mut io::sink())?;
        (self.left, self.padding) = (0, 0);
        if skipped == all { Ok(()) } else { Err(Broken::CutOff) }
    }

    fn begin(&mut self, size: u64) -> Result<(), Broken> {
        if size > SIZE_MAX {
            return Err(Broken::Damaged("a size"));
        }
        (self.left, self.padding) = (size, size.wrapping_neg() % BLOCK as u64);
        Ok(())
    }

    /// The bytes of a member that is about the next one.
    fn whole(&mut self, size: u64, max: u64) -> Result<Vec<u8>, Broken> {
        if size > max {
            return Err(Broken::Damaged("an extended header is longer than any needs"));
        }
        self.begin(size)?;
        let mut all = vec![0; size as usize];
        self.exact(&mut all)?;
        self.left = 0;
        self.skip()?;
        Ok(all)
    }

    /// The next member; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Member>, Broken> {
        self.skip()?;
        let (mut extended, mut global) = (Extended::default(), Extended::default());
        let mut is_first = true;
        loop {
            let Some(block) = self.block()? else { return Err(Broken::CutOff) };
            if block == [0; BLOCK] {
                // The sender of the stream can end only when everything is read, also the bytes behind the end.
                io::copy(&mut self.stream, &mut io::sink())?;
                return if is_first {
                    Ok(None)
                } else {
                    Err(Broken::Damaged("an extended header is the last"))
                };
            }
            is_first = false;
            check_sum(&block)?;
            let size = number(&block[124..136])?;
            match block[156] {
                b'x' => read_records(&self.whole(size, EXTENDED_MAX)?, &mut extended)?,
                b'g' => read_records(&self.whole(size, EXTENDED_MAX)?, &mut global)?,
                b'L' => extended.path = Some(text(&self.whole(size, LONG_MAX)?).to_vec()),
                b'K' => extended.link = Some(text(&self.whole(size, LONG_MAX)?).to_vec()),
                _ => return self.member(&block, extended).map(Some),
            }
        }
    }

    /// The member of a header.
    fn member(&mut self, block: &[u8; BLOCK], extended: Extended) -> Result<Member, Broken> {
        let flag = block[156];
        let kind = match flag {
            b'0' | 0 | b'7' | b'1' => FileKind::Regular,
            b'2' => FileKind::Symlink,
            b'3' => FileKind::CharDevice,
            b'4' => FileKind::BlockDevice,
            b'5' => FileKind::Directory,
            b'6' => FileKind::Fifo,
            b'S' => {
                return Err(Broken::Unsupported(
                    "files with holes in GNU's old format; use 'tar --format=pax'",
                ));
            }
            _ => return Err(Broken::Unsupported("a kind of member that POSIX does not have")),
        };
        let size = extended.size.map_or_else(|| number(&block[124..136]), Ok)?;
        let mut path = extended.path.unwrap_or_else(|| name_of(block));
        // Long ago, folders were files with a slash at the end of their names.
        let is_folder = kind == FileKind::Directory || flag == 0 && path.ends_with(b"/");
        let has_bytes = kind == FileKind::Regular && flag != b'1' && !is_folder;
        self.begin(if has_bytes { size } else { 0 })?;
        let sparse = match (extended.sparse, extended.real_size) {
            (None, None) => None,
            (Some((1, 0)), Some(size)) if has_bytes => Some(size),
            _ => return Err(Broken::Unsupported("files with holes in another format than 1.0")),
        };
        if sparse.is_some() {
            path = extended.sparse_path.unwrap_or(path);
        }
        let link = extended.link.unwrap_or_else(|| text(&block[157..257]).to_vec());
        let is_device = kind.is_device();
        let id = |field: &[u8], better: Option<u32>| match better {
            Some(id) => Ok(id),
            None => u32::try_from(number(field)?).map_err(|_| Broken::Damaged("an owner's number")),
        };
        let mtime = match extended.mtime {
            Some(time) => time,
            None => Time { secs: seconds(&block[136..148])?, nanos: 0 },
        };
        Ok(Member {
            path,
            kind: if is_folder { FileKind::Directory } else { kind },
            linked: (flag == b'1').then(|| link.clone()),
            target: if kind == FileKind::Symlink { link } else { Vec::new() },
            mode: (number(&block[100..108])? & 0o7777) as u32,
            uid: id(&block[108..116], extended.uid)?,
            gid: id(&block[116..124], extended.gid)?,
            mtime,
            atime: extended.atime.unwrap_or(mtime),
            device: if is_device { (number(&block[329..337])?, number(&block[337..345])?) } else { (0, 0) },
            stored: if has_bytes { size } else { 0 },
            sparse,
            xattrs: extended.xattrs,
            acls: extended.acls,
        })
    }

    /// The list of the pieces of data of a file with holes. It precedes the data.
    pub fn map(&mut self, size: u64) -> Result<Vec<(u64, u64)>, Broken> {
        const BAD: Broken = Broken::Damaged("the map of a file with holes");
        let mut numbers = MapNumbers { archive: self, block: Vec::new(), at: 0 };
        let count = numbers.next()?;
        if count > PIECES_MAX {
            return Err(BAD);
        }
        let (mut pieces, mut end) = (Vec::new(), 0u64);
        for _ in 0..count {
            let (offset, len) = (numbers.next()?, numbers.next()?);
            let until = offset.checked_add(len).filter(|until| offset >= end && *until <= size).ok_or(BAD)?;
            end = until;
            if len > 0 {
                pieces.push((offset, len));
            }
        }
        let data = pieces.iter().map(|(_, len)| len).sum::<u64>();
        if data == self.left { Ok(pieces) } else { Err(BAD) }
    }
}

/// Numbers in lines, in blocks of a member.
struct MapNumbers<'a, R> {
    archive: &'a mut Archive<R>,
    block: Vec<u8>,
    at: usize,
}

impl<R: Read> MapNumbers<'_, R> {
    fn next(&mut self) -> Result<u64, Broken> {
        const BAD: Broken = Broken::Damaged("the map of a file with holes");
        let (mut value, mut digits) = (0u64, 0);
        loop {
            if self.at == self.block.len() {
                self.block.resize(BLOCK, 0);
                if self.archive.read(&mut self.block)? != BLOCK {
                    return Err(BAD);
                }
                self.at = 0;
            }
            let byte = self.block[self.at];
            self.at += 1;
            match byte {
                b'0'..=b'9' if digits < 20 => {
                    value = value
                        .checked_mul(10)
                        .and_then(|v| v.checked_add(u64::from(byte - b'0')))
                        .ok_or(BAD)?;
                    digits += 1;
                }
                b'\n' if digits > 0 => return Ok(value),
                _ => return Err(BAD),
            }
        }
    }
}

/// A field up to its first zero byte.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or(field)
}

fn name_of(block: &[u8; BLOCK]) -> Vec<u8> {
    let (name, prefix) = (text(&block[..100]), text(&block[345..500]));
    if &block[257..263] != b"ustar\0" || prefix.is_empty() {
        return name.to_vec();
    }
    [prefix, b"/", name].concat()
}

fn check_sum(block: &[u8; BLOCK]) -> Result<(), Broken> {
    let of_field = 8 * u64::from(b' ');
    let sum: u64 = block[..148].iter().chain(&block[156..]).map(|byte| u64::from(*byte)).sum();
    if number(&block[148..156])? == sum + of_field {
        Ok(())
    } else {
        Err(Broken::Damaged("a header's checksum"))
    }
}

/// A number in octal digits, or in GNU's binary form; it is not negative.
fn number(field: &[u8]) -> Result<u64, Broken> {
    const BAD: Broken = Broken::Damaged("a number in a header");
    if field[0] & 0x80 != 0 {
        let digits = [&[field[0] & 0x7f], &field[1..]].concat();
        return digits
            .iter()
            .try_fold(0u64, |all, byte| Some(all.checked_mul(256)? + u64::from(*byte)))
            .ok_or(BAD);
    }
    let digits = text(field).trim_ascii();
    digits
        .iter()
        .try_fold(0u64, |all, byte| match byte {
            b'0'..=b'7' => all.checked_mul(8)?.checked_add(u64::from(byte - b'0')),
            _ => None,
        })
        .ok_or(BAD)
}

/// Seconds in a header: GNU writes those before 1970 in binary.
fn seconds(field: &[u8]) -> Result<i64, Broken> {
    if field[0] == 0xff {
        let bytes = field[field.len() - 8..].try_into().expect("eight bytes");
        return Ok(i64::from_be_bytes(bytes).max(-(SECONDS_MAX as i64)));
    }
    Ok(number(field)?.min(SECONDS_MAX) as i64)
}

/// Reads the records of an extended header: `LENGTH KEY=VALUE\n`.
fn read_records(mut all: &[u8], extended: &mut Extended) -> Result<(), Broken> {
    const BAD: Broken = Broken::Damaged("an extended header");
    while !all.is_empty() {
        let space = all.iter().take(20).position(|byte| *byte == b' ').ok_or(BAD)?;
        let len: usize = std::str::from_utf8(&all[..space]).ok().and_then(|n| n.parse().ok()).ok_or(BAD)?;
        let record = all.get(space + 1..len).and_then(|record| record.strip_suffix(b"\n")).ok_or(BAD)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(BAD)?;
        take_record(&record[..equals], &record[equals + 1..], extended)?;
        all = &all[len..];
    }
    Ok(())
}

fn take_record(key: &[u8], value: &[u8], extended: &mut Extended) -> Result<(), Broken> {
    const BAD: Broken = Broken::Damaged("a value of an extended header");
    let number = || std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok()).ok_or(BAD);
    let id = || number().and_then(|id| u32::try_from(id).map_err(|_| BAD));
    let version = extended.sparse.unwrap_or((0, 0));
    match key {
        b"path" => extended.path = Some(value.to_vec()),
        b"linkpath" => extended.link = Some(value.to_vec()),
        b"size" => extended.size = Some(number()?),
        b"uid" => extended.uid = Some(id()?),
        b"gid" => extended.gid = Some(id()?),
        b"mtime" => extended.mtime = Some(time(value).ok_or(BAD)?),
        b"atime" => extended.atime = Some(time(value).ok_or(BAD)?),
        b"GNU.sparse.major" => extended.sparse = Some((number()?, version.1)),
        b"GNU.sparse.minor" => extended.sparse = Some((version.0, number()?)),
        b"GNU.sparse.realsize" => extended.real_size = Some(number()?),
        b"GNU.sparse.name" => extended.sparse_path = Some(value.to_vec()),
        b"GNU.sparse.map" | b"GNU.sparse.size" => extended.sparse = Some((0, 1)),
        _ => {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                extended.xattrs.push((unescaped(name), value.to_vec()));
            } else if let Some(name) = acl::attribute_of(key) {
                extended.acls.push((name, value.to_vec()));
            }
        }
    }
    Ok(())
}

/// The name of an extended attribute, in which `%3D` stands for `=` and `%25` for `%`.
fn unescaped(mut name: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((first, rest)) = name.split_first() {
        match name.get(..3) {
            Some(b"%3D" | b"%3d") => (out.push(b'='), name = &name[3..]).1,
            Some(b"%25") => (out.push(b'%'), name = &name[3..]).1,
            _ => (out.push(*first), name = rest).1,
        }
    }
    out
}

/// A decimal number of seconds, with digits behind a point.
fn time(text: &[u8]) -> Option<Time> {
    let text = std::str::from_utf8(text).ok()?;
    let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(part) {
        return None;
    }
    let secs = whole.parse::<u64>().ok()?.min(SECONDS_MAX) as i64;
    let digits = part.get(..9).unwrap_or(part);
    let nanos = format!("{digits:0<9}").parse::<u64>().ok()?;
    Some(match (is_negative, nanos) {
        (false, _) => Time { secs, nanos },
        (true, 0) => Time { secs: -secs, nanos: 0 },
        (true, _) => Time { secs: -secs - 1, nanos: 1_000_000_000 - nanos },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        let read = |text: &str| time(text.as_bytes()).map(|time| (time.secs, time.nanos));
        assert_eq!(read("7.000000001"), Some((7, 1)));
        assert_eq!(read("-0.500000000"), Some((-1, 500_000_000)));
        assert_eq!(read("-2"), Some((-2, 0)));
        assert_eq!(read("5.1234567891"), Some((5, 123_456_789)));
        assert_eq!((read(""), read("x"), read("1.-1"), read("--1")), (None, None, None, None));
    }

    #[test]
    fn numbers_are_octal_or_binary() {
        assert_eq!(number(b"0000644\0").unwrap(), 0o644);
        assert_eq!(number(b"   755 \0").unwrap(), 0o755);
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 1, 0]).unwrap(), 256);
        assert!(number(&[0xff; 12]).is_err() && number(b"9\0").is_err());
        assert_eq!(seconds(&[0xff; 12]).unwrap(), -1);
    }

    #[test]
    fn an_absurd_size_is_refused() {
        let mut block = [0; BLOCK];
        block[0] = b'x';
        block[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        block[148..156].fill(b' ');
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        assert!(matches!(Archive::new(&block[..]).next(), Err(Broken::Damaged("a size"))));
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        for len in [0, 1, 511, 512, 513, 5000] {
            for byte in [0u8, 1, b'0', 0xff] {
                let bytes = vec![byte; len];
                let mut archive = Archive::new(&bytes[..]);
                while let Ok(Some(_)) = archive.next() {}
            }
        }
        for records in
            [&b"5 a=\n"[..], b"99 a=b\n", b"x", b"3 =\n", b"0 a=b\n", b"1 ", b"18446744073709551616 a=b\n"]
        {
            let _ = read_records(records, &mut Extended::default());
        }
    }
}
