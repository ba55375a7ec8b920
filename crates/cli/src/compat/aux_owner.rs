//! Which imported pool a cache or spare belongs to.

use format::config::Label;
use pool::labels::Labels;

use super::view::PoolView;
use crate::around::Surroundings;
use crate::messages::Failure;
use crate::open;

/// The imported pool that has the device of these labels as a cache or spare.
///
/// # Errors
/// If the list of imported pools cannot be read.
pub fn owner_of_aux(labels: &Labels, around: &Surroundings) -> Result<Option<String>, Failure> {
    let own = labels.configs.iter().find_map(|label| match label {
        Label::Aux(aux) => Some(aux.guid),
        Label::Pool(_) => None,
    });
    let Some(guid) = own else { return Ok(None) };
    let mut views = open::usable(around)?.into_iter().filter(|pool| pool.known.is_some()).map(PoolView::new);
    let has = |view: &PoolView| view.aux().is_ok_and(|all| all.iter().any(|aux| aux.config.guid == guid));
    Ok(views.find(has).map(|view| view.name))
}
