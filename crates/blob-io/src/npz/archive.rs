//! Reads one member of an archive as an entry or as bytes: finds the content, checks the member against the zip, and
//! reads the npy header.

use crate::entry::{Checksum, Deflated, Entry, Kind, Payload, Runs};
use crate::error::{Fault, FaultKind, ReadError, Reason, check_limit};
use crate::limits::{Limit, Limits};
use crate::names::NameTable;
use crate::npy::header::{self, Header};
use crate::npz::index::Slot;
use crate::npz::zip::{self, Directory, ZipMember};
use crate::payload::member;
use crate::wire::cursor::Cursor;
use crate::wire::source::{Bytes, Source};

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// An open archive, for reading members.
pub(crate) struct Archive<'c, 's> {
    source: &'s dyn Source,
    /// Reads the central directory.
    records: &'c mut Cursor<'s>,
    /// Reads the members, with a separate window: listing goes from a record to the member and back.
    cursor: Cursor<'s>,
    directory: Directory,
    /// Whether a member so far is deflated.
    deflated: bool,
    /// How many bytes may still be inflated to list the arrays.
    inflatable: u64,
}

impl<'c, 's> Archive<'c, 's> {
    pub(crate) fn new(
        source: &'s dyn Source,
        records: &'c mut Cursor<'s>,
        directory: Directory,
        limits: &Limits,
    ) -> Self {
        let cursor = Cursor::new(source);
        Self { source, records, cursor, directory, deflated: false, inflatable: limits.max_alloc }
    }

    /// Whether a member that was listed is deflated.
    pub(crate) fn is_deflated(&self) -> bool {
        self.deflated
    }

    pub(crate) fn member(&mut self, slot: Slot) -> Result<ZipMember, ReadError> {
        self.records.seek(slot.record);
        zip::member(self.records, self.directory.end)
    }

    /// A member's array as an entry without a name; a fault of the member becomes the entry's.
    pub(crate) fn entry(
        &mut self,
        member: &ZipMember,
        position: u32,
        index: u32,
        kind: Kind,
        table: &mut NameTable,
    ) -> Result<Entry, ReadError> {
        let mut entry = Entry::new(position, index, kind);
        match self.describe(member, &mut entry) {
            Ok(0) => Ok(entry),
            Ok(_) => {
                table.warn_of_loss(None, "members hold more bytes than their arrays");
                Ok(entry)
            }
            Err(ReadError::Fault(fault)) => {
                // The fields that were read before the fault, such as the shape, are shown with the fault.
                entry.dtype = None;
                entry.payload = Payload::Runs(Runs::None);
                // The checksum shows whether a merely unsupported member is intact.
                entry.checksum = entry.checksum.filter(|_| fault.reason() == Reason::Unsupported);
                entry.fault = Some(Box::new(fault));
                Ok(entry)
            }
            Err(stop) => Err(stop),
        }
    }

    /// Describes the array in `entry`; returns how many bytes of the member follow the array.
    fn describe(&mut self, member: &ZipMember, entry: &mut Entry) -> Result<u64, ReadError> {
        let content = self.content(member)?;
        entry.checksum = Some(Box::new(content.checksum(member)));
        let Location::Deflated(stream) = &content else {
            let end = content.begin() + member.size;
            let (header, data) = header::read(&mut self.cursor, end)?;
            let room = end - data;
            return Ok(room - header.describe(entry, data, room)?);
        };
        let (header, skip) = self.inflated_header(&content.checksum(member))?;
        let room = member.size - skip;
        let described = header.describe(entry, stream.offset, room);
        let len = described.map_err(|fault| Fault::new(stream.offset, fault.kind))?;
        if len > 0 {
            entry.payload = Payload::Deflated(Box::new(Deflated { skip, ..*stream }));
        }
        Ok(room - len)
    }

    /// Inflates a member up to the end of the npy header; returns the header and the number of bytes up to there.
    fn inflated_header(&mut self, member: &Checksum) -> Result<(Header, u64), ReadError> {
        let at = member.offset;
        // Offsets in inflated bytes would mean nothing to a reader of the file.
        let here = |stop| match stop {
            ReadError::Fault(fault) => ReadError::fault(at, fault.kind),
            other => other,
        };
        let mut content = member::Content::open(self.source, member);
        // The longest prefix; a shorter one is followed by the header.
        let mut head = Vec::new();
        content.extend(&mut head, member.size.min(12) as usize)?;
        let skip = header::prefix(&mut Cursor::new(&Bytes(&head[..])), member.size).map_err(here)?;
        check_limit(at, Limit::Fixed, "the length of a deflated header", skip, header::LONGEST_INFLATED)?;
        self.spend(skip, at)?;
        content.extend(&mut head, skip as usize)?;
        let whole = Bytes(head);
        let (header, _) = header::read(&mut Cursor::new(&whole), whole.len()).map_err(here)?;
        Ok((header, skip))
    }

    /// Finds a member's bytes, and moves the cursor to the first.
    pub(crate) fn content(&mut self, member: &ZipMember) -> Result<Location, ReadError> {
        if member.encrypted {
            let what = FaultKind::unsupported("a member without encryption", "an encrypted one");
            return Err(ReadError::fault(member.local, what));
        }
        let offset = zip::content(&mut self.cursor, member, self.directory.begin)?;
        match member.method {
            STORED if member.packed == member.size => Ok(Location::Stored(offset)),
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
                Ok(Location::Deflated(Deflated { offset, packed: member.packed, skip: 0 }))
            }
            method => {
                let found = format!("compression method {method}");
                Err(ReadError::fault(member.local, FaultKind::unsupported("a stored or deflated member", found)))
            }
        }
    }

    /// Counts the bytes that are inflated while the file is opened, because the sum is bounded too.
    fn spend(&mut self, bytes: u64, at: u64) -> Result<(), Fault> {
        check_limit(at, Limit::Alloc, "the bytes of a deflated header", bytes, self.inflatable)?;
        self.inflatable -= bytes;
        Ok(())
    }

    /// A member's bytes, if there are at most `limit` and the checksum matches.
    pub(crate) fn bytes(&mut self, member: &ZipMember, limit: u64) -> Result<Option<Vec<u8>>, ReadError> {
        if member.size > limit {
            return Ok(None);
        }
        let content = self.content(member)?;
        if let Location::Deflated(_) = content {
            self.spend(member.size, member.local)?;
        }
        member::bytes(self.source, &content.checksum(member)).map(Some)
    }
}

/// The location of a member's bytes.
pub(crate) enum Location {
    Stored(u64),
    Deflated(Deflated),
}

impl Location {
    fn begin(&self) -> u64 {
        match self {
            Self::Stored(offset) => *offset,
            Self::Deflated(stream) => stream.offset,
        }
    }

    pub(crate) fn checksum(&self, member: &ZipMember) -> Checksum {
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

/// Opens a member to check every byte; a member that inflates to more than `max_alloc` is refused, as on loading.
pub(crate) fn whole<'a>(
    source: &'a dyn Source,
    expected: &'a Checksum,
    max_alloc: u64,
) -> Result<member::Content<'a>, ReadError> {
    let most = max_alloc.saturating_add(header::LONGEST_INFLATED);
    if expected.packed.is_some() && expected.size > most {
        check_limit(expected.offset, Limit::Alloc, "bytes to inflate", expected.size, max_alloc)?;
    }
    Ok(member::Content::open(source, expected))
}
