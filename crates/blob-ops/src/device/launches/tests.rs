//! Launches carried out by naive twins of the kernels over bytes at addresses: every byte of an output is written once,
//! with the right value, by aligned words within the operands.

mod ptx;

use super::*;
use crate::device::params::{Fill, PARTS};
use crate::plan::{Swap, Walk};
use crate::work::{Bounds, Op};
use blob_core::DType;
use proptest::prelude::*;

/// Operands at addresses, with how often each byte was written.
struct Memory(Vec<(u64, Vec<u8>, Vec<u32>)>);

impl Memory {
    /// Operands of these lengths, far apart, each some bytes past a multiple of 16.
    fn new(lens: &[(usize, u64)]) -> (Memory, Vec<Span>) {
        let place = |(at, &(len, past)): (usize, &(usize, u64))| {
            let bytes: Vec<u8> = (0..len).map(|byte| (byte * 7 + at * 31 + byte / 251) as u8).collect();
            (((at as u64 + 1) << 40) + past, bytes, vec![0; len])
        };
        let operands: Vec<_> = lens.iter().enumerate().map(place).collect();
        let spans = operands.iter().map(|(address, bytes, _)| Span { address: *address, len: bytes.len() }).collect();
        (Memory(operands), spans)
    }

    fn find(&mut self, address: u64, width: usize) -> (&mut [u8], &mut [u32]) {
        assert_eq!(address % width as u64, 0, "{address:x} is no place for {width} bytes");
        let within = |(start, bytes, _): &&mut (u64, Vec<u8>, Vec<u32>)| {
            *start <= address && address + width as u64 <= *start + bytes.len() as u64
        };
        let (start, bytes, written) = self.0.iter_mut().find(within).expect("an address within an operand");
        let at = (address - *start) as usize;
        (&mut bytes[at..at + width], &mut written[at..at + width])
    }

    fn load(&mut self, address: u64, width: usize) -> Vec<u8> {
        self.find(address, width).0.to_vec()
    }

    fn store(&mut self, address: u64, bytes: &[u8]) {
        let (place, written) = self.find(address, bytes.len());
        place.copy_from_slice(bytes);
        written.iter_mut().for_each(|times| *times += 1);
    }

    fn copy(&mut self, from: u64, to: u64, width: usize) {
        let word = self.load(from, width);
        self.store(to, &word);
    }

    fn check(&self, operand: usize, wanted: &[u8]) {
        let (_, bytes, written) = &self.0[operand];
        assert!(written.iter().all(|times| *times == 1), "operand {operand}: {written:?}");
        assert_eq!(bytes, wanted, "operand {operand}");
    }

    fn carry_out(&mut self, launches: &[Launch], limits: Limits) {
        for launch in launches {
            assert!(u64::from(launch.blocks) * u64::from(THREADS) < 1 << 32, "{launch:?}");
            let (_, width) = launch.kernel.rsplit_once('_').unwrap_or(("", "16"));
            let width: usize = width.parse().unwrap_or(16);
            match &launch.params {
                Params::Rows(p) => self.rows(p, width, launch.blocks, limits),
                Params::Strided(p) => self.strided(p, width, launch.blocks, limits),
                Params::Tiles(p) => self.tiles(p, width, launch),
                Params::Squares(p) => self.squares(p, width, launch.blocks),
                Params::Fill(p) => self.fill(p, launch.blocks),
                other => panic!("{other:?} moves no bytes"),
            }
        }
    }

    fn rows(&mut self, p: &Rows, width: usize, blocks: u32, limits: Limits) {
        assert!(p.parts.len() <= limits.parts && p.words as usize <= limits.words.max(p.row as usize));
        assert!(p.words <= blocks * THREADS * ITEMS && p.words.is_multiple_of(p.row));
        for index in 0..p.words {
            let (row, column) = (index / p.row, index % p.row);
            let part = p.parts.iter().position(|part| column < part.end).unwrap();
            let start = if part == 0 { 0 } else { p.parts[part - 1].end };
            let width = width as u64;
            let inner = p.parts[part].at + u64::from(row) * p.parts[part].pitch + u64::from(column - start) * width;
            let outer = p.whole + u64::from(row) * p.pitch + u64::from(column) * width;
            let (from, to) = if p.split { (outer, inner) } else { (inner, outer) };
            self.copy(from, to, width as usize);
        }
    }

