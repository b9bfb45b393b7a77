//! The shapes of the tool's JSON: one table of fields a schema, as JSON Schema for programs and as Markdown for people.
//!
//! The tests check every line of JSON that they read against these tables, and `docs/json.md` is printed from them.

mod table;

use std::fmt::Write as _;
use std::io::Write;

use blob_convert::verify::FINDINGS;
use blob_io::Reason;
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::failure::{Failure, REASONS, Status};
use crate::output::Out;
use crate::render::{Render, json};
use table::SCHEMAS;

/// The lines that one command prints.
struct Schema {
    name: &'static str,
    command: &'static str,
    says: &'static str,
    fields: &'static [Field],
}

/// One field of an object.
struct Field {
    name: &'static str,
    is: Is,
    presence: Presence,
    says: &'static str,
}

/// Whether a field has a value.
#[derive(Clone, Copy, PartialEq)]
enum Presence {
    Always,
    /// It may be `null`.
    OrNull,
    /// It may be missing.
    Sometimes,
}

/// What a value is.
#[derive(Clone, Copy)]
enum Is {
    Text,
    Whole,
    /// A number, or `"NaN"`, `"Infinity"`, `"-Infinity"`.
    Real,
    Flag,
    OneOf(&'static [&'static str]),
    List(&'static Is),
    /// An object whose keys are names.
    Map(&'static Is),
    Object(&'static [Field]),
    /// An object of one of two kinds.
    Either(&'static [Field], &'static [Field]),
    /// Numbers, or lists of them as deep as the shape.
    Nested,
}

pub(crate) fn run(context: &Context) -> Result<Status, Failure> {
    context.say(Schemas)?;
    Ok(Status::Yes)
}

struct Schemas;

impl Render for Schemas {
    fn json(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        for schema in SCHEMAS {
            json::line(out, &schema.as_json())?;
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
        let mut schema = object(self.fields);
        let name = json!({"const": self.name});
        schema["properties"]["schema"] = name;
        if let Some(required) = schema["required"].as_array_mut() {
            required.insert(0, json!("schema"));
        }
        schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        schema["title"] = json!(self.name);
        schema["description"] = json!(self.says);
        schema
    }
}

fn object(fields: &[Field]) -> Value {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| {
            let mut is = field.is.as_json();
            if field.presence == Presence::OrNull {
                is = json!({"anyOf": [is, {"type": "null"}]});
            }
            is["description"] = json!(field.says);
            (field.name.to_owned(), is)
        })
        .collect();
    let required = fields.iter().filter(|f| f.presence != Presence::Sometimes);
    let required: Vec<&str> = required.map(|f| f.name).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

impl Is {
    fn as_json(self) -> Value {
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Whole => json!({"type": "integer"}),
            Self::Real => json!({
                "anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]
            }),
            Self::Flag => json!({"type": "boolean"}),
            Self::OneOf(words) => json!({"enum": words}),
            Self::List(of) => json!({"type": "array", "items": of.as_json()}),
            Self::Map(of) => json!({"type": "object", "additionalProperties": of.as_json()}),
            Self::Object(fields) => object(fields),
            Self::Either(one, other) => json!({"anyOf": [object(one), object(other)]}),
            // A depth that a schema cannot follow: a list, or one value.
            Self::Nested => json!({"type": ["array", "number", "string", "boolean", "null"]}),
        }
    }

    fn words(self) -> String {
        match self {
            Self::Text => "string".to_owned(),
            Self::Whole => "integer".to_owned(),
            Self::Real => "number, or `\"NaN\"`, `\"Infinity\"`, `\"-Infinity\"`".to_owned(),
            Self::Flag => "boolean".to_owned(),
            Self::OneOf(words) => {
                let words: Vec<String> = words.iter().map(|w| format!("`\"{w}\"`")).collect();
                words.join(", ")
            }
            Self::List(of) => format!("array of {}", of.words()),
            Self::Map(of) => format!("object of {}", of.words()),
            Self::Object(_) | Self::Either(..) => "object".to_owned(),
            Self::Nested => "nested arrays".to_owned(),
        }
    }

    /// The fields within, with what leads to them.
    fn within(self) -> Option<(&'static str, &'static [Field], &'static [Field])> {
        match self {
            Self::Object(fields) => Some((".", fields, &[])),
            Self::Either(one, other) => Some((".", one, other)),
            Self::List(Self::Object(fields)) => Some(("[].", fields, &[])),
            Self::List(Self::Either(one, other)) => Some(("[].", one, other)),
            _ => None,
        }
    }
}

const HEAD: &str = "\
# The JSON of `blob`

With `--json` every command prints JSON lines: one object a line, UTF-8, the field `schema` first. Lines are whole
whatever happens: a file that cannot be read is a line of `blob.error/1` in its place among the others, and what
fails in the middle of a list closes the list and is said in a field `error`. Messages for people still go to standard
error.

A schema's name changes with its shape; a field may be added without a new name. Programs select by `reason`, never by
the words of a `message`. All offsets are bytes from the beginning of the file; of a file that was unpacked while it
was read, of the unpacked bytes.

`blob schemas` prints this page, `blob schemas --json` the same as [JSON Schema](https://json-schema.org), one a line.

Exit codes: 0 yes; 1 the answer is no (a finding of `verify`, no tensor matched); 2 trouble (wrong usage, a file that is
broken or cannot be read); 130 interrupted. `verify` exits 1 only for a file that is broken for certain; one that is
not read (`unsupported`, `compressed`, `archive`, `not-tensors`, `unknown`, `limit`, or what the operating system
refuses) is 2, so that nothing sound is thrown away.
";

/// `docs/json.md`.
fn markdown() -> String {
    let mut text = HEAD.to_owned();
    text += "\n## Reasons\n\n| reason | meaning |\n|---|---|\n";
    let reasons = Reason::ALL.iter().map(|r| (r.as_str(), r.meaning()));
    for (code, meaning) in reasons.chain(REASONS.iter().chain(FINDINGS).copied()) {
        let _ = writeln!(text, "| `{code}` | {meaning} |");
    }
    for schema in SCHEMAS {
        let (name, command, says) = (schema.name, schema.command, schema.says);
        let _ = write!(text, "\n## {name}\n\n`{command}`: {says}\n\n");
        text += "| field | value | meaning |\n|---|---|---|\n";
        let _ = writeln!(text, "| `schema` | `\"{name}\"` | |");
        rows(&mut text, "", schema.fields);
    }
    text
}

fn rows(text: &mut String, path: &str, fields: &[Field]) {
    for field in fields {
        row(text, path, field, field.presence);
    }
}

fn row(text: &mut String, path: &str, field: &Field, presence: Presence) {
    let presence = match presence {
        Presence::Always => "",
        Presence::OrNull => " or `null`",
        Presence::Sometimes => ", may be missing",
    };
    let (name, words, says) = (field.name, field.is.words(), field.says);
    let _ = writeln!(text, "| `{path}{name}` | {words}{presence} | {says} |");
    let Some((dot, one, other)) = field.is.within() else {
        return;
    };
    let path = format!("{path}{name}{dot}");
    if other.is_empty() {
        return rows(text, &path, one);
    }
    // An object of one of two kinds: what only one has may be missing.
    for field in one {
        let twin = other.iter().find(|o| o.name == field.name);
        let presence = match twin.map(|o| o.presence) {
            None => Presence::Sometimes,
            Some(Presence::Always) => field.presence,
            Some(weaker) => weaker,
        };
        row(text, &path, field, presence);
    }
    for field in other.iter().filter(|f| one.iter().all(|o| o.name != f.name)) {
        row(text, &path, field, Presence::Sometimes);
    }
}
