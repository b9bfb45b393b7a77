//! Compares shapes, axes, counts and offsets with tables of the real Caffe, and NeoML's dims with the real NeoML. Where
//! the original accepts arguments out of bounds, or crashes at its 32-bit counts, our result is asserted, and the row
//! is counted separately. So are rows where Caffe crashes at a negative extent, index or start, which a `usize` cannot
//! be.

use blob_core::{BlobDim, Dims7, Error, Shape};

use crate::caffe::dims;
use crate::support::{data, report, rows};

/// Caffe's result; `None` if it crashed.
fn answer(cell: &str) -> Option<usize> {
    (cell != "DIE").then(|| cell.parse().expect("a count"))
}

/// The numbers as `usize`; `None` if one is negative.
fn unsigned(numbers: &[i64]) -> Option<Vec<usize>> {
    numbers.iter().map(|&n| usize::try_from(n).ok()).collect()
}

fn shape(cell: &str) -> Shape {
    Shape::new(unsigned(&dims(cell)).expect("no negative extent")).expect("a shape")
}

fn number(cell: &str) -> i64 {
    cell.parse().expect("a number")
}

/// The number of rows by outcome.
#[derive(Default)]
struct Tally {
    rows: usize,
    answered_our_way: usize,
    negative: usize,
}

impl Tally {
    fn report(&self, what: &str) {
        let mut line = format!("{what}: {} rows", self.rows);
        for (count, kind) in [
            (self.answered_our_way, "upstream bugs answered our way"),
            (self.negative, "with a negative number, which no usize can be"),
        ] {
            if count > 0 {
                line += &format!(", {count} of them {kind}");
            }
        }
        report(&line);
    }

    fn counts(&self) -> (usize, usize, usize) {
        (self.rows, self.answered_our_way, self.negative)
    }
}

#[test]
fn shapes_are_caffes() {
    let mut tally = Tally::default();
    for row in rows(&data("caffe/tables/shape.tsv")) {
        tally.rows += 1;
        let Some(extents) = unsigned(&dims(&row[1])) else {
            assert_eq!(row[2], "DIE", "{row:?}");
            tally.negative += 1;
            continue;
        };
        match (Shape::new(&extents), row[2].as_str()) {
            (Ok(shape), "ok") => check_shape(&shape, &row),
            (Err(Error::TooManyAxes { got, .. }), "DIE") => {
                assert_eq!(got, extents.len());
                assert!(row[3].contains("kMaxBlobAxes"), "{row:?}");
            }
            (Ok(shape), "DIE") => {
                assert!(row[3].contains("exceeds INT_MAX"), "{row:?}");
                assert_eq!(shape.count(), extents.iter().product::<usize>());
                tally.answered_our_way += 1;
            }
            (got, caffe) => panic!("{row:?}: {got:?}, Caffe {caffe}"),
        }
    }
    assert_eq!(tally.counts(), (144, 1, 2));
    tally.report("caffe shapes");
}

fn check_shape(shape: &Shape, row: &[String]) {
    assert_eq!(shape.num_axes().to_string(), row[3], "{row:?}");
    assert_eq!(shape.count().to_string(), row[4], "{row:?}");
    assert_eq!(shape.shape_string(), row[5]);
    let accessors: Vec<Option<usize>> = row[6..10].iter().map(|cell| answer(cell)).collect();
    match shape.legacy_pad_right() {
        Ok(padded) => assert_eq!(padded.map(Some).as_slice(), accessors, "{row:?}"),
        Err(Error::TooManyAxesForLegacy { .. }) => assert_eq!(accessors, [None; 4], "{row:?}"),
        Err(error) => panic!("{row:?}: {error}"),
    }
}

#[test]
fn axes_are_caffes() {
    let table = rows(&data("caffe/tables/axis.tsv"));
    for row in &table {
        let [_, dims, index, canonical, extent, legacy] = &row[..] else { panic!("{row:?}") };
        let shape = shape(dims);
        let index: i32 = index.parse().expect("an index");
        check_axis(shape.axis(index), canonical, row);
        check_axis(shape.extent(index), extent, row);
        if let Ok(index) = usize::try_from(index) {
            check_axis(shape.axis(index), canonical, row);
            check_axis(shape.extent(index), extent, row);
        }
        match (shape.legacy_extent(index), answer(legacy)) {
            (Ok(got), Some(expected)) => assert_eq!(got, expected, "{row:?}"),
            (Err(Error::TooManyAxesForLegacy { shape: of, .. }), None) => assert!(of == shape && of.num_axes() > 4),
            (Err(Error::LegacyAxisOutOfRange { axis, .. }), None) => {
                assert!(axis == index && !(-4..4).contains(&axis) && shape.num_axes() <= 4, "{row:?}");
            }
            (got, expected) => panic!("{row:?}: {got:?}, Caffe {expected:?}"),
        }
    }
    assert_eq!(table.len(), 698);
    report(&format!("caffe axes: {} rows", table.len()));
}

