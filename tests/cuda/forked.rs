//! A child process after a fork: the driver does not work there, so no call reaches the driver, not even at the end of
//! what the parent had.

use std::sync::Arc;

use fake_cuda::control::{Setup, child};
use synced_mem::cuda::{Absent, Cuda, list};
use synced_mem::{Device, Error, HostPool, Queue, SharedMem, SyncedMem};

use crate::absent::expect_success;
use crate::gpu;

fn is_forked<T>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Forked)), "{:?}", result.err());
}

/// A child's view of a GPU of its parent.
fn in_child(gpu: Arc<Cuda>, queue: Arc<dyn Queue>, memory: SharedMem, pinned: SharedMem) {
    assert_eq!(Cuda::open(0).unwrap_err(), Absent::Forked);
    assert_eq!(list().unwrap_err().to_string(), Absent::Forked.to_string());
    is_forked(gpu.queue());
    is_forked(gpu.memory());
    is_forked(gpu.trim());
    is_forked(gpu.host_block(8));
    is_forked(queue.alloc(8));
    is_forked(queue.synchronize());
    is_forked(queue.wait_for(&*queue));
    is_forked(memory.host(..));
    is_forked(memory.device(&queue, ..));
    is_forked(SharedMem::from(vec![1; 8]).upload(&queue, ..));
    let own = SharedMem::from(vec![2; 8]);
    is_forked(own.device_mut(&queue, ..).map(drop));
    assert_eq!(*own.host(..).unwrap(), [2; 8]);
    drop((pinned, memory, queue, gpu));
}

#[test]
fn no_call_of_a_child_process_reaches_the_driver() {
    let Some(output) = child("forked::no_call_of_a_child_process_reaches_the_driver", |_| {}) else {
        let (session, gpu, queue) = gpu(Setup::default());
        let device: Arc<dyn Device> = gpu.clone();
        let pinned = SharedMem::from(SyncedMem::new_in(8192, &HostPool::of(&device, 1 << 20)));
        let memory = SharedMem::from(vec![1; 64]);
        let token = memory.device_mut(&queue, ..).unwrap();
        pinned.upload(&queue, ..).unwrap();
        drop(device);
        let calls = session.calls("");
        // SAFETY: no other thread of this process has a lock that the child needs, and the child ends at once.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                drop(token);
                in_child(gpu, queue, memory, pinned);
                assert_eq!(session.calls(""), calls);
            }));
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(ended.is_err())) };
        }
        let mut status = 0;
        // SAFETY: writes the status of a child of this process.
        assert_eq!(unsafe { libc::waitpid(forked, &mut status, 0) }, forked);
        assert_eq!(status, 0);
        drop(token);
        assert_eq!(memory.host(..).unwrap()[..], [1; 64]);
        return;
    };
    expect_success(&output);
}
