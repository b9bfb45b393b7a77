//! Bytes that go from their origin to a GPU through pinned chunks: arrays of files, many pieces at once, reads that
//! fail or panic in the midst.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blob_core::Part;
use blob_io::Checkpoint;
use fake_cuda::control::Setup;
use synced_mem::{Device, Error, Location, Origin, OriginError, SharedMem};

use crate::{expect_no_leaks, gpu, seed};

#[test]
fn arrays_of_every_kind_of_file_are_on_a_gpu_what_load_gives() {
    let (session, gpu, queue) = gpu(seed(1));
    let (mut direct, mut whole) = (0, 0);
    for file in [
        "caffe/net/v1.caffemodel",
        "caffe/blobproto/unpacked.binaryproto",
        "caffe/misc/u8.datum",
        "mxnet/golden/mxnet-1.9.1/checkpoints/mobilenet0_25-0000.params",
        "other/two.safetensors",
        "other/fortran_big_endian.npy",
        "other/numpy_compressed.npz",
        "caffe/net/f32_diff.caffemodel.h5",
        "neoml/py/net_fc.cnnarch",
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(file);
        let file = Arc::new(Checkpoint::open(path).unwrap());
        for entry in file.entries().iter().filter(|entry| entry.fault().is_none() && entry.byte_len() > 0) {
            let (lazy, loaded) = (file.lazy(entry).unwrap(), file.load(entry).unwrap());
            let memory = lazy.memory(Part::Data);
            lazy.data().upload(&queue).unwrap();
            assert!(memory.valid_on(Location::Device(gpu.id()), ..));
            // Nothing of an array that lies in the file as it is has been on the host.
            assert_eq!(memory.valid_on(Location::Host, ..1), !entry.is_direct());
            *(if entry.is_direct() { &mut direct } else { &mut whole }) += 1;
            memory.evict(Location::Host, ..).unwrap();
            // From the GPU, so that its bytes are the ones that are compared.
            let (back, expected) = (lazy.data().bytes().unwrap(), loaded.data().bytes().unwrap());
            assert!(*back == *expected, "{}: {}", file.name(), entry.name());
            assert_eq!(memory.stats().origin_reads.bytes, memory.stats().downloads.bytes);
        }
    }
    assert!(direct > 100 && whole > 2, "{direct} {whole}");
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