fn check_axis(got: Result<usize, Error>, cell: &str, row: &[String]) {
    match (got, answer(cell)) {
        (Ok(got), Some(expected)) => assert_eq!(got, expected, "{row:?}"),
        (Err(Error::AxisOutOfRange { axis, .. }), None) => assert_eq!(axis, number(&row[2])),
        (got, expected) => panic!("{row:?}: {got:?}, Caffe {expected:?}"),
    }
}

#[test]
fn counts_of_ranges_are_caffes() {
    let mut tally = Tally::default();
    for row in rows(&data("caffe/tables/count.tsv")) {
        tally.rows += 1;
        let (shape, expected) = (shape(&row[1]), answer(&row[4]));
        let end = (row[3] != "-").then(|| number(&row[3]));
        let bounds = [number(&row[2]), end.unwrap_or(0)];
        let Some([start, end]) = unsigned(&bounds).as_deref().map(|b| [b[0], b[1]]) else {
            assert_eq!(expected, None, "{row:?}");
            tally.negative += 1;
            continue;
        };
        let got = match row[3].as_str() {
            "-" => shape.count_range(start..),
            _ => shape.count_range(start..end),
        };
        match (got, expected) {
            (Ok(got), Some(expected)) => assert_eq!(got, expected, "{row:?}"),
            (Err(Error::AxesOutOfRange { start: named, .. }), None) => assert_eq!(named, start),
            (got, expected) => panic!("{row:?}: {got:?}, Caffe {expected:?}"),
        }
    }
    assert_eq!(tally.counts(), (1770, 0, 469));
    tally.report("caffe counts");
}

#[test]
fn offsets_are_caffes() {
    let mut tally = Tally::default();
    for row in rows(&data("caffe/tables/offset_nd.tsv")) {
        tally.rows += 1;
        let (shape, expected) = (shape(&row[1]), answer(&row[3]));
        let Some(index) = unsigned(&dims(&row[2])) else {
            assert_eq!(expected, None, "{row:?}");
            tally.negative += 1;
            continue;
        };
        match (shape.offset(&index), expected) {
            (Ok(got), Some(expected)) => {
                assert_eq!(got, expected, "{row:?}");
                if shape.count() > 0 {
                    let full = shape.index(got).expect("an element");
                    assert!(full.starts_with(&index), "{row:?}: {full:?}");
                }
            }
            (Err(Error::TooManyIndices { got, .. }), None) => {
                assert!(got == index.len() && got > shape.num_axes(), "{row:?}");
            }
            (Err(Error::IndexOutOfRange { axis, extent, .. }), None) => {
                assert_eq!(extent, shape.dims()[axis], "{row:?}");
                assert!(index[axis] >= extent, "{row:?}");
            }
            (got, expected) => panic!("{row:?}: {got:?}, Caffe {expected:?}"),
        }
    }
    assert_eq!(tally.counts(), (358, 0, 7));
    tally.report("caffe offsets");
}

/// Caffe's `offset(n, c, h, w)`.
fn legacy_offset(shape: &Shape, index: [usize; 4]) -> Result<usize, Error> {
    Shape::new(shape.legacy_pad_right()?)?.offset(&index)
}

