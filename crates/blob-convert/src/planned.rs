//! One tensor of the output: the name, type and shape, the origin of the values, and the changes on the way.

use std::ops::Range;
use std::sync::Arc;

use blob_core::DType;
use blob_io::layout::{Layout, TensorSpec};
use blob_io::{Checkpoint, Entry, Error, Kind, Sparse, TensorName};

use crate::cast::{BLOCK, cast};
use crate::change::Change;
use crate::rounded::Rounded;
use crate::transform::{Compute, Inputs, NetOrigin, Panels, Reorder, Reports, Stream};
use crate::watch::{Watch, Watched};

/// One tensor of the output.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Planned {
    /// The name, dtype and shape in the output.
    pub spec: TensorSpec,
    /// The index of the source's entry that holds the data, in [`Checkpoint::entries`](blob_io::Checkpoint::entries).
    /// For a tensor that is computed from several entries: the first of these.
    pub entry: usize,
    pub(crate) how: How,
    /// The dtype of the values as read or computed.
    pub(crate) read_as: DType,
    /// The dtypes that the values are rounded to on the way, one after the other.
    pub(crate) casts: Vec<DType>,
    /// The changes on the way; empty where the name and the bytes stay the same.
    pub changes: Vec<Change>,
    /// The index in the layout; `None` where the tensor's bytes are copied together with the bytes around.
    pub(crate) slot: Option<usize>,
    /// Whether the tensor replaces none of the source's tensors: the tensors that this one is made of are left out.
    pub(crate) is_new: bool,
    /// Whether bf16 is stored as u16: NumPy has no bf16.
    pub(crate) keeps_bf16: bool,
}

/// A tensor of the source that is not in the output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// The tensor's name in the source.
    pub name: String,
    /// The reason, in words.
    pub reason: String,
    /// Whether an option or a transform asks to leave the tensor out.
    pub is_asked: bool,
}

/// One of several files that tensors come from.
#[derive(Debug)]
pub(crate) struct SourceFile<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) prefix: String,
    /// The file's places among all tensors.
    pub(crate) tensors: Range<usize>,
    /// The net that says which of the values count otherwise than stored.
    pub(crate) told_by: Option<NetOrigin>,
}

/// Where a tensor's values come from.
#[derive(Clone, Debug)]
pub(crate) enum How {
    /// Copied from the source's segments during the pass.
    Copy,
    /// Read separately after the pass: unpacked, inflated, reordered.
    Stream,
    /// A sparse array, expanded.
    Dense,
    /// Copied with the bytes around.
    Kept,
    /// Computed from others.
    Computed(Arc<Computed>),
}

/// A computation that makes a tensor, and the inputs.
#[derive(Debug)]
pub(crate) struct Computed {
    pub(crate) compute: Arc<dyn Compute>,
    /// The tensor that the transform makes; later transforms may rename, round and reshape this tensor.
    pub(crate) made: TensorSpec,
    pub(crate) inputs: Vec<Planned>,
    /// How often tensors of the source are read for the computation.
    reads: u64,
}

impl Computed {
    pub(crate) fn new(compute: Arc<dyn Compute>, made: TensorSpec, inputs: Vec<Planned>) -> Self {
        let reads = inputs.iter().map(Planned::reads).fold(0, u64::saturating_add);
        Self { compute, made, inputs, reads }
    }

    /// The same values by one permutation, if both this computation and its input permute axes.
    pub(crate) fn in_one(self) -> Self {
        let [Planned { how: How::Computed(first), casts, .. }] = &self.inputs[..] else { return self };
        let both = casts.is_empty().then(|| Reorder::both(&*first.compute, &*self.compute)).flatten();
        match both {
            Some(both) => Self::new(Arc::new(both), self.made, first.inputs.clone()),
            None => self,
        }
    }

    fn inputs<'a>(
        &'a self,
        checkpoint: &'a Checkpoint,
        watch: &'a dyn Watch,
        tally: &'a Reports,
        name: &'a str,
    ) -> Inputs<'a> {
        let open = Box::new(move |input: usize| {
            let tensor = &self.inputs[input];
            // Of a tensor that the step changes, the name in the end counts; of one that goes into another, its own.
            let called = if tensor.spec.name == self.made.name { name } else { &tensor.spec.name };
            tensor.open_as(called, checkpoint, watch, tally)
        });
        let specs = self.inputs.iter().map(|input| &input.spec).collect();
        let most_bytes = checkpoint.limits().max_alloc;
        Inputs::new(checkpoint.name(), name, &self.made, specs, open, most_bytes, tally)
    }
}

impl Planned {
    /// A tensor whose bytes are copied.
    pub(crate) fn new(spec: TensorSpec, entry: usize) -> Self {
        let (read_as, casts, changes) = (spec.dtype, Vec::new(), Vec::new());
        Self { spec, entry, how: How::Copy, read_as, casts, changes, slot: None, is_new: false, keeps_bf16: false }
    }

    /// The dtype that a reader of the output finds.
    pub(crate) fn stored_dtype(&self) -> DType {
        if self.keeps_bf16 { DType::U16 } else { self.spec.dtype }
    }

    /// Whether the output gets the stored bytes of the entry.
    pub(crate) fn is_copied(&self) -> bool {
        matches!(self.how, How::Copy) && self.casts.is_empty()
    }

    /// How often tensors of the source are read to make this tensor.
    pub(crate) fn reads(&self) -> u64 {
        match &self.how {
            How::Computed(computed) => computed.reads,
            _ => 1,
        }
    }

