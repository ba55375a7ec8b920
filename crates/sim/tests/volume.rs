//! Power cuts of a volume: block writes, discards, flushes and forced writes, compared with what a disk promises.

mod zdb;

use pool::props::Value;
use sim::{Machine, Story, seeds};
use storage::host::CrashPolicy;
use storage::host::scripted::Op;
use zpl::{Volume, volume_initialiser};

const NAME: &str = "tank/vol";
const SIZE: u64 = 2 << 20;
const SECTOR: u64 = 512;
const POLICIES: [CrashPolicy; 4] =
    [CrashPolicy::KeepAll, CrashPolicy::LoseAllUnflushed, CrashPolicy::RandomSubset, CrashPolicy::Torn];

/// Random numbers that follow from the seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A change of a sector: its number among all changes, what the sector holds then, and the disk operations before it.
#[derive(Clone, Copy, Debug)]
struct Version {
    change: u64,
    stamp: u64,
    issued: usize,
}

/// A program that writes to the volume, and the versions of each sector that it wrote.
struct Client {
    volume: Volume,
    changes: u64,
    /// The versions of each sector, oldest first.
    sectors: Vec<Vec<Version>>,
    /// Disk operations after which changes are safe, and the number of the last of these changes.
    safe: Vec<(usize, u64)>,
}

impl Client {
    fn new(volume: Volume) -> Client {
        let first = Version { change: 0, stamp: 0, issued: 0 };
        Client {
            volume,
            changes: 0,
            sectors: vec![vec![first]; (SIZE / SECTOR) as usize],
            safe: vec![(0, 0)],
        }
    }

    fn note(&mut self, story: &Story, range: std::ops::Range<u64>, stamp: u64) {
        let version = Version { change: self.changes, stamp, issued: story.script().op_count() };
        for sector in &mut self.sectors[range.start as usize..range.end as usize] {
            sector.push(version);
        }
    }

    /// Each written sector holds the number of the write, over and over.
    fn write(&mut self, story: &Story, chance: &mut Chance) {
        let first = chance.below(SIZE / SECTOR);
        let most = if chance.below(4) == 0 { 400 } else { 20 };
        let count = (1 + chance.below(most)).min(SIZE / SECTOR - first);
        self.changes += 1;
        self.note(story, first..first + count, self.changes);
        let data = self.changes.to_le_bytes().repeat((count * SECTOR / 8) as usize);
        self.volume.write(first * SECTOR, &data).unwrap();
    }

    fn discard(&mut self, story: &Story, chance: &mut Chance) {
        let block = self.volume.block_size() / SECTOR;
        let first = chance.below(SIZE / SECTOR / block) * block;
        let count = ((1 + chance.below(8)) * block).min(SIZE / SECTOR - first);
        self.changes += 1;
        self.note(story, first..first + count, 0);
        self.volume.trim(first * SECTOR, count * SECTOR).unwrap();
    }

    fn flush(&mut self, story: &Story) {
        self.volume.flush().unwrap();
        self.safe.push((story.script().op_count(), self.changes));
    }

    fn sync(&mut self, story: &Story) {
        story.pool().sync().unwrap();
        self.safe.push((story.script().op_count(), self.changes));
    }

    fn live(&mut self, story: &Story, chance: &mut Chance, steps: u64) {
        for _ in 0..steps {
            match chance.below(12) {
                0 | 1 => self.discard(story, chance),
                2 | 3 => self.flush(story),
                // A forced write is a write and a flush.
                4 | 5 => {
                    self.write(story, chance);
                    self.flush(story);
                }
                6 => self.sync(story),
                _ => self.write(story, chance),
            }
        }
    }

