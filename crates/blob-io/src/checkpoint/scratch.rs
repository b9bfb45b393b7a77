//! Where a stream that is unpacked is kept, if too long for memory: a temporary file, or a place of the caller's.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::OpenOptions;
use crate::wire::sink::{Places, Sink};
use crate::wire::spool::Spool;

/// The places of the caller's; `None` for temporary files.
#[derive(Clone, Default)]
pub(super) struct Scratch(Option<Arc<dyn Places>>);

impl Scratch {
    /// The spool, which uses the caller's places.
    pub(super) fn on<'a>(&self, spool: Spool<'a>) -> Spool<'a> {
        match self.0.clone() {
            Some(places) => spool.placed_by(places),
            None => spool,
        }
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scratch").field(&self.0.is_some()).finish()
    }
}

impl OpenOptions {
    /// Keeps a stream, a gzip file or an archive's member of more than 8 MiB that is unpacked at a place that `make`
    /// makes, not in a temporary file; the place is [discarded](Sink::discard) with the checkpoint.
    #[must_use]
    pub fn scratch(mut self, make: impl Fn() -> io::Result<Box<dyn Sink>> + Send + Sync + 'static) -> Self {
        self.scratch = Scratch(Some(Arc::new(make)));
        self
    }
}
