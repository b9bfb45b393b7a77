//! The deliberate breakages, a row each: what, where, the text as it is, the text as broken, the test that must notice.
//! Add a row with a test that guards something; `cargo xtask mutants NAME` then shows that it does.
//! Nothing but the table; a text that no longer stands in its file exactly once is a finding of `cargo xtask tidy`.

mod core;
mod memory;
mod ops;

use super::Mutant;

/// All rows.
pub(crate) fn all() -> impl Iterator<Item = &'static Mutant> {
    [TOOL, memory::ROWS, core::ROWS, ops::ROWS].into_iter().flatten()
}

/// The rows of the formats, the tool and the tasks, in the order of the files.
const TOOL: &[Mutant] = &[
    Mutant {
        name: "a function of 71 lines passes",
        file: "xtask/src/tidy/sizes.rs",
        old: "if lines > FUNCTION_LINES {",
        new: "if lines > FUNCTION_LINES + 1 {",
        test: &["-p", "xtask", "a_function_of_71_lines_is_found"],
    },
    Mutant {
        name: "unsafe passes everywhere",
        file: "xtask/src/tidy/doors.rs",
        old: "if !source.is_one_of(UNSAFE) {",
        new: "if !source.is_one_of(UNSAFE) && source.is_test() {",
        test: &["-p", "xtask", "unsafe_outside_its_files_is_found"],
    },
    Mutant {
        name: "any cfg counts as a test's",
        file: "xtask/src/tidy/source.rs",
        old: r#"["test"] | ["all", "(", "test", ..]"#,
        new: "[..]",
        test: &["-p", "xtask", "a_cfg_in_the_main_flow_is_found"],
    },
    Mutant {
        name: "record: a peer of one thread is none for two",
        file: "xtask/src/record/table.rs",
        old: "figure.threads <= threads",
        new: "figure.threads == threads",
        test: &["-p", "xtask", "the_best_peer_has_no_more_threads_than_we"],
    },
    Mutant {
        name: "record: two threads are measured at the bar of one",
        file: "xtask/src/record/table.rs",
        old: "let (Some(one), Some(bar)) = (one, self.bar)",
        new: "let (Some(one), Some(bar)) = (two, self.bar)",
        test: &["-p", "xtask", "a_bar_is_of_one_thread_and_a_ratio"],
    },
    Mutant {
        name: "the first extent of a storage shape is believed",
        file: "crates/blob-io/src/mxnet/record.rs",
        old: "*dims.first_mut()? = indices;",
        new: "dims.first_mut()?;",
        test: &["-p", "blob-tests", "every_malformed_file_has_its_stated_outcome"],
    },
    Mutant {
        name: "a stale storage shape is missed",
        file: "crates/blob-io/src/mxnet/record.rs",
        old: "if stored.contains(&0) {",
        new: "if stored.is_empty() {",
        test: &["-p", "blob-io", "the_first_extent_of_a_storage_shape_is_never_believed"],
    },
    Mutant {
        name: "a V3 scalar is none",
        file: "crates/blob-io/src/mxnet/record.rs",
        old: "Version::V3 => dims.values.contains(&-1)",
        new: "Version::V3 => empty",
        test: &["-p", "blob-tests", "every_golden_array_equals_what_its_writer_was_given"],
    },
    Mutant {
        name: "too many keys pass",
        file: "crates/blob-io/src/mxnet/read.rs",
        old: "if found != 0 && found != count {",
        new: "if found != 0 && found < count {",
        test: &["-p", "blob-tests", "every_malformed_file_has_its_stated_outcome"],
    },
    Mutant {
        name: "a count beyond the file passes",
        file: "crates/blob-io/src/mxnet/read.rs",
        old: "if count > left / 4 {",
        new: "if count > left {",
        test: &["-p", "blob-io", "a_count_that_the_file_cannot_hold_is_refused_at_once"],
    },
    Mutant {
        name: "csr rows end late",
        file: "crates/blob-io/src/checkpoint/sparse.rs",
        old: "while indptr.get(row + 1) <= k as i128",
        new: "while indptr.get(row + 1) < k as i128",
        test: &["-p", "blob-tests", "every_golden_array_equals_what_its_writer_was_given"],
    },
    Mutant {
        name: "a name is taken twice",
        file: "crates/blob-io/src/names.rs",
        old: "self.taken.insert(hash(&name));\n        Ok(name)",
        new: "Ok(name)",
        test: &["-p", "blob-io", "a_repeated_key_gets_its_position_also_on_the_parts_of_a_sparse_array"],
    },
    Mutant {
        name: "no-clobber renames",
        file: "crates/blob-io/src/output/sibling.rs",
        old: "fs::hard_link(&self.temp, &self.target)",
        new: "fs::rename(&self.temp, &self.target)",
        test: &["-p", "blob-io", "a_link_never_replaces_a_file"],
    },
    Mutant {
        name: "overlapping members pass",
        file: "crates/blob-io/src/npz/index.rs",
        old: "a.end > b.local",
        new: "a.end > b.end",
        test: &["-p", "blob-tests", "an_archive_that_does_not_hold"],
    },
    Mutant {
        name: "an npz's checksum has the wrong length",
        file: "crates/blob-io/src/npz/write.rs",
        old: "Hasher::new_with_initial_len(*crc, place.len)",
        new: "Hasher::new_with_initial_len(*crc, member.size)",
        test: &["-p", "blob-tests", "what_is_written_as_npz_is_read"],
    },
    Mutant {
        name: "small elements come first",
        file: "crates/blob-io/src/safetensors/write.rs",
        old: "std::cmp::Reverse(specs[i].dtype().size())",
        new: "specs[i].dtype().size()",
        test: &["-p", "blob-tests", "safetensors_are_laid_out"],
    },
    Mutant {
        name: "holes pass",
        file: "crates/blob-io/src/safetensors/read.rs",
        old: "if offset != end {",
        new: "if offset > end {",
        test: &["-p", "blob-tests", "broken_headers_of_safetensors"],
    },
    Mutant {
        name: "a CRC-32 is not compared",
        file: "crates/blob-io/src/payload/member.rs",
        old: "if found == expected.crc {",
        new: "if true || found == expected.crc {",
        test: &["-p", "blob-tests", "a_wrong_bit_is_an_error_wherever_bytes_are_used"],
    },
    Mutant {
        name: "verify passes over what is wrong with the file as a whole",
        file: "crates/blob-cli/src/verify.rs",
        old: "for fault in checkpoint.faults() {",
        new: "for fault in checkpoint.faults().iter().take(0) {",
        test: &["-p", "blob-tests", "what_is_wrong_with_a_file_whose_arrays_can_all_be_had_is_a_finding"],
    },
    Mutant {
        name: "a conversion takes a file that breaks off for whole",
        file: "crates/blob-convert/src/plan.rs",
        old: "    checkpoint.whole()?;\n",
        new: "",
        test: &["-p", "blob-tests", "what_stands_before_a_break_is_listed_and_never_taken_for_whole"],
    },
    Mutant {
        name: "a layer that is cut is not named",
        file: "crates/blob-io/src/caffe/layer.rs",
        old: "let number = if layer.number == 100 { 1 } else { 4 };",
        new: "let number = if layer.number == 100 { 4 } else { 1 };",
        test: &["-p", "blob-tests", "the_layer_that_is_cut_is_named"],
    },
    Mutant {
        name: "big-endian npy is not turned",
        file: "crates/blob-io/src/npy/header.rs",
        old: "entry.swapped = swapped;",
        new: "entry.swapped = false && swapped;",
        test: &["-p", "blob-tests", "what_npyz_writes_is_read"],
    },
    Mutant {
        name: "shape is taken before legacy dimensions",
        file: "crates/blob-io/src/caffe/blob.rs",
        old: "let dims: Vec<i64> = if self.is_legacy() {",
        new: "let dims: Vec<i64> = if self.is_legacy() && self.dims.is_empty() {",
        test: &["-p", "blob-tests", "every_blobproto_reads_as_caffe_reads_it"],
    },
    Mutant {
        name: "floats are taken before doubles",
        file: "crates/blob-io/src/caffe/values.rs",
        old: "(true, ..) => (double_field, double, DType::F64, 8),",
        new: "(true, false, _) => (double_field, double, DType::F64, 8),",
        test: &["-p", "blob-tests", "every_blobproto_reads_as_caffe_reads_it"],
    },
    Mutant {
        name: "an unpacked run's stride is forgotten",
        file: "crates/blob-io/src/caffe/values.rs",
        old: "last.stride = gap;",
        new: "last.stride += 0;",
        test: &["-p", "blob-tests", "every_blobproto_reads_as_caffe_reads_it"],
    },
    Mutant {
        name: "END_GROUP at the top passes",
        file: "crates/blob-io/src/caffe/protobuf.rs",
        old: "}) => Err(Stop::fault(offset, What::EndGroup { number })),",
        new: "}) => { let _ = (offset, number); Ok(None) }",
        test: &["-p", "blob-tests", "hostile_top_levels_of_a_net_are_refused"],
    },
    Mutant {
        name: "the V1 weights between V0 layers are lost",
        file: "crates/blob-io/src/caffe/layer.rs",
        old: "return Ok((Generation::V1, outer));",
        new: "return Ok((Generation::V1, Draft::default()));",
        test: &["-p", "blob-io", "nets_read_as_prost_reads_them"],
    },
    Mutant {
        name: "the root is joined like any subtree",
        file: "crates/blob-convert/src/hash.rs",
        old: "first & !size == 0 && 2 * size >= self.all_chunks()",
        new: "first & !size == 0 && 2 * size > self.all_chunks()",
        test: &["-p", "blob-convert", "join_to_the_hash_of_the_whole"],
    },
    Mutant {
        name: "a wrong digest is right",
        file: "crates/blob-convert/src/verify/receipt.rs",
        old: "if *hash == *item.blake3 {",
        new: "if hash.len() == item.blake3.len() {",
        test: &["-p", "blob-tests", "one_wrong_bit_in_a_converted_file"],
    },
    Mutant {
        name: "a folder of the user's own is replaced",
        file: "crates/blob-io/src/output/survey.rs",
        old: "self.foreign.0.push(name + \"/\");",
        new: "drop(name);",
        test: &["-p", "blob-io", "what_the_receipt_does_not_list"],
    },
    Mutant {
        name: "a file that changed meanwhile is replaced",
        file: "crates/blob-io/src/output/survey.rs",
        old: "if receipt(self) != receipt(now) {",
        new: "if receipt(self) == receipt(now) {",
        test: &["-p", "blob-io", "what_was_put_there_meanwhile"],
    },
    Mutant {
        name: "a link in a folder is followed",
        file: "crates/blob-io/src/folder.rs",
        old: "fs::symlink_metadata(&whole)?",
        new: "fs::metadata(&whole)?",
        test: &["-p", "blob-tests", "nothing_outside_of_a_folder"],
    },
    Mutant {
        name: "an npz's names are a file system's",
        file: "crates/blob-io/src/npz/members.rs",
        old: "|| part == \"..\"",
        new: "|| part == \"..\" || c == ':'",
        test: &["-p", "blob-io", "what_a_zip_can_hold_stays"],
    },
    Mutant {
        name: "a move begins a byte late",
        file: "crates/blob-convert/src/pass.rs",
        old: "step.to + (a - step.from)",
        new: "step.to + (a - at)",
        test: &["-p", "blob-tests", "a_model_of_many_pieces_converts"],
    },
    Mutant {
        name: "the parts of a checksum are joined out of order",
        file: "crates/blob-convert/src/sink.rs",
        old: "parts.sort_unstable_by_key(|part| (part.tensor, part.at));",
        new: "parts.reverse();",
        test: &["-p", "blob-tests", "a_model_of_many_pieces_converts"],
    },
];
