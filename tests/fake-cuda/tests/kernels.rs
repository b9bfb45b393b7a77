//! The sample kernels, run whole: right results on ragged sizes, no reports, and the counts that tell a fast one from a
//! slow one.

use fake_cuda::control::Counts;

use crate::launch::{Arg, Bench};

/// Numbers without a pattern.
pub(crate) fn noise(count: usize) -> Vec<u32> {
    (0..count as u32).map(|index| index.wrapping_mul(0x9E37_79B9) ^ index << 13).collect()
}

fn transposed(values: &[u32], rows: usize, columns: usize) -> Vec<u32> {
    (0..rows * columns).map(|at| values[at % rows * columns + at / rows]).collect()
}

/// Transposes with one of the sample kernels; the counts say what it cost.
fn transpose(bench: &Bench, kernel: &str, rows: usize, columns: usize, seed: u64) -> Counts {
    bench.reseed(seed);
    let values = noise(rows * columns);
    let (from, to) = (bench.upload(&values), bench.block(4 * rows * columns));
    let (grid, block) = match kernel {
        "transpose_naive" => ([columns.div_ceil(32) as u32, rows.div_ceil(8) as u32, 1], [32, 8, 1]),
        _ => ([columns.div_ceil(32) as u32, rows.div_ceil(32) as u32, 1], [32, 8, 1]),
    };
    bench.run(kernel, grid, block, &[Arg::U64(from), Arg::U64(to), Arg::U32(rows as u32), Arg::U32(columns as u32)]);
    assert_eq!(bench.download(to, rows * columns), transposed(&values, rows, columns), "{kernel} {rows} {columns}");
    bench.counts(kernel)
}

#[test]
fn transposes_of_ragged_sizes_in_any_order() {
    for (seed, (rows, columns)) in [(1, 1), (31, 33), (64, 64), (1, 100), (70, 45)].into_iter().enumerate() {
        for kernel in ["transpose_padded", "transpose_tight", "transpose_naive"] {
            transpose(&Bench::samples(), kernel, rows, columns, seed as u64);
        }
    }
}

#[test]
fn counts_tell_slow_transposes_from_a_fast_one() {
    let bench = Bench::samples();
    let [padded, tight, naive] =
        ["transpose_padded", "transpose_tight", "transpose_naive"].map(|kernel| transpose(&bench, kernel, 128, 96, 1));
    assert_eq!([padded.bank_conflict, tight.bank_conflict, naive.bank_conflict], [1, 32, 0]);
    assert_eq!([padded.loads.efficiency(), padded.stores.efficiency()], [1.0; 2]);
    assert_eq!([naive.loads.efficiency(), naive.stores.efficiency()], [1.0, 0.125]);
    assert_eq!([naive.loads.bytes_per_access(), naive.loads.accesses as f64], [4.0, 128.0 * 96.0]);
    assert_eq!((padded.launches, padded.long_divisions), (1, 0));
}

#[test]
fn copies_of_one_and_sixteen_bytes() {
    let bench = Bench::samples();
    let values = noise(1001);
    let from = bench.upload(&values);
    for (kernel, width) in [("copy_u8", 1usize), ("copy_u16x8", 16)] {
        let to = bench.block(4 * 1001);
        let count = 4004 / width;
        let args = [Arg::U64(from), Arg::U64(to), Arg::U64(count as u64)];
        bench.run(kernel, [count.div_ceil(128) as u32, 1, 1], [128, 1, 1], &args);
        let whole = count * width / 4;
        assert_eq!(bench.download(to, whole), values[..whole]);
        assert_eq!(bench.counts(kernel).loads.bytes_per_access(), width as f64);
        assert!(bench.counts(kernel).stores.efficiency() > 0.99);
    }
}

#[test]
fn additions_settle_what_is_not_a_number() {
    let bench = Bench::samples();
    let special =
        [0, 0x8000_0000, 1, 0x7f80_0000, 0xff80_0000, 0x7fc0_0001, 0xffc0_0002, 0x7f80_0003, 0x7f7f_ffff, 0x3f80_0000];
    let pairs: Vec<(u32, u32)> = special.iter().flat_map(|a| special.iter().map(|b| (*a, *b))).collect();
    let (a, b): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
    let (first, second, to) = (bench.upload(&a), bench.upload(&b), bench.block(400));
    bench.run("add_settled", [2, 1, 1], [64, 1, 1], &[Arg::U64(first), Arg::U64(second), Arg::U64(to), Arg::U32(100)]);
    let is_nan = |bits: u32| f32::from_bits(bits).is_nan();
    let wanted = pairs.iter().map(|(a, b)| {
        let sum = f32::from_bits(*a) + f32::from_bits(*b);
        match () {
            () if !sum.is_nan() => sum.to_bits(),
            () if is_nan(*a) => a | 0x40_0000,
            () if is_nan(*b) => b | 0x40_0000,
            () => 0xffc0_0000,
        }
    });
    assert_eq!(bench.download(to, 100), wanted.collect::<Vec<u32>>());
}

