//! The driver's configuration and the counters, which tests pass through exported functions. Test and library must
//! agree on the layout.

/// The configuration of the driver and the GPUs.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Setup {
    /// How many GPUs there are.
    pub devices: u32,
    /// The answer of `cuDriverGetVersion`.
    pub version: i32,
    /// The answer of `cuInit`: 0, or for example 34, as the toolkit's stub library does.
    pub init: u32,
    /// Bytes of memory on each GPU.
    pub memory: u64,
    /// Whether the GPUs have memory pools.
    pub has_pools: bool,
    /// The compute capability, ten times the first part and the second: 90 for 9.0.
    pub capability: u32,
    /// Whether the GPUs have a way to each other's memory.
    pub has_peers: bool,
    /// Whether the GPUs are integrated and access pageable memory: then kernels read host memory where it lies.
    pub shares_host: bool,
    /// The seed of the order in which streams, blocks and warps run.
    pub seed: u64,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            devices: 2,
            version: 12_000,
            init: 0,
            memory: 1 << 30,
            has_pools: true,
            capability: 90,
            has_peers: true,
            shares_host: false,
            seed: 0,
        }
    }
}

impl Setup {
    /// The configuration for a program that preloads the driver without a session: the default, changed by the variable
    /// `FAKE_CUDA`: `devices=0`, `version=11080`, `init=34`, `memory=1000000`.
    pub(crate) fn from_environment() -> Setup {
        let mut setup = Setup::default();
        let said = std::env::var("FAKE_CUDA").unwrap_or_default();
        for (name, value) in said.split(',').filter_map(|word| word.split_once('=')) {
            let value = value.parse().unwrap_or_else(|_| panic!("FAKE_CUDA: {value:?} is no number"));
            match name {
                "devices" => setup.devices = value,
                "version" => setup.version = i32::try_from(value).unwrap_or(i32::MAX),
                "init" => setup.init = value,
                "memory" => setup.memory = value.into(),
                other => panic!("FAKE_CUDA: {other:?} cannot be set"),
            }
        }
        setup
    }
}

/// The number of objects that were created and not released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Leaks {
    /// The sum of the reference counts of the primary contexts.
    pub contexts: u64,
    /// Streams.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Modules.
    pub modules: u64,
    /// Memory pools.
    pub pools: u64,
    /// Blocks of device memory.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// Blocks of pinned host memory, allocated or registered.
    pub pinned: u64,
}

/// The counts of a kernel, summed over the launches: not the time, but the figures behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counts {
    /// The number of launches.
    pub launches: u64,
    /// Instructions, counted for each thread.
    pub instructions: u64,
    /// Instructions, counted for each group of a warp's threads that ran together.
    pub issues: u64,
    /// Loads from global memory.
    pub loads: Traffic,
    /// Stores to global memory.
    pub stores: Traffic,
    /// The most parts that one access to shared memory had to be done in, because of the banks.
    pub bank_conflict: u64,
    /// Divisions of 64-bit integers that stand in a loop of the PTX.
    pub long_divisions: u64,
}

/// Accesses to global memory in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Traffic {
    /// Accesses, counted for each thread.
    pub accesses: u64,
    /// Bytes of these accesses.
    pub bytes: u64,
    /// Bytes without those that another thread of the same access also had.
    pub distinct: u64,
    /// The sectors of 32 bytes moved for these accesses.
    pub sectors: u64,
}

impl Traffic {
    /// The share of the bytes moved that was asked for: 1 at best.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        self.distinct as f64 / (32 * self.sectors.max(1)) as f64
    }

    /// Bytes of one thread's access.
    #[must_use]
    pub fn bytes_per_access(&self) -> f64 {
        self.bytes as f64 / self.accesses.max(1) as f64
    }
}
