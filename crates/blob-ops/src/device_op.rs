//! Operations on a device: tokens in place of guards, in the order of the host's way, then the launches.
//!
//! Kernels are loaded first, inputs borrowed next, outputs asked and then taken: a failure before the first output is
//! taken leaves every operand as it was. Behind that, outputs that were taken are unspecified: no copy of their old
//! bytes counts any more. Relies on `device/` for the launches and on `cuda.rs` to launch.

use crate::argument::Argument;
use crate::cpu::lanes::BLOCK;
use crate::cpu::sums::Total;
use crate::cuda::Kernels;
use crate::device::launches::{joined, sum_len};
use crate::error::Error;
use crate::place::{self, INLINE_GUARDS, memory_error};
use crate::tree::Tree;
use crate::work::{Bounds, Work};
use blob_core::{AnyBlob, BlobMut, Part};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use synced_mem::{Arg, DeviceMut, DeviceRef, Queue, SharedMem};

/// A queue with the kernels for one operation.
pub(crate) struct DeviceOp {
    op: &'static str,
    queue: Arc<dyn Queue>,
    kernels: Kernels,
    work: Work,
}

/// Moves data only.
const DATA: Part = Part::Data;

impl DeviceOp {
    /// With the kernels for this work loaded.
    pub(crate) fn new(op: &'static str, queue: Arc<dyn Queue>, work: Work) -> Result<Self, Error> {
        match Kernels::load(&work, &*queue) {
            Ok(kernels) => Ok(DeviceOp { op, queue, kernels, work }),
            Err(error) => Err(Error::Device { op, error: error.into() }),
        }
    }

