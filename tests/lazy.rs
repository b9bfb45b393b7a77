//! A lazy blob has the values that `load` gives, bit for bit, in every format, on the host and on a device. Of an array
//! that lies in the file unchanged, exactly the requested bytes are read. A file that changes is noticed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blob_convert::verified;
use blob_core::{AnyBlob, Part};
use blob_io::{Bytes, Checkpoint, Entry, Format, Limits, OpenOptions};
use synced_mem::loopback::{Loopback, Mode, launch};
use synced_mem::{Device, Error, Head, Location, OriginError, Queue};

use crate::convert::{convert, lenet};
use crate::support::archive::{npy, theirs};
use crate::support::{Folder, data, open, open_any, real, report};

/// The comparisons of a kind of files.
#[derive(Default)]
struct Count {
    files: usize,
    real: usize,
    arrays: usize,
    /// Arrays of which parts were read.
    direct: usize,
    /// Arrays that neither way gives.
    refused: usize,
}

fn all_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let listing = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = listing.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() { all_files(&path, found) } else { found.push(path) }
    }
}

/// Whether an access has failed, with words of the file's about wrong bytes.
fn is_wrong<T>(access: Result<T, impl std::fmt::Display>) -> bool {
    access.err().is_some_and(|error| error.to_string().contains("has other bytes than were written: BLAKE3"))
}

#[test]
fn a_verified_array_is_compared_with_the_receipt_before_anyone_has_a_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.safetensors");
    convert(&lenet(), Format::Safetensors, &path).unwrap();
    let queue = Loopback::new(Mode::Deferred).queue().unwrap();
    let file = Arc::new(Checkpoint::open(&path).unwrap());
    for entry in file.entries() {
        let blob = verified(&file).unwrap().lazy(entry).unwrap();
        let memory = blob.memory(Part::Data);
        assert_eq!(memory.head(), Head::AtOrigin);
        assert_eq!(memory.host(..1).unwrap().len(), 1);
        assert_eq!(memory.stats().origin_reads.bytes, entry.byte_len(), "all bytes are read, once");
        assert_eq!(*blob.data().bytes().unwrap(), *file.load(entry).unwrap().data().bytes().unwrap());
    }
    // One wrong bit of the array that comes last in the file.
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let file = Arc::new(Checkpoint::open(&path).unwrap());
    let tensors = verified(&file).unwrap();
    let wrong: Vec<_> =
        file.entries().iter().filter(|entry| is_wrong(tensors.lazy(entry).unwrap().data().bytes())).collect();
    assert_eq!(wrong.len(), 1);
    let blob = tensors.lazy(wrong[0]).unwrap();
    let memory = blob.memory(Part::Data);
    assert!(is_wrong(memory.host(..1)) && is_wrong(memory.upload(&queue, 1..2)) && is_wrong(memory.prefetch_host(..)));
    assert_eq!(memory.head(), Head::AtOrigin);
    // Bytes that were written are the blob's, and the bytes around are compared all the same.
    memory.host_overwrite(..4).unwrap().fill(9);
    assert!(is_wrong(memory.host(4..8)));
    assert_eq!(*memory.host(..4).unwrap(), [9; 4]);
    let sound = file.entries().iter().find(|entry| entry.name() != wrong[0].name()).unwrap();
    let blob = tensors.lazy(sound).unwrap();
    blob.memory(Part::Data).host_overwrite(..4).unwrap().fill(9);
    let mut expected = file.load(sound).unwrap().data().bytes().unwrap().to_vec();
    expected[..4].fill(9);
    assert_eq!(*blob.data().bytes().unwrap(), expected);
}

#[test]
fn a_file_without_digests_cannot_be_verified() {
    let refused = verified(&Arc::new(lenet())).unwrap_err().to_string();
    assert!(refused.contains("has no receipt with the BLAKE3 of each tensor: use Checkpoint::lazy"), "{refused}");
}

