//! The changes that the output's format makes to tensors, and the facts of the source that the format has no place for:
//! read from the format's row of facts alone.

use std::collections::{BTreeMap, HashMap};

use blob_core::DType;
use blob_io::hdf5::Form;
use blob_io::layout::{file_names, member_names};
use blob_io::{Bf16, Checkpoint, Entry, Files, Format, Keys, Kind, Names, TensorName, Warning, work};
use serde::Deserialize;

use crate::change::{Change, Effect};
use crate::history::{KEY, parse, receipt_text};
use crate::options::Options;
use crate::planned::{How, Planned};

/// The metadata that transformers writes and expects.
pub(crate) const FORMAT: (&str, &str) = ("format", "pt");

/// The key under which a solver state names the file of the weights.
const LEARNED_NET: &str = "learned_net";

/// The key of a Datum's label.
pub(crate) const LABEL: &str = "label";

/// The key under which the reader of npz lists the members that are no arrays.
const NO_ARRAYS: &str = "members without arrays";

/// The kind of output that tensors are stored in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage {
    pub(crate) to: Format,
    /// A folder's files have the tensors' names, and are planned as npy.
    pub(crate) is_folder: bool,
    /// Whether a receipt comes with the tensors.
    pub(crate) has_receipt: bool,
}

impl Storage {
    /// Notes the tensors whose names a folder or an archive cannot hold unchanged. Returns the files of a folder.
    pub(crate) fn encode(self, tensors: &mut [Planned]) -> Vec<String> {
        let names: Vec<&str> = tensors.iter().map(|tensor| &*tensor.spec.name).collect();
        let stored = match self.to.holds().files {
            Files::Folder if self.is_folder => file_names(&names),
            Files::Members => member_names(&names),
            _ => Vec::new(),
        };
        for (tensor, stored) in tensors.iter_mut().zip(&stored) {
            if *stored != tensor.spec.name {
                tensor.changes.push(Change::unasked(Effect::NameEncoded { stored: stored.clone() }));
            }
        }
        if self.is_folder { stored.into_iter().map(|path| path + ".npy").collect() } else { Vec::new() }
    }

    /// Notes the changes that the format makes to the tensors of `source`.
    pub(crate) fn note(self, source: &Checkpoint, tensors: &mut [Planned]) {
        let known = source.format().holds().since;
        for tensor in &mut *tensors {
            tensor.changes.extend(unlisted_beside(&source.entries()[tensor.entry]));
            self.note_form(tensor, known);
        }
        // A folder's files have the tensors' names.
        if self.to.holds().names != Names::None || self.is_folder {
            return;
        }
        let (numbers, holds) = (self.numbers(source, tensors), self.to.holds());
        for (tensor, number) in tensors.iter_mut().zip(numbers) {
            let name = &tensor.spec.name;
            let stored = match tensor.sparse(source).filter(|_| holds.sparse) {
                Some(sparse) => tensor.whole_name(sparse),
                None => TensorName::of(name).diffed().filter(|_| holds.diffs).unwrap_or(name),
            };
            if *stored != format!("@{number}") {
                tensor.changes.push(Change::unasked(Effect::NameLost { format: self.to }));
            }
        }
    }

    /// Notes the names that the source's reader gave, in a new file that stores names.
    pub(crate) fn note_names(self, source: &Checkpoint, tensors: &mut [Planned]) {
        if self.to.holds().names == Names::None && !self.is_folder {
            return;
        }
        for tensor in tensors {
            let entry = &source.entries()[tensor.entry];
            let warning = entry.name_warning().filter(|_| *tensor.spec.name == *entry.name());
            tensor.changes.extend(warning.map(|warning| Change::unasked(Effect::Unlisted(warning))));
        }
    }

    /// Notes the changes to tensors of `source` in a new file, which may give them new numbers.
    pub(crate) fn note_new(self, source: &Checkpoint, tensors: &mut [Planned], renumbers: bool) {
        note_ties(source, tensors);
        tensors.iter_mut().filter(|_| renumbers).for_each(|tensor| self.note_number(tensor));
    }

