//! The device of a pool that a misspelt name of one probably means.
//!
//! From:   a failure which says that a pool has no such device, and the words of the command line.
//! To:     one more line that names a device which the pool has.

use std::path::Path;

use super::view::{Naming, PoolView};
use crate::around::Surroundings;
use crate::open;
use crate::suggest::nearest;

/// Parts of the messages which say that a device is not in a pool.
const MESSAGES: [&str; 5] = [
    "no such device in pool",
    "couldn't find device \"",
    "device not in pool",
    "Expected a list of vdevs in \"",
    "Expected either a list of pools, or list of vdevs in \"",
];

/// The probable meaning of the first word behind the pool's name that is none of its devices.
pub(crate) fn of_words(line: &str, words: &[String], around: &Surroundings) -> Option<String> {
    if around.visited || !MESSAGES.iter().any(|part| line.contains(part)) {
        return None;
    }
    let pools = open::names(around).ok()?;
    let words = words.iter().map(String::as_str).filter(|word| !word.starts_with('-'));
    let mut from_pool = words.skip_while(|word| !pools.iter().any(|pool| pool == word));
    let view = PoolView::new(open::find(from_pool.next()?, around).ok()?);
    let mut names = Vec::new();
    let mut guids = Vec::new();
    for vdev in view.listed(Naming::default()) {
        vdev.walk(&mut |vdev| {
            names.push(vdev.name.clone());
            names.extend(vdev.path.clone());
            guids.push(vdev.guid.0.to_string());
        });
    }
    let is_there = |word: &str| names.iter().chain(&guids).any(|name| name == word);
    // 'zpool iostat' says of each word what it is: a pool or a device of another pool is spelt right.
    let is_known =
        |word: &str| line.contains(&format!("\t{word} (")) && !line.contains(&format!("\t{word} (unknown)"));
    let word = from_pool.find(|word| !is_there(word) && !is_known(word))?;
    like(word, &names).map(|near| format!("did you mean '{near}'?"))
}

/// The name among `names` that is nearly `word`. Of paths the last parts are compared: the folders make all of them alike.
fn like<'a>(word: &str, names: &'a [String]) -> Option<&'a str> {
    let last = |name: &'a str| Path::new(name).file_name().and_then(|last| last.to_str()).unwrap_or(name);
    let asked = Path::new(word).file_name()?.to_str()?;
    let near = match names.iter().any(|name| last(name) == asked) {
        true => asked,
        false => nearest(asked, names.iter().map(|name| last(name)))?,
    };
    names.iter().map(String::as_str).find(|name| last(name) == near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_paths_the_last_parts_are_compared() {
        let names = ["mirror-0", "/srv/images/disk1.img", "/srv/images/disk2.img"].map(str::to_owned);
        assert_eq!(like("/srv/images/dsik2.img", &names), Some("/srv/images/disk2.img"));
        assert_eq!(like("disk1.img", &names), Some("/srv/images/disk1.img"));
        assert_eq!(like("miror-0", &names), Some("mirror-0"));
        assert_eq!(like("/srv/images/tape", &names), None);
    }
}
