//! The host's place to work: the one place where bytes are borrowed for host work. Where an operation works is decided
//! in `at.rs`.
//!
//! Inputs whose newest copy is on a device are brought here by the memory, which counts the transfer in its
//! statistics and keeps the device's copy valid; the bytes of an output are written over and not moved. Relies on the
//! memory's guards: a refused borrow is an error before a byte changes, which names the operation and its
//! argument.

use crate::argument::{Argument, Mismatch};
use crate::error::Error;
use blob_core::{AnyBlob, BlobMut, Part, Ref, RefMut};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::{Deref, Range};

/// The guards of up to this many blobs are listed on the stack, those of more on the heap: 16 of them are 640 bytes.
pub(crate) const INLINE_GUARDS: usize = 16;

/// To read. A part that was never touched is made: all zeros.
#[inline(always)]
pub(crate) fn read<'a>(
    op: &'static str,
    argument: Argument,
    blob: &'a AnyBlob,
    part: Part,
) -> Result<Ref<'a, [u8]>, Error> {
    match bytes(blob, part) {
        Ok(guard) => Ok(guard),
        Err(error) => Err(memory_error(op, argument, error)),
    }
}

/// To read and write: from here on the host's copy is the only one.
#[inline(always)]
pub(crate) fn write<'a>(op: &'static str, blob: &'a mut dyn BlobMut, part: Part) -> Result<RefMut<'a, [u8]>, Error> {
    match blob.part_mut(part).bytes() {
        Ok(guard) => Ok(guard),
        Err(error) => Err(memory_error(op, Argument::Out, error)),
    }
}

/// To write every byte: nothing is brought here.
#[inline(always)]
pub(crate) fn overwrite<'a>(
    op: &'static str,
    argument: Argument,
    blob: &'a mut dyn BlobMut,
    part: Part,
) -> Result<RefMut<'a, [u8]>, Error> {
    match overwrite_bytes(blob, part) {
        Ok(guard) => Ok(guard),
        Err(error) => Err(memory_error(op, argument, error)),
    }
}

/// The guard of [`read`], and an error that names nothing.
///
/// Not inlined, nor is [`overwrite_bytes`]: a caller would move the guard through a copy for every layer of results, 40
/// to 60 ns each guard (AMD EPYC Zen 4, merge of 16 parts of 64 bytes: 1.6 to 2.0 µs, 1.0 to 1.2 so). For the same
/// reason the lists below name the argument themselves.
#[inline(never)]
fn bytes(blob: &AnyBlob, part: Part) -> Result<Ref<'_, [u8]>, blob_core::Error> {
    blob.part(part).bytes()
}

#[inline(never)]
fn overwrite_bytes(blob: &mut dyn BlobMut, part: Part) -> Result<RefMut<'_, [u8]>, blob_core::Error> {
    blob.part_mut(part).overwrite_bytes()
}

/// To write every byte of some elements: nothing is brought here, and the others stay where they are.
pub(crate) fn range_overwrite<'a>(
    op: &'static str,
    blob: &'a mut dyn BlobMut,
    part: Part,
    elements: Range<usize>,
) -> Result<RefMut<'a, [u8]>, Error> {
    let range = blob.part_mut(part).range(elements);
    range.and_then(|view| view.overwrite_bytes()).map_err(|error| memory_error(op, Argument::Out, error))
}

/// As [`read`], of several inputs. More than [`INLINE_GUARDS`] take one list of the right length on the heap.
pub(crate) fn read_all<'a>(
    op: &'static str,
    blobs: &[&'a AnyBlob],
    part: Part,
) -> Result<SmallVec<[Ref<'a, [u8]>; INLINE_GUARDS]>, Error> {
    let mut guards = SmallVec::with_capacity(blobs.len());
    for (index, blob) in blobs.iter().enumerate() {
        match bytes(blob, part) {
            Ok(guard) => guards.push(guard),
            Err(error) => return Err(memory_error(op, Argument::Part(index), error)),
        }
    }
    Ok(guards)
}

/// As [`overwrite`], of several outputs: all of them, or an error and all as they were. More than [`INLINE_GUARDS`]
/// take one list on the heap.
///
/// A guard to overwrite gives up the bytes that only a device has, so all are asked before the first is taken. Another
/// thread that borrows one between the two, or a host without room for its bytes, is an error, and the bytes of the
/// guards before are lost.
pub(crate) fn overwrite_all<'a>(
    op: &'static str,
    blobs: &'a mut [&mut AnyBlob],
    part: Part,
) -> Result<SmallVec<[RefMut<'a, [u8]>; INLINE_GUARDS]>, Error> {
    check_outputs(op, blobs, part)?;
    let mut guards = SmallVec::with_capacity(blobs.len());
    for (index, blob) in blobs.iter_mut().enumerate() {
        match overwrite_bytes(&mut **blob, part) {
            Ok(guard) => guards.push(guard),
            Err(error) => return Err(memory_error(op, Argument::Part(index), error)),
        }
    }
    Ok(guards)
}

