//! Streams of blocks that a physical rewrite moved: what has the same contents as before is not sent again, as by OpenZFS.

mod ground;
#[path = "../../pool/tests/oracle/mod.rs"]
mod oracle;

use ::stream::{SendRequest, Sender};
use ground::unpack;
use pool::{Options, Pool, SendFlags};

#[test]
fn moved_blocks_are_not_sent_again() {
    let dir = unpack("grewrite");
    let found = pool::discover(&[dir.path().to_path_buf()]);
    let pool = Pool::import(&found[0], Options { read_only: true, ..Options::default() }).unwrap();
    let sender = Sender::new(&pool);
    let plain = SendFlags { large_blocks: false, embedded: false, compressed: false, raw: false };
    for (name, from, snapshot, flags) in [
        ("large-one-two", "grewrite/large@one", "grewrite/large@two", plain),
        ("large-two-three", "grewrite/large@two", "grewrite/large@three", plain),
        ("large-bookmark-three", "grewrite/large#one", "grewrite/large@three", plain),
        ("secret-one-two", "grewrite/secret@one", "grewrite/secret@two", SendFlags { raw: true, ..plain }),
    ] {
        let source = sender.send_source(from).unwrap();
        let mut ours = Vec::new();
        let request = SendRequest::new(snapshot, Some(&source), flags);
        sender.send_request(&request, &mut ours, &mut |_| {}).unwrap();
        let theirs = std::fs::read(dir.path().join(format!("grewrite.{name}.zstream"))).unwrap();
        assert!(ours == theirs, "{name}: {} bytes instead of {}", ours.len(), theirs.len());
    }
}
