//! The user of a call, after the rules of the export.

use std::net::SocketAddr;

use zpl::session::Caller;

use crate::rpc::Credentials;
use crate::rules::Rules;

/// A client, and the user that it names.
pub(crate) struct Asker {
    pub(crate) client: SocketAddr,
    pub(crate) credentials: Credentials,
}

impl Asker {
    /// The user whose permissions are checked.
    pub(crate) fn caller(&self, rules: &Rules) -> Caller {
        match &self.credentials {
            Credentials::User { uid, gid, groups } => {
                let (uid, gid, groups) = rules.squashed(*uid, *gid, groups);
                Caller::new(uid, gid, &groups)
            }
            Credentials::None | Credentials::Unknown => {
                let (uid, gid) = rules.anonymous();
                Caller::new(uid, gid, &[])
            }
        }
    }
}
