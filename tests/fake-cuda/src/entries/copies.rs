//! Entry points: copies and fills. As in a real driver, pageable memory is read during the call, and pinned memory when
//! the copy runs. A copy into pageable memory is complete when the call returns.

use std::ffi::{c_uchar, c_uint, c_ushort};

use super::entries;
use crate::abi::Code;
use crate::driver::{Driver, Place, Work};
use crate::host;

/// Refuses a range that is in no block. Whether the block exists by then is checked when the work runs.
fn check(driver: &mut Driver, address: u64, len: usize) -> Result<(), Code> {
    let block = driver.memory.around(address);
    match block {
        Some(block) if len <= block.len - (address - block.start) as usize && !block.is_given_back => Ok(()),
        Some(block) if block.is_given_back => Err(driver.refuse(Code::INVALID_VALUE, "memory is used that is freed")),
        _ => Err(driver.refuse(Code::INVALID_VALUE, format!("a copy or fill of {len} bytes outside device memory"))),
    }
}

fn upload(driver: &mut Driver, to: u64, from: usize, len: usize, stream: usize) -> Result<(), Code> {
    if len == 0 {
        return Ok(());
    }
    check(driver, to, len)?;
    let place =
        if driver.pinned.has(from, len) { Place::Host(from) } else { Place::Taken(host::bytes(from, len).to_vec()) };
    driver.enqueue(stream, Work::Copy { to: Place::Device(to), from: place, len }).map(drop)
}

fn download(driver: &mut Driver, to: usize, from: u64, len: usize, stream: usize) -> Result<(), Code> {
    if len == 0 {
        return Ok(());
    }
    check(driver, from, len)?;
    let device = driver.stream_device(stream)?;
    let work = Work::Copy { to: Place::Host(to), from: Place::Device(from), len };
    let ticket = driver.enqueue(stream, work)?;
    if driver.pinned.has(to, len) { Ok(()) } else { driver.wait(device, ticket) }
}

fn copy(driver: &mut Driver, to: u64, from: u64, len: usize, stream: usize) -> Result<(), Code> {
    if len == 0 {
        return Ok(());
    }
    check(driver, to, len)?;
    check(driver, from, len)?;
    driver.enqueue(stream, Work::Copy { to: Place::Device(to), from: Place::Device(from), len }).map(drop)
}

/// A copy between devices names the context of each end, and must name the right one.
fn peer(driver: &mut Driver, ends: [(u64, usize); 2], len: usize, stream: usize) -> Result<(), Code> {
    for (address, context) in ends {
        let device = driver.device_of(context)?;
        if driver.memory.device_of(address) != Some(device) {
            return Err(driver.refuse(Code::INVALID_VALUE, "a peer copy names another context than the memory's"));
        }
        if let Some(code) = driver.devices[device].failed {
            return Err(code);
        }
    }
    copy(driver, ends[0].0, ends[1].0, len, stream)
}

fn fill(driver: &mut Driver, address: u64, pattern: &[u8], count: usize, stream: usize) -> Result<(), Code> {
    let len = count.checked_mul(pattern.len()).ok_or(Code::INVALID_VALUE)?;
    if len == 0 {
        return Ok(());
    }
    if !address.is_multiple_of(pattern.len() as u64) {
        return Err(driver.refuse(Code::INVALID_VALUE, "a fill at a misaligned address"));
    }
    check(driver, address, len)?;
    driver.enqueue(stream, Work::Fill { address, pattern: pattern.to_vec(), len }).map(drop)
}

/// Waits for the null stream: the end of a call that is not asynchronous.
fn wait(driver: &mut Driver) -> Result<(), Code> {
    driver.synchronise(0)
}

entries! {
    Context fn cuMemcpyHtoD_v2(driver, to: u64, from: usize, len: usize) {
        upload(driver, to, from, len, 0)?;
        wait(driver)
    }
    Context fn cuMemcpyDtoH_v2(driver, to: usize, from: u64, len: usize) {
        download(driver, to, from, len, 0)?;
        wait(driver)
    }
    Context fn cuMemcpyDtoD_v2(driver, to: u64, from: u64, len: usize) { copy(driver, to, from, len, 0) }
    Context fn cuMemcpyHtoDAsync_v2(driver, to: u64, from: usize, len: usize, stream: usize) {
        upload(driver, to, from, len, stream)
    }
    Context fn cuMemcpyDtoHAsync_v2(driver, to: usize, from: u64, len: usize, stream: usize) {
        download(driver, to, from, len, stream)
    }
    Context fn cuMemcpyDtoDAsync_v2(driver, to: u64, from: u64, len: usize, stream: usize) {
        copy(driver, to, from, len, stream)
    }
    Context fn cuMemcpyPeerAsync(driver, to: u64, to_context: usize, from: u64, from_context: usize, len: usize, stream: usize) {
        peer(driver, [(to, to_context), (from, from_context)], len, stream)
    }

    Context fn cuMemsetD8_v2(driver, address: u64, value: c_uchar, count: usize) { fill(driver, address, &[value], count, 0) }
    Context fn cuMemsetD8Async(driver, address: u64, value: c_uchar, count: usize, stream: usize) {
        fill(driver, address, &[value], count, stream)
    }
    Context fn cuMemsetD16Async(driver, address: u64, value: c_ushort, count: usize, stream: usize) {
        fill(driver, address, &value.to_ne_bytes(), count, stream)
    }
    Context fn cuMemsetD32Async(driver, address: u64, value: c_uint, count: usize, stream: usize) {
        fill(driver, address, &value.to_ne_bytes(), count, stream)
    }
}
