//! Reads an HDF5 file as entries: Caffe's weights by layer, a solver's history by index, other datasets by their paths.
//!
//! Caffe's layout: `HDF5ToNet`, `Net::ToHDF5` and `SGDSolver::SnapshotSolverStateToHDF5` of BVLC/caffe `9b891540`.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use hdf5_reader::group::Group;

use super::structure::{Structure, fault_of};
use super::{attributes, dataset};
use crate::entry::{Entry, Kind};
use crate::error::{ReadError, check_limit};
use crate::limits::{LONGEST_NAME, Limit, names_for};
use crate::names::{NameTable, faulty};
use crate::wire::source::Input;

/// Limits on the groups and datasets of one file.
const MAX_OBJECTS: u64 = 1 << 16;
const MAX_NESTED: u64 = 64;

/// A dataset that is not in the list of entries yet.
struct Found {
    /// The path of the group that it is in, with `/` before each name; empty for the root.
    group: Rc<str>,
    name: String,
    /// Where its header lies.
    at: u64,
    entry: Entry,
}

/// Lists the datasets; returns the file's dialect.
pub(crate) fn read(input: &Input, table: &mut NameTable) -> Result<String, ReadError> {
    let mut structure = Structure::open(input)?;
    let (groups, found) = walk(&mut structure, table)?;
    attributes::read(&structure, table)?;
    let has = |path: &str| groups.iter().any(|group| **group == *path);
    let is_root = |found: &Found, name: &str| found.group.is_empty() && found.name == name;
    if has("/history") && found.iter().any(|found| is_root(found, "iter")) {
        solver(&structure, found, table)?;
        return Ok("Caffe solver state".to_owned());
    }
    let in_layer = |found: &Found| layer(&found.group, "/data/").is_some() && number(&found.name).is_some();
    let mut layers = BTreeMap::new();
    if found.iter().any(in_layer) {
        // Layers without parameters have a group too, and a position.
        for group in groups.iter().filter_map(|group| layer(group, "/data/")) {
            layers.insert(group.to_owned(), table.next_position(0)?);
        }
        weights(found, &layers, table)?;
        return Ok("Caffe weights".to_owned());
    }
    for found in found {
        push_path(found, table)?;
    }
    Ok("datasets".to_owned())
}

/// The name of the layer whose blobs the group holds.
fn layer<'g>(group: &'g str, root: &str) -> Option<&'g str> {
    group.strip_prefix(root)
}

/// A blob's number, as Caffe writes it.
fn number(name: &str) -> Option<u32> {
    let is_number = name == "0" || !name.starts_with('0') && name.bytes().all(|b| b.is_ascii_digit());
    name.parse().ok().filter(|_| is_number)
}

/// All groups and datasets; each group once, even if several links lead to it.
fn walk(structure: &mut Structure, table: &NameTable) -> Result<(Vec<Rc<str>>, Vec<Found>), ReadError> {
    let (mut groups, mut all) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    let mut todo: Vec<(Rc<str>, Vec<String>)> = vec![("".into(), Vec::new())];
    let mut names = 0;
    while let Some((path, parts)) = todo.pop() {
        structure.empty_caches()?;
        let group = find(structure, &parts)?;
        if !seen.insert(group.address()) {
            continue;
        }
        let at = structure.begin().saturating_add(group.address());
        let (mut subgroups, mut datasets) = structure.call(|_| group.member_names())?;
        // Sorted as in h5py and h5ls; newer files store links in hash order.
        subgroups.sort_unstable();
        datasets.sort_unstable();
        let count = (groups.len() + todo.len() + all.len() + subgroups.len() + datasets.len()) as u64;
        check_limit(at, Limit::Fixed, "the number of groups and datasets", count, MAX_OBJECTS)?;
        check_limit(at, Limit::Fixed, "the depth of groups", parts.len() as u64, MAX_NESTED)?;
        names += subgroups.iter().map(|name| 2 * (path.len() + name.len())).sum::<usize>() as u64;
        names += datasets.iter().map(String::len).sum::<usize>() as u64;
        let most = names_for(count);
        check_limit(at, Limit::Fixed, "the bytes of all names", names, most)?;
        for name in datasets {
            all.push(dataset_of(structure, &group, &path, name, table)?);
        }
        for name in subgroups.into_iter().rev() {
            let parts = parts.iter().chain([&name]).cloned().collect();
            todo.push((format!("{path}/{name}").into(), parts));
        }
        groups.push(path);
    }
    Ok((groups, all))
}

