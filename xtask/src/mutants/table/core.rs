//! The deliberate breakages of shapes, blobs and windows. A text that no longer stands in its file exactly once is a finding of
//! `cargo xtask tidy`. Nothing but the table.

use crate::mutants::Mutant;

/// All rows, in the order of the files.
pub(super) const ROWS: &[Mutant] = &[
    Mutant {
        name: "axis: -1 is the axis before the last",
        file: "crates/blob-core/src/axis.rs",
        old: "true => shape.num_axes().checked_sub(distance),",
        new: "true => shape.num_axes().checked_sub(distance - 1),",
        test: &[
            "-p",
            "blob-core",
            "numbers_count_from_the_left_or_from_the_end",
        ],
    },
    Mutant {
        name: "axis: one past the last passes",
        file: "crates/blob-core/src/axis.rs",
        old: "if self < shape.num_axes() {",
        new: "if self <= shape.num_axes() {",
        test: &[
            "-p",
            "blob-core",
            "numbers_count_from_the_left_or_from_the_end",
        ],
    },
    Mutant {
        name: "axis: Caffe's names fit five axes",
        file: "crates/blob-core/src/axis.rs",
        old: "if shape.num_axes() > Self::ALL.len() {",
        new: "if shape.num_axes() > Self::ALL.len() + 1 {",
        test: &[
            "-p",
            "blob-core",
            "caffes_names_go_from_the_left_in_up_to_four_axes",
        ],
    },
    Mutant {
        name: "axis: NeoML's names fit eight axes",
        file: "crates/blob-core/src/axis.rs",
        old: "if shape.num_axes() == Self::ALL.len() {",
        new: "if shape.num_axes() >= Self::ALL.len() {",
        test: &["-p", "blob-core", "neomls_names_need_seven_axes"],
    },
    Mutant {
        name: "shape: Caffe's offset one past the end passes",
        file: "crates/blob-core/src/shape.rs",
        old: "Some(&index) if index < extent => offset += index,",
        new: "Some(&index) if index <= extent => offset += index,",
        test: &[
            "-p",
            "blob-tests",
            "legacy_offsets_are_caffes_inside_the_bounds_and_errors_outside",
        ],
    },
    Mutant {
        name: "shape: the offset past the last element has an index",
        file: "crates/blob-core/src/shape.rs",
        old: "if offset >= self.count {",
        new: "if offset > self.count {",
        test: &[
            "-p",
            "blob-core",
            "an_index_or_an_offset_outside_is_an_error_that_names_it",
        ],
    },
    Mutant {
        name: "shape: a stride counts its own axis",
        file: "crates/blob-core/src/shape.rs",
        old: "let behind = axis.resolve(self)? + 1;",
        new: "let behind = axis.resolve(self)?;",
        test: &["-p", "blob-core", "strides_by_hand"],
    },
    Mutant {
        name: "shape: the product is not checked past a zero",
        file: "crates/blob-core/src/shape.rs",
        old: ".checked_mul(extent.max(1))",
        new: ".checked_mul(extent)",
        test: &["-p", "blob-core", "the_product_is_checked_also_past_a_zero"],
    },
    Mutant {
        name: "legacy: negative indices pad on the right",
        file: "crates/blob-core/src/shape/legacy.rs",
        old: "self.legacy_pad_left()?[(axis + 4) as usize]",
        new: "self.legacy_pad_right()?[(axis + 4) as usize]",
        test: &["-p", "blob-tests", "axes_are_caffes"],
    },
    Mutant {
        name: "dims7: a right-aligned list is left-aligned",
        file: "crates/blob-core/src/dims7.rs",
        old: "dims[start..].copy_from_slice(extents);",
        new: "dims[..AXES - start].copy_from_slice(extents);",
        test: &["-p", "blob-tests", "dims_are_neomls"],
    },
    Mutant {
        name: "dims7: a geometric size counts channels",
        file: "crates/blob-core/src/dims7.rs",
        old: "self.0[FIRST_OBJECT_AXIS..BlobDim::Channels as usize]",
        new: "self.0[FIRST_OBJECT_AXIS..=BlobDim::Channels as usize]",
        test: &["-p", "blob-core", "sizes_are_products_of_their_axes"],
    },
    Mutant {
        name: "blob: a memory longer than needed is refused",
        file: "crates/blob-core/src/blob.rs",
        old: "    match got >= wanted {",
        new: "    match got == wanted {",
        test: &[
            "-p",
            "blob-core",
            "what_a_memory_has_beyond_the_shape_is_not_seen",
        ],
    },
    Mutant {
        name: "blob: an element past the last is read",
        file: "crates/blob-core/src/blob.rs",
        old: "if offset >= self.count() {",
        new: "if offset > self.count() {",
        test: &["-p", "blob-core", "elements_are_found_by_strict_indices"],
    },
    Mutant {
        name: "reshape: a diff that is too short is kept",
        file: "crates/blob-core/src/blob/reshape.rs",
        old: "len <= self.data.len() && len <= self.diff.len()",
        new: "len <= self.data.len()",
        test: &[
            "-p",
            "blob-core",
            "either_memory_that_is_too_short_replaces_both",
        ],
    },
    Mutant {
        name: "copy: an untouched source leaves the old values",
        file: "crates/blob-core/src/blob/copy.rs",
        old: "if to.is_initialized() || from.is_initialized() {",
        new: "if from.is_initialized() {",
        test: &[
            "-p",
            "blob-core",
            "what_nobody_touched_copies_as_zeros_and_takes_no_memory",
        ],
    },
    Mutant {
        name: "share: any count passes",
        file: "crates/blob-core/src/blob/copy.rs",
        old: r#"        self.expect_count(&other.shape)
"#,
        new: r#"        self.expect_count(&self.shape)
"#,
        test: &[
            "-p",
            "blob-core",
            "sharing_goes_both_ways_and_needs_the_count",
        ],
    },
    Mutant {
        name: "copy: the diff brings the data along",
        file: "crates/blob-core/src/blob/copy.rs",
        old: "            Parts::Diff => &pairs[1..],",
        new: "            Parts::Diff => &pairs[..],",
        test: &[
            "-p",
            "blob-core",
            "each_part_is_copied_where_it_is_asked_for",
        ],
    },
    Mutant {
        name: "device: the capacity is moved, not the count",
        file: "crates/blob-core/src/blob/device.rs",
        old: "Ok(self.data.device_mut(queue, 0..self.byte_len())?)",
        new: "Ok(self.data.device_mut(queue, 0..self.data.len())?)",
        test: &[
            "-p",
            "blob-core",
            "count_bytes_are_moved_and_not_the_capacity",
        ],
    },
    Mutant {
        name: "device: an overwrite uploads",
        file: "crates/blob-core/src/blob/device.rs",
        old: "Ok(self.data.device_overwrite(queue, 0..self.byte_len())?)",
        new: "Ok(self.data.device_mut(queue, 0..self.byte_len())?)",
        test: &[
            "-p",
            "blob-core",
            "reading_on_a_device_leaves_the_host_valid_and_overwriting_uploads_nothing",
        ],
    },
    Mutant {
        name: "buffers: the offset is forgotten (NeoML on a GPU)",
        file: "crates/blob-core/src/part.rs",
        old: "self.elements.start * size..self.elements.end * size",
        new: "0..self.elements.end * size",
        test: &[
            "-p",
            "blob-tests",
            "buffers_move_their_range_and_honour_their_offset",
        ],
    },
    Mutant {
        name: "buffers: one element too many",
        file: "crates/blob-core/src/part.rs",
        old: "range.end > count {",
        new: "range.end > count + 1 {",
        test: &[
            "-p",
            "blob-core",
            "a_range_outside_or_another_type_is_an_error",
        ],
    },
    Mutant {
        name: "buffers: writing copies in",
        file: "crates/blob-core/src/typed/guards.rs",
        old: "let mut bytes = memory.host_overwrite(range)?;",
        new: "let mut bytes = memory.host_mut(range)?;",
        test: &[
            "-p",
            "blob-tests",
            "buffers_move_their_range_and_honour_their_offset",
        ],
    },
    Mutant {
        name: "windows: the whole memory is brought to a device",
        file: "crates/blob-core/src/part.rs",
        old: "Ok(self.memory.device(queue, self.bytes())?)",
        new: "Ok(self.memory.device(queue, 0..self.memory.len())?)",
        test: &["-p", "blob-tests", "recurrent_steps_move_step_by_step"],
    },
    Mutant {
        name: "windows: a nested one forgets its parents",
        file: "crates/blob-core/src/window/frame.rs",
        old: "pos += frame.pos();",
        new: "",
        test: &[
            "-p",
            "blob-tests",
            "a_window_in_a_window_moves_along_at_any_depth",
        ],
    },
    Mutant {
        name: "windows: a position outside passes",
        file: "crates/blob-core/src/window.rs",
        old: "borrowed::check(steps, self.outer_len())?;",
        new: "let _ = steps;",
        test: &[
            "-p",
            "blob-tests",
            "positions_out_of_range_are_errors_that_name_them_and_move_nothing",
        ],
    },
    Mutant {
        name: "windows: the last one is missing",
        file: "crates/blob-core/src/window/borrowed.rs",
        old: "last.map_or(0, |last| last + 1)",
        new: "last.unwrap_or(0)",
        test: &["-p", "blob-tests", "every_window_of_a_size_from_either_end"],
    },
    Mutant {
        name: "windows: the outermost extent stays",
        file: "crates/blob-core/src/window/borrowed.rs",
        old: "dims[0] = self.len;",
        new: "",
        test: &["-p", "blob-tests", "windows_are_neomls"],
    },
    Mutant {
        name: "windows: the copy of a window has no diff",
        file: "crates/blob-core/src/window/borrowed.rs",
        old: "Part::of_diff(&copy).copy_from(&self.part_of_diff())?;",
        new: "",
        test: &["-p", "blob-tests", "a_window_is_a_slice_of_the_blob"],
    },
    Mutant {
        name: "typed: a misaligned write makes the device stale",
        file: "crates/blob-core/src/typed/guards.rs",
        old: "        Some(address) => check_address::<T>(address),",
        new: "        Some(_) => Ok(()),",
        test: &[
            "-p",
            "blob-core",
            "a_misaligned_write_is_refused_before_the_device_becomes_stale",
        ],
    },
    Mutant {
        name: "typed: refused values make the device stale",
        file: "crates/blob-core/src/typed/guards.rs",
        old: r#"            T::check(&memory.host(range.clone())?)?;
"#,
        new: "",
        test: &[
            "-p",
            "blob-core",
            "values_that_are_refused_leave_the_device_as_it_was",
        ],
    },
    Mutant {
        name: "windows: a chain is dropped by recursion",
        file: "crates/blob-core/src/window/frame.rs",
        old: "        let mut outer = mem::replace(&mut self.outer, Outer::Dropped);",
        new: "        let mut outer = Outer::Dropped;",
        test: &[
            "-p",
            "blob-core",
            "a_chain_of_windows_may_be_longer_than_the_stack_is_deep",
        ],
    },
];
