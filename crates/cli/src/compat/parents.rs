//! Parents of the dataset that a command names: finding or making them (`-p`).

use pool::{DatasetInfo, Pool};

use super::changing::{is_missing, words};
use super::dataset_values::{self, Creation};
use crate::messages::{Action, Failure};

/// The dataset `name`, or the nearest one above it that exists.
pub(super) fn nearest_ancestor(pool: &Pool, name: &str) -> pool::Result<DatasetInfo> {
    let mut name = name;
    loop {
        match (pool.dataset(name), name.rsplit_once('/')) {
            (Err(error), Some((above, _))) if is_missing(&error) => name = above,
            (result, _) => return result,
        }
    }
}

/// Makes `name` and its missing parents for `action`, with inherited properties. Returns the topmost new one.
pub(super) fn create_parents(
    pool: &Pool,
    name: &str,
    enabled: &dataset_values::Offered<'_>,
    action: Action<'_>,
) -> Result<Option<String>, Failure> {
    let failed = |error: pool::Error| words(action, &error);
    let mut topmost = None;
    let ends = name.match_indices('/').map(|(at, _)| at).chain(std::iter::once(name.len())).skip(1);
    let ends: Vec<usize> = if name.contains('/') { ends.collect() } else { Vec::new() };
    for end in ends {
        let step = &name[..end];
        match pool.dataset(step) {
            Ok(_) => continue,
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(failed(error)),
        }
        let above = nearest_ancestor(pool, step).map_err(failed)?;
        let made = dataset_values::creation(&[], Some((pool, &above)), enabled);
        let Creation { local, filesystem, .. } = made.map_err(|refusal| action.failed(refusal))?;
        let created = pool.create_filesystem(step, local, filesystem, dataset_values::initialiser());
        created.map_err(failed)?;
        topmost.get_or_insert_with(|| step.to_owned());
    }
    Ok(topmost)
}
