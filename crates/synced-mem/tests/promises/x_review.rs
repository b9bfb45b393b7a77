//! What a reviewer broke, kept: failures at the wrong moment, bounds, needless waits, memory from outside.

use std::ops::Range;
use std::panic::{panic_any, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use synced_mem::loopback::{Loopback, Mode, launch};
use synced_mem::{Access, Device, Event, EventKind, HostPool, Place, Queue, SharedMem, SyncedMem};

/// Long enough for a busy machine, short enough for a test that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A queue on which work was lost fails for ever.
fn break_queue(queue: &Arc<dyn Queue>) {
    launch(&**queue, [], |_| resume_unwind(Box::new("broken on purpose"))).unwrap();
}

/// A panic's payload whose destructor panics too.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("a payload's destructor");
        }
    }
}

/// How many ranges are valid at a place.
fn ranges(len: usize, is_valid: impl Fn(Range<usize>) -> bool) -> usize {
    let valid = |cell: usize| is_valid(cell..cell + 1);
    let starts = |cell: &usize| valid(*cell) && (*cell == 0 || !valid(*cell - 1));
    (0..len).filter(starts).count()
}

#[test]
fn a_panic_that_panics_again_is_a_device_error() {
    let queue = Loopback::new(Mode::Deferred).queue().unwrap();
    let waiting = queue.device().queue().unwrap();
    let memory = {
        let mut memory = SyncedMem::new(1 << 16);
        drop(memory.device_overwrite(&queue).unwrap());
        memory
    };
    launch(&*queue, [], |_| panic_any(Bomb)).unwrap();
    waiting.wait_for(&*queue).unwrap();
    // A download that will not have been made when the memory ends: the buffer is leaked, not freed under it.
    memory.prefetch_host().unwrap();
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        drop(memory);
        let results = [queue.synchronize(), queue.synchronize(), waiting.synchronize()];
        done.send(results.map(|result| result.is_err())).unwrap();
    });
    assert_eq!(ended.recv_timeout(PATIENCE).expect("it hangs"), [true; 3]);
}

#[test]
fn a_copy_on_its_way_is_nothing_to_rely_on() {
    let device = Loopback::new(Mode::Deferred);
    let sibling = device.sibling();
    let (queue, other) = (device.queue().unwrap(), sibling.queue().unwrap());
    let mut memory = SyncedMem::new(8);
    let mut token = memory.device_overwrite(&queue).unwrap();
    launch(&*queue, [token.arg_mut()], |args| args[0].bytes_mut().fill(7)).unwrap();
    drop(token);
    queue.synchronize().unwrap();
    break_queue(&other);
    memory.prefetch(&other).unwrap();
    // What the broken queue was to bring to the sibling is not taken for another copy: the bytes go to the host first.
    memory.evict(Place::Device(device.id())).unwrap();
    assert_eq!(memory.host().unwrap(), [7; 8]);
}

#[test]
fn the_bound_gives_up_nothing_for_bytes_that_are_on_their_way() {
    let device = Loopback::new(Mode::Deferred);
    let (queue, writer) = (device.queue().unwrap(), device.queue().unwrap());
    let memory = SharedMem::new(96);
    let mut token = memory.device_overwrite(&writer, 0..96).unwrap();
    launch(&*writer, [token.arg_mut()], |args| args[0].bytes_mut().fill(7)).unwrap();
    drop(token);
    writer.synchronize().unwrap();
    // The home is the broken queue from now on.
    drop(memory.device(&queue, 0..1).unwrap());
    break_queue(&queue);
    memory.prefetch_host(0..2).unwrap();
    let written = (0..20).map(|i| 2 + 3 * i..3 + 3 * i);
    let guards: Vec<_> = written.map(|range| memory.host_overwrite(range).unwrap()).collect();
    let place = Place::Device(device.id());
    assert!(memory.range_valid_on(place, 0..2).unwrap());
    drop(guards);
}