/// The group at a path.
fn find(structure: &Structure, parts: &[String]) -> Result<Group, ReadError> {
    let root = structure.call(|file| file.root_group())?;
    parts.iter().try_fold(root, |group, name| structure.call(|_| group.group(name)))
}

/// Describes a dataset; an error in this dataset becomes its entry's fault.
fn dataset_of(
    structure: &Structure,
    group: &Group,
    path: &Rc<str>,
    name: String,
    table: &NameTable,
) -> Result<Found, ReadError> {
    let mut entry = Entry::new(0, 0, Kind::Data);
    let mut at = structure.begin().saturating_add(group.address());
    let described = structure.call(|_| group.dataset(&name)).and_then(|dataset| {
        at = structure.begin().saturating_add(dataset.address());
        dataset::describe(structure, &dataset, table.limits(), &mut entry)
    });
    if let Err(stop) = described {
        entry = faulty(0, 0, Kind::Data, fault_of(stop)?);
    }
    Ok(Found { group: path.clone(), name, at, entry })
}

/// Lists Caffe's weights, `data/<layer>/<number>`, and their diffs in `diff`, in the order of layers and numbers.
fn weights(found: Vec<Found>, layers: &BTreeMap<String, u32>, table: &mut NameTable) -> Result<(), ReadError> {
    let blob_key = |found: &Found| {
        let number = number(&found.name)?;
        let data = layer(&found.group, "/data/").map(|layer| (layer, Kind::Data));
        let (layer, kind) = data.or_else(|| layer(&found.group, "/diff/").map(|layer| (layer, Kind::Diff)))?;
        Some((*layers.get(layer)?, number, kind))
    };
    let (mut blobs, mut others) = (Vec::new(), Vec::new());
    for found in found {
        match blob_key(&found) {
            Some(blob_key) => blobs.push((blob_key, found)),
            None => others.push(found),
        }
    }
    blobs.sort_by_key(|((position, number, kind), _)| (*position, *number, *kind == Kind::Diff));
    for ((position, number, kind), found) in blobs {
        let layer = found.group["/data/".len()..].to_owned();
        let base = if layer.is_empty() { format!("@{position}") } else { layer };
        let suffix = if kind == Kind::Diff { ".diff" } else { "" };
        let name = format!("{base}/{number}{suffix}");
        found.push((position, number, kind), &name, table)?;
    }
    others.into_iter().try_for_each(|found| push_path(found, table))
}

/// Lists a solver's state: its history in the order of the numbers, its counters as metadata.
fn solver(structure: &Structure, found: Vec<Found>, table: &mut NameTable) -> Result<(), ReadError> {
    let (mut history, mut others) = (Vec::new(), Vec::new());
    for found in found {
        match number(&found.name).filter(|_| *found.group == *"/history") {
            Some(number) => history.push((number, found)),
            None => others.push(found),
        }
    }
    history.sort_by_key(|(number, _)| *number);
    for (number, found) in history {
        let position = table.next_position(0)?;
        found.push((position, 0, Kind::Data), &format!("@{number}"), table)?;
    }
    for found in others {
        let is_counter = found.group.is_empty() && matches!(&*found.name, "iter" | "current_step" | "learned_net");
        match scalar_text(structure, &found).filter(|_| is_counter) {
            Some(text) => table.metadata.push((found.name, text)),
            None => push_path(found, table)?,
        }
    }
    Ok(())
}

/// The text of a string, or of a single integer of four bytes.
fn scalar_text(structure: &Structure, found: &Found) -> Option<String> {
    let entry = &found.entry;
    let len = entry.byte_len();
    let run = entry.segments().first().filter(|_| len <= LONGEST_NAME)?;
    let mut bytes = vec![0; len as usize];
    structure.read(run.offset, &mut bytes).ok()?;
    if entry.dtype == Some(blob_core::DType::I32) && !entry.swapped {
        return bytes.try_into().ok().map(|bytes| i32::from_le_bytes(bytes).to_string());
    }
    let is_text = entry.foreign_dtype() == Some("string");
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    is_text.then(|| crate::names::name_from_bytes(&bytes[..end]).into_owned())
}

/// Adds a dataset that is not one of Caffe's, under its path.
fn push_path(found: Found, table: &mut NameTable) -> Result<(), ReadError> {
    let position = table.next_position(found.at)?;
    let name = format!("{}/{}", found.group, found.name);
    found.push((position, 0, Kind::Data), &name[1..], table)
}

impl Found {
    fn push(
        self,
        (position, index, kind): (u32, u32, Kind),
        name: &str,
        table: &mut NameTable,
    ) -> Result<(), ReadError> {
        let entry = Entry { position, index, kind, ..self.entry };
        table.push(entry, name, self.at)
    }
}
