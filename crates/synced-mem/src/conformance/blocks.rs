//! Checks of queues and blocks: identity, allocation, freeing, adoption, and the state after errors.
//! Rely on nothing but, those of freeing and after, on the order and the exactness that others have tested.

use super::bytes::{pattern, same};
use super::order::{Ballast, LEN};
use super::probe::{Bench, Probe, Region, UNTOUCHED};
use super::{Flaw, ensure};
use crate::{Error, QueueId};

/// Promise 1, also over queues that are gone.
pub(super) fn identity(bench: &Bench<'_>) -> Result<(), Flaw> {
    let device = bench.first.id();
    let mut ids: Vec<QueueId> = Vec::new();
    for round in 0..8 {
        // Every other one is dropped before the next is made.
        let queue = bench.first.queue()?;
        let held = if round % 2 == 0 { Some(bench.queue()?) } else { None };
        for queue in held.iter().map(|held| &held.queue).chain([&queue]) {
            ensure(queue.id() == queue.id(), || "a queue changes its id".into())?;
            let own = queue.device().id();
            ensure(own == device, || format!("a queue of {device} says it is of {own}"))?;
            let id = queue.id();
            ensure(!ids.contains(&id), || format!("{id} was the id of an earlier queue"))?;
            ids.push(id);
        }
    }
    ensure(bench.first.id() == device, || "the device changes its id".into())
}

/// Promise 10 for a device alone.
pub(super) fn ways(bench: &Bench<'_>) -> Result<(), Flaw> {
    let queues = [bench.queue()?, bench.queue()?];
    let shown = queues[1].queue.device();
    let mut pairs = queues.iter().flat_map(|queue| [bench.first, shown].map(|device| (queue, device)));
    let all = pairs.all(|(queue, device)| queue.queue.reaches(device));
    ensure(all, || format!("a queue of {} does not reach it", bench.first.id()))
}

const BLOCKS: &[usize] = &[1, 2, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097, LEN + 1, 1 << 20];

fn allocate(queue: &Probe<'_>) -> Result<Vec<Region>, Flaw> {
    let sizes = BLOCKS.iter().chain(BLOCKS).chain(BLOCKS);
    sizes.map(|len| queue.alloc(*len)).collect()
}

/// Promise 7, as lengths and addresses tell it.
pub(super) fn allocation(bench: &Bench<'_>) -> Result<(), Flaw> {
    let queues = [bench.queue()?, bench.queue()?];
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for queue in &queues {
        for (region, asked) in allocate(queue)?.iter().zip(BLOCKS.iter().cycle()) {
            let (start, len) = (region.address(), region.block_len());
            ensure(len >= *asked, || format!("a block of {len} bytes for {asked}"))?;
            spans.push((start, start + len as u64));
        }
    }
    spans.sort_unstable();
    let overlap = spans.windows(2).find(|pair| pair[0].1 > pair[1].0);
    overlap.map_or(Ok(()), |pair| {
        let [(a, b), (c, d)] = [pair[0], pair[1]];
        Err(Flaw(format!("blocks overlap: {a:#x}..{b:#x} and {c:#x}..{d:#x}")))
    })
}

/// Promise 7, as the bytes tell it.
pub(super) fn apart(bench: &Bench<'_>) -> Result<(), Flaw> {
    let queues = [bench.queue()?, bench.queue()?];
    let mut held = Vec::new();
    for queue in &queues {
        for (region, len) in allocate(queue)?.into_iter().zip(BLOCKS.iter().cycle()) {
            let bytes = pattern(*len, held.len());
            queue.put(&region, &bench.host_of(bytes.clone()))?;
            held.push((queue, region, bytes));
        }
    }
    held.iter().try_for_each(|(queue, region, bytes)| {
        let what = format!("a block of {} bytes, after others were written", bytes.len());
        same(&queue.whole(region)?.get(), bytes, &what)
    })
}

/// Promise 7: a dropped block keeps the bytes until the work before has read them, though others want the room.
pub(super) fn free_in_order(bench: &Bench<'_>) -> Result<(), Flaw> {
    let (queue, other) = (bench.queue()?, bench.queue()?);
    let ballast = Ballast::new(bench, &queue)?;
    let copied = queue.alloc(LEN)?;
    for round in 1..=4 {
        let back = bench.host(LEN, UNTOUCHED);
        let region = queue.alloc(LEN)?;
        queue.upload(&region, 0, &bench.host(LEN, round), 0, LEN)?;
        ballast.slow(&queue)?;
        queue.copy(&copied, 0, &region, 0, LEN)?;
        queue.download(&back, 0, &region, 0, LEN)?;
        queue.free(region);
        for reuser in [&queue, &other] {
            let reused = reuser.alloc(LEN)?;
            reuser.upload(&reused, 0, &bench.host(LEN, 0x77), 0, LEN)?;
        }
        other.synchronize()?;
        let what = "a block that was dropped after the work that reads it was enqueued";
        queue.whole(&copied)?.expect(round, what)?;
        back.expect(round, what)?;
    }
    Ok(())
}

/// A block over memory that another owns: here, an inner part of another block.
pub(super) fn adopt(bench: &Bench<'_>) -> Result<(), Flaw> {
    const EDGE: usize = 256;
    let queue = bench.queue()?;
    let owner = queue.alloc(LEN)?;
    queue.put(&owner, &bench.host(LEN, 1))?;
    let inner = LEN - 2 * EDGE;
    let view = queue.adopt(&owner, EDGE, inner)?;
    let (start, len) = (owner.address() + EDGE as u64, view.block_len());
    ensure(view.address() == start && len == inner, || {
        let at = view.address();
        format!("adopted {inner} bytes at {start:#x}, and got {len} at {at:#x}")
    })?;
    queue.put(&view, &bench.host(inner, 2))?;
    queue.free(view);
    // If dropping the view freed the memory, this block takes the same bytes.
    let taker = queue.alloc(LEN)?;
    queue.put(&taker, &bench.host(LEN, 0x77))?;
    let mut wanted = vec![1; LEN];
    wanted[EDGE..EDGE + inner].fill(2);
    let what = "a block, after its inside was adopted, written and given back";
    same(&queue.whole(&owner)?.get(), &wanted, what)
}

/// Promise 8: an allocation that cannot succeed is an error, and work that was enqueued before and after stands.
pub(super) fn errors(bench: &Bench<'_>) -> Result<(), Flaw> {
    let (one, two) = (bench.queue()?, bench.queue()?);
    let ballast = Ballast::new(bench, &one)?;
    let (a, b) = (one.alloc(LEN)?, two.alloc(LEN)?);
    one.put(&a, &bench.host(LEN, 9))?;
    for (round, len) in (1..).zip([usize::MAX, usize::MAX / 2 + 1, isize::MAX as usize]) {
        one.wait_for(&two)?;
        ballast.slow(&one)?;
        one.upload(&a, 0, &bench.host(LEN, round), 0, LEN)?;
        two.wait_for(&one)?;
        for queue in [&one, &two] {
            let error = queue.alloc_error(len)?;
            let (Error::DeviceOutOfMemory { device, .. } | Error::Device { device, .. }) = error else {
                return Err(Flaw(format!("allocating {len} bytes: not an error of a device: {error}")));
            };
            let own = bench.first.id();
            ensure(device == own, || format!("an error of {own} names {device}"))?;
        }
        two.copy(&b, 0, &a, 0, LEN)?;
        two.whole(&b)?.expect(round, "enqueued before and after a failed allocation")?;
    }
    Ok(())
}
