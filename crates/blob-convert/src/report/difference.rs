//! `blob.diff/1`: the differences between two files.

use blob_io::Checkpoint;
use serde_json::{Value, json};

use crate::diff::{Row, Tally};
use crate::report::json::{self, Document, Field, Fields, STRINGS, Type, field, nullable, properties, streamed};
use crate::report::problem::Problem;

/// The result of a comparison; the rows are streamed.
#[derive(Debug)]
pub struct Difference<'a> {
    /// The first file.
    pub ours: &'a Checkpoint,
    /// The second file.
    pub theirs: &'a Checkpoint,
    /// How many tensors are equal, changed, and so on.
    pub tally: &'a mut Tally,
    /// Notes on the comparison.
    pub notes: Vec<String>,
    /// The error that ended the comparison early, as JSON.
    pub error: Value,
}

impl Document for Difference<'_> {
    const SCHEMA: &'static str = "blob.diff/1";
    const COMMAND: &'static str = "blob diff --json A B";
    const DESCRIPTION: &'static str = "how two files differ";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.ours, self.theirs]
    }
}

impl Fields for Difference<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("file", Type::String, json::FILE, |p| json!(p.ours.name())),
            field("other", Type::String, "the second file, as it was named", |p| json!(p.theirs.name())),
            streamed(
                "tensors",
                Type::Array(&Type::Object(properties::<Row>)),
                "those that are not equal; with --all, all",
            ),
            field("notes", STRINGS, "what is worth knowing of the comparison", |p| json!(p.notes)),
            field("equal", Type::Integer, "how many tensors are equal, renamed ones too", |p| json!(p.tally.equal)),
            field("renamed", Type::Integer, "how many of them have another name", |p| json!(p.tally.renamed)),
            field("changed", Type::Integer, "how many have other values, another dtype or shape", |p| {
                json!(p.tally.changed)
            }),
            field("removed", Type::Integer, "how many only the first file has", |p| json!(p.tally.removed)),
            field("added", Type::Integer, "how many only the second file has", |p| json!(p.tally.added)),
            field("unread", Type::Integer, "how many could not be compared", |p| json!(p.tally.unread)),
            nullable("error", Type::Object(properties::<Problem>), "why the comparison ended too early", |p| {
                p.error.clone()
            }),
        ]
    }
}
