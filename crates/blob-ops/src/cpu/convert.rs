//! Elements of one dtype to another, and the search for values that another dtype cannot hold.
//!
//! ```text
//! for each element:                target = T::saturate(E::lane(element))
//! search, for each step of 512:    held = all lanes x with low ≤ x ≤ high (floats: below a limit, or whole)
//! ```
//! Relies on `lanes.rs` for reading and on `narrow.rs` for the 16-bit floats. Knows no blobs and no threads.

use super::Isa;
use super::lanes::{Bool, Element, Lane, Scratch, with_element};
use super::machine::{Kernel, Lines, Machine, Store};
use super::narrow::{Odd, to_bf16, to_f16};
use crate::scalar::Scalar;
use crate::work::Bounds;
use blob_core::DType;
use bytemuck::Pod;
use half::{bf16, f16};
use std::marker::PhantomData;

/// Elements tested before the question whether one was lost.
const STEP: usize = 512;

/// A dtype that a lane can become.
pub(crate) trait Target<L> {
    /// The bytes of an element.
    type Raw: Pod;

    /// The nearest element; out of range the nearest end, which is Inf for floats. NaN becomes 0 in types without one.
    fn saturate(x: L) -> Self::Raw;
}

macro_rules! from_lanes {
    ($each:ident!($($arguments:tt)*)) => {
        $each!($($arguments)* i8); $each!($($arguments)* u8);
        $each!($($arguments)* i16); $each!($($arguments)* u16);
        $each!($($arguments)* i32); $each!($($arguments)* u32);
        $each!($($arguments)* i64); $each!($($arguments)* u64);
        $each!($($arguments)* f32); $each!($($arguments)* f64);
    };
}

/// One of the expressions that make a target of a lane.
macro_rules! target {
    ($target:ty, $raw:ty, $x:ident => $made:expr, $lane:ty) => {
        impl Target<$lane> for $target {
            type Raw = $raw;
            #[inline(always)]
            fn saturate($x: $lane) -> $raw {
                $made
            }
        }
    };
}

macro_rules! to_float {
    ($target:ident $lane:ty) => {
        target!($target, [u8; size_of::<$target>()], x => (x as $target).to_ne_bytes(), $lane);
    };
}
from_lanes!(to_float!(f64));

macro_rules! to_f32 {
    // From f16 and bf16, which are widened: a NaN that signals is made quiet, as any other conversion does.
    (f32) => {
        target!(f32, [u8; 4], x => {
            let quiet = if x.is_nan() { 1 << 22 } else { 0 };
            (x.to_bits() | quiet).to_ne_bytes()
        }, f32);
    };
    ($lane:ty) => {
        target!(f32, [u8; 4], x => (x as f32).to_ne_bytes(), $lane);
    };
}
from_lanes!(to_f32!());

macro_rules! to_half {
    ($target:ident, $narrow:ident, $lane:ty) => {
        target!($target, [u8; 2], x => $narrow(x.odd()).to_ne_bytes(), $lane);
    };
}
from_lanes!(to_half!(f16, to_f16,));
from_lanes!(to_half!(bf16, to_bf16,));

macro_rules! to_bool {
    ($lane:ty) => {
        target!(Bool, [u8; 1], x => [u8::from(x != <$lane>::ZERO)], $lane);
    };
}
from_lanes!(to_bool!());

macro_rules! to_integer {
    // `as` saturates.
    ($target:ident f32) => {
        target!($target, [u8; size_of::<$target>()], x => (x as $target).to_ne_bytes(), f32);
    };
    ($target:ident f64) => {
        target!($target, [u8; size_of::<$target>()], x => (x as $target).to_ne_bytes(), f64);
    };
    // Here `as` would wrap.
    ($target:ident $lane:ident) => {
        target!($target, [u8; size_of::<$target>()], x => {
            const LOW: $lane = clamped($target::MIN as i128, $lane::MIN as i128, $lane::MAX as i128) as $lane;
            const HIGH: $lane = clamped($target::MAX as i128, $lane::MIN as i128, $lane::MAX as i128) as $lane;
            (x.clamp(LOW, HIGH) as $target).to_ne_bytes()
        }, $lane);
    };
}
from_lanes!(to_integer!(i8));
from_lanes!(to_integer!(u8));
from_lanes!(to_integer!(i16));
from_lanes!(to_integer!(u16));
from_lanes!(to_integer!(i32));
from_lanes!(to_integer!(u32));
from_lanes!(to_integer!(i64));
from_lanes!(to_integer!(u64));

