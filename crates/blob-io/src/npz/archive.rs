//! One member of an archive as an entry, or as bytes: found, checked against the zip, its npy header read.

use std::io::Read;

use blob_core::{DType, Shape};

use crate::entry::{Checksum, Deflated, Entry, Kind, Payload, Runs, Segment};
use crate::error::{Fault, FaultKind, ReadError, Reason};
use crate::limits::{Limit, Limits};
use crate::names::Gather;
use crate::npy::header::{self, Header};
use crate::npz::index::Slot;
use crate::npz::zip::{self, Directory, Member};
use crate::payload::{self, member};
use crate::wire::cursor::Cursor;
use crate::wire::source::{Bytes, Source};

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// An open archive: what the reading of its members needs.
pub(crate) struct Archive<'c, 's> {
    source: &'s dyn Source,
    cursor: &'c mut Cursor<'s>,
    directory: Directory,
    /// Whether a member so far is deflated.
    deflated: bool,
    /// How many bytes may still be inflated to list the arrays.
    inflatable: u64,
}

impl<'c, 's> Archive<'c, 's> {
    pub(crate) fn new(
        source: &'s dyn Source,
        cursor: &'c mut Cursor<'s>,
        directory: Directory,
        limits: &Limits,
    ) -> Self {
        Self { source, cursor, directory, deflated: false, inflatable: limits.max_alloc }
    }

    /// Whether a member that was listed is deflated.
    pub(crate) fn is_deflated(&self) -> bool {
        self.deflated
    }

    pub(crate) fn member(&mut self, slot: Slot) -> Result<Member, ReadError> {
        self.cursor.seek(slot.record);
        zip::member(self.cursor, self.directory.end)
    }

    /// A member's array as an entry without a name; what is wrong with the member is the entry's fault.
    pub(crate) fn entry(
        &mut self,
        member: &Member,
        position: u32,
        index: u32,
        kind: Kind,
        gather: &mut Gather,
    ) -> Result<Entry, ReadError> {
        let mut entry = Entry::new(position, index, kind);
        match self.describe(member, &mut entry) {
            Ok(0) => Ok(entry),
            Ok(_) => {
                gather.warn(None, "members hold more bytes than their arrays");
                Ok(entry)
            }
            Err(ReadError::Fault(fault)) => {
                // What was found out before the fault is shown beside it.
                entry.dtype = None;
                entry.payload = Payload::Runs(Runs::None);
                // What only is not read may still be sound, which its checksum tells.
                entry.checksum = entry.checksum.filter(|_| fault.reason() == Reason::Unsupported);
                entry.fault = Some(Box::new(fault));
                Ok(entry)
            }
            Err(stop) => Err(stop),
        }
    }

    /// Fills the entry in; returns how many bytes of the member follow the array.
    fn describe(&mut self, member: &Member, entry: &mut Entry) -> Result<u64, ReadError> {
        let content = self.content(member)?;
        entry.checksum = Some(Box::new(content.checksum(member)));
        let Content::Deflated(stream) = content else {
            let end = content.begin() + member.size;
            let prefix = header::prefix(self.cursor, end)?;
            let header = header::dict(self.cursor, prefix.data)?;
            let room = end - prefix.data;
            return Ok(room - header.describe(entry, prefix.data, room)?);
        };
        let (header, skip) = inflated_header(self.source, &stream, member.size, |n| self.spend(n))?;
        let room = member.size - skip;
        let at = |fault: Fault| Fault::new(stream.offset, fault.kind);
        let len = header.describe(entry, stream.offset, room).map_err(at)?;
        if len > 0 {
            entry.payload = Payload::Deflated(Box::new(Deflated { skip, ..stream }));
        }
        Ok(room - len)
    }

    /// Where a member's bytes are; the cursor stands at their beginning.
    fn content(&mut self, member: &Member) -> Result<Content, ReadError> {
        if member.encrypted {
            let what = FaultKind::unsupported("a member without encryption", "an encrypted one");
            return Err(ReadError::fault(member.local, what));
        }
        let offset = zip::content(self.cursor, member, self.directory.begin)?;
        match member.method {
            STORED if member.packed == member.size => Ok(Content::Stored(offset)),
            STORED => {
                let what = FaultKind::Mismatch {
                    field: "the packed size of a stored member",
                    expected: member.size,
                    found: member.packed,
                };
                Err(ReadError::fault(member.local, what))
            }
            DEFLATED => {
                self.deflated = true;
                Ok(Content::Deflated(Deflated { offset, packed: member.packed, skip: 0 }))
            }
            method => {
                let found = format!("compression method {method}");
                Err(ReadError::fault(member.local, FaultKind::unsupported("a stored or deflated member", found)))
            }
        }
    }

