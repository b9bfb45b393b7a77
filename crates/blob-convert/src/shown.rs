//! What an output will show, found before the output is written: the format by the content, the number of arrays.
//!
//! A reader looks at the first bytes and, of Caffe's messages, at the fields. The bytes around the tensors are made
//! for this; values, which no reader looks at, count as zeros.

use std::io;

use blob_io::layout::{Copied, Layout, shown_format};
use blob_io::{Error, Format, Source};

use crate::change::{Change, Effect};
use crate::destination::Destination;
use crate::plan::Plan;
use crate::runs::{read_runs, read_zeros};
use crate::template::Template;

/// A planned file.
pub(crate) struct PlannedBytes<'a> {
    pub(crate) len: u64,
    /// The bytes around the tensors.
    pub(crate) frame: Vec<(u64, Vec<u8>)>,
    pub(crate) copies: &'a [Copied],
    /// The file that the copies are of.
    pub(crate) base: Option<&'a dyn Source>,
}

impl Source for PlannedBytes<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        read_zeros(self.len, offset, buf)?;
        read_runs(
            &self.frame,
            |(at, bytes)| *at..at + bytes.len() as u64,
            offset,
            buf,
            |(_, bytes), from, part| {
                part.copy_from_slice(&bytes[from as usize..][..part.len()]);
                Ok(())
            },
        )?;
        let Some(base) = self.base else { return Ok(()) };
        read_runs(
            self.copies,
            |copied| copied.to..copied.to + copied.len,
            offset,
            buf,
            |copied, from, part| base.read_at(copied.from + from, part),
        )
    }
}

impl Plan<'_> {
    /// The remark that only a reader who is told the format opens the output, where that is so.
    pub(crate) fn unshown(&self) -> Result<Option<Change>, Error> {
        let (layout, name) = match &self.output {
            Destination::File { layout, path, .. } => (layout, path.display().to_string()),
            Destination::Stdout { layout } => (layout, String::new()),
            Destination::Shards { .. } | Destination::Folder { .. } => return Ok(None),
        };
        if matches!(self.base, Template::Same) {
            return remark(self.to, || Ok(shown_format(self.checkpoint.source(), &name)));
        }
        let base = self.base.file().map(|file| file.source());
        let receipt = self.has_receipt.then(|| self.receipt.placeholder());
        let metadata: Vec<_> = self.metadata.iter().cloned().chain(receipt).collect();
        unshown(self.to, layout, &metadata, base, &name)
    }
}

/// The remark about a file of this layout, whose other bytes are those of `base`.
pub(crate) fn unshown(
    to: Format,
    layout: &Layout,
    metadata: &[(String, String)],
    base: Option<&dyn Source>,
    name: &str,
) -> Result<Option<Change>, Error> {
    remark(to, || {
        let (frame, copies) = (layout.frame(metadata, &[])?, layout.copies());
        Ok(shown_format(&PlannedBytes { len: layout.len(), frame, copies, base }, name))
    })
}

/// The remark where the content shows another format, or none.
fn remark(to: Format, shown: impl FnOnce() -> Result<Option<Format>, Error>) -> Result<Option<Change>, Error> {
    if to.holds().mark || shown()? == Some(to) {
        return Ok(None);
    }
    let words = format!("its content does not show its format: --from {} reads it", to.name());
    Ok(Some(Change::unasked(Effect::Remark(words))))
}
