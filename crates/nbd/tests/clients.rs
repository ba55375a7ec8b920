//! Clients of a served volume: those that follow the protocol, and those that violate it.

mod authority;
mod client;
mod encrypted;
#[path = "../../front/tests/served/mod.rs"]
mod served;
#[path = "../../front/tests/waits/mod.rs"]
mod waits;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, FUA, OPTION, text};
use nbd::{Address, Export, Serving, StartError, Tls};
use served::Served;
use zpl::{Volume, volume_initialiser};

const MIB: u64 = 1 << 20;

/// A pool in a file with a volume of 16 MiB, which is served.
struct Bed {
    served: Served,
    serving: Option<Serving>,
}

impl Bed {
    fn new(read_only: bool) -> Bed {
        Bed::with(read_only, None)
    }

    fn with(read_only: bool, tls: Option<Tls>) -> Bed {
        let served = Served::new();
        let new = served.pool().create_volume(
            "tank/vol",
            Vec::new(),
            Default::default(),
            volume_initialiser(16 * MIB, 16 << 10),
        );
        new.unwrap();
        let weak = Arc::downgrade(served.pool());
        let open = move |name: &str| {
            let pool = weak.upgrade().ok_or("no pool")?;
            Volume::open(pool.open(name).map_err(|e| e.to_string())?).map_err(|e| e.to_string())
        };
        let export = Export::new("tank/vol", read_only, Arc::new(open)).encrypted(tls);
        let serving = Serving::start(export, &Address::Unix(served.path("sock"))).unwrap();
        Bed { served, serving: Some(serving) }
    }

    fn socket(&self) -> PathBuf {
        self.served.path("sock")
    }

