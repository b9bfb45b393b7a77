//! npz files: the goldens of MXNet 2, the quirks of MXNet and SciPy, and the `zip` crate in both directions.

use std::io::{Cursor, Read};

use blob_core::DType;
use blob_io::{Bytes, Checkpoint, Error, Format, Kind, OpenOptions, SparseKind};
use proptest::prelude::*;
use zip::{CompressionMethod, ZipArchive};

use crate::npy::check_sidecar;
use crate::support::archive::{Zip, ints, npy, npy_of, theirs};
use crate::support::tensors::{Tensor, check_identity, check_values, tensors, written};
use crate::support::{changed, data, files, find, open, report};

#[test]
fn every_golden_npz_is_what_its_writer_was_given() {
    let folder = data("mxnet/golden/mxnet-2.0.0beta1/npz");
    let files = files(&folder, |name| name.ends_with(".npz"));
    for path in &files {
        let json = std::fs::read(format!("{}.json", path.display())).unwrap();
        let file = Checkpoint::open(path).unwrap();
        assert_eq!(file.format(), Format::Npz);
        check_sidecar(&file, &serde_json::from_slice(&json).unwrap());
        let offsets: Vec<_> = file.entries().iter().map(|e| e.offset()).collect();
        assert!(offsets.is_sorted(), "the order of the file");
    }
    let list = Checkpoint::open(folder.join("list12.npz")).unwrap();
    let names: Vec<String> = list.entries().iter().map(|e| e.name().to_owned()).collect();
    let expected: Vec<String> = (0..12).map(|i| format!("arr_{i}")).collect();
    assert_eq!(names, expected);
    assert_eq!(files.len(), 3);
    report(&format!("npz: {} files of MXNet 2", files.len()));
}

/// The broken header that MXNet 2 writes for `format.npy`: one dict begins inside another.
fn broken_format(format: &str) -> Vec<u8> {
    let dict = format!("{{'descr': '|s{}{{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }}\n", format.len());
    npy_of(1, &dict, format.as_bytes())
}

#[test]
fn sparse_arrays_of_mxnet_are_their_parts() {
    let values = npy("'<f4'", "(2, 3)", &[1; 24]);
    let flat = npy("'<f4'", "(2,)", &[2; 8]);
    let bytes = Zip::default()
        .add("dense.npy", &npy("'|u1'", "(1,)", &[9]))
        .add("net/emb/format.npy", &broken_format("row_sparse"))
        .add("net/emb/data.npy", &values)
        .add("net/emb/indices.npy", &ints(&[1, 4]))
        .add("net/emb/shape.npy", &ints(&[10, 3]))
        .add("m/data.npy", &flat)
        .add("m/indices.npy", &ints(&[0, 1]))
        .add("m/indptr.npy", &ints(&[0, 1, 2]))
        .add("m/shape.npy", &npy("'<i4'", "(2,)", &[2, 0, 0, 0, 5, 0, 0, 0]))
        .add("m/format.npy", &broken_format("csr"))
        .end();
    let file = open("x.params", &bytes).unwrap();
    let found: Vec<(&str, Kind, usize, usize)> =
        file.entries().iter().map(|e| (e.name(), e.kind(), e.position(), e.index())).collect();
    assert_eq!(
        found,
        [
            ("dense", Kind::Data, 0, 0),
            ("net/emb#values", Kind::Values, 1, 0),
            ("net/emb#indices", Kind::Indices, 1, 1),
            ("m#values", Kind::Values, 2, 0),
            ("m#indices", Kind::Indices, 2, 1),
            ("m#indptr", Kind::Indptr, 2, 2),
        ]
    );
    for (i, kind, name, dims) in [(1, SparseKind::RowSparse, "net/emb", [10, 3]), (5, SparseKind::Csr, "m", [2, 5])] {
        let sparse = file.entries()[i].sparse().unwrap();
        assert_eq!((sparse.kind, &*sparse.name, sparse.shape.dims()), (kind, name, &dims[..]));
        let warning = file.entries()[i].warnings().next().unwrap();
        assert!(warning.text.contains("format.npy is broken"), "{warning}");
    }
    assert_eq!(file.entries()[1].shape().dims(), [2, 3]);
    assert_eq!(*file.load(&file.entries()[2]).unwrap().data().elements::<i64>().unwrap(), [1, 4]);
}