/// Whether all may be written now, and none twice.
pub(crate) fn check_outputs(op: &'static str, blobs: &[&mut AnyBlob], part: Part) -> Result<(), Error> {
    for (index, blob) in blobs.iter().enumerate() {
        let free = blob.memory(part).check_write(0..blob.byte_len());
        free.map_err(|error| memory_error(op, Argument::Part(index), error))?;
    }
    check_apart(op, blobs, part)
}

/// Whether no two have bytes in common. A memory that only one handle leads to is compared with none.
fn check_apart(op: &'static str, blobs: &[&mut AnyBlob], part: Part) -> Result<(), Error> {
    let shared = blobs.iter().enumerate().filter_map(|(index, blob)| {
        let memory = blob.memory(part);
        (memory.handles() > 1 && blob.byte_len() > 0).then_some((index, memory))
    });
    let mut shared: SmallVec<[_; INLINE_GUARDS]> = shared.collect();
    match first_twice(&mut shared, |one, other| one.ptr_cmp(other)) {
        None => Ok(()),
        Some((with, index)) => Err(Error::Mismatch {
            op,
            argument: Argument::Part(index),
            mismatch: Mismatch::Shared { with: Argument::Part(with) },
        }),
    }
}

/// Whether the part was never touched: all zeros, and no memory taken.
pub(crate) fn is_untouched(blob: &AnyBlob, part: Part) -> bool {
    !blob.memory(part).is_initialized()
}

/// The first place whose value stands at an earlier one too, after the earliest of these. The places are given in
/// order, each with its value; time as for sorting them, and no memory.
fn first_twice<T>(places: &mut [(usize, T)], mut order: impl FnMut(&T, &T) -> Ordering) -> Option<(usize, usize)> {
    places.sort_unstable_by(|(at, one), (behind, other)| order(one, other).then(at.cmp(behind)));
    let neighbours = places.windows(2).filter_map(|pair| match pair {
        [(with, one), (at, other)] if order(one, other).is_eq() => Some((*with, *at)),
        _ => None,
    });
    // The second of those that are equal comes first among the later ones, and the neighbour is the earliest.
    neighbours.min_by_key(|(_, at)| *at)
}

/// The data to read and write, and the diff to read, which a borrow of the blob as a whole would not give at once.
pub(crate) fn data_mut_and_diff<'a>(
    op: &'static str,
    blob: &'a mut dyn BlobMut,
) -> Result<(RefMut<'a, [u8]>, impl Deref<Target = [u8]> + use<>), Error> {
    // The memory may be longer than the blob.
    let diff = blob.memory(Part::Diff).host(0..blob.byte_len());
    let diff = diff.map_err(|error| memory_error(op, Argument::Diff, error))?;
    Ok((write(op, blob, Part::Data)?, diff))
}

/// Apart from the way of those that succeed.
#[cold]
pub(crate) fn memory_error(op: &'static str, argument: Argument, error: impl Into<blob_core::Error>) -> Error {
    Error::Memory { op, argument, error: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// By looking at each place once.
    fn first_by_table(values: &[u32]) -> Option<(usize, usize)> {
        let mut seen = HashMap::new();
        values.iter().enumerate().find_map(|(at, value)| {
            let with = *seen.entry(value).or_insert(at);
            (with != at).then_some((with, at))
        })
    }

    #[test]
    fn the_first_place_that_repeats_an_earlier_one() {
        for values in [
            &[][..],
            &[7],
            &[7, 7],
            &[1, 2, 3],
            &[3, 2, 1, 2, 3],
            &[9, 5, 9, 5, 1, 9],
            &[5, 9, 9, 5, 5],
            &[1, 2, 3, 4, 5, 0, 4, 3],
        ] {
            let mut places: Vec<_> = values.iter().copied().enumerate().collect();
            let found = first_twice(&mut places, u32::cmp);
            assert_eq!(found, first_by_table(values), "{values:?}");
        }
    }

    #[test]
    fn many_places_are_compared_as_often_as_a_sort_does() {
        let count = 1 << 14;
        let values: [fn(usize) -> u32; 4] =
            [|at| (at as u32).wrapping_mul(0x9E37_79B9), |at| at as u32, |at| at as u32 / 2, |_| 1];
        for value in values {
            let mut places: Vec<_> = (0..count).map(|at| (at, value(at))).collect();
            let mut compared = 0;
            first_twice(&mut places, |one: &u32, other| {
                compared += 1;
                one.cmp(other)
            });
            assert!(compared <= 2 * count * 14, "{compared} of {count} places");
        }
    }
}
