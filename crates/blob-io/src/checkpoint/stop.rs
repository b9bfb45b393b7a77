//! The stop of an unpacking: a caller that has no use for the file any more says so while streams, gzip files and
//! members of archives are unpacked.

use std::fmt;
use std::sync::Arc;

use super::OpenOptions;
use crate::wire::spool::Spool;

/// Whether the caller has no use for the file any more.
#[derive(Clone, Default)]
pub(super) struct Stop(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Stop {
    /// The spool, which asks for each piece.
    pub(super) fn on<'a>(&self, spool: Spool<'a>) -> Spool<'a> {
        match self.0.clone() {
            Some(is_stopped) => spool.stopped_by(move || is_stopped()),
            None => spool,
        }
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.0.is_some()).finish()
    }
}

impl OpenOptions {
    /// Stops where `is_stopped` says so, with [`Error::Interrupted`](crate::Error::Interrupted): asked for each 64 KiB
    /// of a stream, or of a gzip file or an archive's member that is unpacked.
    #[must_use]
    pub fn stop_if(mut self, is_stopped: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.stop = Stop(Some(Arc::new(is_stopped)));
        self
    }
}
