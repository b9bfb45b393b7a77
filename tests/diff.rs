//! `blob diff`: its figures equal NumPy's; tensors with other names, shapes, dtypes; its output and exit codes.

use std::process::Command;

use blob_core::{AnyBlob, Blob, DType, Shape};
use blob_io::{Format, IfExists, Writer};
use serde_json::{Value, json};

use crate::support::python;
use crate::support::{blob, report};

const SCRIPT: &str = include_str!("python/diff.py");

fn real(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().expect("a number"),
        value => value.as_f64().expect("a number"),
    }
}

#[test]
fn the_figures_are_those_of_numpy() {
    const PAIRS: usize = 60;
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8");
    let run = Command::new(&python).args(["-c", SCRIPT, path, &PAIRS.to_string()]).output().expect("python runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let (mut compared, mut differ) = (0, 0);
    for line in String::from_utf8(run.stdout).expect("UTF-8").lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
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

/// A tensor of these values.
fn tensor(dims: &[usize], values: Vec<f32>) -> AnyBlob {
    let shape = Shape::new(dims).expect("fits");
    AnyBlob::from(Blob::from_vec(shape, values).expect("as many values"))
}

fn write(folder: &tempfile::TempDir, name: &str, tensors: &[(&str, &AnyBlob)]) -> String {
    let path = folder.path().join(name);
    let format = Format::from_extension(name.rsplit_once('.').expect("an extension").1).expect("a format");
    let writer = tensors.iter().fold(Writer::new(format), |writer, (name, tensor)| writer.tensor(*name, *tensor));
    writer.write(&path, IfExists::Refuse).expect("written");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn each_kind_of_change_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let count = |n: usize, from: f32| (0..n).map(|i| from + i as f32).collect::<Vec<_>>();
    let (same, moved) = (tensor(&[2, 3], count(6, 0.0)), tensor(&[5], count(5, 100.0)));
    let (gone, new) = (tensor(&[4], count(4, 7.0)), tensor(&[4], count(4, 8.0)));
    let (flat, legacy) = (tensor(&[20], count(20, 0.0)), tensor(&[1, 1, 1, 20], count(20, 0.0)));
    let other = tensor(&[3, 2], count(6, 0.0));
    let mut values = count(6, 0.0);
    values[4] += 0.25;
    let edited = tensor(&[2, 3], values);
    let wide = AnyBlob::from_vec(
        Shape::new([5]).expect("fits"),
        DType::F64,
        count(5, 100.0).iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect(),
    );
    let wide = wide.expect("as many bytes");
    let a = [
        ("same", &same),
        ("old", &moved),
        ("gone", &gone),
        ("flat", &flat),
        ("shape", &same),
        ("edited", &same),
        ("wide", &moved),
    ];
    let b = [
        ("same", &same),
        ("now", &moved),
        ("new", &new),
        ("flat", &legacy),
        ("shape", &other),
        ("edited", &edited),
        ("wide", &wide),
    ];
    let (a, b) = (write(&folder, "a.params", &a), write(&folder, "b.safetensors", &b));
    let ran = blob(&["diff", &a, &b]).no();
    let lines: Vec<Vec<&str>> = ran.out.lines().map(|line| line.split('\t').collect()).collect();
    let shown: Vec<(&str, &str, &str)> = lines.iter().map(|l| (l[0], l[1], l[2])).collect();
    let expected = [
        ("~", "shape", "-"),
        ("~", "edited", "-"),
        ("~", "wide", "-"),
        (">", "old", "now"),
        ("-", "gone", "-"),
        ("+", "new", "-"),
    ];
    assert_eq!(shown, expected, "{ran:?}");
    assert_eq!(
        lines[1][3..],
        ["1", "6", "2.5e-1", "5.8823529411764705e-2", &format!("{:e}", (0.0625f64 / 6.0).sqrt())]
    );
    let table = blob(&["diff", &a, &b, "--table", "--wide", "--ascii"]);
    assert!(table.out.contains("[1,1] 4.000 -> 4.250"), "{}", table.out);
    assert!(table.out.ends_with("3 changed, 1 added, 1 removed, 3 equal (1 renamed)\n"), "{}", table.out);
    // A tolerance also accepts another dtype; --exact does not even accept ones in a shape.
    let changed = |flags: &[&str]| {
        let ran = blob(&[&["diff", &a, &b, "--json"], flags].concat());
        let rows = ran.json()[0]["tensors"].as_array().expect("a list").clone();
        let names = rows
            .iter()
            .filter(|row| !["renamed", "added", "removed"].contains(&row["change"].as_str().expect("a word")));
        names.map(|row| (row["name"].clone(), row["change"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(changed(&["--atol", "0.25"]), [(json!("shape"), json!("shape"))]);
    assert_eq!(changed(&["--ulp", "0"]), [(json!("shape"), json!("shape")), (json!("edited"), json!("values"))]);
    let exact: Vec<Value> = changed(&["--exact"]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(exact, ["flat", "shape", "edited", "wide"]);
}

#[test]
fn a_renamed_tensor_has_its_shape_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let count: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let (wide, high) = (tensor(&[2, 6], count.clone()), tensor(&[3, 4], count.clone()));
    let other = tensor(&[3, 4], vec![1.0; 12]);
    let a = write(&folder, "a.safetensors", &[("other", &other), ("wide", &wide)]);
    let b = write(&folder, "b.safetensors", &[("high", &high)]);
    let ran = blob(&["diff", &a, &b, "--json"]);
    let counts = ["renamed", "removed", "added"].map(|key| ran.json()[0][key].as_u64());
    assert_eq!(counts, [Some(0), Some(2), Some(1)], "{ran:?}");
    assert_eq!(blob(&["diff", "-", "-"]).code, Some(2));
}
