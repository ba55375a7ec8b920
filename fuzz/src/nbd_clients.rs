//! The body for what clients of NBD send.

#[path = "../../crates/nbd/tests/authority/mod.rs"]
mod authority;
#[path = "../../crates/nbd/tests/client/mod.rs"]
mod client;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use authority::Authority;
use client::{Client, go, text};
use nbd::{Address, Export, Serving, Tls};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use sim::Story;
use zpl::{Volume, volume_initialiser};

use crate::choices::Choices;

/// Bytes of the volume, and of its blocks. It is longer than what the server reads at once.
const SIZE: u64 = (1 << 20) + (512 << 10);
const BLOCK: u64 = 16 << 10;
/// A write above this ends the connection.
const REQUEST_MAX: u32 = 32 << 20;
/// Bytes of an input that are sent as they are: few of them ask for much data.
const SENT_MAX: usize = 1200;
/// Maximal options and requests that one input chooses.
const OPTIONS_MAX: usize = 8;
const REQUESTS_MAX: usize = 20;
/// A server that does not answer for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

mod kind {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISCONNECT: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Certificates of a server, and a client that it lets in. They are made once, since that takes long.
struct Certificates {
    server: Tls,
    client: Arc<ClientConfig>,
}

static CERTIFICATES: LazyLock<Certificates> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a scratch folder can be made");
    let authority = Authority::new();
    authority.equip(folder.path());
    let server = Tls::load(folder.path()).expect("these are certificates");
    Certificates { server, client: authority.client(Some(&authority)) }
});

/// A served volume.
struct Bed {
    serving: Serving,
    folder: tempfile::TempDir,
    _story: Story,
}

/// The bytes of a connection to the NBD server: as they are at some point of the protocol, or as a choice of options and
/// requests, whose answers must be what they should be.
pub fn nbd_requests(data: &[u8]) {
    let Some((how, rest)) = data.split_first() else { return };
    let how = how % 8;
    let bed = Bed::new((how >= 6).then(|| CERTIFICATES.server.clone()));
    let mut choices = Choices(rest);
    match how {
        0 => drop(answers(bed.connect(), rest)),
        1 => {
            let mut client = bed.client(true);
            client.hello();
            answers(client.stream, rest);
        }
        2 | 3 => {
            let mut client = bed.client(how == 3);
            client.hello();
            client.begin();
            let answers = answers(client.stream, rest);
            if how == 3 {
                expect_chunks(&answers);
            }
        }
        4 | 5 => {
            let mut client = bed.client(how == 5);
            client.hello();
            play(client, &mut choices);
        }
        6 => drop(answers(bed.to_be_encrypted(), rest)),
        _ => play(bed.encrypted(), &mut choices),
    }
    bed.expect_alive(how >= 6);
}

impl Bed {
    fn new(tls: Option<Tls>) -> Bed {
        let story = Story::seeded(9);
        let new = volume_initialiser(SIZE, BLOCK);
        story.pool().create_volume("tank/vol", Vec::new(), Default::default(), new).expect("there is room");
        let dataset = story.pool().open("tank/vol").expect("it was made");
        let volume = Volume::open(dataset).expect("it is a volume");
        let export = Export::new("tank/vol", false, Arc::new(move |_: &str| Ok(volume.clone())));
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        let socket = Address::Unix(folder.path().join("sock"));
        let serving = Serving::start(export.encrypted(tls), &socket).expect("the folder is new");
        Bed { serving, folder, _story: story }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("sock")).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("it is a socket");
        stream
    }

    fn client(&self, structured: bool) -> Client {
        Client::new(self.connect(), structured)
    }

    /// A connection whose server waits for the first message of TLS.
    fn to_be_encrypted(&self) -> UnixStream {
        let mut plain = self.client(true);
        plain.hello();
        assert_eq!(plain.option(5, &[]).0, 1);
        plain.stream
    }

    fn encrypted(&self) -> Client<StreamOwned<ClientConnection, UnixStream>> {
        let name = "localhost".try_into().expect("a name");
        let session = ClientConnection::new(CERTIFICATES.client.clone(), name).expect("it is configured");
        Client::new(StreamOwned::new(session, self.to_be_encrypted()), true)
    }

    /// The server serves the next client, and has no other one.
    fn expect_alive(self, is_encrypted: bool) {
        match is_encrypted {
            true => expect_served(self.encrypted()),
            false => {
                let mut client = self.client(true);
                client.hello();
                expect_served(client);
            }
        }
        drop(self.serving);
    }
}