const fn clamped(x: i128, low: i128, high: i128) -> i128 {
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}

/// Converts whole elements of one dtype to as many of another.
pub(crate) fn convert(isa: Isa, store: Store, from: DType, source: &[u8], to: DType, target: &mut [u8]) {
    if from == to && from != DType::Bool {
        return target.copy_from_slice(source);
    }
    with_element!(from, E => with_element!(to, T => isa.run(Convert::<E, T> {
        source,
        target,
        store,
        types: PhantomData,
    })))
}

struct Convert<'a, E, T> {
    source: &'a [u8],
    target: &'a mut [u8],
    store: Store,
    types: PhantomData<(E, T)>,
}

impl<E: Element, T: Target<E::Lane>> Kernel for Convert<'_, E, T> {
    type Out = ();
    #[inline(always)]
    fn run<M: Machine>(self) {
        // Of parts that begin within a line, two would write the line.
        if self.store.of_runs(BUFFER, self.target) == Store::Cached {
            return saturate::<E, T>(self.source, self.target);
        }
        let Lines(buffer) = &mut Lines([0; BUFFER]);
        let (parts, rest) = self.target.as_chunks_mut::<BUFFER>();
        let mut sources = self.source.chunks_exact(BUFFER / size_of::<T::Raw>() * E::SIZE);
        for (part, source) in parts.iter_mut().zip(&mut sources) {
            saturate::<E, T>(source, buffer);
            M::stream(part, buffer);
        }
        saturate::<E, T>(sources.remainder(), rest);
    }
}

/// Bytes that are converted before they are written past the caches: few, so that reading and writing alternate
/// closely. 128 MiB of f16 to f32 take 0.8 of memcpy's time, 1.9 with 4 KiB; f32 to f16 0.6 and 0.9 (AMD EPYC Zen 4).
const BUFFER: usize = 256;

/// Converts whole elements, one after the other.
#[inline(always)]
fn saturate<E: Element, T: Target<E::Lane>>(source: &[u8], target: &mut [u8]) {
    let source = bytemuck::cast_slice::<u8, E::Raw>(source);
    let target = bytemuck::cast_slice_mut::<u8, T::Raw>(target);
    for (target, raw) in target.iter_mut().zip(source) {
        *target = T::saturate(E::lane(*raw));
    }
}

/// The values that a dtype holds without more loss than rounding.
#[derive(Clone, Copy)]
enum Holds {
    /// The whole numbers from the first to the last.
    Whole(i128, i128),
    /// Everything whose magnitude is below this, and Inf and NaN.
    Below(f64),
}

impl Holds {
    fn of(dtype: DType) -> Holds {
        with_element!(dtype, E => E::holds())
    }

    /// Below the middle between the greatest number of so wide a fraction and the next that a wider exponent would
    /// have.
    fn below(fraction_bits: i32, exponent: i32) -> Holds {
        Holds::Below((2.0 - 2f64.powi(-fraction_bits)) * 2f64.powi(exponent))
    }
}

/// An element type, by the values that it holds.
trait Holding {
    fn holds() -> Holds;
}

macro_rules! holding {
    ($($element:ident => $holds:expr;)*) => { $(
        impl Holding for $element {
            fn holds() -> Holds {
                $holds
            }
        }
    )* };
    (whole $($integer:ident)*) => {
        holding! { $($integer => Holds::Whole($integer::MIN.into(), $integer::MAX.into());)* }
    };
}

holding!(whole u8 i8 i16 u16 i32 u32 i64 u64);
holding! {
    Bool => Holds::Whole(0, 1);
    f16 => Holds::below(11, 15);
    bf16 => Holds::below(8, 127);
    f32 => Holds::below(24, 127);
    f64 => Holds::Below(f64::INFINITY);
}

/// A lane that can be looked at through [`Holds`], brought into one type once.
trait Bounded: Lane {
    type Bounds: Copy;
    fn bounds(holds: Holds) -> Self::Bounds;
    fn words(bounds: Self::Bounds) -> Bounds;
    fn is_held(self, bounds: Self::Bounds) -> bool;
}

