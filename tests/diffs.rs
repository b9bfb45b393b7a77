//! Diffs of blobs: each keeps the order of the data, goes with the data, or is said to stay behind.

use blob_io::Checkpoint;

use crate::support::floats::values;
use crate::support::message::{floats, len, shape};
use crate::support::{Folder, blob};

/// Blobs of these shapes that contain 0, 1, 2, …, and diffs that are larger by 1000.
fn with_diffs(name: &str, kind: &str, blobs: &[&[u64]]) -> Vec<u8> {
    let blobs = blobs.iter().flat_map(|dims: &&[u64]| {
        let values: Vec<f32> = (0..dims.iter().product()).map(|i: u64| i as f32).collect();
        let diff: Vec<u8> = values.iter().flat_map(|value| (value + 1000.0).to_le_bytes()).collect();
        len(7, &[shape(dims), floats(&values), len(6, &diff)].concat())
    });
    let blobs: Vec<u8> = blobs.collect();
    len(100, &[len(1, name.as_bytes()), len(2, kind.as_bytes()), blobs].concat())
}

/// A diff has the order of the data, or is left out where no data has that order.
#[test]
fn diffs_follow_their_data_into_torchs_order() {
    let folder = Folder::new();
    let (source, out) = (folder.file("net.caffemodel"), folder.file("x.safetensors"));
    std::fs::write(&source, with_diffs("l", "LSTM", &[&[8, 3], &[8], &[8, 2]])).expect("written");
    blob(&["convert", &source, "--names", "torch", "-o", &out]).ok();
    let made = Checkpoint::open(&out).expect("opens");
    let values = |name: &str| values(&made, name);
    for name in ["l.weight_ih_l0", "l.bias_ih_l0", "l.weight_hh_l0"] {
        let expected: Vec<f32> = values(name).iter().map(|value| value + 1000.0).collect();
        assert_eq!(values(&format!("{name}.diff")), expected, "{name}");
    }
    // The third gate of four of two rows: Caffe's last one.
    assert_eq!(values("l.bias_ih_l0"), [0.0, 1.0, 2.0, 3.0, 6.0, 7.0, 4.0, 5.0]);

    std::fs::write(&source, with_diffs("b", "BatchNorm", &[&[3], &[3], &[1]])).expect("written");
    for options in [&["--names", "torch"][..], &["--bn", "fold-factor"]] {
        let said = blob(&[&["convert", &source, "-o", &out, "--force"], options].concat()).ok().err;
        assert!(said.contains("4 left out"), "{said}");
        let made = Checkpoint::open(&out).expect("opens");
        assert!(made.names().all(|name| !name.ends_with(".diff")), "{:?}", made.names().collect::<Vec<_>>());
    }
}

/// A diff is a part of the blob: the diff goes along, or is said to stay.
#[test]
fn what_becomes_of_a_diff_is_said() {
    let folder = Folder::new();
    let (new, base, out) = (folder.file("new.npz"), "caffe/net/f32_v2_diff.caffemodel", folder.file("out.caffemodel"));
    blob(&["convert", base, "--only", "ip/1", "-o", &new]).ok();
    let diff_of = |out: &str| Checkpoint::open(out).expect("opens").entry("ip/1.diff").is_some();
    let said = blob(&["convert", &new, "--into", base, "-o", &out]).ok().err;
    assert!(said.contains("its diff there stays") && diff_of(&out), "{said}");
    blob(&["convert", &new, "--into", base, "--strip-diff", "-o", &out, "--force"]).ok();
    assert!(!diff_of(&out));
    blob(&["convert", base, "--exclude", "ip/1", "-o", &out, "--force"])
        .refused("\"ip/1.diff\" is the diff of \"ip/1\", which is left out: leave out both, or neither");
}
