//! Naive twins of the kernels over bytes at addresses: every byte of an output is written once, with the right value,
//! by aligned words within the operands.

use super::super::{ITEMS, Launch, Limits, Span};
use crate::device::params::{Axis, Fill, Narrow, Params, Rows, Squares, Strided, THREADS, Tiles};

/// Operands at addresses, with how often each byte was written.
pub(super) struct Memory(pub(super) Vec<(u64, Vec<u8>, Vec<u32>)>);

impl Memory {
    /// Operands of these lengths, far apart, each some bytes past a multiple of 16.
    pub(super) fn new(lens: &[(usize, u64)]) -> (Memory, Vec<Span>) {
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

    pub(super) fn check(&self, operand: usize, wanted: &[u8]) {
        let (_, bytes, written) = &self.0[operand];
        assert!(written.iter().all(|times| *times == 1), "operand {operand}: {written:?}");
        assert_eq!(bytes, wanted, "operand {operand}");
    }

    pub(super) fn carry_out(&mut self, launches: &[Launch], limits: Limits) {
        for launch in launches {
            assert!(u64::from(launch.blocks) * u64::from(THREADS) < 1 << 32, "{launch:?}");
            let (_, width) = launch.kernel.rsplit_once('_').unwrap_or(("", "16"));
            let width: usize = width.parse().unwrap_or(16);
            match &launch.params {
                Params::Rows(p) => self.rows(p, width, launch.blocks, limits),
                Params::Strided(p) => self.strided(p, width, launch.blocks, limits),
                Params::Tiles(p) => self.tiles(p, width, launch),
                Params::Narrow(p) => self.narrow(p, width, launch.blocks),
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
        // Some kernels move several entries at once, along both sides.
        let word = match launch.kernel {
            "packed_1" | "packed_2" | "wide_1" => 4,
            "wide_2" | "wide_4" => 8,
            _ => width,
        };
        let n = (word / width) as u32;
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

    /// In words of four bytes or more, along both sides; a block has no more of them than its shared memory.
    fn narrow(&mut self, p: &Narrow, width: usize, blocks: u32) {
        assert_eq!(blocks, Axis::count(&p.outer) * p.chunks());
        assert!(p.side * p.words <= if width == 4 { 2048 } else { 1024 });
        let word = width.max(4);
        let n = (word / width) as u32;
        assert_eq!(p.words * n, p.chunk);
        for outer in 0..Axis::count(&p.outer) {
            let (outer_from, outer_to) = place(&p.outer, outer);
            let (from, to) = (p.from + outer_from, p.to + outer_to);
            for (l, s) in (0..p.len).flat_map(|l| (0..p.side).map(move |s| (l, s))) {
                let (flat, row) = (u64::from(l * p.side + s), u64::from(s) * p.pitch + u64::from(l) * width as u64);
                let (source, target) = if p.gather { (flat * width as u64, row) } else { (row, flat * width as u64) };
                let (in_flat, in_row) = (l * p.side + s, l);
                let [in_source, in_target] = if p.gather { [in_flat, in_row] } else { [in_row, in_flat] };
                if in_source.is_multiple_of(n) {
                    self.load(from + source, word);
                }
                if in_target.is_multiple_of(n) {
                    self.load(to + target, word);
                }
                self.copy(from + source, to + target, width);
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
