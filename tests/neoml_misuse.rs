//! Misuses of NeoML's windows, buffers, indices and copies (`malformed_release.jsonl`), and the outcome of each here:
//! a compiler error, a typed error, or ordinary use. The table has every row of these subjects.

mod windows;

use blob_core::{AnyBlob, DType, Error, Part};
use synced_mem::Device;
use synced_mem::loopback::{Loopback, Mode};

use crate::support::blobs::{counting, shape};
use crate::support::neoml::table;
use crate::support::report;

/// The outcome of a row.
enum Outcome {
    /// Such a program does not compile, for this reason.
    Impossible(&'static str),
    /// An error of this kind.
    Refused(fn() -> Error, fn(&Error) -> bool),
    /// The call works, with this meaning.
    Ordinary(fn()),
}

use Outcome::{Impossible, Ordinary, Refused};

const UNSIGNED: &str = "positions, lengths and indices are unsigned";
const REFERENCE: &str = "a reference is never null";
const METHOD: &str = "a blob that is no window has no such method";
const GUARD: &str = "a guard is given back by dropping it, once, and cannot be used after that";

/// The subjects of this table; rows of others are about merging, transposing, arithmetic, creation and files.
const SUBJECTS: [&str; 9] = [
    "copy_from", "copy_to", "get_data", "dim_size", "get_buffer", "CDnnBlobBuffer", "window", "reinterpret",
    "moved-from blob",
];

/// Other beginnings of rows of these subjects.
const OTHERS: [&str; 6] = [
    "clear_object: num = object count",
    "clear_object: num = -1",
    "release_buffer of a pointer never given",
    "two buffers released in FIFO order (cpu)",
    "write-only buffer, exchange=false, released with exchange=false: are the writes kept? (cpu)",
    "two engines: copy_from works across",
];

fn ints(dims: &[usize]) -> AnyBlob {
    AnyBlob::new(shape(dims), DType::I32).unwrap()
}

fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Memory(synced_mem::Error::Conflict { .. }))
}

/// The table's outcome of a row, by name.
fn outcome(case: &str) -> Option<Outcome> {
    copies(case)
        .or_else(|| reinterpreting_and_moving(case))
        .or_else(|| indices(case))
        .or_else(|| refused_buffers(case))
        .or_else(|| ordinary_buffers(case))
        .or_else(|| windows::refused(case))
        .or_else(|| windows::ordinary(case))
}

fn copies(case: &str) -> Option<Outcome> {
    Some(match case {
        "copy_from: different dims, same size" => Refused(
            || counting(&[2, 3]).copy_from(&counting(&[3, 2]), Part::Data).unwrap_err(),
            |e| matches!(e, Error::ShapeMismatch { axis: 0, wanted, got, .. } if wanted.dims() == [2, 3] && got.dims() == [3, 2]),
        ),
        "copy_from: types differ" => Refused(
            || counting(&[2]).copy_from(&ints(&[2]), Part::Data).unwrap_err(),
            |e| matches!(e, Error::WrongDType { wanted: DType::F32, got: DType::I32, .. }),
        ),
        "copy_from: null" | "copy_from a null pointer of data" => Impossible(REFERENCE),
        "copy_to<int> of a float blob" => Refused(
            || counting(&[2]).data().elements::<i32>().unwrap_err(),
            |e| matches!(e, Error::WrongDType { wanted: DType::I32, got: DType::F32, .. }),
        ),
        "copy_to with a size greater than the blob" => Refused(
            || counting(&[2]).data().range(0..3).unwrap_err(),
            |e| matches!(e, Error::ElementsOutOfRange { range, count: 2, .. } if *range == (0..3)),
        ),
        "copy_to with a negative size" => Impossible(UNSIGNED),
        "copy_from between overlapping windows of one parent (forward overlap)" => Refused(
            || {
                let blob = counting(&[10, 4]);
                let (mut to, from) = (blob.make_window(8).unwrap(), blob.make_window(8).unwrap());
                to.set_pos(1).unwrap();
                let error = to.as_mut().copy_from(from.as_ref(), Part::Data).unwrap_err();
                assert_eq!(
                    *blob.data().elements::<f32>().unwrap(),
                    *counting(&[10, 4]).data().elements::<f32>().unwrap()
                );
                error
            },
            is_conflict,
        ),
        _ => return None,
    })
}

