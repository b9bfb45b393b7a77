//! Changes to an existing Caffe file: blobs replaced, added, removed, layers renamed, and every other byte copied as it
//! is.
//!
//! What is to be changed is gathered here, with the headers that it needs; what becomes of the bytes is `splice/plan`.

pub(crate) mod plan;
mod removal;

use std::collections::{BTreeMap, HashMap};

use blob_core::Shape;

use crate::caffe::encode::Form;
use crate::caffe::message::Pair;
use crate::caffe::named;
use crate::caffe::protobuf::Span;
use crate::caffe::tree::{self, Layer, Stored};
use crate::checkpoint::Checkpoint;
use crate::entry::{Entry, Kind};
use crate::error::Error;
use crate::format::Format;
use crate::limits::LONGEST_NAME;
use crate::names::name_from_bytes;
use crate::spec::NAMED;
use crate::wire::cursor::Cursor;
use removal::Wires;

/// An existing Caffe file, and what is to be changed about it.
///
/// Arrays are called as in the file. A change names the tensor of a [`Layout`](crate::Layout) that it takes, by its
/// index there.
///
/// ```
/// use blob_core::{DType, Shape};
/// use blob_io::{Checkpoint, Frame, Layout, Splice, TensorSpec};
///
/// let file = b"\x2A\x08\x00\x00\x80\x3F\x00\x00\x00\x40\x3A\x03\x0A\x01\x02";
/// let base = Checkpoint::from_bytes("two.binaryproto", &file[..])?;
/// let mut splice = Splice::new(&base)?;
/// splice.replace("@0", 0)?;
/// let layout = Layout::new(&[TensorSpec::new("@0", DType::F32, Shape::new([2])?)], Frame::Spliced(&splice))?;
/// assert_eq!(layout.offsets(), [2]);
/// assert_eq!(layout.len(), 15);
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Debug)]
pub struct Splice<'a> {
    base: &'a Checkpoint,
    layers: Vec<Layer>,
    /// Places of layers by what their tensors are called before the index.
    places: HashMap<String, usize>,
    /// How changed blobs are stored; as they were, where it is not said.
    /// How changed blobs are stored; `None` for each as it was.
    pub form: Option<Form>,
    /// By layer and index; an index from the number of stored blobs on is a new blob.
    changes: BTreeMap<(usize, usize), Change>,
    renamed: BTreeMap<usize, String>,
    /// Layers after the last one, each with its blobs.
    added: Vec<(String, Vec<Pair>)>,
    /// What the layers read and write, once one of them was taken out.
    wires: Option<Wires>,
    /// By layer: where it says that it has no bias, and the byte by which it has one.
    biased: BTreeMap<usize, (Span, u8)>,
}

#[derive(Clone, Debug, Default)]
struct Change {
    data: Option<usize>,
    diff: Option<Option<usize>>,
    is_removed: bool,
    /// Of a blob that is there.
    stored: Option<Stored>,
}

impl<'a> Splice<'a> {
    /// The file without changes: laid out, it is a copy.
    ///
    /// # Errors
    /// [`Error::Request`] for a file that is not Caffe's; what reading its headers again returns.
    pub fn new(base: &'a Checkpoint) -> Result<Self, Error> {
        if !base.format().is_caffe() {
            let message = format!("is {}, and only files of Caffe are changed in place", base.format().title());
            return Err(Error::Request { file: base.name().to_owned(), message });
        }
        base.whole()?;
        let layers = tree::layers(&mut Cursor::new(base.source()), base.format(), base.limits());
        let layers = layers.map_err(|e| e.into_error(base.name()))?;
        let mut places = HashMap::new();
        for entry in base.entries() {
            let layer = entry.name().rsplit_once('/').map_or(entry.name(), |(layer, _)| layer);
            places.entry(layer.to_owned()).or_insert(entry.position());
        }
        let (changes, renamed, biased) = Default::default();
        let (added, wires) = (Vec::new(), None);
        let mut made = Self { base, layers, places, form: None, changes, renamed, added, wires, biased };
        made.place_empty_layers()?;
        Ok(made)
    }

