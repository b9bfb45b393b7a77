//! An origin for tests: it remembers what was read, fails where it is told to, and calls back in the midst of a read.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};

use synced_mem::{Origin, OriginError};

/// What becomes of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Fails,
    Changed,
    Panics,
}

/// Told of each read after it has begun.
type Hook = Box<dyn Fn(&Range<usize>) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Tape {
    bytes: Vec<u8>,
    hook: Option<Hook>,
    /// Whether it is read as a whole.
    is_whole: bool,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    /// The reads that gave their bytes.
    reads: Vec<Range<usize>>,
    /// Until a fault: how many reads, and which fault.
    faults: Vec<(u64, Fault)>,
}

impl Tape {
    pub(crate) fn new(len: usize) -> Arc<Self> {
        Arc::new(Self { bytes: pattern(0..len), ..Self::default() })
    }

    pub(crate) fn with_hook(len: usize, hook: impl Fn(&Range<usize>) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { bytes: pattern(0..len), hook: Some(Box::new(hook)), ..Self::default() })
    }

    pub(crate) fn whole(len: usize) -> Arc<Self> {
        Arc::new(Self { bytes: pattern(0..len), is_whole: true, ..Self::default() })
    }

    fn told<R>(&self, ask: impl FnOnce(&mut Told) -> R) -> R {
        ask(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The `nth` read from now on, from 1, comes to this.
    pub(crate) fn fail(&self, nth: u64, fault: Fault) {
        self.told(|told| told.faults.push((nth, fault)));
    }

    pub(crate) fn reads(&self) -> Vec<Range<usize>> {
        self.told(|told| told.reads.clone())
    }

    /// How many bytes were read.
    pub(crate) fn bytes_read(&self) -> usize {
        self.reads().iter().map(|read| read.len()).sum()
    }
}

/// Neighbours differ, and so do places 256 apart.
pub(crate) fn pattern(range: Range<usize>) -> Vec<u8> {
    range.map(|at| (at * 7 + at / 256 * 3 + 1) as u8).collect()
}

impl Origin for Tape {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn is_direct(&self) -> bool {
        !self.is_whole
    }

    fn read(&self, at: usize, out: &mut [u8]) -> Result<(), OriginError> {
        let range = at..at + out.len();
        self.hook.iter().for_each(|hook| hook(&range));
        let fault = self.told(|told| {
            told.faults.iter_mut().for_each(|(left, _)| *left = left.saturating_sub(1));
            let due = told.faults.iter().position(|(left, _)| *left == 0)?;
            Some(told.faults.swap_remove(due).1)
        });
        if let Some(fault) = fault {
            // A read that fails may have written some of its bytes, or others.
            out.fill(0xEE);
            match fault {
                Fault::Fails => return Err(OriginError::failed("told to fail")),
                Fault::Changed => return Err(OriginError::changed("told to have changed")),
                Fault::Panics => resume_unwind(Box::new("told to panic")),
            }
        }
        out.copy_from_slice(&self.bytes[range.clone()]);
        self.told(|told| told.reads.push(range));
        Ok(())
    }
}
