//! Bodies for the receiving of streams: streams of the sample pool with changes that the input chooses, and right
//! checksums, into a new pool.

use std::sync::{Arc, LazyLock};

use ::stream::{Incoming, Receiver, SendSource, Sender};
use codec::RunningFletcher4;
use dmu::NewObject;
use format::crypt::{KeyFormat, Suite};
use format::stream::{self, Record, Write};
use format::{ByteOrder, Guid, NvList, NvValue, ObjectType};
use pool::props::DatasetKind;
use pool::{
    Hold, NewEncryption, NewFilesystem, Options, OwnKey, Pool, ReceiveOptions, SendFlags, UserKey, Wanted,
    WrappingKey,
};
use sim::Story;
use sim::forge::{PatchedDisk, Patches};
use sim::reading::{self, Limits};
use storage::host::Disk;

use crate::choices::Choices;
use crate::images::SAMPLE;

const LE: ByteOrder = ByteOrder::Little;
/// Values at the edges of what fields of records may hold.
const WORDS: [u64; 14] = [
    0,
    1,
    2,
    0x80,
    0x100,
    512,
    128 << 10,
    1 << 24,
    (1 << 32) - 1,
    1 << 48,
    1 << 60,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX,
];
/// Where the stream arrives.
const INTO: &str = "tank/in";

/// A record as it is in the stream, and its payload.
type Piece = (Vec<u8>, Vec<u8>);

/// Streams of the sample: of its first snapshot, and from there to its second one; the last are raw streams of an encrypted file
/// system.
static STREAMS: LazyLock<Vec<[Vec<Piece>; 2]>> = LazyLock::new(|| {
    let disk: Arc<dyn Disk> = Arc::new(PatchedDisk::new(SAMPLE.image().clone(), Patches::new()));
    let options = Options { read_only: true, anonymous: true, ..Options::default() };
    let pool = Pool::import_disks(vec![disk], options).expect("the sample is sound");
    let sent = |flags: SendFlags, name: &str, from: Option<&SendSource>| {
        let mut stream = Vec::new();
        Sender::new(&pool).send(name, from, flags, &mut stream, &mut |_| {}).expect("the sample can be sent");
        pieces(&stream)
    };
    let from = Sender::new(&pool).send_source("tank/fs@one").expect("a snapshot of the sample");
    let mut streams = Vec::from([false, true].map(|on| {
        let flags = SendFlags { large_blocks: on, embedded: on, compressed: on, raw: false };
        [sent(flags, "tank/fs@one", None), sent(flags, "tank/fs@two", Some(&from))]
    }));
    streams.push(raw_streams());
    streams
});

/// Raw streams of an encrypted file system: full, and an increment.
fn raw_streams() -> [Vec<Piece>; 2] {
    let story = Story::seeded(4);
    let pool = story.pool();
    let user_key = UserKey { format: KeyFormat::Raw, salt: 0, iterations: 0 };
    let key = WrappingKey::raw(&[7; 32]).expect("raw keys have 32 bytes");
    let own = Some(Arc::new(OwnKey { user_key, key }));
    let encryption = NewEncryption { wanted: Wanted::On(Suite::DEFAULT), own };
    let new = NewFilesystem { encryption, ..NewFilesystem::plain(pool.host()) };
    pool.create_filesystem("tank/sealed", Vec::new(), new, Arc::new(|_, _, _| Ok(())))
        .expect("there is room");
    let dataset = pool.open("tank/sealed").expect("its key is loaded");
    let sent = |name: &str, objects: u8, from: Option<&SendSource>| {
        for number in 0..objects {
            let tx = dataset.begin(Hold::write(1 << 16)).expect("there is room");
            let new = NewObject::plain(ObjectType::PLAIN_FILE_CONTENTS)
                .block_size(1024)
                .bonus(ObjectType::SA, vec![number; 40]);
            let object = dataset.objset().create_object(&tx, new).expect("there are numbers");
            object.write(&tx, 0, &vec![number + 1; 3000]).expect("nothing is read");
            if number == 1 {
                object.set_spill(&tx, Some(vec![number; 512]));
            }
        }
        pool.snapshot(&[name.to_owned()], &[]).expect("there is room");
        let (flags, mut stream) = (SendFlags { raw: true, ..SendFlags::default() }, Vec::new());
        Sender::new(pool).send(name, from, flags, &mut stream, &mut |_| {}).expect("it can be sent");
        pieces(&stream)
    };
    let full = sent("tank/sealed@one", 5, None);
    let from = Sender::new(pool).send_source("tank/sealed@one").expect("it was just taken");
    [full, sent("tank/sealed@two", 2, Some(&from))]
}

/// Takes a sound stream apart.
fn pieces(mut stream: &[u8]) -> Vec<Piece> {
    let mut found = Vec::new();
    while let Some((raw, rest)) = stream.split_first_chunk::<{ stream::RECORD }>() {
        let record = Record::decode(raw, LE).expect("what is sent is sound");
        let len = match &record {
            Record::Begin(begin) => begin.payload_len as usize,
            record => record.payload_len() as usize,
        };
        let (payload, rest) = rest.split_at(len);
        found.push((raw.to_vec(), payload.to_vec()));
        stream = rest;
    }
    found
}

/// Puts pieces together, with all checksums made right.
fn sealed(pieces: &[Piece]) -> Vec<u8> {
    let mut sum = RunningFletcher4::new(LE);
    let mut out = Vec::new();
    for (number, (raw, payload)) in pieces.iter().enumerate() {
        let mut raw: [u8; stream::RECORD] = raw.as_slice().try_into().expect("records have one size");
        if let Ok(Record::End(mut end)) = Record::decode(&raw, LE) {
            end.checksum = sum.sum();
            raw = Record::End(end).encode();
        }
        match number {
            0 => [&raw[..], payload].into_iter().for_each(|part| sum.add(part)),
            _ => sum.seal(&mut raw, payload),
        }
        out.extend_from_slice(&raw);
        out.extend_from_slice(payload);
    }
    out
}

