//! Programs: what steps there are, and how they are drawn. Everything is small, so that programs shrink well. Threads
//! draw their steps here too.

use std::ops::Range;

use proptest::collection::{SizeRange, vec};
use proptest::prelude::*;
use proptest::sample::select;
use synced_mem::loopback::{Mode, Operation};

/// How many devices there are. The first two are siblings; there is no direct way to the third.
pub(crate) const DEVICES: usize = 3;
/// How many places are seen from outside: the host, the devices, the origin.
pub(crate) const SITES: usize = 2 + DEVICES;
/// The number of a thread's own memory, which has one owner.
pub(crate) const OWN: usize = 99;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Read,
    Write,
    Overwrite,
}

impl Intent {
    pub(crate) fn writes(self) -> bool {
        self != Intent::Read
    }
}

/// One step. Cells, queues, memories and guards go by number; what does not exist is skipped, and a range that does not
/// fit is cut.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Host {
        memory: usize,
        range: Range<usize>,
        intent: Intent,
        keep: bool,
    },
    Device {
        memory: usize,
        queue: usize,
        range: Range<usize>,
        intent: Intent,
        keep: bool,
    },
    Again(usize),
    Drop(usize),
    Leak(usize),
    PrefetchHost {
        memory: usize,
        range: Range<usize>,
    },
    Evict {
        memory: usize,
        site: Option<usize>,
        range: Range<usize>,
        refuse: bool,
    },
    Shrink(usize),
    Adopt {
        memory: usize,
        how: Adopted,
    },
    Copy {
        to: usize,
        at: usize,
        from: usize,
        range: Range<usize>,
    },
    Synchronize(usize),
    Scatter {
        memory: usize,
        queue: Option<usize>,
        start: usize,
        step: usize,
        count: usize,
    },
    /// Slices and tokens of the own memory, side by side while copies are added; twice: by two threads.
    Readers {
        reads: Vec<(Option<usize>, Range<usize>)>,
        twice: bool,
    },
    Lend(Vec<(Option<usize>, Range<usize>, bool)>),
    Fail {
        device: usize,
        operation: Operation,
        nth: u64,
    },
    /// The `nth` read of the origins from now on.
    FailRead(u64),
    /// No more memory than this; none: as much as there is.
    Limit {
        device: usize,
        bytes: Option<usize>,
    },
    Panic(usize),
    RenewQueue(usize),
    /// A new memory of this length; of an odd one, the bytes are in an origin. The own one may become a shared one.
    Renew {
        memory: usize,
        len: usize,
        shares: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adopted {
    Vector,
    ReadOnly,
    Device(usize),
}

/// Which programs are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Ranges of 20 cells.
    Exact,
    /// Many single ones of 96.
    Scattered,
    /// Memories of any length, for threads.
    Threads,
}

