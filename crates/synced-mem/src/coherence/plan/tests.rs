//! Every request in every state of four copies of two bytes, on a model of the queues. No device, no bytes.
//!
//! A byte of a copy is stale, valid, or arriving from a queue that works or from one that has failed; the origin has
//! the byte or not; the two devices reach each other or not; that a queue has failed is known or found out by a wait;
//! the host's own memory is a lent slice or not. Each plan is performed step by step on the model, which knows the
//! bytes that a step may touch.

mod during;
mod world;

use std::ops::Range;

use self::world::{ALL, Byte, FAILED, HOME, OTHER, SLOTS, Setting, World};
use super::*;
use crate::access::Intent::{Overwrite, Read, Write};
use crate::coherence::replicas::{ADOPTED, HOSTS, ORIGIN};

const BYTES: usize = 2;

/// How often a request is planned, at most.
const MAX_ROUNDS: usize = 20;

/// The counts of a run, so that a search that stops early is noticed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    states: usize,
    plans: usize,
    /// How often there was nothing to do, or nothing more.
    at_once: usize,
    met: usize,
    refused: usize,
    steps: usize,
    /// Steps without the lock.
    outside: usize,
    /// Waits for the step of another thread.
    settled: usize,
    rounds: usize,
}

impl Request<u8> {
    fn range(&self) -> &Range<usize> {
        match self {
            Request::Host { range, .. }
            | Request::Device { range, .. }
            | Request::Prefetch { range }
            | Request::Evict { range, .. }
            | Request::Receive { range, .. } => range,
            _ => &(0..BYTES),
        }
    }
}

/// Every request of the first byte or of both.
fn requests() -> Vec<Request<u8>> {
    let mut all = Vec::new();
    for range in [0..1, 0..BYTES] {
        for intent in [Read, Write, Overwrite] {
            all.push(Request::Host { range: range.clone(), intent });
            for by in [HOME, OTHER, FAILED].concat() {
                all.push(Request::Device { by, range: range.clone(), intent });
            }
        }
        all.push(Request::Prefetch { range: range.clone() });
        for by in [HOME, OTHER, FAILED].concat() {
            all.push(Request::Receive { by, range: range.clone() });
        }
        for dirty in [Dirty::Move, Dirty::Refuse] {
            for slot in [HOST, Slot(HOSTS), Slot(HOSTS + 1), ORIGIN] {
                all.push(Request::Evict { slot, range: range.clone(), dirty });
            }
        }
    }
    all.push(Request::Adopt);
    all.extend([HOME, OTHER, FAILED].concat().into_iter().map(|queue| Request::Idle(vec![queue])));
    all
}

/// The copy that the usual case finds.
fn found<const BYTES: usize>(world: &World<BYTES>, request: &Request<u8>) -> Option<Slot> {
    let facts = &world.facts;
    match request {
        Request::Host { range, intent } => {
            let slot = facts.host_slot(range, *intent);
            facts.is_met(slot, None, range, *intent).then_some(slot)
        }
        Request::Device { by, range, intent } => {
            let slot = facts.device_slot(facts.home_of(by)?, range, *intent);
            facts.is_met(slot, Some(by), range, *intent).then_some(slot)
        }
        _ => None,
    }
}

/// Whether the usual case is met, which has to agree with the plan.
fn is_seen_at_once<const BYTES: usize>(
    world: &World<BYTES>,
    request: &Request<u8>,
    planned: &Result<Next<u8>, Refusal>,
    is_first: bool,
) -> bool {
    let (is_done, found) = (matches!(planned, Ok(Next::Done)), found(world, request));
    assert!(found.is_none() || is_done, "{request:?} is met at {found:?}, and not done");
    let is_access = matches!(request, Request::Host { .. } | Request::Device { .. });
    let is_usual = is_first && world.facts.broken.is_empty() && world.facts.outside.is_empty();
    assert!(found.is_some() || !(is_access && is_usual && is_done), "{request:?} is met, and not seen so");
    found.is_some()
}

