//! The negotiation: the client chooses an export and options.

use std::io::{self, Read, Write};

use zpl::Volume;

use crate::context::{ALLOCATION, ID, Question, text};
use crate::export::Export;
use crate::protocol::{INIT, OPTION, OPTION_REPLY, REQUEST_MAX, answer, can, handshake, info, option};

/// Maximal bytes of an option's data: more than any real option needs.
const OPTION_MAX: usize = 16 << 10;
/// Options of a connection: a client needs about six.
const OPTIONS_MAX: usize = 64;

/// The terms on which both sides have agreed.
pub(crate) struct Agreed {
    pub(crate) volume: Volume,
    pub(crate) read_only: bool,
    /// Replies come in chunks.
    pub(crate) is_structured: bool,
    /// The client may ask where there is data.
    pub(crate) has_context: bool,
}

/// Why a connection ends before it has begun.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The client sent invalid data.
    #[error("{0}")]
    Nonsense(&'static str),
    /// The connection failed, or the client takes too long.
    #[error(transparent)]
    Connection(#[from] io::Error),
}

/// The client's answer to the greeting.
#[derive(Clone, Copy)]
pub(crate) struct Greeted {
    /// It does not need the zeros behind the answer to `EXPORT_NAME`.
    no_zeroes: bool,
}

/// The terms that the options have set so far.
#[derive(Default)]
struct State {
    no_zeroes: bool,
    is_encrypted: bool,
    is_structured: bool,
    has_context: bool,
}

/// How the talk about options ends.
pub(crate) enum Outcome {
    /// The client begins to use the export.
    Begin(Agreed),
    /// The client wants to encrypt the rest of the connection.
    Encrypt,
    /// The client has what it wanted and leaves.
    Leave,
}

/// Greets the client. Its answer holds for the whole negotiation.
pub(crate) fn greet<S: Read + Write>(socket: &mut S) -> Result<Greeted, Broken> {
    let mut first = INIT.to_be_bytes().to_vec();
    first.extend(OPTION.to_be_bytes());
    first.extend((handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
    socket.write_all(&first)?;
    let mut flags = [0; 4];
    socket.read_exact(&mut flags)?;
    let flags = u32::from_be_bytes(flags);
    if flags & !u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES) != 0 {
        return Err(Broken::Nonsense("its handshake has unknown flags"));
    }
    Ok(Greeted { no_zeroes: flags & u32::from(handshake::NO_ZEROES) != 0 })
}

/// Talks to the client about options. `is_encrypted`: the connection is encrypted already.
pub(crate) fn negotiate<S: Read + Write>(
    socket: &mut S,
    greeted: Greeted,
    export: &Export,
    is_encrypted: bool,
) -> Result<Outcome, Broken> {
    let mut state = State { no_zeroes: greeted.no_zeroes, is_encrypted, ..State::default() };
    for _ in 0..OPTIONS_MAX {
        let (option, data) = read_option(socket)?;
        let mut talk = Talk { socket, option, export };
        match talk.answer(&mut state, data.as_deref())? {
            Next::Option => {}
            Next::Encrypt => return Ok(Outcome::Encrypt),
            Next::Leave => return Ok(Outcome::Leave),
            Next::Begin(volume) => {
                let read_only = export.is_read_only() || volume.is_read_only();
                let State { is_structured, has_context, .. } = state;
                return Ok(Outcome::Begin(Agreed { volume, read_only, is_structured, has_context }));
            }
        }
    }
    Err(Broken::Nonsense("it sends options without end"))
}

/// An option and its data; `None` in place of data that is too long, which is read and dropped.
fn read_option(socket: &mut impl Read) -> Result<(u32, Option<Vec<u8>>), Broken> {
    let mut head = [0; 16];
    socket.read_exact(&mut head)?;
    let (magic, rest) = head.split_at(8);
    if magic != OPTION.to_be_bytes() {
        return Err(Broken::Nonsense("what it sends as an option is none"));
    }
    let number = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| rest[at + i]));
    let (option, length) = (number(0), number(4) as usize);
    if length > OPTION_MAX {
        // Data longer than any option ends the connection.
        if length > OPTION_MAX * 16 {
            return Err(Broken::Nonsense("it sends an option of absurd length"));
        }
        io::copy(&mut socket.take(length as u64), &mut io::sink())?;
        return Ok((option, None));
    }
    let mut data = vec![0; length];
    socket.read_exact(&mut data)?;
    Ok((option, Some(data)))
}

enum Next {
    Option,
    Encrypt,
    Leave,
    Begin(Volume),
}

/// The answer to one option.
struct Talk<'a, S> {
    socket: &'a mut S,
    option: u32,
    export: &'a Export,
}

