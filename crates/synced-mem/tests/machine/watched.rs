//! Observers: every counted event is told once, after the lock has been released.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, Event, EventKind, HostBuffer, SharedMem};

/// Fails instead of hanging when something waits for itself.
pub(crate) fn ends(work: impl FnOnce() + Send + 'static) {
    let (done, told) = mpsc::channel();
    let worker = thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    if told.recv_timeout(Duration::from_secs(20)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("it waits for itself");
    }
    worker.join().unwrap();
}

/// Uses a memory when it is adopted and when it is dropped: as an owner of bytes, or as what an observer holds.
struct Busy(SharedMem);

impl AsRef<[u8]> for Busy {
    fn as_ref(&self) -> &[u8] {
        self.0.head();
        &[1, 2]
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.head();
    }
}

#[test]
fn the_owner_of_a_refused_adoption_is_dropped_without_the_lock() {
    ends(|| {
        let memory = SharedMem::new(2);
        let _guard = memory.host(0..1).unwrap();
        assert!(memory.adopt(HostBuffer::from_owner(Busy(memory.clone()))).is_err());
    });
}

#[test]
fn the_owner_that_is_replaced_is_dropped_without_the_lock() {
    ends(|| {
        let memory = SharedMem::new(2);
        memory.adopt(HostBuffer::from_owner(Busy(memory.clone()))).unwrap();
        memory.adopt(HostBuffer::from_owner(Busy(memory.clone()))).unwrap();
        memory.host_overwrite(0..2).unwrap().fill(1);
        assert_eq!(memory.handles(), 1);
    });
}

#[test]
fn an_observer_that_is_replaced_is_dropped_without_the_lock() {
    ends(|| {
        let memory = SharedMem::new(2);
        let busy = Busy(memory.clone());
        memory.set_observer(Arc::new(move |_: &Event| assert_eq!(busy.0.len(), 2)));
        memory.set_observer(Arc::new(|_: &Event| {}));
        assert_eq!(memory.handles(), 1);
    });
}

#[test]
fn an_observer_may_borrow_and_drop_the_last_handle() {
    ends(|| {
        let device = Loopback::new(Mode::Deferred);
        let queue = device.queue().unwrap();
        let kept = Arc::new(Mutex::new(Some(SharedMem::new(64))));
        let memory = kept.lock().unwrap().clone().unwrap();
        let (told, count) = (kept.clone(), Arc::new(Mutex::new(0)));
        let counted = count.clone();
        memory.set_observer(Arc::new(move |event: &Event| {
            *counted.lock().unwrap() += 1;
            let memory = told.lock().unwrap().take();
            if let Some(memory) = memory {
                assert_eq!(event.kind, EventKind::Allocate);
                assert_eq!(memory.host_overwrite(8..16).unwrap().len(), 8);
            }
        }));
        drop(memory.device_overwrite(&queue, 0..8).unwrap());
        drop(memory);
        // A block on each side, allocated and freed.
        assert_eq!((*count.lock().unwrap(), device.report().live_blocks), (4, 0));
    });
}