#[test]
fn sparse_arrays_of_scipy_are_their_parts_and_others_their_members() {
    let flat = npy("'<f8'", "(2,)", &[2; 16]);
    let rest = |format: &[u8]| {
        vec![
            ("indices.npy", ints(&[0, 1])),
            ("indptr.npy", ints(&[0, 1, 2])),
            ("format.npy", npy("'|S3'", "()", format)),
            ("shape.npy", ints(&[2, 5])),
            ("data.npy", flat.clone()),
        ]
    };
    let zip = |parts: &[(&str, Vec<u8>)]| {
        let members: Vec<(&str, &[u8])> = parts.iter().map(|(n, b)| (*n, &b[..])).collect();
        theirs(CompressionMethod::Deflated, &members)
    };
    let file = open("x", &zip(&rest(b"csr"))).unwrap();
    let names: Vec<&str> = file.entries().iter().map(|e| e.name()).collect();
    assert_eq!(names, ["#values", "#indices", "#indptr"]);
    assert_eq!(file.dialect(), "deflated");
    assert!(file.entries()[0].warnings().next().is_none());
    let wide: Vec<u8> = b"csr".iter().flat_map(|b| [*b, 0, 0, 0]).collect();
    let mut unicode = rest(b"");
    unicode[2].1 = npy("'<U3'", "()", &wide);
    assert_eq!(open("x", &zip(&unicode)).unwrap().entries()[0].name(), "#values");
    // MXNet does not support csc, a csr without indptr, a shape of floats, or an incomplete folder.
    let mut without = rest(b"csr");
    without.remove(1);
    let mut floats = rest(b"csr");
    floats[3].1 = npy("'<f8'", "(2,)", &[0; 16]);
    let mut negative = rest(b"csr");
    negative[3].1 = ints(&[2, -5]);
    for (parts, warned) in
        [(rest(b"csc"), true), (without, true), (floats, true), (negative, true), (rest(b"csr")[..3].to_vec(), false)]
    {
        let file = open("x", &zip(&parts)).unwrap();
        assert_eq!(file.entries().len(), parts.len());
        assert!(file.entries().iter().all(|e| e.sparse().is_none() && e.kind() == Kind::Data));
        assert!(file.entries().iter().any(|e| e.name() == "indices"));
        assert_eq!(file.warnings().len(), usize::from(warned), "{:?}", file.warnings());
    }
}

proptest! {
    #[test]
    fn what_is_written_as_npz_is_read(tensors in tensors(), value in any::<String>()) {
        let metadata = [("blob.receipt".to_owned(), value.clone()), ("a/note".to_owned(), "ü".to_owned()), ("name".to_owned(), "LeNet".to_owned())];
        let bytes = written(Format::Npz, &tensors, &metadata);
        let file = open("x", &bytes).unwrap();
        check_identity(&file, &tensors, DType::U16)?;
        prop_assert_eq!(file.metadata(), &metadata[..]);
        let order: Vec<&str> = file.entries().iter().map(|e| e.name()).collect();
        let expected: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
        prop_assert_eq!(order, expected);
        for entry in file.entries() {
            prop_assert!(entry.offset().is_none_or(|offset| offset % 64 == 0));
        }
        // The zip crate reads the same, with valid checksums; npyz reads the headers.
        let mut archive = ZipArchive::new(Cursor::new(&bytes)).unwrap();
        prop_assert_eq!(archive.len(), tensors.len());
        for i in 0..archive.len() {
            let mut member = archive.by_index(i).unwrap();
            prop_assert!(member.enclosed_name().is_some(), "{:?}", member.name());
            let mut content = Vec::new();
            member.read_to_end(&mut content).unwrap();
            if let Some(tensor) = tensors.get(i) {
                let header = npyz::NpyHeader::from_reader(&content[..]).unwrap();
                let dims: Vec<u64> = tensor.dims.iter().map(|d| *d as u64).collect();
                prop_assert_eq!(header.shape(), &dims[..]);
                prop_assert!(content.ends_with(&tensor.bytes));
                prop_assert_eq!((content.len() - tensor.bytes.len()) % 64, 0);
            }
        }
    }

    #[test]
    fn what_the_zip_crate_writes_is_read(tensors in tensors(), deflated in any::<bool>()) {
        let tensors: Vec<Tensor> = tensors.into_iter().filter(|t| !t.name.is_empty() && !t.name.contains(['\\', '/', '\0', ':'])).collect();
        // Uses our own npy writer, which other tests check.
        let members: Vec<(String, Vec<u8>)> = tensors
            .iter()
            .map(|t| (format!("{}.npy", t.name), written(Format::Npy, std::slice::from_ref(t), &[])))
            .collect();
        let members: Vec<(&str, &[u8])> = members.iter().map(|(n, b)| (n.as_str(), &b[..])).collect();
        let method = if deflated { CompressionMethod::Deflated } else { CompressionMethod::Stored };
        let bytes = theirs(method, &members);
        check_values(&open("x", &bytes).unwrap(), &tensors, DType::U16)?;
    }
}

