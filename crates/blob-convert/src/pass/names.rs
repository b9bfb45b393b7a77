//! Whether names that a receipt gives back are those of the file that the tensors go into.
//!
//! The file proves it where the receipt names that very file, and says that nothing but names has changed since: then
//! each tensor was written with the values that the file has under the name of before. Relies on the digests in the
//! receipt; another file proves nothing.

use blob_io::{Checkpoint, Error, Remedy};

use crate::digest::{Algorithm, Subject, digest};
use crate::history::{lineage_of, receipt_text, steps_of};
use crate::plan::Plan;
use crate::template::Template;
use crate::transform::Registry;
use crate::watch::{Uncounted, Watch};
use crate::written::{hash_of, items};

impl Plan<'_> {
    /// Refuses names of before under which the file that the tensors go into has other values than were written.
    ///
    /// # Errors
    /// Errors of reading; a receipt that gives back wrong names.
    pub(super) fn check_names(&self, watch: &dyn Watch) -> Result<(), Error> {
        let Template::File(base) = self.base else { return Ok(()) };
        let watch = &Uncounted(watch);
        let renamed = self.tensors.iter().filter(|tensor| tensor.is_as_read());
        let renamed = renamed.map(|tensor| (self.checkpoint.entries()[tensor.entry].name(), &*tensor.spec.name));
        let renamed: Vec<(&str, &str)> = renamed.filter(|(now, then)| now != then).collect();
        let Some(receipt) = receipt_text(self.checkpoint).filter(|_| !renamed.is_empty()) else { return Ok(()) };
        if !is_renamed_alone(receipt, base, &self.registry, watch)? {
            return Ok(());
        }
        let written = items(self.checkpoint).map(|items| items.by_name).unwrap_or_default();
        for (now, then) in renamed {
            let (Some(item), Some(entry)) = (written.get(now), base.entry(then)) else { continue };
            if hash_of(base, entry, watch)?.is_none_or(|hash| *hash.to_hex() == *item.blake3) {
                continue;
            }
            let message = format!(
                "has a receipt that says that {now:?} was {then:?} in {}, where that has other values",
                base.name()
            );
            return Err(Error::misfit(self.checkpoint.name(), message, Remedy::Names));
        }
        Ok(())
    }
}

/// Whether a receipt names this file, and no step but names since.
fn is_renamed_alone(receipt: &str, base: &Checkpoint, registry: &Registry, watch: &dyn Watch) -> Result<bool, Error> {
    let lineage = lineage_of(receipt);
    let blake3 = digest(Subject::File { name: base.name(), source: base.stored() }, Algorithm::Blake3, watch)?.digest;
    let Some(place) = lineage.iter().position(|origin| origin.blake3 == blake3) else { return Ok(false) };
    let mut since = steps_of(&lineage[place..]);
    Ok(since.all(|(step, is_before_merge)| !is_before_merge && registry.keeps_values(&step.name, &step.settings)))
}
