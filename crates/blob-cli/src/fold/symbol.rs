//! The new symbol of a folded net of MXNet's: `out-symbol.json` beside `out-0000.params`.

use std::fs;
use std::path::{Path, PathBuf};

use blob_convert::transform::{Fold as Folding, Topology, symbol_name};
use blob_io::{Complete, Error, Output};

use crate::args::{Fold, if_exists};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::sink::is_stdout;

/// A symbol that is written beside the tensors.
pub(super) struct NewSymbol {
    pub(super) path: PathBuf,
    text: String,
}

/// The weights beside a symbol that belong to it by their name, of the format that is written but not the same file:
/// those of another epoch.
fn other_weights(symbol: &Path, output: &Path) -> Option<String> {
    let folder = symbol.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names = fs::read_dir(folder).ok()?.flatten().map(|file| file.file_name());
    let mut names = names.filter(|name| Some(&**name) != output.file_name()).filter_map(|name| name.into_string().ok());
    let is_alike = |name: &str| Path::new(name).extension() == output.extension();
    names.find(|name| is_alike(name) && symbol.file_name() == Some(symbol_name(name).as_ref()))
}

impl NewSymbol {
    /// The new symbol of the net that is followed; `None` where no symbol describes it, or the output has no name. One
    /// that cannot be written anew is told.
    ///
    /// # Errors
    /// A file of its name that exists, that is the symbol which is followed, or that belongs to other weights.
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
        if let Some(other) = other_weights(&path, &args.output).filter(|_| path.exists()) {
            let message = format!("{}: belongs to {} too, whose net has other layers", path.display(), other);
            return Err(Failure::new(message).help("write to another name: the symbol is called as the weights are"));
        }
        Ok(Some(Self { path, text }))
    }

    /// Writes it under a temporary name, to its end.
    pub(super) fn complete(&self, args: &Fold) -> Result<Complete, Error> {
        let mut output = Output::create(&self.path, if_exists(args.force))?;
        output.write_all(self.text.as_bytes())?;
        output.complete()
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
