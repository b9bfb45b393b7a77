//! Element-wise operations in NeoML's own results: every row of the table, and of the misuses.
//!
//! Where NeoML is wrong, the tests assert our typed error, and that nothing has changed.

use blob_core::{AnyBlob, DType, Part, Shape};
use blob_ops::{Argument, Error, Mismatch, Scalar};
use serde_json::Value;

use crate::support::blobs::of_f32;
use crate::support::neoml::{dims, expect, inputs, number, table, words};
use crate::support::{data, report, rows};

/// Checks the dimensions, the hash of all elements, and each element if there are few.
fn check_output(blob: &AnyBlob, row: &Value) {
    let out = &row["out"];
    if let Some(cells) = out["cells"].as_str() {
        let text: Vec<String> = words(blob).iter().map(|word| format!("{word:08x}")).collect();
        assert_eq!(text.join(" "), cells, "{row}");
    }
    expect(blob, out, row);
}

#[test]
fn add_clear_and_fill_are_neomls_bit_for_bit() {
    let rows = table("cpp/elementwise.jsonl");
    let (mut adds, mut objects, mut sizes) = (0, 0, 0);
    for row in &rows {
        match row["op"].as_str().expect("an operation") {
            "add" => {
                let inputs = inputs(row);
                for add in [blob_ops::add, blob_ops::add_flush_subnormals] {
                    let mut y = inputs[0].try_clone().expect("a copy");
                    add(&mut y, &inputs[1], Part::Data).expect("two alike");
                    check_output(&y, row);
                }
                adds += 1;
            }
            "clear_object_then_fill_object" => {
                let y = &mut inputs(row)[0];
                let value = row["value"].as_f64().expect("a number");
                blob_ops::fill_object(y, number(&row["clear"]), 0, Part::Data).expect("an object");
                let filled = blob_ops::fill_object(y, number(&row["fill"]), value, Part::Data);
                filled.expect("an object");
                check_output(y, row);
                objects += 1;
            }
            "sizes" => {
                check_sizes(row);
                sizes += 1;
            }
            other => panic!("no operation {other}"),
        }
    }
    assert_eq!((adds, objects, sizes), (47, 37, 38));
    report(&format!("neoml element-wise: {adds} sums, {objects} objects, {sizes} sizes bit for bit"));
}

/// Checks the number and size of objects from outside: the indices that `fill_object` accepts, and the elements
/// that it fills.
fn check_sizes(row: &Value) {
    let shape = Shape::new(dims(&row["in"][0])).expect("a shape");
    let size = |name: &str| row["sizes"][name].as_u64().expect("a size");
    assert_eq!(shape.count() as u64, size("data"), "{row}");
    let mut y = AnyBlob::new(shape, DType::U8).expect("a blob");
    let objects = size("objects") as usize;
    blob_ops::fill_object(&mut y, objects - 1, 1, Part::Data).expect("the last object");
    let filled = blob_ops::asum(&y, Part::Data).expect("asum");
    assert_eq!(filled, Scalar::U(size("object")), "{row}");
    match blob_ops::fill_object(&mut y, objects, 1, Part::Data) {
        Err(Error::ObjectOutOfRange { objects: named, .. }) => assert_eq!(named, objects),
        other => panic!("{row}: {other:?}"),
    }
}

/// The sums of special numbers on an x86 processor with DAZ and FTZ, which NeoML enables.
#[test]
fn flushed_sums_are_the_processors() {
    let rows = rows(&data("other/add_daz_ftz.tsv"));
    let mut differ = 0;
    for row in &rows {
        let bits = |i: usize| u32::from_str_radix(&row[i], 16).expect("bits");
        for repeat in [1, 16, 37] {
            let of = |i: usize| of_f32(&vec![f32::from_bits(bits(i)); repeat]);
            let mut y = of(0);
            blob_ops::add_flush_subnormals(&mut y, &of(1), Part::Data).expect("two alike");
            let got: Vec<u32> = y.data().elements::<f32>().expect("f32").iter().map(|x| x.to_bits()).collect();
            assert_eq!(got, vec![bits(2); repeat], "{row:?}");
        }
        let mut y = of_f32(&[f32::from_bits(bits(0))]);
        let x = of_f32(&[f32::from_bits(bits(1))]);
        blob_ops::add(&mut y, &x, Part::Data).expect("two alike");
        differ += usize::from(y.data().elements::<f32>().expect("f32")[0].to_bits() != bits(2));
    }
    assert_eq!(rows.len(), 144);
    assert!(differ > 20, "IEEE 754 is another sum in {differ} rows only");
    report(&format!("sums under DAZ and FTZ: 144 rows, {differ} of them not IEEE 754's"));
}

