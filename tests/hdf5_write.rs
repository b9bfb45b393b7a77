//! Writing HDF5: our reader reads the file back, Caffe's form equals Caffe's own files, tensors that HDF5 cannot hold
//! are refused. `cargo xtask interop` lets h5py and Caffe read the files.

use std::path::Path;

use blob_convert::{Options, Place, Silent, plan};
use blob_core::DType;
use blob_io::{Checkpoint, Error, Format, IfExists};
use proptest::prelude::*;

use crate::caffe_convert::written;
use crate::support::tensors::{Tensor, check_identity, tensors, written as written_by};
use crate::support::{data, open, real, report};

/// Whether HDF5 can hold all these names as paths.
fn fit(tensors: &[Tensor]) -> bool {
    tensors.iter().all(|a| {
        a.name.split('/').all(|part| !part.is_empty() && part != "." && !part.contains('\0'))
            && !tensors.iter().any(|b| b.name.strip_prefix(&*a.name).is_some_and(|rest| rest.starts_with('/')))
    })
}

proptest! {
    #[test]
    fn what_is_written_as_hdf5_is_read(tensors in tensors(), value in "[^\0]*") {
        prop_assume!(fit(&tensors));
        let metadata = [("blob.receipt".to_owned(), value), ("a \"key\"".to_owned(), String::new())];
        let bytes = written_by(Format::Hdf5, &tensors, &metadata);
        prop_assert_eq!(&bytes, &written_by(Format::Hdf5, &tensors, &metadata));
        let file = open("x", &bytes).unwrap();
        prop_assert_eq!((file.format(), file.dialect()), (Format::Hdf5, "datasets"));
        check_identity(&file, &tensors, DType::BF16)?;
        prop_assert_eq!(file.metadata(), &metadata[..]);
    }
}

/// Converts to a file of this name.
fn converted(source: &Checkpoint, name: &str, to: Format) -> Result<Vec<u8>, Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    plan(source, &Options::new(to), &Place::File { path: &path, if_exists: IfExists::Refuse })?.run(&Silent)?;
    Ok(std::fs::read(&path).expect("written"))
}

fn word(bytes: &[u8], at: u64) -> u64 {
    u64::from_le_bytes(bytes[at as usize..][..8].try_into().expect("eight"))
}

/// Looks up a name in the root group as libhdf5 does, by the keys of the tree's nodes. Returns the address of its
/// object header.
fn look_up(file: &[u8], name: &str) -> Option<u64> {
    let (mut node, names) = (word(file, 80), word(file, word(file, 88) + 24));
    let text = |at: u64| file[(names + at) as usize..].split(|b| *b == 0).next().expect("a text");
    loop {
        let head = &file[node as usize..];
        let (level, count) = (head[5], u64::from(head[6]));
        assert!(head.starts_with(b"TREE\0") && count <= 32);
        let key = |i: u64| text(word(file, node + 24 + 16 * i));
        let child = (0..count).find(|i| key(*i) < name.as_bytes() && name.as_bytes() <= key(i + 1))?;
        node = word(file, node + 32 + 16 * child);
        if level == 0 {
            break;
        }
    }
    let count = u64::from(file[node as usize + 6]);
    assert!(file[node as usize..].starts_with(b"SNOD") && count <= 8);
    let entry = (0..count).map(|i| node + 8 + 40 * i).find(|entry| text(word(file, *entry)) == name.as_bytes())?;
    Some(word(file, entry + 8))
}

#[test]
fn trees_of_every_depth_are_found_again() {
    // A leaf has 8 names and a node 32 children.
    for count in [0, 1, 8, 9, 256, 257, 2048] {
        let tensors = (0..count)
            .map(|i| Tensor::new(&format!("layer{}", i * 7919 % 10_000), DType::I32, &[1], &i32::to_le_bytes(i)));
        let tensors: Vec<Tensor> = tensors.collect();
        let bytes = written_by(Format::Hdf5, &tensors, &[]);
        assert!(tensors.iter().all(|tensor| look_up(&bytes, &tensor.name).is_some_and(|at| bytes[at as usize] == 1)));
        assert_eq!(look_up(&bytes, "layer"), None);
        let file = open("x.h5", &bytes).expect("opens");
        assert!(check_identity(&file, &tensors, DType::BF16).is_ok(), "{count}");
        let mut sorted: Vec<&str> = tensors.iter().map(|tensor| &*tensor.name).collect();
        sorted.sort_unstable();
        assert!(file.names().eq(sorted), "{count}");
    }
}

