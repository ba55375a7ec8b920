//! Reading commands of another user on root's pool, which run in the server of the pool.
//!
//! From:   a reading command whose operands name no pool of this user.
//! To:     the socket for visitors of that pool; what the command prints there is printed here.

use std::io::Write;
use std::path::Path;

use server::visitors::{self, AskError, PROTOCOL, Printed, Question};

use crate::command::Call;
use crate::messages::{Action, Failure};
use crate::open::{NotOpen, pool_of};
use crate::out::Console;
use crate::{state, visit};

/// Runs a command on pools that root shares in their server. Returns its exit status; `None` if the command is about pools
/// of this user, or does not read pools.
///
/// # Errors
/// The command may not be asked for, names pools of both users, or its answer does not come.
pub fn ask(call: &Call, words: &[String], console: &mut Console) -> Result<Option<u8>, Failure> {
    let is_visitor = !rustix::process::geteuid().is_root() && call.around.search.is_empty();
    if !is_visitor || !visit::is_allowed(call.command, &call.args) {
        return Ok(None);
    }
    let shared = visitors::shared();
    if shared.is_empty() {
        return Ok(None);
    }
    let own: Vec<String> =
        state::known().read().map_err(NotOpen::from)?.into_iter().map(|pool| pool.name).collect();
    let subjects = visit::subjects(call.command, &call.args.operands);
    let named: Vec<String> = subjects.iter().map(|word| dataset_of(word)).collect();
    // Numbers are no names: they ask for the figures again and again, which is judged below.
    let mut names = named.iter().filter(|name| !name.starts_with(|c: char| c.is_ascii_digit())).peekable();
    let is_own = |name: &String| own.iter().any(|pool| pool == pool_of(name));
    let is_shared = |name: &String| !is_own(name) && shared.iter().any(|pool| pool == pool_of(name));
    let is_named = names.peek().is_some();
    let candidates: Vec<&str> = match names.find(|name| is_shared(name)) {
        None if !is_named && own.is_empty() => shared.iter().map(String::as_str).collect(),
        None => return Ok(None),
        Some(_) if named.iter().any(is_own) => {
            return Err(Failure::refused(
                "cenote: the operands are in pools of two users: ask about those of each user in a command of its own",
            ));
        }
        Some(name) => vec![pool_of(name)],
    };
    let mut args = call.args.clone();
    let lists = args.operands.len() - named.len();
    args.operands.truncate(lists);
    args.operands.extend(named.iter().cloned());
    visit::judge(call.command, &args)?;
    let translated = |word: &String| match subjects.iter().position(|subject| subject == word) {
        Some(at) => named[at].clone(),
        None => word.clone(),
    };
    let question = Question {
        protocol: PROTOCOL,
        program: call.command.program.name().to_owned(),
        words: words.iter().map(translated).collect(),
        posix: call.around.posix,
    };
    for pool in candidates {
        match visitors::ask(pool, &question) {
            Ok(printed) => return print(&printed, console).map(Some),
            // Its server ended without removing the socket: perhaps another pool has one.
            Err(AskError::Absent) if !is_named => {}
            Err(AskError::Refused(line)) => return Err(Failure::refused(line)),
            Err(error) => return Err(Action::Open(pool).failed(error)),
        }
    }
    Ok(None)
}

/// The dataset that is mounted at a path, if the word is a path.
fn dataset_of(word: &str) -> String {
    let is_path = word.starts_with('/') || word.starts_with("./");
    let mount = is_path.then(|| {
        let full = std::fs::canonicalize(Path::new(word)).ok()?;
        server::mountinfo::dataset_of(&full).ok()?
    });
    mount.flatten().map_or_else(|| word.to_owned(), |mount| mount.dataset)
}

fn print(printed: &Printed, console: &mut Console) -> Result<u8, Failure> {
    console.out().write_all(&printed.out)?;
    console.flush()?;
    let said = String::from_utf8_lossy(&printed.err);
    said.lines().for_each(|line| console.remark(line));
    Ok(printed.status)
}
