//! Entry points: device memory, pools, pinned memory of the host, the kind of a pointer.

use std::ffi::{c_int, c_uint};

use super::entries;
use crate::abi::Code;
use crate::driver::{Driver, Pools, context_handle};
use crate::host::{In, Out};
use crate::setup::Leaks;

const ATTRIBUTE_RELEASE_THRESHOLD: c_int = 4;
const MEMORY_HOST: u32 = 1;
const MEMORY_DEVICE: u32 = 2;

fn set_pool(driver: &mut Driver, pool: usize, attribute: c_int, value: In<u64>) -> Result<(), Code> {
    match attribute {
        // The three reuse policies affect only speed.
        1..=3 => driver.pools.device_of(pool).map(drop),
        ATTRIBUTE_RELEASE_THRESHOLD => driver.pools.set_threshold(pool, value.get(0)?),
        // A mark of the most bytes can be set to 0 alone.
        6 | 8 if value.get(0)? == 0 => driver.pools.reset_high(pool, (attribute as usize - 6) / 2),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn get_pool(driver: &mut Driver, pool: usize, attribute: c_int, out: Out<u64>) -> Result<(), Code> {
    let state = driver.pools.state(pool)?;
    let number = usize::try_from(attribute - ATTRIBUTE_RELEASE_THRESHOLD).ok();
    number.and_then(|number| state.get(number)).map_or(Err(Code::INVALID_VALUE), |value| out.put(*value))
}

/// `CUmemPoolProps` up to the device: allocation type, handle types, kind of place, number of the device.
fn create_pool(driver: &mut Driver, out: Out<usize>, props: In<c_int>) -> Result<(), Code> {
    let [kind, handles, place, device] = [props.get(0)?, props.get(1)?, props.get(2)?, props.get(3)?];
    let device = driver.device(device)?;
    match (kind, handles, place) {
        _ if !driver.setup.has_pools => Err(Code::NOT_SUPPORTED),
        (1, 0, 1) => out.put(driver.pools.create(device)),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// The attributes of a pointer that can be answered without a GPU.
fn attribute(driver: &mut Driver, out: Out<u64>, attribute: c_int, address: u64) -> Result<(), Code> {
    let device = driver.memory.device_of(address);
    let block =
        driver.memory.around(address).filter(|block| !block.is_given_back).map(|block| (block.start, block.len as u64));
    let pinned = driver.pinned.around(address as usize).map(|(start, len)| (start as u64, len as u64));
    let (start, len) = block.or(pinned).ok_or(Code::INVALID_VALUE)?;
    let small = |out: Out<u64>, value: u32| out.narrow::<u32>().put(value);
    match attribute {
        1 => out.put(context_handle(device.unwrap_or_default()) as u64),
        2 => small(out, if block.is_some() { MEMORY_DEVICE } else { MEMORY_HOST }),
        3 if block.is_some() => out.put(address),
        4 if block.is_none() => out.put(address),
        8 => out.narrow::<u8>().put(0),
        9 => small(out, device.unwrap_or_default() as u32),
        11 => out.put(start),
        12 => out.put(len),
        _ => Err(Code::INVALID_VALUE),
    }
}

entries! {
    Context fn cuMemAlloc_v2(driver, out: Out<u64>, len: usize) { out.put(driver.allocate_now(len)?) }
    Release fn cuMemFree_v2(driver, address: u64) { if address == 0 { Ok(()) } else { driver.free_now(address) } }
    Context fn cuMemAllocAsync(driver, out: Out<u64>, len: usize, stream: usize) {
        let pool = Pools::default_of(driver.stream_device(stream)?);
        out.put(driver.allocate_in_order(pool, len, stream)?)
    }
    Context fn cuMemAllocFromPoolAsync(driver, out: Out<u64>, len: usize, pool: usize, stream: usize) {
        out.put(driver.allocate_in_order(pool, len, stream)?)
    }
    Release fn cuMemFreeAsync(driver, address: u64, stream: usize) { driver.free_in_order(address, stream) }
    Context fn cuMemGetInfo_v2(driver, free: Out<usize>, total: Out<usize>) {
        let device = driver.current_device()?;
        free.put(driver.pools.free_bytes(device) as usize)?;
        total.put(driver.setup.memory as usize)
    }

    Ready fn cuMemPoolCreate(driver, out: Out<usize>, props: In<c_int>) { create_pool(driver, out, props) }
    Release fn cuMemPoolDestroy(driver, pool: usize) { driver.pools.destroy(pool) }
    Ready fn cuMemPoolTrimTo(driver, pool: usize, keep: usize) { driver.pools.trim(pool, keep as u64) }
    Ready fn cuMemPoolSetAttribute(driver, pool: usize, attribute: c_int, value: In<u64>) {
        set_pool(driver, pool, attribute, value)
    }
    Ready fn cuMemPoolGetAttribute(driver, pool: usize, attribute: c_int, out: Out<u64>) {
        get_pool(driver, pool, attribute, out)
    }
    Ready fn cuDeviceGetDefaultMemPool(driver, out: Out<usize>, device: c_int) {
        let device = driver.device(device)?;
        if driver.setup.has_pools { out.put(Pools::default_of(device)) } else { Err(Code::NOT_SUPPORTED) }
    }

    Context fn cuMemHostAlloc(driver, out: Out<usize>, len: usize, _flags: c_uint) { out.put(driver.pinned.allocate(len)?) }
    Context fn cuMemAllocHost_v2(driver, out: Out<usize>, len: usize) { out.put(driver.pinned.allocate(len)?) }
    Release fn cuMemFreeHost(driver, start: usize) { driver.unpin(start, true) }
    Context fn cuMemHostRegister_v2(driver, start: usize, len: usize, _flags: c_uint) { driver.pinned.register(start, len) }
    Release fn cuMemHostUnregister(driver, start: usize) { driver.unpin(start, false) }
    Context fn cuPointerGetAttribute(driver, out: Out<u64>, number: c_int, address: u64) {
        attribute(driver, out, number, address)
    }
}

/// The objects that were created and not released.
pub(super) fn leaks(driver: &Driver) -> Leaks {
    let blocks: Vec<_> = driver.memory.all().filter(|block| block.is_held()).collect();
    let (streams, events) = driver.streams.counts();
    Leaks {
        contexts: driver.devices.iter().map(|device| device.retained).sum(),
        streams: streams as u64,
        events: events as u64,
        modules: driver.modules.count() as u64,
        pools: driver.pools.count() as u64,
        blocks: blocks.len() as u64,
        bytes: blocks.iter().map(|block| block.len as u64).sum(),
        pinned: driver.pinned.count() as u64,
    }
}
