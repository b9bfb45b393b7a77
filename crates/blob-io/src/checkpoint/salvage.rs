//! Salvage: of a file that breaks off, the arrays before the break, also of one that gzip has packed.
//!
//! Relies on formats whose arrays stand one after the other. Leaves out archives: their members are read as a whole.

use super::open::OpenOptions;
use super::{Checkpoint, Lookup};
use crate::codec::Found;
use crate::entry::subject;
use crate::error::{Error, Fault, Reason};
use crate::format::Format;
use crate::names::NameTable;
use crate::sniff;
use crate::warning::Warning;
use crate::wire::source::Input;

impl OpenOptions {
    /// The checkpoint with the arrays before a file's early end.
    ///
    /// # Errors
    /// The fault, where the format's arrays are not certain before the end.
    pub(super) fn salvaged(
        &self,
        name: &str,
        hint: &str,
        input: Input,
        fault: Box<Fault>,
        table: NameTable,
    ) -> Result<Checkpoint, Error> {
        match self.salvageable(&input, hint, &fault) {
            Some(format) => Ok(self.broken_off(name, cut_off(format), input, fault, table).without_names()),
            None => Err(Error::of_fault(name, *fault, Some(table.intact()))),
        }
    }

    /// The checkpoint of a gzip file that is cut, with the arrays in the part of the content that can be unpacked;
    /// `found` is the format of this part, or the reason why the part is no complete file.
    ///
    /// # Errors
    /// That the gzip file is cut, without [`OpenOptions::salvage`] or where no array is whole.
    pub(super) fn of_cut_gzip(
        &self,
        name: &str,
        hint: &str,
        input: Input,
        found: Result<Found, Error>,
        cut: Box<Fault>,
        table: NameTable,
    ) -> Result<Checkpoint, Error> {
        let is_whole = found.is_ok();
        let kind = match found {
            Ok(kind) => Some(kind),
            Err(Error::Malformed { fault, .. }) => self.salvageable(&input, hint, &fault).map(cut_off),
            Err(error @ (Error::Interrupted | Error::LimitExceeded { .. })) => return Err(error),
            Err(_) => None,
        };
        match (kind, table.intact()) {
            (Some(kind), 1..) if self.salvage => {
                let mut opened = self.broken_off(name, kind, input, cut, table);
                let text = "the end of the gzip file, with the CRC-32 of the content, is cut off: no value is checked";
                opened.warnings.push(Warning::new(None, text));
                Ok(if is_whole { opened } else { opened.without_names() })
            }
            (kind, intact) => Err(Error::of_fault(name, *cut, kind.map(|_| intact))),
        }
    }

    fn broken_off(&self, name: &str, kind: Found, input: Input, fault: Box<Fault>, table: NameTable) -> Checkpoint {
        let opened = self.opened(name, kind, input, table);
        Checkpoint { broken: Some(fault), ..opened }
    }

    /// The format, where the arrays before this fault are valid.
    pub(super) fn salvageable(&self, input: &Input, hint: &str, fault: &Fault) -> Option<Format> {
        let format = self.from.or_else(|| sniff::format(input, hint));
        format.filter(|format| is_salvageable(*format, fault))
    }
}

impl Checkpoint {
    /// Warns that a list of MXNet, which is cut, has lost its names.
    fn without_names(mut self) -> Self {
        if self.format.is_mxnet() {
            let text = "the names, which stand behind all arrays, are cut off: arrays are called by their places";
            self.warnings.push(Warning::of_loss(None, text));
        }
        self
    }

    /// An error if the file ends too early, after the entries listed, as one opened with [`OpenOptions::salvage`] may.
    ///
    /// # Errors
    /// [`Error::Malformed`] with the place of the break and the layer or record there.
    pub fn check_whole(&self) -> Result<(), Error> {
        match self.break_off() {
            Some(error) if !self.is_salvaged => Err(error),
            _ => Ok(()),
        }
    }

    /// The file with the whole arrays alone, where [`OpenOptions::salvage`] opened a file in which other arrays are
    /// broken or cut off: [`Checkpoint::check_whole`] accepts the result, [`Checkpoint::salvaged`] names the fault. A
    /// sound file stays unchanged.
    #[must_use]
    pub fn take_whole_arrays(mut self) -> Self {
        let faulty = self.entries.iter().find_map(|entry| Some((entry, entry.fault()?)));
        let fault =
            faulty.map(|(entry, fault)| Box::new(Fault { subject: Some(Box::new(subject(entry))), ..fault.clone() }));
        self.broken = self.broken.or(fault);
        self.is_salvaged = self.broken.is_some();
        self.entries.retain(|entry| entry.fault().is_none());
        self.lookup = Lookup::default();
        self
    }

    /// The fault of the file, where [`Checkpoint::take_whole_arrays`] has left only the whole arrays.
    #[must_use]
    pub fn salvaged(&self) -> Option<Error> {
        self.break_off().filter(|_| self.is_salvaged)
    }

    fn break_off(&self) -> Option<Error> {
        let broken = self.broken.as_deref()?;
        let intact = self.entries.iter().filter(|e| e.fault().is_none()).count();
        Some(Error::of_fault(&self.name, broken.clone(), Some(intact)))
    }
}

/// The kind of a file whose walk ended early.
fn cut_off(format: Format) -> Found {
    Found::new(format, String::new())
}

/// Whether the arrays before this fault are valid.
fn is_salvageable(format: Format, fault: &Fault) -> bool {
    format.holds().in_sequence && matches!(fault.reason(), Reason::Truncated | Reason::Malformed)
}
