//! The machines that programs run on: three loopback devices with two queues each, and kernels that check what they
//! read. A kernel that finds something wrong notes it; it panics only on a queue that is told to.

use std::sync::{Arc, Mutex};

use synced_mem::loopback::{Loopback, Mode, launch};
use synced_mem::{Device, DeviceMut, DeviceRef, Error, Location, Queue};

pub(crate) struct Rig {
    pub(crate) devices: Vec<Arc<Loopback>>,
    /// Two of each device, one after the other.
    pub(crate) queues: Vec<Arc<dyn Queue>>,
    notes: Notes,
}

/// What kernels found wrong.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn compare(&self, what: &str, found: &[u8], expected: &[u8]) {
        if found != expected {
            let note = format!("{what}: found {found:?}, expected {expected:?}");
            self.0.lock().unwrap().push(note);
        }
    }
}

impl Rig {
    pub(crate) fn new(mode: Mode) -> Self {
        let first = Loopback::new(mode);
        let devices = vec![first.clone(), first.sibling(), Loopback::new(mode)];
        let twice = devices.iter().flat_map(|device| [device, device]);
        Self { queues: twice.map(|device| device.queue().unwrap()).collect(), devices, notes: Notes::default() }
    }

    pub(crate) fn place(&self, site: Option<usize>) -> Location {
        match site {
            None => Location::Host,
            Some(device) => Location::Device(self.devices[device].id()),
        }
    }

    /// Launches a kernel that checks what it reads.
    pub(crate) fn read(&self, token: &DeviceRef<'_>, expected: &[u8]) {
        insist(|| {
            let (notes, expected) = (self.notes.clone(), expected.to_vec());
            launch(&**token.queue(), [token.arg()], move |args| {
                notes.compare("a kernel that reads", args[0].bytes(), &expected);
            })
        });
    }

    /// Launches a kernel that writes, and checks what it finds if that is known.
    pub(crate) fn write(&self, token: &mut DeviceMut<'_>, before: Option<&[u8]>, after: &[u8]) {
        insist(|| {
            let (notes, before, after) = (self.notes.clone(), before.map(<[u8]>::to_vec), after.to_vec());
            let queue = Arc::clone(token.queue());
            launch(&*queue, [token.arg_mut()], move |args| {
                if let Some(before) = before {
                    notes.compare("a kernel that writes", args[0].bytes(), &before);
                }
                args[0].bytes_mut().copy_from_slice(&after);
            })
        });
    }

    /// Launches a kernel that panics, without a word on the terminal. Where kernels run at once, that is told here.
    pub(crate) fn panic(&self, queue: usize) {
        let queue = &*self.queues[queue];
        drop(launch(queue, [], |_| std::panic::resume_unwind(Box::new("told to panic"))));
    }

    /// Runs what is pending everywhere, whether it fails or not, and checks what the kernels and the devices say.
    pub(crate) fn settle(&self) {
        for queue in &self.queues {
            // A failure that was told in advance is used up.
            let _ = (0..20).any(|_| queue.synchronize().is_ok());
        }
        assert_eq!(*self.notes.0.lock().unwrap(), [""; 0]);
        for device in &self.devices {
            assert_eq!(device.report().misuses, [""; 0]);
        }
    }

    pub(crate) fn assert_all_freed(&self) {
        for (index, device) in self.devices.iter().enumerate() {
            let kept = (device.report().live_blocks, device.report().bytes_in_use);
            assert_eq!(kept, (0, 0), "blocks of device {index} were not freed");
        }
    }
}

/// Does something that fails only as often as it was told to.
pub(crate) fn insist<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> T {
    for _ in 0..200 {
        if let Ok(done) = attempt() {
            return done;
        }
    }
    attempt().expect("failures were told a few times only")
}