#[test]
fn atomics_between_blocks() {
    let bench = Bench::samples();
    let mut values = noise(1000);
    values.iter_mut().for_each(|value| *value &= 0x7fff_ffff);
    (values[700], values[900]) = (0x8000_0000, 0xffff_ffff);
    let (from, first, counts) = (bench.upload(&values), bench.upload(&[!0, !0]), bench.upload(&[0; 8]));
    bench.run("first_negative", [8, 1, 1], [128, 1, 1], &[Arg::U64(from), Arg::U64(first), Arg::U64(1000)]);
    bench.run("count_into", [8, 1, 1], [128, 1, 1], &[Arg::U64(from), Arg::U64(counts), Arg::U32(1000)]);
    assert_eq!(bench.download_u64(first, 1), [700]);
    let mut expected = vec![0; 8];
    values.iter().for_each(|value| expected[(value % 8) as usize] += 1);
    assert_eq!(bench.download(counts, 8), expected);
}

#[test]
fn barriers_order_shared_memory() {
    let bench = Bench::samples();
    let values = noise(64);
    let data = bench.upload(&values);
    bench.run("shift_in_shared", [1, 1, 1], [64, 1, 1], &[Arg::U64(data)]);
    let wanted: Vec<u32> = (0..64).map(|at| values[((at ^ 1) + 1) % 64]).collect();
    assert_eq!(bench.download(data, 64), wanted);
}

#[test]
fn a_table_of_parts_is_a_parameter() {
    let bench = Bench::samples();
    let parts = [noise(10), noise(300), noise(1)];
    let mut table = vec![0u8; 72];
    for (index, part) in parts.iter().enumerate() {
        let entry = [bench.upload(part), 4 * part.len() as u64].map(u64::to_le_bytes).concat();
        table[16 * index..][..16].copy_from_slice(&entry);
    }
    let to = bench.upload(&[7; 900]);
    bench.run("join", [2, 3, 1], [64, 1, 1], &[Arg::Bytes(table), Arg::U64(to), Arg::U64(1200)]);
    let wanted = parts.iter().flat_map(|part| part.iter().copied().chain([7; 300]).take(300));
    assert_eq!(bench.download(to, 900), wanted.collect::<Vec<_>>());
}

#[test]
fn bits_switches_and_constants() {
    let bench = Bench::samples();
    let values = [noise(50), vec![0, 1, !0]].concat();
    let functions: [fn(u32) -> u32; 9] = [
        |v| [3, 1, 4, 1, 5, 9, 2, 6][v as usize % 8],
        |v| v.count_ones(),
        |v| v.leading_zeros(),
        |v| v.reverse_bits(),
        |v| {
            let bytes = [v.to_le_bytes(), [4, 3, 2, 1]].concat();
            u32::from_le_bytes([bytes[0], bytes[4], bytes[1], bytes[5]])
        },
        |v| v.rotate_left(7),
        |v| if v == 0 { 0 } else { v.trailing_zeros() + 1 },
        |v| ((u64::from(v) * 0x9e37_79b9) >> 32) as u32,
        |v| !v,
    ];
    let (from, to) = (bench.upload(&values), bench.block(4 * values.len()));
    for (kind, function) in functions.iter().enumerate() {
        let args = [Arg::U64(from), Arg::U64(to), Arg::U32(values.len() as u32), Arg::U32(kind as u32)];
        bench.run("look_up", [2, 1, 1], [32, 1, 1], &args);
        assert_eq!(bench.download(to, values.len()), values.iter().map(|v| function(*v)).collect::<Vec<_>>(), "{kind}");
    }
}

#[test]
fn a_long_division_in_a_loop_is_counted() {
    let bench = Bench::samples();
    // Three axes of 2, 3 and 4 bytes, reversed.
    let mut axes = [2u64, 3, 4, 0, 0, 0, 1, 2, 6, 0, 0, 0].map(u64::to_le_bytes).concat();
    axes.extend([3, 0, 0, 0, 0, 0, 0, 0]);
    let values = noise(6);
    let (from, to) = (bench.upload(&values), bench.block(24));
    bench.run("permute", [1, 1, 1], [32, 1, 1], &[Arg::U64(from), Arg::U64(to), Arg::U64(24), Arg::Bytes(axes)]);
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let wanted: Vec<u8> = (0..24).map(|at| bytes[at / 12 + at / 4 % 3 * 2 + at % 4 * 6]).collect();
    let found: Vec<u8> = bench.download(to, 6).into_iter().flat_map(u32::to_le_bytes).collect();
    assert_eq!(found, wanted);
    assert_eq!(bench.counts("permute").long_divisions, 5);
}

#[test]
fn every_kernel_that_ships_is_known() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/blob-ops/kernels/ptx");
    let texts: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!texts.is_empty());
    for file in texts {
        Bench::new(&std::fs::read_to_string(file).unwrap());
    }
}
