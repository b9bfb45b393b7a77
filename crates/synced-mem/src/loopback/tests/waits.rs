//! What kernels wait for: threads and memories, but no queue. Each test has a time limit, so that a hang fails it.

use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use super::*;
use crate::SharedMem;

const MODES: [Mode; 4] = [Mode::Immediate, Mode::Deferred, Mode::Random(1), Mode::Random(2)];

/// A test that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(20);

#[track_caller]
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, seen) = channel();
    let thread = thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    match seen.recv_timeout(PATIENCE) {
        Err(_) if !thread.is_finished() => panic!("the test hangs"),
        _ => thread.join().unwrap(),
    }
}

/// What a call in a kernel came to.
fn words<T>(result: Result<T, Error>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "done".to_string())
}

#[test]
fn a_kernel_may_wait_for_a_thread_that_uses_its_machine() {
    for mode in MODES {
        in_time(move || {
            let device = Loopback::new(mode);
            let (queue, other) = (device.queue().unwrap(), device.queue().unwrap());
            let block = alloc(&queue, 8);
            let mut token = writer(&block, &queue);
            launch(&*queue, [token.arg_mut()], move |args| {
                let other = other.clone();
                let reader = thread::spawn(move || {
                    let theirs = alloc(&other, 8);
                    set(&other, &theirs, 3);
                    bytes(&other, &*theirs)
                });
                let read = reader.join().unwrap();
                args[0].bytes_mut().copy_from_slice(&read);
            })
            .unwrap();
            assert_eq!(bytes(&queue, &*block), [3; 8], "{mode:?}");
        });
    }
}

#[test]
fn a_kernel_may_wait_for_no_queue_and_no_queue_fails_by_that() {
    for mode in MODES {
        in_time(move || {
            let device = Loopback::new(mode);
            let (queue, sibling) = (device.queue().unwrap(), device.queue().unwrap());
            let foreign = Loopback::new(mode).queue().unwrap();
            let all = [Arc::clone(&queue), sibling, foreign];
            let (theirs, seen) = (all.clone(), Log::default());
            let (noted, after) = (seen.clone(), seen.clone());
            launch(&*queue, [], move |_| {
                for queue in &theirs {
                    let waits = [queue.synchronize(), theirs[0].wait_for(&**queue), queue.wait_for(&*theirs[0])];
                    noted.0.lock().unwrap().extend(waits.map(words));
                    // A kernel may launch.
                    let ran = after.clone();
                    launch(&**queue, [], move |_| ran.0.lock().unwrap().push("ran".into())).unwrap();
                }
            })
            .unwrap();
            // A kernel that a kernel launches on its own queue comes after what the first call waits for.
            all.iter().chain(&all).for_each(|queue| queue.synchronize().unwrap());
            let names = seen.names();
            assert_eq!(names.len(), 12, "{mode:?}: {names:?}");
            let refused = names.iter().filter(|name| name.ends_with(" refused: called from a kernel"));
            assert_eq!((refused.count(), &names[9..]), (9, &["ran", "ran", "ran"].map(String::from)[..]));
        });
    }
}

/// Each kernel wants the other's end: once a circle that only a graph of all threads could show.
#[test]
fn kernels_that_wait_for_each_others_queues_are_both_refused() {
    for mode in MODES {
        in_time(move || {
            let queues = [(); 2].map(|()| Loopback::new(mode).queue().unwrap());
            let (both, after) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
            let threads = [0, 1].map(|own| {
                let (both, after) = (Arc::clone(&both), Arc::clone(&after));
                let (queue, other) = (Arc::clone(&queues[own]), Arc::clone(&queues[1 - own]));
                thread::spawn(move || {
                    let (sender, result) = channel();
                    launch(&*queue, [], move |_| {
                        both.wait();
                        sender.send(other.synchronize()).unwrap();
                        after.wait();
                    })
                    .unwrap();
                    queue.synchronize().unwrap();
                    result.recv().unwrap()
                })
            });
            for thread in threads {
                let result = thread.join().unwrap();
                assert!(matches!(result, Err(Error::CalledFromKernel { .. })), "{mode:?}: {result:?}");
            }
            queues.iter().for_each(|queue| queue.synchronize().unwrap());
        });
    }
}

#[test]
fn a_kernel_may_use_a_memory_that_another_call_has_locked() {
    let modes = (0..16).map(Mode::Random).chain(MODES);
    for mode in modes {
        in_time(move || {
            let device = Loopback::new(mode);
            let (queue, other) = (device.queue().unwrap(), device.queue().unwrap());
            let memory = SharedMem::from(vec![7; 64]);
            let own = memory.clone();
            let (starts, started) = channel();
            let seen = Log::default();
            let read = seen.clone();
            let launched = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    launch(&*queue, [], move |_| {
                        starts.send(()).unwrap();
                        // For a call that enqueues with the memory locked to have begun.
                        thread::sleep(Duration::from_millis(5));
                        read.0.lock().unwrap().push(words(own.host(0..64)));
                    })
                    .unwrap()
                })
            };
            match mode {
                Mode::Immediate => started.recv().unwrap(),
                _ => launched.join().unwrap(),
            }
            for queue in [&other, &queue] {
                drop(memory.device_mut(queue, 0..64).unwrap());
                memory.host_mut(0..64).unwrap()[0] = 1;
            }
            queue.synchronize().unwrap();
            assert_eq!(seen.names().len(), 1, "{mode:?}");
            assert_eq!((memory.host(0..64).unwrap()[..2].to_vec(), device.report().misuses), (vec![1, 7], vec![]));
        });
    }
}

#[test]
fn a_kernel_may_own_the_last_handle_of_a_memory() {
    for mode in MODES {
        in_time(move || {
            let device = Loopback::new(mode);
            let queue = device.queue().unwrap();
            let memory = SharedMem::from(vec![1; 64]);
            let mut token = memory.device_mut(&queue, 0..64).unwrap();
            let own = memory.clone();
            launch(&*queue, [token.arg_mut()], move |args| {
                args[0].bytes_mut().fill(2);
                drop(own);
            })
            .unwrap();
            drop((token, memory));
            queue.synchronize().unwrap();
            assert_eq!(device.report().misuses, [""; 0], "{mode:?}");
        });
    }
    in_time(|| {
        let device = Loopback::new(Mode::Deferred);
        let queue = device.queue().unwrap();
        let (block, memory) = (alloc(&queue, 8), SharedMem::new(8));
        memory.device(&queue, ..).unwrap();
        let (mut written, read) = (writer(&block, &queue), DeviceRef::new(claimed(&block, 0..8, &queue), None));
        let launched = launch(&*queue, [written.arg_mut(), read.arg()], move |_| drop(memory));
        assert!(launched.unwrap_err().to_string().contains("overlaps"), "a launch that is refused drops its kernel");
    });
}

/// Waits for a queue at the end, and says what that came to.
struct LastWait(Arc<dyn Queue>, Sender<String>);

impl Drop for LastWait {
    fn drop(&mut self) {
        self.1.send(words(self.0.synchronize())).unwrap();
    }
}

#[test]
fn the_payload_of_a_panic_is_dropped_as_a_part_of_its_kernel() {
    for mode in MODES {
        in_time(move || {
            let queue = Loopback::new(mode).queue().unwrap();
            let (sender, said) = channel();
            let payload = Box::new(LastWait(Arc::clone(&queue), sender));
            let _ = launch(&*queue, [], move |_| resume_unwind(payload));
            let _ = queue.synchronize();
            let said = said.recv().unwrap();
            assert!(said.ends_with("called from a kernel"), "{mode:?}: {said}");
        });
    }
}
