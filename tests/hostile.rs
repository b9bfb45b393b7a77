//! Hostile files: truncated, changed byte by byte, with extreme lengths. No panic, bounded memory, and an error with
//! its offset.
//!
//! Uses every golden up to 64 KiB. The allocator counts the memory of each thread.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blob_io::{Bytes, Error, Format, Limit, OpenOptions};

use crate::support::alloc::peak;
use crate::support::archive::safetensors;
use crate::support::message::{len, varint};
use crate::support::random::number;
use crate::support::{data, open, report};

/// The memory that opening and loading may use beyond the payload, and for each listed array.
const BASE: u64 = 16 << 20;
const PER_ARRAY: u64 = 256;

pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// The files of a family up to `limit` bytes, without duplicates. There must be at least one.
pub(crate) fn goldens(family: usize, limit: u64) -> Vec<Golden> {
    let (name, folders) = FAMILIES[family];
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let mut todo: Vec<PathBuf> = folders.iter().map(|f| data(f)).collect();
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            let listing = std::fs::read_dir(&path).expect("a folder");
            todo.extend(listing.map(|entry| entry.expect("an entry").path()));
            continue;
        }
        let skip = ["json", "jsonl", "py", "tsv", "f32", "f64", "md", "states"];
        let extension = path.extension().map(|e| e.to_string_lossy().into_owned()).unwrap_or_default();
        let len = path.metadata().expect("metadata").len();
        // Caffe's folder also has HDF5 files.
        let is_other = (extension == "h5") != (name == "hdf5");
        if len > limit || is_other || skip.contains(&extension.as_str()) {
            continue;
        }
        let bytes = std::fs::read(&path).expect("readable");
        if seen.insert(bytes.clone()) {
            found.push(Golden { name: file_name(&path), bytes });
        }
    }
    assert!(!found.is_empty(), "{name}");
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn file_name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

/// Opens, lists and loads a file, and checks memory and errors. Returns whether everything was read.
pub(crate) fn exercise(name: &str, bytes: &[u8]) -> bool {
    exercise_as(None, name, bytes)
}

/// As [`exercise`], read as the format that a user names.
pub(crate) fn exercise_as(from: Option<Format>, name: &str, bytes: &[u8]) -> bool {
    let len = bytes.len() as u64;
    let source: Arc<[u8]> = bytes.into();
    let (mut arrays, mut payload, mut whole) = (0, 0, true);
    let options = from.map_or_else(OpenOptions::new, |from| OpenOptions::new().from(from));
    let used = peak(|| match options.open_source(name, Box::new(Bytes(source))) {
        Err(error) => {
            check_error(name, len, &error);
            whole = false;
        }
        Ok(checkpoint) => {
            for entry in checkpoint.entries() {
                arrays += 1;
                payload = payload.max(entry.byte_len());
                if entry.dtype().is_none() && entry.fault().is_none() {
                    continue;
                }
                if let Err(error) = checkpoint.load(entry) {
                    check_error(name, len, &error);
                    whole = false;
                }
            }
        }
    });
    let allowed = payload + BASE + PER_ARRAY * arrays;
    assert!(used <= allowed, "{name}: {used} bytes of memory, {allowed} allowed");
    whole
}

fn check_error(name: &str, len: u64, error: &Error) {
    let text = error.to_string();
    assert!(text.starts_with(name), "{text}: names no file");
    match error {
        Error::Malformed { .. } | Error::LimitExceeded { .. } => {
            let offset = error.offset().expect("an offset");
            // For data beyond the end of the file, the error has the offset in the directory.
            let lies_behind = text.contains(", but 0 are left");
            assert!(offset <= len || lies_behind, "{text}: offset beyond {len}");
        }
        Error::NotTensors { .. } | Error::Unsupported { .. } => {}
        // An archive with several tensor files.
        Error::Several { .. } => {}
        // No file here has the bytes for an array that does not fit into memory.
        other => panic!("{name}: {other:?}"),
    }
}

/// Each family of formats, with the folders of files.
pub(crate) const FAMILIES: [(&str, &[&str]); 7] = [
    ("caffe", &["caffe/blobproto", "caffe/net", "caffe/misc"]),
    ("mxnet", &["mxnet/golden", "mxnet/malformed"]),
    ("other", &["other"]),
    ("neoml", &["neoml"]),
    ("hdf5", &["hdf5", "findings", "caffe/net"]),
    ("archives", &["archives"]),
    ("onnx", &["onnx"]),
];

/// The most trials of a kind for a family: of 14 million changed bytes of MXNet's files alone, half of a run's time
/// would be spent on the 170th file of one writer. `BLOB_HOSTILE_TRIALS` is another number.
const MOST: usize = 800_000;