    /// Notes a name that gets a number in its place.
    pub(crate) fn note_number(self, tensor: &mut Planned) {
        if is_numbered(self.to) && TensorName::of(&tensor.spec.name).position().is_none() {
            tensor.changes.push(Change::unasked(Effect::NameLost { format: self.to }));
        }
    }

    /// The positions by which a reader of the output calls the tensors: 3 for `@3`.
    fn numbers(self, source: &Checkpoint, tensors: &[Planned]) -> Vec<usize> {
        // Places without an array are kept, and count.
        if self.to == source.format() {
            return tensors.iter().map(|tensor| source.entries()[tensor.entry].position()).collect();
        }
        if self.to.holds().many {
            places(tensors.iter().map(|tensor| &*tensor.spec.name))
        } else {
            vec![0; tensors.len()]
        }
    }

    /// `known` has the late dtypes that the source's own format has, too.
    fn note_form(self, tensor: &mut Planned, known: &[(DType, &str)]) {
        let (holds, spec) = (self.to.holds(), &tensor.spec);
        let mut effects = Vec::new();
        tensor.keeps_bf16 = spec.dtype == DType::BF16 && holds.bf16 == Bf16::AsU16;
        if tensor.keeps_bf16 {
            effects.push(Effect::BitsStored { of: DType::BF16, stored: DType::U16, is_told: self.has_receipt });
        }
        let axes = spec.shape.num_axes();
        if let Some(to) = holds.axes.filter(|to| axes < *to) {
            effects.push(Effect::Padded { from: axes, to });
        }
        // A blob of f64 differs from a blob of f32 by the field that the values stand in.
        if self.to.is_caffe() && spec.dtype == DType::F64 && spec.shape.count() == 0 {
            effects.push(Effect::DtypeLost { dtype: spec.dtype, format: self.to });
        }
        let since = holds.since.iter().find(|late| late.0 == spec.dtype && !known.contains(late));
        effects.extend(since.map(|(dtype, since)| Effect::NewDtype { dtype: *dtype, since }));
        tensor.changes.extend(effects.into_iter().map(Change::unasked));
    }

    /// The metadata of a new file, besides the receipt. safetensors keeps the metadata of a safetensors source. Beside
    /// a receipt stands `format: pt`, without which transformers and accelerate refuse a file that has metadata.
    pub(crate) fn metadata(self, source: &Checkpoint, has_receipt: bool) -> Vec<(String, String)> {
        if !self.to.holds().inherits {
            return Vec::new();
        }
        let is_kept = source.format() == self.to;
        let kept = source.metadata().iter().filter(|(key, _)| is_kept && key != KEY);
        let mut metadata: Vec<(String, String)> = kept.cloned().collect();
        if has_receipt && metadata.iter().all(|(key, _)| key != FORMAT.0) {
            metadata.push((FORMAT.0.to_owned(), FORMAT.1.to_owned()));
        }
        metadata
    }

    /// The notice that the tensors are a solver's history, for a file of another kind.
    pub(crate) fn of_solver(self, source: &Checkpoint) -> Option<Effect> {
        momentum(source).filter(|_| !is_of_solver(self.to)).map(Effect::Notice)
    }

    /// Further notes about a new file for the user: a solver's history, sparse arrays in parts.
    pub(crate) fn remarks(self, source: &Checkpoint, options: &Options) -> Vec<Change> {
        work::visit(0, source.entries().len() as u64);
        let mut effects: Vec<Effect> = self.of_solver(source).into_iter().collect();
        if let Some(label) = told_label(source).filter(|_| self.to.holds().metadata.is_own(LABEL) && options.anew) {
            let words = format!("the datum is written without the label {label} of the source's receipt");
            effects.push(Effect::Dropped(words.into()));
        }
        let is_sparse = source.entries().iter().any(|entry| entry.sparse().is_some());
        if is_sparse && !options.dense && !self.to.holds().sparse {
            effects.push(Effect::Notice("sparse arrays are written in their parts; --dense expands them".to_owned()));
        }
        let values = source.names().map(TensorName::of).filter(|name| name.kind == Kind::Values);
        let indices = values.filter_map(|name| source.entry(&TensorName::new(name.array, Kind::Indices).to_string()));
        let parts = indices.filter(|indices| indices.sparse().is_none()).count();
        if self.to.is_mxnet() && !source.format().is_mxnet() && parts > 0 {
            let words =
                format!("sparse arrays stay in their parts, which MXNet takes for arrays of their own: {parts}");
            effects.push(Effect::Remark(words));
        }
        effects.into_iter().map(Change::unasked).collect()
    }