    /// Layers without blobs have a place too, by their own names.
    fn place_empty_layers(&mut self) -> Result<(), Error> {
        let mut cursor = Cursor::new(self.base.source());
        for (place, layer) in self.layers.iter().enumerate().filter(|(_, layer)| layer.blobs.is_empty()) {
            let Some(name) = layer.name else { continue };
            cursor.seek(name.content.start);
            let text = cursor.bytes(name.content.len(), name.content.end, LONGEST_NAME, "a layer's name");
            let text = text.map_err(|e| e.into_error(self.base.name()))?;
            self.places.entry(name_from_bytes(&text).into_owned()).or_insert(place);
        }
        Ok(())
    }

    /// Puts a tensor in the place of an array.
    ///
    /// # Errors
    /// [`Error::Request`] for an array that is not in the file; what reading its header again returns.
    pub fn replace(&mut self, name: &str, tensor: usize) -> Result<(), Error> {
        let entry = self.entry(name)?;
        let change = self.change(entry)?;
        match entry.kind() {
            Kind::Diff => change.diff = Some(Some(tensor)),
            _ => change.data = Some(tensor),
        }
        Ok(())
    }

    /// Removes an array: a blob with its diff, after which the layer's next blobs move up; or a diff alone.
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

    /// Takes layers out of a net's description, with their blobs, one after the other. The layer before each then
    /// writes what that one wrote, under the same name, so that the layers behind need no change.
    ///
    /// # Errors
    /// [`Error::Request`] with every layer that is not there once, or that is not between exactly two others: in some
    /// phases only, with values that other layers read too, with fields beside those of a normalisation, of a net of
    /// before 2014.
    pub fn remove_layers<'n>(&mut self, layers: impl IntoIterator<Item = &'n str>) -> Result<(), Error> {
        let mut wires = match self.wires.take() {
            Some(wires) => wires,
            None => Wires::read(self.base, &self.layers)?,
        };
        let remove = |layer| wires.remove(layer, &self.layers).err().map(|why| (layer, why));
        let stay: Vec<_> = layers.into_iter().filter_map(remove).collect();
        self.wires = Some(wires);
        if stay.is_empty() {
            return Ok(());
        }
        let stay: Vec<String> = stay.iter().take(NAMED).map(|(layer, why)| format!("{layer:?}: it {why}")).collect();
        Err(self.refuse(format!("layers cannot be taken out of the net: {}", stay.join("; "))))
    }

    /// Adds a tensor as the next blob of a layer, or of a new layer at the end, or as the diff of a blob that has none.
    /// A layer that is said to have no bias is said to have one after its second blob.
    ///
    /// # Errors
    /// [`Error::Request`] for a name that is not `<layer>/<index>` with the next index, or `<layer>/<index>.diff`; a
    /// file without layers, but for a diff.
    pub fn add(&mut self, name: &str, tensor: usize) -> Result<(), Error> {
        if let Some(data) = name.strip_suffix(".diff").and_then(|data| self.base.entry(data)) {
            if self.base.diff_of(data).is_some() {
                return Err(self.refuse(format!("array {name:?} is there already")));
            }
            self.change(data)?.diff = Some(Some(tensor));
            return Ok(());
        }
        let Some((layer, index, is_diff)) = named::parse(name).filter(|_| self.has_layers()) else {
            return Err(self.refuse(format!("array {name:?} has no place: arrays are added as <layer>/<index>")));
        };
        let is_next = match self.places.get(layer).copied() {
            Some(place) => {
                self.give_bias(place, index)?;
                self.add_to(place, index, is_diff, tensor)
            }
            None if self.layers.iter().any(|layer| layer.nested.is_some()) => {
                return Err(
                    self.refuse(format!("array {name:?} would need a new layer, and the net is of V0, from 2013"))
                );
            }
            None => self.add_to_new(layer, index, is_diff, tensor),
        };
        match is_next {
            true => Ok(()),
            false => Err(self.refuse(format!("array {name:?} is not the next of its layer"))),
        }
    }

    /// Adds to a layer that is there; whether the index is the next one, or that of a blob that was added.
    fn add_to(&mut self, place: usize, index: usize, is_diff: bool, tensor: usize) -> bool {
        let stored = self.layers[place].blobs.len();
        let added = self.changes.range((place, stored)..(place + 1, 0)).count();
        if index < stored || index > stored + added {
            return false;
        }
        let change = self.changes.entry((place, index)).or_default();
        match is_diff {
            true => change.diff = Some(Some(tensor)),
            false => change.data = Some(tensor),
        }
        true
    }

    /// Notes where a layer says that it has no bias, if its second blob is added.
    fn give_bias(&mut self, place: usize, index: usize) -> Result<(), Error> {
        let mut cursor = Cursor::new(self.base.source());
        let said = if index == 1 { removal::without_bias(&mut cursor, &self.layers[place]) } else { Ok(None) };
        let said = said.map_err(|e| e.into_error(self.base.name()))?;
        self.biased.extend(said.map(|said| (place, said)));
        Ok(())
    }

    /// The same for a layer behind the file's.
    fn add_to_new(&mut self, layer: &str, index: usize, is_diff: bool, tensor: usize) -> bool {
        let blobs = self.added.iter_mut().find(|(name, _)| name == layer).map(|(_, blobs)| blobs);
        match blobs {
            None if (index, is_diff) == (0, false) => {
                self.added.push((layer.to_owned(), vec![Pair { data: tensor, diff: None }]));
            }
            Some(blobs) if !is_diff && blobs.len() == index => blobs.push(Pair { data: tensor, diff: None }),
            Some(blobs) if is_diff && index < blobs.len() => blobs[index].diff = Some(tensor),
            _ => return false,
        }
        true
    }

    /// Calls a layer otherwise, and so its blobs. Of layers that share a name, the one that is meant has its place
    /// behind it (`conv1@7`), as in the names of its arrays.
    ///
    /// # Errors
    /// [`Error::Request`] for a layer that is not in the file.
    pub fn rename(&mut self, layer: &str, to: &str) -> Result<(), Error> {
        match self.places.get(layer).filter(|_| self.has_layers()) {
            Some(place) => {
                self.renamed.insert(*place, to.to_owned());
                Ok(())
            }
            None => Err(self.refuse(format!("there is no layer {layer:?}"))),
        }
    }

    /// Whether a tensor of this shape is one for this array: the shapes are equal, or the array's four dimensions from
    /// before 2015 are, with extents of 1 in front (`ShapeEquals`).
    ///
    /// # Errors
    /// As [`Splice::replace`].
    pub fn fits(&mut self, name: &str, shape: &Shape) -> Result<bool, Error> {
        let entry = self.entry(name)?;
        let is_legacy = stored(self.base, &self.layers, entry)?.form.legacy;
        Ok(entry.shape() == shape || is_legacy && entry.shape().dims() == padded(shape.dims()))
    }

    fn has_layers(&self) -> bool {
        self.base.format() == Format::CaffeModel
    }

    fn entry(&self, name: &str) -> Result<&'a Entry, Error> {
        self.base.entry(name).ok_or_else(|| self.refuse(format!("there is no array {name:?}")))
    }

    fn change(&mut self, entry: &Entry) -> Result<&mut Change, Error> {
        let stored = stored(self.base, &self.layers, entry)?;
        let change = self.changes.entry((entry.position(), entry.index())).or_default();
        change.stored = Some(stored);
        Ok(change)
    }

    fn refuse(&self, message: String) -> Error {
        Error::Request { file: self.base.name().to_owned(), message }
    }
}

fn stored(base: &Checkpoint, layers: &[Layer], entry: &Entry) -> Result<Stored, Error> {
    let span = layers[entry.position()].blobs[entry.index()].content;
    if base.format() == Format::Datum {
        return Ok(Stored { form: Form::default(), unknown: Vec::new() });
    }
    let stored = tree::stored(&mut Cursor::new(base.source()), span, base.limits());
    stored.map_err(|e| e.into_error(base.name()))
}

/// Extents with as many of 1 in front of them as make four.
fn padded(dims: &[usize]) -> Vec<usize> {
    let ones = std::iter::repeat_n(1, 4_usize.saturating_sub(dims.len()));
    ones.chain(dims.iter().copied()).collect()
}
