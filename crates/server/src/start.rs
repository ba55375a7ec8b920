//! Starting a server in the background: this program again, with `serve`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::ClientError;
use crate::log;
use crate::messages::Ready;
use crate::visitors;

/// The longest word of a starting server, in bytes.
const READY_MAX: u64 = 16 << 20;

/// Starts this program with `words` (`serve POOL --ready …`) and waits until it reports that it is ready.
///
/// # Errors
/// [`ClientError::Start`]: it ended before. It printed the reason on standard error.
pub fn start<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Result<Ready, ClientError> {
    let failed = |error: io::Error| ClientError::Start(error.to_string());
    let mut command = Command::new("/proc/self/exe");
    command.arg0("cenote").args(words).current_dir("/");
    for name in ["CENOTE_RUN_DIR", "CENOTE_STATE_DIR", visitors::VARIABLE] {
        // Relative to the present working directory, not to that of the server.
        if let Some(folder) = std::env::var_os(name).filter(|folder| !folder.is_empty()) {
            command.env(name, std::path::absolute(&folder).unwrap_or_else(|_| folder.into()));
        }
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut text = String::new();
    let said = child.stdout.take().expect("it is piped").take(READY_MAX).read_to_string(&mut text);
    said.map_err(failed)?;
    match serde_json::from_str(&text) {
        Ok(ready) => Ok(ready),
        Err(_) => {
            let status = child.wait().map_err(failed)?;
            Err(ClientError::Start(format!("it ended with {status}")))
        }
    }
}

/// The starting server's side: a session of its own, its log in `file`.
///
/// # Errors
/// The log cannot be opened.
pub fn settle(file: &Path) -> io::Result<File> {
    // This fails only for the leader of a process group; a child started this way is none.
    let _ = rustix::process::setsid();
    // It was started through /proc/self/exe, so without this its process name would be `exe`.
    let _ = rustix::thread::set_name(c"cenote");
    log::to_file(file)
}

/// Reports readiness to the parent process and closes its standard streams. From now on standard error goes into the log.
pub(crate) fn say_ready(ready: &Ready, log: &File) -> io::Result<()> {
    let mut out = io::stdout();
    let text = serde_json::to_vec(ready)?;
    out.write_all(&text).and_then(|()| out.flush())?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(log)?;
    Ok(())
}
