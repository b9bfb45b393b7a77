//! Planted faults: each is one edit of a sound kernel's PTX, or a wrong launch of it, and must be found with the right
//! words.

use crate::kernels::noise;
use crate::launch::{Arg, Bench, SAMPLES, edited};

/// What a run of these kernels is to report: all parts in one report, which also names the kernel and a line.
#[track_caller]
fn assert_reported(kernel: &str, found: (u32, Vec<String>), code: u32, parts: &[&str]) {
    let mut reports = found.1.iter();
    let report = reports.find(|report| parts.iter().all(|part| report.contains(part)));
    let report = report.unwrap_or_else(|| panic!("{parts:?}: {found:#?}"));
    assert!(report.contains(kernel) && report.contains("line ") || code == 1, "{report}");
    assert_eq!(found.0, code, "{report}");
}

fn transpose(ptx: &str, seed: u64) -> (u32, Vec<String>) {
    let bench = Bench::new(ptx);
    bench.reseed(seed);
    let (from, to) = (bench.upload(&noise(64 * 96)), bench.block(4 * 64 * 96));
    let args = [Arg::U64(from), Arg::U64(to), Arg::U32(64), Arg::U32(96)];
    bench.reports("transpose_padded", [3, 2, 1], [32, 8, 1], &args)
}

fn sum(ptx: &str, seed: u64) -> (u32, Vec<String>, f64) {
    let bench = Bench::new(ptx);
    bench.reseed(seed);
    let values: Vec<u32> = (0..4096).map(|index| ((index % 16) as f32).to_bits()).collect();
    let (from, to) = (bench.upload(&values), bench.block(8));
    let (code, reports) =
        bench.reports("block_sum", [1, 1, 1], [256, 1, 1], &[Arg::U64(from), Arg::U64(to), Arg::U64(4096)]);
    let sum = if code == 0 { f64::from_bits(bench.download_u64(to, 1)[0]) } else { 0.0 };
    (code, reports, sum)
}

fn shift(ptx: &str, seed: u64) -> (u32, Vec<String>) {
    let bench = Bench::new(ptx);
    bench.reseed(seed);
    let data = bench.upload(&noise(64));
    bench.reports("shift_in_shared", [1, 1, 1], [64, 1, 1], &[Arg::U64(data)])
}

const BARRIER: &str = "bar.sync \t0;";

#[test]
fn a_missing_barrier() {
    for seed in 0..8 {
        let (code, reports) = transpose(&edited("transpose_padded", BARRIER, ""), seed);
        let is_found = |report: &String| {
            report.contains("race on shared byte") || report.contains("are read before they are written")
        };
        assert!(code == 0 && reports.iter().any(is_found), "{seed}: {reports:?}");
        let (code, reports, _) = sum(&edited("block_sum", BARRIER, ""), seed);
        assert!(code == 0 && reports.iter().any(is_found), "{seed}: {reports:?}");
        // Here everything was written before: only the race is left to be seen.
        let text = edited("shift_in_shared", "bar.sync \t0;\n\tst.shared", "st.shared");
        assert_reported("shift_in_shared", shift(&text, seed), 0, &["race on shared byte", "with thread ("]);
    }
}

#[test]
fn shared_memory_that_was_not_written() {
    let text = edited("shift_in_shared", "st.shared.u32 \t[%rd6], %r2;", "");
    assert_reported("shift_in_shared", shift(&text, 0), 0, &["shared bytes", "are read before they are written"]);
}

#[test]
fn an_early_return_before_a_barrier() {
    let leave = format!("{{ .reg .pred early; setp.ge.u32 early, %r1, 26; @early ret; }}\n{BARRIER}");
    let text = edited("shift_in_shared", BARRIER, &leave);
    assert_reported("shift_in_shared", shift(&text, 0), 719, &["barrier divergence: 26 wait, 38 returned"]);
}

#[test]
fn two_barriers_at_once() {
    let branch =
        "{ .reg .pred p; setp.ge.u32 p, %r1, 40; @p bra $here; bar.sync 0; bra $there;\n$here: bar.sync 0;\n$there: }";
    let text = edited("shift_in_shared", BARRIER, branch);
    assert_reported("shift_in_shared", shift(&text, 0), 719, &["barrier divergence: others wait in line"]);
}

