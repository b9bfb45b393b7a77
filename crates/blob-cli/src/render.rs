//! The forms of what a command says: JSON for programs, tables, pictures and trees for people, lines for a pipe.

use std::io::Write;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::Out;

pub(crate) mod picture;
pub(crate) mod svg;
pub(crate) mod table;
pub(crate) mod tree;

/// A command's output. `say` chooses the form; a command may do its work while it prints.
pub(crate) trait Render: Sized {
    /// One object a line, whatever happens: what is open gets closed.
    fn json(self, context: &Context, out: &mut Out) -> Result<(), Failure>;

    /// What a person reads, within the terminal's width.
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure>;

    /// What goes to a pipe, where that is something else.
    fn lines(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        self.text(context, out)
    }
}

impl Context {
    /// Prints to standard output in the form that the user asked for.
    pub(crate) fn say(&self, what: impl Render) -> Result<(), Failure> {
        let mut out = self.terminal.out();
        let said = match (self.global.json, self.terminal.has_tables) {
            (true, _) => what.json(self, &mut out),
            (false, true) => what.text(self, &mut out),
            (false, false) => what.lines(self, &mut out),
        };
        // What stands before a failure is printed before it is told.
        out.flush()?;
        said
    }
}
