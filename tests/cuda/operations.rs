//! Checks that every operation on a device gives the same bytes as on the host: ragged shapes, all dtypes, NaN
//! payloads, addresses of every alignment.
//!
//! The tests compile this file for the driver of `fake-cuda`, and `benches/gpu` for a GPU. It does not know either.

use std::fmt::Debug;
use std::sync::Arc;

use blob_core::{AnyBlob, DType, Part, Shape};
use blob_ops::{At, Scalar};
use synced_mem::{Queue, SharedMem};

/// Pseudo-random elements; a quarter of the floats are special values.
fn noise(dtype: DType, count: usize, salt: u64) -> Vec<u8> {
    let mut state = salt.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let size = dtype.size();
    (0..count)
        .flat_map(|_| match dtype {
            DType::Bool => vec![(word() >> 9) as u8 & 1],
            _ if dtype.is_float() && word() >> 11 & 3 == 0 => special(dtype, word()),
            _ => word().to_ne_bytes()[..size].to_vec(),
        })
        .collect()
}

/// A special value: zero, subnormal, infinity, quiet or signalling NaN, 1, or the end of a range, of either sign.
fn special(dtype: DType, word: u64) -> Vec<u8> {
    let single = [0u32, 1, 0x7F80_0000, 0x7F80_0001, 0x7FC1_2345, 0x3F80_0000, 0x4F00_0000, 0x477F_E000];
    let double = [
        0u64,
        3,
        0x7FF0 << 48,
        (0x7FF0 << 48) + 5,
        0x7FF8_1234_5678_9ABC,
        0x3FF0 << 48,
        0x43E0 << 48,
        0x40EF_FC00 << 32,
    ];
    let half = [0u16, 1, 0x7C00, 0x7C01, 0x7E23, 0x3C00, 0x7BFF, 0x0400];
    let brain = [0u16, 1, 0x7F80, 0x7F81, 0x7FC5, 0x3F80, 0x7F7F, 0x0080];
    let (at, sign) = (word as usize % 8, word >> 63);
    match dtype {
        DType::F16 => (half[at] | (sign as u16) << 15).to_ne_bytes().to_vec(),
        DType::BF16 => (brain[at] | (sign as u16) << 15).to_ne_bytes().to_vec(),
        DType::F32 => (single[at] | (sign as u32) << 31).to_ne_bytes().to_vec(),
        _ => (double[at] | sign << 63).to_ne_bytes().to_vec(),
    }
}

fn blob(dtype: DType, dims: &[usize], salt: u64) -> AnyBlob {
    let shape = Shape::new(dims).unwrap();
    let bytes = noise(dtype, shape.count(), salt);
    AnyBlob::from_vec(shape, dtype, bytes).unwrap()
}

fn bytes(blob: &AnyBlob) -> Vec<u8> {
    blob.data().bytes().unwrap().to_vec()
}

/// Compares the results of a queue with the host's.
pub(crate) struct Comparison<'a> {
    queue: &'a Arc<dyn Queue>,
    /// How often each result is computed on the queue.
    rounds: u64,
    /// Called with the number of each round before it.
    prepare: &'a dyn Fn(u64),
}

impl<'a> Comparison<'a> {
    pub(crate) fn new(queue: &'a Arc<dyn Queue>, rounds: u64, prepare: &'a dyn Fn(u64)) -> Self {
        Self { queue, rounds, prepare }
    }

    /// Runs an operation on the host, and on the queue in each round, and asserts that the results are equal.
    fn same<R: PartialEq + Debug>(&self, what: &str, run: impl Fn(&At) -> R) {
        let (host, gpu) = (run(&blob_ops::at_host()), blob_ops::at(self.queue));
        self.each(|round| {
            let device = run(&gpu);
            assert!(host == device, "{what}, round {round}: on the host {host:?}\non the device {device:?}");
        });
    }

    fn each(&self, run: impl Fn(u64)) {
        for round in 0..self.rounds {
            (self.prepare)(round);
            run(round);
        }
    }
}

fn numbers() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|dtype| *dtype != DType::Bool)
}

pub(crate) fn merges_and_splits(check: &Comparison<'_>) {
    for dtype in [DType::U8, DType::F16, DType::F32, DType::F64] {
        for (outer, extents, inner) in
            [(1, &[7, 5][..], 3), (3, &[4, 8, 4], 16), (65, &[1, 1, 1], 1), (5, &[3, 0, 2], 7), (2, &[300, 1], 1)]
        {
            let parts = extents
                .iter()
                .enumerate()
                .map(|(at, len): (usize, &usize)| blob(dtype, &[outer, *len, inner], at as u64));
            let parts: Vec<_> = parts.collect();
            let parts: Vec<_> = parts.iter().collect();
            let what = format!("{dtype:?} {outer} x {extents:?} x {inner}");
            check.same(&what, |at| bytes(&at.merge(&parts, 1).unwrap()));
            let whole = blob_ops::merge(&parts, 1).unwrap();
            check.same(&what, |at| at.split(&whole, 1, extents).unwrap().iter().map(bytes).collect::<Vec<_>>());
        }
    }
}