/// Plans and performs a request to its end. Gives the world then.
fn run<const BYTES: usize>(mut world: World<BYTES>, request: &Request<u8>, counts: &mut Counts) -> World<BYTES> {
    let mut progress = Progress::new();
    let by = match request {
        Request::Device { by, .. } | Request::Receive { by, .. } => Some(*by),
        _ => None,
    };
    counts.plans += 1;
    let is_staged = world.facts.copies[HOSTS].stages[0];
    for round in 1.. {
        assert!(round <= MAX_ROUNDS, "{request:?} is planned without end");
        counts.rounds = counts.rounds.max(round);
        if let Some(by) = by.filter(|by| !world.facts.broken.has(by)) {
            world.facts.copies[HOSTS + usize::from(by % 10)].home = Some(by);
        }
        let planned = next(&world.facts, request, &progress);
        counts.at_once += usize::from(is_seen_at_once(&world, request, &planned, round == 1));
        match planned {
            Ok(Next::Done) => {
                world.check_met(request);
                world.check();
                counts.met += 1;
                return world;
            }
            Ok(Next::Perform(steps)) => {
                for step in steps {
                    world.perform(&step, by);
                    progress.did(&step);
                    world.check();
                    counts.steps += 1;
                }
            }
            Ok(Next::Wait(by, queues)) => {
                if !world.wait(by, &queues, &mut progress) {
                    world.check();
                    counts.refused += 1;
                    return world;
                }
            }
            // The other thread ends its transfer.
            Ok(Next::Settle) => {
                counts.settled += 1;
                assert!(world.arrive(), "{request:?} waits for nothing");
            }
            Ok(Next::Outside(step)) => {
                counts.outside += 1;
                if !world.perform_outside(&step, &mut progress) {
                    world.check();
                    counts.refused += 1;
                    return world;
                }
            }
            Err(Refusal::Failed) if is_staged => {
                world.check();
                counts.refused += 1;
                return world;
            }
            Err(Refusal::Error(Error::OnlyCopy { .. })) => {
                assert!(matches!(request, Request::Evict { .. }));
                counts.refused += 1;
                return world;
            }
            other => panic!("{request:?}: {other:?}"),
        }
    }
    unreachable!("the rounds end above")
}

/// The states of one byte in all copies. No queue writes adopted bytes.
fn columns() -> Vec<[Byte; SLOTS]> {
    let hosts = ALL.into_iter().flat_map(|host| [Byte::Stale, Byte::Valid].map(|adopted| (host, adopted)));
    let ones = hosts.flat_map(|(host, adopted)| ALL.map(|one| (host, adopted, one)));
    ones.flat_map(|(host, adopted, one)| ALL.map(|other| [host, adopted, one, other])).collect()
}

/// Runs the requests of `range` in every state. One that treats the bytes alike need not see them the other way round.
fn explore(range: &Range<usize>, is_symmetric: bool, settings: &[Setting]) -> Counts {
    let (columns, mut counts) = (columns(), Counts::default());
    let requests: Vec<_> = requests().into_iter().filter(|request| request.range() == range).collect();
    for (index, first) in columns.iter().enumerate() {
        for second in &columns[if is_symmetric { index } else { 0 }..] {
            let bytes = std::array::from_fn(|slot| [first[slot], second[slot]]);
            for setting in settings {
                counts.states += usize::from(World::new(bytes, *setting).is_some());
                for request in &requests {
                    let Some(world) = World::new(bytes, *setting) else { break };
                    run(world, request, &mut counts);
                }
            }
        }
    }
    counts
}

fn settings(lent: bool) -> [Setting; 4] {
    let all = [(false, false), (false, true), (true, false), (true, true)];
    all.map(|(reach, known)| Setting { reach, known, lent, ..Setting::default() })
}