    /// Counts the bytes that are inflated while the file is opened: their sum is bounded, not only each header.
    fn spend(&mut self, bytes: u64) -> Result<(), FaultKind> {
        let left = self.inflatable.checked_sub(bytes);
        self.inflatable = left.ok_or(FaultKind::Limit {
            field: "the bytes of a deflated header",
            needed: bytes,
            allowed: self.inflatable,
            limit: Limit::Alloc,
        })?;
        Ok(())
    }

    /// A member's bytes as they are, where they are at most `limit` and have their checksum.
    pub(crate) fn bytes(&mut self, member: &Member, limit: u64) -> Result<Option<Vec<u8>>, ReadError> {
        if member.size > limit {
            return Ok(None);
        }
        let mut entry = Entry::new(0, 0, Kind::Data);
        let content = self.content(member)?;
        entry.checksum = Some(Box::new(content.checksum(member)));
        if let Content::Deflated(_) = content {
            self.spend(member.size).map_err(|what| ReadError::fault(member.local, what))?;
        }
        entry.payload = match content {
            Content::Stored(offset) => Payload::Runs(Runs::One(Segment { offset, count: member.size, stride: 1 })),
            Content::Deflated(stream) => Payload::Deflated(Box::new(stream)),
        };
        entry.dtype = Some(DType::U8);
        entry.shape = Shape::new([member.size as usize])
            .map_err(|_| ReadError::fault(member.local, FaultKind::Overflow { axes: 1 }))?;
        payload::bytes(self.source, &entry).map(Some)
    }
}

enum Content {
    Stored(u64),
    Deflated(Deflated),
}

impl Content {
    fn begin(&self) -> u64 {
        match self {
            Self::Stored(offset) => *offset,
            Self::Deflated(stream) => stream.offset,
        }
    }

    fn checksum(&self, member: &Member) -> Checksum {
        Checksum {
            offset: self.begin(),
            packed: match self {
                Self::Stored(_) => None,
                Self::Deflated(stream) => Some(stream.packed),
            },
            size: member.size,
            crc: member.crc,
        }
    }
}

/// A member to be checked as a whole; what inflates to more than `max_alloc` is refused, as when it is loaded.
pub(crate) fn whole<'a>(
    source: &'a dyn Source,
    expected: &'a Checksum,
    max_alloc: u64,
) -> Result<member::Content<'a>, ReadError> {
    let most = max_alloc.saturating_add(header::LONGEST_INFLATED);
    if expected.packed.is_some() && expected.size > most {
        let kind = FaultKind::Limit {
            field: "bytes to inflate",
            needed: expected.size,
            allowed: max_alloc,
            limit: Limit::Alloc,
        };
        return Err(ReadError::fault(expected.offset, kind));
    }
    Ok(member::Content::open(source, expected))
}

/// Inflates a member as far as its npy header goes; returns that and its length, which `spend` hears before.
fn inflated_header(
    source: &dyn Source,
    stream: &Deflated,
    size: u64,
    spend: impl FnOnce(u64) -> Result<(), FaultKind>,
) -> Result<(Header, u64), ReadError> {
    let at = |stop| match stop {
        // Offsets in inflated bytes mean nothing to who looks at the file.
        ReadError::Fault(fault) => ReadError::fault(stream.offset, fault.kind),
        io => io,
    };
    let mut inflater = payload::inflate(source, stream);
    let mut head = Vec::new();
    let mut more = |head: &mut Vec<u8>, len: u64| {
        let want = len - head.len() as u64;
        let read = inflater.by_ref().take(want).read_to_end(head);
        read.map_err(|e| payload::inflate_error(stream.offset, e))
    };
    // The longest prefix; a shorter one has a header behind it.
    more(&mut head, size.min(12))?;
    let skip = {
        let start = Bytes::new(&head[..]);
        header::prefix(&mut Cursor::new(&start), size).map_err(at)?.data
    };
    if skip > header::LONGEST_INFLATED {
        let what = FaultKind::Limit {
            field: "the length of a deflated header",
            needed: skip,
            allowed: header::LONGEST_INFLATED,
            limit: Limit::Fixed,
        };
        return Err(ReadError::fault(stream.offset, what));
    }
    spend(skip).map_err(|what| ReadError::fault(stream.offset, what))?;
    if skip > head.len() as u64 {
        more(&mut head, skip)?;
    }
    let whole = Bytes::new(&head[..]);
    let mut cursor = Cursor::new(&whole);
    let end = header::prefix(&mut cursor, head.len() as u64).map_err(at)?.data;
    let header = header::dict(&mut cursor, end).map_err(at)?;
    Ok((header, skip))
}
