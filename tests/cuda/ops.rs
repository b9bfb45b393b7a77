//! Every operation on the device gives the host's bytes: ragged shapes, all dtypes, NaN payloads, addresses of every
//! alignment, several orders of blocks and warps.

use std::fmt::Debug;
use std::sync::Arc;

use blob_core::{AnyBlob, DType, Part, Shape};
use blob_ops::Scalar;
use fake_cuda::control::Session;
use synced_mem::{Queue, SharedMem};

use crate::{expect_no_leaks, gpu, seed};

/// Bytes without a pattern; every third element of a float is one of the kinds that are handled apart.
fn noise(dtype: DType, count: usize, salt: u64) -> Vec<u8> {
    let mut state = salt.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let size = dtype.size();
    let element = |_| match dtype {
        DType::Bool => vec![(word() >> 9) as u8 & 1],
        _ if dtype.is_float() && word() >> 11 & 3 == 0 => special(dtype, word()),
        _ => word().to_ne_bytes()[..size].to_vec(),
    };
    (0..count).flat_map(element).collect()
}

/// Zeros, subnormal numbers, infinities, quiet and signalling NaN of either sign, small whole numbers, ends of ranges.
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

/// Runs it on the host and on the queue, which must be the same.
fn same<R: PartialEq + Debug>(queue: &Arc<dyn Queue>, what: &str, run: impl Fn() -> R) {
    let host = blob_ops::on_host(&run);
    let there = blob_ops::on(queue, &run);
    assert!(host == there, "{what}: on the host {host:?}\non the device {there:?}");
}

/// A device for each of these seeds, all of which must be given back.
fn with_gpus(seeds: std::ops::Range<u64>, run: impl Fn(&Arc<dyn Queue>, &Session)) {
    for number in seeds {
        let (session, gpu, queue) = gpu(seed(number));
        run(&queue, &session);
        drop((queue, gpu));
        expect_no_leaks(&session);
    }
}

fn numbers() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|dtype| *dtype != DType::Bool)
}

#[test]
fn merges_and_splits() {
    with_gpus(0..4, |queue, _| {
        for dtype in [DType::U8, DType::F16, DType::F32, DType::F64] {
            for (outer, extents, inner) in
                [(1, &[7, 5][..], 3), (3, &[4, 8, 4], 16), (65, &[1, 1, 1], 1), (5, &[3, 0, 2], 7), (2, &[300, 1], 1)]
            {
                let part = |(at, len): (usize, &usize)| blob(dtype, &[outer, *len, inner], at as u64);
                let parts: Vec<_> = extents.iter().enumerate().map(part).collect();
                let parts: Vec<_> = parts.iter().collect();
                let what = format!("{dtype:?} {outer} x {extents:?} x {inner}");
                same(queue, &what, || bytes(&blob_ops::merge(&parts, 1).unwrap()));
                let whole = blob_ops::merge(&parts, 1).unwrap();
                same(queue, &what, || {
                    blob_ops::split(&whole, 1, extents).unwrap().iter().map(bytes).collect::<Vec<_>>()
                });
            }
        }
    });
}

/// Beyond the table of one launch.
#[test]
fn more_parts_than_a_launch_takes() {
    with_gpus(0..1, |queue, _| {
        let parts: Vec<_> = (0..400).map(|at| blob(DType::U16, &[2, 1 + at % 3], at as u64)).collect();
        let parts: Vec<_> = parts.iter().collect();
        same(queue, "400 parts", || bytes(&blob_ops::merge(&parts, 1).unwrap()));
    });
}

#[test]
fn permutations_and_transpositions() {
    with_gpus(0..3, |queue, _| {
        for dtype in [DType::U8, DType::BF16, DType::I32, DType::F64] {
            for (dims, order) in [
                (&[64, 64][..], &[1, 0][..]),
                (&[33, 70], &[1, 0]),
                (&[2, 20, 36], &[0, 2, 1]),
                (&[2, 3, 11, 13], &[0, 2, 3, 1]),
                (&[2, 11, 13, 3], &[0, 3, 1, 2]),
                (&[5, 6, 4, 2], &[2, 1, 0, 3]),
                (&[20, 24, 4], &[1, 0, 2]),
                (&[20, 24, 2], &[1, 0, 2]),
                (&[3, 4, 5, 2, 3, 2], &[5, 4, 3, 2, 1, 0]),
                (&[6, 35], &[0, 1]),
                (&[0, 4], &[1, 0]),
            ] {
                let from = blob(dtype, dims, 1);
                same(queue, &format!("{dtype:?} {dims:?}"), || bytes(&blob_ops::permute(&from, order).unwrap()));
            }
            for dims in [&[3, 40, 40][..], &[32, 32], &[1, 33, 33], &[7, 1, 1]] {
                same(queue, &format!("{dtype:?} {dims:?} in place"), || {
                    let mut turned = blob(dtype, dims, 2);
                    blob_ops::transpose_in_place(&mut turned).unwrap();
                    bytes(&turned)
                });
            }
        }
    });
}

