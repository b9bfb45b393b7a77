//! Splices into Caffe files: the changed parts are as in Caffe's own files, and every other byte stays.

use blob_core::{DType, Shape};
use blob_io::caffe::BlobForm;
use blob_io::layout::Splice;
use blob_io::layout::{Layout, TensorSpec};
use blob_io::{Checkpoint, Format, Kind, OpenOptions};
use proptest::prelude::*;

use crate::caffe_write::{assembled, tensors};
use crate::support::message::{content, fields, varint};
use crate::support::{data, files, open, real, report};

fn golden(name: &str) -> (Vec<u8>, Checkpoint) {
    let bytes = std::fs::read(data("caffe/net").join(name)).expect("readable");
    let file = Checkpoint::from_bytes(name, bytes.clone()).unwrap_or_else(|e| panic!("{e}"));
    (bytes, file)
}

/// The file that a splice writes from a base and tensors.
pub(crate) fn spliced(base: &[u8], splice: &Splice<'_>, specs: &[TensorSpec], values: &[Vec<u8>]) -> Vec<u8> {
    let layout = Layout::spliced(specs, splice).unwrap_or_else(|e| panic!("{e}"));
    let values: Vec<&[u8]> = values.iter().map(|bytes| &bytes[..]).collect();
    assembled(&layout, &values, base)
}

/// Every golden Caffe file that opens, and every real one, if available.
pub(crate) fn sources() -> Vec<std::path::PathBuf> {
    let folders = ["blobproto", "misc", "net"].map(|folder| data("caffe").join(folder));
    folders
        .into_iter()
        .chain(real("caffe/real"))
        .flat_map(|folder| files(&folder, |_| true))
        .filter(|path| Checkpoint::open(path).is_ok_and(|file| file.format().is_caffe()))
        .collect()
}

#[test]
fn a_file_without_changes_is_copied() {
    let sources = sources();
    for path in &sources {
        let bytes = std::fs::read(path).expect("readable");
        let base = Checkpoint::open(path).expect("opens");
        let splice = Splice::new(&base).unwrap_or_else(|e| panic!("{e}"));
        let layout = Layout::spliced(&[], &splice).unwrap_or_else(|e| panic!("{e}"));
        assert!(layout.copies().len() <= 1 && layout.frame(&[], &[]).expect("a frame").is_empty());
        assert!(assembled(&layout, &[], &bytes) == bytes, "{}", path.display());
    }
    assert!(sources.len() > 60, "{}", sources.len());
    report(&format!("caffe: {} files copied by a splice without changes", sources.len()));
}

/// Replaces every array of a file by itself: the values are written in place, and all else is copied.
#[test]
fn values_of_the_same_shape_change_no_other_byte() {
    for path in sources() {
        let bytes = std::fs::read(&path).expect("readable");
        let base = Checkpoint::open(&path).expect("opens");
        let entries = base
            .entries()
            .iter()
            .filter(|entry| entry.fault().is_none() && entry.is_plain() && entry.segments().len() == 1);
        let entries: Vec<_> = entries.collect();
        let mut splice = Splice::new(&base).expect("of Caffe");
        let (mut specs, mut values) = (Vec::new(), Vec::new());
        for entry in &entries {
            splice.replace(entry.name(), specs.len()).unwrap_or_else(|e| panic!("{e}"));
            specs.push(TensorSpec::new("t", entry.dtype().expect("sound"), entry.shape().clone()));
            values.push(base.view(entry).expect("views").iter().map(|byte| !byte).collect());
        }
        let changed = spliced(&bytes, &splice, &specs, &values);
        assert_eq!(changed.len(), bytes.len());
        let mut expected = bytes.clone();
        for entry in entries {
            let at = entry.offset().expect("plain") as usize;
            expected[at..][..entry.byte_len() as usize].iter_mut().for_each(|byte| *byte = !*byte);
        }
        assert!(changed == expected, "{}", path.display());
    }
}

/// Caffe has written the same net in floats and in doubles, with and without diffs.
#[test]
fn a_spliced_net_is_the_one_that_caffe_wrote() {
    let all =
        ["f32_v2", "f32_v2_diff", "f64_v2", "f64_v2_diff"].map(|name| (name, golden(&format!("{name}.caffemodel"))));
    for (from, (bytes, base)) in &all {
        for (to, (wanted, other)) in &all {
            let (specs, values) = tensors(other);
            let mut splice = Splice::new(base).expect("of Caffe");
            for (tensor, name) in other.names().enumerate() {
                match base.entry(name) {
                    Some(_) => splice.replace(name, tensor),
                    None => splice.add(name, tensor),
                }
                .unwrap_or_else(|e| panic!("{e}"));
            }
            for name in base.names().filter(|name| other.entry(name).is_none()) {
                splice.remove(name).unwrap_or_else(|e| panic!("{e}"));
            }
            assert!(spliced(bytes, &splice, &specs, &values) == *wanted, "{from} as {to}");
        }
    }
}

