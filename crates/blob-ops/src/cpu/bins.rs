//! The counting loop of a histogram: places for a run of elements, then an increment for each.
//!
//! ```text
//! for each run of 256: place[i] = ⌊(x[i]·factor − start)·scale⌋; then for each i: table[i mod 4][place[i]] += 1
//! ```
//! Four tables take turns, so that equal neighbours do not wait for each other's store.

use super::Isa;
use super::lanes::{BLOCK, Element, Lane, Scratch, with_element};
use super::machine::{Kernel, Machine};
use blob_core::DType;
use std::marker::PhantomData;

/// Places worked out at a time.
const RUN: usize = 256;

/// Bits of a place number.
const PLACE_BITS: u32 = 17;

/// Added to a number below 2¹⁷ it leaves the whole part in the upper fraction bits: a conversion in one addition.
const SHIFTER: f64 = (1u32 << PLACE_BITS) as f64;

/// The most bins: two more places fit into [`PLACE_BITS`].
pub(crate) const MAX_BINS: usize = 1 << 16;

/// Where a value is counted: place `(x·factor − start)·scale`, rounded to 2⁻³⁵ and then down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// A power of two that keeps `max − min` away from overflow and underflow.
    pub(crate) factor: f64,
    /// `min·factor`.
    pub(crate) start: f64,
    pub(crate) scale: f64,
    pub(crate) bins: u32,
}

impl Grid {
    /// Below `bins` a bin; `bins` for `max` itself and values that round to `max`; above, values in no bin.
    #[inline(always)]
    fn place(&self, x: f64) -> u64 {
        // False for NaN, and for ±Inf since both ends are finite.
        let inside = x >= self.min && x <= self.max;
        let place = (x * self.factor - self.start) * self.scale;
        let place = if inside { place } else { f64::from(self.bins + 1) };
        (place + SHIFTER).to_bits() >> (f64::MANTISSA_DIGITS - 1 - PLACE_BITS)
    }
}

/// The counts: a power of two of places, four times.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    grid: Grid,
    tables: [Vec<u64>; 4],
}

impl Tables {
    pub(crate) fn new(grid: Grid) -> Self {
        let places = (grid.bins as usize + 2).next_power_of_two().max(RUN);
        Tables { grid, tables: [(); 4].map(|()| vec![0; places]) }
    }

    /// Counts whole elements.
    pub(crate) fn count(&mut self, isa: Isa, dtype: DType, bytes: &[u8], scratch: &mut Scratch) {
        with_element!(dtype, E => isa.run(Count::<E> { bytes, scratch, tables: self, element: PhantomData }))
    }

    /// The counts of the bins, then of values in none.
    pub(crate) fn counts(&self) -> (Vec<u64>, u64) {
        let place = |place: usize| self.tables.iter().map(|table| table[place]).sum::<u64>();
        let bins = self.grid.bins as usize;
        let mut counts: Vec<u64> = (0..bins).map(place).collect();
        counts[bins - 1] += place(bins);
        (counts, place(bins + 1))
    }
}

struct Count<'a, E> {
    bytes: &'a [u8],
    scratch: &'a mut Scratch,
    tables: &'a mut Tables,
    element: PhantomData<E>,
}

impl<E: Element> Kernel for Count<'_, E> {
    type Out = ();
    #[inline(always)]
    fn run<M: Machine>(self) {
        let grid = self.tables.grid;
        let mut tables = self.tables.tables.each_mut().map(Vec::as_mut_slice);
        let mut places = [0; RUN];
        for bytes in self.bytes.chunks(BLOCK * E::SIZE) {
            for lanes in E::lanes(bytes, self.scratch).chunks(RUN) {
                for (place, x) in places.iter_mut().zip(lanes) {
                    *place = grid.place(x.wide());
                }
                increment(&mut tables, &places[..lanes.len()]);
            }
        }
    }
}

#[inline(always)]
fn increment(tables: &mut [&mut [u64]; 4], places: &[u64]) {
    // Few bins, the usual case: a place is a byte and every table long enough, so nothing is checked.
    if let [Ok(a), Ok(b), Ok(c), Ok(d)] = tables.each_mut().map(|table| <&mut [u64; 256]>::try_from(&mut **table)) {
        let (fours, rest) = places.as_chunks();
        for &[i, j, k, l] in fours {
            a[usize::from(i as u8)] += 1;
            b[usize::from(j as u8)] += 1;
            c[usize::from(k as u8)] += 1;
            d[usize::from(l as u8)] += 1;
        }
        for &i in rest {
            a[usize::from(i as u8)] += 1;
        }
        return;
    }
    for (i, place) in places.iter().enumerate() {
        tables[i % 4][*place as usize & ((1 << PLACE_BITS) - 1)] += 1;
    }
}
