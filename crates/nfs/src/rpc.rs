//! Calls and replies of RPC, around the arguments and results of procedures.
//!
//! Source: RFC 5531 §9 and appendix A.

use crate::xdr::{Garbage, Reader, Writer};

const VERSION: u32 = 2;
const CALL: u32 = 0;
const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;
/// Bytes of credentials.
const AUTH_MAX: usize = 400;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
const MACHINE_MAX: usize = 255;
const GROUPS_MAX: u32 = 16;

/// Why a call is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No such program.
    NoProgram,
    /// Another version of the program is asked for; this is the only one.
    Version(u32),
    /// No such procedure.
    NoProcedure,
    /// The arguments cannot be decoded.
    Garbage,
    /// The server has a fault.
    System,
    /// Credentials of a kind that is not supported.
    Credentials,
}

/// The user that a client names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// No user.
    None,
    /// A user. Nothing proves it.
    User { uid: u32, gid: u32, groups: Vec<u32> },
    /// A kind that is not supported.
    Unknown,
}

/// A call.
pub(crate) struct Call<'a> {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) credentials: Credentials,
    pub(crate) arguments: Reader<'a>,
}

/// A message of a client.
pub(crate) enum Message<'a> {
    Call(u32, Call<'a>),
    /// A call by another version of RPC.
    Mismatch(u32),
}

fn user(body: &[u8]) -> Result<Credentials, Garbage> {
    let mut reader = Reader::new(body);
    let _stamp = reader.u32()?;
    let _machine = reader.bytes(MACHINE_MAX)?;
    let (uid, gid, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
    if count > GROUPS_MAX {
        return Err(Garbage);
    }
    let groups = (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?;
    Ok(Credentials::User { uid, gid, groups })
}

/// Reads a message.
pub(crate) fn decode(record: &[u8]) -> Result<Message<'_>, Garbage> {
    let mut reader = Reader::new(record);
    let number = reader.u32()?;
    if reader.u32()? != CALL {
        return Err(Garbage);
    }
    if reader.u32()? != VERSION {
        return Ok(Message::Mismatch(number));
    }
    let (program, version, procedure) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let flavor = reader.u32()?;
    let body = reader.bytes(AUTH_MAX)?;
    let _verifier = (reader.u32()?, reader.bytes(AUTH_MAX)?);
    let credentials = match flavor {
        AUTH_NONE => Credentials::None,
        AUTH_SYS => user(body)?,
        _ => Credentials::Unknown,
    };
    Ok(Message::Call(number, Call { program, version, procedure, credentials, arguments: reader }))
}

/// Begins the reply to a call that is carried out; the results follow.
pub(crate) fn begin_reply(number: u32, out: &mut Writer) {
    for word in [number, REPLY, ACCEPTED, AUTH_NONE, 0, 0] {
        out.u32(word);
    }
}

/// The reply to a call that is not carried out.
pub(crate) fn refuse(number: u32, refusal: Refusal, out: &mut Writer) {
    let words: &[u32] = match refusal {
        Refusal::NoProgram => &[ACCEPTED, AUTH_NONE, 0, 1],
        Refusal::Version(only) => &[ACCEPTED, AUTH_NONE, 0, 2, only, only],
        Refusal::NoProcedure => &[ACCEPTED, AUTH_NONE, 0, 3],
        Refusal::Garbage => &[ACCEPTED, AUTH_NONE, 0, 4],
        Refusal::System => &[ACCEPTED, AUTH_NONE, 0, 5],
        Refusal::Credentials => &[DENIED, AUTH_ERROR, 5],
    };
    [number, REPLY].iter().chain(words).for_each(|word| out.u32(*word));
}

/// The reply to a call by another version of RPC.
pub(crate) fn mismatch(number: u32, out: &mut Writer) {
    [number, REPLY, DENIED, RPC_MISMATCH, VERSION, VERSION].iter().for_each(|word| out.u32(*word));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_user_and_the_groups() {
        let mut out = Writer::default();
        [1, CALL, VERSION, 100_003, 3, 4, AUTH_SYS].iter().for_each(|word| out.u32(*word));
        let mut body = Writer::default();
        body.u32(5);
        body.bytes(b"host");
        [1000, 100, 2, 4, 24].iter().for_each(|word| body.u32(*word));
        out.bytes(body.as_bytes());
        [AUTH_NONE, 0, 77].iter().for_each(|word| out.u32(*word));
        let Ok(Message::Call(1, mut call)) = decode(out.as_bytes()) else { panic!("it is a call") };
        assert_eq!((call.program, call.version, call.procedure), (100_003, 3, 4));
        assert_eq!(call.credentials, Credentials::User { uid: 1000, gid: 100, groups: vec![4, 24] });
        assert_eq!(call.arguments.u32(), Ok(77));
        for cut in 0..out.len() - 4 {
            assert!(decode(&out.as_bytes()[..cut]).is_err(), "{cut}");
        }
    }
}
