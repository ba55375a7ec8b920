//! `cenote check`: a verdict on pools, from their blocks up to their folders.
//!
//! From:   pools by name, and images.
//! To:     findings, a verdict for each pool, and the exit status: 0 clean, 1 not.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use format::objset::ObjsetType;
use pool::props::number::nice_bytes;
use pool::{KeyError, backing_file};
use scan::check::{DataBlock, Finding, Part};
use serde_json::json;
use zpl::{Filesystem, Volume};

use super::Check;
use crate::around::Surroundings;
use crate::compat::damaged::Names;
use crate::messages::{Action, Failure};
use crate::open::{self, Intent, NotOpen, Session, Usable};
use crate::out::{Colour, Console, counted};

/// Findings that are printed of each pool; more are counted.
const SHOWN: usize = 200;

/// How long names of damaged files are looked for. A folder with many files is read for each of them.
const NAMING: Duration = Duration::from_secs(10);

/// The findings about a pool.
#[derive(Default)]
struct Verdict {
    findings: Vec<String>,
    /// The object that each finding is about, and the block, as far as they are known.
    parts: Vec<Option<(Part, Option<DataBlock>)>>,
    count: u64,
    blocks: scan::check::Summary,
    objects: u64,
    directories: u64,
    files: u64,
    /// Datasets whose files were not checked, with the reasons.
    unseen: Vec<String>,
}

impl Verdict {
    fn finding(&mut self, line: String) {
        self.about(line, None);
    }

    /// Notes a finding about an object of a dataset, as far as that is known.
    fn about(&mut self, line: String, part: Option<(Part, Option<DataBlock>)>) {
        self.count += 1;
        if self.findings.len() < SHOWN {
            self.findings.push(line);
            self.parts.push(part);
        }
    }

    /// Notes a finding of the check of blocks and devices.
    fn of_block(&mut self, finding: &Finding) {
        self.about(finding.to_string(), finding.part().map(|part| (part, finding.data())));
    }

    /// Adds the names of files to the findings, as far as they are found in a short time.
    fn name_files(&mut self, session: &Session) {
        if self.parts.iter().all(Option::is_none) {
            return;
        }
        let (mut names, until) = (Names::new(session), Instant::now() + NAMING);
        let mut known: HashMap<(Part, Option<DataBlock>), Option<String>> = HashMap::new();
        for (line, part) in self.findings.iter_mut().zip(&self.parts) {
            let Some(part) = *part else { continue };
            let find = || if Instant::now() < until { file_of(&mut names, part, until) } else { None };
            if let Some(file) = known.entry(part).or_insert_with(find) {
                *line += &format!(" ({file})");
            }
        }
    }
}

/// The file of a damaged object, in the words of a finding. It is the file of the file system if that has the same
/// block, else the file of the oldest snapshot, in which the block was found.
fn file_of(names: &mut Names, (part, block): (Part, Option<DataBlock>), until: Instant) -> Option<String> {
    let (dataset, object) = part;
    let found = block.and_then(|block| names.holders(dataset, object, block, until));
    let live = found.and_then(|found| found.live).and_then(|live| names.path(live, object));
    let (is_live, path) = (live.is_some(), live.or_else(|| names.path(dataset, object))?);
    let snapshots = match (found.map_or(0, |found| found.snapshots), is_live) {
        (0, _) | (1, false) => String::new(),
        (n, true) => format!(", also in {}", counted(n as u64, "snapshot")),
        (n, false) => format!(", in {}", counted(n as u64, "snapshot")),
    };
    Some(format!("file '{path}'{snapshots}"))
}

/// Carries out `check`. Returns the exit status.
///
/// # Errors
/// The output is closed.
pub fn run(check: &Check, around: &Surroundings, console: &mut Console) -> Result<u8, Failure> {
    let mut reports = Vec::new();
    let mut faults = false;
    for usable in chosen(check, around, console)? {
        let name = usable.name.clone();
        let started = Instant::now();
        let verdict =
            open::open(usable, Intent::Survey).map_err(Failure::from).and_then(|session| judge(&session));
        let verdict = match verdict {
            Ok(verdict) => verdict,
            Err(failure) => {
                console.complain(failure)?;
                continue;
            }
        };
        faults |= verdict.count > 0;
        let seconds = started.elapsed().as_secs_f64();
        if check.json {
            reports.push(report(&name, &verdict, seconds));
        } else {
            print(&name, &verdict, seconds, console)?;
        }
    }
    if check.json {
        console.line(&json!({ "schema": 1, "pools": reports }).to_string())?;
    }
    Ok(u8::from(faults))
}

/// The pools meant: those of these names, and all on the images given.
fn chosen(check: &Check, around: &Surroundings, console: &mut Console) -> Result<Vec<Usable>, Failure> {
    let mut pools = Vec::new();
    let mut images = Vec::new();
    for word in &check.pools {
        let found = word.to_str().map(|name| open::find(name, around));
        match found {
            Some(Ok(usable)) => pools.push(usable),
            _ if backing_file(Path::new(word)).exists() => match File::open(backing_file(Path::new(word))) {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    console.complain(Action::Open(&word.to_string_lossy()).refused_by(&error))?;
                }
                _ => images.push(PathBuf::from(word)),
            },
            _ if is_path(word) => {
                console.complain(Action::Open(&word.to_string_lossy()).failed("no such file or device"))?;
            }
            Some(Err(error)) => console.complain(error.into())?,
            None => console.complain(missing(word))?,
        }
    }
    let mut with_pools = Vec::new();
    for image in images {
        if pool::discover(std::slice::from_ref(&image)).is_empty() {
            console.complain(NotOpen::no_pool(&image).into())?;
        } else {
            with_pools.push(image);
        }
    }
    if with_pools.is_empty() {
        return Ok(pools);
    }
    pools.extend(open::usable(&Surroundings { search: with_pools, ..around.clone() })?);
    Ok(pools)
}

