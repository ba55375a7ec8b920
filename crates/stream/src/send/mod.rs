//! `zfs send`: a snapshot as a stream.
//!
//! From:   the blocks of a snapshot, read ahead by threads that read.
//! To:     any [`std::io::Write`]: a pipe, a file.
//! Source: docs/format/09-send-stream.md §2–§4.
//!
//! The stream is a function of the snapshots and the flags: sent again, or by OpenZFS, it is the same bytes.

mod lineage;
mod package;
mod redact;
mod redaction;
mod resume;
mod saved;
mod sealed;
mod traverse;
mod writer;

use std::io::{self, Write};
use std::sync::Arc;

use format::features;
use format::objset::ObjsetType;
use format::stream::{Begin, KEY_DATA, KeyData, REDACT_FROM_SNAPS, REDACT_SNAPS, feature, flag};
use format::{Guid, NvList, NvValue, ObjectId, Txg};

use dmu::{Record, Touched};
use pool::{Dataset, DatasetInfo, Error, FeatureState, Pool, Result, SendFlags};

use redaction::Redaction;
use resume::Span;
use traverse::Traversal;
use writer::Writer;

pub use lineage::Source;
use lineage::What;
pub use package::{Package, Told};
pub use resume::Resumption;
pub use saved::Saved;

/// Blocks that each reader has in work at once.
const WINDOW_PER_READER: usize = 4;
/// Bytes collected before they are written out.
const BUFFER: usize = 1 << 20;
/// Suffix of the name in a stream of a head instead of a snapshot.
const HEAD: &str = "@--head--";
/// Spreads a txg over all bits of a guid: the odd number next to 2⁶⁴ divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent<'a> {
    /// The snapshot that is being sent.
    pub snapshot: &'a str,
    /// Bytes of its stream that were taken.
    pub bytes: u64,
}

/// A writer that counts the bytes it hands on.
struct Counted<'a> {
    out: &'a mut dyn Write,
    bytes: u64,
    snapshot: &'a str,
    progress: &'a mut dyn FnMut(Sent<'_>),
}

impl Write for Counted<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = self.out.write(buf)?;
        self.bytes += len as u64;
        (self.progress)(Sent { snapshot: self.snapshot, bytes: self.bytes });
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The dataset that a stream is made of.
struct Subject<'a> {
    /// Its name in progress reports.
    name: &'a str,
    open: &'a Dataset,
    /// Its first record, without the values from the objset and the span.
    begin: Begin,
    since: Txg,
    span: Span,
    /// For a raw stream: its key data.
    key_data: Option<KeyData>,
    redaction: Redaction,
}

impl Subject<'_> {
    /// The first record and the list behind it, packed.
    fn opening(&self) -> (Begin, Vec<u8>) {
        let (root, _) = self.open.objset().synced_root();
        let mut begin = Begin { objset_type: root.os_type as u32, ..self.begin.clone() };
        if root.os_type == ObjsetType::Zfs {
            begin.features |= feature::SA_SPILL;
        }
        let mut list = NvList::new();
        for (key, guids) in [(REDACT_SNAPS, &self.redaction.by), (REDACT_FROM_SNAPS, &self.redaction.from)] {
            if let Some(guids) = guids {
                list.insert(key, NvValue::Uint64Array(guids.clone()));
            }
        }
        if let Some((object, offset)) = self.span.at {
            begin.features |= feature::RESUMING;
            list.insert("resume_object", object);
            list.insert("resume_offset", offset);
        }
        if let Some(data) = &self.key_data {
            list.insert(KEY_DATA, data.to_list());
        }
        let list = if list.is_empty() { Vec::new() } else { list.to_native() };
        (begin, list)
    }
}

/// The blocks that a redacted stream leaves out: the complete list of a redaction bookmark of its snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// `pool/fs#mark`.
    name: String,
    list: ObjectId,
    /// Guids of the redaction snapshots.
    guids: Vec<u64>,
}

/// The content and the form of a stream.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The snapshot, or a file system or volume whose head is sent.
    pub snapshot: &'a str,
    /// The source that it builds upon.
    pub from: Option<&'a Source>,
    /// The form of its blocks.
    pub flags: SendFlags,
    /// The blocks that it leaves out.
    pub leaving: Option<&'a Leaving>,
    /// It starts at this object and byte offset.
    pub at: Option<(u64, u64)>,
}

