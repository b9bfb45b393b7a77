//! Compares two files tensor by tensor, bit for bit, whatever their formats.
//!
//! `pairing` pairs the tensors; dtype, shape and bytes are compared here. Accepts the lossless changes of a conversion:
//! names, places without an array, bf16 as the bits of a u16, sparse arrays made dense, the trailing ones of NeoML's
//! seven axes.

use std::sync::Arc;

use blob_core::{DType, Dims7, Shape};
use blob_io::{Bf16, Checkpoint, Entry, Error, Files, Kind, Reason};

use super::claims::Relation;
use super::replay::Redo;
use super::{Unread, chain, claims, graph, replay};
use crate::applied::steps;
use crate::chosen::{chosen, unsupported};
use crate::compare::{Pieces, found};
use crate::finding::{Finding, Remark};
use crate::history::receipt_text;
use crate::pairing::{Event, Side, walk};
use crate::transform::{Registry, Topology};
use crate::watch::Watch;

/// The result of a comparison of two files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compared {
    /// How many tensors are equal.
    pub equal: u64,
    /// How many transforms of the receipt were repeated for the comparison.
    pub redone: usize,
    /// Whether the graph of an ONNX model was made again of the net, and is the same.
    pub graph: bool,
    /// Whether the receipt is the one that the conversion gives when it is planned again. Names of files, the version
    /// of the tool and the frame are not compared here.
    pub receipt: bool,
}

/// Compares two files tensor by tensor, bit for bit, whatever their formats.
///
/// A place without an array may be missing from the other file; bf16 may be kept as u16 in an npy file and where a
/// receipt says so; a sparse array is equal to a dense one of the same name and values; where one of the files stores
/// no names, tensors are paired in file order. Each of these is a note. Memory stays at a few pieces and 8 bytes a
/// tensor, plus arrays that must be reordered or inflated as a whole.
///
/// If the receipt of `ours` has transforms, and `theirs` is the source in that receipt or does not have the same
/// transforms, the transforms are repeated with the tensors of `theirs`, and the result is compared. With an earlier
/// source of the receipt's history, the transforms of all conversions since are repeated.
///
/// # Errors
/// Errors of reading; [`Error::Interrupted`] where `watch` says so; [`Error::Unsupported`] at the end, where an array
/// of either file is not read.
pub fn against(
    ours: &Checkpoint,
    theirs: &Checkpoint,
    watch: &dyn Watch,
    report: &mut dyn FnMut(Remark),
) -> Result<Compared, Error> {
    against_by(ours, theirs, &By::default(), watch, report)
}

/// Facts for the repetition of transforms that neither of the two files has.
#[derive(Clone, Debug, Default)]
pub struct By {
    /// The net that the transforms followed, where neither the source nor a file beside the source has that net.
    pub net: Option<Arc<Topology>>,
    /// Steps of your own.
    pub registry: Registry,
}

/// As [`against`], with the facts that the files do not have.
///
/// # Errors
/// As [`against`].
pub fn against_by(
    ours: &Checkpoint,
    theirs: &Checkpoint,
    by: &By,
    watch: &dyn Watch,
    report: &mut dyn FnMut(Remark),
) -> Result<Compared, Error> {
    ours.check_whole()?;
    theirs.check_whole()?;
    let relation = claims::against_source(ours, theirs, watch, report)?;
    let is_source = matches!(relation, Relation::Source);
    if let Relation::Earlier(Some(since)) = &relation
        && let [first, later @ ..] = &since[..]
        && since.iter().any(|origin| !origin.transforms.is_empty())
    {
        let redo = Redo { steps: &first.transforms, later, by, is_last: false, is_source: false };
        return replay::against_source(ours, theirs, redo, watch, report);
    }
    match steps(ours) {
        // The source may itself be made by equal steps, as where axes are swapped twice.
        Ok(done) if !done.is_empty() && (is_source || steps(theirs).as_ref() != Ok(&done)) => {
            let redo = Redo { steps: &done, later: &[], by, is_last: true, is_source };
            return replay::against_source(ours, theirs, redo, watch, report);
        }
        Ok(done) => graph::unproven(ours, theirs, &done).into_iter().for_each(&mut *report),
        Err(why) => report(Remark::Finding(Finding::new("", Reason::Receipt, why))),
    }
    let mut left_out = Vec::new();
    let mut compare = Comparison { pieces: Pieces::new(), watch, report, equal: 0, unread: Unread::default() };
    walk(ours, theirs, &mut |event| {
        match event {
            Event::Note(note) => compare.note(note),
            Event::Unpaired { entry, missing_from } => {
                let is_left_out = std::ptr::eq(missing_from, ours);
                left_out.extend(is_left_out.then(|| entry.name()));
                match unsupported(entry).filter(|_| is_left_out && is_source) {
                    Some(why) => compare.note(format!("{:?} is left out: it is {why}", entry.name())),
                    None => compare.unpaired(entry, missing_from.name()),
                }
            }
            Event::Pair(a, b) => compare.both(&a, &b)?,
        }
        Ok::<(), Error>(())
    })?;
    let Comparison { equal, unread, report, .. } = compare;
    let mut receipt = false;
    if is_source {
        claims::left_out_is_said(ours, left_out.into_iter(), report);
        let options = chain::choices(ours, theirs, &[], Vec::new(), by);
        if let Ok(chained) = chosen(theirs, &options, options.to.holds().files == Files::Folder) {
            receipt = replay::receipt_again(ours, theirs, &options, chained, report)?;
        }
    }
    unread.or_error(ours.name(), "compare")?;
    Ok(Compared { equal, receipt, ..Compared::default() })
}

