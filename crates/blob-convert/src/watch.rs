//! Who follows long work and may stop it.

use blob_io::Error;

/// Follows work, and may stop it.
pub trait Watch: Sync {
    /// `bytes` more of the source have been dealt with.
    fn advanced(&self, bytes: u64);

    /// Whether to stop: the work then returns [`Error::Interrupted`] and leaves nothing behind.
    fn cancelled(&self) -> bool;

    /// One step of the work: counts bytes, unless it is to stop.
    ///
    /// # Errors
    /// [`Error::Interrupted`] where the work is [cancelled](Watch::cancelled).
    fn step(&self, bytes: u64) -> Result<(), Error> {
        if self.cancelled() {
            return Err(Error::Interrupted);
        }
        self.advanced(bytes);
        Ok(())
    }
}

/// A [`Watch`] that neither counts nor stops.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Watch for Silent {
    fn advanced(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}
