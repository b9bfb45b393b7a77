//! Entry points: streams and events.

use std::ffi::{c_int, c_uint};

use super::entries;
use crate::abi::Code;
use crate::driver::Driver;
use crate::host::Out;

const STREAM_NON_BLOCKING: c_uint = 1;
const EVENT_DISABLE_TIMING: c_uint = 2;

fn create(driver: &mut Driver, out: Out<usize>, flags: c_uint) -> Result<(), Code> {
    let device = driver.current_device()?;
    match flags {
        0 | STREAM_NON_BLOCKING => out.put(driver.streams.create(device, flags == 0)),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Whether an event's record is done. Each query runs one piece of work.
fn query(driver: &mut Driver, event: usize) -> Result<(), Code> {
    let event = *driver.event(event)?;
    driver.step();
    match driver.devices[event.device].failed {
        Some(code) => Err(code),
        None if event.record.is_none_or(|ticket| driver.streams.is_done(ticket)) => Ok(()),
        None => Err(Code::NOT_READY),
    }
}

fn elapsed(driver: &mut Driver, out: Out<f32>, start: usize, end: usize) -> Result<(), Code> {
    for handle in [start, end] {
        let event = *driver.event(handle)?;
        match event.record {
            Some(_) if !event.has_time => return Err(Code::INVALID_HANDLE),
            Some(ticket) if !driver.streams.is_done(ticket) => return Err(Code::NOT_READY),
            Some(_) => {}
            None => return Err(Code::INVALID_HANDLE),
        }
    }
    out.put(1.0)
}

entries! {
    Context fn cuStreamCreate(driver, out: Out<usize>, flags: c_uint) { create(driver, out, flags) }
    Context fn cuStreamCreateWithPriority(driver, out: Out<usize>, flags: c_uint, _priority: c_int) {
        create(driver, out, flags)
    }
    Release fn cuStreamDestroy_v2(driver, stream: usize) { driver.destroy_stream(stream) }
    Context fn cuStreamSynchronize(driver, stream: usize) { driver.synchronise(stream) }
    Context fn cuStreamQuery(driver, stream: usize) { driver.query(stream) }
    Context fn cuStreamWaitEvent(driver, stream: usize, event: usize, _flags: c_uint) { driver.wait_event(stream, event) }

    Context fn cuEventCreate(driver, out: Out<usize>, flags: c_uint) {
        let device = driver.current_device()?;
        out.put(driver.streams.create_event(device, flags & EVENT_DISABLE_TIMING == 0))
    }
    Release fn cuEventDestroy_v2(driver, event: usize) { driver.destroy_event(event) }
    Context fn cuEventRecord(driver, event: usize, stream: usize) { driver.record(event, stream) }
    Context fn cuEventQuery(driver, event: usize) { query(driver, event) }
    Context fn cuEventSynchronize(driver, event: usize) {
        let event = *driver.event(event)?;
        event.record.map_or(Ok(()), |ticket| driver.wait(event.device, ticket))
    }
    Context fn cuEventElapsedTime(driver, out: Out<f32>, start: usize, end: usize) { elapsed(driver, out, start, end) }
}
