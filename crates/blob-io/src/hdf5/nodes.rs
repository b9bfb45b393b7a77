//! Plans the tree of groups and datasets of an HDF5 file to be written: Caffe's, or that of the tensors' names.
//!
//! Pure: works on names, dtypes and shapes. Caffe's trees: `Net::ToHDF5` and `SGDSolver::SnapshotSolverStateToHDF5` of
//! BVLC/caffe `9b891540`. `write` makes the bytes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use blob_core::DType;

use super::form::{COUNTERS, Form, LEARNED_NET};
use crate::caffe::named::BlobPlace;
use crate::error::{Error, Remedy};
use crate::spec::{Problems, TensorSpec, refuse};
use crate::tensor_name;

/// The name of the format in errors.
pub(super) const FORMAT: &str = "hdf5";
/// Deeper nesting, more objects and longer names are refused: this crate's own reader has such limits too.
const MAX_NESTED: usize = 32;
const MAX_OBJECTS: usize = 1 << 16;
const MAX_NAMES: usize = 8 << 20;
/// How many bytes the names and headers in one group may take: the reader allows 768 KiB.
const MAX_GROUP_BYTES: usize = 640 << 10;
/// The object behind a name in a group.
#[derive(Clone, Debug)]
pub(super) enum Object {
    /// Sorted by the names' bytes, as in HDF5.
    Group(BTreeMap<String, Object>),
    /// The tensor's index.
    Tensor(usize),
    Number(i32),
    Text(String),
}

/// The tree of a form, or an error with the list of the tensors that do not fit.
pub(super) fn tree(
    form: Form,
    specs: &[TensorSpec],
    metadata: &[(String, String)],
) -> Result<BTreeMap<String, Object>, Error> {
    let mut root = BTreeMap::new();
    match form {
        Form::Datasets => {}
        Form::Weights => drop(root.insert("data".to_owned(), Object::Group(BTreeMap::new()))),
        Form::SolverState => {
            counters(&mut root, metadata)?;
            root.insert("history".to_owned(), Object::Group(BTreeMap::new()));
        }
    }
    let mut problems = Problems::default();
    for (tensor, spec) in specs.iter().enumerate() {
        let is_diff = BlobPlace::in_list(&spec.name).is_some_and(|place| place.is_diff);
        if form == Form::SolverState && is_diff {
            let problem = "is a diff, which Caffe's solver states in HDF5 do not have";
            problems.add_with(&spec.name, problem, Some(Remedy::NoDiffs));
            continue;
        }
        if let Err(problem) = path(form, spec).and_then(|path| insert(&mut root, &path, Object::Tensor(tensor))) {
            // Other names help, but for a dtype.
            problems.add_with(&spec.name, problem, (spec.dtype != DType::Bool).then_some(Remedy::Names));
        }
    }
    match form {
        Form::Datasets if matches!(root.get("history"), Some(Object::Group(_))) && root.contains_key("iter") => {
            problems.add("iter", "beside history would be read as Caffe's solver state");
        }
        Form::Datasets => {}
        Form::Weights => add_data_groups(&mut root),
        Form::SolverState => check_history(&root, specs, &mut problems),
    }
    let (objects, names) = sizes("", &root, specs, &mut problems);
    if objects > MAX_OBJECTS || names > MAX_NAMES {
        let most = format!("{MAX_OBJECTS} groups and datasets with names of {MAX_NAMES} bytes");
        return Err(refuse(
            FORMAT,
            format!("{objects} groups and datasets have names of {names} bytes; the most is {most}"),
        ));
    }
    problems.refused(FORMAT)?;
    Ok(root)
}

/// Adds the numbers that Caffe needs, or zero if the source has none, and the path of the weights, if known.
fn counters(root: &mut BTreeMap<String, Object>, metadata: &[(String, String)]) -> Result<(), Error> {
    let text = |key: &str| metadata.iter().find(|(known, _)| known == key).map(|(_, value)| &**value);
    for key in COUNTERS {
        let words = text(key).unwrap_or("0");
        let number = words.parse();
        let number =
            number.map_err(|_| refuse(FORMAT, format!("{key} is a whole number of 32 bits, not {words:?}")))?;
        root.insert(key.to_owned(), Object::Number(number));
    }
    if let Some(path) = text(LEARNED_NET) {
        if path.contains('\0') {
            return Err(refuse(FORMAT, format!("{LEARNED_NET} ends at a NUL: {path:?}")));
        }
        root.insert(LEARNED_NET.to_owned(), Object::Text(path.to_owned()));
    }
    Ok(())
}