    fn strided(&mut self, p: &Strided, width: usize, blocks: u32, limits: Limits) {
        assert!(p.words as usize <= limits.words && p.words <= blocks * THREADS * ITEMS);
        for index in 0..p.words {
            let (from, to) = place(&p.axes, index);
            self.copy(p.from + from, p.to + to, width);
        }
    }

    fn tiles(&mut self, p: &Tiles, width: usize, launch: &Launch) {
        let counts = [&p.outer, &p.x, &p.y].map(|axes| Axis::count(axes));
        let [along_x, along_y] = p.tiles();
        assert_eq!(launch.blocks, counts[0] * along_x * along_y);
        // Packed kernels move four bytes at once, along both sides.
        let n = if launch.kernel.starts_with("packed") { 4 / width as u32 } else { 1 };
        let word = width * n as usize;
        for outer in 0..counts[0] {
            let (outer_from, outer_to) = place(&p.outer, outer);
            let from = |y| p.from + outer_from + place(&p.y, y).0;
            let to = |x| p.to + outer_to + place(&p.x, x).1;
            for (x, y) in (0..counts[1]).flat_map(|x| (0..counts[2]).map(move |y| (x, y))) {
                let source = from(y) + u64::from(x) * width as u64;
                let target = to(x) + u64::from(y) * width as u64;
                if x % n == 0 {
                    self.load(source, word);
                }
                if y % n == 0 {
                    self.load(target, word);
                }
                self.copy(source, target, width);
            }
        }
    }

    fn squares(&mut self, p: &Squares, width: usize, blocks: u32) {
        assert_eq!(p.tiles, p.side.div_ceil(32));
        for matrix in 0..blocks / (p.tiles * p.tiles) {
            let start = p.at + u64::from(matrix) * p.matrix;
            let side = u64::from(p.side);
            let at = |i: u64, j: u64| start + (i * side + j) * width as u64;
            let before: Vec<u8> = (0..side * side * width as u64).flat_map(|byte| self.load(start + byte, 1)).collect();
            for (i, j) in (0..side).flat_map(|i| (0..side).map(move |j| (i, j))) {
                let from = (at(i, j) - start) as usize;
                for byte in 0..width {
                    self.store(at(j, i) + byte as u64, &before[from + byte..][..1]);
                }
            }
        }
    }

    fn fill(&mut self, p: &Fill, blocks: u32) {
        assert!(p.pieces + p.head + p.tail <= blocks * THREADS);
        let pattern: Vec<u8> = p.pattern.iter().flat_map(|word| word.to_le_bytes()).collect();
        for piece in 0..u64::from(p.pieces) {
            self.store(p.at + piece * 16, &pattern);
        }
        for byte in 0..p.head {
            self.store(p.at - u64::from(p.head) + u64::from(byte), &pattern[(16 - p.head + byte) as usize % 16..][..1]);
        }
        for byte in 0..p.tail {
            self.store(p.at + u64::from(p.pieces) * 16 + u64::from(byte), &pattern[byte as usize..][..1]);
        }
    }
}

/// Where an index along some axes lies.
fn place(axes: &[Axis], mut index: u32) -> (u64, u64) {
    let (mut from, mut to) = (0, 0);
    for axis in axes {
        from += u64::from(index % axis.len) * axis.from;
        to += u64::from(index % axis.len) * axis.to;
        index /= axis.len;
    }
    assert_eq!(index, 0);
    (from, to)
}

/// Limits that cut small work too.
const SMALL: Limits = Limits { parts: 3, words: 48 };

fn merged(parts: &[&[u8]], rows: usize) -> Vec<u8> {
    let run = |row: usize, part: &[u8]| part[row * (part.len() / rows)..][..part.len() / rows].to_vec();
    (0..rows).flat_map(|row| parts.iter().flat_map(move |part| run(row, part))).collect()
}

