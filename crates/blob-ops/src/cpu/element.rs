//! Element-wise arithmetic of one run of elements, in place, at any alignment.
//!
//! ```text
//! one operand:  for each group of 64: out = op(y); if any is NaN: out = op(y) with the NaN settled; y = out
//! two operands: for each i: y[i] = op(y[i], x[i])
//! ```
//! Every number is computed in its own type, f16 and bf16 in f32. Nothing is contracted, and which NaN comes out is
//! decided here and not by the order of an instruction's operands, so every instruction set gives the same bits.

use super::lanes::widen_f16;
use super::machine::{Kernel, Machine, Store};
use super::narrow;
use blob_core::{DType, Element};
use bytemuck::Pod;
use half::{bf16, f16};
use std::marker::PhantomData;

/// A dtype that has arithmetic.
pub(crate) trait Number: Sync {
    /// The bytes of an element.
    type Raw: Pod + Send + Sync;
    /// The type of the computation.
    type Value: Value + Pod;
    /// The dtype of that.
    const COMPUTED: DType;

    fn load(raw: Self::Raw) -> Self::Value;
    fn store(value: Self::Value) -> Self::Raw;
    /// A subnormal number becomes the zero of its sign.
    fn flush(raw: Self::Raw) -> Self::Raw;
    fn is_nan(raw: Self::Raw) -> bool;
}

/// A type that kernels compute in. Integers wrap. A NaN is the one that is due, of a product only if it is to be
/// `SETTLED`.
pub(crate) trait Value: Copy + Send + Sync {
    fn plus(self, x: Self) -> Self;
    fn minus(self, x: Self) -> Self;
    fn times<const SETTLED: bool>(self, x: Self) -> Self;
}

macro_rules! integer {
    ($($number:ty)*) => { $(
        impl Number for $number {
            type Raw = [u8; size_of::<$number>()];
            type Value = $number;
            const COMPUTED: DType = <$number as Element>::DTYPE;
            #[inline(always)]
            fn load(raw: Self::Raw) -> $number {
                <$number>::from_ne_bytes(raw)
            }
            #[inline(always)]
            fn store(value: $number) -> Self::Raw {
                value.to_ne_bytes()
            }
            #[inline(always)]
            fn flush(raw: Self::Raw) -> Self::Raw {
                raw
            }
            #[inline(always)]
            fn is_nan(_: Self::Raw) -> bool {
                false
            }
        }

        impl Value for $number {
            #[inline(always)]
            fn plus(self, x: Self) -> Self {
                self.wrapping_add(x)
            }
            #[inline(always)]
            fn minus(self, x: Self) -> Self {
                self.wrapping_sub(x)
            }
            #[inline(always)]
            fn times<const SETTLED: bool>(self, x: Self) -> Self {
                self.wrapping_mul(x)
            }
        }
    )* };
}
integer!(i8 u8 i16 u16 i32 u32 i64 u64);

/// Which NaN an operation gives: the first operand that is NaN, made quiet, else x86's own, which is negative. x86 does
/// so by itself as long as the compiler leaves the operands in their order.
trait Settle {
    fn settle(self, a: Self, b: Self) -> Self;
}

macro_rules! float_value {
    ($value:ident, $quiet:expr, $made:expr) => {
        impl Settle for $value {
            #[inline(always)]
            fn settle(self, a: Self, b: Self) -> Self {
                let of_b = if b.is_nan() { b.to_bits() | $quiet } else { $made };
                let nan = if a.is_nan() { a.to_bits() | $quiet } else { of_b };
                Self::from_bits(if self.is_nan() { nan } else { self.to_bits() })
            }
        }

        impl Value for $value {
            #[inline(always)]
            fn plus(self, x: Self) -> Self {
                (self + x).settle(self, x)
            }
            #[inline(always)]
            fn minus(self, x: Self) -> Self {
                (self - x).settle(self, x)
            }
            #[inline(always)]
            fn times<const SETTLED: bool>(self, x: Self) -> Self {
                let value = self * x;
                if SETTLED { value.settle(self, x) } else { value }
            }
        }
    };
}
float_value!(f32, 0x0040_0000, 0xFFC0_0000);
float_value!(f64, 1 << 51, 0xFFF8 << 48);

macro_rules! float {
    ($number:ty, $value:ty, $word:ty, $exponent:expr, $load:expr, $store:expr) => {
        impl Number for $number {
            type Raw = [u8; size_of::<$number>()];
            type Value = $value;
            const COMPUTED: DType = <$value as Element>::DTYPE;
            #[inline(always)]
            fn load(raw: Self::Raw) -> $value {
                $load(<$word>::from_ne_bytes(raw))
            }
            #[inline(always)]
            fn store(value: $value) -> Self::Raw {
                let word: $word = $store(value);
                word.to_ne_bytes()
            }
            #[inline(always)]
            fn flush(raw: Self::Raw) -> Self::Raw {
                let word = <$word>::from_ne_bytes(raw);
                let sign = word & !(<$word>::MAX >> 1);
                let kept = if word & $exponent == 0 { sign } else { word };
                kept.to_ne_bytes()
            }
            #[inline(always)]
            fn is_nan(raw: Self::Raw) -> bool {
                <$word>::from_ne_bytes(raw) & (<$word>::MAX >> 1) > $exponent
            }
        }
    };
}
float!(f32, f32, u32, 0x7F80_0000, f32::from_bits, f32::to_bits);
float!(f64, f64, u64, 0x7FF0 << 48, f64::from_bits, f64::to_bits);
float!(f16, f32, u16, 0x7C00, widen_f16, narrow::to_f16);
float!(bf16, f32, u16, 0x7F80, widen_bf16, narrow::to_bf16);

