//! Bytes that go from their origin to a GPU through pinned chunks: arrays of files, many pieces at once, reads that
//! fail or panic in the midst.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blob_core::Part;
use blob_io::Checkpoint;
use fake_cuda::control::Setup;
use synced_mem::{Device, Error, Location, Origin, OriginError, SharedMem};

use crate::{expect_no_leaks, gpu, seed};

/// The files of a folder and of the folders in there.
fn all_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all_files(&path, found) } else { found.push(path) }
    }
}

/// All goldens, and all real files that are here.
#[test]
fn every_array_of_every_file_is_on_a_gpu_what_load_gives() {
    let (session, gpu, queue) = gpu(seed(1));
    let mut files = Vec::new();
    all_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data"), &mut files);
    let real = std::env::var_os("BLOB_REAL_DATA").map(PathBuf::from);
    for folder in ["caffe/real", "mxnet/real", "neoml/real"].iter().filter_map(|name| Some(real.as_ref()?.join(name))) {
        if folder.exists() {
            all_files(&folder, &mut files);
        }
    }
    // By format: the arrays that are read in place, and the others.
    let mut counts = BTreeMap::<&str, [usize; 2]>::new();
    for path in files {
        let Ok(file) = Checkpoint::open(path).map(Arc::new) else { continue };
        for entry in file.entries().iter().filter(|entry| entry.fault().is_none() && entry.byte_len() > 0) {
            let (Ok(lazy), Ok(loaded)) = (file.lazy(entry), file.load(entry)) else { continue };
            let what = format!("{}: {}", file.name(), entry.name());
            let memory = lazy.memory(Part::Data);
            lazy.data().upload(&queue).unwrap();
            assert!(memory.valid_on(Location::Device(gpu.id()), ..), "{what}");
            // Nothing of an array that lies in the file as it is has been on the host.
            assert_eq!(memory.valid_on(Location::Host, ..1), !entry.is_direct(), "{what}");
            memory.evict(Location::Host, ..).unwrap();
            // From the GPU, so that its bytes are the ones that are compared.
            let (back, expected) = (lazy.data().bytes().unwrap(), loaded.data().bytes().unwrap());
            assert!(*back == *expected, "{what}");
            assert_eq!(memory.stats().origin_reads.bytes, memory.stats().downloads.bytes, "{what}");
            counts.entry(file.format().name()).or_default()[usize::from(!entry.is_direct())] += 1;
        }
    }
    println!("arrays on a GPU, in place and whole: {counts:?}");
    assert!(counts.len() > 12, "{counts:?}");
    let [direct, whole] = [0, 1].map(|which| counts.values().map(|count| count[which]).sum::<usize>());
    assert!(direct > 2000 && whole > 50, "{direct} {whole}");
    drop((gpu, queue));
    expect_no_leaks(&session);
}

/// Bytes by their place; the read of this one fails or panics.
struct Numbers {
    len: usize,
    fails_at: Option<usize>,
    panics: bool,
    read: AtomicU64,
}

fn number(at: usize) -> u8 {
    (at * 5 + at / 256 * 7 + at / 65_536 * 11) as u8
}

impl Origin for Numbers {
    fn len(&self) -> usize {
        self.len
    }

    fn read(&self, at: usize, out: &mut [u8]) -> Result<(), OriginError> {
        if self.fails_at.is_some_and(|byte| (at..at + out.len()).contains(&byte)) {
            if self.panics {
                resume_unwind(Box::new("told to panic"));
            }
            return Err(OriginError::failed("told to fail"));
        }
        self.read.fetch_add(out.len() as u64, Ordering::Relaxed);
        out.iter_mut().zip(at..).for_each(|(byte, at)| *byte = number(at));
        Ok(())
    }
}

fn numbers(len: usize, fails_at: Option<usize>, panics: bool) -> Arc<Numbers> {
    Arc::new(Numbers { len, fails_at, panics, read: AtomicU64::new(0) })
}

/// Long enough for two threads, and for each chunk of a ring to be used again.
const LEN: usize = (17 << 20) + 3;

#[test]
fn a_long_range_goes_through_the_chunks_of_several_threads_each_byte_once() {
    for setup in [seed(1), Setup { has_pools: false, ..seed(2) }] {
        let (session, gpu, queue) = gpu(setup);
        let origin = numbers(LEN, None, false);
        let memory = SharedMem::of(origin.clone());
        memory.upload(&queue, 5..).unwrap();
        assert_eq!((origin.read.load(Ordering::Relaxed), memory.stats().allocations.count), (LEN as u64 - 5, 1));
        assert!(memory.host(5..).unwrap().iter().zip(5..).all(|(byte, at)| *byte == number(at)));
        for _ in 0..3 {
            SharedMem::of(origin.clone()).upload(&queue, ..).unwrap();
        }
        // Rings of 8 MiB, one for each of at most four threads; the uploads of a stream use them again.
        let rings = session.calls("cuMemHostAlloc");
        assert!((1..=4).contains(&rings), "{rings}");
        drop((memory, gpu, queue));
        expect_no_leaks(&session);
    }
}

#[test]
fn a_read_that_fails_on_one_thread_ends_the_upload_and_leaves_the_range() {
    let (session, gpu, queue) = gpu(seed(1));
    for (fails_at, panics) in [(0, false), (LEN - 1, false), (9 << 20, true)] {
        let memory = SharedMem::of(numbers(LEN, Some(fails_at), panics));
        let upload = catch_unwind(AssertUnwindSafe(|| memory.upload(&queue, ..)));
        match upload {
            Ok(uploaded) => {
                assert!(!panics);
                assert!(matches!(uploaded, Err(Error::Origin { range, .. }) if range.contains(&fails_at)));
            }
            Err(_) => assert!(panics),
        }
        assert!(!memory.valid_on(Location::Device(gpu.id()), ..1));
        assert!(!memory.valid_on(Location::Host, ..1));
        // The queue works on, and so does the memory.
        memory.upload(&queue, 1 << 20..2 << 20).unwrap();
        let right = memory.host(1 << 20..2 << 20).unwrap();
        assert!(right.iter().zip(1 << 20..).all(|(byte, at)| *byte == number(at)));
    }
    drop((gpu, queue));
    expect_no_leaks(&session);
}
