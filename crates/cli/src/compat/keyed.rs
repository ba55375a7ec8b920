//! Commands that read encrypted datasets: only the pool's server has the keys.

use super::Call;
use crate::client;
use crate::messages::Failure;
use crate::open::{Session, pool_of};

/// Lets the pool's server carry out a command that reads encrypted data: of the dataset of this name, and with `below`
/// of all datasets below it. Returns whether the server did; otherwise this process continues.
///
/// # Errors
/// The server failed, and has said why.
pub(super) fn by_server(
    session: &Session,
    call: &Call,
    operands: &[String],
    name: &str,
    below: bool,
) -> Result<bool, Failure> {
    if call.around.served.is_some() {
        return Ok(false);
    }
    let pool = session.pool();
    let head = name.split('@').next().unwrap_or(name);
    // The command itself reports datasets that cannot be read.
    let read = match below {
        true => pool.list(head, None, false).unwrap_or_default(),
        false => pool.dataset(head).into_iter().collect(),
    };
    let is_encrypted = |info| pool.encryption(info).is_ok_and(|found| found.is_some());
    if !read.iter().any(is_encrypted) {
        return Ok(false);
    }
    let Some(client) = client::server_of(pool_of(name), call.around)? else { return Ok(false) };
    let mut words = vec![call.command.name.into()];
    for (name, value) in &call.args.options {
        words.push(if name.len() == 1 { format!("-{name}") } else { format!("--{name}") }.into());
        words.extend(value.iter().map(Into::into));
    }
    words.extend(operands.iter().map(Into::into));
    match client::send(&client, call.command.program.name(), words, call.around) {
        Ok(0) => Ok(true),
        Ok(status) => Err(Failure::Ended(status)),
        Err(error) => Err(client::broken(pool_of(name), &error)),
    }
}
