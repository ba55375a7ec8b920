//! Raw streams: encrypted datasets as they lie on disk, without their keys, against those of OpenZFS.

mod ground;
#[path = "../../pool/tests/oracle/mod.rs"]
mod oracle;

use ::stream::{Incoming, Package, Sender};
use format::stream::{self, Record};
use ground::{import, records, send, unpack};
use pool::SendFlags;

#[test]
fn an_encrypted_dataset_is_sent_raw_in_parts_and_packages_and_else_only_with_its_key() {
    let dir = unpack("gsend");
    let pool = import(dir.path(), "gsend");
    let sender = Sender::new(&pool);
    let raw = SendFlags { raw: true, ..SendFlags::default() };
    let whole = send(&pool, "gsend/crypt@k1", None, raw);
    let all = records(&whole);
    // The part from any record on is what is left of the whole, after its key data.
    for (at, (record, _)) in all.iter().enumerate() {
        let Record::Write(write) = record else { continue };
        let token = pool::ResumeToken {
            object: write.object,
            offset: write.offset,
            bytes: 0,
            toguid: write.toguid,
            toname: "gsend/crypt@k1".into(),
            fromguid: format::Guid(0),
            flags: raw,
            redacted: false,
        };
        let mut rest = Vec::new();
        sender.send_resumed(&token, &mut rest, &mut |_| {}).unwrap();
        let rest = records(&rest);
        let Record::Begin(begin) = &rest[0].0 else { panic!("{:?}", rest[0].0) };
        assert!(
            begin.features & stream::feature::RAW != 0 && begin.features & stream::feature::RESUMING != 0
        );
        let list = format::NvList::decode(&rest[0].1).unwrap();
        assert_eq!(
            list.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            [&b"resume_object"[..], b"resume_offset", b"crypt_keydata"]
        );
        assert!(matches!(rest[1].0, Record::ObjectRange(range) if range.first == write.object / 32 * 32));
        let left = all.len() - at;
        assert!(all[at..all.len() - 1] == rest[rest.len() - left..rest.len() - 1], "{write:?}");
    }
    let error = sender.send("gsend/crypt@k1", None, SendFlags::default(), &mut Vec::new(), &mut |_| {});
    assert!(matches!(error, Err(pool::Error::Key(pool::KeyError::NotLoaded(_)))), "{error:?}");
    let package = Package::default();
    let sent = |package: &Package, flags| {
        let mut out = Vec::new();
        sender.send_package("gsend/crypt@k2", package, flags, &mut out, &mut |_| {}).map(|_| out)
    };
    assert!(matches!(sent(&package, SendFlags::default()), Err(pool::Error::NotRaw { .. })));
    let package = Package { raw: true, recursive: true, ..package };
    let sent = sent(&package, raw).unwrap();
    let incoming = Incoming::open(&sent[..]).unwrap();
    let (_, list) = incoming.package().unwrap();
    assert!(list.contains("raw"));
    let fss = list.get_list("fss").unwrap();
    let about = fss.iter().find_map(|(name, _)| fss.get_list(name)).unwrap();
    assert!(about.contains("is_encroot"));
    assert_eq!(about.get_list("props").and_then(|props| props.get_str("keylocation")), Some("prompt"));
}
