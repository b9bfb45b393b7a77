//! The forms of a command's output: JSON for programs, tables, pictures and trees for people, lines for a pipe.

use std::io::Write;

use blob_convert::report::json::{self, Document};

use crate::context::Context;
use crate::failure::Failure;
use crate::output::Out;
use crate::output::signals::Work;

pub(crate) mod picture;
pub(crate) mod svg;
pub(crate) mod table;
pub(crate) mod tree;

/// A command's output. [`Context::print`] chooses the form; a command may do the work during the printing.
pub(crate) trait Render: Sized {
    /// JSON lines. A streamed array or object is closed even after an error.
    fn json(self, context: &Context, out: &mut Out) -> Result<(), Failure>;

    /// Text for people, within the terminal's width.
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure>;

    /// Lines for a pipe, if different from the text.
    fn lines(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        self.text(context, out)
    }
}

/// The output of a command whose JSON is one line.
pub(crate) trait Text: Document {
    /// See [`Render::text`].
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
    pub(crate) fn print(&self, output: impl Render) -> Result<(), Failure> {
        let mut out = self.terminal.out();
        // A line is whole also where a signal comes.
        let _work = Work::begin();
        let printed = match (self.global.json, self.terminal.has_tables) {
            (true, _) => output.json(self, &mut out),
            (false, true) => output.text(self, &mut out),
            (false, false) => output.lines(self, &mut out),
        };
        // The output must precede the report of a failure.
        out.flush()?;
        printed
    }
}