/// With an origin of the first byte, of the second, or of both.
fn origins(reach: bool) -> [Setting; 3] {
    [1, 2, 3].map(|origin| Setting { reach, known: !reach, origin, reads_whole: !reach, ..Setting::default() })
}

#[test]
fn every_request_of_one_of_two_bytes_in_every_state_of_four_copies() {
    let counts = explore(&(0..1), false, &settings(false));
    println!("{counts:?}");
    let expected = Counts {
        states: 51_586,
        plans: 1_857_096,
        at_once: 435_200,
        met: 1_618_822,
        refused: 238_274,
        steps: 1_808_978,
        outside: 0,
        settled: 0,
        rounds: 12,
    };
    assert_eq!(counts, expected);
}

#[test]
fn every_request_of_both_bytes_in_every_state_of_four_copies() {
    let counts = explore(&(0..BYTES), true, &settings(false));
    println!("{counts:?}");
    let expected = Counts {
        states: 26_018,
        plans: 1_118_774,
        at_once: 146_068,
        met: 919_810,
        refused: 198_964,
        steps: 1_290_394,
        outside: 0,
        settled: 0,
        rounds: 14,
    };
    assert_eq!(counts, expected);
}

#[test]
fn every_request_of_a_lent_slice_of_one_or_two_bytes() {
    let one = explore(&(0..1), false, &settings(true)[2..]);
    let both = explore(&(0..BYTES), true, &settings(true)[2..]);
    println!("{one:?} {both:?}");
    assert_eq!((one.states, one.plans, one.outside), (8192, 294_912, 17_420));
    assert_eq!((both.states, both.plans, both.outside), (4160, 178_880, 16_278));
}

#[test]
fn every_request_of_one_or_two_bytes_where_transfers_wait_for_the_device() {
    let staged: Vec<_> = settings(false)[2..].iter().map(|setting| Setting { staged: true, ..*setting }).collect();
    let one = explore(&(0..1), false, &staged);
    let both = explore(&(0..BYTES), true, &staged);
    println!("{one:?} {both:?}");
    assert_eq!((one.states, one.plans, one.outside), (25_793, 928_548, 71_576));
    assert_eq!((both.states, both.plans, both.outside), (13_009, 559_387, 69_459));
}

/// Where the devices share the host's memory, reads there are of the host's copies.
#[test]
fn every_request_of_one_or_two_bytes_where_devices_share_the_hosts_memory() {
    let setting = [Setting { shares: true, reach: true, ..Setting::default() }];
    let counts = [explore(&(0..1), false, &setting), explore(&(0..BYTES), true, &setting)];
    println!("{counts:?}");
    assert_eq!(counts.map(|counts| (counts.states, counts.plans)), [(16_384, 589_824), (8256, 355_008)]);
}

/// A device reads the first byte where it lies, without memory of its own; then comes whatever takes or changes bytes.
#[test]
fn every_write_while_a_device_may_read_the_hosts_bytes() {
    let (columns, mut counts) = (columns(), Counts::default());
    let (mut on_host, setting) = (0, Setting { shares: true, reach: true, ..Setting::default() });
    let writes = requests().into_iter().filter(|request| request.disturbs().is_some() && *request.range() == (0..1));
    let writes: Vec<_> = writes.chain([Request::Adopt]).collect();
    for (first, second) in columns.iter().flat_map(|first| columns.iter().map(move |second| (first, second))) {
        let bytes: [_; SLOTS] = std::array::from_fn(|slot| [first[slot], second[slot]]);
        // A queue that has failed may still read.
        let by = [HOME[0], OTHER[1], FAILED[0]][counts.plans % 3];
        let (read, own) = (Request::Device { by, range: 0..1, intent: Read }, Slot(HOSTS + usize::from(by % 10)));
        for request in &writes {
            let Some(world) = World::new(bytes, setting) else { break };
            let had_memory = world.facts.copy(own).has_memory;
            let world = run(world, &read, &mut Counts::default());
            assert!(had_memory || !world.facts.copy(own).has_memory, "memory for a read: {bytes:?}");
            on_host += usize::from(!world.facts.replicas.holds(own, &(0..1)));
            run(world, request, &mut counts);
        }
    }
    println!("{counts:?}, {on_host} on the host");
    assert_eq!((counts.plans, on_host), (475_136, 178_669));
}