fn check_rows(rows: usize, runs: &[usize], past: &[u64], limits: Limits) {
    let whole: usize = runs.iter().sum::<usize>() * rows;
    let past = |at: usize| past[at % past.len()];
    let lens: Vec<_> = runs.iter().enumerate().map(|(at, run)| (run * rows, past(at))).collect();
    let lens: Vec<_> = lens.into_iter().chain([(whole, past(runs.len()))]).collect();
    let (mut memory, spans) = Memory::new(&lens);
    let (whole, parts) = spans.split_last().unwrap();
    let bytes: Vec<Vec<u8>> = memory.0.iter().map(|(_, bytes, _)| bytes.clone()).collect();
    let wanted = merged(&bytes[..runs.len()].iter().map(Vec::as_slice).collect::<Vec<_>>(), rows);
    let work = |split| Work::Rows { rows, split };
    memory.carry_out(&launches(&work(false), parts, &[*whole], limits), limits);
    memory.check(runs.len(), &wanted);
    // And back, from the merged bytes to parts that were cleared.
    memory.0.iter_mut().for_each(|(_, _, written)| written.fill(0));
    memory.0[..runs.len()].iter_mut().for_each(|(_, bytes, _)| bytes.fill(0));
    memory.carry_out(&launches(&work(true), &[*whole], parts, limits), limits);
    bytes[..runs.len()].iter().enumerate().for_each(|(part, bytes)| memory.check(part, bytes));
}

fn check_permutation(plan: Permutation, past: [u64; 2], limits: Limits) {
    let len = plan.bytes();
    let (mut memory, spans) = Memory::new(&[(len, past[0]), (len, past[1])]);
    let mut axes = Strides::default();
    plan.axes.as_slice().iter().rev().for_each(|axis| axes.push(*axis));
    let source = memory.0[0].1.clone();
    let wanted: Vec<u8> = Walk::new(&axes, 0).flat_map(|(from, _)| source[from..][..plan.run].to_vec()).collect();
    memory.carry_out(&launches(&Work::Permute(plan), &spans[..1], &spans[1..], limits), limits);
    memory.check(1, &wanted);
}

#[test]
fn the_width_is_what_addresses_lengths_and_strides_allow() {
    let span = |address, len| Span { address, len };
    let kernel = |rows, runs: &[usize], past: u64| {
        let parts: Vec<_> = runs.iter().map(|run| span(1 << 20, run * rows)).collect();
        let whole = span((1 << 30) + past, runs.iter().sum::<usize>() * rows);
        launches(&Work::Rows { rows, split: false }, &parts, &[whole], LIMITS)[0].kernel
    };
    assert_eq!(kernel(4, &[512, 1024], 0), "rows_16");
    assert_eq!(kernel(4, &[512, 1024], 8), "rows_8");
    assert_eq!(kernel(4, &[512, 1028], 0), "rows_4");
    assert_eq!(kernel(4, &[6, 1024], 0), "rows_2");
    assert_eq!(kernel(1, &[7], 0), "rows_1");
    let moved = |dims: &[usize], order: &[usize], size, past: u64| {
        let plan = Permutation::new(dims, order, size);
        let (from, to) = (span(1 << 20, plan.bytes()), span((1 << 30) + past, plan.bytes()));
        launches(&Work::Permute(plan), &[from], &[to], LIMITS)[0].kernel
    };
    assert_eq!(moved(&[64, 64], &[1, 0], 4, 0), "tile_4");
    assert_eq!(moved(&[64, 64], &[1, 0], 2, 0), "packed_2");
    assert_eq!(moved(&[64, 65], &[1, 0], 2, 0), "tile_2");
    assert_eq!(moved(&[64, 64], &[1, 0], 1, 0), "packed_1");
    assert_eq!(moved(&[64, 64], &[1, 0], 1, 2), "tile_1");
    assert_eq!(moved(&[64, 64, 4], &[1, 0, 2], 4, 0), "tile_16");
    assert_eq!(moved(&[64, 64, 2], &[1, 0, 2], 4, 0), "tile_8");
    // Channels last: a short side, in either direction.
    assert_eq!(moved(&[2, 3, 64, 64], &[0, 2, 3, 1], 4, 0), "strided_4");
    assert_eq!(moved(&[2, 64, 64, 3], &[0, 3, 1, 2], 4, 0), "strided_4");
    assert_eq!(moved(&[2, 64, 64, 3], &[0, 2, 1, 3], 4, 0), "strided_4");
    assert_eq!(moved(&[2, 64, 64, 8], &[0, 2, 1, 3], 4, 0), "strided_16");
    assert_eq!(moved(&[64, 64], &[1, 0], 4, 2), "strided_2");
    assert_eq!(moved(&[64, 64], &[0, 1], 4, 0), "rows_16");
}

