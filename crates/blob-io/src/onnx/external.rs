//! Values in files beside a model: `external_data`. The model and these files are read as if concatenated.
//!
//! A location is a relative path without `..`, so that no name leads out of the model's folder; links are followed,
//! as for shards, because Hugging Face's cache consists of links.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use crate::entry::{Payload, Runs, Segment};
use crate::error::{Error, Fault, FaultKind, check_limit};
use crate::folder::Folder;
use crate::limits::{Limit, bytes_in};
use crate::names::NameTable;
use crate::onnx::place::Outside;
use crate::onnx::read::without;
use crate::wire::source::Source;

/// A file's part of the concatenated files.
#[derive(Clone, Copy)]
struct Range {
    begin: u64,
    len: u64,
}

/// Points the entries at the files beside the model `path`, whose length is `len`. Files that are missing are the
/// faults of their tensors; `None` where there is no file to add.
///
/// # Errors
/// A model that cannot be opened again, or has changed.
pub(crate) fn attach(
    outside: &[Outside],
    path: &Path,
    len: u64,
    table: &mut NameTable,
) -> Result<Option<Folder>, Error> {
    let (Some(root), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(None);
    };
    let mut folder = Folder::with_links(root);
    let again = |source| Error::Io { file: path.display().to_string(), action: "open it again".to_owned(), source };
    let model = folder.open(name).map_err(again)?;
    if model.len() != len {
        return Err(again(io::Error::new(io::ErrorKind::InvalidData, "is of another length than before")));
    }
    folder.add(name, &model);
    let mut parts: HashMap<&str, Result<Range, String>> = HashMap::new();
    for of in outside {
        if !parts.contains_key(&*of.location) {
            parts.insert(&of.location, add(&of.location, &mut folder));
        }
    }
    point(outside, &parts, folder.len(), table);
    Ok(Some(folder).filter(|folder| folder.count() > 1))
}

/// As [`attach`], where the only other file, of this name and length, follows the model, whose length is `len`.
pub(crate) fn join(outside: &[Outside], name: &str, other: u64, len: u64, table: &mut NameTable) {
    let parts = outside.iter().map(|of| {
        let is_it = (*of.location == *name).then_some(Range { begin: len, len: other });
        (&*of.location, is_it.ok_or_else(|| "which is not there".to_owned()))
    });
    point(outside, &parts.collect(), len.saturating_add(other), table);
}

/// The end of a model's dialect: how many files besides the model hold values.
pub(crate) fn dialect(others: usize) -> String {
    let plural = if others == 1 { "" } else { "s" };
    format!(", values in {others} other file{plural}")
}

/// Points the entries at the parts of the concatenated files, which have `len` bytes.
fn point(outside: &[Outside], parts: &HashMap<&str, Result<Range, String>>, len: u64, table: &mut NameTable) {
    let (mut sum, most) = (0_u64, bytes_in(len, table.limits().max_alloc));
    for of in outside {
        let part = parts.get(&*of.location).cloned().unwrap_or_else(|| Err("not opened".to_owned()));
        let Some(entry) = table.entry_mut(of.entry) else { continue };
        let bytes = entry.shape.count() as u64 * of.dtype.size() as u64;
        let placed = part.map_err(|found| without(of.at, &of.location, &found)).and_then(|part| {
            sum = sum.saturating_add(bytes);
            check_limit(of.at, Limit::Alloc, "the bytes of all arrays up to this one", sum, most)?;
            of.within(part, bytes)
        });
        match placed {
            Ok(offset) => {
                entry.fault = None;
                entry.dtype = Some(of.dtype);
                let (count, stride) = (entry.shape.count() as u64, of.dtype.size() as u64);
                let run = Segment { offset, count, stride };
                entry.payload = Payload::Runs(if count == 0 { Runs::None } else { Runs::One(run) });
            }
            Err(fault) => entry.fault = Some(Box::new(fault)),
        }
    }
}

/// Opens a file of values and appends it; the error says why it cannot be used.
fn add(location: &str, folder: &mut Folder) -> Result<Range, String> {
    let path = plain(location).ok_or("which is no path within the model's folder")?;
    let file = folder.open(&path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => "which is not there".to_owned(),
        _ => e.to_string(),
    })?;
    let (begin, len) = (folder.len(), file.len());
    folder.add(&path, &file);
    Ok(Range { begin, len })
}

/// The path within the folder; `None` for one that may lead out of it.
fn plain(location: &str) -> Option<String> {
    let parts: Vec<&str> = location.split('/').filter(|part| *part != ".").collect();
    (!parts.is_empty() && parts.iter().all(|part| is_plain(part))).then(|| parts.join("/"))
}

/// Whether a part of a path is a name on every system.
fn is_plain(part: &str) -> bool {
    !part.is_empty() && part != ".." && !part.contains(['\\', ':', '\0'])
}

impl Outside {
    /// Where the `bytes` bytes begin in the concatenated files.
    fn within(&self, part: Range, bytes: u64) -> Result<u64, Fault> {
        if let Some(found) = self.length.filter(|length| *length != bytes) {
            let field = "the length of the values in another file";
            return Err(Fault::new(self.at, FaultKind::Mismatch { field, expected: bytes, found }));
        }
        let end = self.offset.checked_add(bytes).filter(|end| *end <= part.len);
        if end.is_none() {
            let found = format!("bytes {} and {bytes} more of {}, of {:?}", self.offset, part.len, self.location);
            return Err(Fault::new(self.at, FaultKind::words("values within the file that holds them", found)));
        }
        Ok(part.begin + self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_stays_in_the_folder() {
        for (location, path) in [("w.bin", "w.bin"), ("./w.bin", "w.bin"), ("a/b.c/w", "a/b.c/w")] {
            assert_eq!(plain(location).as_deref(), Some(path));
        }
        for location in ["", ".", "..", "/w", "a//w", "a/", "../w", "a/../w", "a/..", r"a\w", "c:w", "C:/w", "a\0"] {
            assert_eq!(plain(location), None, "{location:?}");
        }
    }
}
