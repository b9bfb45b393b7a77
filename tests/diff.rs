//! `blob diff`: the figures equal NumPy's. Output and exit codes are in `sessions/drawing.txt`.

use blob_convert::Silent;
use blob_convert::diff::{Tolerance, diff};
use blob_io::Error;
use serde_json::Value;

use crate::support::archive::safetensors;
use crate::support::{blob, by_python, open, report};

const SCRIPT: &str = include_str!("python/diff.py");

fn real(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().expect("a number"),
        value => value.as_f64().expect("a number"),
    }
}

/// `--ulp 0` of two dtypes: one number once both are rounded to the coarser dtype, as NumPy rounds.
fn rounded_alike(path: &str, expected: &Value) {
    let ran = blob(&[
        "diff",
        &format!("{path}/specials-a.npz"),
        &format!("{path}/specials-b.npz"),
        "--json",
        "--all",
        "--ulp",
        "0",
    ]);
    let rows = &ran.json()[0]["tensors"];
    let rows = rows.as_array().expect("a list");
    assert_eq!(rows.len(), 9, "{ran:?}");
    for row in rows {
        let name = row["name"].as_str().expect("a name");
        assert_eq!(row["changed"], expected[name], "{name}: {row}");
    }
}

#[test]
fn the_figures_are_those_of_numpy() {
    const PAIRS: usize = 60;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    let Some(lines) = by_python(SCRIPT, &[path, &PAIRS.to_string()]) else { return };
    let (mut compared, mut differ) = (0, 0);
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        if line[0] == "specials" {
            rounded_alike(path, &line[1]);
            continue;
        }
        let (seed, rtol, atol) = (&line[0], line[1].to_string(), line[2].to_string());
        let (a, b) = (format!("{path}/{seed}a.npz"), format!("{path}/{seed}b.npz"));
        let ran = blob(&["diff", &a, &b, "--json", "--all", "--rtol", &rtol, "--atol", &atol]);
        let found = &ran.json()[0];
        let expected = line[3].as_object().expect("an object");
        let changed = expected.values().filter(|one| one[0] != 0).count();
        assert_eq!(
            (found["changed"].as_u64(), ran.code),
            (Some(changed as u64), Some(i32::from(changed > 0))),
            "{ran:?}"
        );
        for row in found["tensors"].as_array().expect("a list") {
            let name = row["name"].as_str().expect("a name");
            let wanted = &expected[name];
            assert_eq!(row["changed"], wanted[0], "{seed}: {row} {wanted}");
            for (key, wanted) in [("max_abs", &wanted[1]), ("max_rel", &wanted[2]), ("rms", &wanted[3])] {
                let (ours, theirs) = (real(&row[key]), real(wanted));
                let near = ours == theirs || (ours - theirs).abs() <= 1e-12 * theirs.abs();
                assert!(near, "{seed}: {name} {key}: {ours}, NumPy {theirs}");
            }
            (compared, differ) = (compared + 1, differ + usize::from(wanted[0] != 0));
        }
    }
    assert!(compared == PAIRS * 6 && differ > 50, "{compared}, {differ}");
    report(&format!("diff: {compared} arrays as numpy.isclose has them, {differ} of them different"));
}

/// Under `--exact` shapes must be the same, also those of a tensor that has another name.
#[test]
fn a_tensor_of_another_name_and_shape_is_renamed_unless_shapes_count() {
    for (shapes, tolerance, expected) in [
        (["[1,1,1,4]", "[4]"], Tolerance::NONE, (1, 0, 0)),
        (["[1,1,1,4]", "[4]"], Tolerance::Exact, (0, 1, 1)),
        (["[4]", "[4] "], Tolerance::Exact, (1, 0, 0)),
    ] {
        let [ours, theirs] = shapes.map(|shape| {
            let header = format!(r#"{{"{shape}":{{"dtype":"F32","shape":{shape},"data_offsets":[0,16]}},"#);
            let other = r#""same":{"dtype":"U8","shape":[1],"data_offsets":[16,17]}}"#;
            open("x.safetensors", &safetensors(&(header + other), &[7; 17])).expect("opens")
        });
        let tally = diff(&ours, &theirs, tolerance, &Silent, &mut |_| {}, &mut |_| Ok::<(), Error>(())).expect("read");
        assert_eq!((tally.renamed, tally.removed, tally.added), expected, "{shapes:?} {tolerance:?}");
    }
}