    fn serving(&self) -> &Serving {
        self.serving.as_ref().unwrap()
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(180))).unwrap();
        stream
    }

    /// A client that uses the volume. `structured`: with chunks, and with the context of data and holes.
    fn client(&self, structured: bool) -> Client {
        let mut client = Client::new(self.connect(), structured);
        client.hello();
        client.begin();
        client
    }

    /// The server still serves.
    fn expect_alive(&self) {
        let mut client = self.client(true);
        assert_eq!(client.read(0, 512).unwrap().len(), 512);
    }

    fn end(mut self) {
        self.serving.take().unwrap().stop();
        assert!(!self.socket().exists());
        self.served.judge(&[]);
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn all_requests_do_what_they_say_in_both_forms_of_replies() {
    let bed = Bed::new(false);
    let mode = std::fs::metadata(bed.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for structured in [false, true] {
        let mut client = bed.client(structured);
        // Flags, flush, FUA, trim, zeros, DF, several connections.
        assert_eq!((client.size, client.flags), (16 * MIB, 0b1_1110_1101));
        let data = noise(1, 5 * MIB as usize + 13);
        client.write(777, &data, FUA).unwrap();
        assert!(client.read(777, data.len() as u32).unwrap() == data);
        let mut other = bed.client(!structured);
        assert!(other.read(777, 4096).unwrap() == data[..4096]);
        client.ask(4, 0, (0, 2 << 20)).unwrap();
        client.ask(6, FUA, (3 * MIB, 100)).unwrap();
        client.ask(6, 2, (3 * MIB + 200, 100)).unwrap();
        client.ask(3, 0, (0, 0)).unwrap();
        let read = client.read(0, 4 << 20).unwrap();
        assert!(read[..2 << 20].iter().all(|byte| *byte == 0));
        assert!(read[3 << 20..][..100].iter().all(|byte| *byte == 0));
        assert!(read[(3 << 20) + 100..][..100] == data[(3 << 20) - 677..][..100]);
        assert!(read[(3 << 20) + 200..][..100].iter().all(|byte| *byte == 0));
        if structured {
            let all = client.extents((0, 16 << 20), 0).unwrap();
            assert_eq!(all, [(2 << 20, 3), (3 * 1024 * 1024 + (16 << 10), 0), ((11 << 20) - (16 << 10), 3)]);
            assert_eq!(client.extents((0, 16 << 20), 8).unwrap(), [(2 << 20, 3)]);
        } else {
            assert_eq!(client.extents((0, 1 << 20), 0), Err(22));
        }
        client.send(2, 0, (0, 0), &[]);
        assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    }
    bed.end();
}

#[test]
fn invalid_requests_are_refused_and_the_connection_stays() {
    let bed = Bed::new(false);
    let mut client = bed.client(true);
    assert_eq!(client.read(16 * MIB - 1, 2), Err(22));
    assert_eq!(client.read(u64::MAX, 2), Err(22));
    assert_eq!(client.write(16 * MIB - 1, b"ab", 0), Err(28));
    assert_eq!(client.write(u64::MAX - 1, b"ab", FUA), Err(28));
    // The data of a long write that is refused is read to its end.
    assert_eq!(client.write(15 * MIB, &noise(1, 3 << 20), 0), Err(28));
    assert_eq!(client.ask(4, 0, (16 * MIB, 1)), Err(22));
    assert_eq!(client.ask(6, 0x80, (0, 1)), Err(22));
    assert_eq!(client.ask(5, 0, (0, 1)), Err(22));
    assert_eq!(client.ask(999, 0xffff, (0, 1)), Err(22));
    client.send(0, 4, (0, 4 << 20), &[]);
    assert_eq!(client.reply(0, 0), Err(75));
    assert_eq!(client.ask(0, 0, (0, u32::MAX)), Err(22));
    assert_eq!(client.read(0, 512).unwrap(), [0; 512]);
    drop(client);
    let reader = Bed::new(true);
    let mut client = reader.client(false);
    assert_eq!(client.flags & 2, 2);
    for refused in [client.write(0, b"x", 0), client.ask(4, 0, (0, 512)), client.ask(6, 0, (0, 512))] {
        assert_eq!(refused, Err(1));
    }
    drop(client);
    bed.end();
    reader.end();
}

#[test]
fn options_that_are_not_known_or_not_possible_are_refused_in_words() {
    let bed = Bed::new(false);
    let mut client = Client::new(bed.connect(), false);
    client.hello();
    let refused = |client: &mut Client, option, data: &[u8]| {
        let (kind, why) = client.option(option, data);
        assert!(kind & (1 << 31) != 0 && !why.is_empty(), "option {option}: {kind:x}");
        kind & 0xffff
    };
    assert_eq!(refused(&mut client, 5, &[]), 2);
    assert_eq!(refused(&mut client, 11, &[]), 1);
    assert_eq!(refused(&mut client, 12345, b"what"), 1);
    assert_eq!(refused(&mut client, 3, b"x"), 3);
    assert_eq!(refused(&mut client, 10, &[]), 3);
    assert_eq!(refused(&mut client, 7, &[0xff; 6]), 3);
    assert_eq!(refused(&mut client, 7, &[text(b"tank/vol"), vec![0, 9]].concat()), 3);
    assert_eq!(refused(&mut client, 7, &[text(b"tank/other"), vec![0, 0]].concat()), 6);
    assert_eq!(refused(&mut client, 6, &vec![7; 20_000]), 9);
    let (kind, entry) = client.option(3, &[]);
    assert!(kind == 2 && entry == text(b"tank/vol"));
    assert_eq!(client.option_reply().0, 1);
    assert_eq!(client.option(2, &[]).0, 1);
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    bed.expect_alive();
    bed.end();
}

#[test]
fn malformed_input_ends_its_connection_and_no_other() {
    let bed = Bed::new(false);
    let mut good = bed.client(true);
    let first = |raw: &[u8]| {
        let mut stream = bed.connect();
        stream.read_exact(&mut [0; 18]).unwrap();
        // The server may close the connection before everything is sent.
        let _ = stream.write_all(raw);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    };
    first(&[0xff; 64]);
    first(&[&3u32.to_be_bytes()[..], &[0; 16]].concat());
    first(&[&3u32.to_be_bytes()[..], &OPTION.to_be_bytes(), &[0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff]].concat());
    let many = [&OPTION.to_be_bytes()[..], &[0, 0, 0, 99, 0, 0, 0, 0]].concat().repeat(1000);
    first(&[&3u32.to_be_bytes()[..], &many].concat());
    let mut client = bed.client(false);
    client.stream.write_all(&[0; 28]).unwrap();
    assert_eq!(client.stream.read(&mut [0]).unwrap_or(0), 0);
    let mut client = bed.client(false);
    client.send(1, 0, (0, 64 << 20), &[]);
    assert_eq!(client.stream.read(&mut [0]).unwrap_or(0), 0);
    // Noise of any length, at each state.
    for seed in 1..40 {
        first(&noise(seed, seed as usize * 50));
        first(&[&3u32.to_be_bytes()[..], &noise(seed, 300)].concat());
        let mut client = bed.client(seed % 2 == 0);
        let _ = client.stream.write_all(&noise(seed, 300));
    }
    // One that leaves within a write.
    let mut client = bed.client(true);
    client.send(1, 0, (0, 1 << 20), &[1; 1000]);
    drop(client);
    assert_eq!(good.read(0, 512).unwrap(), [0; 512]);
    good.write(0, b"good", FUA).unwrap();
    drop(good);
    bed.expect_alive();
    bed.end();
}

#[test]
fn thousands_of_connections_are_limited_and_slow_clients_do_not_block_others() {
    let bed = Bed::new(false);
    let mut good = bed.client(true);
    // They ask for much and take nothing.
    let mut slow: Vec<Client> = (0..3).map(|_| bed.client(false)).collect();
    for client in &mut slow {
        for _ in 0..100 {
            client.send(0, 0, (0, 16 << 20), &[]);
        }
    }
    let mut idle = Vec::new();
    for _ in 0..2000 {
        if let Ok(stream) = UnixStream::connect(bed.socket()) {
            idle.push(stream);
        }
        if idle.len() > 200 {
            idle.remove(0);
        }
        assert!(bed.serving().clients() <= 32);
    }
    for round in 0..50u64 {
        good.write(round * 4096, &noise(round, 4096), 0).unwrap();
        assert!(good.read(round * 4096, 4096).unwrap() == noise(round, 4096));
    }
    drop((idle, slow));
    waits::wait_until("clients that left are still counted", || bed.serving().clients() <= 1);
    assert_eq!(bed.serving().clients(), 1);
    bed.expect_alive();
    drop(good);
    bed.end();
}

#[test]
fn many_requests_at_once_are_answered_each_with_its_own() {
    let bed = Bed::new(false);
    std::thread::scope(|scope| {
        for id in 0..4u64 {
            let bed = &bed;
            scope.spawn(move || {
                let mut client = bed.client(id % 2 == 0);
                let data = noise(id, 64 << 10);
                for i in 0..16 {
                    client.send(1, 0, ((id * 16 + i) << 16, 64 << 10), &data);
                }
                for _ in 0..16 {
                    client.reply(0, 0).unwrap();
                }
                client.ask(3, 0, (0, 0)).unwrap();
                let mut other = bed.client(true);
                assert!(other.read(id << 20, 1 << 20).unwrap() == data.repeat(16));
            });
        }
    });
    bed.end();
}

#[test]
fn a_socket_is_made_only_where_none_is_listened_to_and_nothing_else_lies() {
    let bed = Bed::new(false);
    let export = || Export::new("tank/vol", false, Arc::new(|_: &str| Err("no".into())));
    let start = |path: PathBuf| Serving::start(export(), &Address::Unix(path));
    assert!(matches!(start(bed.socket()), Err(StartError::InUse(_))));
    let file = bed.served.path("file");
    std::fs::write(&file, b"mine").unwrap();
    assert!(matches!(start(file.clone()), Err(StartError::NoSocket(_))));
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    assert!(matches!(start(bed.served.path("x".repeat(120))), Err(StartError::PathTooLong(_))));
    let dead = bed.served.path("dead");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    let serving = start(dead.clone()).unwrap();
    // The client gets an error for an export that cannot be opened.
    let mut client = Client::new(UnixStream::connect(&dead).unwrap(), false);
    client.hello();
    let (kind, why) = client.option(7, &[text(b""), vec![0, 0]].concat());
    assert_eq!((kind & 0xffff, &why[..]), (6, &b"no"[..]));
    drop(client);
    serving.stop();
    let tcp = Serving::start(export(), &Address::tcp("127.0.0.1:0", nbd::PORT).unwrap()).unwrap();
    let Address::Tcp(address) = tcp.address() else { panic!("tcp") };
    assert!(address.port() != 0 && std::net::TcpStream::connect(address).is_ok());
    drop(tcp);
    bed.end();
}
