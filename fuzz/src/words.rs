//! Bodies for text and messages: of the socket between commands and servers, of command lines, of files of known pools.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;

use cenote_cli::args::assignment;
use cenote_cli::command::Program;
use cenote_cli::own::Cenote;
use cenote_cli::{args, compat, mount_helper, place::Place, programs, served};
use clap::Parser;
use format::NvList;
use pool::ResumeToken;
use pool::known::{self, Known};
use pool::props::{self, names, size};
use serde::{Serialize, de::DeserializeOwned};
use server::messages::{Ready, Reply, Request};
use server::visitors::{PROTOCOL, Question};
use server::wire;
use stream::Destination;

/// A socket takes so many bytes while nobody reads.
const SOCKET_MAX: usize = 100 << 10;

/// What either side may send the other: the first byte says which message is expected.
pub fn wire(data: &[u8]) {
    match data.split_first() {
        Some((0, rest)) => message::<Reply>(rest),
        Some((1, rest)) => message::<Ready>(rest),
        Some((2, rest)) => message::<Question>(rest),
        Some((_, rest)) => message::<Request>(rest),
        None => {}
    }
}

/// The bytes as a message, as they are and with their right length in front.
fn message<T: Serialize + DeserializeOwned + Debug>(data: &[u8]) {
    if data.len() > SOCKET_MAX {
        return;
    }
    let framed = [&(data.len() as u32).to_le_bytes()[..], data].concat();
    for bytes in [data, &framed] {
        let (mut here, there) = UnixStream::pair().expect("sockets can be made");
        here.write_all(bytes).expect("a socket takes this much");
        drop(here);
        let Ok(Some((message, _))) = wire::receive::<T>(&there) else { continue };
        let (here, there) = UnixStream::pair().expect("sockets can be made");
        wire::send(&here, &message, &[]).expect("what was read can be sent");
        let again = wire::receive::<T>(&there).expect("what was sent can be read").expect("it was sent");
        assert_eq!(format!("{:?}", again.0), format!("{message:?}"));
    }
}

/// A token as text, and one whose list is the input.
pub fn resume_token(data: &[u8]) {
    if let Ok(token) = ResumeToken::parse(&String::from_utf8_lossy(data)) {
        assert_eq!(ResumeToken::parse(&token.to_string()), Ok(token));
    }
    let Ok(list) = NvList::decode(data) else { return };
    if let Some(token) = ResumeToken::from_list(&list) {
        assert_eq!(ResumeToken::parse(&token.to_string()), Ok(token));
    }
}

/// The file of known pools, and a cache file.
pub fn pools_cache(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a scratch folder can be made");
    let file = folder.path().join("pools.cache");
    fs::write(&file, data).expect("the scratch folder can be written");
    let _ = known::cached_devices(&file);
    let _ = known::check_cachefile(&file);
    let known = Known::new(folder.path().to_path_buf());
    if let Ok(pools) = known.read() {
        // What is written of it reads back the same.
        let forgotten = known.update(|pools| pools.pop());
        let rest = known.read().expect("what was written can be read");
        assert_eq!(rest.len() + usize::from(forgotten.is_ok_and(|pool| pool.is_some())), pools.len());
    }
}

/// Lines are words of a command line.
fn words(data: &[u8]) -> Vec<OsString> {
    data.split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// The words of a command of `zpool`, `zfs` or `cenote`: they are read and judged, and nothing is carried out.
pub fn command_line(data: &[u8]) {
    let words = words(data);
    let _ = Cenote::try_parse_from(std::iter::once(OsString::from("cenote")).chain(words.iter().cloned()));
    for word in &words {
        let _ = (Place::parse(word), Place::parse_to_read(word), Place::parse_in_pool(word));
    }
    let Ok(words) = words.into_iter().map(OsString::into_string).collect::<Result<Vec<_>, _>>() else {
        return;
    };
    let Some((first, rest)) = words.split_first() else { return };
    for program in Program::ALL {
        let _ = programs::nearest(program, first);
        if let Some(command) = compat::command(program, first) {
            let _ = [false, true].map(|posix| args::parse(command.options, rest, posix));
        }
        let program = program.name().to_owned();
        let question = Question { protocol: PROTOCOL, program, words: words.clone(), posix: false };
        // A refusal is one line: the visitor's program shows it as it is.
        assert!(served::judge_question(&question).err().is_none_or(|line| !line.contains('\n')));
    }
    words.iter().for_each(|word| judge(word));
}

/// A word as all that a word can be.
fn judge(word: &str) {
    let _ = (names::check(word), names::check_pool(word, true), names::is_user_property(word));
    let _ = (size::parse_size(word), cenote_cli::dates::read(word, true), pool::parse_guid(word));
    for destination in [
        Destination::Into(word.to_owned()),
        Destination::WithoutPool(word.to_owned()),
        Destination::LastElement(word.to_owned()),
    ] {
        let _ = destination.name_of(word, None);
        let _ = destination.name_of("src/a/b@s", Some(word));
    }
    if let Ok((name, value)) = assignment(word) {
        let _ = names::check_user_property(name, value);
        let _ = props::vdev::change(name, value);
        for property in [props::dataset::parse(name), props::pool::parse(name)].into_iter().flatten() {
            if let Ok(read) = property.parse_value(value) {
                let _ = (property.format_value(&read, false), property.format_value(&read, true));
            }
        }
        if let Ok(tunable) = pool::tune::find(name) {
            let _ = tunable.parse(value).map(|value| tunable.text(value));
        }
    }
}

/// The words of `mount.zfs`, with all options that it is given.
pub fn mount_options(data: &[u8]) {
    let _ = mount_helper::understood(words(data));
}
