//! Whether a file holds nothing besides the arrays and the bytes that the format needs around the arrays.
//!
//! A file that is restored from a receipt passes this test, so that no receipt can smuggle in other content.

use crate::checkpoint::Checkpoint;
use crate::entry::Entry;
use crate::error::Error;
use crate::format::Format;
use crate::neoml::read::PICKLE;
use crate::npz::bare;
use crate::wire::source::read;

/// The first bytes of an HDF5 file without a block of the user's in front.
const HDF5: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
/// The attributes of an HDF5 file's root with which Keras describes a model, and may run the model's code.
const PROGRAMS: [&str; 2] = ["model_config", "training_config"];

impl Checkpoint {
    /// Whether nothing lies in the file besides the arrays and the format's bytes around the arrays. A NeoML file in a
    /// Python pickle never passes, nor an npz with another member, bytes between members, or a member of another name
    /// than [`member_names`](crate::layout::member_names) gives; nor an HDF5 file that describes a model of Keras.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn is_bare(&self) -> Result<bool, Error> {
        if self.is_packed() || self.broken.is_some() || !self.faults().is_empty() {
            return Ok(false);
        }
        match self.format() {
            // A member may go on behind the array, which is a warning.
            Format::Npz if !self.warnings().is_empty() => Ok(false),
            Format::Npz => bare::is_bare(self.source(), self.entries()).map_err(|stop| stop.into_error(self.name())),
            Format::Npy | Format::Safetensors => Ok(self.is_filled()),
            Format::Hdf5 => {
                Ok(self.begins_with(&HDF5)? && !self.metadata().iter().any(|(key, _)| PROGRAMS.contains(&&**key)))
            }
            format if format.is_neoml() => Ok(!self.begins_with(&[PICKLE])?),
            _ => Ok(true),
        }
    }

    /// Whether the arrays lie one after the other, and the last one ends the file.
    fn is_filled(&self) -> bool {
        let begin = self.entries().iter().filter_map(Entry::offset).min().unwrap_or(self.file_len());
        let bytes = self.entries().iter().map(Entry::byte_len).fold(0, u64::saturating_add);
        self.entries().iter().all(|entry| entry.dtype().is_some()) && begin.checked_add(bytes) == Some(self.file_len())
    }

    fn begins_with(&self, begin: &[u8]) -> Result<bool, Error> {
        let mut head = vec![0; begin.len()];
        if self.file_len() < head.len() as u64 {
            return Ok(false);
        }
        read(self.source(), 0, &mut head).map_err(|stop| stop.into_error(self.name()))?;
        Ok(head == begin)
    }
}
