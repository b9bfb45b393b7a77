//! Every instruction that computes, against Rust's own arithmetic: numbers without a pattern, and those at the edges.

use proptest::prelude::*;

use crate::launch::{Arg, Bench};

/// One instruction: its text, the bits of its result, and what it must give for three values.
struct Case {
    text: &'static str,
    bits: u32,
    oracle: fn(u64, u64, u64) -> u64,
}

/// Cases: `"text" bits |a, b, c| result`, where the text names the operands by letter and bits: `a32`, `d64`.
macro_rules! cases {
    ($($text:literal $bits:literal |$a:ident, $b:ident, $c:ident| $result:expr;)*) => {
        [$(Case {
            text: $text,
            bits: $bits,
            oracle: |$a, $b, $c| {
                let _ = ($a, $b, $c);
                #[allow(clippy::unnecessary_cast, reason = "one form for all widths")]
                { ($result) as u64 }
            },
        }),*]
    };
}

/// A module with a kernel for each case: it loads three words of 8 bytes, runs the instruction, and stores the result.
fn module(cases: &[Case]) -> String {
    let mut text = ".version 8.0\n.target sm_70\n.address_size 64\n".to_string();
    for (index, case) in cases.iter().enumerate() {
        let loads: String = ["a", "b", "c"]
            .iter()
            .enumerate()
            .map(|(at, name)| {
                let load = |bits: u32| format!("ld.global.b{bits} {name}{bits}, [from+{}];\n", 8 * at);
                [load(16), load(32), load(64)].concat()
            })
            .collect();
        text += &format!(
            ".visible .entry op{index}(.param .u64 first, .param .u64 result)\n{{
            .reg .pred p, q; .reg .b16 a16, b16, c16, d16; .reg .b32 a32, b32, c32, d32, lane;
            .reg .b64 a64, b64, c64, d64, from, to, at;
            ld.param.u64 from, [first]; ld.param.u64 to, [result]; mov.u32 lane, %tid.x;
            mul.wide.u32 at, lane, 24; add.s64 from, from, at; mul.wide.u32 at, lane, 8; add.s64 to, to, at;
            {loads}{};\nst.global.b{bits} [to], d{bits};\nret;\n}}\n",
            case.text,
            bits = case.bits
        );
    }
    text
}

const EDGES: &[u64] = &[
    0, 1, 2, 31, 32, 33, 63, 64, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff,
    0x1_0000_0000, 0x7fff_ffff_ffff_ffff, 0x8000_0000_0000_0000, !0, // and floats of both precisions:
    0x3f80_0000, 0xbf80_0000, 0x3f00_0000, 0x4020_0000, 0x4f00_0000, 0x5f00_0000, 0x7f80_0000, 0xff80_0000,
    0x7fc0_0000, 0x7f80_0001, 0x0080_0000, 0x007f_ffff, 0x7f7f_ffff, 0x437f_0000, 0x4380_0000, 0xc300_0000,
    0xc301_0000, 0x3ff0_0000_0000_0000, 0xbff0_0000_0000_0000, 0x4004_0000_0000_0000, 0x43e0_0000_0000_0000,
    0x43f0_0000_0000_0000, 0x41df_ffff_ffc0_0000, 0x41e0_0000_0000_0000, 0x7ff0_0000_0000_0000, 0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000, 0x7ff0_0000_0000_0001, 0x0010_0000_0000_0000, 0x0000_0000_0000_0001, 0x7fef_ffff_ffff_ffff,
    0x47ef_ffff_f000_0000,
];

/// Words of all kinds: edges, small numbers, floats near whole numbers, anything.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        prop::sample::select(EDGES),
        0..100u64,
        any::<u64>(),
        any::<u32>().prop_map(u64::from),
        (-70_000.0..70_000.0f32).prop_map(|value| u64::from(value.to_bits())),
        (-1e10..1e10f64).prop_map(f64::to_bits),
        (-300i64..300).prop_map(|value| (value as f64 / 2.0).to_bits()),
        (-300i64..300).prop_map(|value| u64::from((value as f32 / 2.0).to_bits())),
    ]
}

