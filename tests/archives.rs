//! Files within archives, and files beside a file.

use std::fs;

use blob_io::{Checkpoint, Error, Limit};

use crate::support::data;

/// An MXNet file of one array.
const PARAMS: &str = "mxnet/golden/mxnet-1.9.1/checkpoints/module_mlp-0007.params";

#[test]
fn a_file_beside_the_open_one_is_read_whole_and_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::copy(data(PARAMS), at("net-0000.params")).expect("copied");
    fs::write(at("net-symbol.json"), "{}").expect("written");
    fs::create_dir(at("inner")).expect("made");
    fs::write(at("inner/x"), "x").expect("written");
    fs::File::create(at("large")).and_then(|file| file.set_len((64 << 20) + 1)).expect("written");
    let file = Checkpoint::open(at("net-0000.params")).expect("opens");
    assert_eq!(file.beside("net-symbol.json").expect("readable").as_deref(), Some(&b"{}"[..]));
    for none in ["other", "inner", "inner/x", "../x", "..", "", ".", "/etc/passwd"] {
        assert_eq!(file.beside(none).expect("none"), None, "{none}");
    }
    let error = file.beside("large").expect_err("too long");
    assert!(matches!(error, Error::LimitExceeded { limit: Limit::Fixed, .. }), "{error}");
    assert!(error.to_string().contains("large: at byte 0: the file's length: expected at most 67108864"), "{error}");
    let bytes = fs::read(at("net-0000.params")).expect("readable");
    let unplaced = Checkpoint::from_bytes("net-0000.params", bytes).expect("opens");
    assert_eq!(unplaced.beside("net-symbol.json").expect("none"), None);
}
