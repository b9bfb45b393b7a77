//! Writing MXNet files: the bytes are those that MXNet wrote for the same arrays, in every version.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blob_convert::Options;
use blob_core::{AnyBlob, DType, Shape};
use blob_io::layout::{Frame, Layout, TensorSpec};
use blob_io::mxnet::{List, Version};
use blob_io::{Checkpoint, Format, IfExists, Source, SparseKind, Writer};

use crate::support::archive::{Zip, npy};
use crate::support::conversion::to_bytes;
use crate::support::{Folder, blob, data, files, open, opened, report};

/// Each version of MXNet saved the same arrays, except for one list that grew with the dtypes.
#[test]
fn records_of_another_version_are_those_that_its_mxnet_wrote() {
    let golden = |writer: &str| data("mxnet/golden").join(writer);
    let writers = [("mxnet-0.9.5-2", Version::V0), ("mxnet-0.11.0", Version::V1), ("mxnet-1.0.0", Version::V2)];
    let mut compared = 0;
    let mut compare = |from: &Path, to: &Path, version| {
        if from.exists() && to.exists() {
            let bytes =
                to_bytes(&opened(from), &Options::new(Format::MxnetList).with(|o| o.params_version = Some(version)));
            let bytes = bytes.unwrap_or_else(|e| panic!("{}: {e}", from.display()));
            assert!(bytes == std::fs::read(to).expect("readable"), "{} as {}", from.display(), to.display());
            compared += 1;
        }
    };
    for (from, _) in writers {
        for (to, version) in writers.into_iter().filter(|(to, _)| *to != from) {
            for path in files(&golden(from), |name| name.ends_with(".nd") && name != "list_mixed.nd") {
                let name = path.file_name().expect("a file has a name");
                compare(&path, &golden(to).join(name), version);
            }
        }
    }
    for with in files(&golden("mxnet-1.9.1"), |name| name.ends_with("_npshape.nd")) {
        let name = with.file_name().expect("a file has a name").to_string_lossy().replace("_npshape", "");
        let without = with.with_file_name(name);
        compare(&without, &with, Version::V3);
        compare(&with, &without, Version::V2);
    }
    assert!(compared > 50, "{compared}");
    report(&format!("mxnet: {compared} files written in another version as MXNet wrote that"));
}

/// safetensors has its metadata under this name; no other array of the file is called so.
#[test]
fn an_array_called_as_the_metadata_says_why_it_is_renamed() {
    let folder = Folder::new();
    let path = folder.file("x.params");
    let array = AnyBlob::from_vec(Shape::new([1]).expect("fits"), DType::U8, vec![1]).expect("as many");
    Writer::new(Format::MxnetList).tensor("@_metadata__", &array).write(&path, IfExists::Refuse).expect("written");
    let mut bytes = std::fs::read(&path).expect("written");
    let at = bytes.iter().position(|byte| *byte == b'@').expect("the key");
    bytes[at] = b'_';
    let file = Checkpoint::from_bytes("x.params", bytes).expect("opens");
    let said: Vec<String> = file.entries()[0].warnings().map(|warning| warning.to_string()).collect();
    assert_eq!(file.names().collect::<Vec<_>>(), ["__metadata__@0"]);
    assert!(matches!(&said[..], [said] if said.contains("that of the metadata in safetensors")), "{said:?}");
}

