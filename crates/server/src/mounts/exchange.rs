//! Replacing the contents of a mounted file system while programs use it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use front::{Changed, Mounted};
use pool::{Dataset, Pool};
use zpl::Filesystem;

use super::{Mounts, Unmounted};

/// Time limit for short uses of the dataset by others, such as a listing command or a read-ahead.
const LETTING_GO: Duration = Duration::from_secs(2);
/// Between two looks at whether they did.
const PAUSE: Duration = Duration::from_millis(2);

/// The result of an exchange.
#[derive(Debug)]
pub enum Exchanged<T> {
    /// The change was made; its result. With a reason: the file system could not be opened after it and is not mounted any
    /// more.
    Done(T, Option<String>),
    /// The file system is not mounted, so the change was not made.
    NotMounted,
}

impl Mounts {
    /// As [`crate::Live::exchange`].
    pub(crate) fn exchange<T, E>(
        &self,
        pool: &Pool,
        dataset: &str,
        next: Arc<Dataset>,
        change: impl FnOnce() -> Result<T, E>,
    ) -> Result<Exchanged<Result<T, E>>, Unmounted> {
        self.end_left(&[dataset.to_owned()], false)?;
        let Some((handle, below)) = self.mount_of(dataset) else { return Ok(Exchanged::NotMounted) };
        let refused = |error| Unmounted::of(handle.point(), error);
        let next = Filesystem::open(next).map_err(|error| refused(error.into()))?;
        let (mut change, mut done) = (Some(change), None);
        let mut exchange = || {
            let_go(pool, dataset);
            let change = change.take().expect("a front end calls it once");
            let is_exchanged = done.insert(change()).is_ok();
            let fs = pool.open(dataset).map_err(zpl::Error::from).and_then(Filesystem::open);
            Changed { is_exchanged, fs }
        };
        let lost = handle.exchange(next, &below, &mut exchange).map_err(refused)?;
        let done = done.expect("a front end that gives no error has called it");
        let lost = lost.map(|error| {
            tracing::error!(dataset, %error, "the file system cannot be opened after its contents were exchanged");
            if let Err(error) = handle.unmount(true) {
                tracing::error!(dataset, %error, "and it stays mounted");
            }
            error.to_string()
        });
        self.notice_unmounted();
        self.show_lost_links();
        Ok(Exchanged::Done(done, lost))
    }

    /// The mount of a dataset, and the paths of other mounts in it.
    fn mount_of(&self, dataset: &str) -> Option<(Arc<dyn Mounted>, Vec<PathBuf>)> {
        self.notice_unmounted();
        let table = self.table();
        let mount = table.iter().find(|mount| mount.dataset == dataset)?;
        let within = |other: &super::Mount| {
            let path = other.point.strip_prefix(&mount.point).ok()?;
            (other.dataset != dataset && !path.as_os_str().is_empty()).then(|| path.to_owned())
        };
        Some((mount.handle.clone(), table.iter().filter_map(within).collect()))
    }
}

/// Waits until `dataset` is closed. If it stays in use, the change itself returns the error.
fn let_go(pool: &Pool, dataset: &str) {
    let until = Instant::now() + LETTING_GO;
    while pool.is_used(dataset).unwrap_or(false) && Instant::now() < until {
        std::thread::sleep(PAUSE);
    }
}
