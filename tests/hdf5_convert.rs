//! Caffe's HDF5 weights in every command of the tool and in every conversion: the results equal those of Caffe's
//! protobuf file of the same net.

use std::collections::BTreeMap;

use blob_convert::Options;
use blob_io::{Checkpoint, Format};
use serde_json::Value;

use crate::caffe_convert::written;
use crate::support::hdf5::{File, floats, link};
use crate::support::{blob, command, data, opened, real, report};

/// Nets in Caffe's own files: HDF5, and protobuf.
const NETS: [(&str, &str); 4] = [
    ("caffe/net/f32.caffemodel.h5", "caffe/net/f32_v2.caffemodel"),
    ("caffe/net/f32_diff.caffemodel.h5", "caffe/net/f32_v2_diff.caffemodel"),
    ("caffe/net/f64.caffemodel.h5", "caffe/net/f64_v2.caffemodel"),
    ("caffe/net/f64_diff.caffemodel.h5", "caffe/net/f64_v2_diff.caffemodel"),
];

/// The HDF5 file does not have a copy of the blob that conv2 shares with conv1.
const SHARED: &str = "conv2/0";

/// Dtype, shape and bytes of each array, by name.
fn arrays(file: &Checkpoint) -> BTreeMap<String, (String, Vec<usize>, Vec<u8>)> {
    file.entries()
        .iter()
        .map(|entry| {
            let bytes = file.view(entry).unwrap_or_else(|e| panic!("{e}")).into_owned();
            let dtype = entry.dtype().expect("an array").to_string();
            (entry.name().to_owned(), (dtype, entry.shape().dims().to_vec(), bytes))
        })
        .collect()
}

#[test]
fn each_conversion_has_the_arrays_that_caffes_protobuf_file_has() {
    let mut count = 0;
    for (hdf5, proto) in NETS {
        let (source, theirs) = (opened(hdf5), opened(proto));
        let mut expected = arrays(&theirs);
        expected.remove(SHARED).expect("shared");
        for to in [Format::Safetensors, Format::Npz, Format::MxnetList, Format::Hdf5] {
            let bytes = written(&source, None, &Options::new(to)).unwrap_or_else(|e| panic!("{hdf5}: {e}"));
            let copy = Checkpoint::from_bytes("x", bytes).expect("opens");
            assert!(arrays(&copy) == expected, "{hdf5} as {to}");
            // Put into Caffe's own file, the net leaves that unchanged.
            let into = written(&copy, Some(&theirs), &Options::new(Format::CaffeModel));
            let into = into.unwrap_or_else(|e| panic!("{hdf5} over {to}: {e}"));
            assert!(into == std::fs::read(data(proto)).expect("readable"), "{hdf5} over {to}");
            count += expected.len();
        }
        let into = written(&source, Some(&theirs), &Options::new(Format::CaffeModel)).expect("fits");
        assert!(into == std::fs::read(data(proto)).expect("readable"), "{hdf5} into {proto}");
    }
    report(&format!("HDF5: {count} arrays converted, equal to those of Caffe's protobuf files"));
}

/// A net in Caffe's HDF5 form, with two floats per blob.
fn net(layers: &[(&str, u32)]) -> Checkpoint {
    let mut file = File::new();
    let mut groups = Vec::new();
    for (layer, blobs) in layers {
        let mut links = Vec::new();
        for index in 0..*blobs {
            let at = file.add(&[index as f32, 0.5].map(f32::to_le_bytes).concat());
            links.push(link(&index.to_string(), file.object(&floats(at))));
        }
        groups.push(link(layer, file.object(&links)));
    }
    let layers = file.object(&groups);
    let root = file.object(&[link("data", layers)]);
    Checkpoint::from_bytes("x.caffemodel.h5", file.finish(root)).expect("opens")
}

#[test]
fn a_new_caffemodel_holds_what_the_hdf5_file_held() {
    let mut nets = vec![net(&[("a", 2), ("b", 1), ("c", 3)])];
    match real("caffe/real") {
        Some(folder) => nets.push(Checkpoint::open(folder.join("cifar10_quick_2018.caffemodel.h5")).expect("opens")),
        None => report("NOT TESTED: a real HDF5 net as a new caffemodel"),
    }
    for source in nets {
        assert_eq!(source.dialect(), "Caffe weights");
        let bytes = written(&source, None, &Options::new(Format::CaffeModel)).unwrap_or_else(|e| panic!("{e}"));
        let copy = Checkpoint::from_bytes("x.caffemodel", bytes).expect("opens");
        assert!(copy.names().eq(source.names()) && arrays(&copy) == arrays(&source), "{}", source.name());
    }
    // HDF5 does not store with which layer a missing blob is shared.
    for (hdf5, _) in NETS {
        let refused = written(&opened(hdf5), None, &Options::new(Format::CaffeModel)).expect_err("a gap").to_string();
        assert!(refused.contains("names that do not fit: ") && refused.contains("\"conv2/"), "{refused}");
    }
}

/// The tensors of a line of JSON by name, without properties of the file: offset, layer, warnings.
fn tensors(line: &Value) -> BTreeMap<String, Value> {
    let tensors = line["tensors"].as_array().expect("a list");
    tensors
        .iter()
        .map(|tensor| {
            let mut tensor = tensor.clone();
            let fields = tensor.as_object_mut().expect("an object");
            for field in ["index", "layer_type", "position", "offset", "pieces", "warnings"] {
                fields.remove(field);
            }
            (tensor["name"].as_str().expect("a name").to_owned(), tensor)
        })
        .collect()
}

#[test]
fn every_command_says_of_hdf5_what_it_says_of_the_protobuf_file() {
    for (hdf5, proto) in NETS {
        for args in [&["ls", "--json"][..], &["stats", "--json"], &["stats", "--json", "--per-channel", "0"]] {
            let lists = [hdf5, proto].map(|file| {
                let ran = blob(&[args, &[file]].concat()).ok();
                tensors(&ran.json()[0])
            });
            let [found, mut expected] = lists;
            expected.remove(SHARED).expect("shared");
            assert_eq!(found, expected, "{args:?} {hdf5}");
        }
        // Only every third, because each call is a process.
        for entry in opened(hdf5).entries().iter().step_by(3) {
            let values = |file| blob(&["show", "--json", "--full", file, entry.name()]).json()[0]["values"].clone();
            assert!(values(hdf5).is_array() && values(hdf5) == values(proto), "{hdf5} {}", entry.name());
            let npy = |file| command(&["extract", file, entry.name(), "-o", "-"]).output().expect("runs").stdout;
            assert!(npy(hdf5).starts_with(b"\x93NUMPY") && npy(hdf5) == npy(proto), "{hdf5} {}", entry.name());
        }
        let info = &blob(&["info", "--json", hdf5]).json()[0];
        assert_eq!((&info["format"], &info["dialect"]), (&"hdf5".into(), &"Caffe weights".into()));
        blob(&["verify", "--finite", "--strict", hdf5]).ok().stdout_has("all values finite");
        // The only difference is the copy that HDF5 does not have.
        let verify = blob(&["verify", "--json", hdf5, "--against", proto]);
        let findings = verify.json()[0]["findings"].as_array().map(Vec::len);
        assert!((verify.code, findings) == (Some(1), Some(1)) && verify.out.contains(SHARED), "{verify:?}");
    }
}