#[test]
fn an_hdf5_file_is_bare_unless_something_runs_or_lies_in_front() {
    let source = Checkpoint::open(data("other/two.safetensors")).expect("opens");
    let mut bytes = converted(&source, "x.h5", Format::Hdf5).expect("fits");
    assert!(open("x.h5", &bytes).expect("opens").is_bare().expect("reads"), "our own, with its receipt");
    // Keras' description of a model, which may hold code to run, in the place of the receipt.
    let name = b"blob.receipt";
    let places: Vec<usize> = (0..bytes.len() - name.len()).filter(|at| bytes[*at..].starts_with(name)).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| bytes[*at..at + name.len()].copy_from_slice(b"model_config"));
    let keras = open("x.h5", &bytes).expect("opens");
    assert!(keras.metadata().iter().any(|(key, _)| key == "model_config"));
    assert!(!keras.is_bare().expect("reads"));
    let behind = Checkpoint::open(data("hdf5/bounded-earliest.h5")).expect("opens behind its user block");
    assert!(!behind.is_bare().expect("reads"));
}

#[test]
fn a_solver_state_goes_to_hdf5_and_back() {
    let golden = std::fs::read(data("caffe/misc/state.solverstate")).expect("readable");
    let source = open("state.solverstate", &golden).expect("opens");
    let copy = converted(&source, "x.solverstate.h5", Format::Hdf5).expect("fits");
    let copy = open("x.solverstate.h5", &copy).expect("opens");
    assert_eq!(copy.dialect(), "Caffe solver state");
    let counters = |file: &Checkpoint| {
        let mut counters = file.metadata().to_vec();
        counters.retain(|(key, _)| key != "blob.receipt");
        counters.sort();
        counters
    };
    assert!(!counters(&source).is_empty() && counters(&copy) == counters(&source), "{:?}", copy.metadata());
    let back = converted(&copy, "x.solverstate", Format::SolverState).expect("fits");
    assert!(back == golden, "{:?}", open("x.solverstate", &back).map(|file| file.metadata().to_vec()));
    let Some(folder) = real("caffe/real") else {
        return report("NOT TESTED: a real HDF5 solver state written again");
    };
    let source = Checkpoint::open(folder.join("cifar10_quick_2018.solverstate.h5")).expect("opens");
    let copy = converted(&source, "x.solverstate.h5", Format::Hdf5).expect("fits");
    let copy = open("x.solverstate.h5", &copy).expect("opens");
    assert!(copy.names().eq(source.names()) && counters(&copy) == counters(&source));
}

