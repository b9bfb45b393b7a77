//! Arrays that cannot be read, told on standard error: the first ones in words, the others by their number.

use blob_io::Entry;

use crate::failure::{Failure, Problem, Status};
use crate::output::Terminal;
use crate::units;

/// How many are told one by one.
const TOLD: u64 = 10;

/// The broken arrays of one file so far.
pub(crate) struct Broken<'a> {
    terminal: &'a Terminal,
    file: &'a str,
    count: u64,
}

impl<'a> Broken<'a> {
    pub(crate) fn new(terminal: &'a Terminal, file: &'a str) -> Self {
        Self { terminal, file, count: 0 }
    }

    /// Tells of those among `entries` whose headers say that they are broken.
    pub(crate) fn among<'e>(mut self, entries: impl IntoIterator<Item = &'e Entry>) -> Status {
        for entry in entries {
            if let Some(fault) = entry.fault() {
                self.tell(Problem::of_fault(self.file, entry, fault));
            }
        }
        self.end()
    }

    pub(crate) fn tell(&mut self, problem: Problem) {
        self.count += 1;
        if self.count <= TOLD {
            self.terminal.trouble(&problem.into());
        }
    }

    /// Says how many more there were, and how the command ends for them.
    pub(crate) fn end(self) -> Status {
        let more = self.count.saturating_sub(TOLD);
        if more > 0 {
            let (arrays, verb) = (units::plural(more, "more array"), if more == 1 { "is" } else { "are" });
            let text = format!("{}: {arrays} {verb} broken", self.file);
            self.terminal.trouble(&Failure::new(text));
        }
        match self.count {
            0 => Status::Yes,
            _ => Status::Trouble,
        }
    }
}