#[test]
fn a_bound_that_is_one_too_far() {
    let bench = Bench::new(&edited("copy_u8", "setp.ge.u64", "setp.gt.u64"));
    let (from, to) = (bench.upload(&noise(25)), bench.block(100));
    let args = [Arg::U64(from), Arg::U64(to), Arg::U64(100)];
    let found = bench.reports("copy_u8", [1, 1, 1], [128, 1, 1], &args);
    let parts = ["global access of 1 bytes: at 100 of a block of 100 bytes", "thread (100, 0, 0) of block (0, 0, 0)"];
    assert_reported("copy_u8", found, 700, &parts);
}

#[test]
fn an_address_in_no_block() {
    let bench = Bench::samples();
    let args = [Arg::U64(0x1000), Arg::U64(bench.block(4)), Arg::U64(4)];
    let found = bench.reports("copy_u8", [1, 1, 1], [32, 1, 1], &args);
    assert_reported("copy_u8", found, 700, &["no memory of this device"]);
}

#[test]
fn a_tile_one_row_short() {
    let found = transpose(&edited("transpose_padded", "tile[4224]", "tile[4092]"), 0);
    assert_reported("transpose_padded", found, 700, &["shared access of 4 bytes at 4", ": of 4092"]);
}

#[test]
fn an_addition_between_blocks_without_an_atomic() {
    let bench = Bench::samples();
    let (from, to) = (bench.upload(&[0; 64]), bench.upload(&[0; 8]));
    let args = [Arg::U64(from), Arg::U64(to), Arg::U32(64)];
    let found = bench.reports("count_racy", [2, 1, 1], [1, 1, 1], &args);
    assert_reported("count_racy", found, 0, &["race on global byte 0 with thread (0, 0, 0) of block ("]);
}

#[test]
fn tiles_that_overlap_with_the_same_values() {
    let bench = Bench::new(&edited("copy_u8", "%ntid.x", "100"));
    let (from, to) = (bench.upload(&noise(50)), bench.block(200));
    let args = [Arg::U64(from), Arg::U64(to), Arg::U64(200)];
    let found = bench.reports("copy_u8", [2, 1, 1], [128, 1, 1], &args);
    assert_reported("copy_u8", found, 0, &["race on global byte 1", "of block (0, 0, 0)", "of block (1, 0, 0)"]);
}

#[test]
fn a_shuffle_tree_that_is_too_short() {
    assert_eq!(sum(SAMPLES, 0), (0, vec![], 30_720.0));
    let (code, reports, sum) = sum(
        &edited("block_sum", "shfl.sync.down.b32 \t%r9|%p18, %r7, %r25", "shfl.sync.down.b32 \t%r9|%p18, %r7, 0"),
        0,
    );
    assert!(code == 0 && reports.is_empty() && sum != 30_720.0, "{sum} {reports:?}");
}

#[test]
fn a_wide_access_at_a_narrow_address() {
    let bench = Bench::samples();
    let (from, to) = (bench.upload(&noise(64)), bench.block(256));
    let args = [Arg::U64(from + 4), Arg::U64(to), Arg::U64(8)];
    let found = bench.reports("copy_u16x8", [1, 1, 1], [32, 1, 1], &args);
    assert_reported("copy_u16x8", found, 716, &["misaligned: 16 bytes at an address that is 4 beyond a multiple"]);
}

#[test]
fn a_tail_that_is_not_guarded() {
    let bench = Bench::samples();
    let (from, to) = (bench.upload(&noise(5)), bench.block(32));
    let found = bench.reports("copy_u16x8", [1, 1, 1], [32, 1, 1], &[Arg::U64(from), Arg::U64(to), Arg::U64(2)]);
    assert_reported("copy_u16x8", found, 700, &["global access of 16 bytes: at 16 of a block of 20 bytes"]);
}