/// More parts than the table of one launch can hold.
pub(crate) fn more_parts_than_a_launch_takes(check: &Comparison<'_>) {
    let parts: Vec<_> = (0..400).map(|at| blob(DType::U16, &[2, 1 + at % 3], at as u64)).collect();
    let parts: Vec<_> = parts.iter().collect();
    check.same("400 parts", |at| bytes(&at.merge(&parts, 1).unwrap()));
}

pub(crate) fn permutations_and_transpositions(check: &Comparison<'_>) {
    for dtype in [DType::U8, DType::BF16, DType::I32, DType::F64] {
        for (dims, order) in [
            (&[64, 64][..], &[1, 0][..]),
            (&[33, 70], &[1, 0]),
            (&[2, 20, 36], &[0, 2, 1]),
            (&[2, 3, 11, 13], &[0, 2, 3, 1]),
            (&[2, 11, 13, 3], &[0, 3, 1, 2]),
            (&[5, 6, 4, 2], &[2, 1, 0, 3]),
            (&[2, 3, 40, 44], &[0, 2, 3, 1]),
            (&[2, 40, 44, 3], &[0, 3, 1, 2]),
            (&[31, 333], &[1, 0]),
            (&[2, 512, 16], &[0, 2, 1]),
            (&[600, 2, 4], &[1, 0, 2]),
            (&[264, 272], &[1, 0]),
            (&[20, 24, 4], &[1, 0, 2]),
            (&[20, 24, 2], &[1, 0, 2]),
            (&[3, 4, 5, 2, 3, 2], &[5, 4, 3, 2, 1, 0]),
            (&[6, 35], &[0, 1]),
            // Where it is cut, rows of whole words that do not begin at words; a run that is longer than a launch.
            (&[65, 64], &[1, 0]),
            (&[2, 3, 1001], &[1, 0, 2]),
            (&[0, 4], &[1, 0]),
        ] {
            let from = blob(dtype, dims, 1);
            check.same(&format!("{dtype:?} {dims:?}"), |at| bytes(&at.permute(&from, order).unwrap()));
        }
        for dims in [&[3, 40, 40][..], &[32, 32], &[1, 33, 33], &[7, 1, 1]] {
            check.same(&format!("{dtype:?} {dims:?} in place"), |at| {
                let mut turned = blob(dtype, dims, 2);
                at.transpose_in_place(&mut turned).unwrap();
                bytes(&turned)
            });
        }
    }
}

pub(crate) fn arithmetic(check: &Comparison<'_>) {
    for dtype in numbers() {
        for count in [15, 16, 1100] {
            let what = |op: &str| format!("{op} of {count} {dtype:?}");
            let in_place = |op: &dyn Fn(&mut AnyBlob, &AnyBlob)| {
                let (mut y, x) = (blob(dtype, &[count], 1), blob(dtype, &[count], 2));
                op(&mut y, &x);
                bytes(&y)
            };
            let part = Part::Data;
            check.same(&what("add"), |at| in_place(&|y, x| at.add(y, x, part).unwrap()));
            check.same(&what("flushing"), |at| {
                in_place(&|y, x| at.add_flush_subnormals(y, x, part).unwrap());
            });
            for alpha in [0, 1, 3, 100] {
                check.same(&what("axpy"), |at| in_place(&|y, x| at.axpy(y, alpha, x, part).unwrap()));
                check.same(&what("scale"), |at| in_place(&|y, _| at.scale(y, alpha, part).unwrap()));
            }
            if dtype.is_float() {
                check.same(&what("axpy"), |at| in_place(&|y, x| at.axpy(y, -0.3, x, part).unwrap()));
                check.same(&what("scale"), |at| in_place(&|y, _| at.scale(y, f64::NAN, part).unwrap()));
            }
            check.same(&what("update"), |at| {
                in_place(&|y, x| {
                    y.diff_mut().bytes().unwrap().copy_from_slice(&bytes(x));
                    at.update(y).unwrap();
                })
            });
        }
    }
}