/// A few changes to the records of a stream.
fn damage(pieces: &mut Vec<Piece>, choices: &mut Choices<'_>) {
    for _ in 0..=choices.below(6) {
        let count = pieces.len() as u64;
        if count == 0 {
            return;
        }
        let (at, other) = (choices.below(count) as usize, choices.below(count) as usize);
        match choices.below(10) {
            0 => drop(pieces.remove(at)),
            1 => {
                let copy = pieces[other].clone();
                pieces.insert(at, copy);
            }
            2 => pieces.swap(at, other),
            3 => damage_payload(&mut pieces[at].1, choices),
            4 => resize_block(&mut pieces[at], choices),
            5 => {
                let word = choices.word();
                put_word(&mut pieces[at].0, choices.below(32) as usize, word);
            }
            6 => {
                let word = choices.below(32) as usize;
                let from = LE.u64(&pieces[other].0, 8 * word);
                put_word(&mut pieces[at].0, choices.below(32) as usize, from);
            }
            7 => {
                let byte = 4 + choices.below(stream::CHECKSUM_AT as u64 - 4) as usize;
                pieces[at].0[byte] = choices.byte();
            }
            _ => {
                let word = WORDS[choices.below(WORDS.len() as u64) as usize];
                put_word(&mut pieces[at].0, choices.below(32) as usize, word);
            }
        }
    }
}

fn put_word(raw: &mut [u8], word: usize, value: u64) {
    LE.put_u64(raw, 8 * word, value);
}

fn damage_payload(payload: &mut [u8], choices: &mut Choices<'_>) {
    if payload.is_empty() {
        return;
    }
    for _ in 0..=choices.below(4) {
        let at = choices.below(payload.len() as u64) as usize;
        payload[at] = choices.byte();
    }
}

/// Another size of a block that is written, with a payload of that size, so that the stream goes on behind it.
fn resize_block(piece: &mut Piece, choices: &mut Choices<'_>) {
    let raw: [u8; stream::RECORD] = piece.0.as_slice().try_into().expect("records have one size");
    let Ok(Record::Write(write)) = Record::decode(&raw, LE) else { return };
    let size = 512 << choices.below(12);
    let plain =
        Write { logical_size: size, compressed_size: 0, compression: format::Compression::Inherit, ..write };
    piece.0 = Record::Write(plain).encode().to_vec();
    piece.1.resize(size as usize, 7);
}

fn receive(pool: &Pool, stream: &[u8], options: &ReceiveOptions) -> Result<(), pool::Error> {
    let mut incoming = Incoming::open(stream)?;
    while let Some((begin, list)) = incoming.next_stream()? {
        Receiver::new(pool).receive(
            &mut incoming,
            (&begin, &list),
            &format!("{INTO}@s{}", begin.toguid.0),
            options,
        )?;
    }
    Ok(())
}

/// A full stream and an increment, changed, into a pool: they may be refused. The pool stays sound, and can be read.
pub fn receive_stream(data: &[u8]) {
    let mut choices = Choices(data);
    let [full, increment] = &STREAMS[choices.below(3) as usize];
    let options = ReceiveOptions {
        force: choices.below(2) == 1,
        resumable: choices.below(4) == 3,
        ..ReceiveOptions::default()
    };
    let mut story = Story::seeded(3);
    let mut full = full.clone();
    let change_full = choices.below(2) == 1;
    if change_full {
        damage(&mut full, &mut choices);
    }
    let mut said = vec![receive(story.pool(), &sealed(&full), &options)];
    let mut increment = increment.clone();
    damage(&mut increment, &mut choices);
    let increment = sealed(&increment);
    said.push(receive(story.pool(), &increment, &options));
    for said in said.into_iter().filter_map(Result::err) {
        let said = said.to_string();
        assert!(!said.contains("internal error"), "an invariant was broken by a stream: {said}");
    }
    story.pool().sync().expect("a pool that received a stream syncs");
    expect_sound(story.pool());
    story.forget_unasked_syncs();
    story.export();
    let disks = story.script().disks().into_iter().map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect();
    let _ = reading::read_all(disks, &Limits { files: 300, ..Limits::default() });
}

fn expect_sound(pool: &Pool) {
    let mut findings = Vec::new();
    scan::check::check(pool, &mut |finding| findings.push(finding.to_string())).expect("it can be checked");
    assert_eq!(findings, Vec::<String>::new(), "a stream harmed the pool");
}

/// The list of a package: what it says of names, properties and holds.
pub fn package_list(data: &[u8]) {
    let Ok(list) = NvList::decode(data) else { return };
    let guids =
        list.get_list("fss").into_iter().flat_map(NvList::iter).filter_map(|(_, entry)| match entry {
            NvValue::List(entry) => entry.get_list("snaps"),
            _ => None,
        });
    let guids = guids.flat_map(NvList::iter).filter_map(|(_, guid)| match guid {
        NvValue::Uint64(guid) => Some(Guid(*guid)),
        _ => None,
    });
    for guid in guids.take(64) {
        let _ = ::stream::holds_of(&list, guid);
        let _ = ::stream::parent_snapshot_of(&list, guid);
        let _ = ::stream::properties_of(&list, guid, DatasetKind::Filesystem);
        let _ = ::stream::snapshot_properties_of(&list, guid);
    }
    let _ = ::stream::Replica::of(&list);
}
