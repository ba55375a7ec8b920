//! Power cuts: the disks of one story as they were at any moment, and the contents that must be found on them.

use std::collections::BTreeSet;
use std::env;
use std::ops::Range;

use storage::host::scripted::Op;
use storage::host::{CrashPolicy, Disk};

use crate::story::{Story, allowed, findings};
use crate::tree::Tree;

/// Bytes at both ends of a disk in which labels and uberblocks lie.
const LABELS: u64 = 512 << 10;
const POLICIES: [(&str, CrashPolicy); 4] = [
    ("keep", CrashPolicy::KeepAll),
    ("lose", CrashPolicy::LoseAllUnflushed),
    ("some", CrashPolicy::RandomSubset),
    ("torn", CrashPolicy::Torn),
];

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The seeds to run: `usual`, `CENOTE_SIM_SEEDS` of them instead, or only the one of `CENOTE_SIM_SEED`.
#[must_use]
pub fn seeds(usual: u64) -> Range<u64> {
    match number("CENOTE_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("CENOTE_SIM_SEEDS").unwrap_or(usual) + 1,
    }
}

/// If a test fails while this lives, it prints how to repeat the failure.
struct Replay(String);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay: {}", self.0);
        }
    }
}

/// Cuts of one finished story.
pub struct Cuts<'a> {
    story: &'a Story,
    /// The file in `tests/` and the name of the test, for the command that replays a failure.
    test: (&'a str, &'a str),
    stride: usize,
    first: usize,
    rarity: usize,
}

impl<'a> Cuts<'a> {
    /// Cuts of `story` at every operation of its log, for the test `name` in the file `file`.
    #[must_use]
    pub fn of(story: &'a Story, file: &'a str, name: &'a str) -> Cuts<'a> {
        Cuts { story, test: (file, name), stride: 1, first: 0, rarity: 1 }
    }

    /// Only from operation `first` of the log on.
    #[must_use]
    pub fn from_operation(self, first: usize) -> Cuts<'a> {
        Cuts { first, ..self }
    }

    /// Only every `stride`-th write of blocks; still every flush and every write to a label.
    #[must_use]
    pub fn every(self, stride: usize) -> Cuts<'a> {
        Cuts { stride, ..self }
    }

    /// Of those that would be made only one in so many, or `CENOTE_SIM_ONE_IN` instead.
    #[must_use]
    pub fn one_in(self, rarity: usize) -> Cuts<'a> {
        Cuts { rarity, ..self }
    }

    fn replay(&self, cut: usize, policy: &str) -> Replay {
        let (file, name) = self.test;
        let seed = self.story.seed();
        Replay(format!(
            "CENOTE_SIM_SEED={seed} CENOTE_SIM_CUT={cut} CENOTE_SIM_POLICY={policy} \
             cargo test -p cenote-sim --test {file} {name} -- --exact"
        ))
    }

    /// The cuts worth making: around flushes and label writes, and every stride-th other one.
    fn chosen(&self) -> BTreeSet<usize> {
        let sizes: Vec<u64> = self.story.script().disks().iter().map(Disk::size).collect();
        let mut chosen = BTreeSet::from([0]);
        for (number, op) in self.story.script().ops().iter().enumerate() {
            let matters = match op {
                Op::Flush { .. } => true,
                Op::Write { disk, offset, .. } => *offset < LABELS || *offset >= sizes[*disk] - LABELS,
            };
            if matters {
                chosen.extend([number, number + 1]);
            } else if number.is_multiple_of(self.stride) {
                chosen.insert(number + 1);
            }
        }
        let rarity = number("CENOTE_SIM_ONE_IN").map_or(self.rarity, |number| number.max(1) as usize);
        let skipped = if number("CENOTE_SIM_CUT").is_some() { 1 } else { rarity };
        chosen.split_off(&self.first).into_iter().step_by(skipped).collect()
    }

    /// Makes the cuts, each with unflushed writes kept, lost, partly lost and torn, and looks at what an import
    /// finds. Returns how many were made.
    ///
    /// # Panics
    /// When a cut loses or mixes synced states, or leaves anything that a checker finds; with the command that
    /// replays it.
    #[must_use]
    pub fn run(&self) -> usize {
        let ops = self.story.script().ops();
        let only_cut = number("CENOTE_SIM_CUT").map(|cut| cut as usize);
        let only_policy = env::var("CENOTE_SIM_POLICY").ok();
        let mut made = 0;
        for cut in self.chosen() {
            if only_cut.is_some_and(|only| only != cut) {
                continue;
            }
            for (name, policy) in POLICIES {
                // Between flushes, what survives when all unflushed is lost stays the same.
                let same_as_before = policy == CrashPolicy::LoseAllUnflushed
                    && only_cut.is_none()
                    && cut > 0
                    && !matches!(ops[cut - 1], Op::Flush { .. });
                if same_as_before || only_policy.as_ref().is_some_and(|only| only != name) {
                    continue;
                }
                let _replay = self.replay(cut, name);
                if let Err(why) = self.verify(cut, policy) {
                    let next = ops.get(cut);
                    panic!(
                        "seed {}, cut before operation {cut} of {} ({next:?}), {name}: {why}",
                        self.story.seed(),
                        ops.len()
                    );
                }
                made += 1;
            }
        }
        made
    }

    fn verify(&self, cut: usize, policy: CrashPolicy) -> Result<(), String> {
        let seed = self.story.seed().wrapping_mul(1_000_003) + cut as u64;
        let script = self.story.script().image_after(cut, policy, seed);
        let machine = self.story.machine();
        if self.story.marks().iter().any(|mark| mark.logged) {
            // Before anything is replayed, too, every block is accounted for.
            let findings = machine.check_as_left(script.disks(), seed)?;
            if !findings.is_empty() {
                return Err(format!("before the replay: {findings:#?}"));
            }
        }
        let (pool, fs) = machine.open(script.disks(), seed)?;
        let found = Tree::read(&fs)?;
        let allowed = allowed(self.story.marks(), cut);
        // Some of the records that were being logged may be there, and the rest not.
        let halfway =
            matches!(allowed[..], [old, new] if new.logged && found.is_between(&old.tree, &new.tree));
        if !halfway && !allowed.iter().any(|mark| mark.allows(&found)) {
            let differences: Vec<_> = allowed.iter().map(|mark| found.differences(&mark.tree)).collect();
            return Err(format!("neither the old nor the new state: {differences:#?}"));
        }
        // The check begins with a sync: the first txg after the cut is written and checked too.
        let findings = findings(&pool, &fs)?;
        if !findings.is_empty() {
            return Err(format!("{findings:#?}"));
        }
        let after = Tree::read(&fs)?;
        if after != found {
            return Err(format!("the first sync changed files: {:#?}", after.differences(&found)));
        }
        Ok(())
    }
}