impl<'a> Request<'a> {
    /// All of a snapshot, or all since `from`.
    #[must_use]
    pub const fn new(snapshot: &'a str, from: Option<&'a Source>, flags: SendFlags) -> Request<'a> {
        Request { snapshot, from, flags, leaving: None, at: None }
    }
}

/// The guid in the stream of a head: another one after each change of the head, so that a receiver never joins the
/// beginning of one stream with the rest of another. OpenZFS takes the guid of the head, which stays.
fn guid_of_head(info: &DatasetInfo) -> Guid {
    Guid(info.phys.guid.0 ^ info.phys.bp.birth().0.wrapping_mul(SPREAD))
}

/// Sends snapshots of a pool.
pub struct Sender<'a> {
    pool: &'a Pool,
}

impl<'a> Sender<'a> {
    /// Sends from `pool`.
    #[must_use]
    pub const fn new(pool: &'a Pool) -> Sender<'a> {
        Sender { pool }
    }

    /// Writes the full or incremental stream of a snapshot. Returns its bytes and reports them to `progress`.
    ///
    /// # Errors
    /// [`Error::NotEarlier`]; [`Error::Output`] if the stream cannot be written; a block that cannot be read.
    pub fn send(
        &self,
        snapshot: &str,
        from: Option<&Source>,
        flags: SendFlags,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Sent<'_>),
    ) -> Result<u64> {
        self.send_request(&Request::new(snapshot, from, flags), out, progress)
    }

    /// As [`Sender::send`], for any request.
    ///
    /// # Errors
    /// As [`Sender::send`]; [`Error::RawRedacted`]; [`Error::RedactionUnfinished`].
    pub fn send_request(
        &self,
        request: &Request<'_>,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Sent<'_>),
    ) -> Result<u64> {
        let &Request { snapshot, from, flags, at, .. } = request;
        // While the snapshot is open it cannot be destroyed. The DSL lock is not held during the send.
        let open = self.open(snapshot, flags)?;
        let to = self.to_be_sent(snapshot)?;
        if let Some(from) = from {
            self.check_earlier(&to, from)?;
        }
        let redaction = self.redaction(&to, request)?;
        let begin = self.begin_of(&to, from, flags, redaction.by.is_some())?;
        let since = from.map_or(Txg(0), |from| from.txg);
        let key_data = match begin.features & feature::RAW {
            0 => None,
            _ if redaction.changes_blocks() => return Err(Error::RawRedacted),
            _ => Some(self.key_data(&to, &open, from)?),
        };
        let span = Span { at, last: None };
        let subject = Subject { name: snapshot, open: &open, begin, since, span, key_data, redaction };
        self.write_stream(subject, out, progress)
    }