macro_rules! bounded_integer {
    ($($lane:ident)*) => { $(
        impl Bounded for $lane {
            type Bounds = ($lane, $lane);
            fn bounds(holds: Holds) -> Self::Bounds {
                let (low, high) = match holds {
                    Holds::Whole(low, high) => (low, high),
                    // Saturates; the limits are whole and not among the values held.
                    Holds::Below(limit) => (1 - limit as i128, limit as i128 - 1),
                };
                let fit = |x| clamped(x, $lane::MIN as i128, $lane::MAX as i128) as $lane;
                (fit(low), fit(high))
            }
            fn words((low, high): Self::Bounds) -> Bounds {
                Bounds { low: low as u64, high: high as u64, is_whole: true }
            }
            #[inline(always)]
            fn is_held(self, (low, high): Self::Bounds) -> bool {
                (self >= low) & (self <= high)
            }
        }
    )* };
}
bounded_integer!(i8 u8 i16 u16 i32 u32 i64 u64);

/// Of floats: the first number that is held, the first above that is not, and which fractions are looked at.
#[derive(Clone, Copy)]
enum Floats<L> {
    Whole(L, L),
    Below(L),
}

macro_rules! bounded_float {
    ($($lane:ident)*) => { $(
        impl Bounded for $lane {
            type Bounds = Floats<$lane>;
            fn bounds(holds: Holds) -> Self::Bounds {
                match holds {
                    // Powers of two, or zero or one: exact.
                    Holds::Whole(low, high) => Floats::Whole(low as $lane, (high + 1) as $lane),
                    Holds::Below(limit) => Floats::Below(limit as $lane),
                }
            }
            fn words(bounds: Self::Bounds) -> Bounds {
                match bounds {
                    Floats::Whole(low, end) => {
                        Bounds { low: low.to_bits().into(), high: end.to_bits().into(), is_whole: true }
                    }
                    Floats::Below(limit) => Bounds { low: 0, high: limit.to_bits().into(), is_whole: false },
                }
            }
            #[inline(always)]
            fn is_held(self, bounds: Self::Bounds) -> bool {
                match bounds {
                    Floats::Whole(low, end) => {
                        (self >= low) & (self < end) & (self.trunc() == self)
                    }
                    Floats::Below(limit) => (self.abs() < limit) | !Lane::is_finite(self),
                }
            }
        }
    )* };
}
bounded_float!(f32 f64);

/// The values of `from` that `to` holds, as the kernels of a device compare it.
pub(crate) fn bounds(from: DType, to: DType) -> Bounds {
    let holds = Holds::of(to);
    with_element!(from, E => <E as Element>::Lane::words(<E as Element>::Lane::bounds(holds)))
}

/// The first of whole elements that `to` does not hold, with its index.
pub(crate) fn first_lost(isa: Isa, from: DType, source: &[u8], to: DType) -> Option<(usize, Scalar)> {
    let holds = Holds::of(to);
    with_element!(from, E => isa.run(Search::<E> {
        source,
        holds,
        element: PhantomData,
    }))
}

struct Search<'a, E> {
    source: &'a [u8],
    holds: Holds,
    element: PhantomData<E>,
}

impl<E: Element<Lane: Bounded>> Kernel for Search<'_, E> {
    type Out = Option<(usize, Scalar)>;
    #[inline(always)]
    fn run<M: Machine>(self) -> Self::Out {
        let bounds = E::Lane::bounds(self.holds);
        let mut scratch = Scratch::default();
        for (block, bytes) in self.source.chunks(STEP * E::SIZE).enumerate() {
            let lanes = E::lanes(bytes, &mut scratch);
            let held = lanes.iter().fold(true, |held, x| held & x.is_held(bounds));
            if !held {
                let found = lanes.iter().position(|x| !x.is_held(bounds))?;
                return Some((block * STEP + found, lanes[found].scalar()));
            }
        }
        None
    }
}

/// One number as an element of a dtype, in its first bytes; none where the dtype does not hold it.
pub(crate) fn single(scalar: Scalar, to: DType) -> Option<[u8; 8]> {
    let holds = Holds::of(to);
    let mut element = [0; 8];
    macro_rules! one {
        ($x:ident: $lane:ty) => {
            with_element!(to, T => {
                let raw = <T as Target<$lane>>::saturate($x);
                element[..to.size()].copy_from_slice(bytemuck::bytes_of(&raw));
                $x.is_held(<$lane>::bounds(holds))
            })
        };
    }
    let held = match scalar {
        Scalar::I(x) => one!(x: i64),
        Scalar::U(x) => one!(x: u64),
        Scalar::F(x) => one!(x: f64),
    };
    held.then_some(element)
}