fn reinterpreting_and_moving(case: &str) -> Option<Outcome> {
    Some(match case {
        "two engines: copy_from works across" => Ordinary(across_devices),
        "moved-from blob: used again" => Impossible("a value that was moved cannot be named"),
        "reinterpret: other size" => Refused(
            || counting(&[2, 3]).reinterpret(shape(&[7])).unwrap_err(),
            |e| matches!(e, Error::CountMismatch { wanted, got, .. } if wanted.count() == 6 && got.count() == 7),
        ),
        "reinterpret: description with no type makes the blob invalid" => {
            Impossible("a shape has no type, and no dtype is invalid")
        }
        _ => return None,
    })
}

fn across_devices() {
    let queues = [Loopback::new(Mode::Deferred), Loopback::new(Mode::Immediate)].map(|device| device.queue().unwrap());
    let (mut source, mut copy) = (counting(&[5]), counting(&[5]));
    drop(source.data_mut().device(&queues[0]).unwrap());
    drop(copy.data_mut().device(&queues[1]).unwrap());
    copy.copy_from(&source, Part::Data).unwrap();
    assert_eq!(*copy.data().elements::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0]);
}

fn indices(case: &str) -> Option<Outcome> {
    Some(match case {
        "get_data({0,5}) where BatchWidth is 3 but the flat offset is inside" => Refused(
            || counting(&[2, 3, 4]).data().at::<f32>(&[0, 5]).unwrap_err(),
            |e| matches!(e, Error::IndexOutOfRange { axis: 1, index: 5, extent: 3, .. }),
        ),
        "get_data({0,0,0,0,0,0,-5})" | "clear_object: num = -1" => Impossible(UNSIGNED),
        "get_data({2})" => Refused(
            || counting(&[2, 3]).data().at::<f32>(&[2]).unwrap_err(),
            |e| matches!(e, Error::IndexOutOfRange { axis: 0, index: 2, extent: 2, .. }),
        ),
        "get_data of eight positions" => Refused(
            || counting(&[1; 7]).data().at::<f32>(&[0; 8]).unwrap_err(),
            |e| matches!(e, Error::TooManyIndices { got: 8, .. }),
        ),
        "dim_size(7)" => Refused(
            || counting(&[1; 7]).shape().extent(7).unwrap_err(),
            |e| matches!(e, Error::AxisOutOfRange { axis: 7, .. }),
        ),
        "clear_object: num = object count" => Refused(
            || {
                let mut blob = counting(&[1, 2, 3, 1, 1, 1, 2]);
                let objects = blob.shape().collapse(..3).unwrap();
                blob.reinterpret(objects).unwrap();
                assert_eq!(*blob.window(5..6).unwrap().part(Part::Data).elements::<f32>().unwrap(), [10.0, 11.0]);
                blob.window(6..7).unwrap_err()
            },
            |e| matches!(e, Error::StepsOutOfRange { start: 6, end: 7, extent: 6, .. }),
        ),
        _ => return None,
    })
}

fn refused_buffers(case: &str) -> Option<Outcome> {
    Some(match case {
        "get_buffer: pos + size over the blob" => Refused(
            || counting(&[2]).data_mut().range(1..3).unwrap_err(),
            |e| matches!(e, Error::ElementsOutOfRange { range, count: 2, .. } if *range == (1..3)),
        ),
        "get_buffer: pos = -1" => Impossible(UNSIGNED),
        #[expect(clippy::reversed_empty_ranges, reason = "the least that a range can be")]
        "get_buffer: negative size" => Refused(
            || counting(&[9]).data().range(5..4).unwrap_err(),
            |e| matches!(e, Error::ElementsOutOfRange { range, count: 9, .. } if *range == (5..4)),
        ),
        "get_buffer: pos + size overflows int" => Refused(
            || counting(&[2]).data_mut().range(1..usize::MAX).unwrap_err(),
            |e| matches!(e, Error::ElementsOutOfRange { range, count: 2, .. } if range.end == usize::MAX),
        ),
        "get_buffer<double> of a float blob (no type check)" => Refused(
            || counting(&[2]).data().range(0..1).unwrap().elements::<f64>().unwrap_err(),
            |e| matches!(e, Error::WrongDType { wanted: DType::F64, got: DType::F32, .. }),
        ),
        "CDnnBlobBuffer: range outside the blob gives a null buffer, then destroyed" => Refused(
            || counting(&[2]).diff().range(3..4).unwrap_err(),
            |e| matches!(e, Error::ElementsOutOfRange { range, count: 2, .. } if *range == (3..4)),
        ),
        "release_buffer of a pointer never given"
        | "CDnnBlobBuffer: use after Close"
        | "CDnnBlobBuffer: Close twice" => Impossible(GUARD),
        _ => return None,
    })
}

