//! Random programs over memories with two devices of one backend and a foreign one, two queues each, against a model
//! of cells: results, validity, moved bytes and contents must be what the model says, in whatever order queues run.
//! It leaves out threads (`soak`, loom, and the units' tests) and adopted device memory (the conformance suite).

mod bounded;
mod failures;
#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "threads have some of it")]
mod harness;
mod lent;
mod pooled;
mod waits;
mod watched;

use proptest::prelude::*;

use harness::op::{Scale, modes, owned, program};
use harness::world::{Rules, World};

/// How many programs each machine runs.
fn cases(count: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(count) }
}

proptest! {
    #![proptest_config(cases(2000))]

    /// Few enough cells that no copy ever has too many ranges: everything is exactly as the model says.
    #[test]
    fn shared_memories_do_exactly_what_the_model_says(
        mode in modes(),
        program in program(Scale::Exact, 1..40),
    ) {
        World::new(mode, 20, Rules::EXACT).run(&program);
    }

    #[test]
    fn memories_of_origins_do_exactly_what_the_model_says(
        mode in modes(),
        program in program(Scale::Exact, 1..40),
    ) {
        World::of_origins(mode, 20, Rules::EXACT).run(&program);
    }

    #[test]
    fn an_owned_memory_of_an_origin_does_exactly_what_the_model_says(mode in modes(), program in owned(Scale::Exact)) {
        World::of_origins(mode, 20, Rules::EXACT).run(&program);
    }

    /// Some of the devices move bytes of the host without the memory's lock.
    #[test]
    fn memories_whose_transfers_wait_for_a_device_do_exactly_what_the_model_says(
        mode in modes(),
        staged in 1..64usize,
        of_origins in any::<bool>(),
        program in program(Scale::Exact, 1..40),
    ) {
        let new = if of_origins { World::of_origins } else { World::new };
        new(mode, 20, Rules::EXACT).staged(staged).run(&program);
    }

    /// Some of the devices read the host's bytes where they lie.
    #[test]
    fn memories_on_devices_that_share_the_hosts_memory_do_exactly_what_the_model_says(
        mode in modes(),
        sharing in 1..8usize,
        staged in 0..64usize,
        of_origins in any::<bool>(),
        program in program(Scale::Exact, 1..40),
    ) {
        let new = if of_origins { World::of_origins } else { World::new };
        new(mode, 20, Rules::EXACT).staged(staged).sharing(sharing).run(&program);
    }

    #[test]
    fn an_owned_memory_on_devices_that_share_the_hosts_memory_does_exactly_what_the_model_says(
        mode in modes(),
        sharing in 1..8usize,
        of_origins in any::<bool>(),
        program in owned(Scale::Exact),
    ) {
        let new = if of_origins { World::of_origins } else { World::new };
        new(mode, 20, Rules::EXACT).sharing(sharing).run(&program);
    }

    #[test]
    fn scattered_memories_on_devices_that_share_the_hosts_memory_keep_their_bytes(
        mode in modes(),
        sharing in 1..8usize,
        program in program(Scale::Scattered, 1..30),
    ) {
        World::new(mode, 96, Rules::SCATTERED).sharing(sharing).run(&program);
    }

    /// Scattered single cells, so that gaps are closed and ranges given up: contents, and the bound itself.
    #[test]
    fn scattered_shared_memories_keep_their_bytes_and_their_bound(
        mode in modes(),
        program in program(Scale::Scattered, 1..30),
    ) {
        World::new(mode, 96, Rules::SCATTERED).run(&program);
    }

    /// The same for memories with one owner: plain slices, and tokens that are used for a while, or forgotten.
    #[test]
    fn an_owned_memory_does_exactly_what_the_model_says(mode in modes(), program in owned(Scale::Exact)) {
        World::new(mode, 20, Rules::EXACT).run(&program);
    }

    #[test]
    fn a_scattered_owned_memory_keeps_its_bytes(mode in modes(), program in owned(Scale::Scattered)) {
        World::new(mode, 96, Rules::SCATTERED).run(&program);
    }
}
