//! The name spaces of extended attributes, as Linux has them.

/// The attribute that refines the mode.
pub const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// The attribute with the default ACL of a directory.
pub const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// The spaces other than that of ACLs, with the beginning of their names.
const PREFIXES: [(&[u8], Space); 3] =
    [(b"user.", Space::User), (b"trusted.", Space::Trusted), (b"security.", Space::Security)];

/// A name space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// The attributes of users (`user.`).
    User,
    /// The attributes of programs of root (`trusted.`).
    Trusted,
    /// Labels and file capabilities.
    Security,
    /// POSIX ACLs; the space `system.` has nothing else.
    Acl,
}

/// Whether the attribute is a POSIX ACL.
#[must_use]
pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS_ACL || name == DEFAULT_ACL
}

/// The space that a name is in; `None` if no file system has it.
#[must_use]
pub fn space_of(name: &[u8]) -> Option<Space> {
    if is_acl(name) {
        return Some(Space::Acl);
    }
    PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, space)| *space)
}

/// Whether it is only the prefix of a name space.
#[must_use]
pub fn is_bare(name: &[u8]) -> bool {
    PREFIXES.iter().any(|(prefix, _)| name == *prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_space_follows_from_the_name() {
        assert_eq!(space_of(b"user.a"), Some(Space::User));
        assert_eq!(space_of(b"system.posix_acl_access"), Some(Space::Acl));
        assert_eq!(space_of(b"system.other"), None);
        assert_eq!(space_of(b"plain"), None);
        assert!(is_bare(b"security.") && !is_bare(b"security.a") && !is_bare(b"system."));
    }
}
