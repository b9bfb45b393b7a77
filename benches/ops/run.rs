//! Prepares the operations that `ops` measures, for repeated runs on memory that is already allocated.
//!
//! Times nothing.

use std::hint::black_box;

use blob_core::{AnyBlob, DType, Part, Shape};
use blob_ops::{Histogram, Scalar, StatsAccumulator};

use crate::cases::Op;
use crate::own::{Line, What};

/// A blob of small integers, which every dtype can represent.
pub(crate) fn blob(dims: &[usize], dtype: DType) -> AnyBlob {
    let shape = Shape::new(dims).expect("a shape");
    let mut small = AnyBlob::new(shape, DType::U8).expect("it fits");
    let mut bytes = small.data_mut().bytes().expect("memory");
    for (i, byte) in bytes.iter_mut().enumerate() {
        // In scattered order, so that a histogram does not fill one bin after another.
        *byte = ((i as u32).wrapping_mul(0x9E37_79B9) >> 25) as u8;
    }
    drop(bytes);
    blob_ops::convert(&small, dtype).expect("it fits")
}

/// A closure that runs the operation once on `whole`, into blobs that are already allocated.
pub(crate) fn prepare<'a>(line: &'a Line, whole: &'a AnyBlob) -> Box<dyn FnMut() + Send + 'a> {
    match &line.what {
        What::Shared(op) => shared(op, whole),
        What::Stats => Box::new(|| {
            black_box(blob_ops::stats(whole, Part::Data).expect("statistics"));
        }),
        What::Histogram => histogram(whole),
        What::NonFinite => Box::new(|| {
            let bytes = whole.data().bytes().expect("no writer");
            black_box(blob_ops::count_nonfinite(whole.dtype(), &bytes));
        }),
        &What::Convert(to) => {
            let mut out = blob(&line.dims, to);
            Box::new(move || blob_ops::convert_into(whole, &mut out, Part::Data).expect("it fits"))
        }
        &What::ConvertChecked(to) => {
            let mut out = blob(&line.dims, to);
            Box::new(move || {
                blob_ops::convert_checked_into(whole, &mut out, Part::Data).expect("it fits");
            })
        }
        what => in_place(what, whole),
    }
}

fn shared<'a>(op: &'a Op, whole: &'a AnyBlob) -> Box<dyn FnMut() + Send + 'a> {
    let equal = |axis: usize, parts: usize| vec![whole.shape().dims()[axis] / parts; parts];
    match op {
        &Op::Merge { axis, parts } => {
            let parts = blob_ops::split(whole, axis, &equal(axis, parts)).expect("parts");
            let mut out = like(whole);
            Box::new(move || {
                let parts: Vec<&AnyBlob> = parts.iter().collect();
                blob_ops::merge_into(&parts, axis, &mut out).expect("merged");
            })
        }
        &Op::Split { axis, parts } => {
            let mut parts = blob_ops::split(whole, axis, &equal(axis, parts)).expect("parts");
            Box::new(move || {
                let mut parts: Vec<&mut AnyBlob> = parts.iter_mut().collect();
                blob_ops::split_into(whole, axis, &mut parts).expect("split");
            })
        }
        Op::Permute(order) => {
            let mut out = blob_ops::permute(whole, order).expect("permuted");
            Box::new(move || blob_ops::permute_into(whole, order, &mut out).expect("permuted"))
        }
        Op::Asum => Box::new(|| {
            black_box(blob_ops::asum(whole, Part::Data).expect("a sum"));
        }),
        Op::Sumsq => Box::new(|| {
            black_box(blob_ops::sumsq(whole, Part::Data).expect("a sum"));
        }),
        Op::Add => {
            let mut y = like(whole);
            Box::new(move || blob_ops::add(&mut y, whole, Part::Data).expect("added"))
        }
        Op::Scale => {
            // Any other factor would turn floats into subnormals or Inf after many runs; integers wrap.
            let alpha = if whole.dtype().is_float() { -1 } else { 3 };
            let mut y = like(whole);
            Box::new(move || blob_ops::scale(&mut y, alpha, Part::Data).expect("scaled"))
        }
        Op::Fill => {
            let mut y = like(whole);
            Box::new(move || blob_ops::fill(&mut y, 1, Part::Data).expect("filled"))
        }
    }
}

/// The operations that change a blob in place and that no peer has.
fn in_place<'a>(what: &What, whole: &'a AnyBlob) -> Box<dyn FnMut() + Send + 'a> {
    let mut y = like(whole);
    match what {
        What::TransposeInPlace => Box::new(move || blob_ops::transpose_in_place(&mut y).expect("square")),
        What::Axpy => Box::new(move || blob_ops::axpy(&mut y, 2, whole, Part::Data).expect("added")),
        What::AddFlushed => Box::new(move || {
            blob_ops::add_flush_subnormals(&mut y, whole, Part::Data).expect("added");
        }),
        What::Clear => Box::new(move || blob_ops::fill(&mut y, 0, Part::Data).expect("cleared")),
        What::Update => {
            blob_ops::fill(&mut y, 1, Part::Diff).expect("memory");
            Box::new(move || blob_ops::update(&mut y).expect("updated"))
        }
        _ => unreachable!("it is not in place"),
    }
}

fn like(whole: &AnyBlob) -> AnyBlob {
    blob(whole.shape().dims(), whole.dtype())
}

fn histogram(whole: &AnyBlob) -> Box<dyn FnMut() + Send + '_> {
    let found = blob_ops::stats(whole, Part::Data).expect("statistics");
    let end = |end: Option<Scalar>| end.map_or(0.0, Scalar::as_f64);
    let (low, high) = (end(found.min), end(found.max));
    Box::new(move || {
        let bytes = whole.data().bytes().expect("no writer");
        let mut stats = StatsAccumulator::new(whole.dtype());
        let mut bins = Histogram::new(whole.dtype(), low, high, 64).expect("a range");
        for piece in bytes.chunks(1 << 20) {
            stats.update(piece);
            bins.update(piece);
        }
        black_box((stats.finish(), bins.counts()));
    })
}