#[test]
fn every_request_of_one_of_two_bytes_of_an_origin() {
    let counts = [false, true].map(|reach| explore(&(0..1), false, &origins(reach)));
    println!("{counts:?}");
    assert_eq!(
        counts.map(|counts| (counts.states, counts.plans, counts.outside)),
        [(27_840, 1_002_240, 14_073), (49_152, 1_769_472, 28_760)]
    );
}

#[test]
fn every_request_of_both_bytes_of_an_origin() {
    let counts = explore(&(0..BYTES), true, &origins(true)[1..]);
    println!("{counts:?}");
    assert_eq!((counts.states, counts.plans, counts.outside), (16_512, 710_016, 24_233));
}

/// A copy may have one range here: of three bytes the outer two are one too many.
#[test]
fn few_ranges_are_left_of_three_bytes_and_no_byte_is_lost() {
    let mut columns = columns();
    columns.retain(|column| !matches!(column[3], Byte::Arriving | Byte::Broken));
    let settings = [false, true].map(|known| Setting { reach: true, known, ..Setting::default() });
    let counts = bounded(&columns, &settings);
    println!("{counts:?}");
    let expected = Counts {
        states: 165_303,
        plans: 495_909,
        met: 462_824,
        refused: 33_085,
        steps: 612_405,
        rounds: 10,
        ..Counts::default()
    };
    assert_eq!(counts, expected);
}

#[test]
fn few_ranges_are_left_of_three_bytes_of_an_origin_and_nothing_is_read_for_it() {
    let mut columns = columns();
    columns.retain(|column| !column[1..].iter().any(|byte| matches!(byte, Byte::Arriving | Byte::Broken)));
    let settings: Vec<_> = (1..8).map(|origin| Setting { reach: true, origin, ..Setting::default() }).collect();
    let counts = bounded(&columns, &settings);
    println!("{counts:?}");
    assert_eq!((counts.states, counts.plans, counts.outside), (97_321, 291_963, 0));
}

/// The second device takes no bytes; those for it would pass through the host, which has no room for another range.
#[test]
fn bounding_ends_where_a_copy_takes_no_bytes() {
    let bytes = [[0, 0, 0, 1, 1], [0; 5], [1; 5], [1, 0, 1, 0, 0]]
        .map(|held: [u8; 5]| held.map(|held| if held == 1 { Byte::Valid } else { Byte::Stale }));
    for bound in [Bound::Gaps, Bound::AllBut(NOTHING)] {
        let setting = Setting { staged: true, fails: true, ..Setting::default() };
        let mut world = World::<5>::new(bytes, setting).expect("a memory");
        world.facts.replicas.keep_at_most(1);
        run(world, &Request::Bound(bound), &mut Counts::default());
    }
}

fn bounded(columns: &[[Byte; SLOTS]], settings: &[Setting]) -> Counts {
    let mut counts = Counts::default();
    for (first, second, third) in columns.iter().flat_map(|first| {
        columns.iter().flat_map(move |second| columns.iter().map(move |third| (first, second, third)))
    }) {
        let bytes = std::array::from_fn(|slot| [first[slot], second[slot], third[slot]]);
        for setting in settings.iter().copied() {
            for bound in [Bound::Gaps, Bound::AllBut(NOTHING), Bound::AllBut(0..1)] {
                let Some(mut world) = World::new(bytes, setting) else { break };
                world.facts.replicas.keep_at_most(1);
                if world.facts.replicas.is_bounded() {
                    break;
                }
                counts.states += usize::from(bound == Bound::Gaps);
                run(world, &Request::Bound(bound), &mut counts);
            }
        }
    }
    counts
}
