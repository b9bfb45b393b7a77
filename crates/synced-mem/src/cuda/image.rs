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

/// Whether the bytes are an ELF file of 64 bits of which all headers, segments and sections are there.
fn is_whole(bytes: &[u8]) -> bool {
    const HEADER: usize = 64;
    const SEGMENT: Row = Row { table: 32, stored_len: 54, len: 56, offset: 8, size: 32 };
    const SECTION: Row = Row { table: 40, stored_len: 58, len: 64, offset: 24, size: 32 };
    if bytes.len() < HEADER || !bytes.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    // More sections than 16 bits can say are counted by the size of the first one, which has no bytes.
    let sections = match (number(bytes, 40, 8), number(bytes, 60, 2)) {
        (Some(at), Some(0)) if at != 0 => number(bytes, (at as usize).saturating_add(SECTION.size), 8),
        (_, count) => count,
    };
    SEGMENT.all_within(bytes, number(bytes, 56, 2), |_| true)
        && SECTION.all_within(bytes, sections, |row| has_bytes(number(bytes, row + 4, 4)))
}

/// Whether a section of this kind has bytes in the file: not one that is unused, nor one of zeros.
fn has_bytes(kind: Option<u64>) -> bool {
    !matches!(kind, Some(0 | 8))
}

/// A little-endian number of at most 8 bytes.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let mut number = [0; 8];
    number[..len].copy_from_slice(bytes.get(at..at.checked_add(len)?)?);
    Some(u64::from_le_bytes(number))
}

/// A row of a table: where the header has the table's offset and a row's length, how long a row is, and where in it
/// its part's offset and size stand.
struct Row {
    table: usize,
    stored_len: usize,
    len: usize,
    offset: usize,
    size: usize,
}

impl Row {
    /// Whether the table lies within the file, and so do the parts that its rows tell of and that have bytes, by the
    /// row's place.
    fn all_within(&self, bytes: &[u8], count: Option<u64>, has_bytes: impl Fn(usize) -> bool) -> bool {
        let is_within = |at: u64, len: u64| at.checked_add(len).is_some_and(|end| end <= bytes.len() as u64);
        let (at, size) = (number(bytes, self.table, 8), number(bytes, self.stored_len, 2));
        let (Some(at), Some(size), Some(count)) = (at, size, count) else {
            return false;
        };
        let is_there = size.checked_mul(count).is_some_and(|len| is_within(at, len));
        is_there
            && (count == 0 || size >= self.len as u64)
            && (0..count).map(|index| (at + index * size) as usize).all(|row| {
                let part = number(bytes, row + self.offset, 8).zip(number(bytes, row + self.size, 8));
                !has_bytes(row) || part.is_some_and(|(offset, len)| is_within(offset, len))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENTS: usize = 80;
    const SECTIONS: usize = SEGMENTS + 56;

    /// A header, one section of 16 bytes, a segment of the same, and the tables of segments and of sections.
    fn elf() -> Vec<u8> {
        let mut bytes = vec![0; SECTIONS + 2 * 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        for (at, number) in [(32, SEGMENTS), (40, SECTIONS), (54, 56), (56, 1), (58, 64), (60, 2)] {
            bytes[at] = number as u8;
        }
        for (part, [kind, offset, size]) in [(SEGMENTS, [0, 8, 32]), (SECTIONS + 64, [4, 24, 32])] {
            (bytes[part + kind], bytes[part + offset], bytes[part + size]) = (1, 64, 16);
        }
        bytes
    }

    #[test]
    fn a_cubin_that_is_cut_short_is_found_out() {
        let whole = elf();
        assert!(is_whole(&whole));
        assert!((0..whole.len()).all(|len| !is_whole(&whole[..len])));
        let part = SECTIONS + 64;
        let far = [(SEGMENTS + 15, 0xff), (SEGMENTS + 33, 1), (part + 24 + 7, 0xff), (part + 33, 1)];
        for (at, byte) in [(0, 0), (4, 1), (5, 2), (47, 1), (61, 1), (39, 1), (57, 1)].into_iter().chain(far) {
            let mut changed = whole.clone();
            changed[at] = byte;
            assert!(!is_whole(&changed), "byte {at}");
        }
        // A section without bytes may say any length.
        let mut empty = whole.clone();
        (empty[part + 4], empty[part + 33]) = (8, 1);
        assert!(is_whole(&empty));
        // The first section counts them where the header does not.
        let mut counted = whole;
        (counted[60], counted[SECTIONS + 32]) = (0, 2);
        assert!(is_whole(&counted));
        counted[SECTIONS + 32] = 3;
        assert!(!is_whole(&counted));
    }
}
