//! The checks of `blob verify` beyond opening a file: payloads, finite values, a digest, equality with another file.
//!
//! Findings are values; an error means that a check could not be done. Memory stays at a few MiB.

mod against;
mod anew;
mod chain;
mod claims;
mod graph;
mod keys;
mod lazy;
mod replay;
mod sources;
mod symbol;

use blob_core::DType;
use blob_io::{Checkpoint, Entry, Error, Kind, Reason};

use crate::compare::index_of;
pub use crate::finding::{Finding, Redone, Remark};
use crate::hash::PIECE;
pub use crate::self_check::receipt;
use crate::watch::{Watch, Watched};
use crate::written::is_broken;
pub use against::{By, Compared, against, against_by};
use blob_io::words::and_more;
pub use claims::claims;
pub use lazy::{Verified, verified};
pub use replay::replay;
pub use sources::against_all;
pub use symbol::symbol;

/// Checks that every array can be read: no faults, npz members with the right checksums and lengths, sparse parts that
/// fit each other, bools of 0 or 1.
///
/// # Errors
/// An error of the operating system while reading; [`Error::Interrupted`] where `watch` says so; at the end
/// [`Error::LimitExceeded`] where a limit kept an array from being checked: the array may well be sound.
pub fn arrays(checkpoint: &Checkpoint, watch: &dyn Watch, report: &mut dyn FnMut(Remark)) -> Result<(), Error> {
    let mut limited = None;
    record_broken(checkpoint.check_whole(), checkpoint.name(), &mut limited, &mut |finding| {
        report(Remark::Finding(finding));
    })?;
    for entry in checkpoint.entries() {
        if let Some(why) = entry.unread() {
            // A checksum of the array is compared nevertheless.
            report(Remark::Unread(Finding::new(entry.name(), Reason::Unsupported, format!("is not read: {why}"))));
        } else if entry.fault().is_some() {
            // `view` returns the error that describes the fault.
            let fault_error = checkpoint.view(entry).map(drop);
            record_broken(fault_error, entry.name(), &mut limited, &mut |finding| report(Remark::Finding(finding)))?;
            continue;
        }
        let mut found = |finding| report(Remark::Finding(finding));
        let checked = checkpoint.check(entry, &mut |len| watch.step(len));
        record_broken(checked, entry.name(), &mut limited, &mut found)?;
        if entry.dtype() == Some(DType::Bool) && entry.fault().is_none() {
            record_broken(check_bools(checkpoint, entry, watch, &mut found), entry.name(), &mut limited, &mut |_| {})?;
        }
        if let (Kind::Values, Some(sparse)) = (entry.kind(), entry.sparse()) {
            record_broken(checkpoint.check_sparse(entry), &sparse.name, &mut limited, &mut found)?;
        }
    }
    // A file is not called sound if no array in the file could be looked at.
    if let Some(limited) = limited {
        return Err(limited);
    }
    let mut unread = checkpoint.entries().iter().filter_map(|entry| Some((entry.name(), entry.unread()?)));
    match unread.next() {
        Some((name, why)) if checkpoint.entries().iter().all(|e| e.dtype().is_none() || e.fault().is_some()) => {
            let message = format!("none of its arrays can be checked: {name:?}: {why}");
            Err(Error::Unsupported { file: checkpoint.name().to_owned(), message })
        }
        _ => Ok(()),
    }
}

/// The sound arrays that a check needs and that are not read: the first one, and how many there are.
#[derive(Debug, Default)]
struct Unread {
    first: Option<(String, String)>,
    count: usize,
}

impl Unread {
    /// Counts an array that is not read in `file`.
    fn add(&mut self, name: &str, file: &str, why: &str) {
        self.count += 1;
        self.first.get_or_insert_with(|| (name.to_owned(), format!("not read in {file}: {why}")));
    }

    /// The error of a check that has to do without these arrays.
    fn or_error(&self, file: &str, cannot: &str) -> Result<(), Error> {
        let Some((name, why)) = &self.first else { return Ok(()) };
        let message = format!("cannot {cannot} {name:?}{}, which is {why}", and_more(self.count - 1));
        Err(Error::Unsupported { file: file.to_owned(), message })
    }
}

/// Finds the bytes of a bool array that are neither 0 nor 1: readers disagree on the meaning.
fn check_bools(
    checkpoint: &Checkpoint,
    entry: &Entry,
    watch: &dyn Watch,
    found: &mut dyn FnMut(Finding),
) -> Result<(), Error> {
    let (mut before, mut wrong, mut first) = (0, 0, None);
    Watched::open(checkpoint, entry, watch)?.each(PIECE, |bytes| {
        for (at, byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte > 1) {
            wrong += 1;
            first.get_or_insert((before + at as u64, *byte));
        }
        before += bytes.len() as u64;
        Ok(())
    })?;
    if let Some((at, byte)) = first {
        let index = index_of(entry.shape(), at);
        let message = format!("{wrong} of {before} bools are neither 0 nor 1, the first at [{index}]: {byte}");
        found(Finding::new(entry.name(), Reason::NotBool, message));
    }
    Ok(())
}

/// Turns broken bytes into a finding and keeps the first exceeded limit for later; any other error is returned.
fn record_broken(
    outcome: Result<(), Error>,
    name: &str,
    limited: &mut Option<Error>,
    found: &mut dyn FnMut(Finding),
) -> Result<(), Error> {
    match outcome {
        Err(e @ Error::LimitExceeded { .. }) => {
            limited.get_or_insert(e);
            Ok(())
        }
        Err(Error::Malformed { fault, .. }) => {
            found(Finding::of_fault(name, &fault));
            Ok(())
        }
        outcome => outcome,
    }
}

