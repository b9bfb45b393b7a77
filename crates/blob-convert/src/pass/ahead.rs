//! Looks ahead for values that a conversion would lose, and for a receipt's frame that is not of the file that the
//! receipt names. Writes nothing.

use blob_io::{Error, Remedy};

use crate::base::Base;
use crate::change::Group;
use crate::frame::{self, Proof, prove};
use crate::history::receipt_text;
use crate::plan::Plan;
use crate::planned::{How, Planned};
use crate::transform::{Tally, grouped};
use crate::watch::{Uncounted, Watch};

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
        let tally = Tally::default();
        let is_exact = |tensor: &Planned| tensor.is_as_read() || matches!(tensor.how, How::Kept | How::Dense);
        let changed = self.tensors.iter().enumerate();
        for (number, tensor) in changed.filter(|(_, tensor)| !is_exact(tensor) || !tensor.casts.is_empty()) {
            job.stream(number, &tally, |_| Ok(()))?;
            watch.step(tensor.spec.byte_len())?;
        }
        let found = tally.found();
        if self.strict {
            job.check_no_losses(&found)?;
        }
        Ok(grouped(&found))
    }

    /// Compares the frame of the source's receipt, which the output uses or hands on, with the file that the receipt
    /// names. Returns why the output's receipt does not hand the frame on.
    ///
    /// # Errors
    /// Errors of reading; an output that uses the frame of another file.
    pub(super) fn check_frame(&self, watch: &dyn Watch) -> Result<Option<&'static str>, Error> {
        let watch = &Uncounted(watch);
        let Some(receipt) = receipt_text(self.checkpoint) else { return Ok(None) };
        if let Base::Frame(made) = &self.base {
            if prove((self.checkpoint, receipt), made, watch)? != Proof::Other {
                return Ok(None);
            }
            let message = "has a receipt whose bytes around the tensors are not those of the file that it names";
            let (file, remedy) = (self.checkpoint.name().to_owned(), Some(Remedy::Anew));
            return Err(Error::Misfit { file, message: message.to_owned(), remedy });
        }
        let is_handed_on = self.has_receipt() && self.receipt.has_frame();
        let Some(made) = is_handed_on.then(|| frame::check(self.checkpoint).ok().flatten()).flatten() else {
            return Ok(None);
        };
        Ok(match prove((self.checkpoint, receipt), &made, watch)? {
            Proof::Same => None,
            Proof::Other => Some("it is not of the file that the receipt names"),
            Proof::Changed => Some("the tensors were changed since"),
        })
    }
}
