//! Reads an npz file as entries: one for each npy member, two or three for a folder that holds a sparse array.
//!
//! A member's faults become faults of the entry; an inconsistent central directory fails the file.

use crate::entry::Kind;
use crate::error::ReadError;
use crate::metadata::MetadataSize;
use crate::names::{NameTable, name_from_bytes};
use crate::npz::archive::Archive;
use crate::npz::index::{self, Slot};
use crate::npz::zip::{self, ZipMember};
use crate::npz::{metadata, sparse};
use crate::wire::cursor::Cursor;
use crate::wire::source::Source;
use crate::words::Listed;

/// How many names of members that are neither texts nor arrays are kept.
const MAX_OTHERS: usize = 8;

/// Lists the arrays in the order of the file.
pub(crate) fn read<'s>(
    source: &'s dyn Source,
    cursor: &mut Cursor<'s>,
    table: &mut NameTable,
) -> Result<String, ReadError> {
    let directory = zip::directory(cursor)?;
    table.check_count(directory.count, directory.begin)?;
    let (mut slots, found) = index::read(cursor, directory)?;
    if found.arrays == 0 && directory.count > 0 {
        return Err(found.refusal());
    }
    let len = source.len();
    if directory.archive_end < len {
        let at = directory.archive_end;
        table.warn_of_loss(Some(at), format!("{} bytes follow the archive", len - at));
    }
    // We write the parts of sparse arrays as separate tensors: a file of ours has no folders that are arrays.
    if metadata::read(cursor, found.end, directory.begin, table)? {
        index::ungroup(&mut slots)
    } else {
        index::group(&mut slots)
    }
    let mut archive = Archive::new(source, cursor, directory, table.limits());
    let mut other_members = OtherMembers::default();
    for slots in slots.chunk_by(|a, b| a.group != 0 && a.group == b.group) {
        if slots[0].group == 0 || !sparse::push(&mut archive, slots, table)? {
            for slot in slots {
                single(&mut archive, *slot, table, &mut other_members)?;
            }
        }
    }
    let deflated = archive.is_deflated();
    other_members.finish(table);
    Ok(if deflated { "deflated" } else { "" }.to_owned())
}

/// Adds a member that is no part of a sparse array.
fn single(
    archive: &mut Archive<'_, '_>,
    slot: Slot,
    table: &mut NameTable,
    other_members: &mut OtherMembers,
) -> Result<(), ReadError> {
    let member = archive.member(slot)?;
    if slot.is_array() {
        let position = table.next_position(slot.record)?;
        let entry = archive.entry(&member, position, 0, Kind::Data, table)?;
        let stem = member.name.strip_suffix(b".npy").unwrap_or(&member.name);
        let name = name_from_bytes(member.raw.as_deref().unwrap_or(stem)).into_owned();
        return table.push_done(entry, &name, slot.record);
    }
    match other_members.text(archive, &member, table)? {
        Some(pair) => table.metadata.push(pair),
        None => other_members.other(&member.name),
    }
    Ok(())
}

/// The members of an archive besides the arrays.
#[derive(Default)]
struct OtherMembers {
    taken: MetadataSize,
    others: Listed<String, MAX_OTHERS>,
}

impl OtherMembers {
    /// A text member at the top of the archive, as (key, value).
    fn text(
        &mut self,
        archive: &mut Archive<'_, '_>,
        member: &ZipMember,
        table: &mut NameTable,
    ) -> Result<Option<(String, String)>, ReadError> {
        let stem = member.name.strip_suffix(b".txt");
        let Some(key) = stem.filter(|stem| !stem.contains(&b'/')) else {
            return Ok(None);
        };
        let key = name_from_bytes(key).into_owned();
        match archive.bytes(member, self.taken.left_for(&key)) {
            Ok(Some(bytes)) => {
                self.taken.take(&key, bytes.len() as u64);
                Ok(String::from_utf8(bytes).ok().map(|value| (key, value)))
            }
            Ok(None) => Ok(None),
            Err(ReadError::Fault(fault)) => {
                table.warn_of_loss(Some(fault.offset()), "a note in the archive cannot be read");
                Ok(None)
            }
            Err(stop) => Err(stop),
        }
    }

    fn other(&mut self, name: &[u8]) {
        // A folder is a separate member, without content.
        if !name.ends_with(b"/") {
            self.others.push(|| name_from_bytes(name).chars().take(64).collect());
        }
    }

    fn finish(self, table: &mut NameTable) {
        table.warn_of_names("members that are no npy files are left out", &self.others);
        if self.others.count > 0 {
            table.metadata.push(("members without arrays".to_owned(), self.others.joined()));
        }
    }
}
