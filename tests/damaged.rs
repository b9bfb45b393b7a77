//! A converted file that was damaged never passes `verify`, no value is shown, and a damaged folder is not
//! replaced.
//!
//! The tests flip one bit of the tool's output, or make a receipt that the tool would not write.

use std::fs;
use std::path::Path;

use blob_io::Checkpoint;
use serde_json::{Map, Value, json};

use crate::support::{self, Folder, Ran, archive, blob};

const NET: &str = "caffe/net/v1.caffemodel";
const FIRST: &str = "conv1/0";

/// Converts a file. Returns the path, which ends with `/` for a folder.
fn converted(source: &str, home: &Path, name: &str) -> String {
    let path = format!("{}/{name}", home.display());
    blob(&["convert", source, "-o", &path]).ok();
    path
}

/// Changes a byte of a file.
fn flip(path: impl AsRef<Path>, at: usize, bits: u8) {
    let mut bytes = fs::read(&path).expect("readable");
    bytes[at] ^= bits;
    fs::write(path, bytes).expect("writable");
}

/// The offset of the first occurrence of a text in a file.
fn find(path: &str, text: &[u8]) -> usize {
    support::find(&fs::read(path).expect("readable"), text)
}

/// The offset of the first array's values.
fn first_value(path: &str) -> usize {
    Checkpoint::open(path).expect("opens").entries()[0].segments()[0].offset as usize
}

/// Asserts that `verify` fails and prints these words.
fn fails(args: &[&str], words: &str) -> Ran {
    let ran = blob(&[&["verify"], args].concat()).no();
    assert!(ran.out.contains("FAIL") && ran.out.contains(words), "{words}: {ran:?}");
    ran
}

/// A safetensors file with these tensors, of `size` zeros each, and these metadata.
fn safetensors(path: &Path, dtype: &str, size: usize, names: &[String], metadata: Value) {
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), metadata);
    for (i, name) in names.iter().enumerate() {
        let offsets = [i * size, (i + 1) * size];
        header.insert(name.clone(), json!({"dtype": dtype, "shape": [1], "data_offsets": offsets}));
    }
    let file = archive::safetensors(&Value::Object(header).to_string(), &vec![0; size * names.len()]);
    fs::write(path, file).expect("writable");
}

#[test]
fn values_without_their_checksum_are_not_handed_out() {
    let home = tempfile::tempdir().expect("a folder");
    let npz = converted(NET, home.path(), "x.npz");
    let count = Checkpoint::open(&npz).expect("opens").entries()[0].shape().count().to_string();
    let (csv, npy) = (format!("{npz}.csv"), format!("{npz}.npy"));
    let ways: [&[&str]; 7] = [
        &["extract", &npz, FIRST, "--force", "-o", &csv],
        &["extract", &npz, FIRST, "--force", "-o", &npy],
        &["show", &npz, FIRST],
        &["show", &npz, FIRST, "--slice", ":"],
        &["show", &npz, FIRST, "--slice", "::-1"],
        &["show", &npz, FIRST, "--csv", "--head", &count],
        &["show", &npz, FIRST, "--json", "--head", "99999"],
    ];
    for way in ways {
        assert_eq!(blob(way).code, Some(0), "{way:?}");
    }
    for file in [&csv, &npy] {
        fs::remove_file(file).expect("removable");
    }
    flip(&npz, first_value(&npz), 1);
    for way in ways {
        let ran = blob(way);
        assert_eq!(ran.code, Some(2), "{way:?}: {ran:?}");
        assert!(ran.err.contains("CRC-32") && !ran.out.contains("values"), "{way:?}: {ran:?}");
    }
    assert!(!Path::new(&csv).exists() && !Path::new(&npy).exists());
    // A slice is not verified.
    assert_eq!(blob(&["show", &npz, FIRST, "--slice", "0"]).code, Some(0));
}