#[test]
fn what_hdf5_cannot_hold_is_refused_with_all_names() {
    let tensor = |name: &str, dtype| Tensor::new(name, dtype, &[1], &[0; 4][..dtype.size()]);
    let floats = |names: &[&str]| names.iter().map(|name| tensor(name, DType::F32)).collect::<Vec<_>>();
    let many: Vec<String> = (0..3100).map(|i| i.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let deep = ["x"; 33].join("/");
    let plain = "is not called <layer>/<index>";
    for (file, tensors, problems) in [
        ("x.h5", floats(&["a", "a/b", "ok"]), vec!["\"a/b\" lies inside another tensor"]),
        ("x.h5", floats(&["a/b", "a"]), vec!["\"a\" has the name of a group"]),
        ("x.h5", floats(&["", "/a", "a//b", "./c", "d\0"]), vec!["\"\" ", "\"/a\"", "\"a//b\"", "\"./c\"", "\"d\\0\""]),
        ("x.h5", floats(&[&deep]), vec!["has more than 32 parts"]),
        ("x.h5", floats(&many), vec!["\"/\" is a group of 3100 names, which take over 640 KiB"]),
        ("x.h5", floats(&["data/conv1/0"]), vec!["would be read as Caffe's weights"]),
        ("x.h5", floats(&["iter", "history/x"]), vec!["\"iter\" beside history would be read as"]),
        (
            "x.caffemodel.h5",
            floats(&["w", "conv1/00", "a/b/0"]),
            vec![plain, plain, "\"a/b/0\" has a layer's name with a"],
        ),
        ("x.CaffeModel.H5", vec![tensor("conv1/0", DType::Bool)], vec!["is bool, which Caffe does not read"]),
        (
            "x.solverstate.h5",
            floats(&["@0", "@2", "b"]),
            vec!["\"b\" is not called @<index>", "\"@2\" is behind a gap"],
        ),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let writer = tensors.iter().fold(blob_io::Writer::new(Format::Hdf5), |w, t| w.tensor(&t.name, t));
        let refused = writer.write(folder.path().join(file), IfExists::Refuse).expect_err(file).to_string();
        assert!(problems.iter().all(|problem| refused.contains(problem)), "{file}: {refused}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 0, "nothing is left");
    }
    let refused = |key: &str, value: &str| {
        let writer = blob_io::Writer::new(Format::Hdf5).metadata(key, value);
        writer.write(Path::new("never/written"), IfExists::Refuse).expect_err("refused").to_string()
    };
    for (key, value) in [("", "a"), ("a\0", "b"), ("a", "b\0")] {
        assert!(refused(key, value).contains("an attribute has a name and no NUL"), "{}", refused(key, value));
    }
    assert!(refused(&"k".repeat(70_000), "").contains("the most is 61440"));
}

#[test]
fn other_values_go_into_an_hdf5_file_that_is_there() {
    let golden = std::fs::read(data("caffe/net/f32_diff.caffemodel.h5")).expect("readable");
    let base = open("base.h5", &golden).expect("opens");
    let tensor = |name: &str, dtype: DType, dims: &[usize]| {
        let len = dims.iter().product::<usize>() * dtype.size();
        Tensor::new(name, dtype, dims, &(0..len).map(|i| i as u8).collect::<Vec<_>>())
    };
    let into = |tensors: &[Tensor], base: &Checkpoint| {
        let source = open("x", &written_by(Format::Safetensors, tensors, &[])).expect("opens");
        written(&source, Some(base), &Options::new(Format::Hdf5))
    };
    let new = [tensor("ip/1", DType::F32, &[7]), tensor("conv1/0.diff", DType::F32, &[4, 3, 3, 3])];
    let mut wanted = golden.clone();
    for tensor in &new {
        let at = base.entry(&tensor.name).and_then(|entry| entry.offset()).expect("a place") as usize;
        wanted[at..at + tensor.bytes.len()].copy_from_slice(&tensor.bytes);
    }
    assert!(into(&new, &base).expect("fits") == wanted);
    let refused = |tensor: Tensor, base: &Checkpoint| into(&[tensor], base).expect_err("refused").to_string();
    for (new, said) in [
        (tensor("ip/9", DType::F32, &[7]), "\"ip/9\" is not there"),
        (tensor("ip/1", DType::F32, &[8]), "\"ip/1\" is 7 there, not 8"),
        (tensor("ip/1", DType::F64, &[7]), "\"ip/1\" is of f32 there, not of f64"),
    ] {
        assert!(refused(new.clone(), &base).contains(said), "{}", refused(new, &base));
    }
    let packed = Checkpoint::open(data("hdf5/tiny/earliest.h5")).expect("opens");
    let said = refused(tensor("g/c", DType::F32, &[3, 2]), &packed);
    assert!(said.contains("\"g/c\" is in chunks, compact or big-endian there"), "{said}");
    let ours =
        open("ours.h5", &written(&base, None, &Options::new(Format::Hdf5).with(|o| o.anew = true)).expect("fits"))
            .expect("opens");
    assert!(refused(tensor("ip/1", DType::F32, &[7]), &ours).contains("has a receipt"));
}

#[test]
fn what_is_too_large_for_the_reader_is_refused() {
    let written = |count: usize, name: usize, axes: usize| {
        let all: Vec<Tensor> =
            (0..count).map(|i| Tensor::new(&format!("{i:0name$}"), DType::U8, &vec![1; axes], &[7])).collect();
        let writer = all.iter().fold(blob_io::Writer::new(Format::Hdf5), |w, t| w.tensor(&t.name, t));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.h5");
        writer.write(&path, IfExists::Refuse)?;
        Ok::<_, Error>(Checkpoint::open(&path).expect("what is written is read").entries().len())
    };
    // The largest groups that can be written: with short names, with many axes, with long names.
    for (count, name, axes) in [(3091, 4, 0), (1400, 4, 32), (542, 1000, 0)] {
        assert_eq!(written(count, name, axes).expect("fits"), count);
        assert!(written(count + 1, name, axes).expect_err("too large").to_string().contains("over 640 KiB"));
    }
    assert!(written(65_537, 4, 0).expect_err("too many").to_string().contains("65537 groups and datasets"));
}

#[test]
fn a_net_comes_back_from_hdf5_as_it_was() {
    for name in ["f32_v2_diff.caffemodel", "v1.caffemodel", "f64.caffemodel.h5"] {
        let golden = std::fs::read(data("caffe/net").join(name)).expect("readable");
        let source = open(name, &golden).expect("opens");
        let carrier = if source.format() == Format::Hdf5 { Format::Safetensors } else { Format::Hdf5 };
        let carrier = open("x", &written(&source, None, &Options::new(carrier)).expect("fits")).expect("opens");
        assert!(converted(&carrier, name, source.format()).expect("fits") == golden, "{name}");
    }
}

/// The losses of a file made of this one.
fn losses(file: &Checkpoint) -> Vec<String> {
    file.warnings().iter().filter(|warning| warning.is_loss).map(ToString::to_string).collect()
}

#[test]
fn texts_of_the_root_are_metadata() {
    for name in ["attributes-earliest", "attributes-latest"] {
        let file = Checkpoint::open(data(&format!("hdf5/tiny/{name}.h5"))).expect("opens");
        let mut found = file.metadata().to_vec();
        found.sort();
        let expected = [("empty", ""), ("fixed", "of seven"), ("last", "last"), ("text", "two ü words")];
        assert_eq!(found, expected.map(|(key, value)| (key.to_owned(), value.to_owned())), "{name}");
        assert_eq!(losses(&file), ["attributes of the root that are no texts are left out: number, texts"], "{name}");
    }
    // In the header of the dataset, and outside.
    for name in ["compact-earliest", "compact-latest"] {
        let file = Checkpoint::open(data(&format!("hdf5/{name}.h5"))).expect("opens");
        assert_eq!(losses(&file), ["attributes of groups and datasets are left out, of: floats"], "{name}");
    }
}
