//! The pool and the dataset of the data: an advice about data in a pool is an advice for this pool.

use bench::advise::{Layout, Origin, Question, Stored};
use pool::Pool;
use pool::props::dataset;
use storage::layout::Spread;
use storage::{Shape, TopVdev};

use super::args::Advise;
use crate::compat::dataset_values;
use crate::files::pools::{Pools, refused};
use crate::messages::Failure;
use crate::place::{Place, PoolPath};

/// Fills in the values that the user did not give: the sectors and the layout of the pool of the data, and the settings
/// of its dataset.
///
/// # Errors
/// The pool cannot be read.
pub fn fill(question: &mut Question, args: &Advise, places: &[Place], pools: &Pools) -> Result<(), Failure> {
    // If the data is in several places, it has no common pool.
    let pool = match places {
        [Place::InPool(place)] => Some((place, pools.pool(place))),
        _ => None,
    };
    let top = pool.and_then(|(_, pool)| usual_top(pool));
    (question.ashift, question.ashift_from) = match (args.ashift, &top) {
        (Some(ashift), _) => (ashift, Origin::Given),
        (None, Some(top)) => (top.ashift, Origin::Pool),
        (None, None) => (question.ashift, Origin::Assumed),
    };
    (question.layout, question.layout_from) = match (args.layout, top.as_ref().and_then(layout)) {
        (Some(layout), _) => (layout, Origin::Given),
        (None, Some(layout)) => (layout, Origin::Pool),
        (None, None) => (question.layout, Origin::Assumed),
    };
    if let Some((place, pool)) = pool {
        question.stored = Some(stored(place, pool)?);
    }
    Ok(())
}

/// The top-level vdev that most blocks of files go to.
fn usual_top(pool: &Pool) -> Option<TopVdev> {
    let vdevs = pool.storage().vdevs();
    let tops = vdevs.tops().iter().filter(|top| top.is_normal() && (9..=16).contains(&top.ashift));
    tops.max_by_key(|top| top.asize).cloned()
}

/// The layout of a vdev in the words of the advisor. A group of draid counts as raidz.
fn layout(top: &TopVdev) -> Option<Layout> {
    match &top.shape {
        Shape::Disk(_) => Some(Layout::Stripe),
        Shape::Mirror(sides) => Some(Layout::Mirror(sides.len() as u64)),
        Shape::Parity { layout, sides } => {
            let parity = layout.parity() as u64;
            let disks = match layout {
                Spread::Draid(draid) => draid.spec().data + parity,
                _ => sides.len() as u64,
            };
            Some(Layout::Raidz { parity, disks })
        }
        _ => None,
    }
}

/// How the dataset of a place is stored now. A snapshot has the properties of its file system.
fn stored(place: &PoolPath, pool: &Pool) -> Result<Stored, Failure> {
    let failed = |error: pool::Error| refused("read", place, error);
    let head = pool.dataset(&place.dataset).map_err(failed)?;
    let text = |name: &str| {
        let shown = dataset::ask(name).map(|asked| dataset_values::show(pool, &head, &asked, true, None));
        shown.transpose().map_err(failed).map(|shown| shown.map_or_else(String::new, |shown| shown.text))
    };
    let number = |name: &str| Ok::<u64, Failure>(text(name)?.parse().unwrap_or(0));
    let whole = pool.dataset(&place.dataset_name()).map_err(failed)?;
    Ok(Stored {
        compression: text("compression")?,
        recordsize: number("recordsize")?,
        referenced_bytes: (place.path == b"/").then_some(whole.phys.referenced_bytes),
        copies: number("copies")?,
    })
}
