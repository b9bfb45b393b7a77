//! The layout of an output: the base with new values, or a new file of a format. Where source and output have the same
//! format, the details of MXNet's records and NeoML's archive are kept.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use blob_core::Shape;
use blob_io::caffe::Message;
use blob_io::hdf5::Form;
use blob_io::layout::{Details, Frame, Layout, TensorSpec};
use blob_io::mxnet::{List, Version};
use blob_io::neoml::Archive;
use blob_io::onnx::Model;
use blob_io::{Checkpoint, Entry, Error, Files, Format, Keys, Nets, Refill, Sparse, TensorName};

use crate::caffe;
use crate::change::{Change, Effect};
use crate::dimensions;
use crate::fits::{Unfit, check_fits};
use crate::hdf5 as h5;
use crate::options::{Options, refuse};
use crate::planned::Planned;
use crate::state::State;
use crate::stored::places;
use crate::symbol::check_eps;
use crate::template::{Template, in_place, refilled, same};

/// The layout of an output with these tensors: the base with new values and without `removed_layers`, or a new file for
/// `path`.
pub(crate) fn of(
    checkpoint: &Checkpoint,
    base: &Template<'_>,
    options: &Options,
    tensors: &mut [Planned],
    removed_layers: &[String],
    metadata: &[(String, String)],
    path: Option<&Path>,
) -> Result<Layout, Error> {
    let to = options.to;
    let layout = match base {
        Template::Same => same(checkpoint, tensors),
        Template::Frame(base) => {
            // The original file comes back unchanged.
            tensors.iter_mut().for_each(|tensor| tensor.changes.clear());
            refilled(base, tensors)
        }
        Template::File(base) => match base.format().holds().refill {
            Refill::InPlace => in_place(checkpoint, base, tensors),
            Refill::Blobs => into_neoml(checkpoint, base, tensors),
            _ => caffe::spliced(checkpoint, base, options, tensors, removed_layers),
        },
        Template::None => {
            check_graph(checkpoint, options)?;
            check_count(checkpoint, to, tensors.len())?;
            check_symbol(checkpoint, options, tensors, path)?;
            dimensions::pad(options, None, tensors);
            let specs: Vec<TensorSpec> = tensors.iter().map(|tensor| tensor.spec.clone()).collect();
            let new = Layout::of(to, &specs, &New { checkpoint, options, tensors, metadata, path });
            new.and_then(
                |layout| if to.is_caffe() { caffe::streamed(checkpoint, to, layout, tensors) } else { Ok(layout) },
            )
        }
    };
    layout.map_err(|e| e.about(checkpoint.name()))
}

/// Refuses a new ONNX model without a graph: tensors have none, and the graph of another model is not changed.
fn check_graph(checkpoint: &Checkpoint, options: &Options) -> Result<(), Error> {
    if options.to.holds().net != Nets::Graph || options.model.is_some() {
        return Ok(());
    }
    let message = if checkpoint.format() == options.to {
        "cannot be written as another ONNX model: blob does not change graphs"
    } else {
        "cannot be converted to an ONNX model: blob has no graph to write around its tensors"
    };
    Err(refuse(checkpoint, message.to_owned()))
}

/// Refuses an npy file for any number of tensors but one; npz or a folder take several.
fn check_count(checkpoint: &Checkpoint, to: Format, count: usize) -> Result<(), Error> {
    if to.holds().files != Files::Folder || count == 1 {
        return Ok(());
    }
    let message = format!(
        "holds {count} tensors, and an .npy file one; extract one of them, or convert to npz or to a folder (-o dir/)"
    );
    Err(refuse(checkpoint, message))
}

/// Refuses variances for another eps than the symbol beside the output says. MXNet loads a symbol with its own lists
/// alone.
fn check_symbol(
    checkpoint: &Checkpoint,
    options: &Options,
    tensors: &[Planned],
    path: Option<&Path>,
) -> Result<(), Error> {
    let Some(path) = path.filter(|_| options.to.is_mxnet()) else { return Ok(()) };
    let state = State::after(&options.about(checkpoint).lineage, &options.registry).then(&options.transforms);
    let names = tensors.iter().map(|tensor| &*tensor.spec.name);
    check_eps(path, names.filter_map(|name| Some((name, state.eps_of(name)?))))
}

