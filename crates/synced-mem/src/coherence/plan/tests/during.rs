//! Every request while another thread moves bytes without the lock, and what is true afterwards.

use super::world::Arrival;
use super::*;
use crate::coherence::facts::moving::Moving;

/// Another thread moves a byte between the host and a device: both copies keep their memory, the byte is not written,
/// and an access to the other byte does not wait, but for copies that are left to queues that have failed. Whatever the
/// transfer comes to, afterwards both bytes are right on the host and on either device.
fn during_a_transfer(arrival: Arrival, lent: bool) -> Counts {
    let (columns, mut counts) = (columns(), Counts::default());
    let setting = Setting { reach: true, staged: true, lent, ..Setting::default() };
    let ways = [(HOST, Slot(HOSTS)), (Slot(HOSTS), HOST), (ADOPTED, Slot(HOSTS + 1))];
    let afterwards = [
        Request::Host { range: 0..BYTES, intent: Read },
        Request::Device { by: OTHER[0], range: 0..BYTES, intent: Read },
        Request::Device { by: OTHER[1], range: 0..BYTES, intent: Write },
    ];
    for (first, second) in columns.iter().flat_map(|first| columns.iter().map(move |second| (first, second))) {
        let bytes: [_; SLOTS] = std::array::from_fn(|slot| [first[slot], second[slot]]);
        let works = !bytes.iter().flatten().any(|byte| *byte == Byte::Broken);
        for ((from, to), at) in ways.into_iter().flat_map(|way| [0, 1].map(|at| (way, at))) {
            if (bytes[from.0][at], bytes[to.0][at]) != (Byte::Valid, Byte::Stale) || (at == 1 && !works) {
                continue;
            }
            for request in requests().into_iter().chain([Request::Bound(Bound::AllBut(NOTHING))]) {
                let Some(mut world) = World::new(bytes, setting) else { break };
                if !world.facts.copy(to).has_memory {
                    world.facts.put_memory(to, false);
                }
                world.move_elsewhere(Moving { from, to, range: at..at + 1 }, arrival);
                let settled = counts.settled;
                let mut world = run(world, &request, &mut counts);
                let is_access = matches!(request, Request::Host { .. } | Request::Device { .. });
                let concerns_both = *request.range() != (0..1) || at == 0;
                let has_failed = matches!(&request, Request::Device { by, .. } if FAILED.contains(by));
                let may_wait = concerns_both || !works || has_failed || arrival == Arrival::Lost;
                assert!(!is_access || may_wait || counts.settled == settled, "{request:?} {bytes:?}");
                world.arrive();
                // Of every fourth, because these take as long as all the rest.
                for request in afterwards.iter().filter(|_| counts.plans % 4 == 0) {
                    world = run(world, request, &mut Counts::default());
                }
            }
        }
    }
    println!("{arrival:?}: {counts:?}");
    counts
}

#[test]
fn every_request_during_a_transfer_of_another_thread() {
    for arrival in [Arrival::Done, Arrival::Pending, Arrival::Failed, Arrival::Lost] {
        let counts = during_a_transfer(arrival, false);
        assert!((counts.plans, counts.settled >= 250_000) == (418_400, true), "{arrival:?}: {counts:?}");
    }
}

/// Of a lent slice no queue uses the host's bytes.
#[test]
fn every_request_during_a_transfer_of_a_lent_slice_by_another_thread() {
    for arrival in [Arrival::Done, Arrival::Failed] {
        let counts = during_a_transfer(arrival, true);
        assert!(counts.plans > 50_000 && counts.settled > 20_000, "{arrival:?}: {counts:?}");
    }
}

/// Another thread reads the first byte of an origin for the host.
#[test]
fn bytes_that_another_thread_reads_are_neither_read_again_nor_changed() {
    let [setting, ..] = origins(true).map(|setting| Setting { origin: 3, ..setting });
    for request in requests() {
        let mut world = World::new([[Byte::Stale; BYTES]; SLOTS], setting).expect("a memory that nothing has used");
        world.facts.put_memory(HOST, false);
        world.facts.outside.push(Moving { from: ORIGIN, to: HOST, range: 0..1 });
        if let Request::Device { by, .. } | Request::Receive { by, .. } = &request {
            world.facts.copies[HOSTS + usize::from(by % 10)].home = Some(*by);
        }
        assert_eq!(found(&world, &request), None, "{request:?}");
        let mut planned = next(&world.facts, &request, &Progress::new());
        if let Ok(Next::Perform(steps)) = planned {
            let steps: Vec<_> = steps.into_iter().collect();
            assert!(matches!(steps[..], [Step::Alloc(slot)] if !slot.is_host()), "{request:?}: {steps:?}");
            world.facts.put_memory(steps[0].slot(), false);
            planned = next(&world.facts, &request, &Progress::new());
        }
        if let Request::Idle(_) = request {
            assert!(matches!(planned, Ok(Next::Wait(..))), "{request:?}: {planned:?}");
        } else {
            assert!(matches!(planned, Ok(Next::Settle)), "{request:?}: {planned:?}");
        }
    }
}
