//! The documented schemas of the tool's JSON are up to date. `Ran::json` checks each line that a test reads against
//! them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::blob;
use crate::support::schemas::{fits, schemas};

/// `docs/json.md` is the tool's own text; `BLOB_WRITE_DOCS=1` rewrites it.
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