/// Each array in the order of the names; a part also has the name of the sparse array.
fn arrays(path: &Path) -> Vec<(String, Vec<u8>, Option<blob_io::Sparse>)> {
    let file = opened(path);
    let all = file.entries().iter().map(|entry| {
        (entry.name().to_owned(), file.view(entry).expect("values").into_owned(), entry.sparse().cloned())
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// From a file that has sparse arrays in parts, MXNet's own bytes are written anew, as the receipt names the parts.
#[test]
fn sparse_arrays_come_back_from_their_parts_without_a_frame() {
    let (folder, golden) = (Folder::new(), "mxnet/golden/mxnet-1.9.1/sparse_dtypes.nd");
    let dense = blob(&["convert", golden, "--dense", "-o", &folder.file("dense.npz")]).ok();
    assert!(dense.err.contains("expanded"), "{}", dense.err);
    for parts in ["x.npz", "x.safetensors", "x.h5", "dir/"] {
        let (parts, again) = (folder.file(parts), folder.file("again.npz"));
        blob(&["convert", golden, "-o", &parts]).ok();
        blob(&["convert", &parts, "--anew", "-o", &again, "--force"]).ok();
        for from in [&parts, &again] {
            let back = folder.file("back.params");
            blob(&["convert", from, "--anew", "--strict", "-o", &back, "--force"]).ok();
            // safetensors has another order.
            let is_same = std::fs::read(&back).expect("written") == std::fs::read(data(golden)).expect("there");
            assert!(
                is_same || parts.ends_with("safetensors") && arrays(Path::new(&back)) == arrays(&data(golden)),
                "{from}"
            );
            let expanded = folder.file("expanded.npz");
            blob(&["convert", from, "--dense", "-o", &expanded, "--force"]).ok();
            let same = blob(&["diff", &expanded, &folder.file("dense.npz")]);
            assert_eq!(same.code, Some(0), "{from}: {}", same.out);
        }
    }
}

#[test]
fn what_a_version_cannot_hold_is_refused_by_name() {
    let refusal = |path: &str, options: Options| {
        let source = opened(data("mxnet/golden").join(path));
        to_bytes(&source, &options).expect_err(path).to_string()
    };
    let list = || Options::new(Format::MxnetList);
    for version in [Version::V0, Version::V1, Version::V3] {
        let error = refusal("mxnet-1.9.1/sparse_zero_nnz.nd", list().with(|o| o.params_version = Some(version)));
        assert!(error.contains("is sparse, which only a record of V2 holds"), "{error}");
    }
    let error = refusal("mxnet-1.9.1/scalars_zero_npshape.nd", list().with(|o| o.params_version = Some(Version::V2)));
    assert!(error.contains("has no axes, which only a record of V3 (np-shape) holds"), "{error}");
    let error = refusal("mxnet-0.11.0/none_first.nd", list().with(|o| o.params_version = Some(Version::V2)));
    assert!(error.contains("is a missing array"), "{error}");
    let error = refusal("mxnet-1.9.1/many_1000.nd", Options::new(Format::MxnetRecord));
    assert!(error.contains("holds one array, not 1000"), "{error}");
}

/// One error names the file and all arrays that do not fit, or the first twenty; nothing is written.
#[test]
fn misfits_are_listed_whole() {
    let spec =
        |i: usize, dims: &[usize], dtype| (format!("w{i}"), AnyBlob::new(Shape::new(dims).expect("fits"), dtype));
    let folder = tempfile::tempdir().expect("a folder");
    for (to, dims, dtype, why) in [
        (Format::MxnetList, &[][..], DType::F32, "has no axes, which only a record of V3 (np-shape) holds"),
        (Format::NeomlArray, &[2, 3], DType::F64, "is f64, and NeoML's blobs are of f32 or i32"),
    ] {
        for (count, more) in [(2, ""), (57, " and 37 more")] {
            let mut tensors: Vec<_> = (0..count).map(|i| spec(i, dims, dtype)).collect();
            tensors.push(spec(count, &[1], DType::F32));
            let tensors: Vec<_> = tensors.into_iter().map(|(name, blob)| (name, blob.expect("a blob"))).collect();
            let all =
                |format| tensors.iter().fold(Writer::new(format), |writer, (name, blob)| writer.tensor(name, blob));
            let (path, out) = (folder.path().join("x.safetensors"), folder.path().join("x.out"));
            all(Format::Safetensors).write(&path, IfExists::Replace).expect("written");
            let others: Vec<String> = (1..count.min(20)).map(|i| format!("\"w{i}\"")).collect();
            let others = format!("(also {}{more})", others.join(", "));
            let wanted = format!(": as {}: does not fit: \"w0\" {why} {others}", to.name().replace("-array", ""));
            let source = Checkpoint::open(&path).expect("opens");
            let error = to_bytes(&source, &Options::new(to)).expect_err("refused").to_string();
            assert_eq!(error, format!("{}{wanted}", path.display()));
            let error = all(to).write(&out, IfExists::Refuse).expect_err("refused").to_string();
            assert_eq!(error, format!("{}{wanted}", out.display()));
            assert!(!out.exists());
        }
    }
}

#[test]
fn a_list_that_does_not_fit_its_tensors_is_refused() {
    let spec = |dtype, dims: &[usize]| TensorSpec::new("t", dtype, Shape::new(dims).expect("a shape"));
    let refusal = |specs: &[TensorSpec], list: &List| {
        Layout::new(specs, Frame::MxnetList(list)).expect_err("refused").to_string()
    };
    let one = [spec(DType::F32, &[2])];
    let mut list = List::new(Version::V2);
    assert_eq!(refusal(&one, &list), "as params: tensor \"t\" is nowhere in the file");
    list.push("a", 0);
    assert!(Layout::new(&one, Frame::MxnetList(&list)).is_ok());
    list.push("b", 0);
    assert_eq!(refusal(&one, &list), "as params: tensor 0 is in the file twice");
    let mut list = List::new(Version::V2);
    list.push("a\0b", 0);
    assert_eq!(refusal(&one, &list), "as params: does not fit: \"a\\0b\" has a NUL in its name, where MXNet cuts it");
    let mut list = List::new(Version::V2);
    list.push("a", 1);
    assert_eq!(refusal(&one, &list), "as params: does not fit: \"a\" is tensor 1, which does not exist");
    let mut list = List::new(Version::V2);
    list.push_sparse("s", SparseKind::Csr, Shape::new([2, 2]).expect("a shape"), &[0]);
    assert_eq!(refusal(&one, &list), "as params: does not fit: \"s\" is a csr array, which has 3 parts, not 1");
    let mut list = List::new(Version::V0);
    list.push("v", 0);
    let vast = [spec(DType::U8, &[1 << 32, 0])];
    assert_eq!(
        refusal(&vast, &list),
        "as params: does not fit: \"v\" has an extent of 4294967296, and a record of V0 holds 32 bits"
    );
}

/// In a zip, the parts of sparse arrays are in another order.
#[test]
fn sparse_arrays_of_a_zip_are_sparse_in_a_list() {
    for (file, kind) in [("mxnet2_row_sparse.npz", SparseKind::RowSparse), ("scipy_csr.npz", SparseKind::Csr)] {
        let source = Checkpoint::open(data("other").join(file)).expect("opens");
        let bytes = to_bytes(&source, &Options::new(Format::MxnetList)).unwrap_or_else(|e| panic!("{e}"));
        let back = Checkpoint::from_bytes("back.params", bytes).expect("we read our list");
        let [one, other] = [&source, &back].map(|file| file.entries()[0].sparse().expect("sparse").clone());
        assert_eq!((other.kind, other.name, other.shape), (kind, one.name, one.shape));
        let [one, other] = [&source, &back].map(|file| file.load_dense(&file.entries()[0]).expect("dense"));
        assert!(*one.data().bytes().expect("bytes") == *other.data().bytes().expect("bytes"), "{file}");
    }
}

#[test]
fn blobs_are_written_as_mxnet_writes_arrays() {
    let golden = data("mxnet/golden/mxnet-1.9.1/names.nd");
    let source = Checkpoint::open(&golden).expect("opens");
    let tensors: Vec<_> = source.entries().iter().map(|entry| source.load(entry).expect("loads")).collect();
    let named = source.names().zip(&tensors);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("names.params");
    let writer = named.fold(Writer::new(Format::MxnetList), |writer, (name, blob)| writer.tensor(name, blob));
    writer.write(&path, IfExists::Refuse).unwrap_or_else(|e| panic!("{e}"));
    assert!(std::fs::read(&path).expect("written") == std::fs::read(&golden).expect("readable"));
    let refused = writer.metadata("license", "MIT").write(&path, IfExists::Replace).expect_err("refused");
    assert!(refused.to_string().contains("no place for metadata"), "{refused}");
}

/// A zip of a csr array `s` of shape 2×3 with this many values, in SciPy's form, and of other members.
fn zip_of_csr(values: usize, others: &[(&str, &[u8])]) -> Vec<u8> {
    let format = npy("'<U3'", "()", b"c\0\0\0s\0\0\0r\0\0\0");
    let zip = Zip::default()
        .add("s/format.npy", &format)
        .add("s/data.npy", &npy("'<f4'", &format!("({values},)"), &vec![1; 4 * values]))
        .add("s/indices.npy", &npy("'<i8'", "(2,)", &[0; 16]))
        .add("s/indptr.npy", &npy("'<i8'", "(3,)", &[0; 24]))
        .add("s/shape.npy", &npy("'<i8'", "(2,)", &[2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]));
    others.iter().fold(zip, |zip, (name, content)| zip.add(name, content)).end()
}

#[test]
fn parts_of_a_sparse_array_that_do_not_fit_are_refused() {
    let source = open("s.npz", &zip_of_csr(2, &[])).expect("opens");
    let bytes = to_bytes(&source, &Options::new(Format::MxnetList)).unwrap_or_else(|e| panic!("{e}"));
    let back = Checkpoint::from_bytes("back.params", bytes).expect("we read our list");
    assert_eq!(back.names().collect::<Vec<_>>(), ["s#values", "s#indptr", "s#indices"]);
    let source = open("s.npz", &zip_of_csr(3, &[])).expect("opens");
    let error = to_bytes(&source, &Options::new(Format::MxnetList)).expect_err("refused").to_string();
    assert!(error.contains("\"s\" has parts that do not fit a csr array"), "{error}");
    let shape = |dims: &[usize]| Shape::new(dims).expect("a shape");
    for (dims, fits) in [
        ([&[2, 4][..], &[2][..]], true),
        ([&[2, 4], &[3]], false),
        ([&[2, 5], &[2]], false),
        ([&[2], &[2]], false),
        ([&[2, 4], &[2, 1]], false),
    ] {
        let mut list = List::new(Version::V2);
        list.push_sparse("r", SparseKind::RowSparse, shape(&[9, 4]), &[0, 1]);
        let parts = dims.iter().zip([DType::F32, DType::I64]);
        let parts: Vec<_> = parts.map(|(dims, dtype)| TensorSpec::new("t", dtype, shape(dims))).collect();
        assert_eq!(Layout::new(&parts, Frame::MxnetList(&list)).is_ok(), fits, "{dims:?}");
    }
}

#[test]
fn no_name_stands_twice_in_a_list() {
    let source = open("s.npz", &zip_of_csr(2, &[("s.npy", &npy("'|u1'", "(1,)", &[9]))])).expect("opens");
    let bytes = to_bytes(&source, &Options::new(Format::MxnetList)).unwrap_or_else(|e| panic!("{e}"));
    let back = Checkpoint::from_bytes("back.params", bytes).expect("we read our list");
    let names: Vec<_> = back.names().collect();
    assert!(names.contains(&"s") && names.iter().any(|name| name.starts_with("s@")), "{names:?}");
    assert!(back.entries().iter().all(|entry| entry.warnings().next().is_none()), "{names:?}");
    let specs = [0, 1].map(|_| TensorSpec::new("w", DType::U8, Shape::new([1]).expect("a shape")));
    let mut list = List::new(Version::V2);
    list.push("w", 0);
    list.push("w", 1);
    let error = Layout::new(&specs, Frame::MxnetList(&list)).expect_err("refused").to_string();
    assert_eq!(error, "as params: the array \"w\" stands twice");
}

/// A V3 list whose only array is absent: V3 marks absence by extents, V0 and V1 by having none.
#[test]
fn none_is_written_as_each_version_says_it() {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let head = words(&[0x112, 0, 0, 0, 1, 0]);
    let none = words(&[0xF993_FACA, 0, 2, u32::MAX, u32::MAX, 3, 0]);
    let source = open("none.nd", &[head.clone(), none, words(&[0, 0])].concat()).expect("opens");
    for (version, record) in [(Version::V0, words(&[0])), (Version::V1, words(&[0xF993_FAC8, 0]))] {
        let bytes = to_bytes(&source, &Options::new(Format::MxnetList).with(|o| o.params_version = Some(version)))
            .expect("held");
        assert_eq!(bytes, [head.clone(), record, words(&[0, 0])].concat(), "{version:?}");
    }
}

/// Only sparse arrays change: versions, devices and names stay.
#[test]
fn a_list_made_dense_keeps_the_rest_as_it_was() {
    for file in ["mxnet-1.9.1/ctx_cpu3.nd", "mxnet-0.11.0/none_first.nd", "mxnet-1.9.1/names_npshape.nd"] {
        let path = data("mxnet/golden").join(file);
        let bytes = to_bytes(&opened(&path), &Options::new(Format::MxnetList).with(|o| o.dense = true)).expect("held");
        assert!(bytes == std::fs::read(&path).expect("readable"), "{file}");
    }
    let source = opened("mxnet/golden/mxnet-1.9.1/sparse_list_mixed.nd");
    let bytes = to_bytes(&source, &Options::new(Format::MxnetList).with(|o| o.dense = true)).expect("held");
    let back = Checkpoint::from_bytes("back.nd", bytes).expect("we read our list");
    let firsts = source.entries().iter().filter(|entry| entry.index() == 0);
    for (entry, dense) in firsts.zip(back.entries()) {
        let expected = match entry.sparse() {
            Some(_) => source.load_dense(entry).expect("dense"),
            None => source.load(entry).expect("loads"),
        };
        let found = back.load(dense).expect("loads");
        assert_eq!((found.shape(), found.dtype()), (expected.shape(), expected.dtype()));
        assert!(*found.data().bytes().expect("bytes") == *expected.data().bytes().expect("bytes"));
    }
}

/// A file that changes under a reader, and then declares a million arrays.
#[derive(Clone)]
struct Changing(Arc<(Vec<u8>, AtomicBool)>);

impl Source for Changing {
    fn len(&self) -> u64 {
        self.0.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let mut bytes = self.0.0.clone();
        if self.0.1.load(Ordering::Relaxed) {
            bytes[16..24].copy_from_slice(&1_000_000u64.to_le_bytes());
        }
        buf.copy_from_slice(&bytes[offset as usize..][..buf.len()]);
        Ok(())
    }
}

#[test]
fn a_list_that_changes_after_it_was_opened_is_noticed() {
    let bytes = std::fs::read(data("mxnet/golden/mxnet-1.9.1/names.nd")).expect("readable");
    let changing = Changing(Arc::new((bytes, AtomicBool::new(false))));
    let source = Checkpoint::from_source("x.nd", Box::new(changing.clone())).expect("opens");
    assert!(source.mxnet_list().expect("unchanged").is_some());
    changing.0.1.store(true, Ordering::Relaxed);
    let error = source.mxnet_list().expect_err("changed").to_string();
    assert!(error.contains("as many arrays as when it was opened"), "{error}");
}