/// The details that a new file stores besides the tensors: the source's own, where the format is the source's.
struct New<'a> {
    checkpoint: &'a Checkpoint,
    options: &'a Options,
    tensors: &'a [Planned],
    metadata: &'a [(String, String)],
    path: Option<&'a Path>,
}

impl Details for New<'_> {
    fn metadata(&self) -> Result<Cow<'_, [(String, String)]>, Error> {
        let Some(form) = h5::form(self.options.to, self.path) else { return Ok(Cow::Borrowed(self.metadata)) };
        let counters = self.checkpoint.metadata().iter().filter(|(key, _)| form.stores(key));
        Ok(self.metadata.iter().chain(counters).cloned().collect())
    }

    fn hdf5_form(&self) -> Form {
        h5::form(self.options.to, self.path).unwrap_or(Form::Datasets)
    }

    fn message(&self, specs: &[TensorSpec]) -> Result<(Message, blob_io::caffe::BlobForm), Error> {
        let message = caffe::message(self.checkpoint, self.options, self.tensors, specs)?;
        Ok((message, self.options.form.unwrap_or_default()))
    }

    fn list(&self, _: &[TensorSpec]) -> Result<List, Error> {
        list(self.checkpoint, self.options, self.tensors)
    }

    fn archive(&self, specs: &[TensorSpec]) -> Result<Archive, Error> {
        archive(self.checkpoint, self.options, self.tensors, specs)
    }

    fn model(&self, _: &[TensorSpec]) -> Result<Cow<'_, Model>, Error> {
        let model = self.options.model.as_deref().map(Cow::Borrowed);
        model.ok_or_else(|| refuse(self.checkpoint, "has no graph to be written".to_owned()))
    }
}

/// Whether a new file keeps the source's details besides the tensors. A file of MXNet or NeoML does if all arrays stay,
/// any other file if the format stays and has places of its own for its metadata: texts of any key are not kept.
pub(crate) fn keeps_details(checkpoint: &Checkpoint, options: &Options, tensors: &[Planned]) -> bool {
    if is_of_one_program(checkpoint, options) {
        has_all_arrays(checkpoint, options, tensors)
    } else {
        options.to == checkpoint.format() && options.to.holds().metadata != Keys::Any
    }
}

/// Whether a new file has the arrays' names as stored in the source, and not the names that the source's reader gives.
pub(crate) fn keeps_names(checkpoint: &Checkpoint, options: &Options, tensors: &[Planned]) -> bool {
    is_of_one_program(checkpoint, options) && has_all_arrays(checkpoint, options, tensors)
}

/// Whether the details around arrays can be written again: source and output are MXNet's, or of one NeoML format.
fn is_of_one_program(checkpoint: &Checkpoint, options: &Options) -> bool {
    let (from, to) = (checkpoint.format(), options.to);
    from.is_mxnet() && to.is_mxnet() || from.is_neoml() && to == from
}

/// Whether the output has exactly the source's arrays, under the same names, so that the source's details apply.
fn has_all_arrays(checkpoint: &Checkpoint, options: &Options, tensors: &[Planned]) -> bool {
    let arrays = checkpoint.entries().iter().filter(|entry| entry.dtype().is_some());
    checkpoint.salvaged().is_none()
        && (options.transforms.is_empty()
            || arrays.map(Entry::name).eq(tensors.iter().map(|tensor| &*tensor.spec.name)))
}

/// The arrays of an MXNet file: as in the source if that is an MXNet file too, else by the tensors' names.
fn list(checkpoint: &Checkpoint, options: &Options, tensors: &[Planned]) -> Result<List, Error> {
    let found = if checkpoint.salvaged().is_none() { checkpoint.mxnet_list()? } else { None };
    let of_source = found.as_ref().map(List::version);
    let version = options.params_version;
    if let Some(found) = found.filter(|_| has_all_arrays(checkpoint, options, tensors)) {
        let list = if options.dense { found.into_dense() } else { found };
        return Ok(match version {
            Some(version) => list.with_version(version),
            None => list,
        });
    }
    check_sparse_names(checkpoint, tensors)?;
    let version =
        version.or(of_source).unwrap_or_else(|| match Version::of_dialect(&dialect(checkpoint, options))[..] {
            [all] => all,
            _ => Version::V2,
        });
    Ok(sparse_list(version, tensors, &|_| checkpoint))
}

