//! Changes to an existing Caffe file: blobs replaced, added, removed, layers renamed, and every other byte copied
//! unchanged.
//!
//! Collects the changes and the headers for the changed places; `splice/plan` turns changes into bytes.

pub(crate) mod plan;
mod removal;

use std::collections::{BTreeMap, HashMap};

use blob_core::Shape;

use crate::caffe::encode::{BlobForm, padded};
use crate::caffe::message::Pair;
use crate::caffe::named::BlobPlace;
use crate::caffe::tree::{self, Layer, StoredBlob};
use crate::checkpoint::Checkpoint;
use crate::entry::{Entry, Kind};
use crate::error::Error;
use crate::format::{Format, Nets};
use crate::limits::LONGEST_NAME;
use crate::names::name_from_bytes;
use crate::spec::NAMED;
use crate::tensor_name::TensorName;
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::Span;
use removal::Wiring;

/// An existing Caffe file with changes.
///
/// Arrays are called as in the file. A change refers to a tensor of a [`Layout`](crate::layout::Layout) by the tensor's
/// index there.
///
/// ```
/// use blob_core::{DType, Shape};
/// use blob_io::layout::{Layout, Splice, TensorSpec};
/// use blob_io::Checkpoint;
///
/// let file = b"\x2A\x08\x00\x00\x80\x3F\x00\x00\x00\x40\x3A\x03\x0A\x01\x02";
/// let base = Checkpoint::from_bytes("two.binaryproto", &file[..])?;
/// let mut splice = Splice::new(&base)?;
/// splice.replace("@0", 0)?;
/// let layout = Layout::spliced(&[TensorSpec::new("@0", DType::F32, Shape::new([2])?)], &splice)?;
/// assert_eq!(layout.offsets(), [2]);
/// assert_eq!(layout.len(), 15);
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Debug)]
pub struct Splice<'a> {
    base: &'a Checkpoint,
    layers: Vec<Layer>,
    /// The indices of layers, by the part of tensor names before the index: `conv1` of `conv1/0`.
    layer_indices: HashMap<String, usize>,
    /// How changed blobs are stored; `None` keeps the form of each.
    pub form: Option<BlobForm>,
    /// By layer and index; from the number of stored blobs on, an index is that of a new blob.
    changes: BTreeMap<(usize, usize), BlobChange>,
    renamed: BTreeMap<usize, String>,
    /// New layers after the last one, each as (name, blobs).
    added: Vec<(String, Vec<Pair>)>,
    /// The place of each new layer in `added`.
    added_indices: HashMap<String, usize>,
    /// The inputs and outputs of the layers; set when a layer is removed.
    wiring: Option<Wiring>,
    /// By layer: the field that says that the layer has no bias, and the byte that changes this field.
    biased: BTreeMap<usize, (Span, u8)>,
}

#[derive(Clone, Debug, Default)]
struct BlobChange {
    data: Option<usize>,
    diff: Option<Option<usize>>,
    is_removed: bool,
    /// For an existing blob.
    stored: Option<StoredBlob>,
}

impl<'a> Splice<'a> {
    /// The file without changes: the layout is a copy.
    ///
    /// # Errors
    /// [`Error::Request`] for a file that is not Caffe's; as [`Checkpoint::open`].
    pub fn new(base: &'a Checkpoint) -> Result<Self, Error> {
        if !base.format().is_caffe() {
            let message = format!("is {}, and only files of Caffe are changed in place", base.format().title());
            return Err(Error::Request { file: base.name().to_owned(), message });
        }
        base.check_whole()?;
        let layers = tree::layers(&mut Cursor::new(base.source()), base.format(), base.limits());
        let layers = layers.map_err(|e| e.into_error(base.name()))?;
        let mut layer_indices = HashMap::new();
        for entry in base.entries() {
            let layer = TensorName::of(entry.name()).layer().unwrap_or(entry.name());
            layer_indices.entry(layer.to_owned()).or_insert(entry.position());
        }
        let (changes, renamed, biased) = Default::default();
        let (added, added_indices, wiring) = Default::default();
        let form = None;
        let mut made =
            Self { base, layers, layer_indices, form, changes, renamed, added, added_indices, wiring, biased };
        made.index_empty_layers()?;
        Ok(made)
    }

