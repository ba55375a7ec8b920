//! Extended attributes in the form of the protocol.

use fuser::Errno;
use zpl::session::Caller;
use zpl::{ObjectId, XattrMode};

use crate::errno::{self, Answer};
use crate::limits::CAPABILITY;
use crate::shared::Shared;

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// Meaning of the flags of `setxattr`.
pub(crate) fn mode_of(flags: i32) -> Answer<XattrMode> {
    match flags {
        0 => Ok(XattrMode::Either),
        XATTR_CREATE => Ok(XattrMode::Create),
        XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(Errno::EINVAL),
    }
}

impl Shared {
    pub(crate) fn remove_xattr(&self, by: &Caller, id: ObjectId, name: &[u8]) -> Answer<()> {
        let refused = name == CAPABILITY && self.kernel.limits.refuses(id);
        match self.session.remove_xattr(by, id, name) {
            // The next message refuses the write, if it is one.
            _ if refused => Ok(()),
            done => done.map_err(errno::from),
        }
    }
}
