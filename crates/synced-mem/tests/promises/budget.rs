//! Budgets: what memories take at a place stays under the limit, what is borrowed stays, and no byte is lost.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use synced_mem::loopback::{Fault, Operation, launch};
use synced_mem::{Budget, Device, Error, Location, Queue, SharedMem};

use super::tape::{Tape, pattern};
use super::{PATIENCE, device, fill};

pub(crate) fn place(device: &dyn Device) -> Location {
    Location::Device(device.id())
}

/// Memories of 1 KiB each, in a budget of a device.
fn memories(budget: &Budget, count: usize) -> Vec<SharedMem> {
    let memories: Vec<_> = (0..count).map(|nth| SharedMem::from(vec![nth as u8; 1024])).collect();
    memories.iter().for_each(|memory| budget.add(memory));
    memories
}

pub(crate) fn is_there(memories: &[SharedMem], place: Location) -> Vec<usize> {
    (0..memories.len()).filter(|nth| memories[*nth].valid_on(place, ..)).collect()
}

#[test]
fn a_memory_that_was_not_borrowed_since_it_was_asked_goes_before_one_that_was() {
    let (device, queue) = device();
    let place = place(&*device);
    let budget = Budget::new(place, 2048);
    let memories = memories(&budget, 4);
    for nth in [0, 1, 2] {
        memories[nth].upload(&queue, ..).unwrap();
    }
    assert_eq!(is_there(&memories, place), [1, 2]);
    // The first was asked, and its mark is gone; the other is new.
    memories[3].upload(&queue, ..).unwrap();
    assert_eq!(is_there(&memories, place), [2, 3]);
    let stats = budget.stats();
    assert_eq!((stats.limit, stats.in_use, stats.peak, stats.evicted.count), (2048, 2048, 2048, 2));
    assert_eq!((stats.evicted.bytes, memories[0].stats().downloads.count), (2048, 0));
    queue.synchronize().unwrap();
    assert_eq!(device.report().bytes_in_use, 2048);
}

#[test]
fn what_is_borrowed_stays_and_a_memory_without_room_is_refused() {
    let (device, queue) = device();
    let budget = Budget::new(place(&*device), 2048);
    let memories = memories(&budget, 3);
    let (first, second) = (memories[0].device(&queue, 4..8).unwrap(), memories[1].device_mut(&queue, ..).unwrap());
    let refused = memories[2].device(&queue, ..).unwrap_err();
    assert!(matches!(refused, Error::OverBudget { bytes: 1024, limit: 2048, in_use: 2048, .. }), "{refused}");
    assert!(refused.to_string().ends_with("the budget has 2048, of which 2048 are in use"), "{refused}");
    drop((first, second));
    memories[2].upload(&queue, ..).unwrap();
    // Its own block is room enough.
    memories[2].device_mut(&queue, ..).unwrap();
    let large = SharedMem::new(4096);
    budget.add(&large);
    let refused = large.device_overwrite(&queue, ..).unwrap_err();
    assert!(matches!(refused, Error::OverBudget { bytes: 4096, limit: 2048, .. }));
    assert_eq!(budget.stats().evicted.count, 1, "nothing goes for what never fits");
}

#[test]
fn bytes_that_a_device_alone_holds_move_and_come_back() {
    let (device, queue) = device();
    let budget = Budget::new(place(&*device), 1024);
    let memories = memories(&budget, 3);
    for round in 1..4_u8 {
        for (nth, memory) in memories.iter().enumerate() {
            let mut token = memory.device_mut(&queue, 100..200).unwrap();
            let was = if round == 1 { nth as u8 } else { round - 1 };
            launch(&*queue, [token.arg_mut()], move |args| {
                assert_eq!(args[0].bytes(), [was; 100]);
                args[0].bytes_mut().fill(round);
            })
            .unwrap();
        }
    }
    for (nth, memory) in memories.iter().enumerate() {
        let bytes = memory.host(..).unwrap();
        assert_eq!((bytes[99], bytes[100], bytes[199], bytes[200]), (nth as u8, 3, 3, nth as u8));
    }
    assert_eq!(budget.stats().peak, 1024);
}

