//! `zfs send -t` and `zfs send -S`: resuming a stream, and sending a partial receive.

use format::{NvList, NvValue};
use pool::{Pool, ResumeToken};
use stream::Sender;

use super::changing::is_missing;
use super::keyed::by_server;
use super::zfs_send_options::Options;
use super::zfs_send_words::{Ticker, check_not_mounted, check_terminal, is_told, sending, step, total};
use crate::command::Typed;
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, Session, open_for};
use crate::out::Console;

/// `-t`: the rest of a stream, from the receiver's token.
pub(super) fn resume(call: &Typed<Options>, console: &mut Console, text: &str) -> Result<(), Failure> {
    let args = &call.args;
    if !args.operands.is_empty() {
        return Err(Failure::usage("too many arguments"));
    }
    if call.options.begins_anew() {
        return Err(Failure::usage("invalid flags combined with -t"));
    }
    check_terminal(call, console)?;
    let cannot = |why: &dyn std::fmt::Display| Failure::refused(format!("cannot resume send: {why}"));
    let token = ResumeToken::parse(text).map_err(|error| cannot(&error))?;
    let session =
        open_for(&token.toname, call.around, Intent::Survey).map_err(|error| error.dataset(&token.toname))?;
    if !token.flags.raw && by_server(&session, call, &args.operands, &token.toname, false)? {
        return session.finish();
    }
    let done = resume_in(&session, call, console, &token);
    session.finish().and(done)
}

fn resume_in(
    session: &Session,
    call: &Typed<Options>,
    console: &mut Console,
    token: &ResumeToken,
) -> Result<(), Failure> {
    let pool = session.pool();
    let cannot = |error: pool::Error| match &error {
        pool::Error::NoDataset(what) if what.contains('@') => Failure::refused(format!(
            "cannot resume send: '{what}' is no longer the same snapshot used in the initial send"
        )),
        pool::Error::NoDataset(what) => {
            Failure::refused(format!("cannot resume send: {what} no longer exists"))
        }
        error => sending(&token.toname, error),
    };
    let found = Sender::new(pool).resumption(token).map_err(cannot)?;
    check_not_mounted(session, &found.snapshot)?;
    let (parsable, dry) = (call.options.parsable, call.options.dry_run);
    if is_told(call) {
        let bytes = Sender::new(pool).resumed_size(token).map_err(cannot)?;
        let sizes = [step(found.from.as_ref(), &found.snapshot, bytes, parsable), total(bytes, parsable)];
        tell_token(&token.to_list(), sizes, dry, console)?;
    }
    if !dry {
        let mut ticker = Ticker::of(call);
        let (out, err) = console.both();
        Sender::new(pool)
            .send_resumed(token, out, &mut |sent| ticker.hear(sent, err))
            .map_err(|error| sending(&found.snapshot, &error))?;
    }
    console.flush()
}

/// `-S`: a partial receive, for another receiver that waits for the rest.
pub(super) fn saved(call: &Typed<Options>, console: &mut Console, name: &str) -> Result<(), Failure> {
    if call.options.contradicts_saved() {
        return Err(Failure::usage("incompatible flags combined with saved send flag"));
    }
    if name.contains('@') {
        return Err(Failure::usage("saved send must specify the dataset with partially-received state"));
    }
    check_terminal(call, console)?;
    let session = open_for(name, call.around, Intent::Survey).map_err(|error| error.dataset(name))?;
    if by_server(&session, call, &call.args.operands, name, false)? {
        return session.finish();
    }
    let done = saved_of(session.pool(), call, console, name);
    session.finish().and(done)
}

fn saved_of(pool: &Pool, call: &Typed<Options>, console: &mut Console, name: &str) -> Result<(), Failure> {
    let saved = Sender::new(pool).saved(name).map_err(|error| match &error {
        error if is_missing(error) && pool.dataset(name).is_err() => {
            Action::Open(name).failed(reason::DATASET_MISSING)
        }
        pool::Error::NoDataset(what) => {
            Failure::refused(format!("saved send failed: {what} no longer exists"))
        }
        pool::Error::Receive(pool::ReceiveError::NothingToResume(_)) => {
            Failure::refused(format!("saved send failed: '{name}' holds no part of a stream"))
        }
        error => Failure::refused(format!("saved send failed: {error}")),
    })?;
    let (parsable, dry) = (call.options.parsable, call.options.dry_run);
    if is_told(call) {
        let bytes = Sender::new(pool).saved_size(&saved).map_err(|error| sending(name, &error))?;
        // The stream begins where the original began, and has the local name.
        let mut list = saved.token.to_list();
        let here: [(&str, NvValue); 4] = [
            ("object", 0u64.into()),
            ("offset", 0u64.into()),
            ("bytes", 0u64.into()),
            ("toname", name.into()),
        ];
        for (key, value) in here {
            list.remove(key);
            list.insert(key, value);
        }
        let sizes = [step(saved.from.as_ref(), name, bytes, parsable), total(bytes, parsable)];
        tell_token(&list, sizes, dry, console)?;
    }
    if !dry {
        let mut ticker = Ticker::of(call);
        let (out, err) = console.both();
        Sender::new(pool)
            .send_saved(&saved, out, &mut |sent| ticker.hear(sent, err))
            .map_err(|error| sending(name, &error))?;
    }
    console.flush()
}

/// The contents of a token, and the stream for it.
fn tell_token(token: &NvList, sizes: [String; 2], dry: bool, console: &mut Console) -> Result<(), Failure> {
    let entry = |(name, value): (&[u8], &NvValue)| {
        let name = String::from_utf8_lossy(name);
        match value {
            NvValue::Uint64(number) => format!("\t{name} = {number:#x}"),
            NvValue::String(text) => format!("\t{name} = {}", String::from_utf8_lossy(text)),
            // A flag stands for itself.
            _ => format!("\t{name}"),
        }
    };
    let heads = ["resume token contents:".to_owned(), "nvlist version: 0".to_owned()];
    for line in heads.into_iter().chain(token.iter().map(entry)).chain(sizes) {
        if dry {
            console.line(&line)?;
        } else {
            console.remark(&line);
        }
    }
    Ok(())
}
