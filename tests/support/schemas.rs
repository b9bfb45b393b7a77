//! Whether a line of JSON is what its schema says: reads the words of JSON Schema that `blob schemas --json` prints,
//! and refuses any other.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde_json::Value;

use super::tool;

/// Every schema by its name.
pub(crate) fn schemas() -> &'static HashMap<String, Value> {
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
pub(crate) fn fits(value: &Value, schema: &Value, at: &str) -> Result<(), String> {
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