#[test]
fn what_is_no_npz_is_called_by_its_name() {
    for (members, expected) in [
        (
            &[("archive/data.pkl", &b"x"[..]), ("archive/data/0", b"x")][..],
            "a PyTorch checkpoint (a zip around a Python pickle), which blob never reads",
        ),
        (&[("readme.md", b"x")], "a zip archive without a tensor file in it"),
    ] {
        let refused = open("x.npz", &theirs(CompressionMethod::Stored, members)).unwrap_err();
        assert_eq!(refused.to_string(), format!("x.npz is {expected}"));
        assert!(refused.help().is_some());
    }
    let empty = open("x.params", &Zip::default().end()).unwrap();
    assert_eq!((empty.format(), empty.entries().len()), (Format::Npz, 0));
    let metadata = [("blob.receipt".to_owned(), "{}".to_owned())];
    let receipt = open("x", &written(Format::Npz, &[], &metadata)).unwrap();
    assert_eq!((receipt.format(), receipt.metadata()), (Format::Npz, &metadata[..]));
    let mut members = vec![
        ("folder/", &b""[..]),
        ("a.md", b""),
        ("big.txt", &[b' '; 5 << 20]),
        ("bad.txt", b"\xFF"),
        ("good.txt", b"yes"),
    ];
    let array = npy("'|u1'", "(0,)", &[]);
    members.push(("x.npy", &array));
    let file = open("x", &theirs(CompressionMethod::Deflated, &members)).unwrap();
    let expected = [("good", "yes"), ("members without arrays", "a.md, big.txt, bad.txt")];
    assert_eq!(file.metadata(), expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
}

#[test]
fn metadata_that_are_broken_leave_the_arrays_whole() {
    let metadata = [("blob.receipt".to_owned(), "{}".to_owned())];
    let tensors = [Tensor::new("w", DType::U8, &[3], &[1, 2, 3])];
    let bytes = written(Format::Npz, &tensors, &metadata);
    let (mark, json) = (find(&bytes, b"blob metadata 1\0"), find(&bytes, b"{\"blob.receipt"));
    // The first mark, the length's lowest and highest byte, the JSON's first and last byte, the last length, the last
    // mark.
    let end = json + 21;
    assert_eq!(&bytes[end - 1..end], b"}");
    for at in [mark, mark + 16, mark + 23, json, end - 1, end, end + 7, end + 8] {
        let file = open("x.npz", &changed(&bytes, at, &[bytes[at] ^ 0x20])).unwrap();
        assert_eq!(&*file.view(&file.entries()[0]).unwrap(), &[1, 2, 3]);
        assert_eq!((file.metadata(), file.warnings().len()), (&[][..], 1), "{}", at - mark);
    }
    // An array whose bytes end like metadata is still an array.
    let data = &bytes[mark..end + 24];
    let same = [Tensor::new("w", DType::U8, &[data.len()], data)];
    let file = written(Format::Npz, &same, &[]);
    assert!(open("x.npz", &file).unwrap().metadata().is_empty());
}

#[test]
fn files_of_other_writers_hold_what_they_were_given() {
    let six = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    for (name, entries) in [
        ("numpy_savez.npz", &["w", "größe"][..]),
        ("numpy_compressed.npz", &["w", "empty"]),
        ("mxnet2_row_sparse.npz", &["emb#values", "emb#indices"]),
        ("fortran_big_endian.npy", &["@0"]),
        ("two.safetensors", &["w", "b"]),
    ] {
        let file = Checkpoint::open(data("other").join(name)).unwrap();
        let names: Vec<&str> = file.entries().iter().map(|e| e.name()).collect();
        assert_eq!(names, entries, "{name}");
        assert!(file.warnings().is_empty(), "{name}");
        let blob = file.load(&file.entries()[0]).unwrap();
        assert_eq!(blob.shape().dims(), [2, 3]);
        assert_eq!(*blob.data().elements::<f32>().unwrap(), six, "{name}");
        for entry in file.entries() {
            file.load(entry).unwrap();
        }
    }
    let csr = Checkpoint::open(data("other/scipy_csr.npz")).unwrap();
    let sparse = csr.entries()[0].sparse().unwrap();
    assert_eq!((sparse.kind, &*sparse.name), (SparseKind::Csr, ""));
    assert_eq!(sparse.shape.dims(), [2, 3]);
    let indptr = csr.load(&csr.entries()[2]).unwrap();
    assert_eq!(*indptr.data().elements::<i32>().unwrap(), [0, 1, 2]);
}

/// The members of an npz are no files to choose from, unless as npy files.
#[test]
fn an_npz_that_is_named_as_another_format_is_said_to_be_one() {
    let one = npy("'<f4'", "(2,)", &[0; 8]);
    let npz = theirs(CompressionMethod::Stored, &[("a.npy", &one), ("b.npy", &one)]);
    let named = |from| OpenOptions::new().from(from).open_source("x.npz", Box::new(Bytes(npz.clone())));
    for from in [Format::MxnetList, Format::CaffeModel, Format::Safetensors, Format::NeomlNet, Format::Onnx] {
        let refused = named(from).expect_err(from.name()).to_string();
        assert!(refused.contains(&format!("npz, not {}", from.name())), "{refused}");
    }
    assert!(matches!(named(Format::Npy), Err(Error::Several { .. })));
    // A zip of another format's files is an archive.
    let weights = std::fs::read(data("caffe/net/v1.caffemodel")).expect("readable");
    let zip = theirs(CompressionMethod::Stored, &[("net.caffemodel", &weights), ("note.txt", b"text")]);
    let opened = OpenOptions::new().from(Format::CaffeModel).open_source("x.zip", Box::new(Bytes(zip)));
    assert_eq!(opened.expect("one member").member(), Some("net.caffemodel"));
}