    /// Reports a wrong content of the volume after a cut before operation `cut`.
    fn judge(&self, volume: &Volume, cut: usize) -> Result<(), String> {
        let safe = self.safe.iter().filter(|(done, _)| *done <= cut).map(|(_, change)| *change).max();
        let safe = safe.unwrap_or(0);
        let mut data = vec![0xaa; SIZE as usize];
        volume.read(0, &mut data).map_err(|error| error.to_string())?;
        for (number, (raw, versions)) in data.chunks_exact(SECTOR as usize).zip(&self.sectors).enumerate() {
            let stamp = u64::from_le_bytes(raw[..8].try_into().expect("it is longer"));
            if raw.chunks_exact(8).any(|word| word != stamp.to_le_bytes()) {
                return Err(format!("sector {number} is torn: {versions:?}"));
            }
            let oldest = versions.iter().rposition(|version| version.change <= safe).unwrap_or(0);
            let mut possible =
                versions[oldest..].iter().filter(|version| version.change <= safe || version.issued < cut);
            if !possible.any(|version| version.stamp == stamp) {
                let from = &versions[oldest..];
                return Err(format!("sector {number} holds {stamp}; up to {safe} is safe: {from:?}"));
            }
        }
        Ok(())
    }
}

/// The cuts to make: around each flush of a disk, and at some writes.
fn cuts(story: &Story, stride: usize) -> Vec<usize> {
    let ops = story.script().ops();
    let matters = |number: usize| {
        let is_flush = |at: usize| ops.get(at).is_some_and(|op| matches!(op, Op::Flush { .. }));
        number.is_multiple_of(stride) || is_flush(number) || number > 0 && is_flush(number - 1)
    };
    (0..=ops.len()).filter(|number| matters(*number)).collect()
}

fn verify(story: &Story, client: &Client, cut: usize, policy: CrashPolicy) -> Result<(), String> {
    let seed = story.seed().wrapping_mul(1_000_003) + cut as u64;
    let (pool, _fs) = story.machine().open(story.script().image_after(cut, policy, seed).disks(), seed)?;
    let opened = pool.open(NAME).map_err(|error| error.to_string())?;
    let volume = Volume::open(opened).map_err(|error| error.to_string())?;
    client.judge(&volume, cut)?;
    let mut found = Vec::new();
    scan::check::check(&pool, &mut |finding| found.push(finding.to_string()))
        .map_err(|error| error.to_string())?;
    zpl::check::check_volume(&volume, &mut |finding| found.push(finding.to_string()))
        .map_err(|error| error.to_string())?;
    if !found.is_empty() {
        return Err(format!("{found:#?}"));
    }
    // The first sync after the replay changes nothing.
    pool.sync().map_err(|error| error.to_string())?;
    client.judge(&volume, cut)
}

#[test]
fn power_cut_of_a_volume_leaves_each_sector_as_it_was_flushed_or_newer() {
    for seed in seeds(2) {
        let machine = match seed % 2 {
            0 => Machine::mirrored(2),
            _ => Machine { logs: (seed % 4 / 3) as usize, ..Machine::default() },
        };
        let mut story = Story::on(machine, seed);
        let block = [4096, 16 << 10, 64 << 10][seed as usize % 3];
        // logbias=throughput: the log points at blocks in their final places.
        let local = vec![("logbias".to_owned(), Value::Number(seed / 2 % 2))];
        let init = volume_initialiser(SIZE, block);
        story.pool().create_volume(NAME, local, Default::default(), init).unwrap();
        story.forget_unasked_syncs();
        story.sync();
        let mut chance = Chance(seed);
        let mut client = Client::new(Volume::open(story.pool().open(NAME).unwrap()).unwrap());
        client.live(&story, &mut chance, 20);
        client.sync(&story);
        story.forget_unasked_syncs();
        story.forget();
        // The state that the log begins with is safe.
        client.safe = vec![(0, client.changes)];
        client.sectors.iter_mut().flatten().for_each(|version| version.issued = 0);
        client.live(&story, &mut chance, 25);
        client.flush(&story);
        let mut made = 0;
        for cut in cuts(&story, 17) {
            for policy in POLICIES {
                if let Err(why) = verify(&story, &client, cut, policy) {
                    panic!(
                        "seed {seed}, cut before operation {cut}, {policy:?}: {why}\nreplay: CENOTE_SIM_SEED={seed} \
                         cargo test -p cenote-sim --test volume"
                    );
                }
                made += 1;
            }
        }
        println!("seed {seed}: {made} cuts");
        assert!(made > 50);
        drop(client);
        story.forget_unasked_syncs();
        zdb::expect_pleased(&mut story);
    }
}