#[test]
fn rows_of_every_form() {
    for past in [&[0][..], &[0, 4], &[1, 2, 3], &[8, 0]] {
        check_rows(1, &[16], past, LIMITS);
        check_rows(5, &[16, 48, 32], past, LIMITS);
        check_rows(7, &[4, 0, 12, 3], past, LIMITS);
        check_rows(300, &[1, 1, 1], past, SMALL);
        // More parts than a table holds, and a run longer than a launch.
        check_rows(3, &[4; 10], past, SMALL);
        check_rows(2, &[1000, 8], past, SMALL);
    }
    check_rows(2, &[4; 2 * PARTS + 1], &[0], LIMITS);
}

#[test]
fn transpositions_of_every_width_and_cut() {
    for size in [1, 2, 4, 8] {
        for past in [[0, 0], [0, 4], [1, 0], [2, 2]] {
            for dims in [&[64, 64][..], &[65, 33], &[17, 128], &[3, 50], &[50, 3], &[1, 9]] {
                check_permutation(Permutation::new(dims, &[1, 0], size), past, LIMITS);
                check_permutation(Permutation::new(dims, &[1, 0], size), past, SMALL);
            }
            // The first part has whole words in its rows, but not from row to row.
            let cut = Limits { parts: 1, words: 32 * 64 };
            check_permutation(Permutation::new(&[65, 64], &[1, 0], size), past, cut);
            let swap = Swap::new(&[2, 20, 3, 24, 2], 1, 3).unwrap();
            check_permutation(swap.permutation(size), past, LIMITS);
            check_permutation(swap.permutation(size), past, SMALL);
            check_permutation(Permutation::new(&[3, 4, 5, 2, 3, 2], &[5, 4, 3, 2, 1, 0], size), past, LIMITS);
        }
    }
}

#[test]
fn squares_in_place() {
    for (side, width) in [(2, 4), (33, 2), (32, 8), (40, 1)] {
        let (mut memory, spans) = Memory::new(&[(3 * side * side * width, 0)]);
        let before = memory.0[0].1.clone();
        let at = |m: usize, i: usize, j: usize| ((m * side + i) * side + j) * width;
        let mut wanted = before.clone();
        for (m, i, j) in (0..3).flat_map(|m| (0..side).flat_map(move |i| (0..side).map(move |j| (m, i, j)))) {
            wanted[at(m, i, j)..][..width].copy_from_slice(&before[at(m, j, i)..][..width]);
        }
        memory.carry_out(&launches(&Work::Squares { side, width }, &[], &spans, SMALL), SMALL);
        memory.check(0, &wanted);
    }
}

#[test]
fn filled_from_any_address_on() {
    for past in 0..17 {
        for len in [0, 1, 8, 16, 24, 40, 48, 104, 200] {
            for size in [1, 2, 4, 8] {
                let element = [1, 2, 3, 4, 5, 6, 7, 8];
                let (mut memory, spans) = Memory::new(&[(len, past)]);
                memory.carry_out(&launches(&Work::Fill { element, size }, &[], &spans, SMALL), SMALL);
                let wanted: Vec<u8> = (0..len).map(|at| element[at % size]).collect();
                memory.check(0, &wanted);
            }
        }
    }
}

