//! Whether the content of an output will show the format, found before the output is written.
//!
//! A reader looks at the first bytes and, of Caffe's messages, at the fields. The bytes around the tensors are made
//! for this; values, which no reader looks at, count as zeros.

use std::io;

use blob_io::layout::{Copied, Layout, shown_format};
use blob_io::{Error, Format, Source};

use crate::base::Base;
use crate::change::{Change, Effect};
use crate::plan::{Destination, Plan};

/// A planned file.
struct Planned<'a> {
    len: u64,
    frame: Vec<(u64, Vec<u8>)>,
    copies: &'a [Copied],
    /// The file that the copies are of.
    base: Option<&'a dyn Source>,
}

impl Source for Planned<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.len);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.fill(0);
        let first = self.frame.partition_point(|(at, bytes)| at + bytes.len() as u64 <= offset);
        for (at, bytes) in self.frame[first..].iter().take_while(|(at, _)| *at < end) {
            let (from, to) = (offset.max(*at), end.min(at + bytes.len() as u64));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
        }
        let first = self.copies.partition_point(|copied| copied.to + copied.len <= offset);
        for copied in self.copies[first..].iter().take_while(|copied| copied.to < end) {
            let (from, to) = (offset.max(copied.to), end.min(copied.to + copied.len));
            let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
            self.base.map_or(Ok(()), |base| base.read_at(copied.from + (from - copied.to), part))?;
        }
        Ok(())
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
        if matches!(self.base, Base::Same) {
            return remark(self.to, || Ok(shown_format(self.checkpoint.source(), &name)));
        }
        let base = self.base.file().map(|file| file.source());
        unshown(self.to, (layout, &self.metadata), base, &name)
    }
}

/// The remark about a file of this layout, whose other bytes are those of `base`.
pub(crate) fn unshown(
    to: Format,
    (layout, metadata): (&Layout, &[(String, String)]),
    base: Option<&dyn Source>,
    name: &str,
) -> Result<Option<Change>, Error> {
    remark(to, || {
        let (frame, copies) = (layout.frame(metadata, &[])?, layout.copies());
        Ok(shown_format(&Planned { len: layout.len(), frame, copies, base }, name))
    })
}

/// The remark where the content shows another format, or none.
fn remark(to: Format, shown: impl FnOnce() -> Result<Option<Format>, Error>) -> Result<Option<Change>, Error> {
    // Each of these begins with a mark.
    let has_mark = matches!(to, Format::Safetensors | Format::Npz | Format::Npy | Format::Hdf5 | Format::MxnetList);
    if has_mark || shown()? == Some(to) {
        return Ok(None);
    }
    let words = format!("its content does not show its format: --from {} reads it", to.name());
    Ok(Some(Change::unasked(Effect::Remark(words))))
}
