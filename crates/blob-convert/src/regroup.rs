//! Tensors made of others, and which of them go into one file: what `blob merge` and `blob split` write.
//!
//! Nothing is loaded: a made tensor's bytes are gathered while it is written. Memory stays at some 8 MiB.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;

use blob_core::{DType, Shape};
use blob_io::{Checkpoint, Entry, Error, Kind, Reader, Tensor};

use crate::options::refuse;
use crate::pairing::is_unnamed;
use crate::shards;
use crate::watch::Watch;

/// What all readers of a tensor's parts hold together.
const BUFFERS: usize = 8 << 20;

/// The words that MXNet's names end with.
const PARAMETERS: [&str; 9] =
    ["weight", "bias", "gamma", "beta", "alpha", "moving_mean", "moving_var", "running_mean", "running_var"];

/// A tensor that is made of others of open files, one behind the other along an axis, each whole or a range of it.
pub struct Made<'a> {
    dtype: DType,
    shape: Shape,
    axis: usize,
    parts: Vec<Part<'a>>,
    watch: &'a dyn Watch,
}

struct Part<'a> {
    checkpoint: &'a Checkpoint,
    entry: &'a Entry,
    /// Of the axis.
    range: Range<usize>,
}

impl<'a> Made<'a> {
    /// A tensor as it is.
    ///
    /// # Errors
    /// As [`Checkpoint::array`].
    pub fn whole(checkpoint: &'a Checkpoint, entry: &'a Entry, watch: &'a dyn Watch) -> Result<Self, Error> {
        let dtype = checkpoint.array(entry)?.dtype;
        // Without axes it is one of a single index.
        let range = 0..entry.shape().dims().first().copied().unwrap_or(1);
        let parts = vec![Part { checkpoint, entry, range }];
        Ok(Self { dtype, shape: entry.shape().clone(), axis: 0, parts, watch })
    }

    /// Tensors of one dtype, one behind the other along an axis, in which alone their shapes may differ.
    ///
    /// # Errors
    /// As [`Checkpoint::array`]; no tensor, an axis that they do not have, another dtype or shape.
    pub fn merged(
        checkpoint: &'a Checkpoint,
        entries: &[&'a Entry],
        axis: i64,
        watch: &'a dyn Watch,
    ) -> Result<Self, Error> {
        let Some((first, others)) = entries.split_first() else {
            return Err(refuse(checkpoint, "there is no tensor to merge".to_owned()));
        };
        let dtype = checkpoint.array(first)?.dtype;
        let axis = axis_of(checkpoint, first, axis)?;
        let mut dims = first.shape().dims().to_vec();
        for other in others {
            let found = checkpoint.array(other)?;
            let extents = found.shape.dims();
            let fits = |(i, extent): (usize, &usize)| i == axis || extent == &dims[i];
            if found.dtype != dtype || extents.len() != dims.len() || !extents.iter().enumerate().all(fits) {
                let (one, kind) = (first.name(), format!("{dtype} {}", first.shape()));
                let message = format!(
                    "{:?} is {} {}, which does not fit behind {one:?}, {kind}, along axis {axis}",
                    other.name(),
                    found.dtype,
                    found.shape
                );
                return Err(refuse(checkpoint, message));
            }
            dims[axis] = dims[axis].saturating_add(extents[axis]);
        }
        let shape = Shape::new(&dims).map_err(|e| refuse(checkpoint, format!("{:?}: {e}", first.name())))?;
        let whole = |entry: &&'a Entry| Part { checkpoint, entry, range: 0..entry.shape().dims()[axis] };
        Ok(Self { dtype, shape, axis, parts: entries.iter().map(whole).collect(), watch })
    }

    /// A tensor in parts of these sizes along an axis. A checksum that its file has is compared where the last part ends.
    ///
    /// # Errors
    /// As [`Checkpoint::array`]; an axis that it does not have, sizes that are not its extent together.
    pub fn split(
        checkpoint: &'a Checkpoint,
        entry: &'a Entry,
        axis: i64,
        sizes: &[usize],
        watch: &'a dyn Watch,
    ) -> Result<Vec<Self>, Error> {
        let dtype = checkpoint.array(entry)?.dtype;
        let axis = axis_of(checkpoint, entry, axis)?;
        let mut dims = entry.shape().dims().to_vec();
        let extent = dims[axis];
        let sum = sizes.iter().try_fold(0, |sum: usize, size| sum.checked_add(*size));
        if sum != Some(extent) {
            let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
            let sum = sum.map_or("more".to_owned(), |sum| sum.to_string());
            let sizes = sizes.join(" + ");
            let message = format!("{:?} has {extent} indices on axis {axis}, and {sizes} is {sum}", entry.name());
            return Err(refuse(checkpoint, message));
        }
        let mut from = 0;
        let parts = sizes.iter().map(|size| {
            dims[axis] = *size;
            let shape = Shape::new(&dims).map_err(|e| refuse(checkpoint, format!("{:?}: {e}", entry.name())))?;
            let range = from..from + size;
            from += size;
            Ok(Self { dtype, shape, axis, parts: vec![Part { checkpoint, entry, range }], watch })
        });
        parts.collect()
    }

    /// How many bytes it has.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        self.shape.count() as u64 * self.dtype.size() as u64
    }
}