pub(crate) fn fills(check: &Comparison<'_>) {
    for &dtype in DType::ALL {
        for dims in [[1, 1, 1, 1, 1, 1, 5], [2, 1, 3, 1, 1, 7, 11]] {
            check.same(&format!("{dtype:?} {dims:?}"), |at| {
                let mut filled = blob(dtype, &dims, 1);
                at.fill(&mut filled, 1, Part::Data).unwrap();
                let last = dims[..3].iter().product::<usize>() - 1;
                at.fill_object(&mut filled, last, 0, Part::Data).unwrap();
                bytes(&filled)
            });
        }
    }
}

pub(crate) fn conversions_of_every_pair(check: &Comparison<'_>) {
    for &from in DType::ALL {
        for &to in DType::ALL {
            for count in [3, 700] {
                let source = blob(from, &[count], 5);
                let what = format!("{count} of {from:?} to {to:?}");
                check.same(&what, |at| bytes(&at.convert(&source, to).unwrap()));
                check.same(&what, |at| {
                    let checked = at.convert_checked(&source, to);
                    checked.map(|out| bytes(&out)).map_err(|error| error.to_string())
                });
            }
        }
    }
}

/// Conversions that keep every element, and ones that lose only the one at `at`.
pub(crate) fn checked_conversions_find_the_first(check: &Comparison<'_>) {
    for (from, at) in [(DType::F32, 999), (DType::F32, 0), (DType::I64, 700), (DType::U16, 513)] {
        check.same(&format!("{from:?} {at}"), |place| {
            let mut source = AnyBlob::new(Shape::new([1000]).unwrap(), from).unwrap();
            place.fill(&mut source, 7, Part::Data).unwrap();
            let survives = place.convert_checked(&source, DType::U8).map(|out| bytes(&out));
            for lost in [at, 999] {
                let size = from.size();
                let large =
                    if from == DType::F32 { 300f32.to_ne_bytes().to_vec() } else { 300u64.to_ne_bytes().to_vec() };
                source.data_mut().bytes().unwrap()[lost * size..][..size].copy_from_slice(&large[..size]);
            }
            let lost = place.convert_checked(&source, DType::U8).map(|out| bytes(&out));
            (survives.is_ok(), lost.map_err(|error| error.to_string()))
        });
    }
}

pub(crate) fn sums(check: &Comparison<'_>) {
    for dtype in numbers() {
        for count in [1, 255, 4096, 5000, 8200] {
            same_sums(check, dtype, count, count == 255);
        }
    }
}

/// Two values in one lane: with the square of the second rounded, the sum is rounded down; added unrounded, up. In
/// longer sums such a difference is lost in later additions.
pub(crate) fn squares_are_rounded_before_they_are_added(check: &Comparison<'_>) {
    let mut values = [0.0_f64; 241];
    // The square's last bits are just under half a unit of the last place, and the first value's are a sixteenth.
    (values[0], values[240]) = (2_f64.powi(-28), 1.0 + 47_453_132.0 * f64::EPSILON);
    let [first, second] = [values[0] * values[0], values[240] * values[240]];
    let (naive, fused) = (first + second, values[240].mul_add(values[240], first));
    assert_ne!(naive, fused);
    let bytes = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let summed = AnyBlob::from_vec(Shape::new([241]).unwrap(), DType::F64, bytes).unwrap();
    check.same("two squares of F64", |at| match at.sumsq(&summed, Part::Data) {
        Ok(Scalar::F(sum)) => assert_eq!(sum.to_bits(), naive.to_bits()),
        other => panic!("{other:?}"),
    });
}

/// So many blocks that the device also adds up their sums.
pub(crate) fn sums_of_many_blocks(check: &Comparison<'_>) {
    for (dtype, has_nan) in [(DType::U8, false), (DType::I64, false), (DType::F32, false), (DType::F16, true)] {
        same_sums(check, dtype, 259 * 4096 - 5, has_nan);
    }
}

/// Compares the sums of a tensor. Without NaN, a sum of floats depends on the order of the additions.
fn same_sums(check: &Comparison<'_>, dtype: DType, count: usize, has_nan: bool) {
    let mut summed = blob(dtype, &[count], 3);
    if dtype.is_float() && !has_nan {
        let values = AnyBlob::from_vec(Shape::new([count]).unwrap(), DType::I8, noise(DType::I8, count, 4));
        summed = blob_ops::convert(&values.unwrap(), dtype).unwrap();
        blob_ops::scale(&mut summed, 0.37, Part::Data).unwrap();
    }
    let sum = |sum: Result<Scalar, blob_ops::Error>| match sum {
        Ok(Scalar::F(sum)) => format!("{:x}", sum.to_bits()),
        other => format!("{other:?}"),
    };
    let what = format!("{count} of {dtype:?}");
    check.same(&what, |at| sum(at.asum(&summed, Part::Data)));
    check.same(&what, |at| sum(at.sumsq(&summed, Part::Data)));
}

