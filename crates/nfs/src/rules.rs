//! The clients that may use an export, and the users that they count as: the property `sharenfs`.
//!
//! Source: zfsprops(7), exports(5).

use std::net::IpAddr;

/// The user and group `nobody`.
const NOBODY: u32 = 65534;
/// The number that means "none" or "unchanged" to the kernel. A file of this owner could not be changed in a mount.
pub(crate) const NO_ID: u32 = u32::MAX;
/// Only programs of root can use lower ports.
const RESERVED: u16 = 1024;

/// Options that are not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// No number of a user or group.
    #[error("'{0}' is no number of a user or group")]
    Number(String),
    /// No address of clients.
    #[error("'{0}' is no address: clients are '*', an address, or a network such as 10.0.0.0/8")]
    Client(String),
    /// A kind of authentication that is not supported.
    #[error("security '{0}' is not supported: this server knows 'sys' only")]
    Security(String),
    /// An option that is not known.
    #[error("option '{0}' is not known")]
    Option(String),
}

/// A set of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clients {
    All,
    Network(IpAddr, u8),
}

impl Clients {
    fn parse(text: &str) -> Result<Clients, RulesError> {
        let bad = || RulesError::Client(text.to_owned());
        if text == "*" {
            return Ok(Clients::All);
        }
        let text = text.strip_prefix('@').unwrap_or(text);
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => whole,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= whole).ok_or_else(bad)?,
        };
        Ok(Clients::Network(address, bits))
    }

    /// The number of bits by which this names `client`, plus 1; 0 for `*`; `None` if it does not name it.
    fn fit(&self, client: IpAddr) -> Option<u32> {
        let prefix = |a: u128, b: u128, width: u32, bits: u8| {
            let dropped = width - u32::from(bits);
            a.checked_shr(dropped).unwrap_or(0) == b.checked_shr(dropped).unwrap_or(0)
        };
        match (self, client) {
            (Clients::All, _) => Some(0),
            (Clients::Network(IpAddr::V4(network), bits), IpAddr::V4(client)) => {
                let (network, client) = (u32::from(*network).into(), u32::from(client).into());
                prefix(network, client, 32, *bits).then_some(1 + u32::from(*bits))
            }
            (Clients::Network(IpAddr::V6(network), bits), IpAddr::V6(client)) => {
                prefix((*network).into(), client.into(), 128, *bits).then_some(1 + u32::from(*bits))
            }
            _ => None,
        }
    }
}

/// The users that count as nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Squash {
    None,
    Root,
    All,
}

/// The property `sharenfs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Clients; `true`: they may only read.
    clients: Vec<(Clients, bool)>,
    squash: Squash,
    anonymous: (u32, u32),
    /// Clients need not come from a port that only root may use.
    insecure: bool,
    /// Changes of names may be answered before they are durable.
    pub(crate) is_async: bool,
}

/// The rights of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) read_only: bool,
}

impl Rules {
    /// Reads the property's text, other than `off`.
    ///
    /// # Errors
    /// It asks for something that is not supported.
    pub fn parse(text: &str) -> Result<Rules, RulesError> {
        let mut rules = Rules {
            clients: Vec::new(),
            squash: Squash::Root,
            anonymous: (NOBODY, NOBODY),
            insecure: false,
            is_async: false,
        };
        let text = if text == "on" { "rw" } else { text };
        for word in text.split(',').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                None => rules.take_word(word)?,
                Some((key, value)) => rules.take_value(key, value)?,
            }
        }
        if rules.clients.is_empty() {
            // In exports(5), the default is read-only. OpenZFS writes rw in this case.
            rules.clients.push((Clients::All, false));
        }
        Ok(rules)
    }

    fn take_word(&mut self, word: &str) -> Result<(), RulesError> {
        match word {
            "rw" => self.clients.push((Clients::All, false)),
            "ro" => self.clients.push((Clients::All, true)),
            "root_squash" => self.squash = Squash::Root,
            "no_root_squash" => self.squash = Squash::None,
            "all_squash" => self.squash = Squash::All,
            "no_all_squash" if self.squash == Squash::All => self.squash = Squash::Root,
            "insecure" => self.insecure = true,
            "secure" => self.insecure = false,
            "async" => self.is_async = true,
            "sync" => self.is_async = false,
            // These options ask for the present behaviour, or for functions that this server does not have.
            "no_all_squash" | "no_wdelay" | "wdelay" | "nohide" | "hide" | "crossmnt"
            | "no_subtree_check" | "subtree_check" | "nosub" | "insecure_locks" | "secure_locks"
            | "no_auth_nlm" | "auth_nlm" | "no_acl" | "mountpoint" | "mp" => {}
            _ => return Err(RulesError::Option(word.to_owned())),
        }
        Ok(())
    }

    fn take_value(&mut self, key: &str, value: &str) -> Result<(), RulesError> {
        let number = || value.parse::<i64>().map_err(|_| RulesError::Number(value.to_owned()));
        // -1 is nobody, as in exports(5).
        let id = || match number()? {
            -1 | -2 | 0xffff_ffff => Ok(NOBODY),
            id => u32::try_from(id).map_err(|_| RulesError::Number(value.to_owned())),
        };
        match key {
            "rw" | "ro" => {
                for client in split_clients(value) {
                    self.clients.push((Clients::parse(client)?, key == "ro"));
                }
            }
            "anonuid" | "anon" => self.anonymous.0 = id()?,
            "anongid" => self.anonymous.1 = id()?,
            "root_mapping" => (self.squash, self.anonymous.0) = (Squash::Root, id()?),
            "sec" if value.split(':').any(|kind| kind == "sys") => {}
            "sec" => return Err(RulesError::Security(value.to_owned())),
            "fsid" | "mountpoint" | "mp" => {}
            _ => return Err(RulesError::Option(format!("{key}={value}"))),
        }
        Ok(())
    }

    /// The access that a client gets; `None`: none.
    pub(crate) fn grant(&self, client: IpAddr, port: u16) -> Option<Grant> {
        if !self.insecure && port >= RESERVED {
            return None;
        }
        let client = client.to_canonical();
        let fits = self.clients.iter().filter_map(|(clients, ro)| Some((clients.fit(client)?, *ro)));
        // Of several that name the client equally well, the last one counts.
        let best = fits.max_by_key(|(fit, _)| *fit);
        best.map(|(_, read_only)| Grant { read_only })
    }

    /// Whether a client is turned away for its port alone.
    pub(crate) fn wants_reserved_port(&self, port: u16) -> bool {
        !self.insecure && port >= RESERVED
    }

    /// The user and groups that a user of a client counts as. Nobody has the number [`NO_ID`].
    pub(crate) fn squashed(&self, uid: u32, gid: u32, groups: &[u32]) -> (u32, u32, Vec<u32>) {
        let (anonymous, group) = self.anonymous;
        let uid = if uid == NO_ID { anonymous } else { uid };
        let gid = if gid == NO_ID { group } else { gid };
        let groups: Vec<u32> = groups.iter().copied().filter(|id| *id != NO_ID).collect();
        match self.squash {
            Squash::None => (uid, gid, groups),
            Squash::All => (anonymous, group, Vec::new()),
            Squash::Root => {
                let of = |id: u32| if id == 0 { group } else { id };
                let uid = if uid == 0 { anonymous } else { uid };
                (uid, of(gid), groups.iter().map(|id| of(*id)).collect())
            }
        }
    }

    /// The user and group of a call without credentials.
    pub(crate) fn anonymous(&self) -> (u32, u32) {
        self.anonymous
    }
}