fn axis_of(checkpoint: &Checkpoint, entry: &Entry, axis: i64) -> Result<usize, Error> {
    let axis = i32::try_from(axis).unwrap_or(i32::MAX);
    entry.shape().axis(axis).map_err(|e| refuse(checkpoint, format!("{:?}: {e}", entry.name())))
}

impl Tensor for Made<'_> {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn shape(&self) -> Result<Shape, Error> {
        Ok(self.shape.clone())
    }

    fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error> {
        let dims = self.shape.dims();
        let (outer, inner) = match dims {
            // Without values the other extents may be of any size.
            _ if self.shape.count() == 0 => (0, 0),
            [] => (1, 1),
            _ => (dims[..self.axis].iter().product(), dims[self.axis + 1..].iter().product::<usize>()),
        };
        let runs = outer * self.parts.len();
        let readers = self.parts.iter().map(|_| None).collect();
        let width = inner as u64 * self.dtype.size() as u64;
        Ok(Box::new(Gather { made: self, readers, width, runs, run: 0, begun: false, left: 0 }))
    }
}

impl std::fmt::Debug for Made<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.parts.iter().map(|part| part.entry.name()).collect();
        f.debug_struct("Made").field("of", &names).field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl Part<'_> {
    /// How many indices of the axis are left out.
    fn gap(&self, axis: usize) -> usize {
        self.entry.shape().dims().get(axis).copied().unwrap_or(1) - self.range.len()
    }
}

/// The bytes of a made tensor: for each index of the outer axes, a run of each part.
struct Gather<'m> {
    made: &'m Made<'m>,
    /// Open from the first run of a part to its last one.
    readers: Vec<Option<BufReader<Reader<'m>>>>,
    /// The bytes of one index of the axis.
    width: u64,
    runs: usize,
    /// Which run is read, whether it is begun, and what is left of it.
    run: usize,
    begun: bool,
    left: u64,
}

impl Gather<'_> {
    /// Opens the part of this run, or passes over what lies between its runs.
    fn begin(&mut self) -> Result<(), Error> {
        let at = self.run % self.made.parts.len();
        let part = &self.made.parts[at];
        let gap = match &self.readers[at] {
            None => part.range.start,
            Some(_) => part.gap(self.made.axis),
        };
        let reader = match &mut self.readers[at] {
            Some(reader) => reader,
            none => {
                let capacity = (BUFFERS / self.made.parts.len()).clamp(4 << 10, 1 << 20);
                none.insert(BufReader::with_capacity(capacity, part.checkpoint.reader(part.entry)?))
            }
        };
        let mut gap = gap as u64 * self.width;
        let held = gap.min(reader.buffer().len() as u64);
        reader.consume(held as usize);
        gap -= held;
        if gap > 0 {
            reader.get_mut().skip(gap)?;
        }
        (self.begun, self.left) = (true, part.range.len() as u64 * self.width);
        Ok(())
    }

    /// Goes on to the next run where this one is done.
    fn next(&mut self) {
        if self.left > 0 {
            return;
        }
        if self.run + self.made.parts.len() >= self.runs {
            self.readers[self.run % self.made.parts.len()] = None;
        }
        (self.run, self.begun) = (self.run + 1, false);
    }
}

