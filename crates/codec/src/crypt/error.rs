//! Why sealed data could not be opened. No variant holds a byte of a key or of the data.

/// The reason why encrypted data cannot be decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CryptError {
    /// The authentication code is another one: the key is wrong, or the bytes are not those that were sealed.
    #[error("the authentication code differs")]
    Unauthentic,
    /// A raw key that is not 32 bytes long, or a hex key that is not 64 digits long.
    #[error("a key of {found} characters instead of {expected}")]
    KeyLength {
        /// The number of bytes or digits that the key must have.
        expected: usize,
        /// Bytes or digits that there are.
        found: usize,
    },
    /// A hex key with a character that is no hex digit.
    #[error("a character that is no hexadecimal digit")]
    NotHex,
    /// A number of rounds with which no key is derived from a pass phrase.
    #[error("a pass phrase with {0} iterations: there are from 1 to 4294967295")]
    Iterations(u64),
    /// The layout of a block does not fit its type.
    #[error("{0} do not fit into their block")]
    Layout(&'static str),
    /// CCM takes messages of less than 16 MiB.
    #[error("a block of {0} bytes is too long for CCM")]
    TooLong(usize),
}
