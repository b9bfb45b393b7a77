//! Order, failures and memory of the driver.

use fake_cuda::control::{Leaks, Setup};

use crate::support::{Gpu, cu, ok};

#[test]
fn nothing_runs_before_a_synchronisation() {
    let gpu = Gpu::seed(1);
    let (stream, block) = (gpu.stream(), gpu.filled(&[1; 8]));
    let (mut pageable, pinned) = ([2u8; 8], gpu.pinned(&[3; 8]));
    let into = gpu.pinned(&[0; 16]);
    ok!(cuMemcpyHtoDAsync_v2(block, pageable.as_ptr(), 8usize, stream));
    ok!(cuMemcpyDtoHAsync_v2(into.as_mut_ptr(), block, 8usize, stream));
    ok!(cuMemcpyHtoDAsync_v2(block, pinned.as_ptr(), 8usize, stream));
    ok!(cuMemcpyDtoHAsync_v2(into[8..].as_mut_ptr(), block, 8usize, stream));
    // The pageable bytes were read during the call, the pinned ones are read when the copy runs.
    (pageable, *pinned.first_chunk_mut().unwrap()) = ([7; 8], [8u8; 8]);
    assert_eq!((into[0], into[8], pageable[0]), (0, 0, 7));
    ok!(cuStreamSynchronize(stream));
    assert_eq!((into[0], into[8]), (2, 8));
}

#[test]
fn a_copy_into_pageable_memory_is_over_when_it_returns() {
    let gpu = Gpu::seed(1);
    let (stream, block) = (gpu.stream(), gpu.filled(&[1; 8]));
    ok!(cuMemsetD8Async(block, 9u8, 8usize, stream));
    let mut into = [0u8; 8];
    ok!(cuMemcpyDtoHAsync_v2(into.as_mut_ptr(), block, 8usize, stream));
    assert_eq!(into, [9; 8]);
}

/// Two streams write the same byte; says which was last.
fn last_of_two(seed: u64, has_event: bool) -> u8 {
    let gpu = Gpu::seed(seed);
    let (first, second, block) = (gpu.stream(), gpu.stream(), gpu.filled(&[0]));
    let event = gpu.event();
    ok!(cuMemsetD8Async(block, 1u8, 1usize, first));
    ok!(cuEventRecord(event, first));
    if has_event {
        ok!(cuStreamWaitEvent(second, event, 0u32));
    }
    ok!(cuMemsetD8Async(block, 2u8, 1usize, second));
    ok!(cuCtxSynchronize());
    gpu.read(block, 1)[0]
}

#[test]
fn streams_keep_only_the_order_that_events_give() {
    let mut free: Vec<u8> = (0..32).map(|seed| last_of_two(seed, false)).collect();
    free.sort_unstable();
    free.dedup();
    assert_eq!(free, [1, 2]);
    assert!((0..32).all(|seed| last_of_two(seed, true) == 2));
}

#[test]
fn a_stream_waits_for_what_the_event_marked_at_the_call() {
    let orders = (0..32).map(|seed| {
        let gpu = Gpu::seed(seed);
        let (first, second, block, event) = (gpu.stream(), gpu.stream(), gpu.filled(&[0]), gpu.event());
        // Not recorded yet: nothing to wait for.
        ok!(cuStreamWaitEvent(second, event, 0u32));
        ok!(cuMemsetD8Async(block, 1u8, 1usize, second));
        ok!(cuEventRecord(event, second));
        ok!(cuStreamWaitEvent(first, event, 0u32));
        // A later record moves the event, not the wait.
        ok!(cuMemsetD8Async(block, 3u8, 1usize, second));
        ok!(cuEventRecord(event, second));
        ok!(cuMemsetD8Async(block, 2u8, 1usize, first));
        ok!(cuEventDestroy_v2(event));
        ok!(cuCtxSynchronize());
        gpu.read(block, 1)[0]
    });
    let mut last: Vec<u8> = orders.collect();
    last.sort_unstable();
    last.dedup();
    assert_eq!(last, [2, 3]);
}

#[test]
fn a_question_lets_the_work_go_on() {
    let gpu = Gpu::seed(3);
    let (stream, block, event) = (gpu.stream(), gpu.filled(&[0]), gpu.event());
    ok!(cuMemsetD8Async(block, 1u8, 1usize, stream));
    ok!(cuMemsetD8Async(block, 2u8, 1usize, stream));
    ok!(cuEventRecord(event, stream));
    assert_eq!(cu!(cuStreamQuery(stream)), 600);
    let asked = (0..10).take_while(|_| cu!(cuEventQuery(event)) == 600).count();
    assert!(asked < 10 && cu!(cuStreamQuery(stream)) == 0);
}

