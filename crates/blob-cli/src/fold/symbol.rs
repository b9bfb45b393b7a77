//! The new symbol of a folded net of MXNet's: `out-symbol.json` beside `out-0000.params`.

use std::path::{Path, PathBuf};

use blob_convert::transform::{Fold as Folding, Topology, symbol_name};
use blob_io::{Error, Output};

use crate::args::{Fold, if_exists};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::sink::{Sink, is_stdout};

/// A symbol that is written beside the tensors.
pub(super) struct NewSymbol {
    pub(super) path: PathBuf,
    text: String,
}

impl NewSymbol {
    /// The new symbol of the net that is followed; `None` where no symbol describes it, or the output has no name. One
    /// that cannot be written anew is told.
    ///
    /// # Errors
    /// A file of its name that exists, or that is the symbol which is followed.
    pub(super) fn of(net: &Topology, fold: &Folding, args: &Fold, context: &Context) -> Result<Option<Self>, Failure> {
        let Some(text) = net.symbol_text().filter(|_| !is_stdout(&args.output)) else { return Ok(None) };
        let name = &net.origin().name;
        let text = match fold.symbol(text) {
            Ok(text) => text,
            Err(why) => {
                context.terminal.warning(format!("no new symbol is written: {name} {why}"));
                return Ok(None);
            }
        };
        let path = args.output.with_file_name(symbol_name(&args.output.to_string_lossy()));
        // The one beside the input is the input's, whichever is followed.
        let beside = args.input.with_file_name(symbol_name(&args.input.to_string_lossy()));
        for symbol in [Some(&beside), args.nets.symbol.as_ref()].into_iter().flatten() {
            blob_convert::check_output(symbol, &path, if_exists(args.force))?;
        }
        Output::check(&path, if_exists(args.force))?;
        Ok(Some(Self { path, text }))
    }

    /// Writes it under a temporary name.
    pub(super) fn begin(&self, args: &Fold) -> Result<Sink, Error> {
        let mut sink = Sink::begin(&self.path, args.force, args.dry_run)?;
        sink.write_all(self.text.as_bytes())?;
        Ok(sink)
    }

    /// What is said of it.
    pub(super) fn said(&self, is_dry_run: bool) -> String {
        let path: &Path = &self.path;
        match is_dry_run {
            true => format!("would write {} too, the net without what is folded", path.display()),
            false => format!("the net without what is folded is in {}", path.display()),
        }
    }
}