    /// Adds the layers without blobs to `layer_indices`, by the name in the file.
    fn index_empty_layers(&mut self) -> Result<(), Error> {
        let mut cursor = Cursor::new(self.base.source());
        for (layer_index, layer) in self.layers.iter().enumerate().filter(|(_, layer)| layer.blobs.is_empty()) {
            let Some(name) = layer.name else { continue };
            cursor.seek(name.content.start);
            let text = cursor.bytes(name.content.len(), name.content.end, LONGEST_NAME, "a layer's name");
            let text = text.map_err(|e| e.into_error(self.base.name()))?;
            self.layer_indices.entry(name_from_bytes(&text).into_owned()).or_insert(layer_index);
        }
        Ok(())
    }

    /// Puts a tensor in the place of an array.
    ///
    /// # Errors
    /// [`Error::Request`] for an array that is not in the file; as [`Checkpoint::open`].
    pub fn replace(&mut self, name: &str, tensor: usize) -> Result<(), Error> {
        let entry = self.entry(name)?;
        let change = self.change(entry)?;
        match entry.kind() {
            Kind::Diff => change.diff = Some(Some(tensor)),
            _ => change.data = Some(tensor),
        }
        Ok(())
    }

    /// Removes an array: a blob with the diff, after which the layer's next blobs move up; or a diff alone.
    ///
    /// # Errors
    /// As [`Splice::replace`]; a file that is one blob.
    pub fn remove(&mut self, name: &str) -> Result<(), Error> {
        let entry = self.entry(name)?;
        if entry.kind() != Kind::Diff && self.layers[entry.position()].blobs[entry.index()].number == 0 {
            return Err(self.refuse(format!("array {name:?} is the whole file")));
        }
        let change = self.change(entry)?;
        match entry.kind() {
            Kind::Diff => change.diff = Some(None),
            _ => change.is_removed = true,
        }
        Ok(())
    }

