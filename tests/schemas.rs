//! The JSON of the tool against its written schemas: `blob schemas --json` says what every line must be.
//!
//! Reads the words of JSON Schema that the tool writes and refuses any other. `Ran::json` checks each line that any test
//! reads.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::{blob, tool};

/// Every schema by its name.
fn schemas() -> &'static HashMap<String, Value> {
    static SCHEMAS: OnceLock<HashMap<String, Value>> = OnceLock::new();
    SCHEMAS.get_or_init(|| {
        let ran = std::process::Command::new(tool()).args(["schemas", "--json"]).output().expect("the tool runs");
        let text = String::from_utf8(ran.stdout).expect("schemas are UTF-8");
        let schema = |line: &str| {
            let schema: Value = serde_json::from_str(line).expect("a schema is JSON");
            let title = schema["title"].as_str().expect("a schema has a title");
            (title.to_owned(), schema)
        };
        text.lines().map(schema).collect()
    })
}

/// Fails where a line of the tool is not what its schema says.
pub(crate) fn check(line: &Value) {
    let name = line["schema"].as_str().unwrap_or_default();
    let schema = schemas().get(name).unwrap_or_else(|| panic!("no schema is called {name:?}: {line}"));
    if let Err(why) = fits(line, schema, "$") {
        panic!("{name}: {why} in {line}");
    }
}

/// Whether a value fits a schema; where and why not.
fn fits(value: &Value, schema: &Value, at: &str) -> Result<(), String> {
    for (word, says) in schema.as_object().expect("a schema is an object") {
        match word.as_str() {
            "$schema" | "title" | "description" => {}
            "const" if value == says => {}
            "enum" if says.as_array().is_some_and(|all| all.contains(value)) => {}
            "type" if is_of(value, says) => {}
            "required" => required(value, says, at)?,
            "properties" => properties(value, says, at)?,
            "additionalProperties" => additional(value, schema, says, at)?,
            "items" => {
                let items = value.as_array().into_iter().flatten();
                for (i, item) in items.enumerate() {
                    fits(item, says, &format!("{at}[{i}]"))?;
                }
            }
            "anyOf" => {
                let mut all = says.as_array().expect("a list of schemas").iter();
                if !all.any(|one| fits(value, one, at).is_ok()) {
                    return Err(format!("{at} is none of {says}"));
                }
            }
            "const" | "enum" | "type" => return Err(format!("{at} is {value}, not {says}")),
            other => panic!("the test knows no word {other:?} of a schema"),
        }
    }
    Ok(())
}

fn required(value: &Value, names: &Value, at: &str) -> Result<(), String> {
    for name in names.as_array().expect("a list of names") {
        let name = name.as_str().expect("a name");
        if value.get(name).is_none() {
            return Err(format!("{at}.{name} is missing"));
        }
    }
    Ok(())
}

fn properties(value: &Value, schemas: &Value, at: &str) -> Result<(), String> {
    for (name, schema) in schemas.as_object().expect("an object of schemas") {
        if let Some(field) = value.get(name) {
            fits(field, schema, &format!("{at}.{name}"))?;
        }
    }
    Ok(())
}

/// The fields that `properties` does not name: none may be there, or each must fit.
fn additional(value: &Value, schema: &Value, says: &Value, at: &str) -> Result<(), String> {
    for (name, field) in value.as_object().into_iter().flatten() {
        if schema["properties"].get(name).is_some() {
            continue;
        }
        match says {
            Value::Bool(false) => return Err(format!("{at}.{name} is not in the schema")),
            says => fits(field, says, &format!("{at}.{name}"))?,
        }
    }
    Ok(())
}

fn is_of(value: &Value, types: &Value) -> bool {
    let one = |name: &Value| match name.as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("null") => value.is_null(),
        other => panic!("the test knows no type {other:?}"),
    };
    match types.as_array() {
        Some(several) => several.iter().any(one),
        None => one(types),
    }
}

/// `docs/json.md` is what the tool prints; `BLOB_WRITE_DOCS=1` writes it anew.
#[test]
fn the_written_schemas_are_those_of_the_tool() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/json.md");
    let printed = blob(&["schemas"]).ok();
    if std::env::var_os("BLOB_WRITE_DOCS").is_some() {
        fs::write(&path, &printed.out).expect("docs/json.md can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == printed.out, "docs/json.md is stale: run with BLOB_WRITE_DOCS=1");
}

#[test]
fn a_line_that_is_not_of_its_schema_is_seen() {
    let good = blob(&["extract", "--json", "no/such.npy", "-o", "x.npy"]).json();
    let good = good.first().expect("a line for a file that is missing");
    let schema = &schemas()["blob.error/1"];
    assert_eq!(fits(good, schema, "$"), Ok(()));
    let spoiled = |spoil: fn(&mut Value)| {
        let mut line = good.clone();
        spoil(&mut line);
        fits(&line, schema, "$").expect_err("the line is spoiled")
    };
    let words = [
        spoiled(|l| l["error"]["reason"] = Value::Null),
        spoiled(|l| l["error"]["offset"] = "7".into()),
        spoiled(|l| l["new"] = 1.into()),
        spoiled(|l| drop(l.as_object_mut().unwrap().remove("file"))),
        spoiled(|l| l["schema"] = "blob.error/2".into()),
    ];
    assert!(words[0].contains("$.error.reason is null"), "{words:?}");
    assert!(words[1].contains("$.error.offset is none of"), "{words:?}");
    assert!(words[2].contains("$.new is not in the schema"), "{words:?}");
    assert!(words[3].contains("$.file is missing"), "{words:?}");
    assert!(words[4].contains("blob.error/2"), "{words:?}");
}
