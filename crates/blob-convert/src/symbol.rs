//! The symbol of MXNet's beside an output, `out-symbol.json` beside `out-0000.params`: a new one for a folded net,
//! which is written with the tensors, and an old one that no longer fits the tensors.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use blob_io::mxnet::Symbol;
use blob_io::net::Role;
use blob_io::{Checkpoint, Complete, Error, Existing, IfExists, Output, Remedy};

use crate::source::check_output;
use crate::transform::{Fold, Topology, bare, is_same, symbol_name};

/// A symbol that is written beside the tensors.
#[derive(Clone, Debug)]
pub(crate) struct NewSymbol {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    if_exists: IfExists,
}

impl NewSymbol {
    /// The new symbol for tensors in `output`; `fold` learns whether there is one. `given` is the net's file, if the
    /// user names one. `None` where no symbol describes the net, where the symbol cannot be written anew, and beside a
    /// pipe.
    ///
    /// # Errors
    /// A file of the same name that exists, that is one of the symbols which are read, or that belongs to other
    /// weights.
    pub(crate) fn of(
        source: &Checkpoint,
        net: &Topology,
        given: Option<&Path>,
        fold: &mut Fold,
        output: &Path,
        if_exists: IfExists,
    ) -> Result<Option<Self>, Error> {
        // A pipe or a device is no file that another one can be beside.
        let is_stream = output.exists() && !output.is_file();
        let Some(text) = net.symbol_text().filter(|_| !is_stream) else { return Ok(None) };
        let text = fold.symbol(text).map_err(|why| format!("{} {why}", net.origin().name));
        fold.described(text.as_ref().map(drop).map_err(String::clone));
        let Ok(text) = text else { return Ok(None) };
        // The weights would take the place of what the link names, and the symbol the place beside the link.
        if output.is_symlink() {
            let message = "is a link, and a symbol goes beside the file: name the file that the link names";
            return Err(Error::misfit(output.display(), message, None));
        }
        let path = output.with_file_name(symbol_name(&output.to_string_lossy()));
        // The symbol beside the input belongs to the input, whichever symbol is followed.
        let beside = source.path().map(|input| input.with_file_name(symbol_name(&input.to_string_lossy())));
        for symbol in beside.iter().map(PathBuf::as_path).chain(given) {
            check_output(symbol, &path, if_exists)?;
        }
        // Whether the file can be made is known by `check`, which tries it.
        if if_exists == IfExists::Refuse && path.exists() {
            return Err(Error::Exists { path: path.display().to_string(), target: Existing::File });
        }
        match other_weights(&path, output).filter(|_| path.exists()) {
            Some(other) => {
                let message = format!("belongs to {other} too, whose net has other layers");
                Err(Error::misfit(path.display(), message, Remedy::SymbolName))
            }
            None => Ok(Some(Self { path, text, if_exists })),
        }
    }

    /// Whether the file has this symbol already.
    pub(crate) fn is_written(&self) -> bool {
        let is_long = fs::metadata(&self.path).is_ok_and(|meta| meta.len() == self.text.len() as u64);
        is_long && fs::read(&self.path).is_ok_and(|bytes| bytes == self.text.as_bytes())
    }

    /// Checks that the symbol can be written.
    pub(crate) fn check(&self) -> Result<(), Error> {
        Output::check(&self.path, self.if_exists)
    }

    /// Writes the whole symbol under a temporary name.
    pub(crate) fn complete(&self) -> Result<Complete, Error> {
        let mut output = Output::create(&self.path, self.if_exists)?;
        output.write_all(self.text.as_bytes())?;
        output.complete()
    }
}

/// Refuses variances for another eps beside a symbol that says the old one: MXNet finds the symbol of `output` by the
/// name. A symbol of other layers, or none, says nothing. `variances` has the output's names, each with the eps that
/// the receipts of the sources and the steps of the conversion tell.
///
/// # Errors
/// A symbol that says another eps for one of the variances.
pub(crate) fn check_eps<'t>(output: &Path, variances: impl Iterator<Item = (&'t str, f64)>) -> Result<(), Error> {
    let known: HashMap<&str, f64> = variances.map(|(name, eps)| (bare(name), eps)).collect();
    if known.is_empty() {
        return Ok(());
    }
    let path = output.with_file_name(symbol_name(&output.to_string_lossy()));
    let Ok(symbol) = Symbol::open(&path) else { return Ok(()) };
    let mut known = symbol
        .net
        .layers()
        .iter()
        .filter_map(|layer| Some((&layer.name, layer.eps, *known.get(layer.tensor(Role::Variance)?)?)));
    let Some((name, eps, to)) = known.find(|(_, eps, to)| !is_same(*eps, *to)) else { return Ok(()) };
    let message = format!("says an eps of {eps:e} for {name:?}, and the variances would be for {to:e}");
    Err(Error::misfit(path.display(), message, Remedy::SymbolName))
}

/// The name of other weights beside the symbol that belong to the same symbol by name, and have the output's extension:
/// weights of another epoch.
fn other_weights(symbol: &Path, output: &Path) -> Option<String> {
    let folder = symbol.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names = fs::read_dir(folder).ok()?.flatten().map(|file| file.file_name());
    let mut names = names.filter(|name| Some(&**name) != output.file_name()).filter_map(|name| name.into_string().ok());
    names.find(|name| {
        Path::new(name).extension() == output.extension() && symbol.file_name() == Some(symbol_name(name).as_ref())
    })
}