impl BufRead for Gather<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.made.watch.cancelled() {
            return Err(io::Error::other(Error::Interrupted));
        }
        while self.run < self.runs && !self.begun {
            self.begin().map_err(io::Error::other)?;
            self.next();
        }
        let at = self.run % self.made.parts.len();
        match &mut self.readers[at] {
            Some(reader) if self.run < self.runs => {
                let bytes = reader.fill_buf()?;
                Ok(&bytes[..bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX))])
            }
            _ => Ok(&[]),
        }
    }

    fn consume(&mut self, n: usize) {
        let at = self.run % self.made.parts.len();
        let Some(reader) = self.readers[at].as_mut().filter(|_| n > 0) else { return };
        reader.consume(n);
        self.made.watch.advanced(n as u64);
        self.left -= n as u64;
        self.next();
    }
}

impl Read for Gather<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let n = bytes.len().min(out.len());
        out[..n].copy_from_slice(&bytes[..n]);
        self.consume(n);
        Ok(n)
    }
}

/// The tensors of a layer, as indices into [`Checkpoint::entries`], with the layer's name; the layers in the file's order.
///
/// A layer's name is that of its tensors without the last part: behind the last `/`, else the last `.`; of MXNet's names
/// without `arg:` or `aux:` and without `_weight` and the like. A tensor whose name has one part is a layer of its own.
#[must_use]
pub fn by_layer(checkpoint: &Checkpoint) -> Vec<(String, Vec<usize>)> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for (index, entry) in arrays(checkpoint) {
        let layer = layer(entry.sparse().map_or(entry.name(), |sparse| &sparse.name));
        let group = *known.entry(layer).or_insert_with(|| {
            groups.push((layer.to_owned(), Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(index);
    }
    groups
}

/// Groups of tensors, in their order, in larger groups of at most so many bytes; a group of more stays alone.
#[must_use]
pub fn by_size(checkpoint: &Checkpoint, groups: &[Vec<usize>], most: u64) -> Vec<Vec<usize>> {
    let len = |group: &Vec<usize>| group.iter().map(|index| checkpoint.entries()[*index].byte_len()).sum();
    let sizes: Vec<u64> = groups.iter().map(len).collect();
    let filled = shards::split(&sizes, most).into_iter();
    let filled = filled.map(|some| some.into_iter().flat_map(|group| groups[group].iter().copied()).collect());
    filled.collect()
}

/// Each tensor alone, as an index into [`Checkpoint::entries`].
#[must_use]
pub fn singles(checkpoint: &Checkpoint) -> Vec<Vec<usize>> {
    arrays(checkpoint).map(|(index, _)| vec![index]).collect()
}

/// All entries but the places without an array.
fn arrays(checkpoint: &Checkpoint) -> impl Iterator<Item = (usize, &Entry)> {
    checkpoint.entries().iter().enumerate().filter(|(_, entry)| entry.kind() != Kind::None)
}

fn layer(name: &str) -> &str {
    let name = name.strip_suffix(".diff").unwrap_or(name);
    if let Some((layer, _)) = name.rsplit_once('/').or_else(|| name.rsplit_once('.')) {
        return layer;
    }
    let name = name.strip_prefix("arg:").or_else(|| name.strip_prefix("aux:")).unwrap_or(name);
    let without = |word: &&str| name.strip_suffix(*word)?.strip_suffix('_').filter(|layer| !layer.is_empty());
    PARAMETERS.iter().find_map(without).unwrap_or(name)
}

/// How a tensor is called beside those of other files: as in its file, or, where that stores no names, as `stem`.
#[must_use]
pub fn name_beside(checkpoint: &Checkpoint, entry: &Entry, stem: &str) -> String {
    if !is_unnamed(checkpoint) {
        return entry.name().to_owned();
    }
    let is_single = checkpoint.entries().iter().all(|other| other.position() == entry.position());
    match entry.name().trim_start_matches('@').trim_start_matches(|c: char| c.is_ascii_digit()) {
        rest if is_single => format!("{stem}{rest}"),
        _ => format!("{stem}{}", entry.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_is_a_name_without_its_last_part() {
        for (name, expected) in [
            ("conv1/0", "conv1"),
            ("conv1/0.diff", "conv1"),
            ("inception_3a/1x1/1", "inception_3a/1x1"),
            ("layer1.0.conv1.weight", "layer1.0.conv1"),
            ("arg:conv0_weight", "conv0"),
            ("aux:bn0_moving_mean", "bn0"),
            ("aux:stage1_bn0_running_var", "stage1_bn0"),
            ("arg:_weight", "_weight"),
            ("weight", "weight"),
            ("", ""),
        ] {
            assert_eq!(layer(name), expected, "{name}");
        }
    }
}
