//! The deliberate breakages of the operations. A text that no longer stands in its file exactly once is a finding of
//! `cargo xtask tidy`. Nothing but the table.

use crate::mutants::Mutant;

/// All rows, in the order of the files.
pub(super) const ROWS: &[Mutant] = &[
    Mutant {
        name: "add: a subnormal sum is not flushed",
        file: "crates/blob-ops/src/cpu/element.rs",
        old: "N::flush(N::store(sum))",
        new: "N::store(sum)",
        test: &["-p", "blob-ops", "subnormals_are_flushed_with_their_sign"],
    },
    Mutant {
        name: "add: the second NaN comes out",
        file: "crates/blob-ops/src/cpu/element.rs",
        old: "let nan = if a.is_nan() {",
        new: "let nan = if b.is_nan() { of_b } else if a.is_nan() {",
        test: &["-p", "blob-ops", "which_nan_comes_out"],
    },
    Mutant {
        name: "sums: a short tail is dropped",
        file: "crates/blob-ops/src/cpu/sums.rs",
        old: "if !last.is_empty() {",
        new: "if last.len() > LANES {",
        test: &[
            "-p",
            "blob-ops",
            "sums::every_dtype_and_size_on_every_instruction_set",
        ],
    },
    Mutant {
        name: "sums: integers overflow unnoticed",
        file: "crates/blob-ops/src/cpu/sums.rs",
        old: ">> 32 != 0 {",
        new: ">> 33 != 0 {",
        test: &["-p", "blob-ops", "sums_of_integers_are_exact_or_refused"],
    },
    Mutant {
        name: "sums: the pieces of threads do not fit the tree",
        file: "crates/blob-ops/src/sums.rs",
        old: "const PIECE_BLOCKS: usize = 64;",
        new: "const PIECE_BLOCKS: usize = 48;",
        test: &["-p", "blob-ops", "sums::threads_change_no_bit"],
    },
    Mutant {
        name: "narrow: f64 to f16 is rounded twice",
        file: "crates/blob-ops/src/cpu/narrow.rs",
        old: "let marked = ((self >> 11) | lost) << 11;",
        new: "let marked = ((self >> 11) | (lost & 0)) << 11;",
        test: &["-p", "blob-ops", "nothing_is_rounded_twice"],
    },
    Mutant {
        name: "narrow: halves are rounded up, not to even",
        file: "crates/blob-ops/src/cpu/narrow.rs",
        old: "0xFFF + even",
        new: "0xFFF + 1 + 0 * even",
        test: &["-p", "blob-ops", "f32_to_halves_as_others_do"],
    },
    Mutant {
        name: "narrow: a NaN becomes infinite",
        file: "crates/blob-ops/src/cpu/narrow.rs",
        old: "let nan = (bits >> 16) | 0x40;",
        new: "let nan = bits >> 16;",
        test: &["-p", "blob-ops", "nan_stays_nan"],
    },
    Mutant {
        name: "convert: a fraction is no loss",
        file: "crates/blob-ops/src/cpu/convert.rs",
        old: " & (self.trunc() == self)",
        new: "",
        test: &["-p", "blob-ops", "the_first_that_is_lost_is_named"],
    },
    Mutant {
        name: "convert: the index counts from the piece",
        file: "crates/blob-ops/src/convert.rs",
        old: "(i * piece + index, value)",
        new: "(index, value)",
        test: &["-p", "blob-ops", "the_first_that_is_lost_is_named"],
    },
    Mutant {
        name: "objects: one past the last is filled",
        file: "crates/blob-ops/src/fill.rs",
        old: "if object >= objects {",
        new: "if object > objects {",
        test: &["-p", "blob-ops", "objects_that_are_not_there_are_refused"],
    },
    Mutant {
        name: "objects: all are the first",
        file: "crates/blob-ops/src/fill.rs",
        old: "object * size..(object + 1) * size",
        new: "object..object + size",
        test: &["-p", "blob-ops", "one_object_is_filled_and_no_other"],
    },
    Mutant {
        name: "element: counts suffice, shapes need not agree",
        file: "crates/blob-ops/src/element.rs",
        old: "if x.shape() != y.shape() {",
        new: "if x.count() != y.count() {",
        test: &["-p", "blob-ops", "unlike_blobs_are_refused"],
    },
];
