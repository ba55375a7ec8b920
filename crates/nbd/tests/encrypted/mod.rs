//! Clients that encrypt, and those that should and do not.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nbd::{Tls, TlsError};
use rcgen::KeyPair;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::authority::Authority;
use super::client::{Client, OPTION, go};
use super::{Bed, noise};

const STARTTLS: u32 = 5;
const ACK: u32 = 1;
const INVALID: u32 = 1 << 31 | 3;
const TLS_REQUIRED: u32 = 1 << 31 | 5;

/// A client whose connection is to be encrypted from now on.
fn encrypted(bed: &Bed, config: &Arc<ClientConfig>) -> Client<StreamOwned<ClientConnection, UnixStream>> {
    let mut plain = Client::new(bed.connect(), true);
    plain.hello();
    assert_eq!(plain.option(STARTTLS, &[]).0, ACK);
    let session = ClientConnection::new(config.clone(), "localhost".try_into().unwrap()).unwrap();
    Client::new(StreamOwned::new(session, plain.stream), true)
}

#[test]
fn a_client_with_a_certificate_reads_and_writes_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    authority.equip(folder.path());
    let bed = Bed::with(false, Some(Tls::load(folder.path()).unwrap()));
    let mut client = encrypted(&bed, &authority.client(Some(&authority)));
    assert_eq!(client.option(STARTTLS, &[]).0, INVALID);
    client.begin();
    let data = noise(7, 5 << 20);
    client.write(123, &data, super::FUA).unwrap();
    assert!(client.read(123, 5 << 20).unwrap() == data);
    // Many requests before the first answer is read.
    (0..20).for_each(|_| client.send(0, 0, (123, 1 << 20), &[]));
    for _ in 0..20 {
        assert!(client.reply(123, 1 << 20).unwrap() == data[..1 << 20]);
    }
    // A second client, at the same time.
    let mut second = encrypted(&bed, &authority.client(Some(&authority)));
    second.begin();
    assert!(second.read(123, 4096).unwrap() == data[..4096]);
    drop((client, second));
    bed.end();
}

#[test]
fn nobody_gets_in_without_encryption_or_without_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    authority.equip(folder.path());
    let bed = Bed::with(false, Some(Tls::load(folder.path()).unwrap()));
    let mut plain = Client::new(bed.connect(), true);
    plain.hello();
    for option in [3, 6, 7, 8, 10] {
        assert_eq!(plain.option(option, &go(b"tank/vol")).0, TLS_REQUIRED, "option {option}");
    }
    assert_eq!(plain.option(STARTTLS, &[1]).0, INVALID);
    // The old way to begin cannot be refused in words.
    let mut old = Client::new(bed.connect(), true);
    old.hello();
    let raw = [&OPTION.to_be_bytes()[..], &1u32.to_be_bytes(), &0u32.to_be_bytes()].concat();
    old.stream.write_all(&raw).unwrap();
    assert_eq!(old.stream.read(&mut [0]).unwrap(), 0);
    // No certificate, one of another authority, and no TLS at all.
    for signer in [None, Some(&Authority::new())] {
        let mut client = encrypted(&bed, &authority.client(signer));
        // The client learns of the refusal when it reads.
        let _ = client.stream.write_all(&OPTION.to_be_bytes());
        assert!(client.stream.read(&mut [0; 20]).is_err());
    }
    let mut noisy = Client::new(bed.connect(), true);
    noisy.hello();
    assert_eq!(noisy.option(STARTTLS, &[]).0, ACK);
    noisy.stream.write_all(&noise(3, 100_000)).unwrap_or_default();
    let mut rest = Vec::new();
    let _ = noisy.stream.read_to_end(&mut rest);
    assert!(rest.len() < 100, "{} bytes", rest.len());
    let mut good = encrypted(&bed, &authority.client(Some(&authority)));
    good.begin();
    drop((plain, old, noisy, good));
    bed.end();
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let load = || Tls::load(folder.path()).map(|_| ()).unwrap_err();
    assert!(matches!(load(), TlsError::Read { .. }));
    Authority::new().equip(folder.path());
    let key = folder.path().join("server-key.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(load(), TlsError::Exposed(path) if path == key));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, "no key").unwrap();
    assert!(matches!(load(), TlsError::Content { wanted: "private key", .. }));
    // A key that is not that of the certificate.
    fs::write(&key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    assert!(matches!(load(), TlsError::Unfit { .. }));
    Authority::new().equip(folder.path());
    fs::write(folder.path().join("ca-cert.pem"), "").unwrap();
    assert!(matches!(load(), TlsError::Content { wanted: "certificate", .. }));
}