    /// From several inputs to one output.
    pub(crate) fn merge(&self, parts: &[&AnyBlob], out: &mut dyn BlobMut) -> Result<(), Error> {
        let mut tokens = SmallVec::<[DeviceRef<'_>; INLINE_GUARDS]>::with_capacity(parts.len());
        for (index, part) in parts.iter().enumerate() {
            tokens.push(self.read(Argument::Part(index), part, DATA)?);
        }
        let mut whole = self.overwrite(out, DATA)?;
        let mut uses: SmallVec<[Arg<'_>; INLINE_GUARDS + 1]> = tokens.iter().map(|token| token.arg()).collect();
        uses.push(whole.arg_mut());
        self.run(&self.work, &uses, parts.len())
    }

    /// From one input to several outputs.
    pub(crate) fn split(&self, blob: &AnyBlob, parts: &mut [&mut AnyBlob]) -> Result<(), Error> {
        let whole = self.read(Argument::In, blob, DATA)?;
        place::check_outputs(self.op, parts, DATA)?;
        let mut tokens = SmallVec::<[DeviceMut<'_>; INLINE_GUARDS]>::with_capacity(parts.len());
        for (index, part) in parts.iter_mut().enumerate() {
            let token = part.part_mut(DATA).overwrite_device(&self.queue);
            tokens.push(token.map_err(|error| memory_error(self.op, Argument::Part(index), error))?);
        }
        let mut uses = SmallVec::<[Arg<'_>; INLINE_GUARDS + 1]>::with_capacity(1 + tokens.len());
        uses.push(whole.arg());
        uses.extend(tokens.iter_mut().map(|token| token.arg_mut()));
        self.run(&self.work, &uses, 1)
    }

    /// From one input to one output, every byte of which is written.
    pub(crate) fn map(&self, blob: &AnyBlob, out: &mut dyn BlobMut, part: Part) -> Result<(), Error> {
        let from = self.read(Argument::In, blob, part)?;
        self.map_token(&from, out, part)
    }

    /// In place, with one input or none.
    pub(crate) fn update(&self, y: &mut dyn BlobMut, x: Option<&AnyBlob>, part: Part) -> Result<(), Error> {
        let x = x.map(|x| self.read(Argument::In, x, part)).transpose()?;
        let mut y = self.write(y, part)?;
        match x {
            Some(x) => self.run(&self.work, &[x.arg(), y.arg_mut()], 1),
            None => self.run(&self.work, &[y.arg_mut()], 0),
        }
    }

    /// The data in place, with the diff.
    pub(crate) fn update_by_diff(&self, blob: &mut dyn BlobMut) -> Result<(), Error> {
        let diff = blob.memory(Part::Diff).device(&self.queue, 0..blob.byte_len());
        let diff = diff.map_err(|error| memory_error(self.op, Argument::Diff, error))?;
        let mut data = self.write(blob, DATA)?;
        self.run(&self.work, &[diff.arg(), data.arg_mut()], 1)
    }

    /// Some elements, without inputs.
    pub(crate) fn fill(&self, blob: &mut dyn BlobMut, part: Part, elements: Range<usize>) -> Result<(), Error> {
        let view = blob.part_mut(part).range(elements);
        let token = view.and_then(|view| view.overwrite_device(&self.queue));
        let mut token = token.map_err(|error| memory_error(self.op, Argument::Out, error))?;
        self.run(&self.work, &[token.arg_mut()], 0)
    }

    /// Converts parts of a blob once all elements are known to survive; else where the first element is that does not.
    pub(crate) fn convert_checked(
        &self,
        blob: &AnyBlob,
        out: &mut dyn BlobMut,
        parts: &[Part],
        bounds: Bounds,
    ) -> Result<Option<(Part, usize)>, Error> {
        // To the same dtype: a copy, which everything survives.
        let is_copy = !matches!(self.work, Work::Convert { .. });
        let check = Work::Check { dtype: blob.dtype(), bounds };
        let check = (!is_copy).then(|| DeviceOp::new(self.op, Arc::clone(&self.queue), check)).transpose()?;
        let mut sources = SmallVec::<[DeviceRef<'_>; 2]>::new();
        for &part in parts {
            let source = self.read(Argument::In, blob, part)?;
            if let Some(check) = &check
                && let Some(index) = check.first_lost(&source)?
            {
                return Ok(Some((part, index)));
            }
            sources.push(source);
        }
        for (source, &part) in sources.iter().zip(parts) {
            self.map_token(source, out, part)?;
        }
        Ok(None)
    }

    /// The index of the first element that is out of bounds.
    fn first_lost(&self, source: &DeviceRef<'_>) -> Result<Option<usize>, Error> {
        let found = SharedMem::from(u64::MAX.to_ne_bytes().to_vec());
        let mut token = found.device_mut(&self.queue, ..).map_err(|error| self.error(error))?;
        self.run(&self.work, &[source.arg(), token.arg_mut()], 1)?;
        drop(token);
        let bytes = found.host(..).map_err(|error| self.error(error))?;
        let index = bytemuck::pod_read_unaligned::<u64>(&bytes);
        Ok((index != u64::MAX).then_some(index as usize))
    }

    /// The sum of all elements, the blocks joined as on the host; `None` of no elements.
    pub(crate) fn sum(&self, blob: &AnyBlob, part: Part) -> Result<Option<Total>, Error> {
        let dtype = blob.dtype();
        let (blocks, each) = (blob.count().div_ceil(BLOCK), sum_len(dtype));
        let joined = joined(blocks);
        let sums = SharedMem::new((blocks + joined.unwrap_or(0)) * each);
        let from = self.read(Argument::In, blob, part)?;
        let mut to = sums.device_overwrite(&self.queue, ..).map_err(|error| self.error(error))?;
        self.run(&self.work, &[from.arg(), to.arg_mut()], 1)?;
        drop(to);
        // Only the last results are fetched.
        let start = if joined.is_some() { blocks * each } else { 0 };
        let bytes = sums.host(start..).map_err(|error| self.error(error))?;
        let mut tree = Tree::default();
        for sum in bytes.chunks_exact(each) {
            tree.push(if dtype.is_float() {
                Total::Float(bytemuck::pod_read_unaligned(sum))
            } else {
                whole(bytemuck::pod_read_unaligned(sum))
            });
        }
        Ok(tree.total())
    }

    fn map_token(&self, from: &DeviceRef<'_>, out: &mut dyn BlobMut, part: Part) -> Result<(), Error> {
        let mut to = self.overwrite(out, part)?;
        self.run(&self.work, &[from.arg(), to.arg_mut()], 1)
    }

    fn read<'a>(&self, argument: Argument, blob: &'a AnyBlob, part: Part) -> Result<DeviceRef<'a>, Error> {
        blob.part(part).device(&self.queue).map_err(|error| memory_error(self.op, argument, error))
    }

    fn overwrite<'a>(&self, blob: &'a mut dyn BlobMut, part: Part) -> Result<DeviceMut<'a>, Error> {
        let token = blob.part_mut(part).overwrite_device(&self.queue);
        token.map_err(|error| memory_error(self.op, Argument::Out, error))
    }

    fn write<'a>(&self, blob: &'a mut dyn BlobMut, part: Part) -> Result<DeviceMut<'a>, Error> {
        blob.part_mut(part).device(&self.queue).map_err(|error| memory_error(self.op, Argument::Out, error))
    }

    /// The first of the uses are inputs.
    fn run(&self, work: &Work, uses: &[Arg<'_>], inputs: usize) -> Result<(), Error> {
        self.kernels.run(&*self.queue, work, uses, inputs).map_err(|error| self.error(error))
    }

    #[cold]
    fn error(&self, error: synced_mem::Error) -> Error {
        Error::Device { op: self.op, error: error.into() }
    }
}

/// The halves of the terms of blocks, each summed; all ones where a term is no u64, and so neither is any sum.
fn whole([low, high]: [u64; 2]) -> Total {
    Total::Whole(match high {
        u64::MAX => u128::MAX,
        _ => u128::from(low) + (u128::from(high) << 32),
    })
}
