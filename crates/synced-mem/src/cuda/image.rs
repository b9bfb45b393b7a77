//! Programs whose code is had at run time: loaded on one GPU, and unloaded with the last handle. Relies on `modules`
//! for the driver's compiler. A cubin says its own length to the driver, so that one that is cut short is refused here.

use std::sync::Arc;

use cudarc::driver::sys;

use super::context::Context;
use super::driver::wait_for_all;
use super::failure::answer;
use super::modules::{Module, compile};
use super::queue::CudaQueue;
use crate::error::Error;

/// The code of a program that is had at run time.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Image<'a> {
    /// PTX, which the driver compiles.
    Ptx(&'a str),
    /// A cubin: code for GPUs of one kind, as `nvcc -cubin` and NVRTC write.
    Cubin(&'a [u8]),
}

/// A loaded program, which its handles and kernels have in common.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) name: String,
    /// None of a cubin.
    pub(super) ptx: Option<String>,
    pub(super) module: Module,
    context: Arc<Context>,
}

impl Owned {
    pub(super) fn load(queue: &CudaQueue, name: &str, image: Image<'_>) -> Result<Self, Error> {
        let context = queue.context();
        let refused = |what: &str| Err(queue.error("load", format!("`{name}`: {what}")));
        let (code, ptx) = match image {
            Image::Ptx(text) if text.contains('\0') => return refused("a zero byte in the text"),
            Image::Ptx(text) => ([text.as_bytes(), b"\0"].concat(), Some(text.to_string())),
            Image::Cubin(bytes) if !is_whole(bytes) => return refused("no cubin, or one that is cut short"),
            Image::Cubin(bytes) => (bytes.to_vec(), None),
        };
        let _here = context.enter().map_err(|failure| queue.error("load", failure))?;
        let module = compile(&code).map_err(|refused| {
            context.note(refused.failure);
            queue.error("load", refused.into_error())
        })?;
        Ok(Self { name: name.to_string(), ptx, module, context: Arc::clone(context) })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let context = &self.context;
        if !context.process.is_current() {
            return;
        }
        let _here = context.enter_at_the_end();
        // A kernel that was launched may not have run.
        context.given_back(wait_for_all());
        // SAFETY: the module was loaded once, and no handle of it is left, nor work that runs its code.
        context.given_back(answer("cuModuleUnload", unsafe { sys::cuModuleUnload(self.module.0) }));
    }
}

/// Whether the bytes are an ELF file of 64 bits of which all headers and sections are there.
fn is_whole(bytes: &[u8]) -> bool {
    const HEADER: usize = 64;
    const NO_BYTES: u64 = 8;
    let number = |at: usize, len: usize| {
        let mut number = [0; 8];
        number[..len].copy_from_slice(bytes.get(at..at + len)?);
        Some(u64::from_le_bytes(number))
    };
    let is_within = |at: u64, len: u64| at.checked_add(len).is_some_and(|end| end <= bytes.len() as u64);
    let table = |at: usize, size: usize, count: usize| {
        let (at, size, count) = (number(at, 8)?, number(size, 2)?, number(count, 2)?);
        is_within(at, size * count).then_some((at as usize, size as usize, count as usize))
    };
    if bytes.len() < HEADER || !bytes.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    let (Some(_), Some((start, size, count))) = (table(32, 54, 56), table(40, 58, 60)) else { return false };
    (count == 0 || size >= HEADER)
        && (0..count).all(|index| {
            let at = start + index * size;
            let [kind, offset, len] = [number(at + 4, 4), number(at + 24, 8), number(at + 32, 8)];
            kind == Some(NO_BYTES) || offset.zip(len).is_some_and(|(offset, len)| is_within(offset, len))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, one section of 16 bytes, and the table of sections.
    fn elf() -> Vec<u8> {
        let mut bytes = vec![0; 64 + 16 + 2 * 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[40..48].copy_from_slice(&80_u64.to_le_bytes());
        bytes[58..60].copy_from_slice(&64_u16.to_le_bytes());
        bytes[60..62].copy_from_slice(&2_u16.to_le_bytes());
        let section = 80 + 64;
        bytes[section + 24..][..8].copy_from_slice(&64_u64.to_le_bytes());
        bytes[section + 32..][..8].copy_from_slice(&16_u64.to_le_bytes());
        bytes
    }

    #[test]
    fn a_cubin_that_is_cut_short_is_found_out() {
        let whole = elf();
        assert!(is_whole(&whole));
        assert!((0..whole.len()).all(|len| !is_whole(&whole[..len])));
        for (at, byte) in [(0, 0), (4, 1), (5, 2), (47, 1), (61, 1), (80 + 64 + 24 + 7, 0xff), (80 + 64 + 33, 1)] {
            let mut changed = whole.clone();
            changed[at] = byte;
            assert!(!is_whole(&changed), "byte {at}");
        }
        // A section without bytes may say any length.
        let mut empty = whole;
        (empty[80 + 64 + 4], empty[80 + 64 + 33]) = (8, 1);
        assert!(is_whole(&empty));
    }
}
