//! Kernels: what they see, how they fail, and what a launch refuses.

use super::*;

#[test]
fn a_kernel_sees_its_arguments_in_order_and_nothing_else() {
    let queue = Loopback::new(Mode::Deferred).queue().unwrap();
    let (a, b) = (alloc(&queue, 8), alloc(&queue, 4));
    set(&queue, &a, 1);
    let reader = DeviceRef::new(claimed(&a, 0..4, &queue), None);
    let (mut tail, mut other) = (DeviceMut::new(claimed(&a, 4..8, &queue), None), writer(&b, &queue));
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
    let reader = DeviceRef::new(claimed(&block, 0..2, &queues[0]), None);
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
    let mut first = DeviceMut::new(claimed(&block, 0..5, &one), None);
    let second = DeviceRef::new(claimed(&block, 4..8, &one), None);
    let overlapping: [Arg<'_>; 2] = [first.arg_mut(), second.arg()];
    launch(&*one, overlapping, |_| unreachable!()).unwrap_err();
    assert_eq!(device.report().misuses.len(), 1);
    launch(&*one, [second.arg(), second.arg()], |args| {
        assert_eq!(args[0].bytes(), args[1].bytes());
    })
    .unwrap();
    assert_eq!(second.arg().access(), Access::Read);
}