/// The clients of a list with `:` between them. An address of IPv6 stands in brackets.
fn split_clients(list: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut depth) = (0, 0u32);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            b':' if depth == 0 => {
                found.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&list[start..]);
    found.retain(|client| !client.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(rules: &str, client: &str) -> Option<bool> {
        let rules = Rules::parse(rules).unwrap();
        rules.grant(client.parse().unwrap(), 700).map(|grant| grant.read_only)
    }

    #[test]
    fn the_most_specific_rule_for_a_client_counts() {
        assert_eq!(grant("on", "10.1.2.3"), Some(false));
        assert_eq!(grant("ro", "10.1.2.3"), Some(true));
        assert_eq!(grant("rw=10.0.0.0/8", "11.1.2.3"), None);
        assert_eq!(grant("rw=@10.0.0.0/8:192.168.0.7", "192.168.0.7"), Some(false));
        assert_eq!(grant("ro,rw=10.0.0.0/8,ro=10.0.0.9", "10.0.0.9"), Some(true));
        assert_eq!(grant("ro,rw=10.0.0.0/8", "10.0.0.9"), Some(false));
        assert_eq!(grant("ro,rw=10.0.0.0/8", "127.0.0.1"), Some(true));
        assert_eq!(grant("rw=[fd00::]/8:[::1]", "fd12::1"), Some(false));
        assert_eq!(grant("rw=[::1]", "::2"), None);
        assert_eq!(grant("rw=0.0.0.0/0", "1.2.3.4"), Some(false));
        // A client of IPv4 on a socket of IPv6.
        assert_eq!(grant("rw=127.0.0.1", "::ffff:127.0.0.1"), Some(false));
        assert_eq!(grant("no_root_squash", "1.2.3.4"), Some(false));
    }

    #[test]
    fn a_port_that_anybody_may_use_needs_insecure() {
        let grants = |text, port| Rules::parse(text).unwrap().grant([127, 0, 0, 1].into(), port).is_some();
        assert!(grants("on", 1023) && !grants("on", 1024) && grants("rw,insecure", 50000));
        assert!(!grants("insecure,secure", 50000));
    }

    #[test]
    fn root_is_nobody_unless_told_otherwise() {
        let who = |text: &str, uid| Rules::parse(text).unwrap().squashed(uid, uid, &[0, 5]);
        assert_eq!(who("on", 0), (65534, 65534, vec![65534, 5]));
        assert_eq!(who("on", 7), (7, 7, vec![65534, 5]));
        assert_eq!(who("rw,no_root_squash", 0), (0, 0, vec![0, 5]));
        assert_eq!(who("all_squash,anonuid=9,anongid=8", 7), (9, 8, vec![]));
        assert_eq!(who("root_mapping=33", 0).0, 33);
        assert_eq!((who("anonuid=-1", 0).0, who("anonuid=4294967295", 0).0), (65534, 65534));
        let no_id = Rules::parse("rw,no_root_squash").unwrap().squashed(NO_ID, NO_ID, &[NO_ID, 5]);
        assert_eq!(no_id, (65534, 65534, vec![5]));
    }

    #[test]
    fn options_that_cannot_be_enforced_are_refused() {
        for bad in
            ["rw=host.example", "rw=10.0.0.0/33", "sec=krb5", "anonuid=x", "anonuid=5000000000", "nope"]
        {
            assert!(Rules::parse(bad).is_err(), "{bad}");
        }
        assert!(Rules::parse("sec=krb5:sys,crossmnt,,no_subtree_check").is_ok());
    }
}
