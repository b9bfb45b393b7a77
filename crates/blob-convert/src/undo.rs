//! Undoes the steps that put values into another order, for a file that takes the values in the old order: `--rgb`,
//! `--layout`, `--fc-from`, and permuted axes.
//!
//! A receipt names the steps, but not all tensors of each step. The file that the values go into has these tensors in
//! the old order, so each step is planned on that file, and turned round.

use std::collections::HashMap;
use std::sync::Arc;

use blob_io::Checkpoint;
use serde::Deserialize;

use crate::chosen::chosen;
use crate::history::{lineage_of, receipt_text, steps_of};
use crate::options::Options;
use crate::planned::How;
use crate::step::Step;
use crate::transform::{Choice, NetFrom, NetOrigin, Topology, Transform, Turned, Undo, Undone};

/// The steps that lead back, the last one first, and the names of the undone steps.
#[derive(Debug, Default)]
pub(crate) struct Back {
    pub(crate) steps: Vec<Arc<dyn Transform>>,
    pub(crate) undone: Vec<String>,
}

/// The steps from the tensors of `checkpoint` to the tensors that `base` takes; or the reason why there are none, in
/// words that follow "cannot be undone: ".
pub(crate) fn back(checkpoint: &Checkpoint, base: &Checkpoint, asked: &Options) -> Result<Back, String> {
    let lineage = receipt_text(checkpoint).map(lineage_of).unwrap_or_default();
    let (mut options, mut undone, mut nets) = (Options::new(base.format()), Vec::new(), Vec::new());
    let mut has_other_names = false;
    for (Step { name, settings }, is_before_merge) in steps_of(&lineage) {
        let step = asked.registry.read(name, settings).map_err(|why| format!("{name} {why}"))?;
        match step.undone() {
            Undone::Reordered | Undone::Changed if is_before_merge => {
                return Err(format!("{name} was done before files were merged, and the others may lack it"));
            }
            // A step finds tensors by the names of before, which the base has.
            Undone::Reordered if has_other_names => return Err(format!("{name} was done under other names")),
            Undone::Reordered => {}
            Undone::Renamed(names) => {
                has_other_names |= !names.is_empty();
                continue;
            }
            Undone::Changed => return Err(format!("{name} gives other values")),
            // The module `base` checks the folds: which layers were folded, and into which weights.
            _ => continue,
        }
        if step.follows_net() {
            nets.push(NetOrigin::deserialize(&settings["net"]).ok());
        }
        options.transforms.push(step);
        undone.push(name.clone());
    }
    if undone.is_empty() {
        return Ok(Back::default());
    }
    let mut steps = asked.transforms.iter();
    if let Some(step) = steps.find(|step| matches!(step.undone(), Undone::Changed | Undone::Reordered)) {
        return Err(format!("{} is asked for, too", step.name()));
    }
    let given = if let Choice::Given(net) = &asked.net { Some(Arc::clone(net)) } else { None };
    if nets.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err("its steps followed different nets".to_owned());
    }
    // By names and shapes alone, a step may take other tensors of the base than of the source.
    if nets.contains(&None) {
        return Err("no net was followed then".to_owned());
    }
    let recorded = nets.pop().flatten();
    let is_of_file = recorded.as_ref().is_some_and(|net| net.from == NetFrom::File);
    if is_of_file && !Topology::own(base).is_ok_and(|net| net.is_some_and(|net| net.is_wired())) {
        return Err(format!("the net in the file itself was followed, and {} has none", base.name()));
    }
    options.net = Choice::Recorded(recorded, given);
    let planned = chosen(base, &options, false).map_err(|error| error.to_string())?.tensors;
    let mut steps: Vec<HashMap<String, Turned>> = Vec::new();
    for tensor in &planned {
        let name = base.entries()[tensor.entry].name();
        let (mut at, mut depth) = (tensor, 0);
        while let How::Computed(computed) = &at.how {
            let ([input], Some(back)) = (&computed.inputs[..], computed.compute.undone()) else {
                return Err(format!("{name:?} has other values by it"));
            };
            if steps.len() == depth {
                steps.push(HashMap::new());
            }
            let (before, after) = (input.spec.shape.clone(), at.spec.shape.clone());
            steps[depth].insert(name.to_owned(), Turned { back, before, after });
            (at, depth) = (input, depth + 1);
        }
    }
    let steps = steps.into_iter().map(|turned| Arc::new(Undo::new(turned)) as Arc<dyn Transform>).collect();
    Ok(Back { steps, undone })
}