#[test]
fn adopted_batches_do_not_pile_up() {
    struct Batch(Arc<AtomicUsize>, [u8; 8]);
    impl AsRef<[u8]> for Batch {
        fn as_ref(&self) -> &[u8] {
            &self.1
        }
    }
    impl Drop for Batch {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let queue = Loopback::new(Mode::Immediate).queue().unwrap();
    let alive = Arc::new(AtomicUsize::new(0));
    let mut memory = SyncedMem::new(8);
    for batch in 0..100 {
        alive.fetch_add(1, Ordering::SeqCst);
        memory.adopt_host(Batch(alive.clone(), [batch; 8])).unwrap();
        memory.prefetch(&queue).unwrap();
        queue.synchronize().unwrap();
        assert!(alive.load(Ordering::SeqCst) <= 4);
    }
}

#[test]
fn prefetching_and_evicting_piece_by_piece_keep_the_bound() {
    let device = Loopback::new(Mode::Immediate);
    let queue = device.queue().unwrap();
    let shared = SharedMem::new(400);
    drop(shared.device_mut(&queue, 0..400).unwrap());
    let mut owned = SyncedMem::from_vec(vec![1; 400]);
    owned.prefetch(&queue).unwrap();
    let place = Place::Device(device.id());
    for start in (0..400).step_by(4) {
        shared.prefetch_host(start..start + 1).unwrap();
        owned.evict_range(place, start..start + 1).unwrap();
    }
    assert!(ranges(400, |range| shared.range_valid_on(Place::Host, range).unwrap()) <= 16);
    assert!(ranges(400, |range| owned.range_valid_on(place, range).unwrap()) <= 16);
}

#[test]
fn another_backend_is_left_alone_where_the_host_has_the_bytes() {
    let (one, two) = (Loopback::new(Mode::Deferred), Loopback::new(Mode::Deferred));
    let (first, second) = (one.queue().unwrap(), two.queue().unwrap());
    let memory = SyncedMem::from_vec(vec![7; 8]);
    memory.prefetch(&second).unwrap();
    break_queue(&second);
    let pending = two.pending();
    drop(memory.device(&first).unwrap());
    assert_eq!((two.pending(), memory.stats().avoided().count()), (pending, 0));
}

#[test]
fn the_host_moves_to_the_device_that_holds_the_most_and_has_room() {
    let (one, two) = (Loopback::new(Mode::Deferred), Loopback::new(Mode::Deferred));
    let (first, second) = (one.queue().unwrap(), two.queue().unwrap());
    let mut memory = SyncedMem::from_vec(vec![7; 8]);
    memory.prefetch(&first).unwrap();
    memory.prefetch(&second).unwrap();
    memory.evict(Place::Device(one.id())).unwrap();
    memory.host_range_mut(0..1).unwrap()[0] = 1;
    memory.evict(Place::Host).unwrap();
    assert_eq!((one.live_blocks(), two.live_blocks()), (0, 1));
    // The one that is preferred has no room: the other has.
    memory.host_mut().unwrap().fill(2);
    memory.evict(Place::Device(two.id())).unwrap();
    one.set_limit(0);
    memory.evict(Place::Host).unwrap();
    assert_eq!(memory.host().unwrap(), [2; 8]);
}

#[test]
fn nothing_waits_for_no_bytes() {
    let (one, two) = (Loopback::new(Mode::Deferred), Loopback::new(Mode::Deferred));
    let (first, second) = (one.queue().unwrap(), two.queue().unwrap());
    let mut memory = SyncedMem::new(0);
    drop(memory.device_mut(&first).unwrap());
    break_queue(&first);
    assert!(memory.host().is_ok() && memory.device(&second).is_ok());
}

#[test]
fn patience_starts_anew_with_each_borrow() {
    let memory = SharedMem::new(8);
    let patient = memory.within(Duration::from_millis(400));
    thread::sleep(Duration::from_millis(450));
    let guard = memory.host_mut(0..8).unwrap();
    let releasing = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        drop(guard);
    });
    assert!(patient.host(0..8).is_ok());
    releasing.join().unwrap();
    let _guard = memory.host_mut(0..1).unwrap();
    let hurried = memory.within(Duration::from_millis(1));
    assert!(hurried.host(0..8).is_err());
}

#[test]
fn copying_onto_an_overlapping_range_is_a_conflict_even_of_nothing() {
    let memory = SharedMem::new(8);
    assert!(memory.copy_from(2, &memory.clone(), 0..4).is_err());
    assert!(memory.copy_from(0, &memory, 0..4).is_ok());
}

#[test]
fn a_pools_block_shows_old_bytes_to_who_overwrites_only() {
    let pool = HostPool::new(1 << 20);
    SyncedMem::new_in(4096, &pool).host_mut().unwrap().fill(9);
    let memory = SharedMem::new_in(4096, &pool);
    memory.host_overwrite(0..1).unwrap().fill(1);
    assert_eq!(memory.host(0..3).unwrap()[..], [1, 0, 0]);
    assert_eq!(pool.hits(), 1);
}

