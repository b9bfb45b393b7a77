//! The deliberate breakages of the memory. A text that no longer stands in its file exactly once is a finding of
//! `cargo xtask tidy`. Nothing but the table.

use crate::mutants::Mutant;

/// All rows, in the order of the files.
pub(super) const ROWS: &[Mutant] = &[
    Mutant {
        name: "ranges: touching ranges stay apart",
        file: "crates/synced-mem/src/ranges.rs",
        old: "self.count_while(|ours| ours.start <= range.end);",
        new: "self.count_while(|ours| ours.start < range.end);",
        test: &["-p", "synced-mem", "--lib", "every_range_meets_every_set"],
    },
    Mutant {
        name: "ranges: what lies above a removed range is lost",
        file: "crates/synced-mem/src/ranges.rs",
        old: "self.replace(from..to, [below, above]);",
        new: "self.replace(from..to, [below, 0..0]);",
        test: &["-p", "synced-mem", "--lib", "every_range_meets_every_set"],
    },
    Mutant {
        name: "ranges: any gap is closed, not the smallest",
        file: "crates/synced-mem/src/ranges.rs",
        old: "self.gaps().min_by_key(|gap| gap.len())",
        new: "self.gaps().next()",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "coarsening_closes_the_smallest",
        ],
    },
    Mutant {
        name: "replicas: bytes that somebody holds are filled",
        file: "crates/synced-mem/src/replicas.rs",
        old: "order.iter().copied().chain(others)",
        new: "order.iter().copied()",
        test: &["-p", "synced-mem", "--lib", "every_state_of_three_copies"],
    },
    Mutant {
        name: "replicas: a write leaves the other copies valid",
        file: "crates/synced-mem/src/replicas.rs",
        old: "ranges.remove(&range);",
        new: "let _ = ranges;",
        test: &["-p", "synced-mem", "--lib", "every_state_of_three_copies"],
    },
    Mutant {
        name: "replicas: at the device though the host holds bytes too",
        file: "crates/synced-mem/src/replicas.rs",
        old: "host_none && device_all",
        new: "device_all",
        test: &["-p", "synced-mem", "--lib", "every_state_of_three_copies"],
    },
    Mutant {
        name: "replicas: the only copy of a range is dropped",
        file: "crates/synced-mem/src/replicas.rs",
        old: "self.only_in(slot, range).is_empty() && may_drop(range)",
        new: "may_drop(range)",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "the_smallest_range_that_others_hold",
        ],
    },
    Mutant {
        name: "replicas: a gap that is being written is closed",
        file: "crates/synced-mem/src/replicas.rs",
        old: "valid.gaps().filter(may_close).min_by_key",
        new: "valid.gaps().min_by_key",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "the_smallest_gap_that_may_be_closed",
        ],
    },
    Mutant {
        name: "replicas: sixteen ranges are too many",
        file: "crates/synced-mem/src/replicas.rs",
        old: "valid.len() > MOST_RANGES",
        new: "valid.len() >= MOST_RANGES",
        test: &["-p", "synced-mem", "--lib", "only_more_than_sixteen"],
    },
    Mutant {
        name: "ordering: a release forgets what was launched",
        file: "crates/synced-mem/src/ordering.rs",
        old: "gone.for_each(|gone| past.insert(gone.range));",
        new: "gone.for_each(drop);",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "no_race_within_a_few_steps_of_three_queues",
        ],
    },
    Mutant {
        name: "ordering: a writer does not wait for readers",
        file: "crates/synced-mem/src/ordering.rs",
        old: "one == Access::Write || other == Access::Write",
        new: "one == Access::Write",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "no_race_within_a_few_steps_of_three_queues",
        ],
    },
    Mutant {
        name: "ordering: live guards are nobody to wait for",
        file: "crates/synced-mem/src/ordering.rs",
        old: "self.past.overlaps(range) || (!range.is_empty() && self.live.iter().any(meets))",
        new: "self.past.overlaps(range)",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "no_race_within_a_few_steps_of_three_queues",
        ],
    },
    Mutant {
        name: "ordering: a write supersedes more than it covers",
        file: "crates/synced-mem/src/ordering.rs",
        old: "entry.past.remove(&range);",
        new: "entry.past = Ranges::new();",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "no_race_within_a_few_steps_of_three_queues",
        ],
    },
    Mutant {
        name: "ordering: the host settles more than it waited for",
        file: "crates/synced-mem/src/ordering.rs",
        old: "entry.past.remove(range);",
        new: "entry.past = Ranges::new();",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "no_race_within_a_few_steps_of_three_queues",
        ],
    },
    Mutant {
        name: "ordering: a host read settles readers",
        file: "crates/synced-mem/src/ordering.rs",
        old: "if conflict(entry.access, access) {",
        new: "if conflict(entry.access, access) || access == Access::Read {",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "no_race_within_a_few_steps_of_three_queues",
        ],
    },
    Mutant {
        name: "ordering: the past grows without end",
        file: "crates/synced-mem/src/ordering.rs",
        old: "entry.past.coarsen(MOST_RANGES);",
        new: "",
        test: &["-p", "synced-mem", "--lib", "past_"],
    },
    Mutant {
        name: "host: large blocks are aligned as small ones",
        file: "crates/synced-mem/src/host.rs",
        old: "if capacity < LARGE { ALIGN } else { ALIGN_LARGE }",
        new: "ALIGN",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "blocks_are_aligned_fresh_and_used",
        ],
    },
    Mutant {
        name: "host: an empty adopted slice keeps its address",
        file: "crates/synced-mem/src/host.rs",
        old: "if len == 0 { dangling() } else { ptr }",
        new: "ptr",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "nothing_is_aligned_whatever_its_source",
        ],
    },
    Mutant {
        name: "host: a used block of a pool counts as clean",
        file: "crates/synced-mem/src/host.rs",
        old: "Backing::Pooled { loan } => !loan.is_reused(),",
        new: "Backing::Pooled { .. } => true,",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "a_used_block_is_not_clean_and_nobody_cleared_it",
        ],
    },
    Mutant {
        name: "host: the first write to foreign bytes loses them",
        file: "crates/synced-mem/src/host.rs",
        old: "copy.make_mut_overwrite()?.copy_from_slice(self.as_slice());",
        new: "copy.make_mut_overwrite()?;",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "foreign_bytes_to_read_are_copied_by_a_write",
        ],
    },
    Mutant {
        name: "host: a block never comes back to its pool",
        file: "crates/synced-mem/src/host.rs",
        old: "loan.give_back();",
        new: "drop(loan);",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "a_block_is_used_again_by_its_class_only",
        ],
    },
    Mutant {
        name: "pool: the cap is exceeded",
        file: "crates/synced-mem/src/pool.rs",
        old: "if bytes > cap - self.bytes {",
        new: "if bytes > cap {",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "what_waits_never_exceeds_the_cap",
        ],
    },
    Mutant {
        name: "pool: a length gets a block of the class below",
        file: "crates/synced-mem/src/pool.rs",
        old: "index: index - 1,",
        new: "index,",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "a_block_is_used_again_by_its_class_only",
        ],
    },
    Mutant {
        name: "pool: what was taken still counts",
        file: "crates/synced-mem/src/pool.rs",
        old: "self.bytes -= spare.block.capacity();",
        new: "",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "a_block_is_used_again_by_its_class_only",
        ],
    },
    Mutant {
        name: "pool: a refused allocation leaves the pool full",
        file: "crates/synced-mem/src/pool.rs",
        old: r#"self.trim();
            HostBuffer::zeroed(len)"#,
        new: "HostBuffer::zeroed(len)",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "a_refused_allocation_empties_the_pool_and_names_the_length",
        ],
    },
    Mutant {
        name: "loopback: fresh memory looks like zero",
        file: "crates/synced-mem/src/loopback/memory.rs",
        old: "const POISON: u8 = 0xA5;",
        new: "const POISON: u8 = 0;",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "fresh_bytes_are_poison_and_zeros_are_not",
        ],
    },
    Mutant {
        name: "loopback: deferred work runs at once",
        file: "crates/synced-mem/src/loopback/machine.rs",
        old: "Mode::Deferred => {}",
        new: "Mode::Deferred => self.run_some(),",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "deferred_work_runs_only_for_who_needs_it",
        ],
    },
    Mutant {
        name: "loopback: a wait is for the past of now, not of then",
        file: "crates/synced-mem/src/loopback/machine.rs",
        old: "map_or(0, Lane::tail)",
        new: "map_or(0, |lane| lane.done)",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "deferred_work_runs_only_for_who_needs_it",
        ],
    },
    Mutant {
        name: "loopback: random order is none",
        file: "crates/synced-mem/src/loopback/machine.rs",
        old: "let chosen = self.random.below(ready.len());",
        new: "let chosen = 0;",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "random_order_is_that_of_its_seed_and_keeps_each_queue_in_order",
        ],
    },
    Mutant {
        name: "loopback: one injected failure clears the others",
        file: "crates/synced-mem/src/loopback/machine.rs",
        old: "account.failures.retain(|failure| *failure != this);",
        new: "account.failures.clear();",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "the_nth_call_fails_of_each_operation",
        ],
    },
    Mutant {
        name: "loopback: a launch reads what it writes",
        file: "crates/synced-mem/src/loopback/kernel.rs",
        old: "a.access == Access::Write || b.access",
        new: "a.access == Access::Write && b.access",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "a_launch_refuses_arguments_of_another_queue_and_overlapping_ones",
        ],
    },
    Mutant {
        name: "loopback: an argument of another queue passes",
        file: "crates/synced-mem/src/loopback/kernel.rs",
        old: "if arg.queue() != queue.id {",
        new: "if arg.queue() != arg.queue() {",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "a_launch_refuses_arguments_of_another_queue_and_overlapping_ones",
        ],
    },
    Mutant {
        name: "loopback: a block is freed out of order",
        file: "crates/synced-mem/src/loopback/queue.rs",
        old: "state.free(queue, self.piece.slot);",
        new: "state.memory.free(self.piece.slot);",
        test: &["-p", "blob-tests", "every_mode_of_the_loopback_conforms"],
    },
    Mutant {
        name: "loopback: a transfer past the end passes",
        file: "crates/synced-mem/src/loopback/queue.rs",
        old: "filter(|end| *end <= self.len())",
        new: "filter(|end| *end <= self.len() + 1)",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "misuses_are_errors_and_are_listed",
        ],
    },
    Mutant {
        name: "loopback: a limit is one byte off",
        file: "crates/synced-mem/src/loopback/queue.rs",
        old: "filter(|bytes| *bytes <= account.limit)",
        new: "filter(|bytes| *bytes < account.limit)",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "a_limit_counts_blocks_until_they_are_dropped",
        ],
    },
    Mutant {
        name: "loopback: a use after free goes unnoticed",
        file: "crates/synced-mem/src/loopback/task.rs",
        old: "None => to.poison(),",
        new: "None => {}",
        test: &[
            "-p",
            "synced-mem",
            "--lib",
            "a_block_freed_before_its_use_is_a_misuse_and_reads_as_poison",
        ],
    },
    Mutant {
        name: "conformance: blocks may overlap by a byte",
        file: "crates/synced-mem/src/conformance/blocks.rs",
        old: "pair[0].1 > pair[1].0)",
        new: "pair[0].1 > pair[1].0 + 1)",
        test: &["-p", "blob-tests", "broken_allocation_is_found"],
    },
    Mutant {
        name: "conformance: nobody looks behind a transfer",
        file: "crates/synced-mem/src/conformance/bytes.rs",
        old: "const TAIL: usize = 71;",
        new: "const TAIL: usize = 0;",
        test: &["-p", "blob-tests", "inexact_transfers_are_found"],
    },
    Mutant {
        name: "conformance: a memory in the backend goes unnoticed",
        file: "crates/synced-mem/src/conformance/order.rs",
        old: "ensure(before == after,",
        new: "ensure(before.uploads() == after.uploads(),",
        test: &["-p", "blob-tests", "a_memory_in_the_backend_is_found"],
    },
    Mutant {
        name: "copy: always on the device",
        file: "crates/synced-mem/src/copy.rs",
        old: "if (lacking, !preferred) < (host, true) =>",
        new: "if (lacking, !preferred) < (usize::MAX, host > 0) =>",
        test: &["-p", "blob-tests", "every_operation_on_blobs_costs"],
    },
    Mutant {
        name: "adopt: older copies stay valid",
        file: "crates/synced-mem/src/upkeep.rs",
        old: "        self.replicas.claim(slot, whole);",
        new: "        self.replicas.add(slot, whole);",
        test: &["-p", "blob-tests", "every_transition_costs"],
    },
    Mutant {
        name: "state: the host before another device",
        file: "crates/synced-mem/src/state.rs",
        old: "_ => devices.chain([HOST, FIXED]).collect(),",
        new: "_ => [HOST, FIXED].into_iter().chain(devices).collect(),",
        test: &["-p", "blob-tests", "every_transition_costs"],
    },
    Mutant {
        name: "state: a host write leaves the device valid",
        file: "crates/synced-mem/src/state.rs",
        old: r#"            self.claim(HOST, range);
"#,
        new: r#"            self.replicas.add(HOST, range.clone());
"#,
        test: &["-p", "blob-tests", "every_transition_costs"],
    },
    Mutant {
        name: "state: a host write does not wait for the queues",
        file: "crates/synced-mem/src/state.rs",
        old: r#"        self.settle_host(slot, range, intent.access())?;
        if intent"#,
        new: "        if intent",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "shared_memories_do_exactly_what_the_model_says",
        ],
    },
    Mutant {
        name: "state: a host write waits as a read does",
        file: "crates/synced-mem/src/state.rs",
        old: "self.settle_host(slot, range, intent.access())?;",
        new: "self.settle_host(slot, range, Access::Read)?;",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "shared_memories_do_exactly_what_the_model_says",
        ],
    },
    Mutant {
        name: "state: a host write leaves the devices valid",
        file: "crates/synced-mem/src/state.rs",
        old: "            self.claim(HOST, range);",
        new: "            self.replicas.add(HOST, range.clone());",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "shared_memories_do_exactly_what_the_model_says",
        ],
    },
    Mutant {
        name: "state: a device write leaves the others valid",
        file: "crates/synced-mem/src/state.rs",
        old: "            self.claim(slot, range);",
        new: "            self.replicas.add(slot, range.clone());",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "shared_memories_do_exactly_what_the_model_says",
        ],
    },
    Mutant {
        name: "state: a retired buffer is freed at once",
        file: "crates/synced-mem/src/queues.rs",
        old: "        let idle = |copy: &mut HostCopy| copy.uses.is_empty();",
        new: "        let idle = |_: &mut HostCopy| true;",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "a_block_comes_back_when_no_queue_uses_it_any_more",
        ],
    },
    Mutant {
        name: "bounds: a borrowed range is given up",
        file: "crates/synced-mem/src/bounds.rs",
        old: r#"            let free = |range: &Range<usize>| !self.borrows.touches(range);
            let range = self.replicas.range_to_drop"#,
        new: r#"            let free = |_: &Range<usize>| true;
            let range = self.replicas.range_to_drop"#,
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "where_gaps_are_being_written_a_range_that_nobody_borrows_is_given_up",
        ],
    },
    Mutant {
        name: "bounds: a gap that is written is closed",
        file: "crates/synced-mem/src/bounds.rs",
        old: "!borrows.writes(gap)",
        new: "borrows.writes(gap) | true",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "scattered_shared_memories_keep_their_bytes_and_their_bound",
        ],
    },
    Mutant {
        name: "state: a failed synchronise leaves the host valid",
        file: "crates/synced-mem/src/queues.rs",
        old: r#"            self.distrust(line);
"#,
        new: r#"            let _ = line;
"#,
        test: &["-p", "synced-mem", "--test", "machine", "a_failed_download"],
    },
    Mutant {
        name: "transfer: an upload is not entered as a read of the host",
        file: "crates/synced-mem/src/transfer.rs",
        old: r#"            order(&mut copy.uses, &line, range, Access::Read, None)?;
        }
        order("#,
        new: r#"            let _ = copy;
        }
        order("#,
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "a_buffer_that_a_broken_queue_may_still_read_is_leaked",
        ],
    },
    Mutant {
        name: "transfer: a download does not wait for the device's writers",
        file: "crates/synced-mem/src/transfer.rs",
        old: r#"        order(&mut copy.uses, &line, range, Access::Read, None)?;
        if self.is_lent(HOST)"#,
        new: r#"        let _ = &copy.uses;
        if self.is_lent(HOST)"#,
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "shared_memories_do_exactly_what_the_model_says",
        ],
    },
    Mutant {
        name: "upkeep: a block is freed without waiting",
        file: "crates/synced-mem/src/upkeep.rs",
        old: "            None => wait_for_all(&memory.line, &uses.queues()),",
        new: "            None => Ok(()),",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "shared_memories_do_exactly_what_the_model_says",
        ],
    },
    Mutant {
        name: "memory: the fast pointer is set before the bytes are there",
        file: "crates/synced-mem/src/memory.rs",
        old: r#"            let (start, _) = state.host(&state.whole(), Intent::Read)?;
            state.tidy(Sole::No);
            self.fast"#,
        new: r#"            state.prefetch_host(&state.whole())?;
            let start = state.host_ptr(crate::state::HOST, 0);
            self.fast"#,
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "a_scattered_owned_memory_keeps_its_bytes",
        ],
    },
    Mutant {
        name: "memory: a device write keeps the fast pointer",
        file: "crates/synced-mem/src/memory.rs",
        old: r#"        self.reset_fast();
        self.with_mut(|state| {
            let checked = state.check(&range)?;
            let (span"#,
        new: r#"        self.with_mut(|state| {
            let checked = state.check(&range)?;
            let (span"#,
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "a_scattered_owned_memory_keeps_its_bytes",
        ],
    },
    Mutant {
        name: "guards: a token's end does not end its borrow's uses",
        file: "crates/synced-mem/src/state.rs",
        old: "            copy.uses.release(borrow);",
        new: "            let _ = &copy.uses;",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "a_write_is_waited_for_and_not_what_it_has_waited_for",
        ],
    },
    Mutant {
        name: "copy: the destination's users are not waited for",
        file: "crates/synced-mem/src/copy.rs",
        old: "        order(&mut copy.uses, &copy.home, to, Access::Write, None)?;",
        new: "        let _ = order;",
        test: &["-p", "synced-mem", "--test", "machine", "queues_that_fail_"],
    },
    Mutant {
        name: "transfer: used blocks of a pool are not cleared",
        file: "crates/synced-mem/src/transfer.rs",
        old: "        if !copy.buffer.is_clean() {",
        new: "        if copy.buffer.len() == usize::MAX {",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "pooled_memories_do_exactly_what_the_model_says",
        ],
    },
    Mutant {
        name: "upkeep: uploads may still read an evicted buffer",
        file: "crates/synced-mem/src/upkeep.rs",
        old: r#"            self.settle_host(slot, range, Access::Write)?;
        }
        for slot"#,
        new: r#"        }
        for slot"#,
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "an_evicted_block_is_the_next_memorys_only_after_its_upload",
        ],
    },
    Mutant {
        name: "transfer: the host's way is not valid afterwards",
        file: "crates/synced-mem/src/transfer.rs",
        old: r#"            self.make_host()?;
            self.bring(HOST, range, None)?;
        }
        self.copy(HOST, to, range.clone(), line)"#,
        new: r#"            self.make_host()?;
        }
        self.copy(HOST, to, range.clone(), line)"#,
        test: &["-p", "synced-mem", "--test", "machine", "no_failure_"],
    },
    Mutant {
        name: "transfer: lent bytes are shown to queues",
        file: "crates/synced-mem/src/transfer.rs",
        old: ".is_some_and(|copy| copy.buffer.is_lent())",
        new: ".is_some_and(|copy| copy.buffer.is_lent() && false)",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "uploads_of_a_slice_are_over_when_the_call_returns",
        ],
    },
    Mutant {
        name: "borrows: evicting ignores who borrows the copy",
        file: "crates/synced-mem/src/borrows.rs",
        old: "let on_copy = |held: &&Borrow| held.slot == slot && held.overlaps(range);",
        new: "let on_copy = |held: &&Borrow| held.slot != slot && held.overlaps(range) && false;",
        test: &["-p", "synced-mem", "--test", "machine", "queues_that_fail_"],
    },
    Mutant {
        name: "copies: an access is not entered",
        file: "crates/synced-mem/src/copies.rs",
        old: "    uses.enter(by, range.clone(), access, guard);",
        new: "    let _ = guard;",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "the_range_of_a_token_is_no_gap_to_close",
        ],
    },
    Mutant {
        name: "copies: nobody waits",
        file: "crates/synced-mem/src/copies.rs",
        old: "        by.queue.wait_for(&*other.queue)?;",
        new: "        let _ = other;",
        test: &["-p", "synced-mem", "--test", "machine", "no_failure_"],
    },
    Mutant {
        name: "bounds: the host is tidied first",
        file: "crates/synced-mem/src/bounds.rs",
        old: "(0..self.replicas.slots()).rev().map(Slot)",
        new: "(0..self.replicas.slots()).map(Slot)",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "the_hosts_bound_holds_after_the_others_were_tidied",
        ],
    },
    Mutant {
        name: "bounds: what the owner is about to write is a gap to close",
        file: "crates/synced-mem/src/bounds.rs",
        old: "        let id = self.borrows.insert(range, Access::Write, slot);",
        new: "        let id = self.borrows.insert(0..0, Access::Write, slot); let _ = range;",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "the_range_of_a_slice_that_may_be_written_is_no_gap_to_close",
        ],
    },
    Mutant {
        name: "transfer: a device's bytes are filled without waiting",
        file: "crates/synced-mem/src/transfer.rs",
        old: r#"        order(&mut copy.uses, &line, range, Access::Write, None)?;
        if let Some(memory) = &copy.memory {"#,
        new: "        if let Some(memory) = &copy.memory {",
        test: &["-p", "synced-mem", "--test", "machine", "queues_that_fail_"],
    },
    Mutant {
        name: "within: user code runs under the lock",
        file: "crates/synced-mem/src/within.rs",
        old: r#"        let aftermath = state.aftermath();
        drop(state);
"#,
        new: r#"        let aftermath = state.aftermath();
"#,
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "an_observer_may_borrow_and_drop_the_last_handle",
        ],
    },
    Mutant {
        name: "scope: the slices do not get the newest bytes",
        file: "crates/synced-mem/src/scope.rs",
        old: "    owned.bring_back().map(|()| result)",
        new: "    let _ = Owned::bring_back; Ok(result)",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "bytes_that_cannot_be_brought_back_are_an_error_of_the_scope",
        ],
    },
    Mutant {
        name: "memory: the pointer is published without its bytes",
        file: "crates/synced-mem/src/memory.rs",
        old: "self.fast.store(start.as_ptr(), Ordering::Release);",
        new: "self.fast.store(start.as_ptr(), Ordering::Relaxed);",
        test: &[
            "-p",
            "synced-mem",
            "--release",
            "--test",
            "loom",
            "two_readers_cause_one_transfer_and_both_see_it",
        ],
    },
    Mutant {
        name: "memory: the pointer is read without its bytes",
        file: "crates/synced-mem/src/memory.rs",
        old: "self.fast.load(Ordering::Acquire)",
        new: "self.fast.load(Ordering::Relaxed)",
        test: &[
            "-p",
            "synced-mem",
            "--release",
            "--test",
            "loom",
            "two_readers_cause_one_transfer_and_both_see_it",
        ],
    },
    Mutant {
        name: "within: nobody asks who borrows",
        file: "crates/synced-mem/src/within.rs",
        old: "while let Err(conflict) = state.borrows.check(&checked, intent.access()) {",
        new: "while let Err(conflict) = state.borrows.check(&(0..0), intent.access()) {",
        test: &[
            "-p",
            "synced-mem",
            "--release",
            "--test",
            "loom",
            "overlapping_borrows_never_meet",
        ],
    },
    Mutant {
        name: "shared: who waits is not woken",
        file: "crates/synced-mem/src/shared.rs",
        old: "        if waiting > 0 {",
        new: "        if waiting > 1 {",
        test: &[
            "-p",
            "synced-mem",
            "--release",
            "--test",
            "loom",
            "who_waits_is_woken",
        ],
    },
    Mutant {
        name: "upkeep: a copy on its way counts as there",
        file: "crates/synced-mem/src/upkeep.rs",
        old: r#"        self.settle_others(slot, range)?;
        self.replicas.give_up(slot, range);"#,
        new: "        self.replicas.give_up(slot, range);",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "review",
            "a_copy_on_its_way_is_nothing_to_rely_on",
        ],
    },
    Mutant {
        name: "bounds: bytes on their way count as there",
        file: "crates/synced-mem/src/bounds.rs",
        old: r#"            if self.settle_others(slot, &range).is_err() {
                return;
            }
