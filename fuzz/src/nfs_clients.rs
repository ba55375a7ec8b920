//! The body for what clients of NFS send.

#[path = "../../crates/nfs/tests/calls/mod.rs"]
mod calls;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use calls::{Call, LOOKUP, MOUNT, NFS, Words, record};
use nfs::{Export, Rules, Serving};
use sim::Story;
use zpl::Filesystem;

use crate::choices::Choices;

/// The guid in handles.
const GUID: u64 = 77;
/// Bytes of a handle, and of its length.
const HANDLE: usize = 52;
/// Bytes of a reply before the status of the procedure: the record mark and the head of an accepted reply.
const HEAD: usize = 28;
/// Maximal calls that one input chooses.
const CALLS_MAX: usize = 24;
/// The accept status by which a server says that something in it is broken.
const SYSTEM_ERROR: u32 = 5;

/// A served file system with a file and a folder, and the handles that a client has got.
struct Bed {
    serving: Serving,
    client: SocketAddr,
    /// The number of the last call.
    number: u32,
    handles: Vec<Vec<u8>>,
}

/// The bytes of a connection to the NFS server: as they are, or as calls with handles that the server gave.
pub fn nfs_calls(data: &[u8]) {
    let mut story = Story::seeded(9);
    story.mkdir("/folder").write("/file", [7; 3000]).sync();
    let opened =
        Mutex::new(story.pool().open("tank/fs").ok().and_then(|dataset| Filesystem::open(dataset).ok()));
    let open = move |_: &str| {
        let taken = opened.lock().map_err(|_| "another thread panicked")?.take();
        taken.ok_or_else(|| "it was opened before".to_owned())
    };
    let rules = Rules::parse("rw,insecure,no_root_squash").expect("these are options");
    let serving = Serving::start(([127, 0, 0, 1], 0).into()).expect("a port is free");
    serving.add(Arc::new(Export::new(GUID, "tank/fs", rules, Arc::new(open), Arc::new(|_, _| ()))));
    let mut bed = Bed { serving, client: ([127, 0, 0, 1], 700).into(), number: 0, handles: Vec::new() };
    match data.split_first() {
        Some((0, sent)) => drop(bed.answers(sent)),
        Some((_, rest)) => bed.play(&mut Choices(rest)),
        None => {}
    }
    drop(bed);
}

impl Bed {
    fn answers(&self, sent: &[u8]) -> Vec<u8> {
        let replies = self.serving.answers(self.client, sent);
        let mut rest = replies.as_slice();
        while let Some((mark, after)) = rest.split_first_chunk() {
            let (reply, next) = after.split_at((u32::from_be_bytes(*mark) & !(1 << 31)) as usize);
            let accept = reply.get(20..24).filter(|_| reply[8..12] == [0; 4]);
            assert!(accept.is_none_or(|word| word != SYSTEM_ERROR.to_be_bytes()), "a call broke the server");
            rest = next;
        }
        replies
    }

    fn call(&mut self, program: u32, procedure: u32, uid: u32, arguments: Words) -> Vec<u8> {
        self.number += 1;
        let call = Call { number: self.number, program, procedure, uid };
        self.answers(&record(&call.message(&arguments)))
    }

    /// Keeps the handle that comes first in the results, at `at` bytes after the status.
    fn keep(&mut self, reply: &[u8], at: usize) {
        let is_good = reply.get(HEAD..HEAD + 4) == Some(&[0; 4]);
        let found = reply.get(HEAD + 4 + at..).and_then(|rest| rest.get(..HANDLE));
        if let Some(handle) = found.filter(|handle| is_good && handle[..4] == [0, 0, 0, 48]) {
            self.handles.push(handle.to_vec());
        }
    }

    /// Makes the calls that the input chooses. The arguments begin with a handle that the server gave, except for some.
    fn play(&mut self, choices: &mut Choices<'_>) {
        let mounted = self.call(MOUNT, 1, 0, Words::default().bytes(b"/tank/fs"));
        self.keep(&mounted, 0);
        for _ in 0..CALLS_MAX {
            if choices.0.is_empty() {
                return;
            }
            let procedure = choices.below(24) as u32;
            let uid = choices.below(2) as u32 * 1000;
            let mut arguments = Vec::new();
            for _ in 0..choices.below(3) {
                if let Some(handle) =
                    self.handles.get(choices.below(self.handles.len().max(1) as u64) as usize)
                {
                    arguments.extend(handle);
                }
                let len = choices.below(64) as usize;
                let (some, rest) = choices.0.split_at(len.min(choices.0.len()));
                arguments.extend(some);
                choices.0 = rest;
            }
            let program = if procedure > 22 { MOUNT } else { NFS };
            let reply = self.call(program, procedure % 23, uid, Words(arguments));
            // LOOKUP gives a handle, and procedures that make something give one behind a word.
            self.keep(&reply, if procedure == LOOKUP { 0 } else { 4 });
        }
    }
}
