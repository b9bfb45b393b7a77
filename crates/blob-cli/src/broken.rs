//! Reports arrays that cannot be read on standard error: the first ones in detail, then the number of the others.

use blob_io::Entry;

use crate::failure::{Failure, Problem, Status};
use crate::output::Terminal;
use crate::units;

/// At most this many arrays are reported one by one.
const MAX_LISTED: u64 = 10;

/// Counts the broken arrays of one file.
pub(crate) struct Broken<'a> {
    terminal: &'a Terminal,
    file: &'a str,
    count: u64,
}

impl<'a> Broken<'a> {
    pub(crate) fn new(terminal: &'a Terminal, file: &'a str) -> Self {
        Self { terminal, file, count: 0 }
    }

    /// Reports the entries whose headers are broken.
    pub(crate) fn report_all<'e>(mut self, entries: impl IntoIterator<Item = &'e Entry>) -> Status {
        for entry in entries {
            if let Some(fault) = entry.fault() {
                self.report(Problem::of_fault(self.file, entry, fault));
            }
        }
        self.finish()
    }

    pub(crate) fn report(&mut self, problem: Problem) {
        self.count += 1;
        if self.count <= MAX_LISTED {
            self.terminal.error(&problem.into());
        }
    }

    /// Reports the number of the arrays not reported yet, and returns the command's status.
    pub(crate) fn finish(&self) -> Status {
        let more = self.count.saturating_sub(MAX_LISTED);
        if more > 0 {
            let (arrays, verb) = (units::plural(more, "more array"), if more == 1 { "is" } else { "are" });
            let text = format!("{}: {arrays} {verb} broken", self.file);
            self.terminal.error(&Failure::new(text));
        }
        match self.count {
            0 => Status::Yes,
            _ => Status::Trouble,
        }
    }
}