/// Four times as much as the budget has: every pass reads all, and nothing else is kept.
#[test]
fn layers_pass_through_a_device_that_has_no_room_for_all() {
    let (device, queue) = device();
    let budget = Budget::new(place(&*device), 4096);
    let tapes: Vec<_> = (0..8).map(|_| Tape::new(2048)).collect();
    let layers: Vec<_> = tapes.iter().map(|tape| SharedMem::of(tape.clone())).collect();
    layers.iter().for_each(|layer| budget.add(layer));
    for pass in 1..4 {
        for layer in &layers {
            let token = layer.device(&queue, ..).unwrap();
            launch(&*queue, [token.arg()], |args| assert_eq!(args[0].bytes(), pattern(0..2048))).unwrap();
        }
        queue.synchronize().unwrap();
        assert!(tapes.iter().all(|tape| tape.bytes_read() == 2048 * pass));
    }
    assert_eq!((budget.stats().peak, device.report().bytes_in_use), (4096, 4096));
    let hosts: u64 = layers.iter().map(|layer| layer.stats().downloads.count).sum();
    assert_eq!(hosts, 0);
}

#[test]
fn the_host_has_a_budget_too_and_blocks_count_while_they_are_there() {
    let budget = Budget::new(Location::Host, 2048);
    let early = SharedMem::new(1024);
    early.host(..).unwrap();
    budget.add(&early);
    budget.add(&early);
    assert_eq!(budget.stats().in_use, 1024);
    let tapes = [(); 3].map(|()| Tape::new(1024));
    let lazy = tapes.each_ref().map(|tape| SharedMem::of(tape.clone()));
    lazy.iter().for_each(|memory| budget.add(memory));
    for memory in &lazy {
        assert_eq!(memory.host(10..20).unwrap()[..], pattern(10..20));
    }
    // Zeros that were never written are nowhere else, so they stay.
    assert_eq!((budget.stats().in_use, budget.stats().peak, budget.stats().evicted.count), (2048, 2048, 2));
    assert!(early.valid_on(Location::Host, ..) && lazy[2].valid_on(Location::Host, 10..20));
    lazy[2].evict_clean(Location::Host, ..).unwrap();
    assert_eq!(budget.stats().in_use, 1024);
    drop((early, lazy));
    assert_eq!(budget.stats().in_use, 0);
}

#[test]
fn room_for_a_block_that_could_not_be_had_is_given_back() {
    let (device, queue) = device();
    let budget = Budget::new(place(&*device), 1024);
    let memories = memories(&budget, 2);
    device.fail(Operation::Alloc, 1, Fault::Refused);
    assert!(matches!(memories[0].upload(&queue, ..), Err(Error::Device { .. } | Error::DeviceOutOfMemory { .. })));
    assert_eq!(budget.stats().in_use, 0);
    memories[1].upload(&queue, ..).unwrap();
}

