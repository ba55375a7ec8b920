//! Replaying the intent log of a volume after a crash.
//!
//! Source: docs/format/15-volumes-redaction-and-newer-features.md §4.

use format::zil::{Body, Record};

use super::Volume;
use crate::logged::logged_data;
use crate::{Error, Result};

impl Volume {
    /// Replays the log of this volume, if there is one to replay. Returns the number of records.
    pub(crate) fn replay(&self) -> Result<u64> {
        let Some(replay) = self.inner.dataset.replay() else { return Ok(0) };
        let mut count = 0;
        for record in replay.records() {
            let record = record?;
            replay.at(Some(record.seq));
            self.replay_record(&record).inspect_err(|error| {
                let (name, seq, what) = (self.inner.dataset.name(), record.seq, record.body.name());
                tracing::error!(dataset = name, seq, what, %error, "the intent log cannot be replayed");
            })?;
            replay.at(None);
            count += 1;
        }
        replay.finish()?;
        Ok(count)
    }

    fn replay_record(&self, record: &Record) -> Result<()> {
        match &record.body {
            Body::Write(write) => {
                let (offset, data) = logged_data(&self.inner.dataset, write)?;
                self.write(offset, &data)
            }
            Body::Truncate { offset, length, .. } => self.zero(*offset, *length),
            _ => Err(Error::Unsupported("such a record in the intent log of a volume")),
        }
    }
}