/// Runs all cases on words without a pattern.
fn check(cases: &[Case]) {
    const THREADS: usize = 256;
    let bench = Bench::new(&module(cases));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 8, ..ProptestConfig::default() });
    let words = prop::collection::vec(word(), 3 * THREADS);
    let result = runner.run(&words, |words| {
        let halves: Vec<u32> = words.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]).collect();
        let from = bench.upload(&halves);
        for (index, case) in cases.iter().enumerate() {
            let to = bench.upload(&[0; 2 * THREADS]);
            bench.run(&format!("op{index}"), [1, 1, 1], [THREADS as u32, 1, 1], &[Arg::U64(from), Arg::U64(to)]);
            let mask = !0 >> (64 - case.bits);
            for (values, found) in words.chunks_exact(3).zip(bench.download_u64(to, THREADS)) {
                let wanted = (case.oracle)(values[0], values[1], values[2]) & mask;
                prop_assert_eq!(found, wanted, "{}: {:x?} gives {:x}, not {:x}", case.text, values, found, wanted);
            }
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn whole_numbers() {
    check(&cases! {
        "add.s32 d32, a32, b32" 32 |a, b, c| (a as u32).wrapping_add(b as u32);
        "sub.s16 d16, a16, b16" 16 |a, b, c| (a as u16).wrapping_sub(b as u16);
        "mul.lo.s64 d64, a64, b64" 64 |a, b, c| a.wrapping_mul(b);
        "mul.lo.s16 d16, a16, b16" 16 |a, b, c| (a as u16).wrapping_mul(b as u16);
        "mul.hi.s32 d32, a32, b32" 32 |a, b, c| (i64::from(a as i32) * i64::from(b as i32)) >> 32;
        "mul.hi.u32 d32, a32, b32" 32 |a, b, c| (u64::from(a as u32) * u64::from(b as u32)) >> 32;
        "mul.hi.u64 d64, a64, b64" 64 |a, b, c| (u128::from(a) * u128::from(b)) >> 64;
        "mul.hi.s64 d64, a64, b64" 64 |a, b, c| (i128::from(a as i64) * i128::from(b as i64)) >> 64;
        "mul.wide.s32 d64, a32, b32" 64 |a, b, c| i64::from(a as i32) * i64::from(b as i32);
        "mul.wide.u16 d32, a16, b16" 32 |a, b, c| u32::from(a as u16) * u32::from(b as u16);
        "div.s32 d32, a32, b32" 32 |a, b, c| if b as i32 == 0 { -1 } else { (a as i32).wrapping_div(b as i32) };
        "div.u32 d32, a32, b32" 32 |a, b, c| (a as u32).checked_div(b as u32).unwrap_or(!0);
        "div.u64 d64, a64, b64" 64 |a, b, c| a.checked_div(b).unwrap_or(!0);
        "rem.s64 d64, a64, b64" 64 |a, b, c| if b == 0 { -1 } else { (a as i64).wrapping_rem(b as i64) };
        "rem.u32 d32, a32, b32" 32 |a, b, c| (a as u32).checked_rem(b as u32).unwrap_or(!0);
        "min.s32 d32, a32, b32" 32 |a, b, c| (a as i32).min(b as i32);
        "max.u64 d64, a64, b64" 64 |a, b, c| a.max(b);
        "max.s16 d16, a16, b16" 16 |a, b, c| (a as i16).max(b as i16);
        "mad.lo.s32 d32, a32, b32, c32" 32 |a, b, c| (a as u32).wrapping_mul(b as u32).wrapping_add(c as u32);
        "mad.wide.u32 d64, a32, b32, c64" 64 |a, b, c| (u64::from(a as u32) * u64::from(b as u32)).wrapping_add(c);
        "mad.hi.s32 d32, a32, b32, c32" 32
            |a, b, c| (((i64::from(a as i32) * i64::from(b as i32)) >> 32) as i32).wrapping_add(c as i32);
        "neg.s32 d32, a32" 32 |a, b, c| (a as i32).wrapping_neg();
        "abs.s64 d64, a64" 64 |a, b, c| (a as i64).wrapping_abs();
        "dp4a.u32.u32 d32, a32, b32, c32" 32 |a, b, c| {
            let pairs = (a as u32).to_le_bytes().into_iter().zip((b as u32).to_le_bytes());
            pairs.fold(c as u32, |sum, (a, b)| sum.wrapping_add(u32::from(a) * u32::from(b)))
        };
        "dp4a.s32.u32 d32, a32, b32, c32" 32 |a, b, c| {
            let pairs = (a as u32).to_le_bytes().into_iter().zip((b as u32).to_le_bytes());
            pairs.fold(c as i32, |sum, (a, b)| sum.wrapping_add(i32::from(a as i8) * i32::from(b)))
        };
        "sad.s32 d32, a32, b32, c32" 32 |a, b, c| (a as i32).abs_diff(b as i32).wrapping_add(c as u32);
    });
}

#[test]
fn bits() {
    check(&cases! {
        "and.b64 d64, a64, b64" 64 |a, b, c| a & b;
        "or.b32 d32, a32, b32" 32 |a, b, c| a | b;
        "xor.b16 d16, a16, b16" 16 |a, b, c| a ^ b;
        "not.b32 d32, a32" 32 |a, b, c| !a;
        "shl.b32 d32, a32, b32" 32 |a, b, c| (a as u32).checked_shl(b as u32).unwrap_or(0);
        "shl.b16 d16, a16, b32" 16 |a, b, c| if (b as u32) < 16 { (a as u16) << (b as u32) } else { 0 };
        "shr.u64 d64, a64, b32" 64 |a, b, c| a.checked_shr(b as u32).unwrap_or(0);
        "shr.s32 d32, a32, b32" 32 |a, b, c| (a as i32) >> (b as u32).min(31);
        "shr.s16 d16, a16, b32" 16 |a, b, c| (a as i16) >> (b as u32).min(15);
        "popc.b64 d32, a64" 32 |a, b, c| a.count_ones();
        "clz.b32 d32, a32" 32 |a, b, c| (a as u32).leading_zeros();
        "brev.b64 d64, a64" 64 |a, b, c| a.reverse_bits();
        "bfind.u32 d32, a32" 32 |a, b, c| 31u32.wrapping_sub((a as u32).leading_zeros());
        "bfind.s32 d32, a32" 32 |a, b, c| {
            let bits = if (a as i32) < 0 { !a as u32 } else { a as u32 };
            31u32.wrapping_sub(bits.leading_zeros())
        };
        "shf.l.wrap.b32 d32, a32, b32, c32" 32 |a, b, c| {
            let pair = u64::from(b as u32) << 32 | u64::from(a as u32);
            (pair << (c % 32)) >> 32
        };
        "shf.r.clamp.b32 d32, a32, b32, c32" 32 |a, b, c| {
            let pair = u64::from(b as u32) << 32 | u64::from(a as u32);
            pair >> (c as u32).min(32)
        };
        "lop3.b32 d32, a32, b32, c32, 0x96" 32 |a, b, c| a ^ b ^ c;
        "lop3.b32 d32, a32, b32, c32, 0xca" 32 |a, b, c| (a & b) | (!a & c);
        "bfe.u32 d32, a32, 5, 9" 32 |a, b, c| (a as u32 >> 5) & 0x1ff;
        "bfe.s64 d64, a64, 60, 3" 64 |a, b, c| ((a as i64) << 1) >> 61;
        "bfi.b32 d32, a32, b32, 4, 8" 32 |a, b, c| (b as u32 & !0xff0) | ((a as u32 & 0xff) << 4);
        "prmt.b32 d32, a32, b32, 0x7250" 32 |a, b, c| {
            let (a, b) = ((a as u32).to_le_bytes(), (b as u32).to_le_bytes());
            u32::from_le_bytes([a[0], b[1], a[2], b[3]])
        };
        "mov.b64 {d32, c32}, a64; mov.b64 d64, {c32, d32}" 64 |a, b, c| a.rotate_left(32);
        "setp.lt.and.s32 p|q, a32, b32, p; selp.b32 d32, 1, 2, q" 32 |a, b, c| 2;
        "setp.gt.u32 q, a32, b32; setp.lt.or.s32 p, a32, b32, !q; selp.b32 d32, a32, b32, p" 32
            |a, b, c| if (a as i32) < b as i32 || a as u32 <= b as u32 { a } else { b };
    });
}

fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn g(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// Bits of a result: what is not a number has one pattern.
fn one(value: f32) -> u32 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits() }
}

