//! Opens a written file again, before the file is named, and compares the file with the plan: names, dtypes, shapes and
//! where the bytes begin. No values are read.
//!
//! Relies on `Complete` for the bytes; knows of formats only how names and axes are stored.

use std::collections::HashMap;
use std::sync::Arc;

use blob_core::DType;

use crate::checkpoint::{Checkpoint, OpenOptions};
use crate::entry::Entry;
use crate::error::{Error, ReadError};
use crate::expected::{Expected, Wanted, stored_dtype};
use crate::format::Format;
use crate::limits::Limits;
use crate::output::{Complete, Written};
use crate::shards;
use crate::sniff;
use crate::wire::source::Source;

/// A file that was opened again.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reopened {
    /// The file, under the target's name.
    pub file: Checkpoint,
    /// Whether the content shows the format; otherwise the file opens only for a reader that is told the format.
    pub is_recognised: bool,
}

impl Complete {
    /// Opens the file as a reader of the target would, and checks that it holds the tensors of the plan, and, unless
    /// `may_hold_more`, no others. Returns whether the content shows the format; `None` for a pipe or a device.
    ///
    /// # Errors
    /// As [`Complete::open_again`] and [`check_written`].
    pub fn check<'a>(
        &self,
        format: Format,
        wanted: impl ExactSizeIterator<Item = Wanted<'a>> + Clone,
        may_hold_more: bool,
        limits: &Limits,
    ) -> Result<Option<bool>, Error> {
        let expected = Arc::new(Expected::new(format, wanted.clone()));
        let mut options = OpenOptions::new().limits(limits.clone());
        options.expected = Some(expected);
        let Some(Reopened { file, is_recognised }) = self.opened_by(format, &options)? else { return Ok(None) };
        let all = wanted.len();
        let is_known = file.as_planned.iter().copied().chain(std::iter::repeat(false));
        let left: Vec<Wanted<'a>> =
            wanted.zip(is_known).filter_map(|(wanted, is_known)| (!is_known).then_some(wanted)).collect();
        let dropped = all - left.len();
        check_left(&file, left.into_iter(), dropped, may_hold_more)?;
        Ok(Some(is_recognised))
    }

    /// Opens the file as a reader of the target would; `None` for a pipe or a device.
    ///
    /// # Errors
    /// [`Error::Request`] if the file does not open as `format`; [`Error::Io`].
    pub fn open_again(&self, format: Format, limits: &Limits) -> Result<Option<Reopened>, Error> {
        self.opened_by(format, &OpenOptions::new().limits(limits.clone()))
    }

    fn opened_by(&self, format: Format, options: &OpenOptions) -> Result<Option<Reopened>, Error> {
        let open = |options: OpenOptions| -> Result<Option<Checkpoint>, Error> {
            let Some(Written { file, beside }) = self.written()? else { return Ok(None) };
            let options = beside.into_iter().fold(options, |options, (name, file)| options.beside(name, file));
            options.open_source(self.name(), file).map(Some)
        };
        match open(options.clone()) {
            Ok(None) => return Ok(None),
            Ok(Some(file)) if file.format() == format && file.member().is_none() => {
                return Ok(Some(Reopened { file, is_recognised: true }));
            }
            _ => {}
        }
        match open(options.clone().from(format)) {
            // This build does not read the format: HDF5 without the feature `hdf5`.
            Err(Error::Unsupported { .. }) => Ok(None),
            Ok(file) => Ok(file.map(|file| Reopened { file, is_recognised: false })),
            Err(e @ (Error::Io { .. } | Error::Memory { .. })) => Err(e),
            Err(e) => Err(differs(self.name(), &e.to_string())),
        }
    }
}

/// The format that a reader of these bytes finds, without listing the arrays; `None` where the bytes show none. The
/// extension in `name` is a hint.
pub fn shown_format(source: &dyn Source, name: &str) -> Option<Format> {
    sniff::format(source, name)
}

/// Checks that a file holds the tensors of the plan, and, unless `may_hold_more`, no others.
///
/// Where the format stores no names, tensors are found by offset. Caffe and NeoML may store a shape with more ones, and
/// Caffe stores no dtype of a tensor without values.
///
/// # Errors
/// [`Error::Request`] with the first difference.
pub fn check_written<'a>(
    file: &Checkpoint,
    wanted: impl ExactSizeIterator<Item = Wanted<'a>>,
    may_hold_more: bool,
) -> Result<(), Error> {
    check_left(file, wanted, 0, may_hold_more)
}

