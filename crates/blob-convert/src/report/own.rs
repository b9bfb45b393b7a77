//! The fields of the libraries' own types: changes, tensors that are left out, nets, differences.

use blob_core::DType;
use blob_io::{Sparse, onnx};
use serde_json::{Value, json};

use crate::batch::Claim;
use crate::change::Group;
use crate::diff::{Comparison, Distance, Row, Tensor};
use crate::finding::Redone;
use crate::graph;
use crate::planned::LeftOut;
use crate::report::json::{self, DIMS, Field, Fields, NAME, STRINGS, Type, field, nullable, optional, properties};
use crate::transform::{NetOrigin, Refusal};

/// The descriptions of fields that several objects have.
const ASKED: &str = "whether an option asks for it";
const WHY: &str = "why, in words";

impl Fields for Sparse {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("kind", Type::Enum(&["row_sparse", "csr"]), "how it is stored", |s| json!(s.kind.name())),
            field("name", Type::String, "the whole array's name", |s| json!(*s.name)),
            field("shape", DIMS, "its dense shape", |s| json!(s.shape.dims())),
        ]
    }
}

impl Fields for Group {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("kind", Type::String, "the kind of change, such as `name-lost`", |g| json!(g.change.effect.name())),
            field("message", Type::String, "the change in words", |g| json!(g.to_string())),
            field("asked", Type::Boolean, ASKED, |g| json!(g.change.is_asked)),
            field("loss", Type::Boolean, "whether --strict refuses it", |g| json!(g.change.is_loss())),
            field("tensors", STRINGS, "the tensors that it is about; none where it is about the whole file", |g| {
                json!(g.tensors)
            }),
            optional("values", Type::Integer, "how many of their values are lost", |g| json!(g.values)),
        ]
    }
}

impl Fields for NetOrigin {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("from", Type::String, "how it was found: option, beside, file", |net| json!(net.from)),
            field("name", Type::String, "the name of its file", |net| json!(net.name)),
            nullable("blake3", Type::String, "the BLAKE3 of its file; not where the weights describe it", |net| {
                json!(net.blake3)
            }),
        ]
    }
}

impl Fields for LeftOut {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, NAME, |l| json!(l.name)),
            field("reason", Type::String, WHY, |l| json!(l.reason)),
            field("asked", Type::Boolean, ASKED, |l| json!(l.is_asked)),
        ]
    }
}

impl Fields for Refusal {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("layer", Type::String, "the layer's name", |r| json!(r.layer)),
            field("reason", Type::String, WHY, |r| json!(r.reason)),
        ]
    }
}

impl Fields for Redone {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("transform", Type::String, "its name", |r| json!(r.transform)),
            field("tensors", Type::Integer, "how many tensors get other values", |r| json!(r.tensors)),
            field("first", STRINGS, "the first of them, as the other file calls them", |r| json!(r.named)),
            field("said_by", Type::String, "what says that it is right, in words", |r| json!(r.said_by)),
        ]
    }
}

impl Fields for onnx::Model {
    fn fields() -> Vec<Field<Self>> {
        const VALUES: Type = Type::Array(&Type::Object(properties::<onnx::Value>));
        vec![
            field("opset", Type::Integer, "the version of ONNX's operators", |model| json!(model.opset)),
            field("ir", Type::Integer, "the version of ONNX's format", |model| json!(model.ir_version)),
            field("nodes", Type::Integer, "how many nodes the graph has, constants too", |model| {
                json!(model.node_count())
            }),
            optional("external_data", Type::String, "the file beside the model that has values", |model| {
                json!(model.outside)
            }),
            field("inputs", VALUES, "the values that a caller gives", |model| {
                model.inputs.iter().map(json::value).collect()
            }),
            field("outputs", VALUES, "the values that a caller gets", |model| {
                model.outputs.iter().map(json::value).collect()
            }),
        ]
    }
}

impl Fields for onnx::Value {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, "the value's name", |value| json!(value.name)),
            field("dtype", Type::String, "the element type", |value| json!(value.dtype.name())),
            field(
                "shape",
                json::STRINGS,
                "the extents as texts: a number, or the name of one that a caller chooses",
                |value| {
                    let extent = |dim: &onnx::Dim| match dim {
                        onnx::Dim::Size(extent) => extent.to_string(),
                        onnx::Dim::Name(name) => name.clone(),
                    };
                    json!(value.shape.iter().map(extent).collect::<Vec<_>>())
                },
            ),
        ]
    }
}