fn two(value: f64) -> u64 {
    if value.is_nan() { 0xfff8_0000_0000_0000 } else { value.to_bits() }
}

#[test]
fn floats() {
    check(&cases! {
        "add.rn.f32 d32, a32, b32" 32 |a, b, c| one(f(a) + f(b));
        "sub.rn.f64 d64, a64, b64" 64 |a, b, c| two(g(a) - g(b));
        "mul.rn.f32 d32, a32, b32" 32 |a, b, c| one(f(a) * f(b));
        "mul.rn.f64 d64, a64, b64" 64 |a, b, c| two(g(a) * g(b));
        "div.rn.f32 d32, a32, b32" 32 |a, b, c| one(f(a) / f(b));
        "div.rn.f64 d64, a64, b64" 64 |a, b, c| two(g(a) / g(b));
        "fma.rn.f32 d32, a32, b32, c32" 32 |a, b, c| one(f(a).mul_add(f(b), f(c)));
        "fma.rn.f64 d64, a64, b64, c64" 64 |a, b, c| two(g(a).mul_add(g(b), g(c)));
        "sqrt.rn.f32 d32, a32" 32 |a, b, c| one(f(a).sqrt());
        "rcp.rn.f64 d64, a64" 64 |a, b, c| two(1.0 / g(a));
        "neg.f32 d32, a32" 32 |a, b, c| a ^ 0x8000_0000;
        "abs.f64 d64, a64" 64 |a, b, c| a & !(1 << 63);
        "copysign.f32 d32, a32, b32" 32 |a, b, c| f(b).copysign(f(a)).to_bits();
        // Rust leaves the sign of a zero open here.
        "max.f32 d32, a32, b32" 32 |a, b, c| match (f(a), f(b)) {
            (x, y) if x == 0.0 && y == 0.0 => a & b,
            (x, y) => u64::from(one(x.max(y))),
        };
        "min.f64 d64, a64, b64" 64 |a, b, c| match (g(a), g(b)) {
            (x, y) if x == 0.0 && y == 0.0 => a | b,
            (x, y) => two(x.min(y)),
        };
        "setp.lt.f32 p, a32, b32; selp.b32 d32, 1, 0, p" 32 |a, b, c| f(a) < f(b);
        "setp.neu.f64 p, a64, b64; selp.b32 d32, 1, 0, p" 32 |a, b, c| g(a) != g(b);
        "setp.ne.f64 p, a64, b64; selp.b32 d32, 1, 0, p" 32 |a, b, c| g(a) < g(b) || g(a) > g(b);
        "setp.geu.f32 p, a32, b32; selp.b32 d32, 1, 0, p" 32 |a, b, c| f(a).partial_cmp(&f(b)).is_none_or(|order| order.is_ge());
        "setp.num.f32 p, a32, b32; selp.b32 d32, 1, 0, p" 32 |a, b, c| !f(a).is_nan() && !f(b).is_nan();
        "setp.nan.f64 p, a64, b64; selp.b32 d32, 1, 0, p" 32 |a, b, c| g(a).is_nan() || g(b).is_nan();
    });
}

