//! What a test asks the driver to be, and what it asks about it: passed through exported functions, so both sides agree on the layout.

/// The driver and its GPUs, as a test wants them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Setup {
    /// How many GPUs there are.
    pub devices: u32,
    /// What `cuDriverGetVersion` answers.
    pub version: i32,
    /// What `cuInit` answers: 0, or for example 34, as the toolkit's stub library does.
    pub init: u32,
    /// Bytes of memory on each GPU.
    pub memory: u64,
    /// Whether the GPUs have memory pools.
    pub has_pools: bool,
    /// The compute capability, ten times its first part and its second: 90 for 9.0.
    pub capability: u32,
    /// Decides the order in which streams, blocks and warps go on.
    pub seed: u64,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { devices: 2, version: 12_000, init: 0, memory: 1 << 30, has_pools: true, capability: 90, seed: 0 }
    }
}

/// What has been made and not been given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Leaks {
    /// Primary contexts still retained, each as often as it is.
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
    /// Their bytes.
    pub bytes: u64,
    /// Blocks of pinned host memory, allocated or registered.
    pub pinned: u64,
}