#[test]
fn an_array_that_can_no_longer_be_read_is_a_finding() {
    let home = tempfile::tempdir().expect("a folder");
    let npz = converted(NET, home.path(), "x.npz");
    flip(&npz, find(&npz, b"\x93NUMPY") + 6, 8);
    fails(&[&npz], "\"conv1/0\" cannot be read, and was written as f32 ");
    let safe = converted(NET, home.path(), "x.safetensors");
    flip(&safe, find(&safe, br#""dtype":"F32""#) + 9, 1);
    fails(&[&safe], "\"conv1/0\" cannot be read, and was written as f32 ");
}

#[test]
fn a_text_in_place_of_an_array_is_not_replaced() {
    let home = tempfile::tempdir().expect("a folder");
    let wts = converted(NET, home.path(), "wts/");
    let file = format!("{wts}{FIRST}.npy");
    let mut notes = b"my notes".to_vec();
    notes.resize(fs::metadata(&file).expect("there").len() as usize, b'!');
    fs::write(&file, &notes).expect("writable");
    for extra in [&[][..], &["-n"]] {
        blob(&[&["convert", NET, "--force", "-o", &wts], extra].concat()).refused("never replaced: \"conv1/0\"");
    }
    assert_eq!(fs::read(&file).expect("readable"), notes);
}

#[test]
fn a_folder_of_long_names_is_proved_and_guarded_too() {
    let home = tempfile::tempdir().expect("a folder");
    let source = home.path().join("x.safetensors");
    let names: Vec<String> = (0..350).map(|i| format!("{i:04}/{}", "\u{1}".repeat(8000))).collect();
    safetensors(&source, "U8", 1, &names, json!({}));
    let source = source.to_str().expect("UTF-8");
    let wts = converted(source, home.path(), "wts/");
    let receipt = fs::metadata(format!("{wts}blob.receipt.json")).expect("there").len();
    assert!(receipt > 16 << 20, "{receipt}");
    blob(&["verify", "--strict", &wts]).ok().stdout_has("350 digests as in the receipt");
    let mut files = fs::read_dir(format!("{wts}0007")).expect("a folder");
    let file = files.next().expect("a file").expect("readable").path();
    flip(&file, 128, 1);
    let edited = fs::read(&file).expect("readable");
    fails(&[&wts], "has other bytes than were written");
    blob(&["convert", source, "--force", "-o", &wts]).refused("changed since they were written");
    assert_eq!(fs::read(&file).expect("readable"), edited);
}

#[test]
fn a_receipt_that_is_read_is_written_whatever_the_names() {
    let home = tempfile::tempdir().expect("a folder");
    let source = home.path().join("x.safetensors");
    let names: Vec<String> = (0..2000).map(|i| format!("{i:04}{}", "layer.".repeat(450))).collect();
    // The text of these notes would also exceed the kept part of a receipt.
    let metadata = json!({"notes": "\"".repeat((9 << 20) / 4)});
    safetensors(&source, "BF16", 2, &names, metadata);
    let source = source.to_str().expect("UTF-8");
    for name in ["x.npz", "wts/"] {
        let path = converted(source, home.path(), name);
        let ran = blob(&["verify", "--strict", &path, "--against", source]).ok();
        let expected = "2,000 digests as in the receipt, 2,000 tensors bit for bit as in";
        assert!(ran.out.contains(expected), "{}", &ran.out[..200]);
    }
}

#[test]
fn a_receipt_that_is_damaged_is_a_finding() {
    let home = tempfile::tempdir().expect("a folder");
    let safe = converted(NET, home.path(), "x.safetensors");
    flip(&safe, find(&safe, b"contents") + 10, 1);
    fails(&[&safe], "the receipt cannot be read");
    let wts = converted(NET, home.path(), "wts/");
    let receipt = format!("{wts}blob.receipt.json");
    // The tensors can still be listed.
    let text = fs::read_to_string(&receipt).expect("readable");
    let text = text.replace(r#""dtype":"f32""#, r#""dtype":32"#);
    fs::write(&receipt, text).expect("writable");
    fails(&[&wts], "the receipt cannot be read");
    blob(&["convert", NET, "--force", "-o", &wts]).refused("whose digests cannot be read");
    // The metadata block of an npz: first mark, length, JSON, length, last mark.
    let npz = converted(NET, home.path(), "x.npz");
    let whole = fs::read(&npz).expect("readable");
    let mark = b"blob metadata 1\0";
    let first = find(&npz, mark);
    let last = whole.windows(16).rposition(|w| w == mark).expect("two marks");
    for at in [first, first + 16, last - 8, last, last + 15] {
        fs::write(&npz, &whole).expect("writable");
        flip(&npz, at, 1);
        fails(&[&npz, "--strict"], "the archive's metadata cannot be read");
    }
}

#[test]
fn a_wrong_checksum_keeps_no_other_check_from_being_done() {
    let home = tempfile::tempdir().expect("a folder");
    let npz = converted(NET, home.path(), "x.npz");
    flip(&npz, first_value(&npz), 1);
    let digest = "0".repeat(64);
    let ran = fails(&[&npz, "--sha256", &digest, "--against", NET], "CRC-32");
    for words in ["expected 0000", "3 digests as in the receipt", "\"conv1/0\""] {
        assert!(ran.out.contains(words), "{words}: {ran:?}");
    }
    let json = blob(&["verify", "--json", &npz]).json().remove(0);
    assert_eq!((&json["ok"], &json["error"], &json["finding_count"]), (&json!(false), &json!(null), &json!(1)));
}

#[test]
fn a_receipt_of_a_million_axes_is_told_in_one_short_line() {
    let home = tempfile::tempdir().expect("a folder");
    let path = home.path().join("x.safetensors");
    let axes = format!("[{}0]", "0,".repeat(1_000_000));
    let long = "f".repeat(100_000);
    let receipt = format!(r#"{{"contents":[{{"name":"a","dtype":"{long}","shape":{axes},"blake3":"{long}"}}]}}"#);
    safetensors(&path, "U8", 1, &["a".to_owned()], json!({"blob.receipt": receipt}));
    let ran = fails(&[path.to_str().expect("UTF-8")], "\"a\" is u8 1, and was written as ffff");
    assert!(ran.out.len() < 1000, "{}", ran.out.len());
}

#[test]
fn a_conversion_says_what_its_source_s_receipt_denies() {
    let home = Folder::new();
    let safe = converted(NET, home.path(), "x.safetensors");
    let sound = blob(&["convert", &safe, "-o", &home.file("a.npz")]);
    assert!(sound.code == Some(0) && !sound.err.contains("warning"), "{sound:?}");
    flip(&safe, first_value(&safe), 1);
    let words = "array \"conv1/0\" is not what the receipt in ";
    for name in ["b.npz", "b/"] {
        blob(&["convert", &safe, "-o", &home.file(name)]).ok().stderr_has(words);
    }
    // Transformed tensors are read again for the digest.
    for more in [&["--dtype", "f64"][..], &["--layout", "hwio"]] {
        blob(&[&["convert", &safe, "--force", "-o", &home.file("d.npz")], more].concat()).ok().stderr_has(words);
    }
    let json = blob(&["convert", "--json", &safe, "-o", &home.file("c.npz")]).json().remove(0);
    let warnings: Vec<&str> =
        json["warnings"].as_array().expect("a list").iter().filter_map(|one| one.as_str()).collect();
    let [denied, "the receipt keeps no frame: the tensors were changed since"] = warnings[..] else { panic!("{json}") };
    assert!(denied.starts_with(words), "{json}");
}
