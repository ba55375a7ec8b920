//! The sender of a request.

use fuser::Request;
use zpl::session::Caller;

/// The sender of `request`. The request contains the first group only. The other groups are read when a decision needs them.
pub(crate) fn of(request: &Request) -> Caller {
    Caller::with_groups_of(request.uid(), request.gid(), request.pid(), groups_of)
}

/// The supplementary groups of a process; none when it is gone.
fn groups_of(process: u32) -> Vec<u32> {
    std::fs::read_to_string(format!("/proc/{process}/status"))
        .map(|status| groups(&status))
        .unwrap_or_default()
}

/// The groups that a process's `status` lists.
fn groups(status: &str) -> Vec<u32> {
    let list = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    list.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_that_the_kernel_lists() {
        let status = "Name:\tbash\nGid:\t4\t4\t4\t4\nGroups:\t20 1001 \nNStgid:\t7\n";
        assert_eq!(groups(status), [20, 1001]);
        assert_eq!(groups("Groups:\t\n").len() + groups("").len(), 0);
        // No program has the process number 0.
        assert_eq!(groups_of(0), []);
    }
}
