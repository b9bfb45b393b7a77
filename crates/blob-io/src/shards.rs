//! Safetensors shards with an index, as Hugging Face writes large models: read as one file.
//!
//! The files are read one after the other, sorted by name. A name cannot leave the index's folder; links are followed,
//! because Hugging Face's cache consists of links.

mod index;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::entry::{Entry, Kind, Payload, Runs, Segment};
use crate::error::{Error, Fault, FaultKind, ReadError, failed};
use crate::folder::Folder;
use crate::format::{Files, Format};
use crate::limits::Limits;
use crate::metadata::{LEFT_OUT, MetadataSize};
use crate::names::{NameTable, faulty};
use crate::sniff;
use crate::warning::Warning;
use crate::wire::source::{Input, Source};
use crate::work::visit;
use index::Index;

/// The ending of an index's name.
const INDEX: &str = ".index.json";
const SAFETENSORS_INDEX: &str = ".safetensors.index.json";

/// Whether a file has the name of an index.
pub(crate) fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(INDEX.as_bytes()))
}

/// The indices in a folder, sorted, and the other files there that may hold tensors.
#[derive(Debug, Default)]
pub(crate) struct Indices {
    pub(crate) indices: Vec<String>,
    pub(crate) others: Vec<String>,
}

/// Looks for indices of shards in a folder.
pub(crate) fn find(folder: &Path) -> Result<Indices, Error> {
    let unlisted = |source| failed(&folder.display().to_string(), "list it", source);
    let mut found = Indices::default();
    for file in folder.read_dir().map_err(unlisted)? {
        let file = file.map_err(unlisted)?;
        if !file.path().is_file() {
            continue;
        }
        let name = file.file_name();
        if name.as_encoded_bytes().ends_with(SAFETENSORS_INDEX.as_bytes()) {
            found.indices.push(name.to_string_lossy().into_owned());
        } else if Format::of_path(&name).is_some() {
            found.others.push(name.to_string_lossy().into_owned());
        }
    }
    found.indices.sort();
    found.others.sort();
    Ok(found)
}

/// Lists the tensors of all shards of an index, which lies in `folder`; `None` for other JSON.
pub(crate) fn open(
    source: &dyn Source,
    folder: &Path,
    name: &str,
    table: &mut NameTable,
) -> Result<Option<Folder>, Error> {
    let own = |stop: ReadError| stop.into_error(name);
    let Some(mut index) = index::index(source, table.limits()).map_err(own)? else {
        return Ok(None);
    };
    let mut metadata = Metadata::default();
    metadata.add(std::mem::take(&mut index.metadata), table);
    let mut shards = Folder::with_links(folder);
    let mut total = 0;
    for number in 0..index.files.len() {
        total += shard(number as u32, &mut index, &mut shards, &mut metadata, table).map_err(|e| match e {
            Failed::Shard(error) => error,
            Failed::Index(stop) => own(stop),
        })?;
    }
    list_missing(&index, table).map_err(own)?;
    if let Some(stated) = index.total.filter(|stated| *stated != total) {
        table.warn(None, format!("the index says that the tensors have {stated} bytes; they have {total}"));
    }
    Ok(Some(shards))
}

/// The file of each tensor that an index names; `None` for other JSON.
pub(crate) fn files_by_name(
    source: &dyn Source,
    limits: &Limits,
) -> Result<Option<HashMap<Box<str>, String>>, ReadError> {
    let Some(Index { files, map, .. }) = index::index(source, limits)? else { return Ok(None) };
    Ok(Some(map.into_iter().map(|(name, entry)| (name, files[entry.file as usize].clone())).collect()))
}

/// Which file an error is about.
enum Failed {
    Shard(Error),
    Index(ReadError),
}

impl From<ReadError> for Failed {
    fn from(stop: ReadError) -> Self {
        Self::Index(stop)
    }
}

/// Lists the tensors of one shard; returns the number of bytes of all.
fn shard(
    number: u32,
    index: &mut Index,
    shards: &mut Folder,
    metadata: &mut Metadata,
    table: &mut NameTable,
) -> Result<u64, Failed> {
    let file = index.files[number as usize].clone();
    let path = shards.root().join(&file).display().to_string();
    let source = shards
        .open(&file)
        .map_err(|source| Failed::Shard(failed(&path, "open it, a shard that the index names", source)))?;
    let begin = shards.len();
    shards.add(&file, &source);
    let input = Input::new(Box::new(source));
    let mut listed = NameTable::new(table.limits());
    let read = sniff::read(&input, &file, None, &mut listed);
    let format = read.map_err(|stop| Failed::Shard(stop.into_error(&path)))?.format;
    if format.holds().files != Files::Shards {
        let message = format!("is {}, not a shard of safetensors", format.title());
        return Err(Failed::Shard(Error::Request { file: path, message }));
    }
    merge_notes(&mut listed, metadata, table);
    let mut total = 0;
    for mut entry in listed.into_entries() {
        let name = std::mem::take(&mut entry.name);
        match index.map.get_mut(&name) {
            Some(place) if place.file == number => place.found = true,
            Some(_) => {
                table.warn_of_loss(
                    None,
                    "a shard holds tensors that lie in another file by the index; they are left out",
                );
                continue;
            }
            None => table.warn(None, "a shard holds tensors that the index does not name"),
        }
        total += entry.byte_len();
        shift(&mut entry, begin, table.next_position(0)?);
        table.push(entry, &name, 0)?;
    }
    Ok(total)
}

/// Copies a shard's warnings and metadata to the table; usually all shards have the same.
fn merge_notes(listed: &mut NameTable, metadata: &mut Metadata, table: &mut NameTable) {
    for warning in listed.warnings.drain(..) {
        table.add_warning(Warning { offset: None, ..warning });
    }
    listed.faults.drain(..).for_each(|fault| table.fault(fault));
    metadata.add(std::mem::take(&mut listed.metadata), table);
}

/// The metadata of all shards together, within the limit of a single file: a million shards may each have that much.
#[derive(Default)]
struct Metadata {
    size: MetadataSize,
    keys: HashSet<String>,
}

impl Metadata {
    /// Adds the pairs whose keys are new. Of a key that comes again the first value counts.
    fn add(&mut self, pairs: Vec<(String, String)>, table: &mut NameTable) {
        for (key, value) in pairs {
            visit(0, 1);
            if self.keys.contains(&key) {
                continue;
            }
            if self.size.take(&key, value.len() as u64) {
                self.keys.insert(key.clone());
                table.metadata.push((key, value));
            } else {
                table.warn_of_loss(None, LEFT_OUT);
            }
        }
    }
}

/// Shifts an entry's offset to that in the concatenated shards.
fn shift(entry: &mut Entry, begin: u64, position: u32) {
    entry.position = position;
    if let Payload::Runs(Runs::One(run)) = &entry.payload {
        entry.payload = Payload::Runs(Runs::One(Segment { offset: begin + run.offset, ..*run }));
    }
}

/// Lists the tensors that the index names and no shard has, each with a fault.
fn list_missing(index: &Index, table: &mut NameTable) -> Result<(), ReadError> {
    let mut missing: Vec<_> = index.map.iter().filter(|(_, place)| !place.found).collect();
    missing.sort_unstable_by_key(|(_, place)| place.at);
    for (name, place) in missing {
        let position = table.next_position(place.at)?;
        let fault =
            Fault::new(place.at, FaultKind::words("a tensor in the shard that the index names", "none of this name"));
        table.push(faulty(position, 0, Kind::Data, fault), name, place.at)?;
    }
    Ok(())
}