#[test]
fn conversions() {
    // Rust takes the nearest number too, but 0 for what is not a number; the ISA does so only where nothing has 64
    // bits.
    const TOP: u64 = 1 << 63;
    check(&cases! {
        "cvt.rzi.s32.f32 d32, a32" 32 |a, b, c| f(a) as i32;
        "cvt.rzi.u32.f32 d32, a32" 32 |a, b, c| f(a) as u32;
        "cvt.rni.s32.f32 d32, a32" 32 |a, b, c| f(a).round_ties_even() as i32;
        "cvt.rmi.s32.f32 d32, a32" 32 |a, b, c| f(a).floor() as i32;
        "cvt.rpi.u32.f32 d32, a32" 32 |a, b, c| f(a).ceil() as u32;
        "cvt.rzi.s8.f32 d32, a32" 32 |a, b, c| i32::from(f(a) as i8);
        "cvt.rzi.u8.f32 d32, a32" 32 |a, b, c| f(a) as u8;
        "cvt.rzi.s16.f32 d16, a32" 16 |a, b, c| f(a) as i16;
        "cvt.rzi.s64.f32 d64, a32" 64 |a, b, c| if f(a).is_nan() { TOP } else { f(a) as i64 as u64 };
        "cvt.rzi.u64.f32 d64, a32" 64 |a, b, c| if f(a).is_nan() { TOP } else { f(a) as u64 };
        "cvt.rzi.u64.f64 d64, a64" 64 |a, b, c| if g(a).is_nan() { TOP } else { g(a) as u64 };
        "cvt.rzi.s32.f64 d32, a64" 32 |a, b, c| if g(a).is_nan() { i32::MIN } else { g(a) as i32 };
        "cvt.rni.s64.f64 d64, a64" 64 |a, b, c| if g(a).is_nan() { TOP } else { g(a).round_ties_even() as i64 as u64 };
        "cvt.rn.f32.s32 d32, a32" 32 |a, b, c| (a as i32 as f32).to_bits();
        "cvt.rn.f32.u64 d32, a64" 32 |a, b, c| (a as f32).to_bits();
        "cvt.rn.f32.s64 d32, a64" 32 |a, b, c| (a as i64 as f32).to_bits();
        "cvt.rn.f64.u64 d64, a64" 64 |a, b, c| (a as f64).to_bits();
        "cvt.rn.f64.s32 d64, a32" 64 |a, b, c| f64::from(a as i32).to_bits();
        "cvt.rn.f32.f64 d32, a64" 32 |a, b, c| one(g(a) as f32);
        "cvt.f64.f32 d64, a32" 64 |a, b, c| two(f64::from(f(a)));
        "cvt.rzi.f32.f32 d32, a32" 32 |a, b, c| one(f(a).trunc());
        "cvt.rni.f64.f64 d64, a64" 64 |a, b, c| two(g(a).round_ties_even());
        "cvt.s64.s16 d64, a16" 64 |a, b, c| i64::from(a as i16);
        "cvt.u64.u8 d64, a32" 64 |a, b, c| a & 0xff;
        "cvt.s32.s8 d32, a32" 32 |a, b, c| i32::from(a as i8);
        "cvt.u16.u64 d16, a64" 16 |a, b, c| a;
        "cvt.sat.s8.s32 d32, a32" 32 |a, b, c| (a as i32).clamp(-128, 127);
        "cvt.sat.u32.s64 d32, a64" 32 |a, b, c| (a as i64).clamp(0, i64::from(u32::MAX));
    });
}

