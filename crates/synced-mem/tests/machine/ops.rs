//! Programs: what steps there are, and how they are drawn. Everything is small, so that they shrink well.

use std::ops::Range;

use proptest::collection::{SizeRange, vec};
use proptest::prelude::*;
use synced_mem::loopback::{Mode, Operation};

use crate::model::{DEVICES, Intent};

/// One step. Cells, queues, memories and guards go by number; what does not exist is skipped.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Host { memory: usize, range: Range<usize>, intent: Intent, keep: bool },
    Device { memory: usize, queue: usize, range: Range<usize>, intent: Intent, keep: bool },
    Again(usize),
    Drop(usize),
    Leak(usize),
    PrefetchHost { memory: usize, range: Range<usize> },
    Evict { memory: usize, site: Option<usize>, refuse: bool },
    Shrink(usize),
    Adopt { memory: usize, fixed: bool },
    Copy { to: usize, at: usize, from: usize, range: Range<usize> },
    Synchronize(usize),
    Scatter { memory: usize, queue: Option<usize>, start: usize, step: usize, count: usize },
    Fail { device: usize, operation: Operation, nth: u64 },
    Limit { device: usize, blocks: usize },
    Panic(usize),
}

/// Which programs are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Ranges of 20 cells.
    Exact,
    /// Many single ones of 96.
    Scattered,
}

impl Scale {
    fn cells(self) -> usize {
        match self {
            Scale::Exact => 20,
            Scale::Scattered => 96,
        }
    }
}

/// Deferred finds what is not waited for; random orders find what waits for the wrong thing.
pub(crate) fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![
        5 => Just(Mode::Deferred),
        4 => (0..1u64 << 32).prop_map(Mode::Random),
        1 => Just(Mode::Immediate),
    ]
}

pub(crate) fn program(scale: Scale, steps: impl Into<SizeRange>) -> impl Strategy<Value = Vec<Op>> {
    vec(step(scale), steps)
}

/// Programs on devices that fail now and then; with panics, queues fail for good.
pub(crate) fn failing(panics: bool) -> impl Strategy<Value = Vec<Op>> {
    let operations = prop::sample::select(vec![
        Operation::Alloc,
        Operation::Upload,
        Operation::Download,
        Operation::Copy,
        Operation::Fill,
        Operation::Wait,
        Operation::Synchronize,
        Operation::Launch,
    ]);
    let fail = (0..DEVICES, operations, 1..4u64);
    let fail = fail.prop_map(|(device, operation, nth)| Op::Fail { device, operation, nth });
    let limit = (0..DEVICES, 0..3usize).prop_map(|(device, blocks)| Op::Limit { device, blocks });
    let steps = prop_oneof![
        14 => step(Scale::Exact),
        6 => fail,
        1 => limit,
        if panics { 2 } else { 1 } => queues().prop_map(move |queue| if panics { Op::Panic(queue) } else { Op::Synchronize(queue) }),
    ];
    vec(steps, 1..40)
}

pub(crate) fn queues() -> Range<usize> {
    0..2 * DEVICES
}

pub(crate) fn sites() -> impl Strategy<Value = Option<usize>> {
    (0..=DEVICES).prop_map(|site| site.checked_sub(1))
}

pub(crate) fn intents() -> impl Strategy<Value = Intent> {
    prop_oneof![Just(Intent::Read), Just(Intent::Write), Just(Intent::Overwrite)]
}

/// Mostly short ones, so that guards leave room for others; empty ones too.
pub(crate) fn ranges(cells: usize) -> impl Strategy<Value = Range<usize>> {
    prop_oneof![
        8 => (0..cells, 0..=6usize).prop_map(move |(start, len)| start..(start + len).min(cells)),
        1 => Just(0..cells),
    ]
}

/// The second memory is there to be copied from, and to.
fn memories() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(0), 1 => Just(1)]
}

fn step(scale: Scale) -> BoxedStrategy<Op> {
    let scattered = u32::from(scale == Scale::Scattered);
    prop_oneof![
        12 => borrow(scale),
        8 => guard(),
        6 => whole(scale),
        6 * scattered + 1 => scatter(scale),
    ]
    .boxed()
}

/// Steps that may leave a guard behind.
fn borrow(scale: Scale) -> BoxedStrategy<Op> {
    let cells = scale.cells();
    let host = (memories(), ranges(cells), intents(), any::<bool>());
    let device = (memories(), queues(), ranges(cells), intents(), any::<bool>());
    prop_oneof![
        1 => host.prop_map(|(memory, range, intent, keep)| Op::Host { memory, range, intent, keep }),
        2 => device.prop_map(|(memory, queue, range, intent, keep)| {
            Op::Device { memory, queue, range, intent, keep }
        }),
    ]
    .boxed()
}

fn guard() -> BoxedStrategy<Op> {
    prop_oneof![
        8 => (0..8usize).prop_map(Op::Again),
        6 => (0..8usize).prop_map(Op::Drop),
        1 => (0..8usize).prop_map(Op::Leak),
    ]
    .boxed()
}

/// Steps that leave no guard behind.
fn whole(scale: Scale) -> BoxedStrategy<Op> {
    let cells = scale.cells();
    let fetch_host = (memories(), ranges(cells));
    let evict = (memories(), sites(), any::<bool>());
    let copy = (memories(), 0..cells, memories(), ranges(cells));
    prop_oneof![
        2 => fetch_host.prop_map(|(memory, range)| Op::PrefetchHost { memory, range }),
        4 => evict.prop_map(|(memory, site, refuse)| Op::Evict { memory, site, refuse }),
        1 => memories().prop_map(Op::Shrink),
        2 => (memories(), any::<bool>()).prop_map(|(memory, fixed)| Op::Adopt { memory, fixed }),
        5 => copy.prop_map(move |(to, at, from, range)| {
            let range = range.start..range.end.min(range.start + cells - at);
            Op::Copy { to, at, from, range }
        }),
        1 => queues().prop_map(Op::Synchronize),
    ]
    .boxed()
}

fn scatter(scale: Scale) -> BoxedStrategy<Op> {
    let queue = prop_oneof![Just(None), queues().prop_map(Some)];
    let count = match scale {
        Scale::Exact => 1..3usize,
        Scale::Scattered => 12..24usize,
    };
    (memories(), queue, 0..8usize, 2..5usize, count)
        .prop_map(|(memory, queue, start, step, count)| Op::Scatter { memory, queue, start, step, count })
        .boxed()
}