impl<S: Read + Write> Talk<'_, S> {
    fn reply(&mut self, kind: u32, data: &[u8]) -> io::Result<()> {
        let mut raw = OPTION_REPLY.to_be_bytes().to_vec();
        for number in [self.option, kind, data.len() as u32] {
            raw.extend(number.to_be_bytes());
        }
        raw.extend(data);
        self.socket.write_all(&raw)
    }

    fn refuse(&mut self, kind: u32, why: &str) -> Result<Next, Broken> {
        self.reply(kind, why.as_bytes())?;
        Ok(Next::Option)
    }

    fn answer(&mut self, state: &mut State, data: Option<&[u8]>) -> Result<Next, Broken> {
        let Some(data) = data else {
            return self.refuse(answer::TOO_BIG, "the option is too long");
        };
        let is_plain = self.export.tls().is_some() && !state.is_encrypted;
        match self.option {
            // There is no way to refuse it but to leave.
            option::EXPORT_NAME if is_plain => Ok(Next::Leave),
            option::EXPORT_NAME => self.begin_by_name(state, data),
            option::ABORT => {
                // The client may be gone already.
                let _ = self.reply(answer::ACK, &[]);
                Ok(Next::Leave)
            }
            option::STARTTLS if is_plain && data.is_empty() => {
                self.reply(answer::ACK, &[])?;
                Ok(Next::Encrypt)
            }
            option::STARTTLS if is_plain || state.is_encrypted => {
                self.refuse(answer::INVALID, "the connection is encrypted once, by an option without data")
            }
            option::STARTTLS => self.refuse(
                answer::POLICY,
                "this export does not encrypt: use its Unix socket, or a tunnel such as ssh",
            ),
            _ if is_plain => self.refuse(answer::TLS_REQUIRED, "this export is for clients that encrypt"),
            option::LIST if data.is_empty() => {
                let name = self.export.name();
                let mut entry = (name.len() as u32).to_be_bytes().to_vec();
                entry.extend(name.as_bytes());
                self.reply(answer::SERVER, &entry)?;
                self.reply(answer::ACK, &[])?;
                Ok(Next::Option)
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                state.is_structured = true;
                self.reply(answer::ACK, &[])?;
                Ok(Next::Option)
            }
            option::LIST | option::STRUCTURED_REPLY => self.refuse(answer::INVALID, "it has no data"),
            option::INFO | option::GO => self.tell(data),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(state, data),
            _ => self.refuse(answer::UNSUPPORTED, "this server does not know the option"),
        }
    }

    /// The old handshake: the only way to refuse is to close the connection.
    fn begin_by_name(&mut self, state: &State, name: &[u8]) -> Result<Next, Broken> {
        if !self.export.is_called(name) {
            return Ok(Next::Leave);
        }
        let Ok(volume) = self.open() else { return Ok(Next::Leave) };
        let mut raw = volume.size().to_be_bytes().to_vec();
        raw.extend(self.abilities(&volume).to_be_bytes());
        if !state.no_zeroes {
            raw.extend([0; 124]);
        }
        self.socket.write_all(&raw)?;
        Ok(Next::Begin(volume))
    }

    fn open(&self) -> Result<Volume, String> {
        self.export.open().inspect_err(|error| {
            tracing::warn!(export = self.export.name(), %error, "an NBD client was not let in");
        })
    }

    fn abilities(&self, volume: &Volume) -> u16 {
        let always = can::HAS_FLAGS | can::FLUSH | can::FUA | can::DF | can::MULTI_CONN;
        match self.export.is_read_only() || volume.is_read_only() {
            true => always | can::READ_ONLY,
            false => always | can::TRIM | can::WRITE_ZEROES,
        }
    }

    /// `INFO` and `GO`.
    fn tell(&mut self, data: &[u8]) -> Result<Next, Broken> {
        let mut rest = data;
        let Ok(name) = text(&mut rest) else { return self.refuse(answer::INVALID, "the name does not fit") };
        let fits = rest
            .split_first_chunk::<2>()
            .is_some_and(|(count, behind)| behind.len() == usize::from(u16::from_be_bytes(*count)) * 2);
        if !fits {
            return self.refuse(answer::INVALID, "the list of questions does not fit");
        }
        if !self.export.is_called(name) {
            return self.refuse(answer::UNKNOWN, "there is no export of this name here");
        }
        let volume = match self.open() {
            Ok(volume) => volume,
            Err(why) => return self.refuse(answer::UNKNOWN, &why),
        };
        let mut item = info::EXPORT.to_be_bytes().to_vec();
        item.extend(volume.size().to_be_bytes());
        item.extend(self.abilities(&volume).to_be_bytes());
        self.reply(answer::INFO, &item)?;
        let mut item = info::NAME.to_be_bytes().to_vec();
        item.extend(self.export.name().as_bytes());
        self.reply(answer::INFO, &item)?;
        let mut item = info::BLOCK_SIZE.to_be_bytes().to_vec();
        let preferred = volume.block_size().clamp(512, REQUEST_MAX.into()) as u32;
        [1, preferred, REQUEST_MAX].iter().for_each(|size| item.extend(size.to_be_bytes()));
        self.reply(answer::INFO, &item)?;
        self.reply(answer::ACK, &[])?;
        Ok(if self.option == option::GO { Next::Begin(volume) } else { Next::Option })
    }

    fn contexts(&mut self, state: &mut State, data: &[u8]) -> Result<Next, Broken> {
        let is_list = self.option == option::LIST_META_CONTEXT;
        if !state.is_structured {
            return self.refuse(answer::INVALID, "structured replies come first");
        }
        let Ok(question) = Question::decode(data, is_list) else {
            return self.refuse(answer::INVALID, "the questions do not fit");
        };
        if !self.export.is_called(question.name) {
            return self.refuse(answer::UNKNOWN, "there is no export of this name here");
        }
        let told = question.wants_allocation || is_list && question.is_open;
        if !is_list {
            state.has_context = told;
        }
        if told {
            let mut item = if is_list { 0 } else { ID }.to_be_bytes().to_vec();
            item.extend(ALLOCATION.as_bytes());
            self.reply(answer::META_CONTEXT, &item)?;
        }
        self.reply(answer::ACK, &[])?;
        Ok(Next::Option)
    }
}