#[test]
fn any_call_can_fail() {
    let gpu = Gpu::seed(0);
    let mut address = 0u64;
    gpu.session.fail("cuMemAlloc_v2", 2, 2);
    ok!(cuMemAlloc_v2(&raw mut address, 8usize));
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut address, 8usize)), 2);
    gpu.session.fail("", 1, 999);
    assert_eq!(cu!(cuCtxSynchronize()), 999);
    assert_eq!((gpu.session.calls("cuMemAlloc_v2"), gpu.session.leaks().blocks), (2, 1));
    // What gives something back does so although it fails.
    gpu.session.fail("cuMemFree_v2", 1, 999);
    assert_eq!(cu!(cuMemFree_v2(address)), 999);
    assert_eq!(gpu.session.leaks().blocks, 0);
}

#[test]
fn a_context_that_failed_stays_failed() {
    let gpu = Gpu::seed(0);
    let (stream, block) = (gpu.stream(), gpu.filled(&[1]));
    gpu.session.fail_work(1, 700);
    ok!(cuMemsetD8Async(block, 2u8, 1usize, stream));
    ok!(cuMemsetD8Async(block, 3u8, 1usize, stream));
    assert_eq!(cu!(cuStreamSynchronize(stream)), 700);
    assert_eq!([cu!(cuStreamQuery(stream)), cu!(cuCtxSynchronize()), cu!(cuMemFree_v2(block))], [700; 3]);
    assert_eq!(cu!(cuStreamDestroy_v2(stream)), 700);
    // The other device goes on, and a new context of this one is sound.
    let other = gpu.context_of(1);
    gpu.block(4);
    ok!(cuDevicePrimaryCtxRelease_v2(0i32));
    gpu.context_of(0);
    ok!(cuCtxSynchronize());
    assert_ne!(other, gpu.context);
    let (session, leaks) = (&gpu.session, Leaks { contexts: 2, blocks: 1, bytes: 4, ..Leaks::default() });
    assert_eq!(session.leaks(), leaks);
}

/// `CUmemPoolProps`: pinned, no handle, on a device.
const PROPS: [u32; 22] = {
    let mut props = [0; 22];
    (props[0], props[2]) = (1, 1);
    props
};

#[test]
fn a_pool_keeps_what_is_freed_until_it_is_trimmed() {
    let gpu = Gpu::start(Setup { memory: 1 << 20, ..Setup::default() });
    let (stream, mut pool, mut address) = (gpu.stream(), 0usize, 0u64);
    ok!(cuMemPoolCreate(&raw mut pool, PROPS.as_ptr()));
    ok!(cuMemPoolSetAttribute(pool, 4i32, [u64::MAX].as_ptr()));
    ok!(cuMemAllocFromPoolAsync(&raw mut address, 600usize << 10, pool, stream));
    ok!(cuMemFreeAsync(address, stream));
    ok!(cuStreamSynchronize(stream));
    // Kept by the pool, too small for this one.
    assert_eq!(cu!(cuMemAllocFromPoolAsync(&raw mut address, 700usize << 10, pool, stream)), 2);
    ok!(cuMemPoolTrimTo(pool, 0usize));
    ok!(cuMemAllocFromPoolAsync(&raw mut address, 700usize << 10, pool, stream));
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut address, 700usize << 10)), 2);
    // Held and in use, now and at most: the pool was empty when the second block came.
    let kib = |attribute: i32| {
        let mut bytes = 0u64;
        ok!(cuMemPoolGetAttribute(pool, attribute, &raw mut bytes));
        bytes >> 10
    };
    assert_eq!([5, 6, 7, 8].map(kib), [700; 4]);
    ok!(cuMemFreeAsync(address, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuMemPoolTrimTo(pool, 0usize));
    assert_eq!([5, 6, 7, 8].map(kib), [0, 700, 0, 700]);
    ok!(cuMemPoolSetAttribute(pool, 8i32, [0u64].as_ptr()));
    assert_eq!([5, 6, 7, 8].map(kib), [0, 700, 0, 0]);
    assert_eq!(cu!(cuMemPoolSetAttribute(pool, 6i32, [1u64].as_ptr())), 1);
    ok!(cuMemAllocFromPoolAsync(&raw mut address, 700usize << 10, pool, stream));
    assert_eq!(
        gpu.session.leaks(),
        Leaks { contexts: 1, streams: 1, pools: 1, blocks: 1, bytes: 700 << 10, ..Leaks::default() }
    );
}

