//! Whether the frame of the source's receipt is of the file that the receipt names: checked before a pass uses the
//! frame or hands the frame on.

use blob_io::{Error, Remedy};

use crate::frame::{self, Proof, prove};
use crate::history::receipt_text;
use crate::plan::Plan;
use crate::template::Template;
use crate::watch::{Uncounted, Watch};

impl Plan<'_> {
    /// Compares the frame of the source's receipt, which the output uses or hands on, with the file that the receipt
    /// names. Returns why the output's receipt does not hand the frame on.
    ///
    /// # Errors
    /// Errors of reading; an output that uses the frame of another file.
    pub(super) fn check_frame(&self, watch: &dyn Watch) -> Result<Option<&'static str>, Error> {
        let watch = &Uncounted(watch);
        let Some(receipt) = receipt_text(self.checkpoint) else { return Ok(None) };
        if let Template::Frame(made) = &self.base {
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
