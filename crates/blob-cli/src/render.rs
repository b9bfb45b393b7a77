//! The forms of a command's output: JSON for programs, tables, pictures and trees for people, lines for a pipe.

use std::io::Write;

use crate::context::Context;
use crate::failure::Failure;
use crate::json::{self, Document};
use crate::output::Out;

pub(crate) mod picture;
pub(crate) mod svg;
pub(crate) mod table;
pub(crate) mod tree;

/// A command's output. [`Context::print`] chooses the form; a command may do its work while it prints.
pub(crate) trait Render: Sized {
    /// JSON lines. What is streamed is closed also after an error.
    fn json(self, context: &Context, out: &mut Out) -> Result<(), Failure>;

    /// Text for people, within the terminal's width.
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure>;

    /// Lines for a pipe, if they differ from the text.
    fn lines(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        self.text(context, out)
    }
}

/// The output of a command whose JSON is one line.
pub(crate) trait Text: Document {
    /// As [`Render::text`].
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure>;
}

impl<T: Text> Render for T {
    fn json(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        Ok(json::line(out, &self)?)
    }

    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        Text::text(self, context, out)
    }
}

impl Context {
    /// Prints to standard output in the form that the user asked for.
    pub(crate) fn print(&self, what: impl Render) -> Result<(), Failure> {
        let mut out = self.terminal.out();
        let printed = match (self.global.json, self.terminal.has_tables) {
            (true, _) => what.json(self, &mut out),
            (false, true) => what.text(self, &mut out),
            (false, false) => what.lines(self, &mut out),
        };
        // The output before a failure is printed before the failure is reported.
        out.flush()?;
        printed
    }
}