/// A new list of arrays, in which the parts of a sparse array are one array at the place of the first part. `source_of`
/// has the source of each tensor.
pub(crate) fn sparse_list<'a>(
    version: Version,
    tensors: &[Planned],
    source_of: &dyn Fn(usize) -> &'a Checkpoint,
) -> List {
    let sparse = |at: usize| tensors[at].sparse(source_of(at));
    let mut parts: HashMap<*const Sparse, Vec<usize>> = HashMap::new();
    for at in 0..tensors.len() {
        if let Some(sparse) = sparse(at) {
            parts.entry(sparse).or_default().push(at);
        }
    }
    let mut list = List::new(version);
    let taken: HashSet<&str> = tensors.iter().map(|tensor| &*tensor.spec.name).collect();
    for (index, tensor) in tensors.iter().enumerate() {
        let Some(sparse) = sparse(index) else {
            list.push(&tensor.spec.name, index);
            continue;
        };
        let parts = &parts[&std::ptr::from_ref(sparse)];
        if parts[0] == index {
            let entry = |at: usize| &source_of(at).entries()[tensors[at].entry];
            let ordered = sparse.kind.parts().iter();
            let ordered = ordered.filter_map(|kind| parts.iter().copied().find(|at| entry(*at).kind() == *kind));
            let ordered: Vec<usize> = ordered.collect();
            let mut name = tensor.whole_name(sparse).to_owned();
            while taken.contains(&*name) {
                name = format!("{name}@{}", entry(index).position());
            }
            list.push_sparse(&name, sparse.kind, sparse.shape.clone(), &ordered);
        }
    }
    list
}

/// The arrays' last dialect of MXNet's, by the source or the receipt; empty if there was none.
fn dialect(checkpoint: &Checkpoint, options: &Options) -> String {
    if checkpoint.format().is_mxnet() {
        return checkpoint.dialect().to_owned();
    }
    let about = options.about(checkpoint);
    let last = about.lineage.iter().rev().find(|origin| origin.format.parse().is_ok_and(Format::is_mxnet));
    last.map(|origin| origin.dialect.clone()).unwrap_or_default()
}

/// A remark where a new MXNet file has records of one version, and the records before were of several.
pub(crate) fn one_version(checkpoint: &Checkpoint, options: &Options, tensors: &[Planned]) -> Option<Change> {
    if !options.to.is_mxnet() || options.params_version.is_some() || keeps_names(checkpoint, options, tensors) {
        return None;
    }
    let before = dialect(checkpoint, options);
    if Version::of_dialect(&before).len() < 2 {
        return None;
    }
    let words = format!("all records are of one version, and before they were {before}");
    Some(Change::unasked(Effect::Remark(words)))
}

/// The remark that a fold changed the net inside the output alone.
pub(crate) fn unchanged_prototxt(base: &Template<'_>, to: Format, removed_layers: &[String]) -> Option<Change> {
    let note = "fold: the net inside the output is changed already, your prototxt is not";
    let is_changed = matches!(base, Template::File(_)) && to.is_caffe() && !removed_layers.is_empty();
    is_changed.then(|| Change::unasked(Effect::Remark(note.to_owned())))
}

/// Refuses names that an MXNet file cannot store: a sparse array has one name, the text before the `#` in the names of
/// all parts.
fn check_sparse_names(checkpoint: &Checkpoint, tensors: &[Planned]) -> Result<(), Error> {
    let entry = |tensor: &Planned| &checkpoint.entries()[tensor.entry];
    let is_renamed = |tensor: &Planned| *tensor.spec.name != *entry(tensor).name();
    let plain = tensors.iter().filter(|tensor| tensor.sparse(checkpoint).is_none());
    let plain: HashMap<&str, bool> = plain.map(|tensor| (&*tensor.spec.name, is_renamed(tensor))).collect();
    let mut wholes: HashMap<&str, &Planned> = HashMap::new();
    for tensor in tensors {
        let (name, old) = (&tensor.spec.name, entry(tensor).name());
        let Some(sparse) = tensor.sparse(checkpoint) else { continue };
        let part = TensorName::of(old).kind;
        if is_renamed(tensor) && TensorName::of(name).kind != part {
            let ending = TensorName::new("", part);
            let message =
                format!("{old:?} is a part of a sparse array, and cannot be called {name:?}: {ending} is missing");
            return Err(refuse(checkpoint, message));
        }
        let whole = tensor.whole_name(sparse);
        let first = *wholes.entry(&sparse.name).or_insert(tensor);
        if first.whole_name(sparse) != whole {
            let (first, sparse) = (&first.spec.name, &sparse.name);
            let message =
                format!("{first:?} and {name:?} are parts of one array, {sparse:?}: they need one name before the #");
            return Err(refuse(checkpoint, message));
        }
        if plain.get(whole).is_some_and(|plain| *plain || is_renamed(tensor)) {
            let message =
                format!("{old:?}, as {name:?}, is of an array {whole:?}, and another tensor is called so too");
            return Err(refuse(checkpoint, message));
        }
    }
    Ok(())
}

