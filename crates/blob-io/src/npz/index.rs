//! Indexes the members of an archive in the order of the file, with a few bytes each, because a hostile archive can
//! list a million.
//!
//! The central directory is read twice: once for this index, and each record again along with the member.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::error::{FaultKind, ReadError, Reason};
use crate::npz::zip::{self, Directory, ZipMember};
use crate::wire::cursor::Cursor;

/// The members of a folder that holds a sparse array, in the order of the entries.
const PARTS: [&[u8]; 5] = [b"data", b"indices", b"indptr", b"shape", b"format"];

/// One member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// The offset of the member's record in the central directory.
    pub(crate) record: u64,
    /// A hash of the member's folder if that holds all parts of a sparse array; otherwise 0.
    pub(crate) group: u64,
    /// The offset of the local header, or of the first local header of the group.
    local: u64,
    /// The smallest offset at which the member may end.
    end: u64,
    role: MemberRole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MemberRole {
    /// A part of a sparse array, as an index in `PARTS`.
    Part(u8),
    Array,
    Other,
}

impl Slot {
    pub(crate) fn is_array(self) -> bool {
        self.role != MemberRole::Other
    }

    /// The index in [`PARTS`] of the part of a sparse array that the member is.
    pub(crate) fn part(self) -> Option<usize> {
        match self.role {
            MemberRole::Part(part) => Some(part.into()),
            MemberRole::Array | MemberRole::Other => None,
        }
    }
}

/// Properties that decide whether an archive is an npz.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) arrays: u64,
    /// The smallest offset at which the last member may end.
    pub(crate) end: u64,
    pickle: bool,
}

impl Summary {
    fn add_member(&mut self, name: &[u8], slot: Slot) {
        self.arrays += u64::from(slot.is_array());
        self.end = self.end.max(slot.end);
        self.pickle |= name == b"data.pkl" || name.ends_with(b"/data.pkl");
    }

    /// The refusal of an archive without arrays.
    pub(crate) fn refusal(&self) -> ReadError {
        let (reason, what, help) = if self.pickle {
            (
                Reason::Unsupported,
                "a PyTorch checkpoint (a zip around a Python pickle), which blob never reads",
                "a pickle can run code when it is loaded; in Python, safetensors.torch.save_file writes what blob reads",
            )
        } else {
            (Reason::Archive, "a zip archive without npy files in it", "unpack it first and open the file inside")
        };
        ReadError::Other(reason, what.to_owned(), Some(help))
    }
}

/// Reads the central directory; an early end or members that overlap are an error.
pub(crate) fn read(cursor: &mut Cursor<'_>, directory: Directory) -> Result<(Vec<Slot>, Summary), ReadError> {
    let mut slots = Vec::new();
    let mut found = Summary::default();
    cursor.seek(directory.begin);
    while cursor.pos() < directory.end {
        let record = cursor.pos();
        if slots.len() as u64 == directory.count {
            return Err(count(record, directory.count, slots.len() as u64 + 1));
        }
        let member = zip::member(cursor, directory.end)?;
        let slot = slot(&member, record, directory)?;
        found.add_member(&member.name, slot);
        if slots.len() == slots.capacity() {
            slots.reserve_exact(slots.len() / 3 + 16);
        }
        slots.push(slot);
    }
    if slots.len() as u64 != directory.count {
        return Err(count(directory.end, directory.count, slots.len() as u64));
    }
    slots.sort_unstable_by_key(|slot| (slot.local, slot.record));
    if let Some([_, second]) =
        slots.windows(2).map(<&[Slot; 2]>::try_from).find_map(|pair| pair.ok().filter(|[a, b]| a.end > b.local))
    {
        let what = FaultKind::words("members that do not overlap", "one that begins within another");
        return Err(ReadError::fault(second.local, what));
    }
    cursor.source().expect(&slots.iter().map(|slot| slot.local).collect::<Vec<_>>());
    Ok((slots, found))
}

fn slot(member: &ZipMember, record: u64, directory: Directory) -> Result<Slot, ReadError> {
    let end = member.least_end().filter(|end| *end <= directory.begin);
    let end = end.ok_or_else(|| {
        let what = FaultKind::Truncated {
            field: "a member",
            needed: member.packed,
            left: directory.begin.saturating_sub(member.local),
        };
        ReadError::fault(record, what)
    })?;
    let (mut role, mut group) = (MemberRole::Other, 0);
    if let Some(stem) = member.name.strip_suffix(b".npy") {
        let (folder, base) = match stem.iter().rposition(|b| *b == b'/') {
            Some(slash) => (&stem[..slash], &stem[slash + 1..]),
            None => (&stem[..0], stem),
        };
        role = match PARTS.iter().position(|part| *part == base) {
            Some(part) => MemberRole::Part(part as u8),
            None => MemberRole::Array,
        };
        if role != MemberRole::Array {
            let mut hasher = DefaultHasher::new();
            folder.hash(&mut hasher);
            group = hasher.finish() | 1;
        }
    }
    let local = member.local;
    Ok(Slot { record, group, local, end, role })
}

fn count(offset: u64, expected: u64, found: u64) -> ReadError {
    let what = FaultKind::Mismatch { field: "the number of members in the zip's central directory", expected, found };
    ReadError::fault(offset, what)
}

/// Groups the members of each folder that holds all parts of a sparse array, at the position of the first.
pub(crate) fn group(slots: &mut [Slot]) {
    slots.sort_unstable_by_key(|slot| (slot.group, slot.role));
    for slots in slots.chunk_by_mut(|a, b| a.group == b.group) {
        let parts: Vec<MemberRole> = slots.iter().take(6).map(|slot| slot.role).collect();
        let [data, indices, indptr, shape, format] = [0, 1, 2, 3, 4].map(MemberRole::Part);
        let whole = parts == [data, indices, indptr, shape, format] || parts == [data, indices, shape, format];
        let first = slots.iter().map(|slot| slot.local).min().unwrap_or(0);
        for slot in slots {
            if whole && slot.group != 0 {
                slot.local = first;
            } else {
                slot.group = 0;
            }
        }
    }
    slots.sort_unstable_by_key(|slot| (slot.local, slot.role));
}

/// Removes all groups.
pub(crate) fn ungroup(slots: &mut [Slot]) {
    slots.iter_mut().for_each(|slot| slot.group = 0);
}
