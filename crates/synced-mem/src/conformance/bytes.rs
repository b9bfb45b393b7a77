//! Checks of which bytes are moved: promises 5 and 6, with ragged sizes and offsets, and guards around every range.
//! Relies on the order that `order` has tested.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::order::{Ballast, LEN};
use super::probe::{Bench, Probe, UNTOUCHED};
use super::{Flaw, ensure};
use crate::{Host, OriginError};

/// Around the widths that devices move at once: words, lines, pages, and chunks of copies.
const SIZES: &[usize] =
    &[0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 63, 64, 65, 127, 255, 256, 257, 1021, 4095, 4096, 4097, 65_537];

/// Where ranges start: aligned and not.
const OFFSETS: &[usize] = &[0, 1, 3, 64, 67];

/// One range of several MiB, of odd length at an odd place.
const HUGE: (usize, usize) = (3 << 20 | 1, 5);

/// The bytes behind a range of a block.
const TAIL: usize = 71;

/// All sizes at all offsets, as `(at, len)`.
fn ranges() -> impl Iterator<Item = (usize, usize)> {
    let ragged = SIZES.iter().flat_map(|len| OFFSETS.iter().map(|at| (*at, *len)));
    ragged.chain([(HUGE.1, HUGE.0)])
}

/// Bytes that differ from the neighbours, at any small distance, and from those of another `seed`.
pub(super) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    // 251 is prime, so that no power of two is a period.
    let period: Vec<u8> = (0..251).map(|at| ((at * 7 + seed * 101) % 251) as u8).collect();
    let mut bytes = period.repeat(len.div_ceil(251));
    bytes.truncate(len);
    bytes
}

/// `whole` with `part` at `at`.
fn overlaid(whole: &[u8], at: usize, part: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    bytes[at..at + part.len()].copy_from_slice(part);
    bytes
}

/// Fails at the first byte that differs.
pub(super) fn same(got: &[u8], wanted: &[u8], what: &str) -> Result<(), Flaw> {
    // Compared as a whole first, which is fast without optimisation, too.
    if got == wanted {
        return Ok(());
    }
    let differs = got.iter().zip(wanted).position(|(got, wanted)| got != wanted);
    differs.map_or(Ok(()), |at| {
        let (got, wanted) = (got[at], wanted[at]);
        Err(Flaw(format!("{what}: byte {at} is {got:#04x}, not {wanted:#04x}")))
    })
}

/// Promise 5 for uploads and downloads, each over a part of a block and over the whole.
pub(super) fn transfers(bench: &Bench<'_>) -> Result<(), Flaw> {
    let queue = bench.queue()?;
    ranges().try_for_each(|(at, len)| transfer(bench, &queue, at, len))
}

fn transfer(bench: &Bench<'_>, queue: &Probe<'_>, at: usize, len: usize) -> Result<(), Flaw> {
    let total = at + len + TAIL;
    let region = queue.alloc(total)?;
    let (old, new) = (pattern(total, 1), pattern(total, 2));
    queue.put(&region, &bench.host_of(old.clone()))?;
    let what = format!("a block of {total} bytes, uploaded and downloaded");
    same(&queue.whole(&region)?.get(), &old, &what)?;

    let source = bench.host_of(new.clone());
    queue.upload(&region, at, &source, TAIL, len)?;
    let wanted = overlaid(&old, at, &new[TAIL..TAIL + len]);
    let what = format!("a block of {total} bytes, after an upload of {len} to {at}");
    same(&queue.whole(&region)?.get(), &wanted, &what)?;

    let target = bench.host(total, UNTOUCHED);
    queue.download(&target, TAIL, &region, at, len)?;
    queue.synchronize()?;
    let wanted = overlaid(&vec![UNTOUCHED; total], TAIL, &new[TAIL..TAIL + len]);
    let what = format!("host bytes, after a download of {len} from {at} to {TAIL}");
    same(&target.get(), &wanted, &what)
}

/// Promise 5 for bytes that a function gives: in pieces of the backend's choice, of which none lies elsewhere, and none
/// is asked for after the call.
pub(super) fn filled(bench: &Bench<'_>) -> Result<(), Flaw> {
    let queue = bench.queue()?;
    ranges().try_for_each(|(at, len)| fill_from(bench, &queue, at, len))
}

fn fill_from(bench: &Bench<'_>, queue: &Probe<'_>, at: usize, len: usize) -> Result<(), Flaw> {
    let total = at + len + TAIL;
    let region = queue.alloc(total)?;
    let (old, new) = (pattern(total, 1), pattern(total, 2));
    queue.put(&region, &bench.host_of(old.clone()))?;
    let what = format!("a block of {total} bytes, after an upload of {len} to {at} from a function");
    let (asked, outside) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let uploaded = queue.upload_from(&region, at, len, |place, out| {
        asked.fetch_add(1, Ordering::Relaxed);
        if place < at || place + out.len() > at + len {
            outside.fetch_add(1, Ordering::Relaxed);
            return Err(OriginError::failed("no such bytes"));
        }
        out.copy_from_slice(&new[place..place + out.len()]);
        Ok(())
    });
    ensure(outside.load(Ordering::Relaxed) == 0, || format!("{what}: asked for other bytes"))?;
    uploaded?;
    let calls = asked.load(Ordering::Relaxed);
    let wanted = overlaid(&old, at, &new[at..at + len]);
    same(&queue.whole(&region)?.get(), &wanted, &what)?;
    ensure(asked.load(Ordering::Relaxed) == calls, || format!("{what}: asked again after the call"))?;
    if len > 0 {
        let refused = queue.upload_from(&region, at, len, |_, _| Err(OriginError::failed("refused")));
        ensure(refused.is_err(), || format!("{what}: an error of the function was no error of the call"))?;
        queue.synchronize()?;
    }
    Ok(())
}