/// HDF5 files take 0.4 ms each, 30 times as long as others.
const MOST_OF_HDF5: usize = MOST / 25;

/// Chooses the trials to run: all, or a sample by a fixed seed.
struct Sample {
    one_in: usize,
    random: u64,
    total: usize,
    tried: usize,
}

impl Sample {
    fn new(family: usize, total: usize) -> Self {
        let few = if FAMILIES[family].0 == "hdf5" { MOST_OF_HDF5 } else { MOST };
        let most = number("BLOB_HOSTILE_TRIALS").map_or(few, |most| most as usize);
        Self { one_in: total.div_ceil(most).max(1), random: 0x9E37_79B9_7F4A_7C15, total, tried: 0 }
    }

    fn takes(&mut self) -> bool {
        // Marsaglia's xorshift64.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let takes = self.random.is_multiple_of(self.one_in as u64);
        self.tried += usize::from(takes);
        takes
    }

    /// The number of trials, in words.
    fn count(&self) -> String {
        let Self { tried, total, .. } = self;
        if tried == total { tried.to_string() } else { format!("{tried} (sampled by a fixed seed from {total})") }
    }
}

fn prefixes(family: usize) {
    let goldens = goldens(family, 64 << 10);
    let mut sample = Sample::new(family, goldens.iter().map(|golden| golden.bytes.len()).sum());
    for golden in &goldens {
        for end in 0..golden.bytes.len() {
            if sample.takes() {
                exercise(&golden.name, &golden.bytes[..end]);
            }
        }
    }
    report(&format!("hostile {}: {} goldens cut at {} places", FAMILIES[family].0, goldens.len(), sample.count()));
}

fn changes(family: usize) {
    let goldens = goldens(family, 64 << 10);
    // In small files, every value of a byte.
    let all = |golden: &Golden| golden.bytes.len() <= 1 << 10;
    let total = goldens.iter().map(|golden| golden.bytes.len() * if all(golden) { 255 } else { 4 }).sum();
    let mut sample = Sample::new(family, total);
    for mut golden in goldens {
        let all = all(&golden);
        for at in 0..golden.bytes.len() {
            let old = golden.bytes[at];
            let changed: Vec<u8> =
                if all { (0..=255).filter(|b| *b != old).collect() } else { vec![0x00, 0xFF, old ^ 0x01, old ^ 0x80] };
            for new in changed {
                if sample.takes() {
                    golden.bytes[at] = new;
                    exercise(&golden.name, &golden.bytes);
                }
            }
            golden.bytes[at] = old;
        }
    }
    report(&format!("hostile {}: {} single bytes changed", FAMILIES[family].0, sample.count()));
}

fn extremes(family: usize) {
    let values: [u64; 8] =
        [u64::MAX, i64::MAX as u64, 1 << 63, u64::from(u32::MAX), i32::MAX as u64, 1 << 31, 1 << 40, 0];
    // The smallest HDF5 file has several kilobytes, the smallest tar two.
    let limit = match FAMILIES[family].0 {
        "hdf5" => 8 << 10,
        "archives" => 2 << 10,
        _ => 1 << 10,
    };
    let goldens = goldens(family, limit);
    let total = goldens.iter().map(|golden| golden.bytes.len() * values.len() * 3).sum();
    let mut sample = Sample::new(family, total);
    for golden in goldens {
        for at in 0..golden.bytes.len() {
            for value in values {
                for field in [value.to_le_bytes().to_vec(), (value as u32).to_le_bytes().to_vec(), varint(value)] {
                    if sample.takes() {
                        let mut bytes = golden.bytes.clone();
                        let end = (at + field.len()).min(bytes.len());
                        bytes[at..end].copy_from_slice(&field[..end - at]);
                        exercise(&golden.name, &bytes);
                    }
                }
            }
        }
    }
    report(&format!("hostile {}: {} lengths replaced by extremes", FAMILIES[family].0, sample.count()));
}

/// The three kinds of trials for each family, as separate tests because each takes long.
macro_rules! trials {
    ($($family:ident: $at:expr),*) => { $(
        mod $family {
            #[test]
            fn every_prefix() {
                super::prefixes($at);
            }

            #[test]
            fn changed_bytes() {
                super::changes($at);
            }

            #[test]
            fn extreme_lengths() {
                super::extremes($at);
            }
        }
    )* };
}

trials! { caffe: 0, mxnet: 1, other: 2, neoml: 3, hdf5: 4, archives: 5, onnx: 6 }