/// Bytes behind a raw pointer, given back by the last who knows it.
struct Raw(usize);

impl Raw {
    fn new() -> (NonNull<u8>, Self) {
        let bytes = NonNull::from(Box::leak(Box::new([5u8; 64]))).cast::<u8>();
        (bytes, Self(bytes.as_ptr().expose_provenance()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let bytes = std::ptr::with_exposed_provenance_mut::<[u8; 64]>(self.0);
        // SAFETY: `new` leaked this box, and only this takes it back.
        drop(unsafe { Box::from_raw(bytes) });
    }
}

#[test]
fn raw_host_bytes_are_used_in_place_and_given_back_after_their_last_use() {
    let queue = Loopback::new(Mode::Deferred).queue().unwrap();
    for access in [Access::Read, Access::Write] {
        let (bytes, owner) = Raw::new();
        // SAFETY: the bytes are the owner's, in a box that is not its own, and nobody else's.
        let mut memory = unsafe { SyncedMem::from_raw_host(bytes, 64, access, Box::new(owner)) };
        assert_eq!(memory.host().unwrap().as_ptr(), bytes.as_ptr().cast_const());
        let in_place = memory.host_mut().unwrap().as_ptr() == bytes.as_ptr().cast_const();
        assert_eq!(in_place, access == Access::Write);
        memory.prefetch(&queue).unwrap();
        // The upload is still to be made.
        memory.adopt_vec(vec![1; 64]).unwrap();
        let (bytes, owner) = Raw::new();
        // SAFETY: as above.
        unsafe { memory.adopt_raw_host(bytes, 64, access, Box::new(owner)) }.unwrap();
        let shared = memory.into_shared();
        assert_eq!(shared.host(60..64).unwrap()[..], [5; 4]);
        let (bytes, owner) = Raw::new();
        // SAFETY: as above.
        unsafe { shared.adopt_raw_host(bytes, 64, access, Box::new(owner)) }.unwrap();
        drop(shared);
        queue.synchronize().unwrap();
    }
}

#[test]
fn adopted_device_memory_is_ready_when_its_queue_is_and_leaks_with_it() {
    let device = Loopback::new(Mode::Deferred);
    let (queue, other) = (device.queue().unwrap(), device.queue().unwrap());
    let outside = device.external(8).unwrap();
    outside.with_bytes_mut(|bytes| bytes.fill(3));
    let address = outside.address();
    // SAFETY: the block is the owner's, and used by nobody else.
    let memory = unsafe { SyncedMem::from_raw_device(&queue, address, 8, Box::new(outside)) };
    let mut memory = memory.unwrap();
    // SAFETY: refused, because there is nothing at that address.
    assert!(unsafe { memory.adopt_device(&queue, 12, 8, Box::new(())) }.is_err());
    drop(memory.device(&other).unwrap());
    assert_eq!(memory.host().unwrap(), [3; 8]);
    let leaks = Arc::new(AtomicUsize::new(0));
    let counter = leaks.clone();
    memory.set_observer(Arc::new(move |event: &Event| {
        let is_leak = event.kind() == EventKind::Leak;
        counter.fetch_add(usize::from(is_leak), Ordering::SeqCst);
    }));
    drop(memory.device_mut(&queue).unwrap());
    break_queue(&queue);
    drop(memory);
    assert_eq!(leaks.load(Ordering::SeqCst), 1);
    assert_eq!(device.misuses().len(), 1, "the address that was refused");
}

#[test]
fn a_copy_of_a_mixed_source_moves_what_the_better_side_lacks() {
    let queue = Loopback::new(Mode::Deferred).queue().unwrap();
    let (source, target) = (SharedMem::new(4096), SharedMem::new(4096));
    drop(source.device_mut(&queue, 0..4096).unwrap());
    source.host_overwrite(8..12).unwrap().fill(3);
    target.copy_from(0, &source, 0..4096).unwrap();
    let stats = (source.stats(), target.stats());
    assert_eq!(stats.0.uploads().bytes(), 4);
    assert_eq!((stats.0.downloads().bytes(), stats.1.device_copies().bytes()), (0, 4096));
    assert_eq!(target.host(6..14).unwrap()[..], [0, 0, 3, 3, 3, 3, 0, 0]);
}