/// Finds the tensors that hold NaN or Inf, with the count of each and the index of the first. A broken array is
/// skipped: [`arrays`] reports the fault.
///
/// # Errors
/// As [`arrays`]; [`Error::Unsupported`] at the end, where the values of an array are not read.
pub fn finite(checkpoint: &Checkpoint, watch: &dyn Watch, report: &mut dyn FnMut(Remark)) -> Result<(), Error> {
    let mut unread: Option<(&str, u64)> = None;
    for entry in checkpoint.entries() {
        if entry.unread().is_some() {
            unread.get_or_insert((entry.name(), 0)).1 += 1;
        }
        let Some(dtype) = entry.dtype().filter(|d| d.is_float() && entry.fault().is_none()) else {
            watch.advanced(entry.byte_len());
            continue;
        };
        let (mut nan, mut inf, mut first, mut before) = (0, 0, None, 0);
        let read = Watched::open(checkpoint, entry, watch).and_then(|reader| {
            reader.each(PIECE, |bytes| {
                let found = blob_ops::count_nonfinite(dtype, bytes);
                nan += found.nan;
                inf += found.inf;
                first = first.or(found.first_index.map(|at| before + at));
                before += (bytes.len() / dtype.size()) as u64;
                Ok(())
            })
        });
        match read {
            Err(e) if is_broken(&e) => continue,
            read => read?,
        }
        if let Some(first) = first {
            let index = index_of(entry.shape(), first);
            let count = entry.shape().count();
            let message = format!("{nan} NaN and {inf} Inf among {count} values, the first at [{index}]");
            report(Remark::Finding(Finding::new(entry.name(), Reason::NotFinite, message)));
        }
    }
    match unread {
        None => Ok(()),
        Some((first, n)) => {
            let others = and_more(n as usize - 1);
            let message = format!("cannot look for NaN and Inf inside {first:?}{others}");
            let file = checkpoint.name().to_owned();
            Err(Error::Unsupported { file, message })
        }
    }
}

#[cfg(test)]
mod tests {
    use blob_io::Bytes;

    use super::*;
    use crate::threads::tests::without_threads;
    use crate::watch::Silent;

    /// A BlobProto of shape {2, n/2} with these values.
    fn blob(values: &[f32]) -> Checkpoint {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut file = vec![0x3A, 0x07, 0x0A, 0x05, 2];
        varint(&mut file, values.len() / 2, 4);
        file.push(0x2A);
        varint(&mut file, data.len(), 5);
        file.extend_from_slice(&data);
        Checkpoint::from_source("x.binaryproto", Box::new(Bytes(file))).unwrap()
    }

    /// A varint of a fixed width.
    fn varint(file: &mut Vec<u8>, n: usize, width: usize) {
        for i in 0..width {
            let more = if i + 1 < width { 0x80 } else { 0 };
            file.push((n >> (7 * i) & 0x7F) as u8 | more);
        }
    }

    /// The messages of a check's findings.
    fn messages<R>(check: impl FnOnce(&mut dyn FnMut(Remark)) -> Result<R, Error>) -> Vec<String> {
        let mut found = Vec::new();
        check(&mut |remark| {
            if let Remark::Finding(finding) = remark {
                found.push(finding.message);
            }
        })
        .unwrap();
        found
    }

    fn differences(a: &Checkpoint, b: &Checkpoint) -> Vec<String> {
        messages(|report| against(a, b, &Silent, report))
    }

    #[test]
    fn equal_files_are_equal_and_one_bit_is_a_difference() {
        for len in [6, 4 << 20] {
            let mut values = vec![1.5f32; len];
            let a = blob(&values);
            let equal = against(&a, &blob(&values), &Silent, &mut |r| panic!("{r:?}"));
            assert_eq!(equal.unwrap().equal, 1);
            let last = values.len() - 1;
            values[last] = f32::from_bits(1.5f32.to_bits() ^ 1);
            let expected = [format!("differs, first at [1,{}]", len / 2 - 1)];
            assert_eq!(differences(&a, &blob(&values)), expected);
            without_threads(|| {
                let equal = against(&a, &a, &Silent, &mut |r| panic!("{r:?}"));
                assert_eq!(equal.unwrap().equal, 1);
                assert_eq!(differences(&a, &blob(&values)), expected);
            });
        }
    }

    #[test]
    fn zeros_of_either_sign_and_nan_are_compared_by_bits() {
        let zero = differences(&blob(&[0.0, 1.0]), &blob(&[-0.0, 1.0]));
        assert_eq!(zero, ["differs, first at [0,0]"]);
        let nan = [f32::NAN, 1.0];
        assert!(differences(&blob(&nan), &blob(&nan)).is_empty());
    }

    #[test]
    fn a_bool_is_zero_or_one() {
        let npy = |bytes: &[u8]| {
            let header = b"{'descr': '|b1', 'fortran_order': False, 'shape': (2, 3), }\n";
            let file = [&b"\x93NUMPY\x01\x00"[..], &[header.len() as u8, 0], header, bytes].concat();
            Checkpoint::from_source("x.npy", Box::new(Bytes(file))).unwrap()
        };
        assert!(messages(|report| arrays(&npy(&[0, 1, 1, 0, 1, 0]), &Silent, report)).is_empty());
        assert_eq!(
            messages(|report| arrays(&npy(&[0, 1, 1, 0, 255, 2]), &Silent, report)),
            ["2 of 6 bools are neither 0 nor 1, the first at [1,1]: 255"]
        );
    }
}