/// A budget of an eighth of the bytes. A thread that is refused asks again until the others have given their tokens
/// back, so each step of each thread is served at last, whatever the scheduler does.
#[test]
fn threads_share_a_budget_without_a_deadlock_or_a_wrong_byte() {
    let (device, _queue) = device();
    let budget = Budget::new(place(&*device), 2048);
    let memories: Vec<SharedMem> = (0..16)
        .map(|nth| if nth % 2 == 0 { SharedMem::of(Tape::new(1024)) } else { SharedMem::from(pattern(0..1024)) })
        .collect();
    memories.iter().for_each(|memory| budget.add(memory));
    thread::scope(|scope| {
        let (budget, memories, device) = (&budget, &memories, &device);
        for nth in 0..4_usize {
            scope.spawn(move || {
                let queue: Arc<dyn Queue> = device.queue().unwrap();
                for step in 0..300 {
                    let memory = &memories[(step * 7 + nth * 5) % 16];
                    let token = loop {
                        match memory.device(&queue, 16..48) {
                            Ok(token) => break token,
                            Err(Error::OverBudget { .. }) => thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                        assert!(budget.stats().in_use <= 2048);
                    };
                    let expected = pattern(16..48);
                    launch(&*queue, [token.arg()], move |args| assert_eq!(args[0].bytes(), expected)).unwrap();
                    assert!(budget.stats().in_use <= 2048);
                }
                queue.synchronize().unwrap();
            });
        }
    });
    assert!(budget.stats().peak <= 2048 && budget.stats().evicted.count > 100);
    for memory in &memories {
        assert_eq!(memory.host(..).unwrap()[..], pattern(0..1024));
    }
    fill(&mut memories[0].device_overwrite(&device.queue().unwrap(), ..).unwrap(), 1);
}

#[test]
fn a_device_without_room_gets_what_others_can_give_for_nothing() {
    let (device, queue) = device();
    device.set_limit(2048 + 512);
    let budget = Budget::new(place(&*device), usize::MAX);
    let memories = memories(&budget, 4);
    memories.iter().for_each(|memory| memory.upload(&queue, ..).unwrap());
    let stats = budget.stats();
    assert_eq!(is_there(&memories, place(&*device)), [2, 3]);
    assert_eq!((stats.in_use, stats.evictable, stats.evicted.count), (2048, 2048, 2));
    let token = memories[2].device(&queue, ..).unwrap();
    fill(&mut memories[3].device_mut(&queue, ..).unwrap(), 9);
    assert_eq!(budget.stats().evictable, 0);
    let refused = memories[0].upload(&queue, ..).unwrap_err();
    assert!(matches!(refused, Error::Exhausted { bytes: 1024, in_use: 2048, borrowed: 1, dirty: 1, .. }), "{refused}");
    let end = "shared memories take 2048 bytes there, 1 of them are borrowed, and 1 hold bytes that are nowhere else";
    assert!(refused.to_string().ends_with(end), "{refused}");
    drop(token);
    memories[0].upload(&queue, ..).unwrap();
    assert_eq!(is_there(&memories, place(&*device)), [0, 3]);
    assert_eq!(*memories[3].host(..).unwrap(), [9; 1024]);
}

/// One memory leaves the device for the host, and another has to leave the host for the device: that makes no room.
#[test]
fn memories_that_could_only_change_places_do_not_do_so_for_ever() {
    let (device, queue) = device();
    let (on_device, on_host) = (Budget::new(place(&*device), 1024), Budget::new(Location::Host, 256));
    let (one, two, large) = (SharedMem::new(256), SharedMem::from(vec![2; 256]), SharedMem::of(Tape::new(1024)));
    for memory in [&one, &two, &large] {
        [&on_device, &on_host].iter().for_each(|budget| budget.add(memory));
    }
    fill(&mut one.device_overwrite(&queue, ..).unwrap(), 1);
    let (ended, has_ended) = mpsc::channel();
    thread::spawn(move || ended.send(large.upload(&queue, ..)).unwrap());
    let refused = has_ended.recv_timeout(PATIENCE).expect("it ends");
    assert!(matches!(refused, Err(Error::OverBudget { bytes: 1024, .. })), "{refused:?}");
    for (memory, byte) in [(&one, 1), (&two, 2)] {
        let copy = SharedMem::new(256);
        copy.copy_from(0, memory, ..).unwrap();
        assert_eq!(*copy.host(..).unwrap(), [byte; 256]);
    }
}

/// The room that the second memory needs is the first one's, whose own read asks for it.
#[test]
fn a_read_that_needs_room_does_not_wait_for_itself() {
    let budget = Budget::new(Location::Host, 1024);
    let (told, refused) = mpsc::channel();
    let inner = SharedMem::of(Tape::new(1024));
    let reads = {
        let inner = inner.clone();
        Tape::with_hook(1024, move |_| told.send(inner.host(..).map(drop)).unwrap())
    };
    let outer = SharedMem::of(reads);
    [&outer, &inner].iter().for_each(|memory| budget.add(memory));
    let (ended, has_ended) = mpsc::channel();
    let reader = outer.clone();
    // A prefetch has no borrow that would keep its memory from being asked.
    thread::spawn(move || ended.send(reader.prefetch_host(..)).unwrap());
    has_ended.recv_timeout(PATIENCE).expect("it does not wait for itself").unwrap();
    assert!(matches!(refused.recv().unwrap(), Err(Error::OverBudget { in_use: 1024, .. })));
    assert_eq!(outer.host(..).unwrap()[..], pattern(0..1024));
    // When the read is over the memory gives its room up.
    drop(inner.host(..).unwrap());
    assert_eq!(is_there(&[outer, inner], Location::Host), [1]);
}

/// What leaves the device needs room on the host, and what leaves the host needs room on the device.
#[test]
fn two_full_budgets_refuse_and_lose_nothing() {
    let (device, queue) = device();
    let (on_device, on_host) = (Budget::new(place(&*device), 2048), Budget::new(Location::Host, 2048));
    let mut all: Vec<_> = (0..4).map(|_| SharedMem::new(1024)).collect();
    all.iter().for_each(|memory| [&on_device, &on_host].iter().for_each(|budget| budget.add(memory)));
    for (nth, memory) in all[2..].iter_mut().enumerate() {
        memory.host_mut(..).unwrap().fill(2 + nth as u8);
        memory.upload(&queue, ..).unwrap();
        memory.host_mut(..).unwrap().fill(2 + nth as u8);
    }
    for (nth, memory) in all[..2].iter_mut().enumerate() {
        let mut token = memory.device_overwrite(&queue, ..).unwrap();
        launch(&*queue, [token.arg_mut()], move |args| args[0].bytes_mut().fill(nth as u8)).unwrap();
    }
    let refused = all[2].device(&queue, ..).unwrap_err();
    assert!(matches!(refused, Error::OverBudget { .. }), "{refused}");
    drop((on_device, on_host));
    for (nth, memory) in all.iter().enumerate() {
        // A memory without a budget takes the bytes, wherever they are: the limits hold as long as the memories do.
        let copy = SharedMem::new(1024);
        copy.copy_from(0, memory, ..).unwrap();
        assert!(copy.host(..).unwrap().iter().all(|byte| *byte == nth as u8), "{nth}");
    }
}

#[test]
fn room_that_one_of_two_budgets_lacks_is_taken_of_neither() {
    let (device, queue) = device();
    let [large, small] = [4096, 1024].map(|bytes| Budget::new(place(&*device), bytes));
    let memory = SharedMem::new(2048);
    [&large, &small].iter().for_each(|budget| budget.add(&memory));
    assert!(matches!(memory.device(&queue, ..), Err(Error::OverBudget { limit: 1024, .. })));
    assert_eq!((large.stats().in_use, small.stats().in_use), (0, 0));
}

#[test]
fn a_budget_of_the_origin_counts_nothing() {
    let budget = Budget::new(Location::Origin, 1);
    let memory = SharedMem::of(Tape::new(64));
    budget.add(&memory);
    assert_eq!(memory.host(..).unwrap().len(), 64);
    assert_eq!(budget.stats().in_use, 0);
}

/// Reads of all bytes take no lock from the second on, and count all the same.
#[test]
fn a_memory_on_the_host_that_was_read_without_a_lock_stays_before_one_that_was_not() {
    let budget = Budget::new(Location::Host, 3072);
    let tapes = [(); 4].map(|()| Tape::new(1024));
    let memories = tapes.map(|tape| SharedMem::of(tape));
    memories.iter().for_each(|memory| budget.add(memory));
    memories.iter().for_each(|memory| drop(memory.host(..).unwrap()));
    // Of three that were borrowed lately the first went, and the marks of the others are gone.
    assert_eq!(is_there(&memories, Location::Host), [1, 2, 3]);
    drop(memories[1].host(..).unwrap());
    drop(memories[0].host(..).unwrap());
    assert_eq!(is_there(&memories, Location::Host), [0, 1, 3]);
}

#[test]
fn a_caller_with_time_waits_until_the_budget_has_room() {
    let (device, queue) = device();
    let budget = Budget::new(place(&*device), 1024);
    let memories = memories(&budget, 2);
    let token = memories[0].device(&queue, ..).unwrap();
    let moment = Duration::from_millis(3);
    let in_time = |memory: &SharedMem, time| memory.with_timeout(time, |memory| memory.upload(&queue, ..));
    assert!(matches!(in_time(&memories[1], moment), Err(Error::OverBudget { .. })));
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(moment);
            drop(token);
        });
        in_time(&memories[1], PATIENCE).unwrap();
    });
    assert_eq!(is_there(&memories, place(&*device)), [1]);
    // What never fits is not waited for.
    let large = SharedMem::new(2048);
    budget.add(&large);
    assert!(matches!(in_time(&large, Duration::from_secs(3600)), Err(Error::OverBudget { .. })));
}

/// A kernel of the layer that is worked on is launched, and has not run: the next layer's bytes come all the same.
#[test]
fn room_that_is_made_before_a_launch_does_not_wait_for_the_kernel() {
    for makes_room in [false, true] {
        let (device, work) = device();
        let ahead = device.queue().unwrap();
        let budget = Budget::new(place(&*device), 2048);
        let memories = memories(&budget, 3);
        memories[0].upload(&ahead, ..).unwrap();
        memories[1].upload(&ahead, ..).unwrap();
        fill(&mut memories[0].device_mut(&work, ..).unwrap(), 7);
        let mut token = memories[1].device_mut(&work, ..).unwrap();
        if makes_room {
            budget.make_room(1024).unwrap();
        }
        let (ran, has_run) = mpsc::channel();
        launch(&*work, [token.arg_mut()], move |_| ran.send(()).unwrap()).unwrap();
        memories[2].upload(&ahead, ..).unwrap();
        ahead.synchronize().unwrap();
        assert_eq!(has_run.try_recv().is_err(), makes_room);
        assert_eq!(is_there(&memories, place(&*device)), [1, 2]);
        drop(token);
        assert_eq!(*memories[0].host(..).unwrap(), [7; 1024]);
    }
}
