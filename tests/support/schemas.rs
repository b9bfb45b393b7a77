//! Validates a line of JSON against its schema. Supports the keywords of JSON Schema that `blob schemas --json` prints,
//! and panics on any other.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde_json::Value;

use super::tool;

/// All schemas of the tool by name.
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

/// Panics if a line of the tool's JSON does not match its schema.
pub(crate) fn check(line: &Value) {
    let name = line["schema"].as_str().unwrap_or_default();
    let schema = schemas().get(name).unwrap_or_else(|| panic!("no schema is called {name:?}: {line}"));
    if let Err(why) = fits(line, schema, "$") {
        panic!("{name}: {why} in {line}");
    }
}

/// Checks a value against a schema. The error has the path of the value and the reason.
pub(crate) fn fits(value: &Value, schema: &Value, at: &str) -> Result<(), String> {
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        match keyword.as_str() {
            "$schema" | "title" | "description" => {}
            "const" if value == rule => {}
            "enum" if rule.as_array().is_some_and(|all| all.contains(value)) => {}
            "type" if is_of(value, rule) => {}
            "required" => required(value, rule, at)?,
            "properties" => {
                properties(value, rule, at)?;
                if schema.get("additionalProperties").is_none() {
                    undeclared(value, rule, at)?;
                }
            }
            "additionalProperties" => additional(value, schema, rule, at)?,
            "items" => {
                let items = value.as_array().into_iter().flatten();
                for (i, item) in items.enumerate() {
                    fits(item, rule, &format!("{at}[{i}]"))?;
                }
            }
            "anyOf" => {
                let mut all = rule.as_array().expect("a list of schemas").iter();
                if !all.any(|one| fits(value, one, at).is_ok()) {
                    return Err(format!("{at} is none of {rule}"));
                }
            }
            "const" | "enum" | "type" => return Err(format!("{at} is {value}, not {rule}")),
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

/// Refuses fields that the schema does not declare. JSON Schema allows them, as a later version may add some; the tool
/// itself declares all that it prints.
fn undeclared(value: &Value, declared: &Value, at: &str) -> Result<(), String> {
    let mut names = value.as_object().into_iter().flat_map(|object| object.keys());
    names
        .find(|name| declared.get(name.as_str()).is_none())
        .map_or(Ok(()), |name| Err(format!("{at}.{name} is not in the schema")))
}

/// Checks each field that `properties` does not name against the schema for others.
fn additional(value: &Value, schema: &Value, rule: &Value, at: &str) -> Result<(), String> {
    for (name, field) in value.as_object().into_iter().flatten() {
        if schema["properties"].get(name).is_some() {
            continue;
        }
        fits(field, rule, &format!("{at}.{name}"))?;
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