/// The archive around the tensors: the source's own if the formats are the same, else a new one.
fn archive(
    checkpoint: &Checkpoint,
    options: &Options,
    tensors: &[Planned],
    specs: &[TensorSpec],
) -> Result<Archive, Error> {
    let to = options.to;
    if checkpoint.format() == to
        && has_all_arrays(checkpoint, options, tensors)
        && let Some(found) = checkpoint.neoml_archive()?
    {
        return Ok(found);
    }
    match specs.len() {
        _ if !to.holds().from_tensors => {
            Err(refuse(checkpoint, "cannot be converted to a NeoML net: its layers are not known".to_owned()))
        }
        tensors if to.holds().many => {
            Ok(Archive::array(tensors).replacing(&places(specs.iter().map(|spec| &*spec.name))))
        }
        1 => Ok(Archive::blob()),
        tensors => Err(refuse(
            checkpoint,
            format!(
                "holds {tensors} tensors, and a NeoML blob is one; extract one of them, or convert to neoml-array, \
                 or to neoml-net what came from a net (--to neoml-net)"
            ),
        )),
    }
}

/// The layout of the archive `base`, where each tensor replaces the blob of the same name; everything else stays.
fn into_neoml(checkpoint: &Checkpoint, base: &Checkpoint, tensors: &mut [Planned]) -> Result<Layout, Error> {
    base.check_whole()?;
    check_fits(checkpoint, base, tensors, |tensor, entry| Ok(misfit(tensor, entry)))?;
    let blobs = base.entries().iter().filter(|entry| entry.dtype().is_some());
    let places: HashMap<&str, usize> = blobs.enumerate().map(|(place, entry)| (entry.name(), place)).collect();
    // `check_fits` has found each tensor's name in the base.
    let replaced: Vec<usize> = tensors.iter().filter_map(|tensor| places.get(&*tensor.spec.name).copied()).collect();
    for tensor in tensors.iter_mut() {
        // The axes of the net count: NeoML shows an old bias with the channels last, and stores the channels first.
        tensor.changes.retain(|change| !matches!(change.effect, Effect::Padded { .. }));
        if let Some(entry) = base.entry(&tensor.spec.name).filter(|entry| *entry.shape() != tensor.spec.shape) {
            let was = std::mem::replace(&mut tensor.spec.shape, entry.shape().clone());
            tensor.changes.push(Change::asked(Effect::Reshaped { was }));
        }
    }
    let specs: Vec<TensorSpec> = tensors.iter().map(|tensor| tensor.spec.clone()).collect();
    let archive = base.neoml_archive()?.ok_or_else(|| refuse(base, "is not an archive of NeoML".to_owned()))?;
    Layout::new(&specs, Frame::Neoml(&archive.replacing(&replaced)))
}

/// The reason why a tensor cannot replace a blob: another dtype or other extents, where axes of one do not count.
fn misfit(tensor: &Planned, entry: &Entry) -> Option<Unfit> {
    let extents =
        |shape: &Shape| -> Vec<usize> { shape.dims().iter().copied().filter(|extent| *extent != 1).collect() };
    match entry.dtype() {
        _ if extents(&tensor.spec.shape) != extents(entry.shape()) => Some(Unfit::of_shape(tensor, entry)),
        Some(there) if there != tensor.spec.dtype => Some(Unfit::of_dtype(tensor, there)),
        Some(_) => None,
        None => Some(Unfit::new("is no array there")),
    }
}