/// The state of a comparison.
struct Comparison<'a> {
    pieces: Pieces,
    watch: &'a dyn Watch,
    report: &'a mut dyn FnMut(Remark),
    equal: u64,
    unread: Unread,
}

impl Comparison<'_> {
    fn note(&mut self, note: String) {
        (self.report)(Remark::Note(note));
    }

    fn finding(&mut self, tensor: &str, reason: Reason, message: String) {
        (self.report)(Remark::Finding(Finding::new(tensor, reason, message)));
    }

    /// Reports a tensor that the other file does not have.
    fn unpaired(&mut self, entry: &Entry, missing_from: &str) {
        let name = entry.name();
        match entry.kind() {
            Kind::None => self.note(format!("{name:?} is a place without an array, left out of {missing_from}")),
            _ => self.finding(name, Reason::Absent, format!("is missing from {missing_from}")),
        }
    }

    /// Compares two tensors that belong together.
    fn both(&mut self, a: &Side<'_>, b: &Side<'_>) -> Result<(), Error> {
        for side in [a, b] {
            if let Some(why) = side.entry.unread() {
                self.unread.add(a.name(), side.file.name(), &why);
                return Ok(());
            }
        }
        if a.dense.or(b.dense).is_some() {
            self.note(format!("{:?} is sparse in one file and dense in the other; compared as dense", a.name()));
        }
        match found(self.difference(a, b))? {
            None => self.equal += 1,
            Some((reason, message)) => self.finding(a.name(), reason, message),
        }
        Ok(())
    }

    /// The difference between two tensors, as a code and in words; `None` for equal tensors.
    fn difference(&mut self, a: &Side<'_>, b: &Side<'_>) -> Result<Option<Difference>, Error> {
        for side in [a, b] {
            if let Some(fault) = side.entry.fault() {
                let message = format!("is broken in {}: {fault}", side.file.name());
                return Ok(Some((fault.reason(), message)));
            }
        }
        let (Some(left), Some(right)) = (a.entry.dtype(), b.entry.dtype()) else {
            return Ok(one_is_none(a, b));
        };
        if is_padded(a, b) || is_padded(b, a) {
            self.note(format!("{:?} has ones behind its axes in NeoML's seven; compared without them", a.name()));
        } else if a.shape() != b.shape() {
            let message = format!("has shape {} here and {} there", a.shape(), b.shape());
            return Ok(Some((Reason::Shape, message)));
        }
        let is_untyped = |side: &Side<'_>| side.entry.byte_len() == 0 && side.file.format().is_caffe();
        if left != right && (is_untyped(a) || is_untyped(b)) {
            self.note(format!("{:?} is {left} here and {right} there: Caffe stores no dtype without values", a.name()));
            return Ok(None);
        }
        if left != right {
            let is_kept = match (left, right) {
                (DType::U16, DType::BF16) => may_be_bf16(a),
                (DType::BF16, DType::U16) => may_be_bf16(b),
                _ => false,
            };
            if !is_kept {
                return Ok(Some((Reason::DType, format!("is {left} here and {right} there"))));
            }
            self.note(format!("{:?} is bf16, kept as the bits of a u16; compared by bits", a.name()));
        }
        let (mut ours, mut theirs) = (a.reader(self.watch)?, b.reader(self.watch)?);
        self.pieces.difference(left, a.shape(), &mut ours, &mut theirs)
    }
}

/// The code of a difference, and a description.
type Difference = (Reason, String);

/// Whether the shape in a NeoML file is the shape in the other file, filled up to seven axes with trailing ones.
fn is_padded(neoml: &Side<'_>, other: &Side<'_>) -> bool {
    neoml.file.format().is_neoml()
        && neoml.shape() != other.shape()
        && Dims7::from_leading(other.shape().dims()).is_ok_and(|dims| *neoml.shape() == Shape::from(dims))
}

/// Whether a u16 of the file may hold the bits of bf16: npy and npz have none, and no receipt says so.
fn may_be_bf16(side: &Side<'_>) -> bool {
    side.file.format().holds().bf16 == Bf16::AsU16 && receipt_text(side.file).is_none()
}

/// The difference between an array and an entry without one; `None` where neither has an array.
fn one_is_none(a: &Side<'_>, b: &Side<'_>) -> Option<Difference> {
    let description = |side: &Side<'_>| match side.entry.dtype() {
        Some(_) => "an array",
        None => "none",
    };
    let differ = a.entry.dtype() != b.entry.dtype();
    differ.then(|| {
        let message = format!("is {} here and {} there", description(a), description(b));
        (Reason::DType, message)
    })
}