/// Promise 5 for copies within a device.
pub(super) fn copies(bench: &Bench<'_>) -> Result<(), Flaw> {
    let queue = bench.queue()?;
    for (at, len) in ranges() {
        let total = at + len + TAIL;
        let (from, to) = (queue.alloc(total)?, queue.alloc(total)?);
        let (source, old) = (pattern(total, 1), pattern(total, 2));
        queue.put(&from, &bench.host_of(source.clone()))?;
        queue.put(&to, &bench.host_of(old.clone()))?;
        queue.copy(&to, at, &from, TAIL, len)?;
        let wanted = overlaid(&old, at, &source[TAIL..TAIL + len]);
        let what = format!("the target, after a copy of {len} bytes from {TAIL} to {at}");
        same(&queue.whole(&to)?.get(), &wanted, &what)?;
        same(&queue.whole(&from)?.get(), &source, "the source of a copy, after it")?;
    }
    Ok(())
}

/// Promise 5 for fills.
pub(super) fn fills(bench: &Bench<'_>) -> Result<(), Flaw> {
    let queue = bench.queue()?;
    for (at, len) in ranges() {
        let total = at + len + TAIL;
        let region = queue.alloc(total)?;
        // No byte is zero before.
        let old = vec![0xFF; total];
        queue.put(&region, &bench.host_of(old.clone()))?;
        queue.fill(&region, at, len)?;
        let wanted = overlaid(&old, at, &vec![0; len]);
        let what = format!("a block of {total} bytes, after a fill of {len} at {at}");
        same(&queue.whole(&region)?.get(), &wanted, &what)?;
    }
    Ok(())
}

/// Promise 6: after a transfer is done with host bytes, the host may use these at once, though the queue is busy.
pub(super) fn done(bench: &Bench<'_>) -> Result<(), Flaw> {
    let queue = bench.queue()?;
    let ballast = Ballast::new(bench, &queue)?;
    let region = queue.alloc(LEN)?;
    for (value, other) in [(1, 2), (3, 4)] {
        let (source, target) = (bench.host(LEN, value), bench.host(LEN, UNTOUCHED));
        ballast.slow(&queue)?;
        let upload = queue.upload(&region, 0, &source, 0, LEN)?;
        if upload == Host::Done {
            source.set(other);
        }
        ballast.slow(&queue)?;
        let download = queue.download(&target, 0, &region, 0, LEN)?;
        if download == Host::Done {
            target.expect(value, "downloaded, when the call said that it is done")?;
            target.set(other);
        }
        queue.synchronize()?;
        let (wanted, what) = match download {
            Host::Done => (other, "host bytes, written after a download that was done with them"),
            Host::Pending => (value, "uploaded, when the host bytes were changed after the call was done with them"),
        };
        target.expect(wanted, what)?;
        queue.whole(&region)?.expect(value, "uploaded, when the call may have been done with the host bytes")?;
    }
    Ok(())
}

/// Promise 6: after a synchronisation the host bytes are the host's, whatever else the queue does.
pub(super) fn host_bytes(bench: &Bench<'_>) -> Result<(), Flaw> {
    const LEN: usize = 1 << 20;
    let queue = bench.queue()?;
    let (region, other) = (queue.alloc(LEN)?, queue.alloc(LEN)?);
    let source = bench.host(LEN, 1);
    queue.put(&region, &source)?;
    source.set(2);
    let target = queue.whole(&region)?;
    target.expect(1, "uploaded, when the host bytes were changed after the synchronisation")?;

    target.set(3);
    queue.put(&other, &source)?;
    queue.put(&region, &source)?;
    queue.whole(&other)?.expect(2, "uploaded")?;
    let touched = target.get().iter().any(|byte| *byte != 3);
    ensure(!touched, || "host bytes of a download were written again after the synchronisation".to_string())?;
    let touched = source.get().iter().any(|byte| *byte != 2);
    ensure(!touched, || "host bytes of an upload were written".to_string())
}

/// Promise 6 of a device that shares the host's memory: work on a view reads the bytes as they are by then.
pub(super) fn views(bench: &Bench<'_>) -> Result<(), Flaw> {
    let queue = bench.queue()?;
    let host = bench.host(LEN + 256, UNTOUCHED);
    let view = queue.view(&host, host.aligned(), LEN);
    let is_there = view.is_some() == bench.first.shares_host();
    ensure(is_there, || "host bytes are read where they lie, or not, though the device says otherwise".into())?;
    let Some(view) = view else { return Ok(()) };
    let region = queue.alloc(LEN)?;
    for value in 1..=3 {
        host.set(value);
        queue.copy(&region, 0, &view, 0, LEN)?;
        queue.synchronize()?;
        host.set(UNTOUCHED);
        queue.whole(&region)?.expect(value, "copied from host bytes where they lie")?;
    }
    queue.free(view);
    host.expect(UNTOUCHED, "host bytes that were only to be read")
}
