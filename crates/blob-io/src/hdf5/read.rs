//! Reads an HDF5 file as entries: Caffe's weights by layer, a solver's history by index, other datasets by path.
//!
//! Caffe's layout: `HDF5ToNet`, `Net::ToHDF5` and `SGDSolver::SnapshotSolverStateToHDF5` of BVLC/caffe `9b891540`.

use std::collections::BTreeMap;

use super::attributes;
use super::form::Form;
use super::structure::Structure;
use super::tree::{NamedDataset, Tree, walk};
use crate::entry::{Entry, Kind};
use crate::error::ReadError;
use crate::limits::LONGEST_NAME;
use crate::names::NameTable;
use crate::tensor_name::{self, TensorName};
use crate::wire::source::Input;

/// Lists the datasets; returns the form of the file.
pub(crate) fn read(input: &Input, table: &mut NameTable) -> Result<Form, ReadError> {
    let structure = Structure::open(input)?;
    let Tree { groups, datasets: found } = walk(&structure, table)?;
    attributes::read(&structure, table)?;
    if groups.iter().any(|group| **group == *"/history")
        && found.iter().any(|found| found.group.is_empty() && found.name == "iter")
    {
        solver(&structure, found, table)?;
        return Ok(Form::SolverState);
    }
    let mut layers = BTreeMap::new();
    if found.iter().any(|found| found.group.starts_with("/data/") && number(&found.name).is_some()) {
        // Layers without parameters have a group too, and a position.
        for group in groups.iter().filter_map(|group| group.strip_prefix("/data/")) {
            layers.insert(group.to_owned(), table.next_position(0)?);
        }
        weights(found, &layers, table)?;
        return Ok(Form::Weights);
    }
    for found in found {
        push_path(found, table)?;
    }
    Ok(Form::Datasets)
}

/// A blob's number as in Caffe.
fn number(name: &str) -> Option<u32> {
    u32::try_from(tensor_name::number(name)?).ok()
}

/// Lists Caffe's weights, `data/<layer>/<number>`, and the diffs in `diff`, in the order of layers and numbers.
fn weights(found: Vec<NamedDataset>, layers: &BTreeMap<String, u32>, table: &mut NameTable) -> Result<(), ReadError> {
    let blob_key = |found: &NamedDataset| {
        let number = number(&found.name)?;
        let data = found.group.strip_prefix("/data/").map(|layer| (layer, Kind::Data));
        let (layer, kind) = data.or_else(|| Some((found.group.strip_prefix("/diff/")?, Kind::Diff)))?;
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
        let name = format!("{base}/{number}");
        found.push(position, number, kind, &TensorName::new(&name, kind).to_string(), table)?;
    }
    others.into_iter().try_for_each(|found| push_path(found, table))
}

/// Lists a solver's state: the history in the order of the numbers, the counters as metadata.
fn solver(structure: &Structure, found: Vec<NamedDataset>, table: &mut NameTable) -> Result<(), ReadError> {
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
        found.push(position, 0, Kind::Data, &format!("@{number}"), table)?;
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
fn scalar_text(structure: &Structure, found: &NamedDataset) -> Option<String> {
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

/// Adds a dataset that is not one of Caffe's; the path becomes the name.
fn push_path(found: NamedDataset, table: &mut NameTable) -> Result<(), ReadError> {
    let position = table.next_position(found.at)?;
    let name = format!("{}/{}", found.group, found.name);
    found.push(position, 0, Kind::Data, &name[1..], table)
}

impl NamedDataset {
    fn push(self, position: u32, index: u32, kind: Kind, name: &str, table: &mut NameTable) -> Result<(), ReadError> {
        // A dataset of a null dataspace holds no array, whatever the name promises.
        let kind = if self.entry.kind == Kind::None { Kind::None } else { kind };
        let entry = Entry { position, index, kind, ..self.entry };
        table.push(entry, name, self.at)
    }
}