/// The same net with the dimensions from before 2015, and with fields unknown to Caffe.
#[test]
fn the_form_of_blobs_changes_and_nothing_else() {
    let (bytes, base) = golden("f32_v2.caffemodel");
    let (wanted, legacy) = golden("v2_legacy_dims.caffemodel");
    let change = |from: &Checkpoint, bytes: &[u8], form: BlobForm| {
        let (specs, values) = tensors(from);
        let mut splice = Splice::new(from).expect("of Caffe");
        splice.form = Some(form);
        from.names().enumerate().for_each(|(tensor, name)| splice.replace(name, tensor).expect("there"));
        spliced(bytes, &splice, &specs, &values)
    };
    let mut other = change(&base, &bytes, BlobForm { legacy: true, ..BlobForm::default() });
    assert!(other == wanted);
    // Written in today's form, each blob has a `shape` with its four axes.
    other = change(&legacy, &wanted, BlobForm::default());
    let back = Checkpoint::from_bytes("back.caffemodel", other).expect("opens");
    assert!(back.names().eq(base.names()) && back.entries().iter().all(|entry| entry.shape().num_axes() == 4));
    let raw = change(&base, &bytes, BlobForm { raw: true, ..BlobForm::default() });
    let raw_back = Checkpoint::from_bytes("raw.caffemodel", raw.clone()).expect("opens");
    for (one, other) in base.entries().iter().zip(raw_back.entries()) {
        assert_eq!((one.name(), one.dtype(), one.shape()), (other.name(), other.dtype(), other.shape()));
        assert!(base.view(one).expect("views") == raw_back.view(other).expect("views"));
    }
    assert!(change(&raw_back, &raw, BlobForm::default()) == bytes);
}

/// The fields that a change of some blobs must keep: all of the file, of the layers and of the blobs except `touched`.
fn rest(bytes: &[u8], touched: &[usize]) -> Vec<Vec<u8>> {
    let mut left = Vec::new();
    let mut layer = 0;
    for (key, field) in fields(bytes) {
        let is_layer = key == 100 << 3 | 2;
        if !is_layer || !touched.contains(&layer) {
            left.push(field.to_vec());
        } else {
            left.extend(
                fields(content(field)).into_iter().filter(|(key, _)| *key != 7 << 3 | 2).map(|(_, f)| f.to_vec()),
            );
        }
        layer += usize::from(is_layer);
    }
    left
}