/// Each element by one thread: in a piece, in a group, or alone.
#[test]
fn every_element_has_a_thread() {
    for dtype in DType::ALL.iter().copied().filter(|dtype| *dtype != DType::Bool) {
        for past in [0, 4, 8, 16, 1] {
            for count in [0, 1, 3, 47, 48, 49, 100, 9000] {
                let span = |at: u64| Span { address: (at << 40) + past, len: count * dtype.size() };
                let work = Work::Arithmetic { op: Op::Add, dtype, alpha: 0 };
                let (mut y, mut done) = (span(1).address, 0);
                for launch in launches(&work, &[span(2)], &[span(1)], SMALL) {
                    let Params::Arithmetic(p) = launch.params else { panic!("{launch:?}") };
                    assert_eq!((p.y, p.x - p.y), (y, 1 << 40));
                    assert_eq!(
                        (p.pieces > 0, p.bytes),
                        (p.pieces > 0 && past % 16 == 0, past % dtype.size() as u64 != 0)
                    );
                    let bytes = p.pieces as usize * 16 + p.rest as usize * dtype.size();
                    assert!(
                        launch.blocks * THREADS >= p.pieces + p.rest && (p.pieces + p.rest) as usize <= SMALL.words
                    );
                    y += bytes as u64;
                    done += bytes;
                }
                assert_eq!(done, count * dtype.size());
                check_groups(dtype, span, count);
            }
        }
    }
}

fn check_groups(source: DType, span: impl Fn(u64) -> Span, count: usize) {
    for target in [DType::Bool, DType::F16, DType::I32, DType::F64] {
        let to = Span { len: count * target.size(), ..span(2) };
        let mut done = 0;
        for launch in launches(&Work::Convert { source, target }, &[span(1)], &[to], SMALL) {
            let Params::Convert(p) = launch.params else { panic!("{launch:?}") };
            let group = if source.size() == 8 || target.size() == 8 { 2 } else { 4 };
            assert_eq!(p.from - span(1).address, (done * source.size()) as u64);
            assert_eq!(p.to - to.address, (done * target.size()) as u64);
            assert!(p.groups == 0 || p.from % (group * source.size()) as u64 == 0);
            assert!(p.groups == 0 || p.to % (group * target.size()) as u64 == 0);
            assert!(p.groups <= p.blocks * THREADS * 4 / group as u32);
            assert!(p.rest <= (launch.blocks - p.blocks) * THREADS);
            done += p.groups as usize * group + p.rest as usize;
        }
        assert_eq!(done, count);
    }
    let bounds = Bounds { low: 0, high: 1, is_whole: true };
    let mut done = 0;
    for launch in launches(&Work::Check { dtype: source, bounds }, &[span(1)], &[span(2)], SMALL) {
        let Params::Check(p) = launch.params else { panic!("{launch:?}") };
        assert_eq!((p.start, p.from - span(1).address), (done as u64, (done * source.size()) as u64));
        done += p.groups as usize * if source.size() == 8 { 2 } else { 4 } + p.rest as usize;
    }
    assert_eq!(done, count);
    let mut done = 0;
    let each = if source.is_float() { 8 } else { 16 };
    for launch in launches(&Work::Sums { dtype: source, square: true }, &[span(1)], &[span(2)], SMALL) {
        let Params::Sums(p) = launch.params else { panic!("{launch:?}") };
        assert_eq!(p.to - span(2).address, (done as u64).div_ceil(4096) * each);
        done += p.count as usize;
    }
    assert_eq!(done, count);
}

fn past() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0u64, 0, 1, 2, 4, 8, 12])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_rows(
        rows in 1usize..9,
        runs in prop::collection::vec(0usize..40, 1..8),
        size in prop::sample::select(vec![1usize, 2, 4, 8, 16]),
        past in prop::collection::vec(past(), 1..4),
        small in any::<bool>(),
    ) {
        let runs: Vec<_> = runs.iter().map(|run| run * size).collect();
        prop_assume!(runs.iter().sum::<usize>() > 0);
        check_rows(rows, &runs, &past, if small { SMALL } else { LIMITS });
    }

    #[test]
    fn any_permutation(
        dims in prop::collection::vec(1usize..24, 1..5),
        order in Just(vec![0usize, 1, 2, 3]).prop_shuffle(),
        size in prop::sample::select(vec![1usize, 2, 4, 8]),
        from in past(),
        to in past(),
        small in any::<bool>(),
    ) {
        let order: Vec<_> = order.into_iter().filter(|axis| *axis < dims.len()).collect();
        let plan = Permutation::new(&dims, &order, size);
        prop_assume!(plan.bytes() < 20_000);
        check_permutation(plan, [from, to], if small { SMALL } else { LIMITS });
    }
}