#[test]
fn legacy_offsets_are_caffes_inside_the_bounds_and_errors_outside() {
    let mut tally = Tally::default();
    for row in rows(&data("caffe/tables/offset_4.tsv")) {
        tally.rows += 1;
        let shape = shape(&row[1]);
        // Caffe's offset can be negative.
        let expected = (row[6] != "DIE").then(|| number(&row[6]));
        let in_bounds = row[7] == "1";
        // Caffe compares with `<=`, and has no lower bound except for n.
        let is_upstream_bug = expected.is_some() && !in_bounds;
        tally.answered_our_way += usize::from(is_upstream_bug);
        let indices: Vec<i64> = row[2..6].iter().map(|cell| number(cell)).collect();
        let Some(&[n, c, h, w]) = unsigned(&indices).as_deref() else {
            assert!(!in_bounds, "{row:?}");
            tally.negative += usize::from(!is_upstream_bug);
            continue;
        };
        match (legacy_offset(&shape, [n, c, h, w]), in_bounds) {
            (Ok(got), true) => assert_eq!(i64::try_from(got).ok(), expected, "{row:?}"),
            (Err(Error::IndexOutOfRange { axis, index, extent, .. }), false) => {
                let padded = shape.legacy_pad_right().expect("up to four axes");
                assert_eq!((index, extent), ([n, c, h, w][axis], padded[axis]), "{row:?}");
            }
            (Err(Error::TooManyAxesForLegacy { .. }), false) => {
                assert!(shape.num_axes() > 4 && expected.is_none(), "{row:?}");
            }
            (got, in_bounds) => panic!("{row:?}: {got:?}, in bounds: {in_bounds}"),
        }
    }
    assert_eq!(tally.counts(), (555, 197, 138));
    tally.report("caffe legacy offsets");
}

/// Our counterpart of each creation function of NeoML; a list of nine extents is an error.
fn creation(make: &str) -> Result<Dims7, Error> {
    match make {
        "CreateVector(5)" => Dims7::from_leading(&[5]),
        "CreateMatrix(3,4)" => Dims7::from_leading(&[3, 4]),
        "CreateTensor({2,3,4})" => Dims7::from_leading(&[2, 3, 4]),
        "CreateTensor({})" => Dims7::from_leading(&[]),
        "CreateDataBlob(2,3,4)" => Dims7::new([2, 3, 1, 1, 1, 1, 4]),
        "CreateListBlob(2,3,4,5)" => Dims7::new([2, 3, 4, 1, 1, 1, 5]),
        "Create2DImageBlob(2,3,4,5,6)" => Dims7::new([2, 3, 1, 4, 5, 1, 6]),
        "Create3DImageBlob(2,3,4,5,6,7)" => Dims7::new([2, 3, 1, 4, 5, 6, 7]),
        "CreateBlob(desc{2,3,4})" | "CreateBlob(int,desc{2,3,4})" => Dims7::from_trailing(&[2, 3, 4]),
        "CreateBlob(desc{1..9}) nine values" => Dims7::from_trailing(&[1, 2, 3, 4, 5, 6, 7, 8, 9]),
        other => panic!("{other}: a creation function that is not known here"),
    }
}

#[test]
fn dims_are_neomls() {
    let text = std::fs::read_to_string(data("neoml/cpp/descriptors.jsonl")).expect("readable");
    let (mut made, mut our_way, mut offsets, mut about_blobs) = (0, 0, 0, 0);
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let list = |key: &str| -> Vec<usize> { serde_json::from_value(row[key].clone()).expect("a list of extents") };
        if let Some(make) = row["make"].as_str() {
            match creation(make) {
                Ok(dims) => assert_eq!(dims.dims().as_slice(), list("dims"), "{make}"),
                Err(Error::TooManyExtents { got, .. }) => {
                    assert!(got == 9 && make.contains("nine"), "{make}");
                    our_way += 1;
                }
                Err(error) => panic!("{make}: {error}"),
            }
            made += 1;
        } else if row.get("get_data_offset").is_some() {
            check_data_offset(&list("dims"), &list("get_data_offset"), &row["elements"]);
            offsets += 1;
        } else {
            // Rows about handles, a blob's type and MaxBlobDescs, not about dims.
            about_blobs += 1;
        }
    }
    assert_eq!((made, our_way, offsets, about_blobs), (11, 1, 1, 3));
    report(&format!(
        "neoml dims: {made} creations, {our_way} of them an upstream trap answered our way; {offsets} offset"
    ));
}

fn check_data_offset(dims: &[usize], index: &[usize], elements: &serde_json::Value) {
    let shape = Shape::new(dims).expect("a shape");
    let offset = shape.offset(index).expect("inside");
    assert_eq!(Some(offset as u64), elements.as_u64());
    let dims = Dims7::try_from(&shape).expect("seven axes");
    // The index selects an object: the offset is its index times the object size.
    assert_eq!(offset % dims.object_size(), 0);
    assert!(offset / dims.object_size() < dims.object_count());
    assert_eq!(shape.stride(BlobDim::ListSize).expect("seven axes"), dims.object_size());
}