#[test]
fn memory_is_there_in_the_order_of_its_stream() {
    let found = (0..16).any(|seed| {
        let gpu = Gpu::seed(seed);
        let (first, second, mut address) = (gpu.stream(), gpu.stream(), 0u64);
        ok!(cuMemAllocAsync(&raw mut address, 8usize, first));
        ok!(cuMemsetD8Async(address, 1u8, 8usize, second));
        let result = cu!(cuCtxSynchronize());
        let reports = gpu.session.reports();
        assert_eq!(result == 700, reports.len() == 1);
        reports.iter().any(|report| report.contains("used before its allocation"))
    });
    assert!(found);
}

#[test]
fn misuse_is_reported() {
    let gpu = Gpu::seed(0);
    let reported = |text: &str| {
        let reports = gpu.session.reports();
        assert!(reports.len() == 1 && reports[0].contains(text), "{text}: {reports:?}");
    };
    let (stream, block, pinned) = (gpu.stream(), gpu.block(8), gpu.pinned(&[0; 8]));
    assert_eq!(cu!(cuMemsetD8Async(block, 1u8, 9usize, stream)), 1);
    reported("outside device memory");
    ok!(cuMemcpyDtoHAsync_v2(pinned.as_mut_ptr(), block, 8usize, stream));
    ok!(cuMemFreeHost(pinned.as_mut_ptr()));
    reported("still uses it");
    ok!(cuMemFree_v2(block));
    assert_eq!(cu!(cuMemFree_v2(block)), 1);
    reported("or twice");
    assert_eq!(cu!(cuMemsetD8Async(block, 1u8, 1usize, stream)), 1);
    reported("memory is used that is freed");
    ok!(cuStreamDestroy_v2(stream));
    assert_eq!(cu!(cuStreamSynchronize(stream)), 400);
    reported("a stream that was not created");
    assert_eq!(cu!(cuEventRecord(5usize, 0usize)), 400);
    reported("an event that was not created");
    let (event, first) = (gpu.event(), gpu.stream());
    gpu.context_of(1);
    assert_eq!(cu!(cuEventRecord(event, first)), 400);
    reported("an event is recorded in another context");
    assert_eq!(cu!(cuStreamWaitEvent(first, event, 0u32)), 400);
    reported("an event is waited for in another context");
    let (other, stream) = (gpu.block(8), gpu.stream());
    assert_eq!(cu!(cuEventRecord(event, stream)), 400);
    reported("a stream of another device");
    assert_eq!(cu!(cuMemcpyPeerAsync(other, gpu.context, other, gpu.context, 8usize, stream)), 1);
    reported("another context than the memory's");
}

#[test]
fn a_peer_copy_crosses_devices() {
    let gpu = Gpu::seed(0);
    let from = gpu.filled(&[5; 8]);
    let context = gpu.context_of(1);
    let (to, stream) = (gpu.block(8), gpu.stream());
    ok!(cuMemcpyPeerAsync(to, context, from, gpu.context, 8usize, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(gpu.read(to, 8), [5; 8]);
}

#[test]
fn what_a_pointer_is() {
    let gpu = Gpu::seed(0);
    let (block, pinned, pageable) = (gpu.block(8), gpu.pinned(&[0; 8]), [0u8; 8]);
    let kind = |address: u64| {
        let mut kind = 0u32;
        (cu!(cuPointerGetAttribute(&raw mut kind, 2i32, address)), kind)
    };
    assert_eq!((kind(block + 7), kind(pinned.as_ptr() as u64)), ((0, 2), (0, 1)));
    assert_eq!(kind(pageable.as_ptr() as u64), (1, 0));
}

#[test]
fn reports_that_a_test_leaves_make_it_fail() {
    let result = std::panic::catch_unwind(|| {
        let _gpu = Gpu::seed(0);
        assert_eq!(cu!(cuMemFree_v2(4096u64)), 1);
    });
    let text = result.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("was not allocated"), "{text}");
}

#[test]
fn work_that_is_pending_when_its_memory_is_freed_is_reported() {
    let gpu = Gpu::seed(1);
    let (stream, block) = (gpu.stream(), gpu.filled(&[1; 8]));
    ok!(cuMemsetD8Async(block, 9u8, 8usize, stream));
    ok!(cuMemFree_v2(block));
    let said = gpu.session.reports();
    assert!(said.iter().any(|said| said.contains("freed while work")), "{said:?}");
}
