use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::*;

/// xorshift64*: the same bytes in every run, so a failure can be repeated.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }

    /// A few bytes, bits or runs of `input` changed, or its end cut off.
    fn damage(&mut self, input: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            if input.is_empty() {
                return;
            }
            let at = self.below(input.len());
            match self.below(6) {
                0 => input[at] ^= 1 << self.below(8),
                1 => input[at] = self.next() as u8,
                2 => input[at] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][self.below(6)],
                3 => input.truncate(at),
                4 => {
                    let end = (at + self.below(16)).min(input.len());
                    input[at..end].fill(0xff);
                }
                _ => {
                    let from = self.below(input.len());
                    let len = self.below(64).min(input.len() - at.max(from));
                    input.copy_within(from..from + len, at);
                }
            }
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

fn golden() -> seeds::Seeds {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/golden");
    let mut seeds = seeds::Seeds::default();
    for image in ["gashift9.0.img.zst", "gcomp.0.img.zst", "gzil.0.img.zst"] {
        let file = fs::File::open(dir.join(image)).expect("golden pools are part of the repository");
        seeds.add_image(&zstd::decode_all(file).expect("golden images are sound"));
    }
    for stream in ["gsend.embedded.zstream.zst", "gsend.props.zstream.zst"] {
        let file = fs::File::open(dir.join(stream)).expect("golden streams are part of the repository");
        seeds.add_stream(&zstd::decode_all(file).expect("golden streams are sound"));
    }
    seeds
}

/// The inputs of a target that are part of the repository: seeds that nothing else gives, and what a fuzzer found.
fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kept").join(target);
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = files.map(|file| file.expect("it can be listed").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("it can be read")).collect()
}

#[test]
fn each_target_bears_damaged_and_random_bytes() {
    let seeds = golden();
    let share: u64 = std::env::var("FUZZ_SMOKE_MS").map_or(1000, |ms| ms.parse().expect("milliseconds"));
    std::thread::scope(|scope| {
        for &(name, body) in TARGETS {
            let inputs: Vec<_> = seeds.of(name).map(<[u8]>::to_vec).chain(kept(name)).collect();
            // libtest would say which test failed; a target's name says which decoder.
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn_scoped(scope, move || {
                    inputs.iter().for_each(|input| body(input));
                    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
                    let end = Instant::now() + Duration::from_millis(share);
                    while Instant::now() < end {
                        let mut input = if inputs.is_empty() || noise.below(8) == 0 {
                            let len = noise.below(1200);
                            noise.bytes(len)
                        } else {
                            inputs[noise.below(inputs.len())].to_vec()
                        };
                        noise.damage(&mut input);
                        body(&input);
                    }
                })
                .expect("a thread can be started");
        }
    });
}

#[test]
fn golden_pools_give_seeds_for_the_structures_they_hold() {
    let seeds = golden();
    for name in ["blkptr", "dnode", "objset", "nvlist_xdr", "zap_micro", "zap_leaf", "zap_fat_header", "lz4"]
    {
        assert!(seeds.of(name).next().is_some(), "no seed for {name}");
    }
}

#[test]
fn each_target_has_its_file_and_no_file_is_forgotten() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    let files: BTreeSet<_> = fs::read_dir(dir)
        .expect("fuzz_targets is beside src")
        .map(|entry| entry.expect("it can be listed").path().file_stem().expect("a file").to_owned())
        .collect();
    let names: BTreeSet<_> = TARGETS.iter().map(|(name, _)| std::ffi::OsString::from(name)).collect();
    assert_eq!(files, names);
}
