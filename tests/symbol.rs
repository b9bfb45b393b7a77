//! MXNet's symbol files of every version: the variables that MXNet itself finds; checks of parameters; hostile files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use blob_core::DType;
use blob_io::mxnet::Symbol;
use serde_json::Value;

use crate::support::alloc::peak;
use crate::support::{blob, compare_cases, data, files, real, report};

/// Shapes by name.
fn shapes(truth: &Value) -> BTreeMap<String, Vec<usize>> {
    serde_json::from_value(truth.clone()).expect("names to shapes")
}

#[test]
fn the_variables_are_those_that_mxnet_finds() {
    let truth: Value = serde_json::from_slice(&fs::read(data("mxnet/symbol/truth.json")).expect("read")).expect("JSON");
    for (net, truth) in truth.as_object().expect("nets") {
        let symbol = Symbol::open(data(&format!("mxnet/symbol/{net}.json"))).unwrap_or_else(|e| panic!("{e}"));
        let inputs: BTreeSet<&str> =
            truth["inputs"].as_array().expect("names").iter().flat_map(Value::as_str).collect();
        for (kind, is_auxiliary) in [("arguments", false), ("auxiliary", true)] {
            let expected = shapes(&truth[kind]);
            let found: Vec<_> = symbol.variables.iter().filter(|v| v.is_auxiliary == is_auxiliary).collect();
            assert!(found.iter().map(|v| &*v.name).collect::<BTreeSet<_>>().into_iter().eq(expected.keys()), "{net}");
            assert_eq!(found.len(), expected.len());
            for variable in found {
                let dims = &expected[&*variable.name];
                let said = variable.dims.as_deref().unwrap_or(&[]);
                let fits = said.iter().zip(dims).all(|(said, dim)| said.is_none_or(|said| said == *dim));
                assert!(variable.dims.is_none() || said.len() == dims.len() && fits, "{net}: {variable:?}, {dims:?}");
                // `scale` is an operand like data, and has no name of a learnt parameter.
                let is_other = inputs.contains(&*variable.name) || &*variable.name == "scale";
                assert_eq!(variable.is_parameter, !is_other, "{net}: {variable:?}");
            }
        }
    }
    report(&format!("symbol: {} nets as MXNet 1.9.1 finds them", truth.as_object().map_or(0, |nets| nets.len())));
}

#[test]
fn attributes_say_what_does_not_depend_on_the_input() {
    for net in ["block", "block-0.9", "block-0.8"] {
        let symbol = Symbol::open(data(&format!("mxnet/symbol/{net}.json"))).expect("opens");
        let dims = |name: &str| {
            let variable = symbol.variables.iter().find(|v| &*v.name == name).unwrap_or_else(|| panic!("{name}"));
            variable.dims.as_deref().map(<[_]>::to_vec)
        };
        assert_eq!(dims("conv_weight"), Some(vec![Some(8), None, Some(3), Some(5)]), "{net}");
        assert_eq!(dims("conv_bias"), Some(vec![Some(8)]));
        assert_eq!(dims("up_weight"), Some(vec![None, Some(3), Some(2), Some(2)]));
        assert_eq!(dims("up_bias"), Some(vec![Some(6)]));
        assert_eq!(dims("fc_weight"), Some(vec![Some(10), None]));
        assert_eq!(dims("bn_moving_var"), Some(vec![None]));
        assert_eq!(dims("data"), None);
    }
    let symbol = Symbol::open(data("mxnet/symbol/declared.json")).expect("opens");
    let w = &symbol.variables[1];
    assert_eq!((w.dims.as_deref(), w.dtype), (Some(&[Some(4), None][..]), Some(DType::F16)));
}

#[test]
fn parameters_are_those_of_their_symbol() {
    let mut pairs = Vec::new();
    let folders = [Some(data("mxnet/golden/mxnet-1.9.1/checkpoints")), real("mxnet/real")];
    for folder in folders.into_iter().flatten() {
        for symbol in files(&folder, |name| name.ends_with("-symbol.json")) {
            let stem = symbol.to_str().expect("text").strip_suffix("-symbol.json").expect("its end").to_owned();
            let found = ["0000", "0001", "0007"]
                .map(|number| format!("{stem}-{number}.params"))
                .into_iter()
                .find(|path| fs::exists(path).unwrap());
            pairs.push((found.expect("parameters"), symbol));
        }
    }
    assert!(pairs.len() >= 3);
    for (params, symbol) in &pairs {
        let verify = blob(&["verify", "--json", params, "--symbol", symbol.to_str().expect("text")]);
        let line = &verify.json()[0];
        assert_eq!(
            (verify.code, &line["finding_count"], &line["note_count"]),
            (Some(0), &0.into(), &1.into()),
            "{verify:?}"
        );
        let inputs = [r#""data""#, r#""data", "softmax_label""#];
        let note = line["notes"][0].as_str().expect("a note");
        assert!(
            inputs.iter().any(|names| note == format!("taken for inputs, as they have no array: {names}")),
            "{note}"
        );
        let held = format!("{} variables as in ", line["tensors"]);
        assert!(line["held"].to_string().contains(&held), "{line}");
    }
    report(&format!("symbol: {} nets' parameters checked", pairs.len()));
}

#[test]
fn a_symbol_of_any_prefix_or_changed_byte_is_an_answer() {
    for net in ["words", "declared", "block-0.8"] {
        let bytes = fs::read(data(&format!("mxnet/symbol/{net}.json"))).expect("readable");
        let whole = bytes.trim_ascii_end().len();
        for len in 0..whole {
            assert!(Symbol::from_bytes("x", &bytes[..len]).is_err(), "{net}: {len}");
        }
        for at in 0..whole {
            let mut changed = bytes.clone();
            for byte in [0, b'"', b'{', b']', b',', b'9', b'-', b'\\', 0xFF] {
                changed[at] = byte;
                let _ = Symbol::from_bytes("x", &changed);
            }
        }
    }
}

#[test]
fn a_hostile_symbol_is_refused_or_small() {
    let error = |text: &str| Symbol::from_bytes("x.json", text.as_bytes()).expect_err("it is refused").to_string();
    let deep = format!("{{\"x\":{}", "[".repeat(100_000));
    assert!(error(&deep).contains("a deeper one"), "{}", error(&deep));
    compare_cases("cases/symbol.txt", error);
    let many = format!(
        "{{\"nodes\":[{}{{\"op\":\"null\",\"name\":\"\"}}]}}",
        "{\"op\":\"null\",\"name\":\"\"},".repeat(1_000_000)
    );
    let used = peak(|| assert_eq!(Symbol::from_bytes("x", many.as_bytes()).expect("reads").variables.len(), 1_000_001));
    assert!(used < many.len() as u64 + (256 << 20), "{used}");
    let many = many.replace("null", "Plus");
    let used = peak(|| assert!(error(&many).contains("the number of layers: expected at most 65536, found 65537")));
    assert!(used < many.len() as u64 + (64 << 20), "{used}");
}
