//! Kernels: what they see, how they fail, and what a launch refuses.

use super::*;
use crate::Host;

#[test]
fn a_kernel_sees_its_arguments_in_order_and_nothing_else() {
    let queue = Loopback::new(Mode::Deferred).queue().unwrap();
    let (a, b) = (alloc(&queue, 8), alloc(&queue, 4));
    set(&queue, &a, 1);
    let reader = DeviceRef::new(span(&a, 0..4, &queue), None);
    let (mut tail, mut other) = (DeviceMut::new(span(&a, 4..8, &queue), None), writer(&b, &queue));
    let empty = ClaimedRange::empty(&queue);
    let mut empty = DeviceMut::new(empty, None);
    let args = [
        tail.arg_mut().slice(3..4).unwrap(),
        reader.arg(),
        other.arg_mut(),
        reader.arg().slice(1..3).unwrap(),
        empty.arg_mut(),
    ];
    launch(&*queue, args, |args| {
        let lens: Vec<usize> = args.iter().map(|arg| arg.bytes().len()).collect();
        assert_eq!(lens, [1, 4, 4, 2, 0]);
        args[0].bytes_mut()[0] = 7;
        let sum = args[1].bytes().iter().chain(args[3].bytes()).sum();
        args[2].bytes_mut().fill(sum);
    })
    .unwrap();
    assert_eq!(bytes(&queue, &*a), [1, 1, 1, 1, 1, 1, 1, 7]);
    assert_eq!(bytes(&queue, &*b), [6; 4]);
    let mut parts = tail.arg_mut().split_at(2).unwrap();
    let parts = [&mut parts.0, &mut parts.1].map(|part| std::mem::replace(part, reader.arg()));
    launch(&*queue, parts, |args| {
        args[0].bytes_mut().fill(2);
        args[1].bytes_mut().fill(3);
    })
    .unwrap();
    assert_eq!(bytes(&queue, &*a), [1, 1, 1, 1, 2, 2, 3, 3]);
}

#[test]
fn a_panic_that_the_launch_has_seen_is_reported_by_it_alone() {
    let queue = Loopback::new(Mode::Immediate).queue().unwrap();
    let error = launch(&*queue, [], |_| panic!("oh {}", 7)).unwrap_err();
    assert!(error.to_string().ends_with("launch failed: a kernel panicked: oh 7"), "{error}");
    queue.synchronize().unwrap();
}

#[test]
fn a_panic_in_pending_work_stays_with_the_queue_and_those_that_waited() {
    let device = Loopback::new(Mode::Deferred);
    let queues: Vec<_> = (0..4).map(|_| device.queue().unwrap()).collect();
    let block = alloc(&queues[0], 2);
    queues[3].wait_for(&*queues[0]).unwrap();
    let reader = DeviceRef::new(span(&block, 0..2, &queues[0]), None);
    launch(&*queues[0], [reader.arg()], |args| args[0].bytes_mut()[0] = 1).unwrap();
    queues[1].wait_for(&*queues[0]).unwrap();
    queues[2].wait_for(&*queues[1]).unwrap();
    set(&queues[0], &block, 5);
    for queue in [2, 1, 0, 0, 1, 2] {
        let error = queues[queue].synchronize().unwrap_err();
        let text = "synchronize failed: a kernel panicked: a kernel writes to an argument";
        assert!(error.to_string().contains(text), "{error}");
    }
    queues[3].synchronize().unwrap();
    assert_eq!(bytes(&queues[3], &*block), [5, 5]);
}

#[test]
fn a_launch_refuses_arguments_of_another_queue_and_overlapping_ones() {
    let device = Loopback::new(Mode::Immediate);
    let (one, two) = (device.queue().unwrap(), device.queue().unwrap());
    let block = alloc(&one, 8);
    let mut token = writer(&block, &one);
    let error = launch(&*two, [token.arg_mut()], |_| unreachable!()).unwrap_err();
    let (wanted, got) = (two.id(), one.id());
    assert!(matches!(error, Error::WrongQueue { wanted: w, got: g } if (w, g) == (wanted, got)));
    assert_eq!(device.report().misuses, [""; 0]);

    // No token gives these: they stand for a forged one.
    let mut first = DeviceMut::new(span(&block, 0..5, &one), None);
    let second = DeviceRef::new(span(&block, 4..8, &one), None);
    let overlapping: [Arg<'_>; 2] = [first.arg_mut(), second.arg()];
    launch(&*one, overlapping, |_| unreachable!()).unwrap_err();
    assert_eq!(device.report().misuses.len(), 1);
    launch(&*one, [second.arg(), second.arg()], |args| {
        assert_eq!(args[0].bytes(), args[1].bytes());
    })
    .unwrap();
    assert_eq!(second.arg().access(), Access::Read);
}

#[test]
fn a_queue_of_another_backend_launches_nothing() {
    let queue = LoopQueue::new(Loopback::new(Mode::Immediate).handle());
    let error = launch(&Foreign(queue), [], |_| unreachable!()).unwrap_err();
    assert!(matches!(error, Error::Device { op: "launch", .. }));
}

/// A queue of some other type.
#[derive(Debug)]
struct Foreign(LoopQueue);

// SAFETY: it is the queue within, which is not used by itself.
unsafe impl Queue for Foreign {
    fn id(&self) -> crate::QueueId {
        self.0.id()
    }

    fn device(&self) -> &dyn Device {
        self.0.device()
    }

    fn alloc(&self, len: usize) -> Result<Box<dyn Block>, Error> {
        self.0.alloc(len)
    }

    unsafe fn adopt(&self, address: u64, len: usize) -> Result<Box<dyn Block>, Error> {
        // SAFETY: as the caller says.
        unsafe { self.0.adopt(address, len) }
    }

    unsafe fn upload(&self, to: &dyn Block, at: usize, from: NonNull<u8>, len: usize) -> Result<Host, Error> {
        // SAFETY: as the caller says.
        unsafe { self.0.upload(to, at, from, len) }
    }

    unsafe fn download(&self, from: &dyn Block, at: usize, to: NonNull<u8>, len: usize) -> Result<Host, Error> {
        // SAFETY: as the caller says.
        unsafe { self.0.download(from, at, to, len) }
    }

    fn reaches(&self, other: &dyn Device) -> bool {
        self.0.reaches(other)
    }

    unsafe fn copy(
        &self,
        to: &dyn Block,
        to_at: usize,
        from: &dyn Block,
        from_at: usize,
        len: usize,
    ) -> Result<(), Error> {
        // SAFETY: as the caller says.
        unsafe { self.0.copy(to, to_at, from, from_at, len) }
    }

    unsafe fn fill(&self, block: &dyn Block, at: usize, len: usize) -> Result<(), Error> {
        // SAFETY: as the caller says.
        unsafe { self.0.fill(block, at, len) }
    }

    fn wait_for(&self, other: &dyn Queue) -> Result<(), Error> {
        self.0.wait_for(other)
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.0.synchronize()
    }
}
