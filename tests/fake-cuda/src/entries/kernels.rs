//! Entry points: modules, functions, launches.

use std::ffi::{c_char, c_int, c_uint};

use super::entries;
use crate::abi::{Code, MAX_THREADS};
use crate::driver::Driver;
use crate::exec::Launch;
use crate::host::{self, In, Out};
use crate::ptx::Kernel;

const PARAM_END: usize = 0;
const PARAM_POINTER: usize = 1;
const PARAM_SIZE: usize = 2;

/// The parameters' bytes: each at its own address, or all in one buffer.
fn params(kernel: &Kernel, each: In<usize>, extra: In<usize>) -> Result<Vec<u8>, Code> {
    if !each.is_null() {
        let mut bytes = vec![0; kernel.params];
        for (index, (at, len)) in kernel.param_places.iter().enumerate() {
            bytes[*at..at + len].copy_from_slice(host::bytes(each.get(index)?, *len));
        }
        return Ok(bytes);
    }
    let (mut start, mut len) = (0, 0);
    if !extra.is_null() {
        for pair in 0.. {
            match extra.get(2 * pair)? {
                PARAM_END => break,
                PARAM_POINTER => start = extra.get(2 * pair + 1)?,
                PARAM_SIZE => {
                    len = usize::from_ne_bytes(host::bytes(extra.get(2 * pair + 1)?, 8).try_into().unwrap_or_default())
                }
                _ => return Err(Code::INVALID_VALUE),
            }
        }
    }
    Ok(host::bytes(start, len).to_vec())
}

/// The length of a cubin's header. Here the PTX follows in place of machine code, which this driver cannot run.
const ELF_HEADER: usize = 64;

fn load(driver: &mut Driver, out: Out<usize>, image: In<c_char>, log: Option<Log>) -> Result<(), Code> {
    let is_cubin = image.text().is_ok_and(|text| text.starts_with("\x7fELF"));
    let text = image.from(if is_cubin { ELF_HEADER } else { 0 });
    let text = text.text().map_err(|_| Code::INVALID_IMAGE)?;
    let module = driver.load(text).map_err(|(code, words)| {
        log.iter().for_each(|log| log.write(&words));
        code
    })?;
    out.put(module)
}

/// Where the caller wants the compiler's words, and how many bytes of them at most.
struct Log {
    at: usize,
    len: usize,
}

impl Log {
    /// Among the options of a load, by `CUjit_option`'s numbers; a length is passed in place of a pointer.
    fn wanted(count: c_uint, options: In<c_int>, values: In<usize>) -> Result<Option<Log>, Code> {
        const BUFFER: c_int = 5;
        const LENGTH: c_int = 6;
        let (mut at, mut len) = (0, 0);
        for index in 0..count as usize {
            match options.get(index)? {
                BUFFER => at = values.get(index)?,
                LENGTH => len = values.get(index)?,
                _ => {}
            }
        }
        Ok((at != 0 && len > 0).then_some(Log { at, len }))
    }

    /// As much as there is room for, and a zero byte.
    fn write(&self, words: &str) {
        let room = words.len().min(self.len - 1);
        host::write(self.at, &[&words.as_bytes()[..room], &[0]].concat());
    }
}

/// `CUfunction_attribute` by number.
fn attribute(kernel: &Kernel, number: c_int) -> Result<c_int, Code> {
    Ok(match number {
        0 => MAX_THREADS as c_int,
        1 => kernel.shared as c_int,
        2 | 3 | 7 => 0,
        4 => 32,
        5 => 80,
        6 => 90,
        8 => 48 * 1024,
        _ => return Err(Code::INVALID_VALUE),
    })
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: usize,
    attributes: In<Attribute>,
    count: c_uint,
}

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attribute {
    id: c_int,
    _padding: c_int,
    value: [c_int; 16],
}

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
const COOPERATIVE: c_int = 2;

entries! {
    Context fn cuModuleLoadData(driver, out: Out<usize>, image: In<c_char>) { load(driver, out, image, None) }
    Context fn cuModuleLoadDataEx(driver, out: Out<usize>, image: In<c_char>, count: c_uint, options: In<c_int>, values: In<usize>) {
        let log = Log::wanted(count, options, values)?;
        load(driver, out, image, log)
    }
    Release fn cuModuleUnload(driver, module: usize) { driver.unload(module) }
    Context fn cuModuleGetFunction(driver, out: Out<usize>, module: usize, name: In<c_char>) {
        out.put(driver.function(module, name.text()?)?)
    }
    Context fn cuFuncGetAttribute(driver, out: Out<c_int>, number: c_int, function: usize) {
        out.put(attribute(&*driver.modules.kernel(function)?, number)?)
    }
    Context fn cuFuncSetAttribute(driver, function: usize, number: c_int, value: c_int) {
        driver.modules.allow(function, number, value)
    }
    Context fn cuLaunchKernel(
        driver, function: usize,
        gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: usize, each: In<usize>, extra: In<usize>
    ) {
        let kernel = driver.modules.kernel(function)?;
        let params = params(&kernel, each, extra)?;
        let (shared, shares_host) = (shared as usize, driver.setup.shares_host);
        let (grid, block, is_cooperative) = ([gx, gy, gz], [bx, by, bz], false);
        let launch = Launch { kernel, grid, block, shared, params, is_cooperative, shares_host };
        driver.launch(function, launch, stream)
    }
    Context fn cuLaunchKernelEx(driver, config: In<Config>, function: usize, each: In<usize>, extra: In<usize>) {
        let config = config.get(0)?;
        let kernel = driver.modules.kernel(function)?;
        let params = params(&kernel, each, extra)?;
        let attributes = (0..config.count as usize).map(|index| config.attributes.get(index));
        let attributes = attributes.collect::<Result<Vec<_>, Code>>()?;
        if attributes.iter().any(|attribute| attribute.id != COOPERATIVE) { return Err(Code::INVALID_VALUE); }
        let is_cooperative = attributes.iter().any(|attribute| attribute.value[0] != 0);
        let Config { grid, block, shared, stream, .. } = config;
        let (shared, shares_host) = (shared as usize, driver.setup.shares_host);
        driver.launch(function, Launch { kernel, grid, block, shared, params, is_cooperative, shares_host }, stream)
    }
}
