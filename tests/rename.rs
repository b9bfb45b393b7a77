//! `blob rename`: other names, the same values; in a Caffe net other layers, and every other byte as it was.

use std::path::Path;

use blob_io::Checkpoint;
use blob_io::caffe::proto::NetParameter;
use prost::Message;

use crate::support::{Folder, Ran, blob, data};

fn names(path: &Path) -> Vec<String> {
    Checkpoint::open(path).expect("opens").names().map(str::to_owned).collect()
}

#[test]
fn names_change_and_nothing_else() {
    let folder = Folder::new();
    std::fs::write(folder.file("map"), "conv/0 c1.weight\nfc/*\tdense.$1\n").expect("written");
    for (how, expected) in [
        (vec!["--sed", "s/^conv/c1/", "--sed", "s|/0|.weight|g"], ["c1.weight", "fc.weight"]),
        (vec!["--map", &folder.file("map")], ["c1.weight", "dense.0"]),
    ] {
        let out = folder.file("out.safetensors");
        blob(&[&["rename", "transform/order.npz", "--force", "-o", &out][..], &how].concat()).ok();
        let found = names(Path::new(&out));
        assert!(expected.iter().all(|name| found.iter().any(|found| found == name)), "{found:?}");
        assert_eq!(found.len(), 7);
        assert_eq!(blob(&["verify", &out, "--against", "transform/order.npz"]).code, Some(0));
    }
}

/// Decoded by `prost`, the net is the old one but for the layer's name.
#[test]
fn a_layer_of_a_caffe_net_is_called_otherwise_and_every_other_byte_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.caffemodel");
    let decoded = |path: &Path| NetParameter::decode(&*std::fs::read(path).expect("readable")).expect("a net");
    for net in ["f32_v2_diff", "v1"] {
        let source = data(&format!("caffe/net/{net}.caffemodel"));
        let ran = renamed(&source, "s/^conv1/eins/", &out);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let mut wanted = decoded(&source);
        let of = |name: &mut Option<String>| {
            if name.as_deref() == Some("conv1") {
                *name = Some("eins".to_owned());
            }
        };
        wanted.layer.iter_mut().for_each(|layer| of(&mut layer.name));
        wanted.layers.iter_mut().for_each(|layer| of(&mut layer.name));
        assert!(decoded(&out) == wanted, "{net}");
        assert_ne!(decoded(&out), decoded(&source));
    }
}

fn renamed(source: &Path, sed: &str, out: &Path) -> Ran {
    let (source, out) = (source.to_str().expect("UTF-8"), out.to_str().expect("UTF-8"));
    blob(&["rename", source, "--sed", sed, "--force", "-o", out])
}

#[test]
fn clashes_are_told_and_so_is_that_nothing_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (out, source) = (folder.path().join("out.npz"), data("transform/order.npz"));
    let ran = renamed(&source, "s/(conv|fc).0/w/", &out);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("\"conv/0\", \"fc/0\" would all be called \"w\""), "{ran:?}");
    let ran = renamed(&source, "s/nothing/x/", &out);
    assert!(ran.code == Some(1) && ran.err.contains("no tensor would be called otherwise"), "{ran:?}");
    let ran = renamed(&source, "s/(/x/", &out);
    assert!(ran.code == Some(2) && ran.err.contains("unclosed group"), "{ran:?}");
    assert!(!out.exists());
}

/// An MXNet file has one name for a sparse array: names that its parts do not share would be lost.
#[test]
fn names_of_sparse_arrays_that_would_be_lost_are_refused() {
    let folder = Folder::new();
    let (source, out) = (data("mxnet/golden/mxnet-1.9.1/sparse_list_mixed.nd"), folder.file("out.params"));
    let source = source.to_str().expect("UTF-8");
    for (map, told) in [
        ("@0#* w.$1", ["\"@0#values\"", "\"w.values\"", "is missing"]),
        ("@0#values a#indices\n@0#indices a#values", ["\"@0#", "\"a#", "is missing"]),
        ("@0#values a#values\n@0#indices b#indices", ["\"a#values\"", "\"b#indices\"", "they need one name"]),
        ("@0#values a#values", ["\"a#values\"", "\"@0#indices\"", "they need one name"]),
        ("@0#* w#$1\n@2 w", ["\"@0#", "\"w\"", "another tensor is called so too"]),
    ] {
        let map = folder.with("map", map);
        let ran = blob(&["rename", source, "--map", &map, "--force", "-o", &out]);
        assert!(ran.code == Some(2) && told.iter().all(|told| ran.err.contains(told)), "{ran:?}");
        assert!(!Path::new(&out).exists());
    }
    let map = folder.with("map", "@0#* w#$1");
    blob(&["rename", source, "--map", &map, "-o", &out]).ok();
    let found = names(Path::new(&out));
    assert!(found.iter().filter(|name| name.starts_with("w#")).count() >= 2, "{found:?}");
}
