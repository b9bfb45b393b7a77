//! The graph of an ONNX model against the net: made again from the source's net by the receipt's steps, and compared.
//!
//! The receipt is untrusted: whatever keeps a graph from being made again is a finding, and so is another graph.

use blob_io::onnx::Model;
use blob_io::{Checkpoint, Error, Reason};
use serde::Deserialize;

use super::claims::wrong;
use crate::finding::{Finding, Remark};
use crate::history::receipt_text;
use crate::model::{self, Around};
use crate::planned::Planned;
use crate::step::Step;
use crate::transform::{Choice, Dtype, Fold, Followed, Onnx, Own};

/// The remark on a model that is compared with the tensors of another format alone, because no step of the receipt
/// makes a graph; `None` for all other files.
pub(super) fn unproven(file: &Checkpoint, source: &Checkpoint, steps: &[Step]) -> Option<Remark> {
    if !model::is_made(source, file.format(), false) || steps.iter().any(|step| step.own() == Some(Own::Onnx)) {
        return None;
    }
    Some(if receipt_text(file).is_some() {
        wrong("has no step that makes the graph, so that nothing proves the graph")
    } else {
        Remark::Note("the graph was not compared: without a receipt nothing says how a net became the graph".to_owned())
    })
}

/// Makes the graph of a model again, and compares. `tensors` are those that the steps make of the source. Returns
/// the finding; `None` where the graph is the same.
///
/// # Errors
/// Errors of reading.
pub(super) fn compared(
    file: &Checkpoint,
    source: &Checkpoint,
    steps: &[Step],
    net: &Choice,
    tensors: &[Planned],
) -> Result<Option<Remark>, Error> {
    let settings = |own| steps.iter().find(|step| step.own() == Some(own)).map(|step| &step.settings);
    let Some(onnx) = settings(Own::Onnx).and_then(|settings| Onnx::deserialize(settings).ok()) else {
        return Ok(unproven(file, source, steps));
    };
    let Some(graph) = onnx.graph() else {
        return Ok(Some(wrong("does not say how a net became the graph, so that nothing proves the graph")));
    };
    let fold = settings(Own::Fold).and_then(|settings| Fold::deserialize(settings).ok());
    let dtype = settings(Own::Dtype).and_then(Dtype::read).map(Dtype::to);
    let followed = Followed::new(source, net);
    let again = |why: &dyn std::fmt::Display| Ok(Some(wrong(&format!("has a graph that cannot be made again: {why}"))));
    let net = match followed.get() {
        Ok(net) => net,
        Err(why) => return again(&why),
    };
    let made = model::of(source, net, fold.as_ref(), graph, dtype).and_then(|(model, made)| {
        // Which file the values are in is seen in the model, and the values themselves are compared elsewhere.
        let outside = if let [values] = file.shards() { Some(values.clone()) } else { None };
        Ok((model::blake3(&Model { outside, ..model }, tensors, &[])?, made))
    });
    let (model, made) = match made {
        Ok(made) => made,
        Err(e @ (Error::Request { .. } | Error::Misfit { .. })) => return again(&e),
        Err(e) => return Err(e),
    };
    if !made.is_like(&onnx) {
        return Ok(Some(wrong(&format!("has other initializers than the net of {} asks for", source.name()))));
    }
    let found = match Around::of(file) {
        Ok(around) => around.model,
        Err(e @ Error::Request { .. }) => return again(&e),
        Err(e) => return Err(e),
    };
    Ok((found != model).then(|| {
        let message = format!("the graph is not the one that the receipt's steps make of the net of {}", source.name());
        Remark::Finding(Finding::new("", Reason::Receipt, message))
    }))
}