impl Scale {
    fn cells(self) -> usize {
        match self {
            Scale::Exact => 20,
            Scale::Scattered => 96,
            Scale::Threads => 4200,
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
    let limit = (0..DEVICES, 0..3usize).prop_map(|(device, blocks)| Op::Limit { device, bytes: Some(20 * blocks) });
    let last = queues().prop_map(move |queue| if panics { Op::Panic(queue) } else { Op::Synchronize(queue) });
    let steps = prop_oneof![
        14 => step(Scale::Exact),
        6 => fail(),
        1 => limit,
        if panics { 2 } else { 1 } => last,
    ];
    vec(steps, 1..40)
}

/// Programs on the memory with one owner.
pub(crate) fn owned(scale: Scale) -> impl Strategy<Value = Vec<Op>> {
    vec(own_step(scale), 1..40)
}

/// A program of a thread.
pub(crate) fn threads(steps: usize, is_faulty: bool) -> impl Strategy<Value = Vec<Op>> {
    let scale = Scale::Threads;
    let faults = u32::from(is_faulty);
    let limit = (0..DEVICES, prop_oneof![Just(None), (0..4096usize).prop_map(Some)]);
    let lent = vec((place(), 0..40usize, 0..40usize, any::<bool>()), 4);
    let lent = lent.prop_map(|steps| {
        steps.into_iter().map(|(queue, start, len, writes)| (queue, start..(start + len).min(40), writes)).collect()
    });
    let renew = (memories(scale), lens(), any::<bool>());
    let step = prop_oneof![
        58 => borrow(scale),
        12 => guard(scale, is_faulty),
        10 => whole(scale),
        14 => own_step(scale),
        3 * faults + 1 => if is_faulty { fail().boxed() } else { queues().prop_map(Op::Synchronize).boxed() },
        1 => limit.prop_map(move |(device, bytes)| Op::Limit { device, bytes: bytes.filter(|_| is_faulty) }),
        2 => queues().prop_map(Op::RenewQueue),
        1 => renew.prop_map(|(memory, len, shares)| Op::Renew { memory, len, shares }),
        1 => lent.prop_map(Op::Lend),
        1 => (lens(), any::<bool>()).prop_map(|(len, shares)| Op::Renew { memory: OWN, len, shares }),
    ];
    let broken = (0..400usize, queues()).prop_map(|(at, queue)| (at, Op::Panic(queue)));
    (vec(step, steps), vec(broken, 0..=faults as usize)).prop_map(|(mut program, broken)| {
        for (at, op) in broken {
            let at = at % program.len().max(1);
            program.insert(at, op);
        }
        program
    })
}

/// How long memories are: some of a few bytes, some larger than a page.
pub(crate) fn lens() -> impl Strategy<Value = usize> {
    prop_oneof![1 => 0..8usize, 1 => 4096..4196usize, 4 => 64..464usize]
}

fn fail() -> impl Strategy<Value = Op> {
    let operations = select(vec![
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
    prop_oneof![
        8 => fail.prop_map(|(device, operation, nth)| Op::Fail { device, operation, nth }),
        1 => (1..4u64).prop_map(Op::FailRead),
    ]
}

fn queues() -> Range<usize> {
    0..2 * DEVICES
}

/// The host, or a queue.
fn place() -> impl Strategy<Value = Option<usize>> {
    prop_oneof![Just(None), queues().prop_map(Some)]
}

fn sites() -> impl Strategy<Value = Option<usize>> {
    (0..SITES).prop_map(|site| site.checked_sub(1))
}

fn intents() -> impl Strategy<Value = Intent> {
    select(vec![Intent::Read, Intent::Write, Intent::Overwrite])
}

/// Mostly short ones, so that guards leave room for others; empty ones too.
fn ranges(scale: Scale) -> BoxedStrategy<Range<usize>> {
    let cells = scale.cells();
    let short = (0..cells, 0..=6usize).prop_map(move |(start, len)| start..(start + len).min(cells));
    let long = (0..cells, 0..cells).prop_map(move |(start, len)| start..(start + len).min(cells));
    let long_ones = 4 * u32::from(scale == Scale::Threads);
    prop_oneof![8 => short, long_ones => long, 1 => Just(0..cells)].boxed()
}

/// The second memory is there to be copied from, and to; threads have five alike.
fn memories(scale: Scale) -> BoxedStrategy<usize> {
    match scale {
        Scale::Threads => (0..5usize).boxed(),
        _ => prop_oneof![4 => Just(0), 1 => Just(1)].boxed(),
    }
}

fn step(scale: Scale) -> BoxedStrategy<Op> {
    let scattered = u32::from(scale == Scale::Scattered);
    prop_oneof![
        12 => borrow(scale),
        8 => guard(scale, true),
        6 => whole(scale),
        6 * scattered + 1 => scatter(memories(scale), scale),
    ]
    .boxed()
}

/// Steps that may leave a guard behind.
fn borrow(scale: Scale) -> BoxedStrategy<Op> {
    let host = (memories(scale), ranges(scale), intents(), any::<bool>());
    let device = (memories(scale), queues(), ranges(scale), intents(), any::<bool>());
    prop_oneof![
        1 => host.prop_map(|(memory, range, intent, keep)| Op::Host { memory, range, intent, keep }),
        2 => device.prop_map(|(memory, queue, range, intent, keep)| {
            Op::Device { memory, queue, range, intent, keep }
        }),
    ]
    .boxed()
}

fn guard(scale: Scale, may_leak: bool) -> BoxedStrategy<Op> {
    let leaks = u32::from(may_leak);
    prop_oneof![
        8 => (0..8usize).prop_map(Op::Again),
        if scale == Scale::Threads { 24 } else { 6 } => (0..8usize).prop_map(Op::Drop),
        leaks => (0..8usize).prop_map(Op::Leak),
    ]
    .boxed()
}

/// Steps that leave no guard behind.
fn whole(scale: Scale) -> BoxedStrategy<Op> {
    let cells = scale.cells();
    let fetch_host = (memories(scale), ranges(scale));
    let evict = (memories(scale), sites(), any::<bool>());
    let copy = (memories(scale), 0..cells, memories(scale), ranges(scale));
    let adopt = (memories(scale), adopted(scale));
    prop_oneof![
        2 => fetch_host.prop_map(|(memory, range)| Op::PrefetchHost { memory, range }),
        4 => evict.prop_map(move |(memory, site, refuse)| Op::Evict { memory, site, range: 0..cells, refuse }),
        1 => memories(scale).prop_map(Op::Shrink),
        2 => adopt.prop_map(|(memory, how)| Op::Adopt { memory, how }),
        5 => copy.prop_map(move |(to, at, from, range)| {
            let range = range.start..range.end.min(range.start + cells - at);
            Op::Copy { to, at, from, range }
        }),
        1 => queues().prop_map(Op::Synchronize),
    ]
    .boxed()
}

fn adopted(scale: Scale) -> impl Strategy<Value = Adopted> {
    let devices = u32::from(scale == Scale::Threads);
    prop_oneof![1 => Just(Adopted::Vector), 1 => Just(Adopted::ReadOnly), devices => queues().prop_map(Adopted::Device)]
}

fn scatter(memory: BoxedStrategy<usize>, scale: Scale) -> BoxedStrategy<Op> {
    let count = if scale == Scale::Exact { 1..3usize } else { 12..24usize };
    (memory, place(), 0..8usize, 2..5usize, count)
        .prop_map(|(memory, queue, start, step, count)| Op::Scatter { memory, queue, start, step, count })
        .boxed()
}

fn own_step(scale: Scale) -> BoxedStrategy<Op> {
    let memory = OWN;
    let cells = scale.cells();
    let host = (ranges(scale), intents());
    let device = (queues(), ranges(scale), intents(), any::<bool>());
    let evict = (sites(), ranges(scale), any::<bool>());
    let readers = (vec((place(), ranges(scale)), 1..6), any::<bool>());
    let rows = (0..4usize, 3..12usize).prop_map(move |(start, step)| {
        let reads = (start..cells.min(500)).step_by(step).map(|cell| (None, cell..cell + 1)).collect();
        Op::Readers { reads, twice: false }
    });
    let rows_drawn = u32::from(scale != Scale::Exact);
    prop_oneof![
        4 => host.prop_map(move |(range, intent)| Op::Host { memory, range, intent, keep: false }),
        8 => device.prop_map(move |(queue, range, intent, keep)| Op::Device { memory, queue, range, intent, keep }),
        4 => readers.prop_map(|(reads, twice)| Op::Readers { reads, twice }),
        rows_drawn => rows,
        1 => ranges(scale).prop_map(move |range| Op::PrefetchHost { memory, range }),
        3 => evict.prop_map(move |(site, range, refuse)| Op::Evict { memory, site, range, refuse }),
        1 => Just(Op::Shrink(memory)),
        1 => any::<bool>().prop_map(move |fixed| {
            Op::Adopt { memory, how: if fixed { Adopted::ReadOnly } else { Adopted::Vector } }
        }),
        1 => queues().prop_map(Op::Synchronize),
        3 => scatter(Just(memory).boxed(), scale),
    ]
    .boxed()
}