/// A blob of three objects with two elements each.
fn small(dtype: DType) -> AnyBlob {
    let mut blob = AnyBlob::new(Shape::new([3, 1, 1, 2, 1, 1, 1]).expect("a shape"), dtype).expect("a blob");
    blob_ops::fill(&mut blob, 5, Part::Data).expect("fill");
    blob
}

#[test]
fn what_neoml_misuses_is_refused() {
    let mut checked = 0;
    for row in table("cpp/malformed_release.jsonl") {
        let mut y = small(DType::F32);
        let Some(refused) = is_refused(row["case"].as_str().expect("a case"), &mut y) else {
            continue;
        };
        assert!(refused, "{row}");
        assert_eq!(*y.data().elements::<f32>().expect("f32"), [5.0; 6], "{row}");
        checked += 1;
    }
    assert_eq!(checked, 7);
    report("neoml misuse of Add, Fill and ClearObject: 7 cases refused, nothing changed");
}

/// Whether a misuse of `y` is refused with the right error; `None` for a misuse of something else.
fn is_refused(case: &str, y: &mut AnyBlob) -> Option<bool> {
    let blob = |dims, dtype| AnyBlob::new(Shape::new(dims).expect("a shape"), dtype).expect("a blob");
    Some(match case {
        "add: sizes differ (other smaller)" => {
            let x = blob([2, 1, 1, 2, 1, 1, 1], DType::F32);
            expect_shapes(blob_ops::add(y, &x, Part::Data))
        }
        "add: same size, other dims" => {
            let x = blob([2, 1, 1, 3, 1, 1, 1], DType::F32);
            expect_shapes(blob_ops::add(y, &x, Part::Data))
        }
        "add: types differ" => {
            let result = blob_ops::add(y, &small(DType::I32), Part::Data);
            matches!(result, Err(Error::Mismatch { argument: Argument::In, mismatch: ref it, .. }) if matches!(it, Mismatch::DType { wanted: DType::F32, got: DType::I32, .. }))
        }
        "fill<float> of an int blob" => {
            let mut ints = small(DType::I32);
            let result = blob_ops::fill(&mut ints, 0.5, Part::Data);
            assert_eq!(*ints.data().elements::<i32>().expect("i32"), [5; 6]);
            matches!(result, Err(Error::Value { dtype: DType::I32, value: Scalar::F(0.5), .. }))
        }
        "clear_object: num = object count" => {
            let result = blob_ops::fill_object(y, 3, 0, Part::Data);
            matches!(result, Err(Error::ObjectOutOfRange { object: 3, objects: 3, .. }))
        }
        // A negative number cannot be passed; the wrapped number is refused.
        "clear_object: num = -1" => {
            let result = blob_ops::fill_object(y, usize::MAX, 0, Part::Data);
            matches!(result, Err(Error::ObjectOutOfRange { objects: 3, .. }))
        }
        // Here the product does not overflow, and the blob is one object.
        "create: product overflows int to 0 (65536 x 65536), then ClearObject(5)" => {
            let mut huge = blob([1, 1, 1, 65_536, 65_536, 1, 1], DType::F32);
            let result = blob_ops::fill_object(&mut huge, 5, 0, Part::Data);
            matches!(result, Err(Error::ObjectOutOfRange { object: 5, objects: 1, .. }))
        }
        _ => return None,
    })
}

fn expect_shapes(result: Result<(), Error>) -> bool {
    matches!(result, Err(Error::Mismatch { op: "add", argument: Argument::In, mismatch: ref it, .. }) if matches!(it, Mismatch::Extent { .. }))
}
