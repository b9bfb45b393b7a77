//! What the documentation of the memory promises, one module for each subject, through public functions only.
//! It relies on the loopback, which runs nothing before it must and fails where it is told to.

mod adopted;
mod broken;
mod budget;
mod busy;
mod devices;
mod done;
mod empty;
mod evicted;
#[cfg(target_os = "linux")]
mod forked;
mod given_up;
mod handed;
mod held;
mod lacking;
mod many_queues;
mod origin;
mod own_budget;
mod pinned;
#[path = "../common/poison.rs"]
mod poison;
mod received;
mod replaced;
mod scattered;
mod shares;
mod slices;
#[path = "../common/tape.rs"]
mod tape;
mod waiting;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use synced_mem::loopback::{Loopback, Mode, launch};
use synced_mem::{Device, DeviceMut, DeviceRef, Queue};

#[global_allocator]
static POISONING: poison::Poisoning = poison::Poisoning;

/// Long enough for a busy machine, short enough for a test that hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// A deferred device with a queue.
fn device() -> (Arc<Loopback>, Arc<dyn Queue>) {
    let device = Loopback::new(Mode::Deferred);
    let queue = device.queue().unwrap();
    (device, queue)
}

/// Launches a kernel that sets every byte.
fn fill(token: &mut DeviceMut<'_>, byte: u8) {
    let queue = Arc::clone(token.queue());
    launch(&*queue, [token.arg_mut()], move |args| args[0].bytes_mut().fill(byte)).unwrap();
}

/// Launches a kernel that panics, which fails its queue, unless every byte is `byte`.
fn expect(token: &DeviceRef<'_>, byte: u8) {
    let queue = Arc::clone(token.queue());
    launch(&*queue, [token.arg()], move |args| {
        let found = args[0].bytes();
        assert!(found.iter().all(|b| *b == byte), "{found:?}, not {byte}");
    })
    .unwrap();
}

/// A queue on which work was lost fails for good.
fn break_queue(queue: &Arc<dyn Queue>) {
    launch(&**queue, [], |_| resume_unwind(Box::new("broken on purpose"))).unwrap();
}