#[test]
fn a_million_arrays_stay_within_their_bound() {
    // One layer with four bytes per blob; the two bytes of content are of a field that Caffe does not have.
    let blob = len(7, &[0x78, 0]);
    let mut file = len(100, &blob.repeat(1 << 20));
    assert!(!exercise("million.caffemodel", &file), "each of them lacks its value");
    // One more is one too many.
    file.extend(len(100, &blob));
    let error = open("more.caffemodel", &file).expect_err("too many");
    assert!(error.to_string().contains("at most 1048576"), "{error}");
    assert!(matches!(error, Error::LimitExceeded { limit: Limit::Arrays, needed: 1_048_577, .. }), "{error:?}");
}

#[test]
fn arrays_that_hardly_take_a_byte_are_too_many_for_their_file() {
    // One layer with two bytes per blob, the smallest encoding of an array: 256 bytes of memory each would be 128 times
    // the file.
    let file = len(100, &len(7, b"").repeat(1 << 20));
    let used = peak(|| {
        let error = open("million.caffemodel", &file).expect_err("too many");
        assert!(error.to_string().contains("the number of arrays in a file of this size"), "{error}");
        assert!(matches!(error, Error::LimitExceeded { limit: Limit::Fixed, .. }), "{error:?}");
    });
    assert!(used <= BASE + 64 * file.len() as u64, "{used}");
}

#[test]
fn places_of_a_neoml_array_stay_within_their_bound() {
    // One byte per entry, the smallest encoding of an absent array: four bytes each pay for the arrays.
    let open = |count: u32| {
        let bytes: Arc<[u8]> = [count.to_le_bytes().to_vec(), vec![1; count as usize]].concat().into();
        let options = blob_io::OpenOptions::new().from(blob_io::Format::NeomlArray);
        options.open_source("million.arch", Box::new(Bytes(bytes)))
    };
    assert_eq!(open(4096).expect("opens").entries().len(), 4096);
    let used = peak(|| {
        let error = open(1 << 20).expect_err("too many");
        assert!(error.to_string().contains("the number of arrays in a file of this size"), "{error}");
    });
    assert!(used <= BASE + 64 * (1 << 20), "{used}");
}

#[test]
fn one_long_name_many_times_is_refused() {
    // A layer name of 60,000 bytes, which blobs of two bytes each repeat.
    let file = len(100, &[len(1, &[b'n'; 60_000]), len(7, b"").repeat(10_000)].concat());
    exercise("names.caffemodel", &file);
    let error = open("names.caffemodel", &file).expect_err("too long");
    assert!(error.to_string().contains("the bytes of all names"), "{error}");
}

#[test]
fn a_million_tensors_in_a_json_header_stay_within_their_bound() {
    // Arrays of an unsupported dtype: the entries that use the most memory for a short text.
    let mut json = String::from("{");
    for i in 0..1 << 20 {
        json += &format!(r#""{i:x}":{{"dtype":"F8","shape":[0],"data_offsets":[0,0]}},"#);
    }
    json.pop();
    json.push('}');
    let file = safetensors(&json, b"");
    assert!(!exercise("million.safetensors", &file));
    let file = open("million.safetensors", &file).expect("it holds together");
    assert_eq!(file.entries().len(), 1 << 20);
}

#[test]
fn a_million_members_of_a_zip_stay_within_their_bound() {
    // Empty members with the same name: each becomes a broken array with a unique name.
    let (mut file, mut central) = (Vec::new(), Vec::new());
    let count = 1_u64 << 20;
    for _ in 0..count {
        let at = file.len() as u32;
        file.extend(b"PK\x03\x04");
        file.extend([0; 22]);
        file.extend([4, 0, 0, 0]);
        file.extend(b".npy");
        central.extend(b"PK\x01\x02");
        central.extend([0; 24]);
        central.extend([4, 0]);
        central.extend([0; 12]);
        central.extend(at.to_le_bytes());
        central.extend(b".npy");
    }
    let (begin, len) = (file.len() as u64, central.len() as u64);
    file.append(&mut central);
    let end = file.len() as u64;
    file.extend(b"PK\x06\x06");
    file.extend([0; 20]);
    file.extend([count, count, len, begin].map(u64::to_le_bytes).concat());
    file.extend(b"PK\x06\x07\0\0\0\0");
    file.extend(end.to_le_bytes());
    file.extend([0; 4]);
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend([0xFF; 12]);
    file.extend([0, 0]);
    assert!(!exercise("million.npz", &file));
    let file = open("million.npz", &file).expect("it holds together");
    assert_eq!(file.entries().len() as u64, count);
}