fn ordinary_buffers(case: &str) -> Option<Outcome> {
    Some(match case {
        "two buffers released in FIFO order (cpu)" => Ordinary(|| {
            let blob = counting(&[2, 2]);
            let (first, second) = (
                blob.data().range(0..3).unwrap().elements::<f32>().unwrap(),
                blob.data().range(2..4).unwrap().elements::<f32>().unwrap(),
            );
            drop(first);
            assert_eq!(*second, [2.0, 3.0]);
            let (mut a, mut b) = (blob.make_window(1).unwrap(), blob.make_window(1).unwrap());
            drop(second);
            b.set_pos(1).unwrap();
            let (mut first, mut second) =
                (a.part_mut(Part::Data).elements::<f32>().unwrap(), b.part_mut(Part::Data).elements::<f32>().unwrap());
            first[1] = 8.0;
            drop(first);
            second[0] = 9.0;
            drop(second);
            assert_eq!(*blob.data().elements::<f32>().unwrap(), [0.0, 8.0, 9.0, 3.0]);
        }),
        "write-only buffer, exchange=false, released with exchange=false: are the writes kept? (cpu)" => {
            Ordinary(|| {
                let mut blob = counting(&[2]);
                blob.data_mut().range(0..2).unwrap().overwrite::<f32>().unwrap().copy_from_slice(&[42.0, 43.0]);
                let queue = Loopback::new(Mode::Deferred).queue().unwrap();
                drop(blob.data_mut().device(&queue).unwrap());
                assert_eq!(*blob.data().elements::<f32>().unwrap(), [42.0, 43.0]);
            })
        }
        "CDnnBlobBuffer: index past the end (release build)" => Ordinary(|| {
            let blob = counting(&[2]);
            let buffer = blob.data().range(0..2).unwrap().elements::<f32>().unwrap();
            assert_eq!((buffer.get(1), buffer.get(2)), (Some(&1.0), None));
        }),
        _ => return None,
    })
}

#[test]
fn every_misuse_is_impossible_refused_or_ordinary() {
    let rows = table("cpp/malformed_release.jsonl");
    let [mut impossible, mut refused, mut ordinary, mut others] = [0; 4];
    for row in &rows {
        let case = row["case"].as_str().unwrap();
        let ours = SUBJECTS.iter().any(|subject| case.starts_with(subject)) || OTHERS.contains(&case);
        let outcome = outcome(case);
        assert_eq!(outcome.is_some(), ours, "{case}");
        match outcome {
            None => others += 1,
            Some(Impossible(reason)) => {
                println!("{case}: impossible, {reason}");
                impossible += 1;
            }
            Some(Refused(misuse, is_named)) => {
                let error = misuse();
                println!("{case}: {error}");
                assert!(is_named(&error), "{case}: {error:?}");
                refused += 1;
            }
            Some(Ordinary(check)) => {
                check();
                ordinary += 1;
            }
        }
    }
    assert_eq!((rows.len(), impossible, refused, ordinary, others), (113, 17, 20, 12, 64));
    report(&format!(
        "neoml misuse of windows, buffers, indices and copies: {impossible} cannot be written, {refused} are errors that \
         name what was wanted and got, {ordinary} ordinary ({others} rows are about other things)"
    ));
}
