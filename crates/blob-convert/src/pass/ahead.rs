//! Looks ahead for values that a conversion would lose. Writes nothing.

use blob_io::Error;

use crate::change::Group;
use crate::plan::Plan;
use crate::planned::How;
use crate::transform::{Reports, grouped};
use crate::watch::Watch;

impl Plan<'_> {
    /// The changes that [`run`](Plan::run) would find: reads the tensors that are rounded or computed, and writes
    /// nothing.
    ///
    /// # Errors
    /// Errors of reading; lost values, with [`Options::strict`](crate::Options::strict); a frame that is not of the
    /// file that the receipt names; [`Error::Interrupted`] where `watch` says so.
    pub fn lost_values(&self, watch: &dyn Watch) -> Result<Vec<Group>, Error> {
        self.check_frame(watch)?;
        self.check_names(watch)?;
        let job = self.job(watch);
        let tally = Reports::default();
        for (number, tensor) in self.tensors.iter().enumerate() {
            let is_exact = tensor.is_as_read() || matches!(tensor.how, How::Kept | How::Dense);
            if is_exact && tensor.casts.is_empty() {
                continue;
            }
            job.stream(number, &tally, |_| Ok(()))?;
            watch.step(tensor.spec.byte_len())?;
        }
        let found = tally.found();
        if self.strict {
            job.check_no_losses(&found)?;
        }
        Ok(grouped(&found))
    }
}
