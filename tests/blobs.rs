//! Compares blobs with tables of the real Caffe: the state after reshaping, sharing and copying, and every operation on
//! blobs that are empty, untouched or of five axes. Where Caffe aborts, crashes or overruns a buffer, our result is
//! asserted.

use std::sync::Arc;

use blob_core::{AnyBlob, Blob, DType, Error, Part, Shape};
use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, Queue, SharedMem};

use crate::caffe::dims;
use crate::support::{data, report, rows};

fn shape(cell: &str) -> Shape {
    let extents = dims(cell).into_iter().map(|d| usize::try_from(d).expect("an extent"));
    Shape::new(extents.collect::<Vec<_>>()).expect("a shape")
}

fn zeros(dims: &[usize]) -> Blob<f32> {
    Blob::new(Shape::new(dims).expect("a shape")).expect("a blob")
}

/// A memory with these elements, such as Caffe's `set_cpu_data` would get.
fn external(elements: &[f32]) -> SharedMem {
    SharedMem::from(elements.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>())
}

fn first(blob: &Blob<f32>) -> f32 {
    blob.data().expect("data")[0]
}

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(cell: &str) -> T {
    cell.parse().expect("a number")
}

#[test]
fn reshaping_and_sharing_leave_what_caffe_leaves() {
    let table = rows(&data("caffe/tables/reshape_memory.tsv"));
    let (sequence, rest) = table.split_at(7);
    reshape_sequence(sequence);
    let (shared, rest) = rest.split_at(2);
    outgrow_a_shared_memory(shared);
    let (external, rest) = rest.split_at(2);
    outgrow_an_external_memory(external);
    let (seen, rest) = rest.split_at(2);
    what_sharers_see(seen);
    let (refused, copies) = rest.split_at(2);
    what_is_refused(refused);
    what_a_copy_takes_along(copies);
    assert_eq!(table.len(), 17);
    report("caffe reshape and share: 17 rows, 2 of them upstream bugs answered our way");
}

fn reshape_sequence(rows: &[Vec<String>]) {
    let mut blob = zeros(&[2, 3]);
    blob.data_mut().expect("data").copy_from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    blob.diff_mut().expect("diff").fill(10.0);
    let mut before = None;
    for row in rows {
        blob.reshape(shape(&row[1])).expect("a small shape");
        let memory = blob.memory(Part::Data).clone();
        assert_eq!(blob.count(), number::<usize>(&row[2]), "{row:?}");
        assert_eq!(memory.len(), number::<usize>(&row[3]), "{row:?}");
        if let Some(before) = before.replace(memory.clone()) {
            assert_eq!(memory.ptr_eq(&before), row[4] == "1", "{row:?}");
        }
        let elements = blob.data().expect("data");
        // For a blob without elements, Caffe reads arbitrary memory.
        if let (Some(first), Some(last)) = (elements.first(), elements.last()) {
            assert_eq!(*first, number::<f32>(&row[5]), "{row:?}");
            assert_eq!(*last, number::<f32>(&row[6]), "{row:?}");
        }
        let asum: f32 = blob.diff().expect("diff").iter().map(|x| x.abs()).sum();
        assert_eq!(asum, number::<f32>(&row[7]), "{row:?}");
    }
}

/// In Caffe the capacity stays that of the blob's own lost buffer: 50 elements for a buffer of 10. Ours is that of the
/// memory.
fn outgrow_a_shared_memory(rows: &[Vec<String>]) {
    let mut b = zeros(&[10]);
    b.data_mut().expect("data").fill(5.0);
    let mut a = zeros(&[100]);
    a.reshape(shape("10")).expect("a shape");
    a.share(&b, Part::Data).expect("equal counts");
    assert_eq!(a.count(), number::<usize>(&rows[0][2]));
    assert_eq!(a.memory(Part::Data).len(), number::<usize>(&rows[0][3]));
    assert_eq!(first(&a), number::<f32>(&rows[0][5]));
    a.reshape(shape(&rows[1][1])).expect("a shape");
    assert_fresh(&a, &rows[1]);
    assert_eq!(*b.data().expect("data"), [5.0; 10]);
}

fn outgrow_an_external_memory(rows: &[Vec<String>]) {
    let mut a = zeros(&[100]);
    a.reshape(shape("10")).expect("a shape");
    let memory = external(&[1.0; 10]);
    a.replace_memory(memory.clone(), Part::Data).expect("long enough");
    assert_eq!(a.count(), number::<usize>(&rows[0][2]));
    assert_eq!(a.memory(Part::Data).len(), number::<usize>(&rows[0][3]));
    assert_eq!(first(&a), number::<f32>(&rows[0][5]));
    let asum: f32 = a.diff().expect("diff").iter().sum();
    assert_eq!(asum, number::<f32>(&rows[0][7]));
    a.reshape(shape(&rows[1][1])).expect("a shape");
    assert_fresh(&a, &rows[1]);
    assert_eq!(*memory.host(0..40).expect("bytes"), *external(&[1.0; 10]).host(0..40).expect("bytes"));
}

