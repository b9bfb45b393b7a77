//! `blob schemas`: describes the tool's JSON, as JSON Schema for programs and as Markdown for people.
//!
//! Each command declares the fields in a file of its own. The tests check every line of JSON against these schemas, the
//! source of `docs/json.md`.

use std::fmt::Write as _;
use std::io::Write;

use blob_convert::report::json::{self, Document, Presence, Property, SALVAGED, Type, properties};
use blob_io::Reason;
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::output::Out;
use crate::render::Render;
use crate::{
    batch, context, convert, diff, extract, fold, formats, graph, hash, info, ls, merge, plot, report, show, split,
    stats, verify,
};

/// The lines that one command prints.
struct Schema {
    name: &'static str,
    command: &'static str,
    description: &'static str,
    fields: Vec<Property>,
}

fn of<T: Document>() -> Schema {
    let salvaged = T::IS_OF_FILES.then_some(SALVAGED);
    let fields = properties::<T>().into_iter().chain(salvaged).collect();
    Schema { name: T::SCHEMA, command: T::COMMAND, description: T::DESCRIPTION, fields }
}

fn all() -> [Schema; 18] {
    [
        of::<context::Failed<'_>>(),
        of::<info::Facts<'_>>(),
        of::<ls::List<'_>>(),
        of::<show::TensorValues<'_>>(),
        of::<stats::Statistics<'_>>(),
        of::<verify::Verdict<'_>>(),
        of::<diff::Difference<'_>>(),
        of::<graph::FileGraph<'_>>(),
        of::<hash::HashLine<'_>>(),
        of::<convert::Converted<'_>>(),
        of::<fold::Folded<'_>>(),
        of::<extract::Extracted<'_>>(),
        of::<merge::Merged<'_>>(),
        of::<split::Parts<'_>>(),
        of::<plot::Plotted<'_>>(),
        of::<report::Reported<'_>>(),
        of::<batch::Outcome>(),
        of::<formats::Formats>(),
    ]
}

pub(crate) fn run(context: &Context) -> Result<Status, Failure> {
    context.print(Schemas)?;
    Ok(Status::Yes)
}

struct Schemas;

impl Render for Schemas {
    fn json(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        for schema in all() {
            json::plain_line(out, &schema.as_json())?;
        }
        Ok(())
    }

    fn text(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        Ok(out.write_all(markdown().as_bytes())?)
    }
}

impl Schema {
    /// JSON Schema, draft 2020-12.
    fn as_json(&self) -> Value {
        let mut schema = object(&self.fields);
        let name = json!({"const": self.name});
        schema["properties"]["schema"] = name;
        if let Some(required) = schema["required"].as_array_mut() {
            required.insert(0, json!("schema"));
        }
        schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        schema["title"] = json!(self.name);
        schema["description"] = json!(self.description);
        schema
    }
}

fn object(fields: &[Property]) -> Value {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| {
            let mut schema = field.ty.schema();
            if field.presence == Presence::Nullable {
                schema = json!({"anyOf": [schema, {"type": "null"}]});
            }
            schema["description"] = json!(field.description);
            (field.name.to_owned(), schema)
        })
        .collect();
    let required = fields.iter().filter(|f| f.presence != Presence::Optional);
    let required: Vec<&str> = required.map(|f| f.name).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
    })
}

/// A type in the forms of a schema.
trait Described: Sized {
    fn schema(self) -> Value;

    /// The type in words, for the Markdown.
    fn words(self) -> String;

    /// The fields of a nested object, with the path to each; the second list is not empty if there are two types.
    fn nested(self) -> Option<(&'static str, Vec<Property>, Vec<Property>)>;
}

impl Described for Type {
    fn schema(self) -> Value {
        match self {
            Self::String => json!({"type": "string"}),
            Self::Integer => json!({"type": "integer"}),
            Self::Number => json!({
                "anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]
            }),
            Self::Boolean => json!({"type": "boolean"}),
            Self::Enum(words) => json!({"enum": words}),
            Self::Array(of) => json!({"type": "array", "items": of.schema()}),
            Self::Map(of) => json!({"type": "object", "additionalProperties": of.schema()}),
            Self::Object(properties) => object(&properties()),
            Self::Foreign => json!({"type": "object"}),
            Self::Either(one, other) => json!({"anyOf": [object(&one()), object(&other())]}),
            // JSON Schema cannot tie the depth to the field `shape`: an array of any depth, or one value.
            Self::Nested => json!({"type": ["array", "number", "string", "boolean", "null"]}),
        }
    }

