//! Reports arrays that cannot be read on standard error: the first ones in detail, then the number of the others.
//! Broken arrays are errors; a sound array that is not read is a warning.

use blob_io::Entry;

use crate::failure::{Failure, Problem, Status};
use crate::output::Terminal;
use crate::units;

/// At most this many arrays are reported one by one.
const MAX_LISTED: u64 = 10;

/// Counts the broken arrays of one file, and the sound ones that are not read.
pub(crate) struct Broken<'a> {
    terminal: &'a Terminal,
    file: &'a str,
    count: u64,
    unread: u64,
}

impl<'a> Broken<'a> {
    pub(crate) fn new(terminal: &'a Terminal, file: &'a str) -> Self {
        Self { terminal, file, count: 0, unread: 0 }
    }

    /// Reports the entries whose headers are broken, and those that are not read and do not show that by their dtype.
    pub(crate) fn report_all<'e>(mut self, entries: impl IntoIterator<Item = &'e Entry>) -> Status {
        for entry in entries {
            match entry.fault() {
                Some(_) if entry.unread().is_some() => self.unread(entry),
                Some(fault) => self.report(Problem::of_fault(self.file, entry, fault)),
                None => {}
            }
        }
        self.finish()
    }

    /// Warns of a sound array that is not read.
    pub(crate) fn unread(&mut self, entry: &Entry) {
        let Some(why) = entry.unread() else { return };
        self.unread += 1;
        if self.unread <= MAX_LISTED {
            self.terminal.warning(format!("{}: array {:?} is not read: {why}", self.file, entry.name()));
        }
    }

    pub(crate) fn report(&mut self, problem: Problem) {
        self.count += 1;
        if self.count <= MAX_LISTED {
            self.terminal.error(&problem.into());
        }
    }

    /// Reports the number of the arrays not reported yet, and returns the command's status.
    pub(crate) fn finish(&self) -> Status {
        let more = |count: u64, what: &str| {
            let more = count.checked_sub(MAX_LISTED).filter(|more| *more > 0)?;
            let (arrays, verb) = (units::plural(more, "more array"), if more == 1 { "is" } else { "are" });
            Some(format!("{}: {arrays} {verb} {what}", self.file))
        };
        if let Some(text) = more(self.unread, "not read") {
            self.terminal.warning(text);
        }
        if let Some(text) = more(self.count, "broken") {
            self.terminal.error(&Failure::new(text));
        }
        match self.count {
            0 => Status::Yes,
            _ => Status::Trouble,
        }
    }
}