/// The row has fewer bytes than the count needs.
fn assert_fresh(blob: &Blob<f32>, row: &[String]) {
    assert!(row[0].contains("UPSTREAM BUG") && number::<usize>(&row[3]) < 4 * number::<usize>(&row[2]));
    assert_eq!(blob.count(), number::<usize>(&row[2]));
    assert!(blob.memory(Part::Data).len() >= blob.byte_len() && blob.memory(Part::Diff).len() >= blob.byte_len());
    assert_eq!(*blob.data().expect("data"), vec![0.0; blob.count()]);
}

fn what_sharers_see(rows: &[Vec<String>]) {
    let (mut a, mut b) = (zeros(&[4]), zeros(&[2, 2]));
    a.share(&b, Part::Data).expect("equal counts");
    b.data_mut().expect("data")[1] = 9.0;
    assert_eq!(a.part(Part::Data).at::<f32>(&[1]).expect("an element"), number::<f32>(&rows[0][5]));
    let bytes: Vec<u8> = [7.0f32; 4].iter().flat_map(|x| x.to_ne_bytes()).collect();
    a.memory(Part::Data).adopt(bytes).expect("the length");
    assert_eq!(first(&b), number::<f32>(&rows[1][5]));
}

fn what_is_refused(rows: &[Vec<String>]) {
    assert!(rows.iter().all(|row| row[1] == "DIE"));
    let b = zeros(&[2, 2]);
    match zeros(&[5]).share(&b, Part::Data) {
        Err(Error::CountMismatch { wanted, got, .. }) => {
            assert!(rows[0][2].contains(&format!("({} vs. {})", wanted.count(), got.count())));
        }
        other => panic!("{other:?}"),
    }
    let refused = zeros(&[2, 2]).copy_from(&zeros(&[4]), Part::Data);
    assert!(matches!(refused, Err(Error::ShapeMismatch { axis: 0, .. })));
}

fn what_a_copy_takes_along(rows: &[Vec<String>]) {
    let mut b = zeros(&[4]);
    b.data_mut().expect("data").fill(3.0);
    b.diff_mut().expect("diff").fill(4.0);
    let mut a = zeros(&[2, 2]);
    a.diff_mut().expect("diff").fill(8.0);
    a.copy_from_reshaped(&b, Part::Data).expect("a copy");
    let told = |a: &Blob<f32>| format!("data0={} diff0={}", first(a), a.diff().expect("diff")[0]);
    let shape = a.shape().shape_string();
    assert!(rows[0][0].ends_with(&format!(": {} shape={shape}", told(&a))), "{rows:?}");
    a.copy_from_reshaped(&b, Part::Diff).expect("a copy");
    assert!(rows[1][0].ends_with(&format!(": {}", told(&a))), "{rows:?}");
}

/// How our result relates to Caffe's.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Answer {
    Equal,
    /// Caffe aborts or crashes and we have an ordinary result; or Caffe returns an element that does not exist.
    Ours,
    /// An operation that another crate tests, or Caffe's device mirror of the shape.
    Elsewhere,
    /// Caffe's refusals do not compile here.
    Unsayable,
}

#[test]
fn every_operation_on_odd_blobs_is_ordinary_or_a_typed_error() {
    let queue = Loopback::new(Mode::Deferred).queue().expect("a queue");
    let mut answers = Vec::new();
    let table = rows(&data("caffe/tables/edge_ops.tsv"));
    for row in &table {
        let [blob, op, result, ..] = &row[..] else { panic!("{row:?}") };
        let answer = match blob.as_str() {
            "Blob<int>{3}" | "Reshape{2,3} diff touched, data not" => Answer::Elsewhere,
            blob => edge_op(odd_blob(blob), op, result, &queue),
        };
        answers.push(answer);
    }
    let counts = [Answer::Equal, Answer::Ours, Answer::Elsewhere, Answer::Unsayable]
        .map(|kind| answers.iter().filter(|answer| **answer == kind).count());
    assert_eq!(counts, [58, 18, 39, 6]);
    let [equal, ours, elsewhere, unsayable] = counts;
    report(&format!(
        "caffe edge cases: {} rows, {equal} equal, {ours} answered where Caffe dies or reads what is not there, {elsewhere} of other crates, {unsayable} that cannot be written",
        table.len()
    ));
}

fn odd_blob(name: &str) -> AnyBlob {
    match name {
        // A blob always has a shape here; this one has no elements either.
        "Blob()" | "Reshape{0,5} fresh" => zeros(if name == "Blob()" { &[0] } else { &[0, 5] }),
        "Reshape{}" => zeros(&[]),
        "Reshape{3} then {0,5}" => {
            let mut blob = zeros(&[3]);
            blob.data_mut().expect("data").fill(1.0);
            blob.reshape(shape("0,5")).expect("a shape");
            blob
        }
        "Reshape{2,3} untouched" => zeros(&[2, 3]),
        "Reshape 5 axes" => zeros(&[1, 2, 1, 2, 1]),
        other => panic!("{other}: a blob that is not known here"),
    }
    .into()
}

