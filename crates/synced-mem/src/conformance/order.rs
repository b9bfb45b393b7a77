//! Checks of the order in which work takes effect: promises 2, 3 and 4, and that any thread may call;
//! innocence. Relies on slow work to make a missing order show: chains of large copies, which a device takes a while
//! for. The checks look at the middle of the bytes only, so that a flaw of exactness is left to the checks of that.

use std::thread;
use std::time::{Duration, Instant};

use super::probe::{Bench, Probe, Region, UNTOUCHED};
use super::{Flaw, ensure};

/// The bytes of a slow copy: enough for a driver to enqueue it in less time than it takes to perform. The second length
/// is for devices that make short work of the first: an H200 has 60 MB of cache, which would hold two such blocks.
const LARGE: [usize; 2] = [8 << 20, 32 << 20];

/// About the time of slow work. A check sees a missing order as long as the calls return sooner than this.
const SLOW: Duration = Duration::from_millis(2);

/// The bytes whose order is tested.
pub(super) const LEN: usize = 64 << 10;

/// Two large blocks of one value, copied back and forth to keep a queue busy. Whatever the order, the value stays.
pub(super) struct Ballast {
    blocks: [Region; 2],
    len: usize,
    copies: u32,
}

impl Ballast {
    pub(super) fn new(bench: &Bench<'_>, queue: &Probe<'_>) -> Result<Self, Flaw> {
        let [short, long] = LARGE;
        let (ballast, one) = Self::of(bench, queue, short)?;
        if one >= SLOW / 8 {
            return Ok(ballast);
        }
        ballast.blocks.into_iter().for_each(|block| queue.free(block));
        Ok(Self::of(bench, queue, long)?.0)
    }

    /// Of blocks of `len` bytes, with the time that one copy takes.
    fn of(bench: &Bench<'_>, queue: &Probe<'_>, len: usize) -> Result<(Self, Duration), Flaw> {
        let blocks = [queue.alloc(len)?, queue.alloc(len)?];
        let host = bench.host(len, 0xBA);
        queue.put(&blocks[0], &host)?;
        queue.put(&blocks[1], &host)?;
        let mut ballast = Self { blocks, len, copies: 4 };
        let start = Instant::now();
        ballast.slow(queue)?;
        queue.synchronize()?;
        // A device that takes no time at all has not worked, whatever the number of copies.
        let one = start.elapsed() / 4;
        ballast.copies = (SLOW.as_nanos() / one.as_nanos().max(1)).clamp(2, 256) as u32;
        Ok((ballast, one))
    }

    /// Enqueues slow work.
    pub(super) fn slow(&self, queue: &Probe<'_>) -> Result<(), Flaw> {
        let [a, b] = &self.blocks;
        for copy in 0..self.copies {
            let (to, from) = if copy % 2 == 0 { (b, a) } else { (a, b) };
            queue.copy(to, 0, from, 0, self.len)?;
        }
        Ok(())
    }
}

/// Promise 4. Between two synchronisations one operation matters, so that no order is relied on.
pub(super) fn synchronize(bench: &Bench<'_>) -> Result<(), Flaw> {
    let queue = bench.queue()?;
    let ballast = Ballast::new(bench, &queue)?;
    let region = queue.alloc(ballast.len)?;
    queue.put(&region, &bench.host(ballast.len, 1))?;
    let back = bench.host(ballast.len, UNTOUCHED);
    ballast.slow(&queue)?;
    queue.download(&back, 0, &region, 0, ballast.len)?;
    queue.synchronize()?;
    back.expect(1, "after synchronising a queue, its download")
}

/// Promise 2: one queue writes and reads again and again, without any synchronisation.
pub(super) fn order(bench: &Bench<'_>) -> Result<(), Flaw> {
    let queue = bench.queue()?;
    let ballast = Ballast::new(bench, &queue)?;
    let (first, second) = (queue.alloc(LEN)?, queue.alloc(LEN)?);
    let mut seen = Vec::new();
    for value in 1..=9 {
        let own = queue.alloc(LEN)?;
        queue.upload(&first, 0, &bench.host(LEN, value), 0, LEN)?;
        if value % 3 == 0 {
            ballast.slow(&queue)?;
        }
        queue.copy(&second, 0, &first, 0, LEN)?;
        queue.copy(&own, 0, &second, 0, LEN)?;
        let back = bench.host(LEN, UNTOUCHED);
        queue.download(&back, 0, &own, 0, LEN)?;
        seen.push((value, back));
    }
    queue.synchronize()?;
    let mut seen = seen.iter();
    seen.try_for_each(|(value, back)| back.expect(*value, "copied on one queue, in order"))
}

