//! While a thread waits for a device, nobody else waits for that thread: borrows of other bytes begin and end, conflicts
//! are told at once, and a kernel may wait for any of this. The order is one of messages; time only ends a test that hangs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use synced_mem::loopback::launch;
use synced_mem::{Error, HostRef, Place, Queue, SharedMem};

use super::device;

/// Long enough for a busy machine, short enough for a test that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test on a thread of its own, and fails when it does not end.
fn ends(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = channel();
    let running = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match ended.recv_timeout(PATIENCE) {
        Ok(()) => running.join().unwrap(),
        Err(_) if running.is_finished() => running.join().unwrap(),
        Err(_) => panic!("it hangs"),
    }
}

/// A thread that waits for a kernel, which itself waits for `go`.
struct Waiting {
    reader: JoinHandle<Result<HostRef, Error>>,
    go: Sender<()>,
}

impl Waiting {
    /// A kernel on `range` is running, because a thread reads what it writes.
    fn for_a_kernel(memory: &SharedMem, queue: &Arc<dyn Queue>, range: Range<usize>) -> Self {
        let (go, gone) = channel::<()>();
        let (began, begun) = channel();
        let mut token = memory.device_overwrite(queue, range.clone()).unwrap();
        launch(&**queue, [token.arg_mut()], move |args| {
            wait_in_a_kernel(&began, &gone);
            args[0].bytes_mut().fill(5);
        })
        .unwrap();
        drop(token);
        let memory = memory.clone();
        let reader = thread::spawn(move || memory.host(range));
        begun.recv_timeout(PATIENCE).expect("nobody runs the kernel");
        Self { reader, go }
    }

    fn end(self) -> HostRef {
        self.go.send(()).unwrap();
        self.reader.join().unwrap().unwrap()
    }
}

fn wait_in_a_kernel(began: &Sender<()>, gone: &Receiver<()>) {
    began.send(()).unwrap();
    gone.recv_timeout(PATIENCE).expect("what it waits for does not come");
}

#[test]
fn other_bytes_are_borrowed_and_released_while_a_thread_waits_for_a_kernel() {
    ends(|| {
        let (_device, queue) = device();
        let memory = SharedMem::from_vec(vec![1; 16]);
        let before = memory.host(8..16).unwrap();
        let waiting = Waiting::for_a_kernel(&memory, &queue, 0..8);
        assert_eq!(before[..], [1; 8]);
        drop(before);
        memory.host_mut(8..16).unwrap().fill(2);
        assert_eq!(memory.host(12..16).unwrap()[..], [2; 4]);
        assert!(memory.range_valid_on(Place::Host, 8..16).unwrap());
        assert_eq!(waiting.end()[..], [5; 8]);
        assert_eq!(memory.host(6..10).unwrap()[..], [5, 5, 2, 2]);
    });
}

#[test]
fn a_conflict_with_a_thread_that_waits_for_a_kernel_is_told_at_once() {
    ends(|| {
        let (_device, queue) = device();
        let memory = SharedMem::from_vec(vec![1; 16]);
        let waiting = Waiting::for_a_kernel(&memory, &queue, 0..8);
        let is_conflict = |result: Result<(), Error>| match result {
            Err(Error::Conflict { .. }) => {}
            other => panic!("{other:?}"),
        };
        is_conflict(memory.host_mut(4..12).map(drop));
        is_conflict(memory.check_write(0..1));
        let hurried = memory.within(Duration::from_millis(1));
        is_conflict(hurried.host_overwrite(7..8).map(drop));
        is_conflict(memory.adopt_vec(vec![3; 16]));
        let guard = waiting.end();
        is_conflict(memory.host_mut(0..1).map(drop));
        drop(guard);
        memory.host_mut(0..1).unwrap();
    });
}

#[test]
fn a_kernel_may_wait_for_a_thread_that_drops_its_guard() {
    ends(|| {
        let (_device, queue) = device();
        let memory = SharedMem::from_vec(vec![1; 16]);
        let guards = (memory.host(8..12).unwrap(), memory.host_mut(12..16).unwrap());
        let (begun, started) = channel();
        let (dropped, gone) = channel::<()>();
        let mut token = memory.device_overwrite(&queue, 0..8).unwrap();
        launch(&*queue, [token.arg_mut()], move |args| {
            wait_in_a_kernel(&begun, &gone);
            args[0].bytes_mut().fill(5);
        })
        .unwrap();
        drop(token);
        let dropping = thread::spawn(move || {
            started.recv_timeout(PATIENCE).unwrap();
            drop(guards);
            dropped.send(()).unwrap();
        });
        assert_eq!(memory.host(0..8).unwrap()[..], [5; 8]);
        dropping.join().unwrap();
        assert_eq!(memory.host_mut(8..16).unwrap()[..], [1; 8]);
    });
}

#[test]
fn other_memories_and_their_ends_wait_for_nobodys_kernel() {
    ends(|| {
        let (_device, queue) = device();
        let memory = SharedMem::from_vec(vec![1; 16]);
        let other = SharedMem::from_vec(vec![3; 16]);
        let waiting = Waiting::for_a_kernel(&memory, &queue, 0..8);
        let copied = SharedMem::new(8);
        copied.copy_from(0, &other, 4..12).unwrap();
        other.copy_from(0, &memory, 8..16).unwrap();
        assert_eq!(other.host(6..10).unwrap()[..], [1, 1, 3, 3]);
        drop((other, copied));
        waiting.end();
    });
}