#[test]
fn arithmetic() {
    with_gpus(0..2, |queue, _| {
        for dtype in numbers() {
            for count in [1, 15, 16, 300, 1100] {
                let what = |op: &str| format!("{op} of {count} {dtype:?}");
                let in_place = |op: &dyn Fn(&mut AnyBlob, &AnyBlob)| {
                    let (mut y, x) = (blob(dtype, &[count], 1), blob(dtype, &[count], 2));
                    op(&mut y, &x);
                    bytes(&y)
                };
                let part = Part::Data;
                same(queue, &what("add"), || in_place(&|y, x| blob_ops::add(y, x, part).unwrap()));
                same(queue, &what("flushing"), || {
                    in_place(&|y, x| blob_ops::add_flush_subnormals(y, x, part).unwrap());
                });
                for alpha in [0, 1, 3, 100] {
                    same(queue, &what("axpy"), || in_place(&|y, x| blob_ops::axpy(y, alpha, x, part).unwrap()));
                    same(queue, &what("scale"), || in_place(&|y, _| blob_ops::scale(y, alpha, part).unwrap()));
                }
                if dtype.is_float() {
                    same(queue, &what("axpy"), || in_place(&|y, x| blob_ops::axpy(y, -0.3, x, part).unwrap()));
                    same(queue, &what("scale"), || in_place(&|y, _| blob_ops::scale(y, f64::NAN, part).unwrap()));
                }
                same(queue, &what("update"), || {
                    in_place(&|y, x| {
                        y.diff_mut().bytes().unwrap().copy_from_slice(&bytes(x));
                        blob_ops::update(y).unwrap();
                    })
                });
            }
        }
    });
}

#[test]
fn fills() {
    with_gpus(0..2, |queue, _| {
        for &dtype in DType::ALL {
            for dims in [[1, 1, 1, 1, 1, 1, 5], [2, 1, 3, 1, 1, 7, 11]] {
                same(queue, &format!("{dtype:?} {dims:?}"), || {
                    let mut filled = blob(dtype, &dims, 1);
                    blob_ops::fill(&mut filled, 1, Part::Data).unwrap();
                    let last = dims[..3].iter().product::<usize>() - 1;
                    blob_ops::clear_object(&mut filled, last, Part::Data).unwrap();
                    bytes(&filled)
                });
            }
        }
    });
}

#[test]
fn conversions_of_every_pair() {
    with_gpus(0..1, |queue, _| {
        for &from in DType::ALL {
            for &to in DType::ALL {
                for count in [3, 700] {
                    let source = blob(from, &[count], 5);
                    let what = format!("{count} of {from:?} to {to:?}");
                    same(queue, &what, || bytes(&blob_ops::convert(&source, to).unwrap()));
                    same(queue, &what, || {
                        let checked = blob_ops::convert_checked(&source, to);
                        checked.map(|out| bytes(&out)).map_err(|error| error.to_string())
                    });
                }
            }
        }
    });
}

/// Where every element survives, and where only the last does not.
#[test]
fn checked_conversions_find_the_first() {
    with_gpus(0..4, |queue, _| {
        for (from, at) in [(DType::F32, 999), (DType::F32, 0), (DType::I64, 700), (DType::U16, 513)] {
            same(queue, &format!("{from:?} {at}"), || {
                let mut source = AnyBlob::new(Shape::new([1000]).unwrap(), from).unwrap();
                blob_ops::fill(&mut source, 7, Part::Data).unwrap();
                let survives = blob_ops::convert_checked(&source, DType::U8).map(|out| bytes(&out));
                for lost in [at, 999] {
                    let size = from.size();
                    let large =
                        if from == DType::F32 { 300f32.to_ne_bytes().to_vec() } else { 300u64.to_ne_bytes().to_vec() };
                    source.data_mut().bytes().unwrap()[lost * size..][..size].copy_from_slice(&large[..size]);
                }
                let lost = blob_ops::convert_checked(&source, DType::U8).map(|out| bytes(&out));
                (survives.is_ok(), lost.map_err(|error| error.to_string()))
            });
        }
    });
}

#[test]
fn sums() {
    with_gpus(0..2, |queue, _| {
        for dtype in numbers() {
            for count in [1, 255, 4096, 5000, 8200] {
                let mut summed = blob(dtype, &[count], 3);
                if dtype.is_float() && count != 255 {
                    // Without NaN, so that the order of additions shows.
                    let values = AnyBlob::from_vec(Shape::new([count]).unwrap(), DType::I8, noise(DType::I8, count, 4));
                    summed = blob_ops::convert(&values.unwrap(), dtype).unwrap();
                    blob_ops::scale(&mut summed, 0.37, Part::Data).unwrap();
                }
                let sum = |sum: Result<Scalar, blob_ops::Error>| match sum {
                    Ok(Scalar::F(sum)) => format!("{:x}", sum.to_bits()),
                    other => format!("{other:?}"),
                };
                let what = format!("{count} of {dtype:?}");
                same(queue, &what, || sum(blob_ops::asum(&summed, Part::Data)));
                same(queue, &what, || sum(blob_ops::sumsq(&summed, Part::Data)));
            }
        }
    });
}