    /// The metadata of the source that a new file without a receipt (`is_bare`) has no place for, besides the keys that
    /// the `form` of an HDF5 file stores, and the metadata of which the source's receipt alone tells, where the new
    /// receipt has no frame (`is_anew`).
    pub(crate) fn dropped_metadata(
        self,
        source: &Checkpoint,
        written: &[(String, String)],
        form: Option<Form>,
        is_bare: bool,
        is_anew: bool,
    ) -> Option<Change> {
        let own = own_metadata(source).map(|(key, _)| key.to_owned()).filter(|_| is_bare);
        let own = own.filter(|key| form.is_none_or(|form| !form.stores(key)));
        let mut keys: Vec<String> = own.chain(told_metadata(source).into_iter().filter(|_| is_anew)).collect();
        keys.retain(|key| {
            let is_written = written.iter().any(|(known, _)| known == key);
            !is_written && !self.to.holds().metadata.is_own(key)
        });
        keys.sort_unstable();
        keys.dedup();
        (!keys.is_empty()).then(|| Change::unasked(Effect::MetadataDropped { format: self.to, keys }))
    }
}

/// Notes the tensors that share the values of another one: names of one HDF5 dataset, or of one place in ONNX's
/// external data. A new file has the values of each.
pub(crate) fn note_ties(source: &Checkpoint, tensors: &mut [Planned]) {
    let mut first: HashMap<(u64, u64), usize> = HashMap::new();
    for tensor in tensors.iter_mut().filter(|tensor| !matches!(tensor.how, How::Computed(_))) {
        let entry = &source.entries()[tensor.entry];
        let Some(place) = entry.offset().filter(|_| entry.byte_len() > 0) else { continue };
        let other = *first.entry((place, entry.byte_len())).or_insert(tensor.entry);
        if other != tensor.entry {
            let from = source.entries()[other].name().to_owned();
            tensor.changes.push(Change::unasked(Effect::Untied { from }));
        }
    }
}

/// Says that tensors are a solver's history, and which file has the weights, if the source names one. `None` for
/// other tensors.
#[must_use]
pub fn momentum(source: &Checkpoint) -> Option<String> {
    let own = source.metadata().iter().find(|(key, _)| key == LEARNED_NET).map(|(_, net)| net.clone());
    // A copy in another format has a receipt, which tells of the solver.
    let mut told = described(source).filter(|told| told.format.parse().is_ok_and(is_of_solver));
    let net = own.or_else(|| told.as_mut().and_then(|told| told.metadata.remove(LEARNED_NET)));
    let words = "the tensors are a solver's history (momentum), not weights";
    match net {
        Some(net) => Some(format!("{words}; those are in {net:?}")),
        None => (is_of_solver(source.format()) || told.is_some()).then(|| words.to_owned()),
    }
}

/// The fields of a receipt that say which metadata the source had.
#[derive(Deserialize)]
struct Told {
    source: Described,
}

#[derive(Deserialize)]
struct Described {
    format: String,
    metadata: BTreeMap<String, String>,
}

/// The source as a file's receipt describes it.
fn described(file: &Checkpoint) -> Option<Described> {
    Some(receipt_text(file).and_then(parse::<Told>)?.source)
}

/// The label that the receipt of a file of another format says the source had, a Datum of Caffe's.
pub(crate) fn told_label(file: &Checkpoint) -> Option<String> {
    let label = described(file).filter(|_| !file.format().holds().metadata.is_own(LABEL))?.metadata.remove(LABEL)?;
    // A receipt may say anything.
    label.parse::<i32>().is_ok().then_some(label)
}

