//! bf16 that an npz or a folder stores as the bits of u16 is bf16 for every command.

use blob_core::{AnyBlob, DType, Shape};
use blob_io::{Checkpoint, Format, IfExists, Writer};
use half::bf16;
use serde_json::Value;

use crate::support::{Folder, Ran, blob};

/// 3.5 as bf16 is the integer 16480, which no statistic of the values is.
const VALUES: [f32; 6] = [3.5, -2.0, 0.25, 1.0e30, 0.0, 7.0];

/// A safetensors file with six values of bf16 called `w`, and integers of u16 with the same bits called `n`.
fn source(folder: &Folder, name: &str, values: &[f32; 6]) -> String {
    let bits: Vec<u8> = values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect();
    let blob = |dtype| AnyBlob::from_vec(Shape::new([2, 3]).expect("a shape"), dtype, bits.clone()).expect("a blob");
    let (w, n) = (blob(DType::BF16), blob(DType::U16));
    let path = folder.file(name);
    let writer = Writer::new(Format::Safetensors).tensor("w", &w).tensor("n", &n);
    writer.write(&path, IfExists::Refuse).expect("written");
    path
}

/// The same tensors as an npz, a folder, and an npz that `merge` wrote.
fn kept(folder: &Folder, source: &str) -> [String; 3] {
    let all = [folder.file("x.npz"), folder.file("folder/"), folder.file("merged.npz")];
    for out in &all[..2] {
        blob(&["convert", source, "-o", out, "--force"]).ok();
    }
    let [w, n] = ["w", "n"].map(|name| folder.file(&format!("only-{name}.safetensors")));
    let file = Checkpoint::open(source).expect("opens");
    for (name, path) in [("w", &w), ("n", &n)] {
        let tensor = file.tensor(file.entry(name).expect("there")).expect("a tensor");
        Writer::new(Format::Safetensors).tensor(name, &tensor).write(path, IfExists::Replace).expect("written");
    }
    blob(&["merge", &w, &n, "-o", &all[2], "--force"]).ok();
    all
}

/// The only line of JSON of a command.
fn json(args: &[&str]) -> Value {
    let ran: Ran = blob(args);
    ran.json().swap_remove(0)
}

#[test]
fn every_command_reads_bf16_where_a_receipt_says_so() {
    let folder = Folder::new();
    let source = source(&folder, "x.safetensors", &VALUES);
    let content = json(&["hash", "--content", "--json", &source]);
    for file in &kept(&folder, &source) {
        let listed = json(&["ls", "--json", file]);
        let dtypes: Vec<(&str, &str)> = listed["tensors"].as_array().expect("a list").iter().map(dtype_of).collect();
        assert!(dtypes.contains(&("w", "bf16")) && dtypes.contains(&("n", "u16")), "{file}: {dtypes:?}");
        assert_eq!(json(&["info", "--json", file])["dtypes"], serde_json::json!({"bf16": 1, "u16": 1}), "{file}");
        let stats = &json(&["stats", "--json", file, "w"]);
        let of = |name: &str| find(stats, name).unwrap_or_else(|| panic!("{name}: {stats}")).clone();
        assert_eq!((of("min"), of("dtype")), (serde_json::json!(-2.0), "bf16".into()), "{file}");
        assert!((of("max").as_f64().expect("a number") / 1.0e30 - 1.0).abs() < 0.01, "{file}");
        let shown = blob(&["show", file, "w"]).ok();
        assert!(shown.out.contains("bf16") && shown.out.contains("3.5") && !shown.out.contains("16480"), "{shown:?}");
        assert_eq!(json(&["hash", "--content", "--json", file])["digest"], content["digest"], "{file}");
        blob(&["diff", &source, file]).ok();
        let sources = ["only-w", "only-n"].map(|name| folder.file(&format!("{name}.safetensors")));
        let sources = if file.ends_with("merged.npz") { &sources[..] } else { std::slice::from_ref(&source) };
        let against = sources.iter().flat_map(|source| ["--against", source]);
        blob(&["verify", file].into_iter().chain(against).collect::<Vec<_>>()).ok();
        let page = folder.file("page.html");
        blob(&["report", file, "-o", &page, "--force"]).ok();
        let page = std::fs::read_to_string(page).expect("a page");
        assert!(page.contains("bf16") && !page.contains("16480"), "{file}");
        blob(&["plot", file, "w"]).ok().stdout_has("bf16");
        let back = folder.file("back.safetensors");
        blob(&["convert", file, "-o", &back, "--force", "--anew"]).ok();
        blob(&["diff", &source, &back]).ok();
    }
}

fn dtype_of(tensor: &Value) -> (&str, &str) {
    (tensor["name"].as_str().expect("a name"), tensor["dtype"].as_str().expect("a dtype"))
}

/// The first field of this name, at any depth.
fn find<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => {
            fields.get(name).filter(|field| !field.is_object()).or_else(|| fields.values().find_map(|v| find(v, name)))
        }
        Value::Array(items) => items.iter().find_map(|item| find(item, name)),
        _ => None,
    }
}

#[test]
fn a_nan_of_bf16_is_found_wherever_it_is_stored() {
    let folder = Folder::new();
    let mut values = VALUES;
    (values[1], values[4]) = (f32::NAN, f32::INFINITY);
    let source = source(&folder, "x.safetensors", &values);
    for file in [&source].into_iter().chain(&kept(&folder, &source)) {
        let ran = blob(&["verify", "--finite", file]).no();
        assert!(ran.out.contains("1 NaN and 1 Inf among 6 values, the first at [0,1]"), "{ran:?}");
    }
}

#[test]
fn bits_without_a_receipt_are_compared_as_bits() {
    let folder = Folder::new();
    let source = source(&folder, "x.safetensors", &VALUES);
    let bare = folder.file("bare.npz");
    blob(&["convert", &source, "-o", &bare, "--no-receipt"]).ok();
    let said = "\"w\" is bf16, kept as the bits of a u16; compared by bits";
    blob(&["verify", &bare, "--against", &source]).ok().stdout_has(said);
}

#[test]
fn extract_says_that_npy_has_no_bf16() {
    let folder = Folder::new();
    let source = source(&folder, "x.safetensors", &VALUES);
    for file in [&source, &kept(&folder, &source)[0]] {
        let npy = folder.file("w.npy");
        blob(&["extract", file, "w", "-o", &npy, "--force"]).ok().stderr_has("1 tensor of bf16 is stored as u16");
        let header = std::fs::read(&npy).expect("an npy file");
        assert!(String::from_utf8_lossy(&header[..100]).contains("'descr': '<u2'"));
        let integers = blob(&["extract", file, "n", "-o", &npy, "--force"]).ok();
        assert!(!integers.err.contains("bf16"), "{integers:?}");
        let csv = blob(&["extract", file, "w", "-o", "-", "--to", "csv"]).ok();
        assert!(csv.out.starts_with("3.5,"), "{csv:?}");
    }
}
