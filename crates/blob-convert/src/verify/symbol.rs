//! Compares a file's arrays with the variables of MXNet's symbol file: names, kinds, shapes and dtypes, but no values.

use std::collections::HashMap;

use blob_io::mxnet::{Symbol, Variable};
use blob_io::{Checkpoint, Entry, Group, Kind, Reason};

use crate::finding::{Finding, Remark};
use blob_io::words::listed;

/// How many inputs a note names.
const NAMED: usize = 20;

/// Compares the arrays of `checkpoint` with the variables of `symbol`. Returns how many arrays have a variable.
///
/// Names are compared without `arg:` and `aux:`; such a prefix is compared with the kind of the variable. A learnt
/// variable without an array is a finding. Any other variable without an array is taken for an input, which is a note.
pub fn symbol(checkpoint: &Checkpoint, symbol: &Symbol, report: &mut dyn FnMut(Remark)) -> u64 {
    let mut arrays = HashMap::new();
    // A sparse array counts once, under the name of the parts without a suffix.
    for entry in checkpoint.entries() {
        let is_array = entry.sparse().is_none() && entry.kind() != Kind::None || entry.kind() == Kind::Values;
        let name = whole_name(entry);
        if is_array && arrays.insert(bare(name), (name, entry)).is_some() {
            let message = format!("is not the only array for {:?} of the symbol; the last one is compared", bare(name));
            report(Remark::Finding(Finding::new(name, Reason::Absent, message)));
        }
    }
    let (count, mut matched) = (arrays.len(), 0);
    let mut inputs = Vec::new();
    for variable in &symbol.variables {
        match arrays.remove(&*variable.name) {
            Some((name, entry)) => {
                matched += 1;
                compare(name, entry, variable, report);
            }
            None if variable.is_parameter => {
                let kind = if variable.is_auxiliary { "an auxiliary state" } else { "a parameter" };
                let message = format!("is missing; the symbol has it as {kind}");
                report(Remark::Finding(Finding::new(&variable.name, Reason::Absent, message)));
            }
            None => inputs.push(&*variable.name),
        }
    }
    // In the file's order.
    for entry in checkpoint.entries() {
        let name = whole_name(entry);
        if arrays.get(bare(name)).is_some_and(|(_, other)| std::ptr::eq(*other, entry)) {
            report(Remark::Finding(Finding::new(name, Reason::Absent, "is no variable of the symbol")));
        }
    }
    if matched == 0 && count > 0 {
        let why = "names as Gluon's save_parameters stores them are not the symbol's; those of its export are";
        report(Remark::Note(why.to_owned()));
    }
    if !inputs.is_empty() {
        report(Remark::Note(format!("taken for inputs, as they have no array: {}", listed(NAMED, &inputs))));
    }
    matched
}

fn whole_name(entry: &Entry) -> &str {
    entry.sparse().map_or(entry.name(), |sparse| &sparse.name)
}

/// A name without the prefix: `conv0_weight` for `arg:conv0_weight`.
fn bare(name: &str) -> &str {
    Group::split(name).1
}

fn compare(name: &str, entry: &Entry, variable: &Variable, report: &mut dyn FnMut(Remark)) {
    let mut found = |reason, message| report(Remark::Finding(Finding::new(name, reason, message)));
    let (group, _) = Group::split(name);
    if group.is_some_and(|group| (group == Group::Auxiliary) != variable.is_auxiliary) {
        let kind = if variable.is_auxiliary { "an auxiliary state" } else { "no auxiliary state" };
        found(Reason::Kind, format!("is {kind} in the symbol"));
    }
    let shape = entry.sparse().map_or(entry.shape(), |sparse| &sparse.shape);
    if let Some(dims) = &variable.dims {
        let mut pairs = shape.dims().iter().zip(dims);
        if dims.len() != shape.num_axes() || !pairs.all(|(own, known)| known.is_none_or(|known| known == *own)) {
            let expected: Vec<String> = dims.iter().map(|dim| dim.map_or("?".to_owned(), |n| n.to_string())).collect();
            found(Reason::Shape, format!("has shape {shape} here, {} in the symbol", expected.join("\u{d7}")));
        }
    }
    if let (Some(own), Some(expected)) = (entry.dtype(), variable.dtype)
        && own != expected
    {
        found(Reason::DType, format!("has dtype {own} here, {expected} in the symbol"));
    }
}
