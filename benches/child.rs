//! The cases of `io` that need a fresh process: each prints the seconds taken.
//!
//! Calls the one unsafe function that these benchmarks need: `Mmap::open`.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use blob_convert::Silent;
use blob_convert::digest::{Algorithm, Subject, digest};
use blob_convert::stats::measure;
use blob_io::{Bytes, Checkpoint, FileSource, Format, IfExists, Kind, Mmap, Writer};
use synced_mem::SyncedMem;

/// The bytes of one read in a chunked read.
const CHUNK: usize = 1 << 20;

/// Runs the case that the arguments name.
pub(crate) fn main(args: &[String]) {
    let [case, file] = args else { panic!("usage: --child CASE FILE") };
    let file = Path::new(file);
    let seconds = match case.as_str() {
        "load" => load(file),
        "scan" => scan(file),
        "store" => store(file),
        "write" => write(file),
        "views" => views(file),
        "read-fresh" => read_fresh(file),
        "read-chunks" => read_chunks(file),
        "memcpy" => memcpy(file),
        "stats" => statistics(&Checkpoint::open(file).expect("opens"), false),
        "hist" => statistics(&Checkpoint::open(file).expect("opens"), true),
        "stats-memory" => statistics(&in_memory(file), false),
        "hist-memory" => statistics(&in_memory(file), true),
        "blake3" => blake3(file),
        "hash" => hash(file),
        "hash-content" => hash_content(file),
        other => panic!("no case {other}"),
    };
    println!("{seconds}");
}

fn load(file: &Path) -> f64 {
    let start = Instant::now();
    let checkpoint = Checkpoint::open(file).expect("opens");
    let blobs: Vec<_> = checkpoint.entries().iter().map(|entry| checkpoint.load(entry).expect("loads")).collect();
    let seconds = start.elapsed().as_secs_f64();
    assert!(!blobs.is_empty());
    seconds
}

fn scan(file: &Path) -> f64 {
    let start = Instant::now();
    let checkpoint = Checkpoint::open(file).expect("opens");
    let seconds = start.elapsed().as_secs_f64();
    assert!(!checkpoint.entries().is_empty());
    seconds
}

/// Writes all arrays to a new file of the same format; those of a NeoML net as an array of blobs.
fn store(file: &Path) -> f64 {
    let checkpoint = Checkpoint::open(file).expect("opens");
    let blobs: Vec<_> = checkpoint.entries().iter().map(|entry| checkpoint.load(entry).expect("loads")).collect();
    let format = match checkpoint.format() {
        Format::NeomlNet => Format::NeomlArray,
        format => format,
    };
    let out = file.with_extension("stored");
    let start = Instant::now();
    let named = checkpoint.names().zip(&blobs);
    let writer = named.fold(Writer::new(format), |writer, (name, blob)| writer.tensor(name, blob));
    writer.write(&out, IfExists::Refuse).expect("written");
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_file(&out).expect("removable");
    seconds
}

/// Writes the same bytes with `write()`, the base of `store`.
fn write(file: &Path) -> f64 {
    let bytes = std::fs::read(file).expect("reads");
    let out = file.with_extension("written");
    let start = Instant::now();
    std::fs::write(&out, &bytes).expect("written");
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_file(&out).expect("removable");
    seconds
}

fn views(file: &Path) -> f64 {
    let start = Instant::now();
    // SAFETY: the file was made by this benchmark, and does not change while the mapping lives.
    let map = unsafe { Mmap::open(file).expect("maps") };
    let checkpoint = Checkpoint::from_source("views", Box::new(map)).expect("opens");
    let views: Vec<_> = checkpoint
        .entries()
        .iter()
        .filter(|entry| entry.kind() != Kind::None)
        .map(|entry| checkpoint.view(entry).expect("views"))
        .collect();
    let seconds = start.elapsed().as_secs_f64();
    assert!(views.iter().all(|view| matches!(view, std::borrow::Cow::Borrowed(_))));
    seconds
}

/// `read()` of the whole file into a fresh buffer, allocated like a blob's.
fn read_fresh(file: &Path) -> f64 {
    let start = Instant::now();
    let mut file = File::open(file).expect("opens");
    let len = file.metadata().expect("metadata").len() as usize;
    let mut memory = SyncedMem::new(len);
    file.read_exact(memory.host_overwrite(..).expect("memory")).expect("reads");
    start.elapsed().as_secs_f64()
}

fn read_chunks(file: &Path) -> f64 {
    let mut buffer = vec![1; CHUNK];
    let start = Instant::now();
    let mut file = File::open(file).expect("opens");
    while file.read(&mut buffer).expect("reads") > 0 {}
    start.elapsed().as_secs_f64()
}

/// A chunked read that hashes each chunk with BLAKE3 on one thread, as a simple program would.
fn blake3(file: &Path) -> f64 {
    let (mut buffer, mut hasher) = (vec![1; CHUNK], blake3::Hasher::new());
    let start = Instant::now();
    let mut file = File::open(file).expect("opens");
    loop {
        match file.read(&mut buffer).expect("reads") {
            0 => break,
            n => drop(hasher.update(&buffer[..n])),
        }
    }
    hasher.finalize();
    start.elapsed().as_secs_f64()
}

fn hash(file: &Path) -> f64 {
    let start = Instant::now();
    let source = FileSource::open(file).expect("opens");
    digest(Subject::File { name: "file", source: &source }, Algorithm::Blake3, &Silent).expect("hashes");
    start.elapsed().as_secs_f64()
}

fn hash_content(file: &Path) -> f64 {
    let start = Instant::now();
    let checkpoint = Checkpoint::open(file).expect("opens");
    digest(Subject::Tensors(&checkpoint), Algorithm::Blake3, &Silent).expect("hashes");
    start.elapsed().as_secs_f64()
}

/// One copy of the file's bytes in memory, with both buffers already touched.
fn memcpy(file: &Path) -> f64 {
    let from = std::fs::read(file).expect("reads");
    let mut to = vec![1; from.len()];
    let start = Instant::now();
    to.copy_from_slice(&from);
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(to[to.len() - 1], from[from.len() - 1]);
    seconds
}

/// Opens the file from memory, so that only the reduction is measured.
fn in_memory(file: &Path) -> Checkpoint {
    let bytes = std::fs::read(file).expect("reads");
    Checkpoint::from_source("memory", Box::new(Bytes(bytes))).expect("opens")
}

/// The statistics of every tensor on one core. For a file on disk the time includes reading.
fn statistics(checkpoint: &Checkpoint, hist: bool) -> f64 {
    let start = Instant::now();
    let mut count = 0;
    for entry in checkpoint.entries() {
        let measured = measure(checkpoint, entry, hist.then_some(20), &Silent).expect("sums up");
        count += measured.stats.count;
    }
    let seconds = start.elapsed().as_secs_f64();
    assert!(count > 0);
    seconds
}