fn expect_served<S: Read + Write>(mut client: Client<S>) {
    client.begin();
    assert_eq!(client.size, SIZE);
    assert!(client.read(0, 512).is_ok_and(|data| data.len() == 512));
}

/// What the server answers to `sent`, until it ends the connection.
fn answers(stream: UnixStream, sent: &[u8]) -> Vec<u8> {
    let sent = &sent[..sent.len().min(SENT_MAX)];
    let mut answers = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The server may end the connection before it has everything.
            let _ = (&stream).write_all(sent);
            let _ = stream.shutdown(Shutdown::Write);
        });
        if let Err(error) = (&stream).read_to_end(&mut answers) {
            let is_hanging =
                matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
            assert!(!is_hanging, "the server keeps a client that sends no more");
        }
    });
    answers
}

/// Only chunks, of which the last one may be cut off.
fn expect_chunks(mut raw: &[u8]) {
    while let Some((head, rest)) = raw.split_at_checked(20) {
        assert_eq!(head[..4], 0x668e_33ef_u32.to_be_bytes(), "something else than a chunk");
        let length = u32::from_be_bytes([head[16], head[17], head[18], head[19]]) as usize;
        assert!(length <= 8 + SIZE as usize, "a chunk of {length} bytes");
        let Some((_, next)) = rest.split_at_checked(length) else { return };
        raw = next;
    }
}

/// Sends options and requests that the input chooses, and compares what comes back with a model of the volume.
fn play<S: Read + Write>(mut client: Client<S>, choices: &mut Choices<'_>) {
    for _ in 0..choices.below(OPTIONS_MAX as u64) {
        ask_option(&mut client, choices);
    }
    client.begin();
    let mut model = vec![0; SIZE as usize];
    for _ in 0..REQUESTS_MAX {
        if choices.0.is_empty() || !ask(&mut client, choices, &mut model) {
            return;
        }
    }
    let whole = client.read(0, SIZE as u32).expect("the volume can be read");
    assert!(whole == model, "the volume holds something else than what was written");
}

/// An option that neither begins nor ends anything.
fn ask_option<S: Read + Write>(client: &mut Client<S>, choices: &mut Choices<'_>) {
    const STRUCTURED: u32 = 8;
    const NUMBERS: [u32; 9] = [3, 4, 5, 6, STRUCTURED, 9, 10, 11, u32::MAX];
    let option = NUMBERS[choices.below(NUMBERS.len() as u64) as usize];
    let data = match choices.below(8) {
        0 => Vec::new(),
        1 => go(b"tank/vol"),
        2 => go(b"another"),
        3 => vec![7; choices.below(20_000) as usize],
        4 => [text(b"tank/vol"), 1u32.to_be_bytes().to_vec(), text(b"base:")].concat(),
        _ => {
            let (some, rest) = choices.0.split_at(choices.0.len().min(choices.0.len() % 60));
            choices.0 = rest;
            some.to_vec()
        }
    };
    let (mut kind, _) = client.option(option, &data);
    client.structured |= option == STRUCTURED && kind == 1;
    while kind != 1 && kind >> 31 == 0 {
        assert!((2..=4).contains(&kind), "reply {kind} to option {option}");
        kind = client.option_reply().0;
    }
}

struct Asked {
    kind: u16,
    flags: u16,
    offset: u64,
    length: u32,
}

