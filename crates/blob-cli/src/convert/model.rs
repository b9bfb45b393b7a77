//! The facts of a new ONNX model for a person: the versions, the inputs and outputs, a line that runs the model.

use std::path::Path;

use blob_convert::Plan;
use blob_core::DType;
use blob_io::onnx::{Dim, Value};

use crate::context::Context;
use crate::output::sink::is_stdout;
use crate::units;

/// Says which model is written.
pub(super) fn note_model(plan: &Plan<'_>, context: &Context) {
    let Some(model) = plan.model() else { return };
    let (opset, ir, nodes) = (model.opset, model.ir_version, units::plural(model.node_count() as u64, "node"));
    context.terminal.note(format!("  opset {opset}, IR {ir}, {nodes}"));
    let inputs = model.inputs.iter().map(|value| ("input", value));
    for (what, value) in inputs.chain(model.outputs.iter().map(|value| ("output", value))) {
        let (name, shape) = (context.terminal.name(&value.name).into_owned(), shape(value));
        context.terminal.note(format!("  {what:<6} {name}: {} {shape}", value.dtype));
    }
}

/// Prints the line of Python that runs the model.
pub(super) fn print_run(plan: &Plan<'_>, output: Option<&Path>, context: &Context) {
    let Some((model, path)) = plan.model().zip(output.filter(|path| !is_stdout(path))) else { return };
    // Caffe's own nodes, which OpenCV alone runs.
    if model.nodes.iter().any(|node| matches!(&*node.op_type, "PriorBox" | "DetectionOutput")) {
        return;
    }
    let plain = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "/._-+:@ ".contains(c));
    let inputs: Option<Vec<String>> =
        model.inputs.iter().map(|value| zeros(value).filter(|_| plain(&value.name))).collect();
    let (Some(path), Some(inputs)) = (path.to_str().filter(|path| plain(path)), inputs) else { return };
    let run = format!(
        "import numpy as np, onnxruntime as rt; print(rt.InferenceSession('{path}').run(None, {{{}}}))",
        inputs.join(", ")
    );
    context.terminal.command(format!("  run it:    python3 -c \"{run}\""));
}

/// An input of zeros, in Python.
fn zeros(value: &Value) -> Option<String> {
    let dtype = match value.dtype {
        DType::F16 => "float16",
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::I32 => "int32",
        DType::I64 => "int64",
        _ => return None,
    };
    let extent = |dim: &Dim| match dim {
        Dim::Size(extent) => extent.to_string(),
        Dim::Name(_) => "1".to_owned(),
    };
    let extents: Vec<String> = value.shape.iter().map(extent).collect();
    Some(format!("'{}': np.zeros([{}], '{dtype}')", value.name, extents.join(", ")))
}

/// The extents as tables show them; a number that a caller chooses by its name.
fn shape(value: &Value) -> String {
    let extent = |dim: &Dim| match dim {
        Dim::Size(extent) => extent.to_string(),
        Dim::Name(name) => name.clone(),
    };
    value.shape.iter().map(extent).collect::<Vec<_>>().join("x")
}
