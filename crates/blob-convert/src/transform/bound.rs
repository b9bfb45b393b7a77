//! A net's layers with those of their tensors that a file has.

use std::collections::{HashMap, HashSet};

use blob_io::Checkpoint;
use blob_io::mxnet::Symbol;
use blob_io::net::{Layer, Net, Role};
use blob_io::{Error, Kind};

/// A net, and the file of its weights.
#[derive(Debug)]
pub struct Bound<'a> {
    net: &'a Net,
    /// The file's names by those of the net.
    names: HashMap<&'a str, &'a str>,
}

impl<'a> Bound<'a> {
    /// Looks for the tensors of `net` among those of a file. MXNet's are called `arg:NAME` and `aux:NAME` there, or NAME.
    #[must_use]
    pub fn new(net: &'a Net, checkpoint: &'a Checkpoint) -> Self {
        let wanted: HashSet<&str> = net.layers().iter().flat_map(Layer::tensors).map(|(_, name)| name).collect();
        let mut names = HashMap::new();
        for entry in checkpoint.entries().iter().filter(|entry| entry.kind() == Kind::Data) {
            for name in [entry.name(), bare(entry.name())] {
                if let Some(name) = wanted.get(name) {
                    names.entry(*name).or_insert(entry.name());
                }
            }
        }
        Self { net, names }
    }

    /// The net.
    #[must_use]
    pub fn net(&self) -> &'a Net {
        self.net
    }

    /// The net's layers.
    pub fn layers(&self) -> impl Iterator<Item = &'a Layer> {
        self.net.layers().iter()
    }

    /// What the file calls the tensor of this role of a layer, where it has it.
    #[must_use]
    pub fn tensor(&self, layer: &Layer, role: Role) -> Option<&'a str> {
        self.names.get(layer.tensor(role)?).copied()
    }

    /// The tensors of a layer that the file has, as (role, the file's name).
    pub fn tensors(&self, layer: &'a Layer) -> impl Iterator<Item = (Role, &'a str)> {
        layer.tensors().filter_map(|(role, name)| Some((role, *self.names.get(name)?)))
    }
}

/// A name of MXNet's without what says its kind.
pub(crate) fn bare(name: &str) -> &str {
    name.strip_prefix("arg:").or_else(|| name.strip_prefix("aux:")).unwrap_or(name)
}

/// What a new bias is called beside a weight of this name.
pub(super) fn bias_beside(weight: &str) -> String {
    let ended = |ending: &str| weight.strip_suffix(ending);
    match (ended("/0"), ended("weight")) {
        (Some(layer), _) => format!("{layer}/1"),
        (_, Some(stem)) => format!("{stem}bias"),
        _ => format!("{weight}.bias"),
    }
}

/// The symbol file beside a file of MXNet's parameters, as its savers call them: `net-symbol.json` beside
/// `net-0012.params`.
///
/// # Errors
/// What reading it returns; `None` where there is none.
pub fn symbol_beside(checkpoint: &Checkpoint) -> Result<Option<Symbol>, Error> {
    let name = checkpoint.name();
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let stem = file.strip_suffix(".params").unwrap_or(file);
    let stem = match stem.rsplit_once('-') {
        Some((stem, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => stem,
        _ => stem,
    };
    let symbol = format!("{stem}-symbol.json");
    match checkpoint.beside(&symbol)? {
        Some(bytes) => Symbol::from_bytes(&symbol, &bytes).map(Some),
        None => Ok(None),
    }
}
