//! Reading a stream: records with their payloads. Each is verified by the running checksum before use.
//!
//! Source: docs/format/09-send-stream.md §1.

use std::io::{self, Read};

use codec::RunningFletcher4;
use format::stream::{self, Begin, Record};
use format::{ByteOrder, Checksum, NvList};

use pool::ReceiveError;

/// A stream from any [`Read`].
pub struct Incoming<R> {
    input: R,
    order: ByteOrder,
    sum: RunningFletcher4,
    package: Option<(Begin, NvList)>,
    /// The first record of a stream that is no package, until it is read.
    first: Option<(Begin, NvList)>,
    bytes: u64,
}

fn list_of(payload: &[u8]) -> Result<NvList, ReceiveError> {
    if payload.is_empty() { Ok(NvList::new()) } else { Ok(NvList::decode(payload)?) }
}

impl<R: Read> Incoming<R> {
    /// Reads the head of the stream: of a package also its list.
    ///
    /// # Errors
    /// [`ReceiveError::Magic`] when it is something else.
    pub fn open(input: R) -> Result<Incoming<R>, ReceiveError> {
        let order = ByteOrder::Little;
        let sum = RunningFletcher4::new(order);
        let mut incoming = Incoming { input, order, sum, package: None, first: None, bytes: 0 };
        let mut raw = [0; stream::RECORD];
        incoming.fill(&mut raw)?;
        incoming.order = stream::order_of(&raw).map_err(|_| ReceiveError::Magic)?;
        let begin = incoming.begin(&raw)?;
        if begin.0.header_type == 1 {
            incoming.first = Some(begin);
            return Ok(incoming);
        }
        let before = incoming.sum.sum();
        let end = incoming.raw()?;
        match Record::decode(&end, incoming.order)? {
            Record::End(end) if end.checksum == before => {}
            Record::End(_) => return Err(ReceiveError::Checksum),
            _ => return Err(ReceiveError::Invalid("a package whose list does not end")),
        }
        incoming.package = Some(begin);
        Ok(incoming)
    }

    /// The head of a package and its list.
    #[must_use]
    pub fn package(&self) -> Option<&(Begin, NvList)> {
        self.package.as_ref()
    }

    /// Bytes read so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next snapshot's stream; `None` at the end. The one before must have been read to its end.
    ///
    /// # Errors
    /// [`ReceiveError`] when none begins here.
    pub fn next_stream(&mut self) -> Result<Option<(Begin, NvList)>, ReceiveError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        if self.package.is_none() {
            return Ok(None);
        }
        let raw = self.raw()?;
        match Record::decode(&raw, self.order)? {
            Record::End(_) => Ok(None),
            Record::Begin(begin) if begin.header_type == 1 => self.begin(&raw).map(Some),
            _ => Err(ReceiveError::Invalid("a package that goes on without a new stream")),
        }
    }

    fn begin(&mut self, raw: &[u8; stream::RECORD]) -> Result<(Begin, NvList), ReceiveError> {
        let Record::Begin(begin) = Record::decode(raw, self.order)? else { return Err(ReceiveError::Magic) };
        self.sum = RunningFletcher4::new(self.order);
        self.sum.add(raw);
        let payload = self.payload(begin.payload_len.into())?;
        Ok((begin, list_of(&payload)?))
    }

    /// The next record of the present stream with its payload, both verified.
    ///
    /// # Errors
    /// [`ReceiveError::Checksum`], [`ReceiveError::Truncated`], or an invalid record.
    pub fn next_record(&mut self) -> Result<(Record, Vec<u8>), ReceiveError> {
        let raw = self.raw()?;
        let before = self.sum.sum();
        self.sum.add(&raw[..stream::CHECKSUM_AT]);
        let said = stream::checksum(&raw, self.order);
        // Some old senders leave it out.
        if said != Checksum::default() && said != self.sum.sum() {
            return Err(ReceiveError::Checksum);
        }
        self.sum.add(&raw[stream::CHECKSUM_AT..]);
        let record = Record::decode(&raw, self.order)?;
        if let Record::End(end) = &record
            && end.checksum != before
        {
            return Err(ReceiveError::Checksum);
        }
        let mut payload = self.payload(record.payload_len())?;
        if self.order == ByteOrder::Big {
            turn(&record, &mut payload)?;
        }
        Ok((record, payload))
    }

    /// The records up to the end of the stream, or to the first error.
    pub(super) fn records(
        &mut self,
    ) -> impl Iterator<Item = Result<(Record, Vec<u8>), ReceiveError>> + use<'_, R> {
        let mut over = false;
        std::iter::from_fn(move || {
            (!over).then(|| {
                let next = self.next_record();
                over = matches!(next, Err(_) | Ok((Record::End(_), _)));
                next
            })
        })
    }

    /// Reads and verifies the rest of the present stream, and drops it.
    ///
    /// # Errors
    /// As [`Incoming::next_record`].
    pub fn skip(&mut self) -> Result<(), ReceiveError> {
        while !matches!(self.next_record()?.0, Record::End(_)) {}
        Ok(())
    }

    fn payload(&mut self, len: u64) -> Result<Vec<u8>, ReceiveError> {
        let mut payload = Vec::new();
        // Memory grows with the bytes that arrive, not with the size that a record states.
        let read = (&mut self.input).take(len).read_to_end(&mut payload).map_err(ReceiveError::Read)?;
        self.bytes += read as u64;
        if (read as u64) < len {
            return Err(ReceiveError::Truncated);
        }
        self.sum.add(&payload);
        Ok(payload)
    }

    fn raw(&mut self) -> Result<[u8; stream::RECORD], ReceiveError> {
        let mut raw = [0; stream::RECORD];
        self.fill(&mut raw)?;
        Ok(raw)
    }

    fn fill(&mut self, raw: &mut [u8]) -> Result<(), ReceiveError> {
        self.input.read_exact(raw).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof if self.bytes == 0 => ReceiveError::Empty,
            io::ErrorKind::UnexpectedEof => ReceiveError::Truncated,
            _ => ReceiveError::Read(error),
        })?;
        self.bytes += raw.len() as u64;
        Ok(())
    }
}

/// Makes the payload of a big-endian machine little-endian.
fn turn(record: &Record, payload: &mut [u8]) -> Result<(), ReceiveError> {
    let turned = |payload: &mut [u8], object_type| {
        format::swap::to_little(payload, object_type, 0, ByteOrder::Big).map_err(ReceiveError::from)
    };
    match record {
        Record::Object(object) if object.bonus_len > 0 => turned(payload, object.bonus_type),
        Record::Write(write) if !write.is_compressed() => turned(payload, write.object_type),
        _ => Ok(()),
    }
}