    fn words(self) -> String {
        match self {
            Self::String => "string".to_owned(),
            Self::Integer => "integer".to_owned(),
            Self::Number => "number, or `\"NaN\"`, `\"Infinity\"`, `\"-Infinity\"`".to_owned(),
            Self::Boolean => "boolean".to_owned(),
            Self::Enum(words) => {
                let words: Vec<String> = words.iter().map(|w| format!("`\"{w}\"`")).collect();
                words.join(", ")
            }
            Self::Array(of) => format!("array of {}", of.words()),
            Self::Map(of) => format!("object of {}", of.words()),
            Self::Object(_) | Self::Either(..) | Self::Foreign => "object".to_owned(),
            Self::Nested => "nested arrays".to_owned(),
        }
    }

    fn nested(self) -> Option<(&'static str, Vec<Property>, Vec<Property>)> {
        match self {
            Self::Object(fields) => Some((".", fields(), Vec::new())),
            Self::Either(one, other) => Some((".", one(), other())),
            Self::Array(Self::Object(fields)) => Some(("[].", fields(), Vec::new())),
            Self::Array(Self::Either(one, other)) => Some(("[].", one(), other())),
            _ => None,
        }
    }
}

const HEAD: &str = "\
# The JSON of `blob`

With `--json` every command prints JSON lines: one object a line, UTF-8, the field `schema` first. Lines are whole
whatever happens: a file that cannot be read is a line of `blob.error/1` in its place among the others, and what
fails in the middle of a list closes the list and is said in a field `error`. An interrupted command ends likewise, with
the reason `interrupted` and exit code 130. Messages for people still go to standard error.

A schema's name changes when a field leaves or changes its type; a field may be added without a new name, so ignore
fields that you do not know. A wrong command line is a line of `blob.error/1`, too. Programs select by `reason`, never by
the words of a `message`. All offsets are bytes from the beginning of the file; of a file that was unpacked while it
was read, of the unpacked bytes.

`blob schemas` prints this page, `blob schemas --json` the same as [JSON Schema](https://json-schema.org), one a line.

Exit codes: 0 yes; 1 the answer is no (a finding of `verify`, no tensor matched); 2 trouble (wrong usage, a file that is
broken or cannot be read); 130 interrupted. `verify` exits 1 only for a file that is broken for certain; one that is
not read (`unsupported`, `compressed`, `archive`, `not-tensors`, `unknown`, `limit`, or what the operating system
refuses) is 2, so that nothing sound is thrown away.
";

/// The text of `docs/json.md`.
fn markdown() -> String {
    let mut text = HEAD.to_owned();
    text += "\n## Reasons\n\n| reason | meaning |\n|---|---|\n";
    for reason in Reason::ALL {
        let _ = writeln!(text, "| `{reason}` | {} |", reason.meaning());
    }
    for schema in all() {
        let (name, command, description) = (schema.name, schema.command, schema.description);
        let _ = write!(text, "\n## {name}\n\n`{command}`: {description}\n\n");
        text += "| field | value | meaning |\n|---|---|---|\n";
        let _ = writeln!(text, "| `schema` | `\"{name}\"` | |");
        rows(&mut text, "", &schema.fields);
    }
    text
}

fn rows(text: &mut String, path: &str, fields: &[Property]) {
    for field in fields {
        row(text, path, field, presence([Some(field.presence); 2]));
    }
}

fn row(text: &mut String, path: &str, field: &Property, present: &str) {
    let (name, words, description) = (field.name, field.ty.words(), field.description);
    let _ = writeln!(text, "| `{path}{name}` | {words}{present} | {description} |");
    let Some((step, one, other)) = field.ty.nested() else {
        return;
    };
    let path = format!("{path}{name}{step}");
    if other.is_empty() {
        return rows(text, &path, &one);
    }
    for field in &one {
        let in_other = other.iter().find(|o| o.name == field.name).map(|o| o.presence);
        row(text, &path, field, presence([Some(field.presence), in_other]));
    }
    for field in other.iter().filter(|f| one.iter().all(|o| o.name != f.name)) {
        row(text, &path, field, presence([None, Some(field.presence)]));
    }
}

/// The presence of a field in words, in an object of one of two types; `None` for a type without the field.
fn presence(in_each: [Option<Presence>; 2]) -> &'static str {
    let is_missing = in_each.iter().any(|of| matches!(of, None | Some(Presence::Optional)));
    match (in_each.contains(&Some(Presence::Nullable)), is_missing) {
        (false, false) => "",
        (true, false) => " or `null`",
        (false, true) => ", may be missing",
        (true, true) => " or `null`, may be missing",
    }
}