/// Whether a word is meant as a file: it has a folder or an ending, and no pool is called so.
fn is_path(word: &OsStr) -> bool {
    let path = Path::new(word);
    path.components().count() > 1 || path.extension().is_some()
}

fn missing(word: &OsStr) -> Failure {
    Action::Open(&word.to_string_lossy()).failed(crate::messages::reason::NO_SUCH_POOL)
}

fn judge(session: &Session) -> Result<Verdict, Failure> {
    let pool = session.pool();
    let name = pool.name();
    let failed = |error: pool::Error| Action::Read(&name).failed(error);
    let mut verdict = Verdict::default();
    verdict.blocks = scan::check::check(pool, &mut |finding| verdict.of_block(&finding)).map_err(failed)?;
    let mut left_out = Vec::new();
    let mut report = |name: String, error: pool::Error| left_out.push(format!("{name}: {error}"));
    let list = pool.survey(&name, None, true, &mut report).map_err(failed)?;
    left_out.into_iter().for_each(|finding| verdict.finding(finding));
    for info in list {
        let dataset = &info.name;
        if info.is_unfinished() {
            verdict.unseen.push(format!("{dataset}: holds part of a stream only"));
            continue;
        }
        if pool.lacks_key(&info).map_err(failed)? {
            verdict.unseen.push(format!("{dataset}: encryption key not loaded"));
            continue;
        }
        let opened = match pool.open(dataset) {
            Ok(opened) => opened,
            Err(pool::Error::Key(KeyError::NotLoaded(_))) => {
                verdict.unseen.push(format!("{dataset}: only the pool's server has its encryption key"));
                continue;
            }
            Err(error) => {
                verdict.finding(format!("{dataset}: {error}"));
                continue;
            }
        };
        if opened.objset().os_type() == ObjsetType::Zvol {
            let mut report = |problem| verdict.finding(format!("{dataset}: {problem}"));
            let checked = Volume::open_incomplete(opened)
                .and_then(|volume| zpl::check::check_volume(&volume, &mut report));
            match checked {
                Ok(objects) => verdict.objects += objects,
                Err(error) => verdict.finding(format!("{dataset}: {error}")),
            }
            continue;
        }
        let fs = match Filesystem::open_incomplete(opened) {
            Ok(fs) => fs,
            Err(error @ zpl::Error::Unsupported(_)) => {
                verdict.unseen.push(format!("{dataset}: {error}"));
                continue;
            }
            Err(error) => {
                verdict.finding(format!("{dataset}: {error}"));
                continue;
            }
        };
        let checked = zpl::check::check_filesystem(&fs, &mut |problem| {
            let part = problem.object().map(|object| ((info.id, object), None));
            verdict.about(format!("{dataset}: {problem}"), part);
        });
        match checked {
            Ok(summary) => {
                verdict.objects += summary.objects;
                verdict.directories += summary.directories;
                verdict.files += summary.files;
            }
            Err(error) => verdict.finding(format!("{dataset}: {error}")),
        }
    }
    verdict.name_files(session);
    Ok(verdict)
}

fn print(name: &str, verdict: &Verdict, seconds: f64, console: &mut Console) -> Result<(), Failure> {
    verdict.findings.iter().try_for_each(|line| console.sentence(&format!("{name}: {line}")))?;
    if verdict.count > verdict.findings.len() as u64 {
        console.line(&format!("{name}: … and {} more", verdict.count - verdict.findings.len() as u64))?;
    }
    verdict.unseen.iter().for_each(|line| console.remark(&format!("{line} (its blocks were checked)")));
    let result = match verdict.count {
        0 => "clean".to_owned(),
        n => counted(n, "fault"),
    };
    let blocks = &verdict.blocks;
    let colour = if verdict.count == 0 { Colour::Green } else { Colour::Red };
    let line = format!(
        "{name}: {result}; {}, {}, {} read, {}, {}, {seconds:.1} s",
        counted(blocks.datasets, "dataset"),
        counted(blocks.blocks, "block"),
        nice_bytes(blocks.bytes),
        counted(verdict.directories, "folder"),
        counted(verdict.files, "file"),
    );
    console.answer(colour, &line)?;
    if verdict.count > 0 {
        console.explain("nothing was changed; 'cenote help damage' says what to do next");
    }
    Ok(())
}

fn report(name: &str, verdict: &Verdict, seconds: f64) -> serde_json::Value {
    json!({
        "name": name,
        "clean": verdict.count == 0,
        "faults": verdict.count,
        "findings": verdict.findings,
        "datasets": verdict.blocks.datasets,
        "blocks": verdict.blocks.blocks,
        "bytes": verdict.blocks.bytes,
        "objects": verdict.objects,
        "directories": verdict.directories,
        "files": verdict.files,
        "not_looked_into": verdict.unseen,
        "seconds": seconds,
    })
}