#[test]
fn half_precision() {
    let cases = cases! {
        "cvt.rn.f16.f32 d16, a32" 16 |a, b, c| a;
        "cvt.f32.f16 d32, a16" 32 |a, b, c| a;
    };
    let bench = Bench::new(&module(&cases));
    let run = |kernel: &str, value: u64| {
        let (from, to) = (bench.upload(&[value as u32, 0, 0, 0, 0, 0]), bench.upload(&[0, 0]));
        bench.run(kernel, [1, 1, 1], [1, 1, 1], &[Arg::U64(from), Arg::U64(to)]);
        bench.download_u64(to, 1)[0]
    };
    // The greatest number; the tie that becomes infinite; subnormals with ties to even; a tie at 1; what is not a
    // number.
    let pairs = [
        (65504.0, 0x7bff),
        (65519.9, 0x7bff),
        (65520.0, 0x7c00),
        (-0.0, 0x8000),
        (5.960_464_5e-8, 1),
        (2.980_232_2e-8, 0),
        (8.940_697e-8, 2),
        (1.0 + 0.000_488_281_25, 0x3c00),
        (1.0 + 3.0 * 0.000_488_281_25, 0x3c02),
        (f32::NAN, 0x7fff),
    ];
    for (value, half) in pairs {
        assert_eq!(run("op0", u64::from(value.to_bits())), half, "{value}");
    }
    for (half, value) in
        [(0x7bff, 65504.0f32), (1, 5.960_464_5e-8), (0xfc00, f32::NEG_INFINITY), (0x3c01, 1.000_976_6), (0x8000, -0.0)]
    {
        assert_eq!(run("op1", half), u64::from(value.to_bits()), "{half:x}");
    }
}
