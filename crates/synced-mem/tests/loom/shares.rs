//! A thread that writes on the host, and one whose device reads there.

use std::sync::Arc;

use loom::sync::atomic::Ordering;
use loom::thread;
use synced_mem::{Queue, SharedMem};

use super::spy_that_is;

/// A kernel that a device runs on the host's bytes is over before a writer has them, and no byte is copied for it.
#[test]
fn a_writer_on_the_host_waits_for_a_device_that_reads_there() {
    loom::model(|| {
        let spy = spy_that_is(false, true);
        let memory = SharedMem::from(vec![5; 4]);
        let other = {
            let (memory, spy) = (memory.clone(), spy.clone());
            thread::spawn(move || {
                let queue: Arc<dyn Queue> = spy.clone();
                let Ok(_token) = memory.device(&queue, 0..2) else { return };
                spy.launched.fetch_add(1, Ordering::Relaxed);
            })
        };
        if let Ok(mut bytes) = memory.host_mut(1..3) {
            let [launched, over] = [&spy.launched, &spy.over].map(|counter| counter.load(Ordering::Relaxed));
            assert_eq!(launched, over, "a kernel may read the bytes that are written");
            bytes.fill(6);
        }
        other.join().unwrap();
        assert_eq!(spy.uploads.load(Ordering::Relaxed), 0);
    });
}