/// A copy of a blob whose device memory begins `past` bytes after an aligned address.
pub(crate) fn displaced(queue: &Arc<dyn Queue>, from: &AnyBlob, past: usize) -> AnyBlob {
    let base = SharedMem::from([vec![0; past], bytes(from)].concat());
    let address = base.device_mut(queue, ..).unwrap().arg_mut().address() + past as u64;
    let memory = SharedMem::new(from.byte_len());
    // SAFETY: the bytes lie in `base`, which nothing else uses and which the adopted memory keeps.
    unsafe { memory.adopt_device(queue, address, from.byte_len(), Box::new(base)).unwrap() };
    AnyBlob::from_parts(from.shape().clone(), from.dtype(), memory, None).unwrap()
}

pub(crate) fn operands_at_every_alignment(check: &Comparison<'_>) {
    for dtype in [DType::U8, DType::F16, DType::F32, DType::I64] {
        for past in [1, 2, 4, 8] {
            let what = |op: &str| format!("{op} of {dtype:?}, {past} bytes past");
            let (a, b) = (blob(dtype, &[20, 20], 1), blob(dtype, &[20, 20], 2));
            let same = |op: &str, run: &dyn Fn(&At, &mut AnyBlob, &AnyBlob)| {
                let mut wanted = a.try_clone().unwrap();
                run(&blob_ops::at_host(), &mut wanted, &b);
                check.each(|round| {
                    let mut found = displaced(check.queue, &a, past);
                    run(&blob_ops::at(check.queue), &mut found, &displaced(check.queue, &b, past));
                    assert_eq!(bytes(&found), bytes(&wanted), "{}, round {round}", what(op));
                });
            };
            same("add", &|at, y, x| at.add(y, x, Part::Data).unwrap());
            same("fill", &|at, y, _| at.fill(y, 5, Part::Data).unwrap());
            same("merge", &|at, y, x| {
                let [upper, lower] = [0..12, 12..20].map(|rows| {
                    let size = dtype.size() * 20;
                    let part = bytes(x)[rows.start * size..rows.end * size].to_vec();
                    AnyBlob::from_vec(Shape::new([rows.len(), 20]).unwrap(), dtype, part).unwrap()
                });
                at.merge_into(&[&upper, &lower], 0, y).unwrap();
            });
            same("transpose", &|at, y, x| at.transpose_into(x, 0, 1, y).unwrap());
            same("in place", &|at, y, _| at.transpose_in_place(y).unwrap());
            same("convert", &|at, y, x| {
                let wide = at.convert(x, DType::F64).unwrap();
                at.convert_into(&wide, y, Part::Data).unwrap();
            });
            check.same(&what("sum"), |at| {
                let summed = displaced(check.queue, &a, past);
                format!("{:?}", at.sumsq(&summed, Part::Data))
            });
        }
    }
}

/// Scalars and tensors without elements.
pub(crate) fn nothing_to_do(check: &Comparison<'_>) {
    for &dtype in DType::ALL {
        for dims in [&[][..], &[0], &[1], &[0, 3], &[3, 0], &[2, 0, 0], &[1, 1]] {
            check.same(&format!("{dtype:?} {dims:?}"), |at: &At| -> Vec<String> {
                let x = blob(dtype, dims, 1);
                let part = Part::Data;
                let order: Vec<_> = (0..dims.len()).rev().collect();
                let mut y = blob(dtype, dims, 2);
                let mut said = Vec::new();
                let mut say = |result: Result<Vec<u8>, blob_ops::Error>| said.push(format!("{result:?}"));
                say(at.permute(&x, &order).map(|out| bytes(&out)));
                if !dims.is_empty() {
                    say(at.merge(&[&x, &x], 0).map(|out| bytes(&out)));
                    say(at.split(&x, 0, &[dims[0], 0]).map(|out| out.iter().flat_map(bytes).collect()));
                    say(at.transpose(&x, 0, dims.len() - 1).map(|out| bytes(&out)));
                }
                say(at.transpose_in_place(&mut y).map(|()| bytes(&y)));
                say(at.add(&mut y, &x, part).map(|()| bytes(&y)));
                say(at.axpy(&mut y, 3, &x, part).map(|()| bytes(&y)));
                say(at.scale(&mut y, 3, part).map(|()| bytes(&y)));
                say(at.update(&mut y).map(|()| bytes(&y)));
                say(at.fill(&mut y, 1, part).map(|()| bytes(&y)));
                say(at.convert(&x, DType::F64).map(|out| bytes(&out)));
                say(at.convert_checked(&x, DType::I8).map(|out| bytes(&out)));
                said.push(format!("{:?}", at.asum(&x, part)));
                said
            });
        }
    }
}