impl Fields for graph::Value {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, "the value's name in the graph", |value| json!(value.name)),
            field("dtype", Type::String, "the element type", |value| json!(value.dtype.name())),
            field("shape", DIMS, "its extents; 0 where only a run knows", |value| json!(value.shape)),
        ]
    }
}

impl Fields for Claim {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, "the source's name without its folder", |c| json!(c.name)),
            field("bytes", Type::Integer, "the source's size", |c| json!(c.bytes)),
            field("blake3", Type::String, "the source's BLAKE3", |c| json!(c.blake3)),
            nullable("recipe", Type::String, "a digest of the recipe and of each file that it reads", |c| {
                json!(c.recipe)
            }),
            field("tool", Type::String, "the tool that wrote the output", |c| json!(c.tool)),
        ]
    }
}

/// The words for [`Comparison`].
const CHANGES: &[&str] = &["equal", "renamed", "removed", "added", "values", "dtype", "shape", "unread"];

/// The change in one word.
#[must_use]
pub fn word(change: &Comparison) -> &'static str {
    match change {
        Comparison::Equal(_) => "equal",
        Comparison::Renamed => "renamed",
        Comparison::Removed => "removed",
        Comparison::Added => "added",
        Comparison::Values(_) => "values",
        Comparison::DType(_) => "dtype",
        Comparison::Shape => "shape",
        Comparison::Unread(_) => "unread",
    }
}

/// The distance between the values, if compared.
#[must_use]
pub fn distance(row: &Row) -> Option<&Distance> {
    match &row.change {
        Comparison::Equal(distance) | Comparison::Values(distance) | Comparison::DType(distance) => Some(distance),
        _ => None,
    }
}

/// The tensor's name, and the name in the second file if another.
#[must_use]
pub fn names(row: &Row) -> (&str, Option<&str>) {
    match (&row.ours, &row.theirs) {
        (Some(a), Some(b)) => (&a.name, Some(&*b.name).filter(|name| *name != a.name)),
        (Some(one), None) | (None, Some(one)) => (&one.name, None),
        (None, None) => ("", None),
    }
}

impl Fields for Row {
    fn fields() -> Vec<Field<Self>> {
        fn of<'r>(row: &'r Row, get: fn(&'r Distance) -> Value) -> Value {
            distance(row).map_or(Value::Null, get)
        }
        vec![
            field("change", Type::Enum(CHANGES), "what became of it", |row| json!(word(&row.change))),
            nullable("name", Type::String, "its name in the first file", |row| {
                json!(row.ours.as_ref().map(|t| &t.name))
            }),
            nullable("other_name", Type::String, "in the second", |row| json!(row.theirs.as_ref().map(|t| &t.name))),
            nullable("dtype", Type::String, "its dtype in the first file", |row| dtype(row.ours.as_ref())),
            nullable("other_dtype", Type::String, "in the second", |row| dtype(row.theirs.as_ref())),
            nullable("shape", DIMS, "its shape in the first file", |row| shape(row.ours.as_ref())),
            nullable("other_shape", DIMS, "in the second", |row| shape(row.theirs.as_ref())),
            nullable("elements", Type::Integer, "how many values were compared", |row| of(row, |d| json!(d.elements))),
            nullable("changed", Type::Integer, "how many are further apart than is tolerated", |row| {
                of(row, |d| json!(d.changed))
            }),
            nullable("max_abs", Type::Number, "the largest difference", |row| of(row, |d| json::number(d.max_abs))),
            nullable(
                "max_rel",
                Type::Number,
                "the largest one over the second file's value, infinite where that is 0",
                |row| of(row, |d| json::number(d.max_rel)),
            ),
            nullable("rms", Type::Number, "the root of the mean square of the differences", |row| {
                of(row, |d| json::number(d.rms()))
            }),
            nullable("furthest", DIMS, "the index of the value that is furthest apart", |row| {
                let at = distance(row).and_then(|d| d.worst).zip(row.ours.as_ref());
                json!(at.and_then(|(worst, ours)| ours.shape.index(worst.element as usize).ok()))
            }),
            optional("message", Type::String, "why it was not compared", |row| match &row.change {
                Comparison::Unread(why) => json!(why),
                _ => Value::Null,
            }),
        ]
    }
}

fn dtype(tensor: Option<&Tensor>) -> Value {
    json!(tensor.and_then(|tensor| tensor.dtype).map(DType::name))
}

fn shape(tensor: Option<&Tensor>) -> Value {
    json!(tensor.map(|tensor| tensor.shape.dims()))
}