/// The keys of the metadata that a file's receipt says the source had, and the file itself has not.
fn told_metadata(file: &Checkpoint) -> Vec<String> {
    let Some(Described { format, metadata }) = described(file) else { return Vec::new() };
    let implied = format.parse::<Format>().map_or(&[][..], |format| format.holds().implied);
    let told = metadata.into_iter().filter(|(key, text)| {
        let is_implied = implied.contains(&&**key) || key == NO_ARRAYS || (&**key, &**text) == FORMAT;
        !is_implied && !file.metadata().iter().any(|(own, _)| own == key)
    });
    told.map(|(key, _)| key).collect()
}

fn is_of_solver(format: Format) -> bool {
    format.holds().metadata.is_own(LEARNED_NET)
}

/// The metadata of a file's own: neither a receipt nor what the reader or the format says of every such file.
pub(crate) fn own_metadata(source: &Checkpoint) -> impl Iterator<Item = (&str, &str)> {
    let implied = source.format().holds().implied;
    let metadata = source.metadata().iter().map(|(key, text)| (&**key, &**text));
    metadata.filter(move |(key, _)| *key != KEY && *key != NO_ARRAYS && !implied.contains(key))
}

/// The parts of the source that the reader left out: a file made of the listed tensors lacks such parts.
pub(crate) fn unlisted(source: &Checkpoint) -> impl Iterator<Item = Change> {
    lost(source.warnings().iter().cloned())
}

/// The parts that the reader left out beside an array: an array that is written anew lacks such parts.
pub(crate) fn unlisted_beside(entry: &Entry) -> impl Iterator<Item = Change> {
    lost(entry.warnings())
}

fn lost(warnings: impl Iterator<Item = Warning>) -> impl Iterator<Item = Change> {
    let losses = warnings.filter(|warning| warning.is_loss);
    losses.map(|warning| Change::unasked(Effect::Unlisted(warning)))
}

/// Whether a format is a bare list of blobs, which have numbers in place of names.
pub(crate) fn is_numbered(to: Format) -> bool {
    to.holds().names == Names::Numbers && to.holds().metadata == Keys::NONE
}

/// New numbers in order, in place of names. A diff behind its blob has the blob's number.
pub(crate) fn numbered<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let number = |name: &'n str| {
        let next = numbers.len();
        match TensorName::of(name).diffed().and_then(|blob| numbers.get(blob)) {
            Some(number) => TensorName::diff_of(&format!("@{number}")),
            None => format!("@{}", numbers.entry(name).or_insert(next)),
        }
    };
    names.map(number).collect()
}

/// For each tensor of these names, the index of the blob that the tensor becomes.
pub(crate) fn places<'n>(names: impl Iterator<Item = &'n str>) -> Vec<usize> {
    let order = in_order(names.enumerate().collect(), |(_, name)| *name);
    let mut places = vec![0; order.len()];
    order.into_iter().enumerate().for_each(|(place, (tensor, _))| places[tensor] = place);
    places
}

/// Tensors in the order of their numbers where all names are `@<number>`, because other formats sort `@10` before `@2`;
/// else in the order that they have.
pub(crate) fn in_order<T>(mut tensors: Vec<T>, name: impl Fn(&T) -> &str) -> Vec<T> {
    let number = |tensor: &T| TensorName::of(name(tensor)).position();
    if tensors.iter().all(|tensor| number(tensor).is_some()) {
        tensors.sort_by_key(number);
    }
    tensors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nameless_arrays_get_their_own_places_with_their_diffs() {
        let sorted_by_name = ["@0", "@0.diff", "@10", "@10.diff", "@2", "@2.diff"];
        assert_eq!(places(sorted_by_name.into_iter()), [0, 1, 4, 5, 2, 3]);
        assert_eq!(places(["@1", "w", "@0"].into_iter()), [0, 1, 2]);
    }
}
