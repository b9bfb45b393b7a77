//! Kernels that use the machine they run on, or wait for others who do.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use super::*;
use crate::SharedMem;

const MODES: [Mode; 4] = [Mode::Immediate, Mode::Deferred, Mode::Random(1), Mode::Random(2)];

/// What a hang is taken for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `work` on a thread of its own, so that one that hangs fails the test.
#[track_caller]
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, seen): (Sender<()>, Receiver<()>) = channel();
    let thread = thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    match seen.recv_timeout(PATIENCE) {
        Ok(()) => thread.join().unwrap(),
        Err(_) if thread.is_finished() => thread.join().unwrap(),
        Err(_) => panic!("it hangs"),
    }
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
                let work = || {
                    let theirs = alloc(&other, 8);
                    set(&other, &theirs, 3);
                    bytes(&other, &*theirs)
                };
                let read = thread::scope(|scope| scope.spawn(work).join().unwrap());
                args[0].bytes_mut().copy_from_slice(&read);
            })
            .unwrap();
            assert_eq!(bytes(&queue, &*block), [3; 8], "{mode:?}");
            assert_eq!(device.report().misuses, [""; 0]);
        });
    }
}

#[test]
fn a_kernel_may_use_another_queue_and_is_refused_its_own_end() {
    for mode in MODES {
        in_time(move || {
            let device = Loopback::new(mode);
            let (queue, other) = (device.queue().unwrap(), device.queue().unwrap());
            let (own, seen) = (Arc::clone(&queue), Log::default());
            let noted = seen.clone();
            launch(&*queue, [], move |_| {
                let block = alloc(&other, 4);
                set(&other, &block, 2);
                assert_eq!(bytes(&other, &*block), [2; 4]);
                let error = own.synchronize().unwrap_err().to_string();
                noted.0.lock().unwrap().push(error);
                // Another queue that waits for this one cannot be waited for either.
                let waited = other.wait_for(&*own).and_then(|()| other.synchronize());
                assert!(waited.is_err());
            })
            .unwrap();
            queue.synchronize().unwrap();
            let names = seen.names();
            let wait = "called from a kernel that it would have to wait for";
            assert!(names.len() == 1 && names[0].ends_with(wait), "{names:?}");
        });
    }
}

#[test]
fn a_kernel_may_own_the_last_handle_of_its_memory() {
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
}

#[test]
fn kernels_that_wait_for_each_others_machines_are_told_so() {
    in_time(|| {
        let machines = [(); 2].map(|()| Loopback::new(Mode::Immediate));
        let queues = machines.each_ref().map(|machine| machine.queue().unwrap());
        let (both, after) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let results = thread::scope(|scope| {
            let threads = [0, 1].map(|own| {
                let (both, after) = (Arc::clone(&both), Arc::clone(&after));
                let (queue, other) = (&queues[own], Arc::clone(&queues[1 - own]));
                scope.spawn(move || {
                    let (sender, result) = channel();
                    launch(&**queue, [], move |_| {
                        both.wait();
                        sender.send(launch(&*other, [], |_| {})).unwrap();
                    })
                    .unwrap();
                    after.wait();
                    result.recv().unwrap()
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        let refused = results.iter().filter(|result| result.is_err()).count();
        assert_eq!(refused, 1, "the second to wait: {results:?}");
        queues.iter().for_each(|queue| queue.synchronize().unwrap());
    });
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
            let kernel = move |_: &mut [KernelArg<'_>]| {
                starts.send(()).unwrap();
                // For a call that waits for this kernel with the memory locked to have begun.
                thread::sleep(Duration::from_millis(5));
                let bytes = own.host(0..64).map(|bytes| bytes[63]);
                read.0.lock().unwrap().push(format!("{bytes:?}"));
            };
            let launched = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || launch(&*queue, [], kernel).unwrap())
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
fn a_kernel_that_is_refused_may_own_the_last_handle_of_a_memory() {
    in_time(|| {
        let device = Loopback::new(Mode::Deferred);
        let queue = device.queue().unwrap();
        let (block, memory) = (alloc(&queue, 8), SharedMem::new(8));
        memory.device(&queue, ..).unwrap();
        let (mut written, read) = (writer(&block, &queue), DeviceRef::new(span(&block, 0..8, &queue), None));
        let launched = launch(&*queue, [written.arg_mut(), read.arg()], move |_| drop(memory));
        assert!(launched.unwrap_err().to_string().contains("overlaps"));
    });
}