#[test]
fn memory_that_was_not_written() {
    let bench = Bench::samples();
    let (from, to) = (bench.block(64), bench.block(64));
    let found = bench.reports("copy_u8", [1, 1, 1], [64, 1, 1], &[Arg::U64(from), Arg::U64(to), Arg::U64(64)]);
    // Told once, not once for each thread.
    assert_eq!(found.1.len(), 1);
    assert_reported("copy_u8", found, 0, &["global bytes 0..1 are read before they are written"]);
}

#[test]
fn parameters_of_another_size() {
    let bench = Bench::samples();
    let args = [Arg::U64(1), Arg::U64(2), Arg::U64(3), Arg::Bytes(vec![0; 112])];
    let found = bench.reports("permute", [1, 1, 1], [32, 1, 1], &args);
    assert_reported("permute", found, 1, &["permute: 136 bytes of parameters, the PTX has 128"]);
}

#[test]
fn grids_over_the_limits() {
    let bench = Bench::samples();
    let args = [Arg::U64(1), Arg::U64(2), Arg::U64(3)];
    for (grid, block) in
        [([1, 1 << 16, 1], [32, 1, 1]), ([1, 1, 1], [32, 33, 1]), ([1, 1, 1], [1, 1, 65]), ([0, 1, 1], [1, 1, 1])]
    {
        assert_reported("copy_u8", bench.reports("copy_u8", grid, block, &args), 1, &["over the limits"]);
    }
}

#[test]
fn a_shuffle_whose_members_do_not_come() {
    // Half of the members go round it.
    let text = edited(
        "block_sum",
        "shfl.sync.down.b32 \t%r9|",
        "{ .reg .pred p; setp.lt.u32 p, %r1, 8; @p bra $L__BB5_35; }\nshfl.sync.down.b32 \t%r9|",
    );
    let (_, reports, _) = sum(&text, 0);
    assert!(reports.iter().any(|report| report.contains("threads that are not there or have returned")), "{reports:?}");
    let text = edited("shift_in_shared", BARRIER, "@%p bra $wait; bar.sync 0;\n$wait: bar.warp.sync -1;").replace(
        ".shared .align 4 .b8 _ZZ15shift_in_sharedE3row[256];",
        ".shared .align 4 .b8 _ZZ15shift_in_sharedE3row[256]; .reg .pred %p; ",
    );
    let text = text.replace("@%p bra $wait;", "setp.ge.u32 %p, %r1, 40; @%p bra $wait;");
    assert_reported("shift_in_shared", shift(&text, 0), 719, &["waits for threads of its warp that do not come"]);
}

#[test]
fn a_loop_without_an_end() {
    let text = edited("shift_in_shared", BARRIER, "$round: bra $round;");
    let (code, reports) = shift(&text, 0);
    assert!(code == 702 && reports[0].contains("does not come to an end"), "{reports:?}");
}

#[test]
fn text_that_is_not_known_is_refused_with_its_line() {
    for (part, replacement, words) in [
        ("setp.ge.u64", "setp.ge.ftz.u64", "`.ftz` of `setp.ge.ftz.u64` is not known"),
        ("ld.global.u8 \t%rs1", "ldmatrix.sync \t%rs1", "`ldmatrix.sync`: this instruction is not known"),
        ("mul.wide.u32", "mul.rz.f32", "only rounded to nearest"),
        ("%rd5, %r1, %r2;", "%rd5, %r1, %r99;", "register %r99 is not declared"),
        ("bra \t$L__BB0_2", "bra \t$nowhere", "label $nowhere is not there"),
        (".reg .b16", ".reg .b17", "register type `.b17` is not known"),
    ] {
        let text = edited("copy_u8", part, replacement);
        let gpu = crate::support::Gpu::seed(0);
        let text = std::ffi::CString::new(text).unwrap();
        let mut module = 0usize;
        assert_eq!(crate::support::cu!(cuModuleLoadData(&raw mut module, text.as_ptr())), 218);
        let reports = gpu.session.reports();
        assert!(reports.len() == 1 && reports[0].contains(words) && reports[0].contains("PTX: line "), "{reports:?}");
    }
}
