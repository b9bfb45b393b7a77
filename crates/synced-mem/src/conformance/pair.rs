//! Checks of the promises of two devices to each other, whether or not they are of one backend.
//! Rely on the checks of each device alone.

use super::bytes::{pattern, same};
use super::order::{Ballast, LEN};
use super::probe::{Bench, UNTOUCHED};
use super::{Flaw, ensure};

/// Promise 1 over two devices.
pub(super) fn identity(bench: &Bench<'_>) -> Result<(), Flaw> {
    let (first, second) = (bench.first.id(), bench.second.id());
    ensure(first != second, || format!("both devices are {first}"))?;
    let (one, two) = (bench.queue()?, bench.queue_of(bench.second)?);
    let (one, two) = (one.queue.id(), two.queue.id());
    ensure(one != two, || format!("a queue of each device is {one}"))
}

/// Promises 3 and 4 over two devices, both ways.
pub(super) fn waiting(bench: &Bench<'_>) -> Result<(), Flaw> {
    for (near, far) in [(bench.first, bench.second), (bench.second, bench.first)] {
        let (one, two) = (bench.queue_of(near)?, bench.queue_of(far)?);
        let ballast = Ballast::new(bench, &one)?;
        let region = one.alloc(LEN)?;
        for value in 1..=3 {
            let back = bench.host(LEN, UNTOUCHED);
            ballast.slow(&one)?;
            one.upload(&region, 0, &bench.host(LEN, value), 0, LEN)?;
            one.download(&back, 0, &region, 0, LEN)?;
            two.wait_for(&one)?;
            two.synchronize()?;
            let what = "downloaded by a queue, after one of another device that waits for it was synchronised";
            back.expect(value, what)?;
        }
    }
    Ok(())
}

/// Promise 10 over two devices, both ways.
pub(super) fn ways(bench: &Bench<'_>) -> Result<(), Flaw> {
    for (near, far) in [(bench.first, bench.second), (bench.second, bench.first)] {
        let own = bench.queue_of(near)?;
        let answer = own.queue.reaches(far);
        for queue in [own, bench.queue_of(near)?] {
            // The device is asked about in both forms: as given, and as the queues show.
            let shown = bench.queue_of(far)?;
            for far in [far, shown.queue.device()] {
                ensure(queue.queue.reaches(far) == answer, || {
                    format!("whether {} is reached is not always said alike", far.id())
                })?;
            }
        }
    }
    Ok(())
}

/// Promises 3 and 5 of copies over two devices, both ways, where there is a way.
pub(super) fn copies(bench: &Bench<'_>) -> Result<(), Flaw> {
    for (near, far) in [(bench.first, bench.second), (bench.second, bench.first)] {
        let (one, two) = (bench.queue_of(near)?, bench.queue_of(far)?);
        if !two.queue.reaches(near) {
            continue;
        }
        let ballast = Ballast::new(bench, &one)?;
        let (source, target) = (one.alloc(LEN)?, two.alloc(LEN)?);
        for (at, len) in [(0, LEN), (1, LEN - 1), (67, 1), (64, 4097), (3, 0)] {
            let (new, old) = (pattern(LEN, at + 1), pattern(LEN, at + 2));
            two.put(&target, &bench.host_of(old.clone()))?;
            one.wait_for(&two)?;
            ballast.slow(&one)?;
            one.upload(&source, 0, &bench.host_of(new.clone()), 0, LEN)?;
            two.wait_for(&one)?;
            let mut wanted = old;
            let (from, what) = (LEN - at - len, "copied from another device");
            two.copy(&target, at, &source, from, len)?;
            wanted[at..at + len].copy_from_slice(&new[from..from + len]);
            same(&two.whole(&target)?.get(), &wanted, what)?;
        }
    }
    Ok(())
}
