//! Malformed NeoML files: every file that was tried on the real library (`malformed_release.jsonl`, "load: …") has a
//! documented outcome, and errors in a net name the layer.

use blob_io::{Checkpoint, Error, Format, OpenOptions};

use crate::support::neoml::table;
use crate::support::{changed, data, open, refusal, report};

const CUT: &str = "needs";

/// A blob of three floats in NeoML's form.
fn record() -> Vec<u8> {
    let file = Checkpoint::open(data("neoml/cpp/cpp_blob_00_float.arch")).expect("opens");
    let one = file.source().bytes().map(<[u8]>::to_vec).unwrap_or_else(|| golden("cpp/cpp_blob_00_float.arch"));
    let three = [&one[..], &[0; 8]].concat();
    changed(&changed(&three, 37, &[3]), 41, &[3])
}

fn golden(path: &str) -> Vec<u8> {
    std::fs::read(data("neoml").join(path)).expect("readable")
}

/// Our outcome for a file that the real library was given.
enum Outcome {
    /// An error at this offset, whose message contains this text.
    Error(u64, &'static str),
    /// The file opens; unless the text is empty, with a warning that contains the text.
    Opens(&'static str),
    /// Tested elsewhere.
    Elsewhere,
}

use Outcome::{Elsewhere, Error as Refused, Opens};

/// The file of a case and the outcome. With half of the files, NeoML itself crashes or reads unwritten memory.
fn case(name: &str) -> (Vec<u8>, Outcome) {
    let file = record();
    let count = |count: u32| changed(&file, 41, &count.to_le_bytes());
    let cells = "the cells: expected 3 values for the shape, found";
    match name {
        "well formed" => (file, Opens("")),
        "version 1001" => (changed(&file, 1, &[0xE9, 3]), Opens("")),
        "version 1000" => (changed(&file, 1, &[0xE8, 3]), Refused(0, "a blob's version of 1001 to 2000, found 1000")),
        "version 2001" => (changed(&file, 1, &[0xD1, 7]), Refused(0, "a blob's version of 1001 to 2000, found 2001")),
        "pack field not 0" => (changed(&file, 9, &[7]), Opens("")),
        "type 0" => (changed(&file, 5, &[0]), Refused(5, "the type of a blob: expected 1 (float) or 2 (int), found 0")),
        "type 3" => (changed(&file, 5, &[3]), Refused(5, "the type of a blob: expected 1 (float) or 2 (int), found 3")),
        "size field less than the product of the dims" => (count(2), Refused(41, cells)),
        "size field 0 for three cells" => (count(0), Refused(41, cells)),
        "size field greater than the product (heap overflow?)" => (count(4), Refused(41, cells)),
        "size field 0x80000000" => (count(1 << 31), Refused(41, cells)),
        "size field 0x40000000 (times 4 is 0 as an int)" => (count(1 << 30), Refused(41, cells)),
        "size field 0x20000000 (times 4 is INT_MIN as an int)" => (count(1 << 29), Refused(41, cells)),
        "negative dim" => {
            (changed(&file, 37, &[0xFD, 0xFF, 0xFF, 0xFF]), Refused(37, "axis 6: expected a dimension of 0"))
        }
        "zero dim" => {
            let empty = changed(&changed(&file, 33, &[0]), 41, &[0]);
            (empty[..45].to_vec(), Opens(""))
        }
        "dims 65536 x 65536" => {
            let large = changed(&changed(&file, 13, &[0, 0, 1]), 37, &[0, 0, 1]);
            (changed(&large, 41, &[0]), Refused(41, "the cells: expected 4294967296 values for the shape, found 0"))
        }
        "file ends in the header" => (file[..20].to_vec(), Refused(17, CUT)),
        "file ends in the data" => (file[..50].to_vec(), Refused(45, "the cells needs 12 bytes, but 5 are left")),
        "empty file" => (Vec::new(), Elsewhere),
        "bytes after the blob" => ([&file[..], b"more"].concat(), Opens("4 bytes are left at the end")),
        // These are not properties of a file.
        "into a blob that is already made" | "no such file" => (file, Elsewhere),
        other => panic!("{other}"),
    }
}

#[test]
fn every_file_that_neoml_was_tried_with_has_its_outcome() {
    let (mut refused, mut opened) = (0, 0);
    for row in table("cpp/malformed_release.jsonl") {
        let Some(name) = row["case"].as_str().expect("a name").strip_prefix("load: ") else { continue };
        let (bytes, outcome) = case(name);
        let file = OpenOptions::new().from(Format::NeomlBlob).open_source("x", Box::new(blob_io::Bytes(bytes)));
        match outcome {
            Elsewhere => continue,
            Refused(at, text) => {
                let error = file.expect_err(name);
                assert!(error.to_string().contains(text), "{name}: {error}");
                assert_eq!(error.offset(), Some(at), "{name}: {error}");
                refused += 1;
            }
            Opens(warning) => {
                let file = file.unwrap_or_else(|e| panic!("{name}: {e}"));
                let warnings: Vec<_> = file.warnings().iter().map(ToString::to_string).collect();
                assert_eq!(warnings.is_empty(), warning.is_empty(), "{name}: {warnings:?}");
                assert!(warnings.iter().all(|found| found.contains(warning)), "{name}: {warnings:?}");
                file.load(&file.entries()[0]).unwrap_or_else(|e| panic!("{name}: {e}"));
                opened += 1;
            }
        }
    }
    assert_eq!((refused, opened), (14, 5));
    report(&format!("neoml: {refused} malformed files of NeoML's refused, {opened} opened"));
}

#[test]
fn a_flag_that_is_none_is_refused() {
    let array = golden("cpp/cpp_blobs_array.arch");
    let error = refusal("x.arch", &changed(&array, 152, &[2]));
    assert_eq!(error, "x.arch: array #2: at byte 152: whether a blob is null: expected 0 (no) or 1 (yes), found 2");
    let error = refusal("x.arch", &changed(&array, 0, &[5]));
    assert_eq!(error, "x.arch: array #4: at byte 247: whether a blob is null needs 1 bytes, but 0 are left");
    let huge = changed(&array, 0, &[0xFF, 0xFF, 0xFF, 0x7F]);
    let error = refusal("x.arch", &huge);
    assert!(
        error.contains("a number of blobs that the file can hold, found 2147483647, with 243 bytes left"),
        "{error}"
    );
}

#[test]
fn a_broken_blob_of_a_net_is_named_with_its_layer() {
    let net = golden("py/net_fc.cnnarch");
    let file = open("net.cnnarch", &net).expect("opens");
    let cells = file.entries()[1].offset().expect("cells") as usize;
    for (at, change, problem) in [
        (cells - 4, &[9][..], "the cells: expected 5 values for the shape, found 9"),
        (cells - 32, &[0xFF; 4], "axis 0: expected a dimension of 0 to 2147483647, found -1"),
        (cells - 40, &[3], "the type of a blob: expected 1 (float) or 2 (int), found 3"),
        (cells - 46, &[7], "whether a blob is null: expected 0 (no) or 1 (yes), found 7"),
    ] {
        let error = refusal("net.cnnarch", &changed(&net, at, change));
        assert_eq!(error, format!("net.cnnarch: layer \"fc1\", blob #1: at byte {at}: {problem}"));
    }
    let error = open("net.cnnarch", &net[..cells + 3]).expect_err("cut");
    let text =
        format!("net.cnnarch: layer \"fc1\", blob #1: at byte {cells}: the cells needs 20 bytes, but 3 are left");
    assert_eq!(error.to_string(), text);
    // The arrays before the error can be listed.
    let salvaged =
        OpenOptions::new().salvage().open_source("net.cnnarch", Box::new(blob_io::Bytes(net[..cells + 3].to_vec())));
    assert!(salvaged.is_err(), "a layer is complete or is not listed");
}

#[test]
fn a_net_that_is_cut_is_never_taken_for_whole() {
    let net = golden("py/net_lstm.cnnarch");
    // The parameters of the last layer's class follow the record, and are unknown.
    let unknown = 5;
    for len in 1..net.len() - unknown {
        let error = open("net.cnnarch", &net[..len]).err();
        let error = error.unwrap_or_else(|| panic!("cut at {len}, it opens"));
        assert!(matches!(error, Error::Malformed { .. } | Error::NotTensors { .. }), "{len}: {error}");
    }
    let error = refusal("net.cnnarch", &net[..3390]);
    assert_eq!(error, "net.cnnarch: at byte 3390: the layers of the net: expected 3, found 2");
}

#[test]
fn cells_that_look_like_a_record_are_not_taken_for_one() {
    let record = record();
    let inner = [&record[..], &[0; 3]].concat();
    let outer = [&changed(&changed(&record, 37, &[15]), 41, &[15])[..45], &inner].concat();
    // As a key's blob, and as the next blob.
    let file = [&[2, 0, 0, 0, 1][..], b"a", &outer, &[1], b"b", &record].concat();
    let file = open("x", &file).expect("opens");
    assert_eq!(file.names().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(file.entries()[0].shape().count(), 15);
}
