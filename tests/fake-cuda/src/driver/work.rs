//! The kinds of work on a stream, and how each runs.

use std::ops::Range;
use std::sync::Arc;

use super::Driver;
use crate::abi::Code;
use crate::exec::Launch;
use crate::host;
use crate::memory::State;

/// One piece of work on a stream.
pub(crate) enum Work {
    /// Copies bytes.
    Copy { to: Place, from: Place, len: usize },
    /// Repeats a pattern, `len` bytes in all.
    Fill { address: u64, pattern: Vec<u8>, len: usize },
    /// Runs a kernel.
    Launch(Arc<Launch>),
    /// Makes a planned block live.
    Allocate(u64),
    /// Ends a block.
    Free(u64),
    /// Waits until the work with this ticket is done.
    Wait(u64),
    /// Marks a place in the stream: an event's record.
    Mark,
}

/// One end of a copy.
pub(crate) enum Place {
    Device(u64),
    /// Host memory that stays valid until the copy has run: pinned memory, or the call waits.
    Host(usize),
    /// Bytes that the call copied from the host.
    Taken(Vec<u8>),
}

impl Work {
    /// Whether the work reads or writes memory of the host in this range.
    pub(crate) fn uses_host(&self, range: &Range<usize>) -> bool {
        let meets = |place: &Place, len: usize| match place {
            Place::Host(start) => *start < range.end && range.start < start + len,
            _ => false,
        };
        matches!(self, Work::Copy { to, from, len } if meets(to, *len) || meets(from, *len))
    }

    /// Whether the work is a copy or a fill that reads or writes memory of a device in this range.
    pub(crate) fn uses_block(&self, range: &Range<u64>) -> bool {
        let meets = |start: u64, len: usize| start < range.end && range.start < start + len as u64;
        let place = |place: &Place, len: usize| matches!(place, Place::Device(start) if meets(*start, len));
        match self {
            Work::Copy { to, from, len } => place(to, *len) || place(from, *len),
            Work::Fill { address, len, .. } => meets(*address, *len),
            _ => false,
        }
    }
}

/// Why work fails: the error of the context, and the text of the report.
pub(crate) struct Fault {
    pub(crate) code: Code,
    pub(crate) text: String,
}

impl Fault {
    fn illegal(text: String) -> Fault {
        Fault { code: Code::ILLEGAL_ADDRESS, text }
    }
}

impl Driver {
    /// Runs one piece of work of a device.
    pub(crate) fn perform(&mut self, device: usize, work: Work) -> Result<(), Fault> {
        match work {
            Work::Copy { to, from, len } => self.copy(to, from, len),
            Work::Fill { address, pattern, len } => {
                let (block, at) = self.memory.find(address, len).map_err(Fault::illegal)?;
                for (byte, value) in block.bytes[at..at + len].iter_mut().zip(pattern.iter().cycle()) {
                    *byte = *value;
                }
                block.written.set(at, len);
                Ok(())
            }
            Work::Launch(launch) => self.run_kernel(device, &launch),
            Work::Allocate(address) => {
                if let Some(block) = self.memory.around(address) {
                    block.state = State::Live;
                }
                Ok(())
            }
            Work::Free(address) => {
                self.memory.find(address, 1).map_err(Fault::illegal)?;
                self.end_block(address);
                Ok(())
            }
            Work::Wait(_) | Work::Mark => Ok(()),
        }
    }

    fn copy(&mut self, to: Place, from: Place, len: usize) -> Result<(), Fault> {
        match (to, from) {
            (Place::Device(to), Place::Device(from)) => {
                let (block, at) = self.memory.find(from, len).map_err(Fault::illegal)?;
                let (bytes, bits) = (block.bytes[at..at + len].to_vec(), block.written.part(at, len));
                let (block, at) = self.memory.find(to, len).map_err(Fault::illegal)?;
                block.bytes[at..at + len].copy_from_slice(&bytes);
                block.written.put(at, &bits, len);
            }
            (Place::Device(to), Place::Taken(bytes)) => self.write(to, &bytes)?,
            (Place::Device(to), Place::Host(from)) => self.write(to, host::bytes(from, len))?,
            (Place::Host(to), Place::Device(from)) => {
                let (block, at) = self.memory.find(from, len).map_err(Fault::illegal)?;
                host::write(to, &block.bytes[at..at + len]);
            }
            (Place::Host(_) | Place::Taken(_), _) => unreachable!("no entry point copies from host to host"),
        }
        Ok(())
    }

    fn write(&mut self, to: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (block, at) = self.memory.find(to, bytes.len()).map_err(Fault::illegal)?;
        block.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        block.written.set(at, bytes.len());
        Ok(())
    }
}