    /// Writes a stream; returns its bytes.
    fn write_stream(
        &self,
        subject: Subject<'_>,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Sent<'_>),
    ) -> Result<u64> {
        let (begin, list) = subject.opening();
        let Subject { name, open, since, span, key_data, redaction, .. } = subject;
        let (root, _) = open.objset().synced_root();
        let mut out = Counted { out, bytes: 0, snapshot: name, progress };
        let buffered = io::BufWriter::with_capacity(BUFFER, &mut out);
        let mut writer = Writer::new(buffered, begin.toguid, begin.features, since, &root.meta_dnode);
        writer.begin(&begin, &list)?;
        let readers = self.pool.readers();
        let reader = self.reader(open, key_data.is_some());
        let walk = Traversal::new(reader, &root.meta_dnode, since).raw(key_data.is_some());
        readers.map_ordered(
            storage::Caller::Works,
            redaction.applied(span.of(walk), open.objset(), span.at),
            readers.count() * WINDOW_PER_READER,
            |event| event.and_then(|event| traverse::load(reader, event, begin.features, since)),
            |loaded| writer.put(loaded?),
        )?;
        match span.last {
            None => writer.end()?,
            Some(_) => writer.leave()?,
        }
        Ok(out.bytes)
    }

    /// The dataset that a stream is made of: a snapshot, or a head as of the last sync, which gets the name of a
    /// snapshot that there cannot be.
    fn to_be_sent(&self, name: &str) -> Result<DatasetInfo> {
        let mut info = self.pool.dataset(name)?;
        if info.is_bookmark() {
            return Err(Error::NoDataset(name.to_owned()));
        }
        if !info.is_snapshot() {
            info.phys.guid = guid_of_head(&info);
            info.name += HEAD;
            // The contents of a head are younger than all its sources.
            info.phys.creation_txg = Txg(u64::MAX);
        }
        Ok(info)
    }

    /// The BEGIN record, without the values from the objset.
    fn begin_of(
        &self,
        to: &DatasetInfo,
        from: Option<&Source>,
        flags: SendFlags,
        is_redacted: bool,
    ) -> Result<Begin> {
        let marks = self.pool.marks_of(to.id)?;
        let marked = |feature: &features::Feature| marks.contains(feature.guid);
        let lz4 = self.pool.info().feature(&features::LZ4_COMPRESS) == FeatureState::Active;
        let is_encrypted = self.pool.is_encrypted(to)?;
        // Encrypted datasets have no blocks in pointers.
        let embeds =
            !is_encrypted && self.pool.info().feature(&features::EMBEDDED_DATA) == FeatureState::Active;
        let embeds = embeds && (flags.embedded || flags.raw);
        let compressed = flags.compressed || flags.raw;
        let wanted = [
            (feature::LARGE_BLOCKS, (flags.large_blocks || flags.raw) && marked(&features::LARGE_BLOCKS)),
            (feature::LARGE_DNODE, marked(&features::LARGE_DNODE)),
            (feature::EMBED_DATA, embeds),
            (feature::COMPRESSED, compressed),
            (feature::LZ4, (embeds || compressed) && lz4),
            (feature::ZSTD, compressed && marked(&features::ZSTD_COMPRESS)),
            (feature::RAW, flags.raw && is_encrypted),
            // OpenZFS leaves this out for a snapshot that was redacted before, and its receiver takes it for complete.
            (feature::REDACTED, is_redacted),
        ];
        let is_clone = from.is_some_and(|from| from.dir != to.dir_id);
        let insensitive = to.phys.flags & format::dsl_dataset::CASE_INSENSITIVE != 0;
        let mut bits = flag::FREE_RECORDS | flag::SPILL_BLOCK;
        bits |= if is_clone { flag::CLONE } else { 0 };
        bits |= if insensitive { flag::CASE_INSENSITIVE } else { 0 };
        Ok(Begin {
            header_type: 1,
            features: wanted.iter().filter(|(_, on)| *on).map(|(bit, _)| bit).sum(),
            creation_time: to.phys.creation_time,
            objset_type: 0,
            flags: bits,
            toguid: to.phys.guid,
            fromguid: from.map_or(Guid(0), |from| from.guid),
            toname: to.name.clone().into_bytes(),
            payload_len: 0,
        })
    }

    /// Writes every snapshot after `from` up to `snapshot` (`-I`), as a package. If `from` is the origin of a clone, these
    /// are all snapshots of the clone.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn send_between(
        &self,
        snapshot: &str,
        from: &Source,
        flags: SendFlags,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Sent<'_>),
    ) -> Result<u64> {
        let chain = self.between(snapshot, from)?;
        let mut sent = writer::package_head(snapshot, &[], out)?;
        let mut before = from.clone();
        for info in chain {
            sent += self.send(&info.name, Some(&before), flags, out, progress)?;
            before = Source::of(&info);
        }
        sent += writer::package_end(out)?;
        Ok(sent)
    }

    /// The streams of [`Sender::send_between`], in order: from, to.
    ///
    /// # Errors
    /// As [`Sender::send_between`].
    pub fn send_steps(&self, snapshot: &str, from: &Source) -> Result<Vec<(Option<Source>, String)>> {
        let mut before = from.clone();
        let step = |info: DatasetInfo| {
            let from = std::mem::replace(&mut before, Source::of(&info));
            (Some(from), info.name)
        };
        Ok(self.between(snapshot, from)?.into_iter().map(step).collect())
    }

    /// Objects of `to`, as of the last sync, that may differ from the earlier snapshot `from` of it, by number.
    ///
    /// # Errors
    /// [`Error::NotEarlier`]; each step may fail to read a block.
    pub fn touched(
        &self,
        from: &Source,
        to: &Dataset,
    ) -> Result<impl Iterator<Item = Result<Touched>> + use<'a>> {
        let mut info = self.pool.dataset(&to.name())?;
        if !info.is_snapshot() {
            // The contents of a head are younger than all its sources.
            info.phys.creation_txg = Txg(u64::MAX);
        }
        self.check_earlier(&info, from)?;
        let (root, _) = to.objset().synced_root();
        let walk = Traversal::of_dnodes(self.pool.reader(), &root.meta_dnode, from.txg);
        Ok(walk.filter_map(|event| match event {
            Ok(traverse::Event::Object { id, .. }) => Some(Ok(Touched::Object(ObjectId(id)))),
            Ok(traverse::Event::Free { first, count }) => Some(Ok(Touched::Free { first, count })),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }))
    }

    /// The pairs of a stream about redaction, and the lists that it follows.
    fn redaction(&self, to: &DatasetInfo, request: &Request<'_>) -> Result<Redaction> {
        let &Request { from, leaving, .. } = request;
        let by = match leaving {
            Some(leaving) => Some(leaving.guids.clone()),
            None => self.pool.redaction_of(to)?,
        };
        let lacking = from.and_then(|from| Some((from.name.as_str(), from.list?)));
        let from = match (from.map(|from| from.what), lacking) {
            (_, Some((_, list))) => {
                let header = self.pool.redaction_header(list)?;
                if header.progress.is_some() {
                    return Err(Error::RedactionUnfinished);
                }
                Some(header.snaps)
            }
            (Some(What::Snapshot(id)), None) => self.pool.reading().redaction(id)?,
            _ => None,
        };
        let left_out = leaving.map(|leaving| self.pool.redaction_entries(&leaving.name, leaving.list));
        let lacking = lacking.map(|(name, list)| self.pool.redaction_entries(name, list));
        Ok(Redaction { by, from, left_out: left_out.transpose()?, lacking: lacking.transpose()? })
    }

    /// Estimated bytes of [`Sender::send_request`]: the data written since its source, estimated as in OpenZFS. With a redaction
    /// list they are exact.
    ///
    /// # Errors
    /// As [`Sender::send_request`], except for the output.
    pub fn send_size(&self, request: &Request<'_>) -> Result<u64> {
        let &Request { snapshot, from, flags, at, .. } = request;
        let open = self.open(snapshot, flags)?;
        let to = self.to_be_sent(snapshot)?;
        if let Some(from) = from {
            self.check_earlier(&to, from)?;
        }
        let flags = SendFlags { raw: flags.raw && self.pool.is_encrypted(&to)?, ..flags };
        let since = from.map_or(Txg(0), |from| from.txg);
        let redaction = self.redaction(&to, request)?;
        let span = Span { at, last: None };
        if !redaction.changes_blocks() {
            return self.size_of((&open, since), span, flags, redaction);
        }
        if flags.raw {
            return Err(Error::RawRedacted);
        }
        let begin = self.begin_of(&to, from, flags, redaction.by.is_some())?;
        let subject = Subject { name: snapshot, open: &open, begin, since, span, key_data: None, redaction };
        self.length_of(subject)
    }

    /// The length in bytes of a stream that is not raw. It is computed without reading the blocks.
    fn length_of(&self, subject: Subject<'_>) -> Result<u64> {
        let (begin, list) = subject.opening();
        let Subject { name, open, since, span, redaction, .. } = subject;
        let (root, _) = open.objset().synced_root();
        let mut nowhere = io::sink();
        let mut out = Counted { out: &mut nowhere, bytes: 0, snapshot: name, progress: &mut |_| {} };
        let writer = Writer::new(&mut out, begin.toguid, begin.features, since, &root.meta_dnode);
        let mut writer = writer.unsummed();
        writer.begin(&begin, &list)?;
        let zeros: Record = Arc::new(vec![0; traverse::OLD_MAX_BLOCK as usize]);
        let walk = Traversal::new(self.reader(open, false), &root.meta_dnode, since);
        for event in redaction.applied(span.of(walk), open.objset(), span.at) {
            writer.put(traverse::unloaded(event?, begin.features, since, &zeros))?;
        }
        writer.end()?;
        Ok(out.bytes)
    }

    /// Estimated bytes of the stream of all blocks born after `since`.
    fn size_of(
        &self,
        (open, since): (&Dataset, Txg),
        span: Span,
        flags: SendFlags,
        redaction: Redaction,
    ) -> Result<u64> {
        let (root, _) = open.objset().synced_root();
        let mut bytes = 0;
        let walk = Traversal::new(self.reader(open, flags.raw), &root.meta_dnode, since).raw(flags.raw);
        for event in redaction.applied(span.of(walk), open.objset(), span.at) {
            bytes += event?.size(flags);
        }
        Ok(bytes)
    }
}