#[inline(always)]
fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// A change of one element. Where any operand or intermediate value is a NaN, the result is.
pub(crate) trait Unary<N: Number>: Copy + Sync {
    fn apply<const SETTLED: bool>(self, y: N::Raw) -> N::Raw;
}

/// A change of one element, another one given.
pub(crate) trait Binary<N: Number>: Copy + Sync {
    fn apply(self, y: N::Raw, x: N::Raw) -> N::Raw;
}

/// y + x.
#[derive(Clone, Copy)]
pub(crate) struct Add;

impl<N: Number> Binary<N> for Add {
    #[inline(always)]
    fn apply(self, y: N::Raw, x: N::Raw) -> N::Raw {
        N::store(N::load(y).plus(N::load(x)))
    }
}

/// y + x with subnormal operands and results made zero.
#[derive(Clone, Copy)]
pub(crate) struct FlushedAdd;

impl<N: Number> Binary<N> for FlushedAdd {
    #[inline(always)]
    fn apply(self, y: N::Raw, x: N::Raw) -> N::Raw {
        let sum = N::load(N::flush(y)).plus(N::load(N::flush(x)));
        N::flush(N::store(sum))
    }
}

/// y − x.
#[derive(Clone, Copy)]
pub(crate) struct Subtract;

impl<N: Number> Binary<N> for Subtract {
    #[inline(always)]
    fn apply(self, y: N::Raw, x: N::Raw) -> N::Raw {
        N::store(N::load(y).minus(N::load(x)))
    }
}

/// y + (x·alpha), two roundings.
#[derive(Clone, Copy)]
pub(crate) struct Axpy<V>(pub(crate) V);

impl<N: Number> Binary<N> for Axpy<N::Value> {
    #[inline(always)]
    fn apply(self, y: N::Raw, x: N::Raw) -> N::Raw {
        N::store(N::load(y).plus(N::load(x).times::<true>(self.0)))
    }
}

/// y·alpha.
#[derive(Clone, Copy)]
pub(crate) struct Scale<V>(pub(crate) V);

impl<N: Number> Unary<N> for Scale<N::Value> {
    #[inline(always)]
    fn apply<const SETTLED: bool>(self, y: N::Raw) -> N::Raw {
        N::store(N::load(y).times::<SETTLED>(self.0))
    }
}

/// Elements that are computed before it is asked whether any became a NaN: only then is it settled which. So `scale`
/// of 64 KiB takes 0.65 of memcpy's time, and 0.87 where each is settled; `add` of 256 MiB would take 0.94 instead of
/// 0.86 (f32, AMD EPYC Zen 4).
const NAN_GROUP: usize = 64;

#[inline(always)]
fn any_nan<N: Number>(group: &[N::Raw; NAN_GROUP]) -> bool {
    group.iter().fold(false, |any, &raw| any | N::is_nan(raw))
}

/// Every element of `y`.
pub(crate) struct Map<'a, N, O> {
    pub(crate) y: &'a mut [u8],
    pub(crate) op: O,
    pub(crate) number: PhantomData<N>,
}

impl<N: Number, O: Unary<N>> Kernel for Map<'_, N, O> {
    type Out = ();
    #[inline(always)]
    fn run<M: Machine>(self) {
        let (groups, rest) = bytemuck::cast_slice_mut::<u8, N::Raw>(self.y).as_chunks_mut();
        for y in groups {
            let mut out: [N::Raw; NAN_GROUP] = y.map(|y| self.op.apply::<false>(y));
            if any_nan::<N>(&out) {
                out = y.map(|y| self.op.apply::<true>(y));
            }
            *y = out;
        }
        for y in rest {
            *y = self.op.apply::<true>(*y);
        }
    }
}

/// Every element of `y` with the one of `x` at its place; both are equally long.
pub(crate) struct MapPairs<'a, N, O> {
    pub(crate) y: &'a mut [u8],
    pub(crate) x: &'a [u8],
    pub(crate) op: O,
    pub(crate) number: PhantomData<N>,
}

impl<N: Number, O: Binary<N>> Kernel for MapPairs<'_, N, O> {
    type Out = ();
    #[inline(always)]
    fn run<M: Machine>(self) {
        let y = bytemuck::cast_slice_mut::<u8, N::Raw>(self.y);
        for (y, x) in y.iter_mut().zip(bytemuck::cast_slice(self.x)) {
            *y = self.op.apply(*y, *x);
        }
    }
}

/// The same element over and over.
pub(crate) struct Fill<'a, const W: usize> {
    pub(crate) y: &'a mut [u8],
    pub(crate) value: [u8; W],
    pub(crate) store: Store,
}

impl<const W: usize> Kernel for Fill<'_, W> {
    type Out = ();
    #[inline(always)]
    fn run<M: Machine>(self) {
        if self.store == Store::Cached {
            return self.y.as_chunks_mut().0.fill(self.value);
        }
        let mut page = [0; 4096];
        page.as_chunks_mut().0.fill(self.value);
        for y in self.y.chunks_mut(page.len()) {
            M::stream(y, &page[..y.len()]);
        }
    }
}
