//! Entry points: start, devices, primary contexts, names of errors.

use std::ffi::{c_char, c_int, c_uint};

use super::entries;
use crate::abi::{self, Code};
use crate::driver::{Driver, current, set_current};
use crate::host::Out;

/// A name that C reads up to the zero byte.
fn name_of(code: u32, out: Out<*const c_char>) -> Result<(), Code> {
    let name = Code(code).name().ok_or(Code::INVALID_VALUE);
    out.put(name.map_or(std::ptr::null(), |name| name.as_ptr().cast()))?;
    name.map(drop)
}

/// The bytes by which a device is known.
fn uuid(driver: &mut Driver, out: Out<[u8; 16]>, device: c_int) -> Result<(), Code> {
    let device = driver.device(device)?;
    out.put(std::array::from_fn(|at| if at == 15 { device as u8 } else { 0xFA }))
}

/// The context's handle in C.
fn context(driver: &mut Driver, out: Out<usize>, device: c_int) -> Result<(), Code> {
    let device = driver.device(device)?;
    out.put(driver.retain_context(device))
}

entries! {
    Early fn cuInit(driver, flags: c_uint) {
        match driver.setup.init {
            0 if flags != 0 => Err(Code::INVALID_VALUE),
            0 if driver.devices.is_empty() => Err(Code::NO_DEVICE),
            0 => {
                driver.is_initialised = true;
                Ok(())
            }
            code => Err(Code(code)),
        }
    }
    Early fn cuDriverGetVersion(driver, out: Out<c_int>) { out.put(driver.setup.version) }
    Early fn cuGetErrorName(_driver, code: u32, out: Out<*const c_char>) { name_of(code, out) }
    Early fn cuGetErrorString(_driver, code: u32, out: Out<*const c_char>) { name_of(code, out) }

    Ready fn cuDeviceGetCount(driver, out: Out<c_int>) { out.put(driver.devices.len() as c_int) }
    Ready fn cuDeviceGet(driver, out: Out<c_int>, ordinal: c_int) {
        out.put(driver.device(ordinal)? as c_int)
    }
    Ready fn cuDeviceGetName(driver, out: Out<[u8; 10]>, len: c_int, device: c_int) {
        driver.device(device)?;
        if len < 10 { return Err(Code::INVALID_VALUE); }
        out.put(*b"Fake CUDA\0")
    }
    Ready fn cuDeviceTotalMem_v2(driver, out: Out<usize>, device: c_int) {
        driver.device(device)?;
        out.put(driver.setup.memory as usize)
    }
    Ready fn cuDeviceGetAttribute(driver, out: Out<c_int>, attribute: c_int, device: c_int) {
        driver.device(device)?;
        out.put(abi::attribute(attribute, &driver.setup).ok_or(Code::INVALID_VALUE)?)
    }
    Ready fn cuDeviceGetUuid(driver, out: Out<[u8; 16]>, device: c_int) { uuid(driver, out, device) }
    Ready fn cuDeviceGetUuid_v2(driver, out: Out<[u8; 16]>, device: c_int) { uuid(driver, out, device) }
    Ready fn cuDeviceCanAccessPeer(driver, out: Out<c_int>, device: c_int, peer: c_int) {
        let is_other = driver.device(device)? != driver.device(peer)?;
        out.put(c_int::from(is_other && driver.setup.has_peers))
    }
    Context fn cuCtxEnablePeerAccess(driver, context: usize, flags: c_uint) {
        let (own, peer) = (driver.current_device()?, driver.device_of(context)?);
        if flags != 0 || own == peer { return Err(Code::INVALID_DEVICE); }
        if !driver.setup.has_peers { return Err(Code::PEER_ACCESS_UNSUPPORTED); }
        if driver.devices[own].peers.contains(&peer) { return Err(Code::PEER_ACCESS_ALREADY_ENABLED); }
        driver.devices[own].peers.push(peer);
        Ok(())
    }

    Ready fn cuDevicePrimaryCtxRetain(driver, out: Out<usize>, device: c_int) { context(driver, out, device) }
    Release fn cuDevicePrimaryCtxRelease_v2(driver, device: c_int) {
        let device = driver.device(device)?;
        driver.release_context(device)
    }
    Ready fn cuCtxSetCurrent(driver, context: usize) {
        if context != 0 {
            driver.device_of(context)?;
        }
        set_current(context);
        Ok(())
    }
    Ready fn cuCtxGetCurrent(_driver, out: Out<usize>) { out.put(current()) }
    Context fn cuCtxGetDevice(driver, out: Out<c_int>) { out.put(driver.current_device()? as c_int) }
    Context fn cuCtxSynchronize(driver) {
        let device = driver.current_device()?;
        driver.run_device(device);
        driver.devices[device].failed.map_or(Ok(()), Err)
    }
    Context fn cuCtxGetStreamPriorityRange(_driver, least: Out<c_int>, greatest: Out<c_int>) {
        least.put_if_wanted(0);
        greatest.put_if_wanted(-5);
        Ok(())
    }
}
