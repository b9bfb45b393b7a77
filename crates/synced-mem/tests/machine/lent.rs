//! Lent slices: no queue ever sees them, whatever is leaked and however the scope ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use synced_mem::loopback::{Fault, Loopback, Mode, Operation, launch};
use synced_mem::{Device, DeviceMut, Error, Location, Queue, scope};

fn modes() -> [Mode; 4] {
    [Mode::Immediate, Mode::Deferred, Mode::Random(1), Mode::Random(2)]
}

fn with_queue(mode: Mode) -> (Arc<Loopback>, Arc<dyn Queue>) {
    let device = Loopback::new(mode);
    let queue = device.queue().unwrap();
    (device, queue)
}

fn add_one(token: &mut DeviceMut<'_>) {
    let queue = Arc::clone(token.queue());
    launch(&*queue, [token.arg_mut()], |args| {
        args[0].bytes_mut().iter_mut().for_each(|byte| *byte += 1);
    })
    .unwrap();
}

#[test]
fn the_newest_bytes_are_in_the_slice_when_the_scope_has_ended() {
    for mode in modes() {
        let (device, queue) = with_queue(mode);
        let mut bytes = [1, 2, 3, 4];
        scope(|scope| {
            let mut lent = scope.lend_mut(&mut bytes);
            add_one(&mut lent.device_mut(&queue, ..).unwrap());
            lent.host_mut(0..1).unwrap()[0] = 9;
            add_one(&mut lent.device_mut(&queue, 0..2).unwrap());
            std::mem::forget(lent.device_mut(&queue, 1..3).unwrap());
        })
        .unwrap();
        assert_eq!(bytes, [10, 4, 4, 5]);
        assert!(device.report().misuses.is_empty());
    }
}

#[test]
fn a_panic_leaves_nothing_pending_on_the_slices() {
    for mode in modes() {
        let (device, queue) = with_queue(mode);
        let (input, mut output) = (vec![1; 64], vec![2; 64]);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            scope(|scope| {
                let input = scope.lend(&input);
                let mut output = scope.lend_mut(&mut output);
                std::mem::forget(input.device(&queue, ..).unwrap());
                add_one(&mut output.device_mut(&queue, ..).unwrap());
                output.prefetch_host(..).unwrap();
                std::panic::resume_unwind(Box::new("expected"));
            })
        }));
        assert!(panicked.is_err());
        // Whatever is still pending is run here; it must find neither slice.
        drop(input);
        output.fill(3);
        queue.synchronize().unwrap();
        assert_eq!(output, [3; 64]);
        assert!(device.report().misuses.is_empty());
    }
}

#[test]
fn uploads_of_a_slice_are_over_when_the_call_returns() {
    let (device, queue) = with_queue(Mode::Deferred);
    let mut bytes = [1; 16];
    scope(|scope| {
        let mut lent = scope.lend_mut(&mut bytes);
        lent.device(&queue, ..).unwrap();
        assert_eq!(device.report().pending, 0);
        lent.host_mut(..).unwrap().fill(2);
        let token = lent.device(&queue, ..).unwrap();
        launch(&*queue, [token.arg()], |args| assert_eq!(args[0].bytes(), [2; 16])).unwrap();
    })
    .unwrap();
    queue.synchronize().unwrap();
}

#[test]
fn bytes_that_cannot_be_brought_back_are_an_error_of_the_scope() {
    let (device, queue) = with_queue(Mode::Deferred);
    let mut bytes = [1; 4];
    let result = scope(|scope| {
        let mut lent = scope.lend_mut(&mut bytes);
        add_one(&mut lent.device_mut(&queue, ..).unwrap());
        assert!(!lent.valid_on(Location::Host, ..));
        device.fail(Operation::Download, 1, Fault::Refused);
    });
    assert!(matches!(result, Err(Error::Device { op: "download", .. })));
    assert_eq!(bytes, [1; 4]);
}

/// A kernel runs until another thread has asked the memory for something, which it can only while no lock is held.
#[test]
fn a_lent_memory_can_be_asked_while_its_bytes_are_waited_for() {
    let (_device, queue) = with_queue(Mode::Deferred);
    let mut bytes = [1; 16];
    scope(|scope| {
        let mut lent = scope.lend_mut(&mut bytes);
        let (started, begun) = mpsc::channel();
        let (asked, told) = mpsc::channel();
        let mut token = lent.device_mut(&queue, ..).unwrap();
        launch(&*queue, [token.arg_mut()], move |args| {
            args[0].bytes_mut().fill(2);
            started.send(()).unwrap();
            told.recv_timeout(Duration::from_secs(20)).expect("the memory is asked meanwhile");
        })
        .unwrap();
        drop(token);
        let lent = &*lent;
        thread::scope(|threads| {
            threads.spawn(move || {
                begun.recv().unwrap();
                assert!(!lent.valid_on(Location::Host, ..));
                asked.send(()).unwrap();
            });
            assert_eq!(lent.host(..).unwrap(), [2; 16]);
        });
        // Each byte moved once, and the buffer that stood for the slice was given back.
        let stats = lent.stats();
        assert_eq!((stats.uploads.bytes, stats.downloads.bytes), (16, 16));
        assert_eq!((stats.allocations.count, stats.frees.count), (3, 2));
    })
    .unwrap();
    assert_eq!(bytes, [2; 16]);
}
