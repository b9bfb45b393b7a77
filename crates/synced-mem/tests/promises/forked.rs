//! A child process after a fork: accesses to what is from before are errors, calls that return nothing panic, and
//! destructors leak, whatever lock another thread of the parent had. Nothing hangs.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use synced_mem::loopback::{Loopback, Mode, launch};
use synced_mem::{Budget, Device, Error, HostPool, Location, Queue, SharedMem, SyncedMem};

/// The name of this test, and of the variable that its own process has.
const TEST: &str = "forked::a_child_process_gets_errors_and_never_waits";
const VARIABLE: &str = "SYNCED_MEM_FORKS";

/// How often the process forks. At each fork another thread may have any of the locks.
const FORKS: usize = 100;

/// The seconds that a child may take.
const PATIENCE: u32 = 20;

/// What the parent has, and other threads use all the time.
struct Before {
    memory: SharedMem,
    read: SharedMem,
    owned: SyncedMem,
    pool: HostPool,
    budget: Budget,
    device: Arc<Loopback>,
    queue: Arc<dyn Queue>,
}

impl Before {
    fn new() -> Self {
        let device = Loopback::new(Mode::Immediate);
        let before = Self {
            memory: SharedMem::from(vec![1; 64]),
            read: SharedMem::from(vec![2; 64]),
            owned: SyncedMem::from(vec![3; 64]),
            pool: HostPool::new(1 << 20),
            budget: Budget::new(Location::Device(device.id()), 1 << 20),
            queue: device.queue().unwrap(),
            device,
        };
        before.budget.add(&before.memory);
        assert_eq!((before.read.host(..).unwrap()[0], before.owned.host(..).unwrap()[0]), (2, 3));
        before
    }

    /// Takes every lock again and again.
    fn is_used(&self) {
        drop(self.memory.device_mut(&self.queue, 8..16));
        drop(self.memory.host_mut(0..8));
        drop(SharedMem::new_in(8192, &self.pool).host_mut(..));
        let own = SharedMem::new(64);
        self.budget.add(&own);
        own.upload(&self.queue, ..).unwrap();
        self.queue.synchronize().unwrap();
    }
}

fn is_forked<T>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Forked)), "{:?}", result.err());
}

fn panics(call: impl FnOnce()) {
    let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>(), Some(&Error::Forked.to_string()));
}

/// What a child sees.
fn in_child(before: Before) {
    let Before { memory, read, mut owned, pool, budget, device, queue } = before;
    is_forked(memory.host(0..1));
    is_forked(memory.host_mut(0..1));
    is_forked(memory.host_overwrite(..));
    is_forked(memory.device(&queue, ..));
    is_forked(memory.device_mut(&queue, 0..1));
    is_forked(memory.prefetch_host(..));
    is_forked(memory.evict(Location::Host, ..));
    is_forked(memory.evict_clean(Location::Host, ..));
    is_forked(memory.adopt(vec![0; 64]));
    is_forked(memory.copy_from(0, &read, ..));
    is_forked(memory.lacking(..));
    is_forked(memory.check_write(..));
    is_forked(memory.with_timeout(Duration::from_secs(60), |memory| memory.host_mut(..)));
    is_forked(owned.host_mut(..));
    is_forked(owned.device(&queue, ..));
    is_forked(owned.prefetch_host(..));
    is_forked(owned.adopt(vec![0; 64]));
    is_forked(SharedMem::new_in(8192, &pool).host(..));
    is_forked(budget.make_room(1));
    is_forked(device.queue());
    is_forked(queue.alloc(8));
    is_forked(queue.synchronize());
    is_forked(launch(&*queue, [], |_| {}));
    is_forked(SharedMem::from(vec![1; 8]).upload(&queue, ..));
    panics(|| _ = memory.stats());
    panics(|| _ = memory.head());
    panics(|| _ = memory.valid_on(Location::Host, ..));
    panics(|| memory.shrink());
    panics(|| pool.trim());
    panics(|| budget.add(&SharedMem::new(8)));
    panics(|| drop(device.report()));
    // Without a lock.
    assert_eq!(read.host(..).unwrap()[..], [2; 64]);
    // What is made here works.
    let own = Loopback::new(Mode::Deferred).queue().unwrap();
    let memory_here = SharedMem::from(vec![5; 8]);
    drop(memory_here.device_mut(&own, ..).unwrap());
    assert_eq!(memory_here.host(..).unwrap()[..], [5; 8]);
}

#[test]
fn a_child_process_gets_errors_and_never_waits() {
    if std::env::var_os(VARIABLE).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", TEST, "--nocapture"]).env(VARIABLE, "").output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
        return;
    }
    // A child's panics are expected, and the lock of the output may be another thread's.
    set_hook(Box::new(|_| {}));
    let ends = Arc::new(AtomicBool::new(false));
    let mut failed = Vec::new();
    let before = Arc::new(Before::new());
    let users = [(); 2].map(|()| {
        let (before, ends) = (Arc::clone(&before), Arc::clone(&ends));
        thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                before.is_used();
            }
        })
    });
    for nth in 0..FORKS {
        // SAFETY: the child runs this thread alone, allocates, which the C library allows there, and ends without any
        // work of the parent's.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: a child that hangs is ended by the signal; no handler is set.
                unsafe { libc::alarm(PATIENCE) };
                // SAFETY: a second handle of the same values, whose threads are not in this process, so that none is
                // used twice.
                let before = unsafe { std::ptr::read(Arc::as_ptr(&before)) };
                let ended = catch_unwind(AssertUnwindSafe(|| in_child(before)));
                let told = ended.as_ref().err().and_then(|panic| panic.downcast_ref::<String>());
                // SAFETY: writes the bytes of a text, without the lock of the standard error; then ends the process.
                unsafe {
                    told.inspect(|text| _ = libc::write(2, text.as_ptr().cast(), text.len()));
                    libc::_exit(i32::from(ended.is_err()))
                }
            }
            child => {
                let mut status = 0;
                // SAFETY: writes the status of a child of this process.
                let waited = unsafe { libc::waitpid(child, &mut status, 0) };
                if waited != child || status != 0 {
                    failed.push((nth, status));
                }
            }
        }
    }
    ends.store(true, Ordering::Relaxed);
    users.into_iter().for_each(|user| user.join().unwrap());
    // A status of 14 is the signal of the alarm.
    assert!(failed.is_empty(), "{failed:?}");
}