"#,
        new: "",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "review",
            "the_bound_gives_up_nothing_for_bytes_that_are_on_their_way",
        ],
    },
    Mutant {
        name: "queues: retired buffers pile up",
        file: "crates/synced-mem/src/queues.rs",
        old: "while self.retired.len() > MOST_RETIRED {",
        new: "while self.retired.len() > usize::MAX - 1 {",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "review",
            "adopted_batches_do_not_pile_up",
        ],
    },
    Mutant {
        name: "transfer: a way that is missing is paid for again",
        file: "crates/synced-mem/src/transfer.rs",
        old: r#"            self.devices[index].unreachable.push(slot);
"#,
        new: "",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "machine",
            "shared_memories_do_exactly_what_the_model_says",
        ],
    },
    Mutant {
        name: "within: patience is spent before the borrow",
        file: "crates/synced-mem/src/within.rs",
        old: "        let deadline = self.timeout.and_then(deadline);",
        new: "        let deadline = self.timeout.and(Some(Instant::now()));",
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "review",
            "patience_starts_anew_with_each_borrow",
        ],
    },
    Mutant {
        name: "loopback: a payload that panics is not caught",
        file: "crates/synced-mem/src/loopback/kernel.rs",
        old: "if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {",
        new: r#"if let Err(second) = Err::<(), _>(panic) {
                let second = drop(second);"#,
        test: &[
            "-p",
            "synced-mem",
            "--test",
            "review",
            "a_panic_that_panics_again_is_a_device_error",
        ],
    },
];
