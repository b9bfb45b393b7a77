//! GPUs that share the host's memory: kernels read the host's bytes where they lie.

use std::sync::Arc;

use blob_core::{AnyBlob, DType, Part, Shape};
use fake_cuda::control::Setup;
use synced_mem::{Device, HostBuffer, Location, SharedMem, SyncedMem, conformance};

use crate::launch::add_one;
use crate::{expect_no_leaks, gpu, seed};

fn sharing(number: u64) -> Setup {
    Setup { shares_host: true, ..seed(number) }
}

const LEN: usize = 8192;

#[test]
fn such_a_gpu_conforms() {
    let (session, gpu, queue) = gpu(sharing(1));
    assert!(gpu.shares_host());
    assert_eq!(conformance::run(&*gpu), Ok(20));
    drop((gpu, queue));
    expect_no_leaks(&session);
}

#[test]
fn kernels_read_the_hosts_bytes_and_write_their_own_in_every_order() {
    for number in 0..8 {
        let (session, gpu, queue) = gpu(sharing(number));
        let other = gpu.queue().unwrap();
        let (a, b) = (SharedMem::new(LEN), SharedMem::new(LEN));
        a.host_mut(..).unwrap().fill(1);
        add_one(&queue, &a, &b).unwrap();
        assert_eq!(
            (a.stats().uploads.count, gpu.meter().stats().allocations.count),
            (0, 1),
            "one block, of the output"
        );
        // The kernel may not have run.
        a.host_mut(7..9).unwrap().fill(100);
        add_one(&other, &a, &b).unwrap();
        let mut wanted = [2; LEN];
        wanted[7..9].fill(101);
        assert_eq!(b.host(..).unwrap()[..], wanted);
        // What a GPU has written, it reads where it has written it.
        add_one(&other, &b, &a).unwrap();
        add_one(&queue, &a, &b).unwrap();
        assert_eq!(b.host(..4).unwrap()[..], [4; 4]);
        assert_eq!((a.stats().uploads.count, b.stats().uploads.count), (0, 0));
        drop((a, b, queue, other, gpu));
        expect_no_leaks(&session);
    }
}

/// Kernels read words of 16 bytes, and rely on where a block starts: bytes that start elsewhere are copied.
#[test]
fn bytes_that_lie_at_an_odd_place_are_copied() {
    let (session, gpu, queue) = gpu(sharing(2));
    struct Odd(Vec<u8>);
    impl AsRef<[u8]> for Odd {
        fn as_ref(&self) -> &[u8] {
            &self.0[1..]
        }
    }
    let mut odd = SyncedMem::new(LEN);
    odd.adopt(HostBuffer::from_owner(Odd(vec![1; LEN + 1]))).unwrap();
    let (odd, out) = (SharedMem::from(odd), SharedMem::new(LEN));
    add_one(&queue, &odd, &out).unwrap();
    assert_eq!((odd.stats().uploads.bytes, odd.valid_on(Location::Device(gpu.id()), ..)), (LEN as u64, true));
    assert_eq!(out.host(..).unwrap()[..], [2; LEN]);
    drop((odd, out, queue, gpu));
    expect_no_leaks(&session);
}

#[test]
fn operations_read_the_hosts_bytes_where_they_lie() {
    let (session, gpu, queue) = gpu(sharing(3));
    let ones: Vec<_> = [1.0_f32; 5000].iter().flat_map(|one| one.to_ne_bytes()).collect();
    let blob = || {
        let mut blob = AnyBlob::new(Shape::new([50, 100]).unwrap(), DType::F32).unwrap();
        blob.data_mut().bytes().unwrap().copy_from_slice(&ones);
        blob
    };
    let (mut y, x) = (blob(), blob());
    let merged = blob_ops::at(&queue).merge(&[&x, &y], 1).unwrap();
    blob_ops::at(&queue).add(&mut y, &x, Part::Data).unwrap();
    assert_eq!(x.memory(Part::Data).stats().uploads.count, 0);
    assert!(merged.data().elements::<f32>().unwrap().iter().all(|one| *one == 1.0));
    assert!(y.data().elements::<f32>().unwrap().iter().all(|two| *two == 2.0));
    drop((y, x, merged, queue, gpu));
    expect_no_leaks(&session);
}

/// A memory's bytes go to another memory on the GPU from where they lie.
#[test]
fn a_copy_between_memories_reads_the_host() {
    let (session, gpu, queue) = gpu(sharing(4));
    let (from, to) = (SharedMem::new(LEN), SharedMem::new(LEN));
    from.host_mut(..).unwrap().fill(6);
    drop(from.device(&queue, ..).unwrap());
    drop(to.device_overwrite(&queue, ..).unwrap());
    to.copy_from(0, &from, ..).unwrap();
    from.host_mut(..).unwrap().fill(9);
    assert_eq!((to.host(..).unwrap()[..].to_vec(), from.stats().uploads.count), (vec![6; LEN], 0));
    let kept = Arc::strong_count(&queue);
    drop((from, to));
    assert!(Arc::strong_count(&queue) < kept);
    drop((queue, gpu));
    expect_no_leaks(&session);
}
