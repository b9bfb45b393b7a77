//! npy files: the goldens of MXNet 2, files that `npyz` writes in every order, odd and broken headers.

use blob_io::{Checkpoint, Format};
use npyz::WriterBuilder;
use serde_json::Value;

use crate::mxnet::dtype;
use crate::support::archive::npy_of;
use crate::support::{compare_cases, data, files, open, refusal, report, sha256, trouble};

/// Compares a file with the sidecar, which was made from the writer's NumPy arrays.
pub(crate) fn check_sidecar(file: &Checkpoint, sidecar: &Value) {
    let arrays = sidecar["arrays"].as_array().expect("a list");
    let name = file.name();
    assert_eq!(file.entries().len(), arrays.len(), "{name}");
    for (i, array) in arrays.iter().enumerate() {
        // By name, because a dict's order is not the file's.
        let wanted = array["name"].as_str().map_or("@0".to_owned(), str::to_owned);
        let entry = file.entries().iter().find(|e| e.name() == wanted);
        let entry = entry.unwrap_or_else(|| panic!("{name}: no {wanted} ({i})"));
        assert_eq!(entry.dtype().unwrap().name(), dtype(&array["dtype"]), "{name}: {wanted}");
        assert_eq!(serde_json::json!(entry.shape().dims()), array["shape"], "{name}: {wanted}");
        assert_eq!(sha256(&file.view(entry).unwrap()), array["sha256"], "{name}: {wanted}");
        assert!(entry.is_plain() && entry.warnings().next().is_none());
    }
    assert!(file.warnings().is_empty(), "{:?}", file.warnings());
}

#[test]
fn every_golden_npy_is_what_its_writer_was_given() {
    let folder = data("mxnet/golden/mxnet-2.0.0beta1/npz");
    let files = files(&folder, |name| name.ends_with(".npy"));
    for path in &files {
        let json = std::fs::read(format!("{}.json", path.display())).unwrap();
        let file = Checkpoint::open(path).unwrap();
        assert_eq!(file.format(), Format::Npy);
        check_sidecar(&file, &serde_json::from_slice(&json).unwrap());
    }
    assert!(files.len() >= 28, "{}", files.len());
    report(&format!("npy: {} files of MXNet 2", files.len()));
}

/// Bytes of an npy of `npyz`: any order, any byte order.
fn by_npyz<T: npyz::AutoSerialize + Copy>(descr: &str, order: npyz::Order, shape: &[u64], values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let dtype = npyz::DType::Plain(descr.parse().unwrap());
    let options = npyz::WriteOptions::new().dtype(dtype).shape(shape).order(order);
    let mut writer = options.writer(&mut bytes).begin_nd().unwrap();
    writer.extend(values.iter().copied()).unwrap();
    writer.finish().unwrap();
    bytes
}

#[test]
fn what_npyz_writes_is_read_in_every_order() {
    use npyz::Order::{C, Fortran};
    let mut count = 0;
    macro_rules! check {
        ($($ty:ty, $kinds:expr;)*) => { $(
            let values: Vec<$ty> = (0..24u8).map(|i| i as $ty).collect();
            for descr in $kinds {
                for order in [C, Fortran] {
                    let bytes = by_npyz(descr, order, &[2, 3, 4], &values);
                    let file = open("x", &bytes).unwrap();
                    let entry = &file.entries()[0];
                    assert_eq!(entry.shape().dims(), [2, 3, 4]);
                    let blob = file.load(entry).unwrap();
                    let found = blob.data().elements::<$ty>().unwrap().to_vec();
                    let expected: Vec<$ty> = match order {
                        C => values.clone(),
                        // The i-th stored value stands at (i % 2, i / 2 % 3, i / 6).
                        Fortran => {
                            let mut rows = values.clone();
                            for (i, value) in values.iter().enumerate() {
                                rows[i % 2 * 12 + i / 2 % 3 * 4 + i / 6] = *value;
                            }
                            rows
                        }
                    };
                    assert_eq!(found, expected, "{descr}");
                    count += 1;
                }
            }
        )* };
    }
    check! {
        u8, ["|u1"]; i8, ["|i1"];
        u16, ["<u2", ">u2"]; i16, ["<i2", ">i2"];
        u32, ["<u4", ">u4"]; i32, ["<i4", ">i4"];
        u64, ["<u8", ">u8"]; i64, ["<i8", ">i8"];
        f32, ["<f4", ">f4"]; f64, ["<f8", ">f8"];
    }
    assert_eq!(count, 36);
}

/// Version, header, bytes of data, and the expected shape.
const ODD: &[(u8, &str, usize, &[usize])] = &[
    (1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24, &[2, 3]),
    (2, "{\"shape\":(2,3),\"descr\":\"<f4\",\"fortran_order\":True}", 24, &[2, 3]),
    (3, "  { 'fortran_order' : False , 'descr' : '>f4' , 'shape' : ( 3 , ) }  ", 12, &[3]),
    (1, "{'descr': '|b1', 'fortran_order': False, 'shape': ()}", 1, &[]),
    (1, "{'descr': '=u1', 'fortran_order': False, 'shape': (2L, 3L)}", 6, &[2, 3]),
    (1, "{'descr': [('bfloat16', '<u2')], 'fortran_order': False, 'shape': (0, 3)}", 0, &[0, 3]),
];

#[test]
fn headers_of_npy_that_are_odd_have_one_meaning() {
    for (version, dict, data, dims) in ODD {
        let file = open("x", &npy_of(*version, dict, &vec![7; *data])).unwrap();
        let entry = &file.entries()[0];
        assert_eq!(entry.shape().dims(), *dims, "{dict}");
        assert_eq!(entry.byte_len(), *data as u64, "{dict}");
        assert!(entry.fault().is_none(), "{dict}");
        assert!(file.warnings().is_empty(), "{dict}");
        file.load(entry).unwrap();
    }
    let scalar = "{'descr': '<f4', 'fortran_order': False, 'shape': ()}";
    let long = format!("{scalar}{}", " ".repeat(65_480));
    let file = open("x", &npy_of(2, &long, &[7; 4])).unwrap();
    assert!(file.entries()[0].fault().is_none());
    let file = open("x", &npy_of(1, scalar, &[7; 9])).unwrap();
    let trailing = file.warnings()[0].to_string();
    assert_eq!(trailing, "at byte 67: 5 bytes follow the array");
}

#[test]
fn broken_headers_of_npy_are_named_with_their_place() {
    compare_cases("cases/npy.txt", |dict| trouble("x", &npy_of(1, dict, &[7; 64])));
    assert_eq!(refusal("x", &npy_of(1, "", &[])), "x: at byte 10: expected a Python dict, found the end of the text");
    let whole = npy_of(1, "{'descr': '<f4', 'fortran_order': False, 'shape': ()}", &[7; 4]);
    for len in 6..63 {
        assert!(refusal("x.npy", &whole[..len]).contains("needs"), "{len}");
    }
    let mut version = whole.clone();
    version[6] = 4;
    assert_eq!(refusal("x", &version), "x: at byte 6: expected npy version 1.0, 2.0 or 3.0, found 4.0");
    let long = refusal("x", &npy_of(2, &" ".repeat(65_537), &[7; 4]));
    assert_eq!(long, "x: at byte 12: the header's length: expected at most 65536, found 65537");
}