/// Promise 3: between queues of one device, through others, again, and for work that still reads.
pub(super) fn waiting(bench: &Bench<'_>) -> Result<(), Flaw> {
    let (one, two, three) = (bench.queue()?, bench.queue()?, bench.queue()?);
    let ballast = Ballast::new(bench, &one)?;
    let region = || one.alloc(LEN);
    let (a, b, c, d) = (region()?, region()?, region()?, region()?);
    for region in [&a, &b, &c, &d] {
        one.put(region, &bench.host(LEN, 9))?;
    }
    ballast.slow(&one)?;
    one.upload(&a, 0, &bench.host(LEN, 1), 0, LEN)?;
    two.wait_for(&one)?;
    two.copy(&b, 0, &a, 0, LEN)?;
    three.wait_for(&two)?;
    let what = "written by a queue, copied by one that waits for it, read by one that waits for that";
    three.whole(&b)?.expect(1, what)?;

    one.wait_for(&two)?;
    ballast.slow(&one)?;
    one.upload(&a, 0, &bench.host(LEN, 2), 0, LEN)?;
    two.wait_for(&one)?;
    two.copy(&c, 0, &a, 0, LEN)?;
    two.whole(&c)?.expect(2, "read by a queue that waits for another a second time")?;

    ballast.slow(&one)?;
    one.copy(&d, 0, &a, 0, LEN)?;
    two.wait_for(&one)?;
    two.upload(&a, 0, &bench.host(LEN, 3), 0, LEN)?;
    two.synchronize()?;
    one.whole(&d)?.expect(2, "read by a queue, before one that waits for it writes")
}

/// Promise 4 for a queue that has nothing to do but to wait.
pub(super) fn synchronize_covers_waits(bench: &Bench<'_>) -> Result<(), Flaw> {
    let (one, two, three) = (bench.queue()?, bench.queue()?, bench.queue()?);
    let ballast = Ballast::new(bench, &one)?;
    let region = one.alloc(LEN)?;
    one.put(&region, &bench.host(LEN, 1))?;
    let (near, far) = (bench.host(LEN, UNTOUCHED), bench.host(LEN, UNTOUCHED));
    ballast.slow(&one)?;
    one.download(&near, 0, &region, 0, LEN)?;
    two.wait_for(&one)?;
    two.synchronize()?;
    near.expect(1, "downloaded by a queue, after one that waits for it was synchronised")?;
    ballast.slow(&one)?;
    one.download(&far, 0, &region, 0, LEN)?;
    two.wait_for(&one)?;
    three.wait_for(&two)?;
    three.synchronize()?;
    far.expect(1, "downloaded by a queue, after one that waits through another was synchronised")
}

const THREADS: u8 = 4;
const ROUNDS: u8 = 8;

/// Any thread may call: several share a queue, and each has another one that waits for the shared one.
pub(super) fn threads(bench: &Bench<'_>) -> Result<(), Flaw> {
    let shared = &bench.queue()?;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || one_thread(bench, shared, thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(Flaw("a thread panicked".into()))))
    })
}

fn one_thread(bench: &Bench<'_>, shared: &Probe<'_>, thread: u8) -> Result<(), Flaw> {
    let own = bench.queue()?;
    let (region, copied) = (shared.alloc(LEN)?, own.alloc(LEN)?);
    for round in 0..ROUNDS {
        let value = thread * ROUNDS + round;
        shared.wait_for(&own)?;
        shared.upload(&region, 0, &bench.host(LEN, value), 0, LEN)?;
        own.wait_for(shared)?;
        own.copy(&copied, 0, &region, 0, LEN)?;
        own.whole(&copied)?.expect(value, "moved by one thread of several")?;
    }
    Ok(())
}

/// Promise 9, as far as visible: a memory of this crate would have counted its traffic on the device.
pub(super) fn innocence(bench: &Bench<'_>) -> Result<(), Flaw> {
    let before = bench.first.meter().stats();
    let queue = bench.queue()?;
    let (a, b) = (queue.alloc(LEN)?, queue.alloc(LEN)?);
    queue.put(&a, &bench.host(LEN, 1))?;
    queue.copy(&b, 0, &a, 0, LEN)?;
    queue.fill(&a, 0, LEN)?;
    queue.wait_for(&bench.queue()?)?;
    queue.whole(&b)?.expect(1, "copied")?;
    queue.free(a);
    queue.synchronize()?;
    drop(bench.first.host_block(LEN)?);
    let after = bench.first.meter().stats();
    ensure(before == after, || "raw calls were counted, as only those of a memory are".to_string())
}