/// Caffe's result, if it did not crash.
fn answered(result: &str) -> Option<&str> {
    (result != "DIE").then_some(result)
}

fn edge_op(mut blob: AnyBlob, op: &str, result: &str, queue: &Arc<dyn Queue>) -> Answer {
    let caffe = answered(result);
    match op {
        "cpu_data" => ordinary(caffe, blob.data().elements::<f32>().map(|d| d.len()), blob.count()),
        "cpu_diff" => ordinary(caffe, blob.diff().elements::<f32>().map(|d| d.len()), blob.count()),
        "mutable_cpu_data" => {
            let count = blob.count();
            ordinary(caffe, blob.data_mut().elements::<f32>().map(|d| d.len()), count)
        }
        "gpu_data" => ordinary(caffe, blob.data().device(queue).map(|d| d.arg().range().len()), blob.byte_len()),
        "CopyFrom(self)" => {
            let mut same = AnyBlob::new(blob.shape().clone(), blob.dtype()).expect("a blob");
            same.share(&blob, Part::Data).expect("equal counts");
            ordinary(caffe, same.copy_from(&blob, Part::BOTH), ())
        }
        "Blob().CopyFrom(b,reshape)" => {
            let mut fresh = AnyBlob::new(shape("0"), DType::F32).expect("a blob");
            fresh.copy_from_reshaped(&blob, Part::Data).expect("a copy");
            let told = format!("ok {}", fresh.shape().shape_string());
            assert!(caffe.is_none_or(|caffe| caffe.starts_with(&told)), "{told}");
            ordinary(caffe, Ok(fresh.shape().clone()), blob.shape().clone())
        }
        "like.ShareData(b)" => {
            let mut like = AnyBlob::new(blob.shape().clone(), blob.dtype()).expect("a blob");
            ordinary(caffe, like.share(&blob, Part::Data), ())
        }
        "data_at({})" => element(caffe, blob.data().at::<f32>(&[]), blob.count()),
        "set_cpu_data(NULL)" => Answer::Unsayable,
        "gpu_shape" => Answer::Elsewhere,
        _ if op.starts_with("asum") || op.starts_with("sumsq") || op.starts_with("scale") => Answer::Elsewhere,
        _ if op == "Update" || op.contains("Proto") => Answer::Elsewhere,
        _ => shape_op(blob.shape(), op, caffe),
    }
}

/// An operation that works on every blob.
fn ordinary<T: PartialEq + std::fmt::Debug>(caffe: Option<&str>, got: Result<T, Error>, expected: T) -> Answer {
    assert_eq!(got.expect("an ordinary answer"), expected);
    caffe.map_or(Answer::Ours, |_| Answer::Equal)
}

/// Access to an element, which fails if there are no elements.
fn element(caffe: Option<&str>, got: Result<f32, Error>, count: usize) -> Answer {
    match (got, caffe) {
        (Ok(got), Some(caffe)) if count > 0 => {
            assert_eq!(got, number::<f32>(caffe));
            Answer::Equal
        }
        (Err(Error::OffsetOutOfRange { .. }), None) if count == 0 => Answer::Equal,
        (Err(Error::OffsetOutOfRange { .. }), Some(_)) if count == 0 => Answer::Ours,
        (got, caffe) => panic!("{got:?}, Caffe {caffe:?}"),
    }
}

fn shape_op(shape: &Shape, op: &str, caffe: Option<&str>) -> Answer {
    let one_too_many = vec![0; shape.num_axes() + 1];
    let (one, none) = (1, 0);
    let got = match op {
        "offset({})" => shape.offset(&[]),
        "offset(0)" => shape.legacy_pad_right().and_then(|padded| Shape::new(padded)?.offset(&[0; 4])),
        "offset({0,..,0} one too many)" => shape.offset(&one_too_many),
        "num" => shape.legacy_pad_right().map(|padded| padded[0]),
        "LegacyShape(4)" => shape.legacy_extent(4),
        "LegacyShape(-5)" => shape.legacy_extent(-5),
        "CanonicalAxisIndex(9)" => shape.axis(9),
        "CanonicalAxisIndex(-9)" => shape.axis(-9),
        "shape(-1)" => shape.extent(-1),
        "count(1,0)" => shape.count_range(one..none),
        "count(0,40)" => shape.count_range(0..40),
        "Reshape(33 axes)" => Shape::new([1; 33]).map(|shape| shape.count()),
        other => panic!("{other}: an operation that is not known here"),
    };
    match (got, caffe.map(number::<usize>)) {
        (Ok(got), Some(caffe)) if got == caffe => Answer::Equal,
        (Err(_), None) => Answer::Equal,
        // The first element of an empty blob; and `Blob()`, which here has one empty axis.
        (Err(Error::IndexOutOfRange { .. }), Some(0)) if shape.count() == 0 => Answer::Ours,
        (Ok(0), None | Some(1)) if shape.dims() == [0] => Answer::Ours,
        (got, caffe) => panic!("{shape}, {op}: {got:?}, Caffe {caffe:?}"),
    }
}
