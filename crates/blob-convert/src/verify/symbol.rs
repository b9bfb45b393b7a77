//! A file's arrays against the variables of MXNet's symbol file: names, kinds, shapes, dtypes; no values.

use std::collections::HashMap;

use blob_io::mxnet::{Symbol, Variable};
use blob_io::{Checkpoint, Entry, Kind};

use super::{Finding, Remark};
use crate::options::and_more;

/// How many inputs are named.
const NAMED: usize = 20;

/// Compares the arrays of `checkpoint` with what `symbol` says of them. Returns how many have their variable.
///
/// Names are compared without `arg:` and `aux:`, which are compared with the kind of the variable where they are there.
/// A variable without an array is missing where it is learnt, and otherwise taken for an input, which is a note.
pub fn symbol(checkpoint: &Checkpoint, symbol: &Symbol, tell: &mut dyn FnMut(Remark)) -> u64 {
    let mut arrays = HashMap::new();
    // A sparse array is one, called as its parts but for what they end with.
    for entry in checkpoint.entries() {
        let is_array = entry.sparse().is_none() && entry.kind() != Kind::None || entry.kind() == Kind::Values;
        let name = whole_name(entry);
        if is_array && arrays.insert(bare(name).1, (name, entry)).is_some() {
            let message =
                format!("is not the only array for {:?} of the symbol; the last one is compared", bare(name).1);
            tell(Remark::Finding(Finding::new(name, "absent", message)));
        }
    }
    let (count, mut held) = (arrays.len(), 0);
    let mut inputs = Vec::new();
    for variable in &symbol.variables {
        match arrays.remove(&*variable.name) {
            Some((name, entry)) => {
                held += 1;
                compare(name, entry, variable, tell);
            }
            None if variable.is_parameter => {
                let kind = if variable.is_auxiliary { "an auxiliary state" } else { "a parameter" };
                let message = format!("is missing; the symbol has it as {kind}");
                tell(Remark::Finding(Finding::new(&variable.name, "absent", message)));
            }
            None => inputs.push(&*variable.name),
        }
    }
    // In the file's order.
    for entry in checkpoint.entries() {
        let name = whole_name(entry);
        if arrays.get(bare(name).1).is_some_and(|(_, other)| std::ptr::eq(*other, entry)) {
            tell(Remark::Finding(Finding::new(name, "absent", "is no variable of the symbol")));
        }
    }
    if held == 0 && count > 0 {
        let why = "names as Gluon's save_parameters stores them are not the symbol's; those of its export are";
        tell(Remark::Note(why.to_owned()));
    }
    if !inputs.is_empty() {
        let named: Vec<String> = inputs.iter().take(NAMED).map(|name| format!("{name:?}")).collect();
        let more = and_more(inputs.len() - named.len());
        tell(Remark::Note(format!("taken for inputs, as they have no array: {}{more}", named.join(", "))));
    }
    held
}

fn whole_name(entry: &Entry) -> &str {
    entry.sparse().map_or(entry.name(), |sparse| &sparse.name)
}

/// A name without what says its kind, and whether that is an auxiliary state.
fn bare(name: &str) -> (Option<bool>, &str) {
    match (name.strip_prefix("arg:"), name.strip_prefix("aux:")) {
        (Some(name), _) => (Some(false), name),
        (_, Some(name)) => (Some(true), name),
        _ => (None, name),
    }
}

fn compare(name: &str, entry: &Entry, variable: &Variable, tell: &mut dyn FnMut(Remark)) {
    let mut found = |reason, message| tell(Remark::Finding(Finding::new(name, reason, message)));
    if bare(name).0.is_some_and(|is_auxiliary| is_auxiliary != variable.is_auxiliary) {
        let kind = if variable.is_auxiliary { "an auxiliary state" } else { "no auxiliary state" };
        found("kind", format!("is {kind} in the symbol"));
    }
    let shape = entry.sparse().map_or(entry.shape(), |sparse| &sparse.shape);
    if let Some(dims) = &variable.dims {
        let fits = |(own, said): (&usize, &Option<usize>)| said.is_none_or(|said| said == *own);
        if dims.len() != shape.num_axes() || !shape.dims().iter().zip(dims).all(fits) {
            let said: Vec<String> = dims.iter().map(|dim| dim.map_or("?".to_owned(), |n| n.to_string())).collect();
            found("shape", format!("has shape {shape} here, {} in the symbol", said.join("\u{d7}")));
        }
    }
    if let (Some(own), Some(said)) = (entry.dtype(), variable.dtype)
        && own != said
    {
        found("dtype", format!("has dtype {own} here, {said} in the symbol"));
    }
}
