//! Messages on a socket: length, JSON, and file descriptors beside them.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximal length of a message in bytes. The longest is a command line: Linux allows 6 MiB, and each byte of a word takes
/// up to four bytes here.
const LENGTH_MAX: u32 = 32 << 20;
/// Maximal number of file descriptors with one message: standard input, output and error.
const FDS_MAX: usize = 3;

/// Sends one message, with file descriptors.
///
/// # Errors
/// The other side is gone, or the message is too long.
pub fn send(mut stream: &UnixStream, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= LENGTH_MAX);
    let length =
        length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"))?;
    let header = length.to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "there is room for {FDS_MAX}");
    }
    let sent =
        retry_on_intr(|| sendmsg(stream, &[IoSlice::new(&header)], &mut control, SendFlags::NOSIGNAL))?;
    stream.write_all(&header[sent..])?;
    stream.write_all(&body)
}

/// Receives one message with its file descriptors; `None` when the other side closed the connection.
///
/// # Errors
/// The connection ended inside a message, or the bytes are no message.
pub fn receive<T: DeserializeOwned>(mut stream: &UnixStream) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut header = [0; 4];
    let mut fds = Vec::new();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut header)];
        recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            fds.extend(all);
        }
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut header[got.bytes..])?;
    let length = u32::from_le_bytes(header);
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    if length > LENGTH_MAX {
        return Err(invalid("the message is too long"));
    }
    let mut body = Vec::new();
    stream.take(length.into()).read_to_end(&mut body)?;
    if body.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&body)
        .map(|message| Some((message, fds)))
        .map_err(|error| invalid(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Job, Request};
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn a_message_arrives_with_its_file_descriptors() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut from, to) = UnixStream::pair().unwrap();
        let odd = std::ffi::OsString::from_vec(vec![b'a', 0xff]);
        let job = Job {
            program: "zfs".into(),
            words: vec![odd.clone()],
            whole: None,
            folder: "/".into(),
            umask: 0o22,
            posix: false,
        };
        send(&here, &Request::Run(job), &[to.as_fd()]).unwrap();
        drop(to);
        let (request, mut fds) = receive::<Request>(&there).unwrap().unwrap();
        assert!(matches!(request, Request::Run(job) if job.words == [odd]));
        let mut passed = UnixStream::from(fds.pop().unwrap());
        assert!(fds.is_empty());
        passed.write_all(b"x").unwrap();
        drop(passed);
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        drop(here);
        assert!(receive::<Request>(&there).unwrap().is_none());
    }

    #[test]
    fn a_command_line_may_be_as_long_as_the_system_lets_it_be() {
        let words = vec![std::ffi::OsString::from_vec(vec![0xff; 128 << 10]); 48];
        let job =
            Job { program: "zfs".into(), words, whole: None, folder: "/".into(), umask: 0o22, posix: false };
        let (here, there) = UnixStream::pair().unwrap();
        let sent = std::thread::spawn(move || send(&here, &Request::Run(job), &[]));
        let (request, _) = receive::<Request>(&there).unwrap().unwrap();
        sent.join().unwrap().unwrap();
        assert!(matches!(request, Request::Run(job) if job.words.len() == 48));
    }

    #[test]
    fn invalid_messages_are_refused_without_taking_memory() {
        for bytes in [&b"\xff\xff\xff\xff"[..], b"\x02\0\0\0{", b"\x02\0\0\0[]", b"\x01\0"] {
            let (mut here, there) = UnixStream::pair().unwrap();
            here.write_all(bytes).unwrap();
            drop(here);
            assert!(receive::<Request>(&there).is_err(), "{bytes:?}");
        }
    }
}
