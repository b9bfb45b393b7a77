//! Every request in every state of four copies of two bytes, on a model of what queues do. No device, no bytes.
//!
//! A byte of a copy is stale, valid, or arriving from a queue that works or from one that has failed; the two devices
//! reach each other or not; that a queue has failed is known or found out by a wait. Each plan is performed step by
//! step on the model, which knows what a step may touch.

mod world;

use std::ops::Range;

use self::world::{ALL, BYTES, Byte, FAILED, HOME, OTHER, SLOTS, World};
use super::*;
use crate::access::Intent::{Overwrite, Read, Write};
use crate::coherence::facts::HOSTS;

/// How often a request is planned, at most.
const MAX_ROUNDS: usize = 14;

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
            _ => &NOTHING,
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
            for slot in [HOST, Slot(HOSTS), Slot(HOSTS + 1)] {
                all.push(Request::Evict { slot, range: range.clone(), dirty });
            }
        }
    }
    all
}

/// Plans and performs a request to its end.
fn run(mut world: World, request: &Request<u8>, counts: &mut Counts) {
    let mut progress = Progress::new();
    let by = match request {
        Request::Device { by, .. } | Request::Receive { by, .. } => Some(*by),
        _ => None,
    };
    counts.plans += 1;
    for round in 1.. {
        assert!(round <= MAX_ROUNDS, "{request:?} is planned without end");
        counts.rounds = counts.rounds.max(round);
        if let Some(by) = by.filter(|by| !world.facts.broken.has(by)) {
            world.facts.copies[HOSTS + usize::from(by % 10)].home = Some(by);
        }
        let planned = next(&world.facts, request, &progress);
        if let Some(slot) = met_at(&world.facts, request) {
            assert!(matches!(planned, Ok(Next::Done)), "{request:?} is met at {slot:?}, and not done");
            counts.at_once += 1;
        } else {
            let is_access = matches!(request, Request::Host { .. } | Request::Device { .. });
            let is_first = round == 1 && world.facts.broken.is_empty();
            assert!(
                !(is_access && is_first && matches!(planned, Ok(Next::Done))),
                "{request:?} is met, and not seen so"
            );
        }
        match planned {
            Ok(Next::Done) => {
                world.check_met(request);
                world.check();
                counts.met += 1;
                return;
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
                    return;
                }
            }
            Err(Refusal::Error(Error::OnlyCopy { .. })) => {
                assert!(matches!(request, Request::Evict { .. }));
                counts.refused += 1;
                return;
            }
            other => panic!("{request:?}: {other:?}"),
        }
    }
}

/// The states of one byte in all copies. No queue writes adopted bytes.
fn columns() -> Vec<[Byte; SLOTS]> {
    let hosts = ALL.into_iter().flat_map(|host| [Byte::Stale, Byte::Valid].map(|adopted| (host, adopted)));
    let devices = || ALL.into_iter().flat_map(|one| ALL.map(|other| (one, other)));
    hosts.flat_map(|(host, adopted)| devices().map(move |(one, other)| [host, adopted, one, other])).collect()
}

/// Runs the requests of `range` in every state. One that treats the bytes alike need not see them the other way round.
fn explore(range: &Range<usize>, is_symmetric: bool) -> Counts {
    let (columns, mut counts) = (columns(), Counts::default());
    let requests: Vec<_> = requests().into_iter().filter(|request| request.range() == range).collect();
    for (index, first) in columns.iter().enumerate() {
        for second in &columns[if is_symmetric { index } else { 0 }..] {
            let bytes = std::array::from_fn(|slot| [first[slot], second[slot]]);
            for (reach, known) in [(false, false), (false, true), (true, false), (true, true)] {
                if World::new(bytes, reach, known).is_none() {
                    continue;
                }
                counts.states += 1;
                for request in &requests {
                    run(World::new(bytes, reach, known).expect("there is one"), request, &mut counts);
                }
            }
        }
    }
    counts
}

#[test]
fn every_request_of_one_of_two_bytes_in_every_state_of_four_copies() {
    let counts = explore(&(0..1), false);
    println!("{counts:?}");
    let expected = Counts {
        states: 51_586,
        plans: 1_753_924,
        at_once: 435_200,
        met: 1_515_650,
        refused: 238_274,
        steps: 1_781_810,
        rounds: 12,
    };
    assert_eq!(counts, expected);
}

#[test]
fn every_request_of_both_bytes_in_every_state_of_four_copies() {
    let counts = explore(&(0..BYTES), true);
    println!("{counts:?}");
    let expected = Counts {
        states: 26_018,
        plans: 884_612,
        at_once: 146_068,
        met: 737_684,
        refused: 146_928,
        steps: 1_188_620,
        rounds: 14,
    };
    assert_eq!(counts, expected);
}