#[test]
fn every_array_of_every_file_is_what_load_gives() {
    let device = Loopback::new(Mode::Deferred);
    let queue = device.queue().unwrap();
    let mut counts: BTreeMap<&'static str, Count> = BTreeMap::new();
    let (mut goldens, mut real_files) = (Vec::new(), Vec::new());
    all_files(&data(""), &mut goldens);
    for folder in ["caffe/real", "mxnet/real", "neoml/real"] {
        real(folder).iter().for_each(|folder| all_files(folder, &mut real_files));
    }
    for (path, is_real) in goldens.iter().map(|path| (path, false)).chain(real_files.iter().map(|path| (path, true))) {
        let Ok(file) = open_any(path) else { continue };
        let file = Arc::new(file);
        let count = counts.entry(file.format().name()).or_default();
        count.files += 1;
        count.real += usize::from(is_real);
        for entry in file.entries() {
            compare(&file, entry, &queue, count);
        }
    }
    if real_files.is_empty() {
        report("NOT TESTED: lazy blobs of real files (BLOB_REAL_DATA)");
    }
    for (format, Count { files, real, arrays, direct, refused }) in &counts {
        report(&format!(
            "lazy: {format}: {files} files, {real} real; {arrays} arrays equal, {direct} of them read in parts; \
             {refused} refused by both"
        ));
        assert!(*arrays > 0, "{format}");
    }
    assert!(counts.len() > 12, "{:?}", counts.keys());
}

fn compare(file: &Arc<Checkpoint>, entry: &Entry, queue: &Arc<dyn Queue>, count: &mut Count) {
    let what = format!("{}: {:?}", file.name(), entry.name());
    let (loaded, lazy) = (file.load(entry), file.lazy(entry));
    let (loaded, lazy) = match (loaded, lazy) {
        (Ok(loaded), Ok(lazy)) => (loaded, lazy),
        // Reading finds wrong bytes.
        (Err(_), Ok(lazy)) => {
            let is_refused = lazy.data().bytes().is_err() && lazy.data().upload(queue).is_err();
            // Of no bytes, none is read.
            assert!(is_refused || entry.byte_len() == 0, "{what}");
            count.refused += 1;
            return;
        }
        (Err(_), Err(_)) => {
            count.refused += 1;
            return;
        }
        (Ok(_), Err(error)) => panic!("{what}: {error}"),
    };
    assert_eq!((lazy.shape(), lazy.dtype()), (loaded.shape(), loaded.dtype()), "{what}");
    let whole = loaded.data().bytes().unwrap();
    let part = whole.len() / 3..whole.len() - whole.len() / 4;
    let before = file.bytes_read();
    let memory = lazy.memory(Part::Data);
    assert!(memory.host(part.clone()).unwrap()[..] == whole[part.clone()], "{what}");
    if entry.is_direct() {
        assert_eq!(file.bytes_read() - before, part.len() as u64, "{what}");
        assert_eq!(memory.stats().origin_reads.bytes, part.len() as u64, "{what}");
        count.direct += 1;
    }
    assert!(*lazy.data().bytes().unwrap() == *whole, "{what}");
    assert_eq!(memory.stats().origin_reads.bytes, whole.len() as u64, "{what}");
    on_device(&file.lazy(entry).unwrap(), queue, &whole, &what);
    count.arrays += 1;
}

/// Every byte on the device, where a part came first.
fn on_device(lazy: &AnyBlob, queue: &Arc<dyn Queue>, whole: &[u8], what: &str) {
    let memory = lazy.memory(Part::Data);
    memory.upload(queue, whole.len() / 2..).unwrap();
    let token = memory.device(queue, ..).unwrap();
    let (expected, what) = (whole.to_vec(), what.to_owned());
    launch(&**queue, [token.arg()], move |args| assert!(args[0].bytes() == expected, "{what}, on a device")).unwrap();
    queue.synchronize().unwrap();
    assert_eq!(memory.stats().origin_reads.bytes, whole.len() as u64);
}

/// A file of one array of 1 MiB, and the array's values.
fn one_array(folder: &Folder) -> (PathBuf, Vec<u8>) {
    let bytes: Vec<u8> = (0..1_u32 << 18).flat_map(|i| i.to_le_bytes()).collect();
    let path = folder.path().join("x.npy");
    std::fs::write(&path, npy("'<u4'", "(512, 512)", &bytes)).unwrap();
    (path, bytes)
}

