//! The committed PTX and what Rust launches: the same kernels, the same structs.

use super::*;

/// The kernels of some PTX with the lengths of their structs.
fn in_ptx(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let params = text.lines().filter_map(|line| line.trim().strip_prefix(".param .align 8 .b8 "));
    params.filter_map(|param| {
        let (name, len) = param.split_once("_param_0[")?;
        Some((name, len.strip_suffix(']')?.parse().ok()?))
    })
}

#[test]
fn kernels_and_their_structs_are_those_of_the_ptx() {
    let ptx = [
        include_str!("../../../../kernels/ptx/check.ptx"),
        include_str!("../../../../kernels/ptx/convert.ptx"),
        include_str!("../../../../kernels/ptx/element.ptx"),
        include_str!("../../../../kernels/ptx/floats.ptx"),
        include_str!("../../../../kernels/ptx/integers.ptx"),
        include_str!("../../../../kernels/ptx/narrow.ptx"),
        include_str!("../../../../kernels/ptx/packed.ptx"),
        include_str!("../../../../kernels/ptx/rows.ptx"),
        include_str!("../../../../kernels/ptx/square.ptx"),
        include_str!("../../../../kernels/ptx/tiles.ptx"),
    ];
    let kernels: Vec<(&str, usize)> = ptx.iter().flat_map(|text| in_ptx(text)).collect();
    assert_eq!(kernels.len(), 70);
    let span = |at: u64, len| Span { address: at << 40, len };
    let mut all = Vec::new();
    for past in [0u64, 8, 4, 2, 1] {
        let from = Span { address: (1 << 40) + past, len: 64 * 64 * 16 };
        all.extend(launches(&Work::Rows { rows: 1, split: false }, &[from], &[span(2, from.len)], LIMITS));
    }
    for (size, dims) in [(1, [64, 64]), (2, [64, 64]), (4, [64, 64]), (8, [64, 64]), (1, [63, 63]), (2, [63, 63])] {
        let plan = Permutation::new(&dims, &[1, 0], size);
        all.extend(launches(&Work::Permute(plan), &[span(1, plan.bytes())], &[span(2, plan.bytes())], LIMITS));
        let plan = Permutation::new(&[3, dims[0]], &[1, 0], size);
        all.extend(launches(&Work::Permute(plan), &[span(1, plan.bytes())], &[span(2, plan.bytes())], LIMITS));
        all.extend(launches(&Work::Squares { side: 4, width: size }, &[], &[span(1, 16 * size)], LIMITS));
    }
    for (size, inner) in [(1, 1), (2, 1), (4, 1), (8, 1), (8, 2)] {
        for dims in [[256, 256, inner], [3, 1024, inner]] {
            let plan = Permutation::new(&dims, &[1, 0, 2], size);
            all.extend(launches(&Work::Permute(plan), &[span(1, plan.bytes())], &[span(2, plan.bytes())], LIMITS));
        }
    }
    for (inner, dims) in [(2, [64, 64, 2]), (2, [64, 3, 2])] {
        let plan = Permutation::new(&dims, &[1, 0, 2], 8 * inner / 2);
        all.extend(launches(&Work::Permute(plan), &[span(1, plan.bytes())], &[span(2, plan.bytes())], LIMITS));
    }
    for &dtype in DType::ALL {
        let (from, to) = (span(1, 64), span(2, 64));
        let bounds = Bounds { low: 0, high: 1, is_whole: true };
        all.extend(launches(&Work::Convert { source: dtype, target: DType::F32 }, &[from], &[to], LIMITS));
        all.extend(launches(&Work::Check { dtype, bounds }, &[from], &[to], LIMITS));
        if dtype != DType::Bool {
            all.extend(launches(&Work::Arithmetic { op: Op::Scale, dtype, alpha: 1 }, &[], &[to], LIMITS));
            all.extend(launches(&Work::Sums { dtype, square: false }, &[span(1, 257 * 4096 * 8)], &[to], LIMITS));
        }
    }
    all.extend(launches(&Work::Fill { element: [0; 8], size: 1 }, &[], &[span(1, 64)], LIMITS));
    for launch in &all {
        let (_, len) = kernels.iter().find(|(name, _)| *name == launch.kernel).unwrap_or_else(|| panic!("{launch:?}"));
        assert_eq!(launch.params.bytes().len(), *len, "{}", launch.kernel);
    }
    for (name, _) in kernels {
        assert!(all.iter().any(|launch| launch.kernel == name), "{name} is not launched");
    }
}

/// Many are joined behind the last of them.
#[test]
fn sums_of_blocks_and_where_they_are_joined() {
    for (dtype, each) in [(DType::F16, 8), (DType::I8, 16)] {
        let from = Span { address: 1 << 40, len: (600 * 4096 - 1) * dtype.size() };
        let to = Span { address: 2 << 40, len: 603 * each };
        let all = launches(&Work::Sums { dtype, square: true }, &[from], &[to], LIMITS);
        let [.., Launch { params: Params::Joins(p), blocks: 3, .. }] = &all[..] else { panic!("{all:?}") };
        assert_eq!((p.from, p.to, p.count), (to.address, to.address + 600 * each as u64, 600));
    }
}