/// Memory that begins some bytes past an aligned address of the device.
fn displaced(queue: &Arc<dyn Queue>, from: &AnyBlob, past: usize) -> AnyBlob {
    let base = SharedMem::from([vec![0; past], bytes(from)].concat());
    let address = base.device_mut(queue, ..).unwrap().arg_mut().address() + past as u64;
    let memory = SharedMem::new(from.byte_len());
    // SAFETY: the bytes lie in `base`, which nothing else uses and which the adopted memory keeps.
    unsafe { memory.adopt_device(queue, address, from.byte_len(), Box::new(base)).unwrap() };
    AnyBlob::from_parts(from.shape().clone(), from.dtype(), memory, None).unwrap()
}

#[test]
fn operands_at_every_alignment() {
    with_gpus(0..2, |queue, _| {
        for dtype in [DType::U8, DType::F16, DType::F32, DType::I64] {
            for past in [1, 2, 4, 8] {
                let what = |op: &str| format!("{op} of {dtype:?}, {past} bytes past");
                let (a, b) = (blob(dtype, &[20, 20], 1), blob(dtype, &[20, 20], 2));
                let check = |op: &str, host: &dyn Fn(&mut AnyBlob, &AnyBlob)| {
                    let (mut wanted, mut found) = (a.try_clone().unwrap(), displaced(queue, &a, past));
                    blob_ops::on_host(|| host(&mut wanted, &b));
                    blob_ops::on(queue, || host(&mut found, &displaced(queue, &b, past)));
                    assert_eq!(bytes(&found), bytes(&wanted), "{}", what(op));
                };
                check("add", &|y, x| blob_ops::add(y, x, Part::Data).unwrap());
                check("fill", &|y, _| blob_ops::fill(y, 5, Part::Data).unwrap());
                check("merge", &|y, x| {
                    let [upper, lower] = [0..12, 12..20].map(|rows| {
                        let size = dtype.size() * 20;
                        let part = bytes(x)[rows.start * size..rows.end * size].to_vec();
                        AnyBlob::from_vec(Shape::new([rows.len(), 20]).unwrap(), dtype, part).unwrap()
                    });
                    blob_ops::merge_into(&[&upper, &lower], 0, y).unwrap();
                });
                check("transpose", &|y, x| blob_ops::transpose_into(x, 0, 1, y).unwrap());
                check("in place", &|y, _| blob_ops::transpose_in_place(y).unwrap());
                check("convert", &|y, x| {
                    let wide = blob_ops::convert(x, DType::F64).unwrap();
                    blob_ops::convert_into(&wide, y, Part::Data).unwrap();
                });
                let summed = displaced(queue, &a, past);
                let wanted = blob_ops::on_host(|| format!("{:?}", blob_ops::sumsq(&a, Part::Data)));
                let found = blob_ops::on(queue, || format!("{:?}", blob_ops::sumsq(&summed, Part::Data)));
                assert_eq!(found, wanted, "{}", what("sum"));
            }
        }
    });
}

/// Scalars and tensors without elements.
#[test]
fn nothing_to_do() {
    with_gpus(0..1, |queue, _| {
        for &dtype in DType::ALL {
            for dims in [&[][..], &[0], &[1], &[0, 3], &[3, 0], &[2, 0, 0], &[1, 1]] {
                let all = || -> Vec<String> {
                    let x = blob(dtype, dims, 1);
                    let part = Part::Data;
                    let order: Vec<_> = (0..dims.len()).rev().collect();
                    let mut y = blob(dtype, dims, 2);
                    let mut said = Vec::new();
                    let mut say = |result: Result<Vec<u8>, blob_ops::Error>| said.push(format!("{result:?}"));
                    say(blob_ops::permute(&x, &order).map(|out| bytes(&out)));
                    if !dims.is_empty() {
                        say(blob_ops::merge(&[&x, &x], 0).map(|out| bytes(&out)));
                        say(blob_ops::split(&x, 0, &[dims[0], 0]).map(|out| out.iter().flat_map(bytes).collect()));
                        say(blob_ops::transpose(&x, 0, dims.len() - 1).map(|out| bytes(&out)));
                    }
                    say(blob_ops::transpose_in_place(&mut y).map(|()| bytes(&y)));
                    say(blob_ops::add(&mut y, &x, part).map(|()| bytes(&y)));
                    say(blob_ops::axpy(&mut y, 3, &x, part).map(|()| bytes(&y)));
                    say(blob_ops::scale(&mut y, 3, part).map(|()| bytes(&y)));
                    say(blob_ops::update(&mut y).map(|()| bytes(&y)));
                    say(blob_ops::fill(&mut y, 1, part).map(|()| bytes(&y)));
                    say(blob_ops::convert(&x, DType::F64).map(|out| bytes(&out)));
                    say(blob_ops::convert_checked(&x, DType::I8).map(|out| bytes(&out)));
                    said.push(format!("{:?}", blob_ops::asum(&x, part)));
                    said
                };
                same(queue, &format!("{dtype:?} {dims:?}"), all);
            }
        }
    });
}