/// As [`check_written`], for the rest of a file of which so many tensors are `known` to be as planned.
fn check_left<'a>(
    file: &Checkpoint,
    wanted: impl ExactSizeIterator<Item = Wanted<'a>>,
    known: usize,
    may_hold_more: bool,
) -> Result<(), Error> {
    file.check_whole().map_err(|e| differs(file.name(), &e.to_string()))?;
    if let Some(fault) = file.faults().first() {
        return Err(differs(file.name(), &fault.to_string()));
    }
    let found: Vec<&Entry> = file.entries().iter().filter(|entry| entry.dtype().is_some()).collect();
    if found.len() < wanted.len() || found.len() > wanted.len() && !may_hold_more {
        let (has, planned) = (found.len() + known, wanted.len() + known);
        let message = format!("it has {has} tensors, and {planned} were written");
        return Err(differs(file.name(), &message));
    }
    let has_names = file.format().holds().names.are_kept();
    // The parts of MXNet's sparse arrays are named after the whole.
    let by_offset = |entry: &&&Entry| (!has_names || entry.sparse().is_some()) && entry.byte_len() > 0;
    let by_offset = found.iter().filter(by_offset).filter_map(|entry| Some((entry.offset()?, *entry)));
    let by_offset: HashMap<u64, &Entry> = by_offset.collect();
    for (place, wanted) in wanted.enumerate() {
        let name = &wanted.spec.name;
        let entry = match (found.get(place), wanted.offset) {
            // Most formats keep the order of the plan, and then no name is looked up.
            (Some(entry), _) if has_names && entry.name() == name => Some(*entry),
            (_, None) => file.entry(name),
            (_, Some(offset)) => {
                // Where a tensor without bytes begins, the next one begins, too.
                let there = by_offset.get(&offset).copied().filter(|_| wanted.spec.byte_len() > 0);
                there.or_else(|| file.entry(name).filter(|_| has_names))
            }
        };
        let difference = match entry {
            // In a file without names, a tensor without bytes has no place.
            None if !has_names && wanted.spec.byte_len() == 0 => None,
            None => Some("is not in it".to_owned()),
            Some(entry) => difference(file.format(), entry, wanted),
        };
        if let Some(difference) = difference {
            return Err(differs(file.name(), &format!("{name:?} {difference}")));
        }
    }
    Ok(())
}

/// A tensor of shards, as in the index.
#[derive(Clone, Copy, Debug)]
pub struct Sharded<'a> {
    /// The tensor's name.
    pub name: &'a str,
    /// The name of the file that holds the tensor.
    pub file: &'a str,
}

impl Complete {
    /// Reads the file as an index of shards, and checks that the index names these tensors, each with the right file,
    /// and no others. A pipe or a device is not read.
    ///
    /// # Errors
    /// [`Error::Request`] with the first difference; [`Error::Io`].
    pub fn check_index<'a>(
        &self,
        wanted: impl ExactSizeIterator<Item = Sharded<'a>>,
        limits: &Limits,
    ) -> Result<(), Error> {
        let Some(source) = self.source()? else { return Ok(()) };
        let files = shards::files_by_name(&*source, limits).map_err(|stop| match stop {
            ReadError::Io { .. } => stop.into_error(self.name()),
            other => differs(self.name(), &other.into_error(self.name()).to_string()),
        })?;
        let Some(files) = files else { return Err(differs(self.name(), "it is no index of shards")) };
        if files.len() != wanted.len() {
            let message = format!("it names {} tensors, and {} were written", files.len(), wanted.len());
            return Err(differs(self.name(), &message));
        }
        for Sharded { name, file } in wanted {
            let difference = match files.get(name) {
                Some(found) if found == file => continue,
                Some(found) => format!("{name:?} is in {found:?} by it, not in {file:?}"),
                None => format!("{name:?} is not in it"),
            };
            return Err(differs(self.name(), &difference));
        }
        Ok(())
    }
}

/// The difference between a stored tensor and the planned one.
fn difference(format: Format, entry: &Entry, Wanted { spec, offset }: Wanted<'_>) -> Option<String> {
    let is_empty = spec.byte_len() == 0;
    let is_typed = !(is_empty && format.is_caffe());
    let dtype = stored_dtype(format, spec.dtype);
    // A restored npz may have a special dtype for bf16.
    let is_its = entry.stored_dtype() == Some(dtype) || entry.dtype() == Some(spec.dtype);
    if !is_its && is_typed {
        return Some(format!("is {} in it, not {dtype}", entry.stored_dtype().map_or("none", DType::name)));
    }
    let ones = |extent: &&usize| **extent != 1;
    let is_padded = format.is_caffe() || format.is_neoml();
    let (own, planned) = (entry.shape().dims(), spec.shape.dims());
    if own != planned && !(is_padded && own.iter().filter(ones).eq(planned.iter().filter(ones))) {
        return Some(format!("has shape {} in it, not {}", entry.shape(), spec.shape));
    }
    match (entry.offset(), offset) {
        (Some(own), Some(planned)) if own != planned && !is_empty => {
            Some(format!("begins at byte {own}, not at {planned}"))
        }
        _ => None,
    }
}

fn differs(file: &str, why: &str) -> Error {
    Error::Request { file: file.to_owned(), message: format!("what was written is not what was planned: {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IfExists, Output};

    #[test]
    fn an_index_names_the_file_of_each_tensor() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut output = Output::create(folder.path().join("index.json"), IfExists::Refuse).expect("begun");
        output.write_all(br#"{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#).expect("written");
        let written = output.complete().expect("complete");
        let check = |wanted: &[(&'static str, &'static str)]| {
            let wanted = wanted.iter().map(|(name, file)| Sharded { name, file });
            written.check_index(wanted, &Limits::default()).map_err(|e| e.to_string())
        };
        assert_eq!(check(&[("b", "2.safetensors"), ("a", "1.safetensors")]), Ok(()));
        for (wanted, why) in [
            (&[("a", "1.safetensors"), ("b", "1.safetensors")][..], r#""b" is in "2.safetensors" by it, not in"#),
            (&[("a", "1.safetensors"), ("c", "2.safetensors")], r#""c" is not in it"#),
            (&[("a", "1.safetensors")], "it names 2 tensors, and 1 were written"),
        ] {
            let refused = check(wanted).expect_err("it differs");
            assert!(refused.contains(why), "{refused}");
        }
    }
}