    /// Removes layers, blobs included, from a net's description, one after the other. The layer before each then writes
    /// the removed layer's output, under the same name, so that later layers need no change.
    ///
    /// # Errors
    /// [`Error::Request`] with every layer that does not exist exactly once or is not between exactly two others: one
    /// that is in some phases only, whose values other layers read too, that has fields besides those of a
    /// normalisation, or that is in a net from before 2014.
    pub fn remove_layers<'n>(&mut self, layers: impl IntoIterator<Item = &'n str>) -> Result<(), Error> {
        let mut wiring = match self.wiring.take() {
            Some(wiring) => wiring,
            None => Wiring::read(self.base, &self.layers)?,
        };
        let stay = layers.into_iter().filter_map(|layer| {
            let why = wiring.remove(layer).err()?;
            Some(format!("{layer:?}: it {why}"))
        });
        let mut stay: Vec<String> = stay.collect();
        self.wiring = Some(wiring);
        if stay.is_empty() {
            return Ok(());
        }
        stay.truncate(NAMED);
        Err(self.refuse(format!("layers cannot be taken out of the net: {}", stay.join("; "))))
    }

    /// Adds a tensor as the next blob of a layer, or of a new layer at the end, or as the diff of a blob that has none.
    /// A layer without a bias is changed to have one when the second blob is added.
    ///
    /// # Errors
    /// [`Error::Request`] for a name that is not `<layer>/<index>` with the next index, or `<layer>/<index>.diff`; a
    /// file without layers, unless a diff is added.
    pub fn add(&mut self, name: &str, tensor: usize) -> Result<(), Error> {
        if let Some(data) = TensorName::of(name).diffed().and_then(|data| self.base.entry(data)) {
            if self.base.diff_of(data).is_some() {
                return Err(self.refuse(format!("array {name:?} is there already")));
            }
            self.change(data)?.diff = Some(Some(tensor));
            return Ok(());
        }
        let place = BlobPlace::in_layer(name).filter(|_| self.has_layers());
        let Some(BlobPlace { layer, index, is_diff }) = place else {
            return Err(self.refuse(format!("array {name:?} has no place: arrays are added as <layer>/<index>")));
        };
        let is_next = match self.layer_indices.get(layer).copied() {
            Some(layer_index) => {
                self.enable_bias(layer_index, index)?;
                self.add_to(layer_index, index, is_diff, tensor)
            }
            None if self.layers.iter().any(|layer| !layer.nested.is_empty()) => {
                return Err(
                    self.refuse(format!("array {name:?} would need a new layer, and the net is of V0, from 2013"))
                );
            }
            None => self.add_to_new(layer, index, is_diff, tensor),
        };
        if is_next { Ok(()) } else { Err(self.refuse(format!("array {name:?} is not the next of its layer"))) }
    }

    /// Adds to an existing layer; false if the index is neither the next one nor that of a blob that was added.
    fn add_to(&mut self, layer_index: usize, index: usize, is_diff: bool, tensor: usize) -> bool {
        let stored = self.layers[layer_index].blobs.len();
        let added = self.changes.range((layer_index, stored)..(layer_index + 1, 0)).count();
        if index < stored || index > stored + added {
            return false;
        }
        let change = self.changes.entry((layer_index, index)).or_default();
        if is_diff {
            change.diff = Some(Some(tensor))
        } else {
            change.data = Some(tensor)
        }
        true
    }

    /// If this is a layer's second blob, records the field that says that the layer has no bias.
    fn enable_bias(&mut self, layer_index: usize, index: usize) -> Result<(), Error> {
        let mut cursor = Cursor::new(self.base.source());
        let flag = if index == 1 { removal::without_bias(&mut cursor, &self.layers[layer_index]) } else { Ok(None) };
        let flag = flag.map_err(|e| e.into_error(self.base.name()))?;
        self.biased.extend(flag.map(|flag| (layer_index, flag)));
        Ok(())
    }

    /// As [`Self::add_to`], for a new layer after those of the file.
    fn add_to_new(&mut self, layer: &str, index: usize, is_diff: bool, tensor: usize) -> bool {
        let blobs = self.added_indices.get(layer).map(|added| &mut self.added[*added].1);
        match blobs {
            None if (index, is_diff) == (0, false) => {
                self.added_indices.insert(layer.to_owned(), self.added.len());
                self.added.push((layer.to_owned(), vec![Pair { data: tensor, diff: None }]));
            }
            Some(blobs) if !is_diff && blobs.len() == index => blobs.push(Pair { data: tensor, diff: None }),
            Some(blobs) if is_diff && index < blobs.len() => blobs[index].diff = Some(tensor),
            _ => return false,
        }
        true
    }

    /// Renames a layer, and thereby the layer's blobs. A name that several layers share is given with the position
    /// (`conv1@7`), as in the names of arrays.
    ///
    /// # Errors
    /// [`Error::Request`] for a layer that is not in the file.
    pub fn rename(&mut self, layer: &str, to: &str) -> Result<(), Error> {
        match self.layer_indices.get(layer).filter(|_| self.has_layers()) {
            Some(layer_index) => {
                self.renamed.insert(*layer_index, to.to_owned());
                Ok(())
            }
            None => Err(self.refuse(format!("there is no layer {layer:?}"))),
        }
    }

    /// Whether a tensor of this shape fits this array: the shapes are equal, or the array has the four dimensions from
    /// before 2015, which equal the tensor's extents after leading extents of 1 (`ShapeEquals`).
    ///
    /// # Errors
    /// As [`Splice::replace`].
    pub fn fits(&mut self, name: &str, shape: &Shape) -> Result<bool, Error> {
        let entry = self.entry(name)?;
        let is_legacy = stored(self.base, &self.layers, entry)?.form.legacy;
        Ok(entry.shape() == shape || is_legacy && entry.shape().dims() == padded(shape.dims()))
    }

    fn has_layers(&self) -> bool {
        self.base.format().holds().net == Nets::Read
    }

    fn entry(&self, name: &str) -> Result<&'a Entry, Error> {
        self.base.entry(name).ok_or_else(|| self.refuse(format!("there is no array {name:?}")))
    }

    fn change(&mut self, entry: &Entry) -> Result<&mut BlobChange, Error> {
        let stored = stored(self.base, &self.layers, entry)?;
        let change = self.changes.entry((entry.position(), entry.index())).or_default();
        change.stored = Some(stored);
        Ok(change)
    }

    fn refuse(&self, message: String) -> Error {
        Error::Request { file: self.base.name().to_owned(), message }
    }
}

fn stored(base: &Checkpoint, layers: &[Layer], entry: &Entry) -> Result<StoredBlob, Error> {
    let span = layers[entry.position()].blobs[entry.index()].content;
    if base.format() == Format::Datum {
        return Ok(StoredBlob { form: BlobForm::default(), unknown: Vec::new() });
    }
    let stored = tree::stored(&mut Cursor::new(base.source()), span, base.limits());
    stored.map_err(|e| e.into_error(base.name()))
}