/// The path of a tensor's dataset, or why the tensor has none.
fn path(form: Form, spec: &TensorSpec) -> Result<Vec<String>, &'static str> {
    let parts: Vec<String> = match form {
        Form::Datasets => spec.name.split('/').map(str::to_owned).collect(),
        Form::Weights => {
            let place = BlobPlace::in_layer(&spec.name).filter(|place| i32::try_from(place.index).is_ok());
            let BlobPlace { layer, index, is_diff } =
                place.ok_or("is not called <layer>/<index>, with .diff at the end of a diff's name")?;
            if layer.contains('/') {
                return Err(
                    "has a layer's name with a slash, which Caffe does not find in HDF5; npz and safetensors hold it",
                );
            }
            vec![if is_diff { "diff" } else { "data" }.to_owned(), layer.to_owned(), index.to_string()]
        }
        Form::SolverState => match BlobPlace::in_list(&spec.name) {
            Some(BlobPlace { index, is_diff: false, .. }) => vec!["history".to_owned(), index.to_string()],
            _ => return Err("is not called @<index>"),
        },
    };
    if form != Form::Datasets && spec.dtype == DType::Bool {
        return Err("is bool, which Caffe does not read");
    }
    if parts.iter().any(|part| part.is_empty() || part == "." || part.contains('\0')) {
        return Err("has a part between slashes that HDF5 cannot store: nothing, a dot, or a NUL");
    }
    if parts.len() > MAX_NESTED {
        return Err("has more than 32 parts between slashes");
    }
    let looks_as_weights =
        matches!(&parts[..], [data, .., _, index] if data == "data" && tensor_name::number(index).is_some());
    if form == Form::Datasets && looks_as_weights {
        return Err("would be read as Caffe's weights; a file called .caffemodel.h5 holds them");
    }
    Ok(parts)
}

/// Inserts a dataset into the tree.
fn insert(root: &mut BTreeMap<String, Object>, path: &[String], node: Object) -> Result<(), &'static str> {
    let Some((last, groups)) = path.split_last() else {
        return Err("has no name");
    };
    let mut group = root;
    for name in groups {
        let inner = group.entry(name.clone()).or_insert_with(|| Object::Group(BTreeMap::new()));
        let Object::Group(inner) = inner else {
            return Err("lies inside another tensor");
        };
        group = inner;
    }
    match group.entry(last.clone()) {
        Entry::Vacant(place) => {
            place.insert(node);
            Ok(())
        }
        Entry::Occupied(_) => Err("has the name of a group or of another tensor"),
    }
}

/// How many groups and datasets there are, and the bytes of the names, as the reader counts them.
fn sizes(
    path: &str,
    group: &BTreeMap<String, Object>,
    specs: &[TensorSpec],
    problems: &mut Problems,
) -> (usize, usize) {
    let (mut objects, mut names, mut bytes) = (group.len(), 0, 0);
    for (name, node) in group {
        let axes = match node {
            Object::Tensor(tensor) => specs[*tensor].shape.num_axes(),
            _ => 0,
        };
        // An entry of 40 bytes, the name's end and padding, a header of at most 152 bytes and the extents.
        bytes += 208 + name.len() + 8 * axes;
        names += name.len();
        if let Object::Group(inner) = node {
            names += 2 * path.len() + name.len();
            let (inner_objects, inner_names) = sizes(&format!("{path}/{name}"), inner, specs, problems);
            (objects, names) = (objects + inner_objects, names + inner_names);
        }
    }
    if bytes > MAX_GROUP_BYTES {
        problems.add(
            if path.is_empty() { "/" } else { path },
            format!("is a group of {} names, which take over 640 KiB", group.len()),
        );
    }
    (objects, names)
}

/// Gives a layer with only diffs an empty data group too, as Caffe does: the data are shared from another layer.
fn add_data_groups(root: &mut BTreeMap<String, Object>) {
    let Some(Object::Group(diffs)) = root.get("diff") else {
        return;
    };
    let names: Vec<String> = diffs.keys().cloned().collect();
    if let Some(Object::Group(data)) = root.get_mut("data") {
        for name in names {
            data.entry(name).or_insert_with(|| Object::Group(BTreeMap::new()));
        }
    }
}

/// Checks that a solver's history has no gaps: Caffe reads every index below the count.
fn check_history(root: &BTreeMap<String, Object>, specs: &[TensorSpec], problems: &mut Problems) {
    let Some(Object::Group(history)) = root.get("history") else {
        return;
    };
    for (index, node) in history {
        let index: usize = index.parse().unwrap_or(usize::MAX);
        if let Object::Tensor(tensor) = node
            && index >= history.len()
        {
            problems.add(&specs[*tensor].name, "is behind a gap in the history");
        }
    }
}