    /// The same tensor, made of the source of `below`: the entries of the tensor's own source.
    pub(crate) fn over(&self, below: &[Self]) -> Self {
        let first = &below[self.entry];
        let (how, read_as, casts) = match &self.how {
            How::Computed(computed) => {
                let inputs = computed.inputs.iter().map(|input| input.over(below)).collect();
                let again = Computed::new(Arc::clone(&computed.compute), computed.made.clone(), inputs).in_one();
                (How::Computed(Arc::new(again)), self.read_as, self.casts.clone())
            }
            _ => (first.how.clone(), first.read_as, [&first.casts[..], &self.casts].concat()),
        };
        Self { how, read_as, casts, entry: first.entry, ..self.clone() }
    }

    /// Calls `take` with each of the source's entries that the tensor is made of, once for each time it is read.
    pub(crate) fn each_entry(&self, take: &mut dyn FnMut(usize)) {
        match &self.how {
            How::Computed(computed) => computed.inputs.iter().for_each(|input| input.each_entry(take)),
            _ => take(self.entry),
        }
    }

    /// Whether the values are the entry's values.
    pub(crate) fn is_as_read(&self) -> bool {
        matches!(self.how, How::Copy | How::Stream) && self.casts.is_empty()
    }

    /// Whether the tensor has the values and the shape of `entry`, the source's entry.
    pub(crate) fn is_entry(&self, entry: &Entry) -> bool {
        self.is_as_read() && self.spec.shape == *entry.shape()
    }

    /// The sparse array that the tensor is a part of, in the source and in the output.
    pub(crate) fn sparse<'a>(&self, checkpoint: &'a Checkpoint) -> Option<&'a Sparse> {
        match self.how {
            How::Dense | How::Computed(_) => None,
            _ => checkpoint.entries()[self.entry].sparse(),
        }
    }

    /// The name of the whole sparse array: this part's name without the ending. A transform may have changed the name.
    pub(crate) fn whole_name<'a>(&'a self, sparse: &'a Sparse) -> &'a str {
        match TensorName::of(&self.spec.name) {
            TensorName { kind: Kind::Data, .. } => &sparse.name,
            part => part.array,
        }
    }

    /// Opens the tensor's values in the form of the output.
    pub(crate) fn open<'a>(
        &'a self,
        checkpoint: &'a Checkpoint,
        watch: &'a dyn Watch,
        tally: &'a Reports,
    ) -> Result<Box<dyn Stream + 'a>, Error> {
        self.open_as(&self.spec.name, checkpoint, watch, tally)
    }

    /// As [`Planned::open`], with the name that reports have.
    fn open_as<'a>(
        &'a self,
        name: &'a str,
        checkpoint: &'a Checkpoint,
        watch: &'a dyn Watch,
        tally: &'a Reports,
    ) -> Result<Box<dyn Stream + 'a>, Error> {
        let entry = &checkpoint.entries()[self.entry];
        let mut read: Box<dyn Stream> = match &self.how {
            How::Copy | How::Stream | How::Kept => Box::new(Watched::open(checkpoint, entry, watch)?),
            How::Dense => Box::new(Watched::new(checkpoint.dense_reader(entry)?, watch)),
            // A shape without values may have any extents, and nothing is computed for such a shape.
            How::Computed(computed) if computed.made.shape.count() == 0 => Box::new(|_: &mut [u8]| Ok(0)),
            How::Computed(computed) => computed.compute.open(computed.inputs(checkpoint, watch, tally, name))?,
        };
        let mut from = self.read_as;
        for to in &self.casts {
            read = Box::new(Rounded::new(read, from, *to, name, tally));
            from = *to;
        }
        Ok(read)
    }

    /// The tensor's values before any rounding, in pieces of another order than the output's, where these take fewer
    /// reads of the source than [`Planned::open`].
    pub(crate) fn panels<'a>(
        &'a self,
        checkpoint: &'a Checkpoint,
        watch: &'a dyn Watch,
        tally: &'a Reports,
    ) -> Result<Option<Panels<'a>>, Error> {
        match &self.how {
            How::Computed(computed) if computed.made.shape.count() > 0 => {
                Reorder::panels(&*computed.compute, computed.inputs(checkpoint, watch, tally, &self.spec.name))
            }
            _ => Ok(None),
        }
    }

    /// Calls `put` with whole elements of the tensor, rounded, and with their offset in the tensor; `at` is the offset
    /// among the bytes as read.
    pub(crate) fn round(
        &self,
        at: u64,
        bytes: &[u8],
        tally: &Reports,
        mut put: impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.casts.is_empty() {
            return put(at, bytes);
        }
        let width = self.read_as.size();
        let mut at = at / width as u64 * self.spec.dtype.size() as u64;
        for block in bytes.chunks(BLOCK * width) {
            let rounded = self.all_casts(block, tally);
            put(at, &rounded)?;
            at += rounded.len() as u64;
        }
        Ok(())
    }

    /// Elements of the tensor, rounded to one dtype after the other.
    fn all_casts(&self, bytes: &[u8], tally: &Reports) -> Vec<u8> {
        let (mut bytes, mut from) = (bytes.to_vec(), self.read_as);
        for to in &self.casts {
            let mut target = Vec::new();
            let lost = cast(from, &bytes, *to, &mut target);
            tally.rounded(&self.spec.name, lost, *to);
            (bytes, from) = (target, *to);
        }
        bytes
    }
}

/// Marks tensors to be read separately if the output puts other bytes between their values: a piece of the pass may end
/// within a value.
pub(crate) fn stream_interleaved(layout: &Layout, tensors: &mut [Planned]) {
    for tensor in tensors.iter_mut().filter(|tensor| matches!(tensor.how, How::Copy)) {
        if tensor.slot.is_some_and(|slot| layout.is_interleaved(slot)) {
            tensor.how = How::Stream;
        }
    }
}

impl Stream for Watched<'_> {
    fn pull(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        Self::pull(self, out)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), Error> {
        Self::skip(self, bytes)
    }
}