#[test]
fn unknown_fields_and_custom_layers_stay() {
    let mut nets = vec![data("caffe/net/unknown_fields.caffemodel"), data("caffe/net/f32_v2_diff.caffemodel")];
    nets.extend(
        real("caffe/real").into_iter().flat_map(|folder| {
            files(&folder, |name| ["mtcnn_det1.caffemodel", "wechat_sr.caffemodel"].contains(&name))
        }),
    );
    for path in &nets {
        let bytes = std::fs::read(path).expect("readable");
        let base = Checkpoint::open(path).expect("opens");
        let first = base.entries().iter().find(|entry| entry.kind() == Kind::Data).expect("a blob");
        // A blob after the bias is not a bias, so the layer's parameters need not change.
        let last =
            base.entries().iter().rfind(|entry| entry.kind() == Kind::Data && entry.index() > 0).expect("a bias");
        let touched = [first.position(), last.position()];
        let specs = [
            TensorSpec::new("t", DType::F64, Shape::new([3, 2]).expect("a shape")),
            TensorSpec::new("u", DType::F32, Shape::new([1]).expect("a shape")),
        ];
        let values = [vec![7; 48], vec![9; 4]];
        let mut splice = Splice::new(&base).expect("of Caffe");
        splice.replace(first.name(), 0).expect("there");
        if base.diff_of(first).is_some() {
            splice.remove(&format!("{}.diff", first.name())).expect("there");
        }
        let (layer, _) = last.name().rsplit_once('/').expect("a layer");
        let added = format!("{layer}/{}", last.index() + 1);
        splice.add(&added, 1).unwrap_or_else(|e| panic!("{e}"));
        let changed = spliced(&bytes, &splice, &specs, &values);
        assert_eq!(rest(&changed, &touched), rest(&bytes, &touched), "{}", path.display());
        let back = Checkpoint::from_bytes("back.caffemodel", changed).expect("opens");
        let of = |name: &str| back.entry(name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!((of(first.name()).dtype(), of(first.name()).shape().dims()), (Some(DType::F64), &[3, 2][..]));
        assert_eq!(*back.view(of(first.name())).expect("views"), [7; 48]);
        assert_eq!(*back.view(of(&added)).expect("views"), [9; 4]);
        assert_eq!(back.positions(), base.positions());
    }
    report(&format!("caffe: {} nets changed, their other fields as they were", nets.len()));
}

/// Unknown fields: one in the blob itself, and one of each wire type in `unknown_fields.binaryproto`.
#[test]
fn unknown_fields_of_a_blob_stay_behind_what_is_written_anew() {
    let bytes = std::fs::read(data("caffe/blobproto/unknown_fields.binaryproto")).expect("readable");
    let base = Checkpoint::from_bytes("x.binaryproto", bytes.clone()).expect("opens");
    let mut splice = Splice::new(&base).expect("of Caffe");
    splice.replace("@0", 0).expect("there");
    let spec = TensorSpec::new("t", DType::F32, Shape::new([1]).expect("a shape"));
    let changed = spliced(&bytes, &splice, &[spec], &[vec![1, 2, 3, 4]]);
    let unknown: Vec<u8> =
        fields(&bytes).into_iter().filter(|(key, _)| key >> 3 > 13).flat_map(|(_, field)| field.to_vec()).collect();
    assert!(unknown.len() > 20);
    assert_eq!(changed, [b"\x2A\x04\x01\x02\x03\x04\x3A\x03\x0A\x01\x01".to_vec(), unknown].concat());
}

#[test]
fn layers_are_renamed_added_and_emptied() {
    for name in ["f32_v2.caffemodel", "v1.caffemodel", "v0.caffemodel"] {
        let (bytes, base) = golden(name);
        let mut splice = Splice::new(&base).expect("of Caffe");
        splice.rename("ip", "ip-new-and-longer").expect("there");
        splice.remove("conv1/0").expect("there");
        splice.add("conv1/2", 2).expect("the next");
        let is_v0 = base.dialect().starts_with("V0");
        let extra = if is_v0 { "conv1/3" } else { "extra/0" };
        assert_eq!(splice.add("zero/1", 0).map_err(|e| e.to_string().contains("V0")), Err(is_v0));
        splice.add(extra, 0).expect("new");
        splice.add(&format!("{extra}.diff"), 1).expect("its diff");
        let spec = TensorSpec::new("t", DType::F32, Shape::new([2]).expect("a shape"));
        let specs = [spec.clone(), spec.clone(), spec];
        let changed = spliced(&bytes, &splice, &specs, &[vec![1; 8], vec![2; 8], vec![3; 8]]);
        let back = Checkpoint::from_bytes("back.caffemodel", changed).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((back.dialect(), back.positions()), (base.dialect(), base.positions() + usize::from(!is_v0)));
        let kept = base
            .names()
            .filter(|n| !["conv1/0", "conv1/1"].contains(n))
            .map(|n| n.replace("ip/", "ip-new-and-longer/"));
        let mut wanted: Vec<String> = kept.collect();
        // The blobs after a removed one get lower indices.
        let extra = if is_v0 { "conv1/2" } else { extra };
        let others = [extra.to_owned(), format!("{extra}.diff")];
        wanted.extend(["conv1/0", "conv1/1"].map(str::to_owned).into_iter().chain(others));
        wanted.sort();
        let mut found: Vec<&str> = back.names().collect();
        found.sort_unstable();
        assert_eq!(found, wanted, "{name}");
        assert!(
            back.view(back.entry("conv1/0").expect("moved up")).expect("views")
                == base.view(base.entry("conv1/1").expect("there")).expect("views")
        );
        assert_eq!(*back.view(back.entry("conv1/1").expect("added")).expect("views"), [3; 8]);
        assert_eq!(*back.view(back.entry(&format!("{extra}.diff")).expect("added")).expect("views"), [2; 8]);
        let types = |file: &Checkpoint| file.entries().iter().map(|entry| entry.layer_type().map(str::to_owned)).next();
        assert_eq!(types(&back), types(&base));
    }
}

#[test]
fn changes_that_do_not_fit_are_refused() {
    let (_, base) = golden("f32_v2_diff.caffemodel");
    let mut splice = Splice::new(&base).expect("of Caffe");
    let said = |result: Result<(), blob_io::Error>| result.expect_err("refused").to_string();
    assert!(said(splice.replace("conv9/0", 0)).contains("there is no array \"conv9/0\""));
    assert!(said(splice.rename("conv9", "x")).contains("there is no layer \"conv9\""));
    for name in ["conv1/0", "conv1/0.diff", "conv1/7", "new/1", "weight", "new/0.diff"] {
        assert!(splice.add(name, 0).is_err(), "{name}");
    }
    splice.replace("conv1/0", 0).expect("there");
    let spec = |dtype, dims: &[usize]| [TensorSpec::new("t", dtype, Shape::new(dims).expect("a shape"))];
    let refused =
        |splice: &Splice<'_>, spec: &[TensorSpec]| Layout::spliced(spec, splice).expect_err("refused").to_string();
    let error = refused(&splice, &spec(DType::F64, &[3]));
    assert!(error.contains("\"conv1/0\" becomes f64 of 3, and its diff does not"), "{error}");
    let same_shape = base.entry("conv1/0").expect("there").shape().dims();
    let error = refused(&splice, &spec(DType::F64, same_shape));
    assert!(error.contains("and its diff does not"), "{error}");
    splice.remove("conv1/0.diff").expect("there");
    assert!(Layout::spliced(&spec(DType::F64, &[3]), &splice).is_ok());
    let error = refused(&splice, &spec(DType::F16, &[3]));
    assert!(error.contains("\"conv1/0\" is of f16; Caffe's blobs hold f32 and f64"), "{error}");
    let error = refused(&splice, &spec(DType::F64, &[400_000_000]));
    assert!(error.contains("Caffe reads at most"), "{error}");
    let datum = Checkpoint::open(data("caffe/misc/u8.datum")).expect("opens");
    let mut splice = Splice::new(&datum).expect("of Caffe");
    assert!(said(splice.remove("@0")).contains("is the whole file"));
    splice.replace("@0", 0).expect("there");
    assert!(Layout::spliced(&spec(DType::U8, datum.entries()[0].shape().dims()), &splice).is_ok());
    let error = refused(&splice, &spec(DType::F32, &[3]));
    assert!(error.contains("takes only values of its own dtype and shape"), "{error}");
    let other = Checkpoint::open(data("other/two.safetensors")).expect("opens");
    assert!(Splice::new(&other).expect_err("refused").to_string().contains("only files of Caffe"));
}

/// `3×2` can replace `1×1×3×2`, because Caffe compares these shapes as equal.
#[test]
fn dimensions_from_before_2015_take_shapes_that_equal_them() {
    let bytes = std::fs::read(data("caffe/blobproto/legacy_1_1_3_2_diff.binaryproto")).expect("readable");
    let base = Checkpoint::from_bytes("x.binaryproto", bytes.clone()).expect("opens");
    let mut splice = Splice::new(&base).expect("of Caffe");
    let shape = |dims: &[usize]| Shape::new(dims).expect("a shape");
    for (dims, fits) in
        [(&[3, 2][..], true), (&[1, 1, 3, 2], true), (&[1, 3, 2], true), (&[6], false), (&[1, 1, 1, 3, 2], false)]
    {
        assert_eq!(splice.fits("@0", &shape(dims)).expect("there"), fits, "{dims:?}");
    }
    splice.replace("@0", 0).expect("there");
    let changed = spliced(&bytes, &splice, &[TensorSpec::new("t", DType::F32, shape(&[3, 2]))], &[vec![5; 24]]);
    assert_eq!((changed.len(), &changed[..10]), (bytes.len(), &bytes[..10]));
    splice.remove("@0.diff").expect("there");
    // A replaced legacy blob keeps the four dimensions; a tensor with more axes gets the field `shape`.
    let changed = spliced(&bytes, &splice, &[TensorSpec::new("t", DType::F32, shape(&[6]))], &[vec![5; 24]]);
    assert!(changed.starts_with(b"\x08\x01\x10\x01\x18\x01\x20\x06\x2A\x18"), "{changed:?}");
}

/// A changed layer whose length has an overlong varint gets the shortest form; an unchanged layer keeps its bytes.
#[test]
fn lengths_in_long_forms_stay_where_nothing_is_resized() {
    let layer = |len: &[u8]| {
        let blob = b"\x3A\x0D\x2A\x04\x00\x00\x80\x3F\x3A\x05\x0A\x03\x01\x81\x00";
        [b"\xA2\x06", len, b"\x0A\x01a", &blob[..]].concat()
    };
    let bytes = [layer(&[18]), layer(&[0x92, 0x00])].concat();
    let base = OpenOptions::new().from(Format::CaffeModel).open_source("x", Box::new(blob_io::Bytes(bytes.clone())));
    let base = base.expect("opens");
    let name = base.names().last().expect("a blob").to_owned();
    let shape = |dims: &[usize]| TensorSpec::new("t", DType::F32, Shape::new(dims).expect("a shape"));
    let mut splice = Splice::new(&base).expect("of Caffe");
    splice.replace(&name, 0).expect("there");
    let in_place = spliced(&bytes, &splice, &[shape(&[1, 1])], &[vec![8; 4]]);
    assert_eq!((in_place.len(), &in_place[..bytes.len() - 11]), (bytes.len(), &bytes[..bytes.len() - 11]));
    let resized = spliced(&bytes, &splice, &[shape(&[1])], &[vec![8; 4]]);
    assert_eq!(resized[bytes.len() / 2..][..5], [0xA2, 0x06, 16, 0x0A, 1], "{resized:?}");
    assert!(open("x.caffemodel", &resized).is_ok());
}

fn any_net() -> impl Strategy<Value = Vec<u8>> {
    let blob = (0..3usize, any::<bool>()).prop_map(|(count, unknown)| {
        let mut blob = vec![0x2A, 4 * count as u8];
        blob.extend(std::iter::repeat_n(1, 4 * count));
        blob.extend([0x3A, 3, 0x0A, 1, count as u8]);
        if unknown {
            blob.extend([0xFA, 0x07, 3, 1, 2, 3]);
        }
        blob
    });
    let layer = ("[a-c]", prop::collection::vec(blob, 0..3), any::<bool>());
    prop::collection::vec(layer, 1..5).prop_map(|layers| {
        let mut net = Vec::new();
        for (name, blobs, tail) in layers {
            let mut layer = [b"\x0A\x01", name.as_bytes()].concat();
            for blob in blobs {
                layer.push(0x3A);
                layer.extend(varint(blob.len() as u64));
                layer.extend(blob);
            }
            if tail {
                layer.extend([0x50, 1]);
            }
            net.extend([0xA2, 0x06]);
            net.extend(varint(layer.len() as u64));
            net.extend(layer);
        }
        net
    })
}

proptest! {
    /// For any set of changes, the file has the changes, and all else is unchanged.
    #[test]
    fn a_changed_net_reads_as_the_changes_say(bytes in any_net(), picks in prop::collection::vec((0..64usize, 0..4u8, 1..5usize), 0..5)) {
        let options = OpenOptions::new().from(Format::CaffeModel);
        let base = options.open_source("x", Box::new(blob_io::Bytes(bytes.clone()))).expect("opens");
        let mut splice = Splice::new(&base).expect("of Caffe");
        let (mut specs, mut values) = (Vec::new(), Vec::new());
        let all: Vec<_> = base.entries().iter().map(|entry| (entry.name().to_owned(), entry.position())).collect();
        let mut expected: Vec<(usize, Option<Vec<u8>>)> = base.entries().iter()
            .map(|entry| (entry.position(), Some(base.view(entry).expect("views").into_owned()))).collect();
        let mut seen = std::collections::HashSet::new();
        for (pick, what, count) in picks {
            if all.is_empty() || !seen.insert(pick % all.len()) { continue }
            let (pick, name) = (pick % all.len(), &all[pick % all.len()].0);
            if what == 0 {
                splice.remove(name).expect("there");
                expected[pick].1 = None;
                continue;
            }
            splice.replace(name, specs.len()).expect("there");
            let spec = TensorSpec::new("t", if what == 1 { DType::F64 } else { DType::F32 }, Shape::new([count]).expect("a shape"));
            values.push(vec![specs.len() as u8 + 40; spec.byte_len() as usize]);
            expected[pick].1 = values.last().cloned();
            specs.push(spec);
        }
        let changed = spliced(&bytes, &splice, &specs, &values);
        let back = options.open_source("y", Box::new(blob_io::Bytes(changed))).expect("opens");
        prop_assert_eq!(back.positions(), base.positions());
        let found: Vec<_> = back.entries().iter().map(|entry| (entry.position(), back.view(entry).expect("views").into_owned())).collect();
        let wanted: Vec<_> = expected.into_iter().filter_map(|(place, bytes)| Some((place, bytes?))).collect();
        prop_assert_eq!(found, wanted);
    }
}