#[test]
fn of_a_file_the_bytes_are_read_that_are_asked_for() {
    let folder = Folder::new();
    let (path, bytes) = one_array(&folder);
    let file = Arc::new(Checkpoint::open(&path).unwrap());
    let lazy = file.lazy(&file.entries()[0]).unwrap();
    let memory = lazy.memory(Part::Data);
    let before = file.bytes_read();
    assert_eq!((memory.head(), lazy.shape().dims()), (Head::AtOrigin, &[512, 512][..]));
    assert_eq!(file.bytes_read(), before);
    for _ in 0..2 {
        assert!(memory.host(4096..8192).unwrap()[..] == bytes[4096..8192]);
        assert_eq!((file.bytes_read() - before, memory.stats().origin_reads.bytes), (4096, 4096));
    }
    let queue = Loopback::new(Mode::Deferred).queue().unwrap();
    memory.upload(&queue, 4096..12288).unwrap();
    assert_eq!((file.bytes_read() - before, memory.stats().uploads.bytes), (8192, 8192));
    // Given up for nothing, and read again.
    memory.evict_clean(Location::Host, ..).unwrap();
    assert_eq!(memory.stats().downloads.count, 0);
}

/// The first access decodes all, once, and compares the checksum.
#[test]
fn a_deflated_array_and_one_with_a_checksum_are_decoded_once() {
    let values: Vec<u8> = (0..40_000_u32).map(|i| (i % 251) as u8).collect();
    for method in [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated] {
        let mut bytes = theirs(method, &[("x.npy", &npy("'|u1'", "(40000,)", &values))]);
        let file = Arc::new(open("x.npz", &bytes).unwrap());
        let entry = &file.entries()[0];
        assert!(!entry.is_direct());
        let lazy = file.lazy(entry).unwrap();
        assert!(lazy.memory(Part::Data).host(100..200).unwrap()[..] == values[100..200]);
        let after = file.bytes_read();
        assert!(*lazy.data().bytes().unwrap() == *values);
        assert_eq!(file.bytes_read(), after);
        // One bit of the content is wrong.
        let at = entry.offset().unwrap() as usize + 300;
        bytes[at] ^= 1;
        let file = Arc::new(open("x.npz", &bytes).unwrap());
        let lazy = file.lazy(&file.entries()[0]).unwrap();
        let error = lazy.memory(Part::Data).host(..1).unwrap_err();
        assert!(matches!(&error, Error::Origin { source: OriginError::Failed { .. }, .. }), "{error}");
        assert!(!lazy.memory(Part::Data).valid_on(Location::Host, ..1));
    }
}

/// A memory would take room for all bytes before the first is decoded. As many as are stored count for nothing.
#[test]
fn an_array_that_inflates_beyond_the_limit_is_refused_before_any_memory_is_taken() {
    let values = vec![7; 40_000];
    for (method, most, is_taken) in [
        (zip::CompressionMethod::Deflated, 39_999, false),
        (zip::CompressionMethod::Deflated, 40_000, true),
        (zip::CompressionMethod::Stored, 100, true),
    ] {
        let bytes = theirs(method, &[("x.npy", &npy("'|u1'", "(200, 200)", &values))]);
        let limits = Limits { max_alloc: most, ..Limits::default() };
        let file = Arc::new(OpenOptions::new().limits(limits).open_source("x.npz", Box::new(Bytes(bytes))).unwrap());
        let lazy = file.lazy(&file.entries()[0]);
        match (lazy, is_taken) {
            (Ok(lazy), true) => assert!(*lazy.data().bytes().unwrap() == *values),
            (Err(error), false) => assert!(matches!(error, blob_io::Error::LimitExceeded { .. }), "{error}"),
            (lazy, _) => panic!("{method:?}, {most}: {:?}", lazy.map(drop)),
        }
    }
}

#[test]
fn a_file_that_changes_or_shrinks_gives_no_more_bytes() {
    let folder = Folder::new();
    for shrinks in [false, true] {
        let (path, bytes) = one_array(&folder);
        let file = Arc::new(Checkpoint::open(&path).unwrap());
        let lazy = file.lazy(&file.entries()[0]).unwrap();
        let memory = lazy.memory(Part::Data);
        memory.prefetch_host(..4096).unwrap();
        let opened = std::fs::File::options().write(true).open(&path).unwrap();
        if shrinks {
            opened.set_len(100).unwrap();
        } else {
            opened.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        }
        let error = memory.host(..).unwrap_err();
        assert!(matches!(&error, Error::Origin { source: OriginError::Changed { .. }, .. }), "{error}");
        assert!(error.to_string().contains("x.npy: was changed while it was read"), "{error}");
        // The bytes that were read are still there.
        assert!(memory.host(..4096).unwrap()[..] == bytes[..4096]);
        assert!(!memory.valid_on(Location::Host, 4096..4097));
    }
}
