//! Keys of the master node (object 1).

pub const VERSION: &str = "VERSION";
pub const ROOT: &str = "ROOT";
pub const DELETE_QUEUE: &str = "DELETE_QUEUE";
pub const SA_ATTRS: &str = "SA_ATTRS";
pub const NORMALIZATION: &str = "normalization";
pub const UTF8ONLY: &str = "utf8only";
pub const CASESENSITIVITY: &str = "casesensitivity";
pub const FUID: &str = "FUID";
pub const SHARES: &str = "SHARES";
pub const USERQUOTA: &str = "userquota@";
pub const GROUPQUOTA: &str = "groupquota@";
pub const PROJECTQUOTA: &str = "projectquota@";
pub const USEROBJQUOTA: &str = "userobjquota@";
pub const GROUPOBJQUOTA: &str = "groupobjquota@";
pub const PROJECTOBJQUOTA: &str = "projectobjquota@";
/// Key of the registry in the SA master node.
pub const SA_REGISTRY: &str = "REGISTRY";
/// Key of the layouts in the SA master node.
pub const SA_LAYOUTS: &str = "LAYOUTS";
/// Version of file systems with SA.
pub const ZPL_VERSION: u64 = 5;