impl Asked {
    fn chosen(choices: &mut Choices<'_>) -> Asked {
        let kind = choices.below(9) as u16;
        let flags = if choices.below(4) == 0 { choices.below(1 << 16) } else { choices.below(2) } as u16;
        let offset = match choices.below(8) {
            0 => choices.word(),
            1 => SIZE - choices.below(5000),
            _ => choices.below(SIZE),
        };
        let length = match choices.below(8) {
            0 => choices.word() as u32,
            1 => choices.below(SIZE + 5000) as u32,
            _ => choices.below(70_000) as u32,
        };
        Asked { kind, flags, offset, length }
    }

    fn is_within(&self) -> bool {
        self.offset.checked_add(self.length.into()).is_some_and(|end| end <= SIZE)
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.offset as usize..self.offset as usize + self.length as usize
    }
}

/// Sends a request and judges the answer. Returns whether the connection goes on.
fn ask<S: Read + Write>(client: &mut Client<S>, choices: &mut Choices<'_>, model: &mut [u8]) -> bool {
    let mut asked = Asked::chosen(choices);
    let is_oversized = asked.kind == kind::WRITE && asked.length > REQUEST_MAX;
    if asked.kind == kind::WRITE && !is_oversized {
        asked.length %= 2 << 20;
    }
    let mut data = Vec::new();
    if asked.kind == kind::WRITE && !is_oversized {
        data = vec![choices.byte(); asked.length as usize];
    }
    client.cookie = choices.word();
    client.send(asked.kind, asked.flags, (asked.offset, asked.length), &data);
    if is_oversized || asked.kind == kind::DISCONNECT {
        // However the connection ends: nothing more comes.
        assert!(!client.stream.read(&mut [0]).is_ok_and(|count| count > 0));
        return false;
    }
    let is_read = asked.kind == kind::READ && asked.is_within();
    let answer = client.reply(asked.offset, if is_read { asked.length as usize } else { 0 });
    judge(&asked, &data, answer, model);
    true
}

fn judge(asked: &Asked, data: &[u8], answer: Result<Vec<u8>, u32>, model: &mut [u8]) {
    let Asked { kind, flags, length, .. } = *asked;
    let found = match answer {
        Ok(found) => found,
        Err(error) => {
            let is_plain = flags == 0 && (asked.is_within() || kind == kind::FLUSH);
            let is_known = kind < kind::BLOCK_STATUS && kind != 5;
            assert!(!(is_plain && is_known), "request {kind} of {length} bytes failed: {error}");
            return;
        }
    };
    if kind == kind::FLUSH {
        return;
    }
    assert!(asked.is_within(), "request {kind} beyond the end succeeded");
    let part = &mut model[asked.range()];
    match kind {
        kind::READ => assert!(found == part, "something else is read than what was written"),
        kind::WRITE => part.copy_from_slice(data),
        kind::WRITE_ZEROES => part.fill(0),
        kind::TRIM => {
            let end = asked.offset + u64::from(length);
            let (first, last) = (asked.offset.next_multiple_of(BLOCK), end / BLOCK * BLOCK);
            if first < last {
                model[first as usize..last as usize].fill(0);
            }
        }
        kind::BLOCK_STATUS => judge_extents(&found, part),
        _ => panic!("request {kind} succeeded"),
    }
}

/// Extents cover something from the start on, and holes read as zeros.
fn judge_extents(raw: &[u8], part: &[u8]) {
    assert!(!raw.is_empty() && raw.len().is_multiple_of(8));
    let mut at = 0;
    for pair in raw.chunks(8) {
        let length = u32::from_be_bytes([pair[0], pair[1], pair[2], pair[3]]) as usize;
        let extent = part.get(at..at + length).expect("extents are within what was asked for");
        assert!(length > 0 && (pair[7] & 2 == 0 || extent.iter().all(|byte| *byte == 0)));
        at += length;
    }
}
