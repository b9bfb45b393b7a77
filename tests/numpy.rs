//! NumPy itself reads our files, as the README recommends; other zip tools do too, if available.
//!
//! `BLOB_PYTHON` names a Python with NumPy, which `cargo xtask ci` installs; otherwise `python3` is tried.

use std::process::Command;

use blob_io::Checkpoint;
use blob_io::layout::member_names;
use serde_json::{Value, json};

use crate::support::conversion::to_file;
use crate::support::tensors::Tensor;
use crate::support::{blob, by_python, data, files, report};

const SCRIPT: &str = include_str!("python/load.py");

fn by_numpy(paths: &[String]) -> Option<Vec<Value>> {
    let text = by_python(SCRIPT, &paths.iter().map(|path| &**path).collect::<Vec<_>>())?;
    Some(text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

/// The names and the bytes that NumPy must read.
fn expected(source: &Checkpoint) -> Value {
    let stored = source.entries().iter().filter(|e| e.dtype().is_some());
    let entries: Vec<_> = stored.collect();
    let names: Vec<&str> = entries.iter().map(|e| e.name()).collect();
    let pairs = member_names(&names).into_iter().zip(entries);
    let pairs = pairs.map(|(name, entry)| {
        let crc = crc32fast::hash(&source.view(entry).expect("views"));
        (name, json!([entry.shape().dims(), crc]))
    });
    pairs.collect::<serde_json::Map<_, _>>().into()
}

#[test]
fn the_recipe_for_mxnet_works_as_it_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let net = folder.path().join("net.npz");
    let net = net.to_str().expect("UTF-8").to_owned();
    let source = "mxnet/golden/mxnet-1.9.1/checkpoints/mobilenet0_25-0000.params";
    blob(&["convert", source, "-o", &net]).ok();
    let Some(found) = by_numpy(&[net]) else { return };
    let source = Checkpoint::open(data(source)).expect("opens");
    let names: Vec<&str> = source.entries().iter().map(|e| e.name()).collect();
    assert!(names.contains(&"arg:mobilenet0_25_conv0_weight"), "{names:?}");
    assert!(names.iter().all(|name| found[0].get(name).is_some()));
    assert_eq!(found, [expected(&source)]);
}

#[test]
fn numpy_reads_every_npz_that_we_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut paths, mut wanted) = (Vec::new(), Vec::new());
    for from in ["caffe/net", "caffe/misc", "mxnet/golden/mxnet-1.9.1"] {
        for path in files(&data(from), |name| !name.ends_with(".json")) {
            let Ok(source) = Checkpoint::open(&path) else {
                continue;
            };
            if source.entries().iter().any(|e| e.fault().is_some()) {
                continue;
            }
            let npz = folder.path().join(format!("{}.npz", paths.len()));
            let npz = npz.to_str().expect("UTF-8").to_owned();
            to_file(&source, &blob_convert::Options::new(blob_io::Format::Npz), &npz).expect("converts");
            wanted.push(expected(&source));
            paths.push(npz);
        }
    }
    let odd = [
        "arg:w", "conv1/0", "", "100%", "w:0", "a b", "größe", "../../x", "/x", "a\\b", "a\0b\n", "W", "w", "w.npy",
        "%2Fx",
    ];
    let tensors: Vec<Tensor> =
        odd.iter().zip(1..).map(|(name, i)| Tensor::new(name, blob_core::DType::U8, &[1], &[i])).collect();
    let receipt = [("blob.receipt".to_owned(), "{}".to_owned())];
    let odd = folder.path().join("odd.npz");
    let bytes = crate::support::tensors::written(blob_io::Format::Npz, &tensors, &receipt);
    std::fs::write(&odd, bytes).expect("writable");
    wanted.push(expected(&Checkpoint::open(&odd).expect("opens")));
    paths.push(odd.to_str().expect("UTF-8").to_owned());
    let Some(found) = by_numpy(&paths) else { return };
    assert!(found == wanted);
    assert!(paths.len() > 60, "{}", paths.len());
    report(&format!("numpy: {} npz files", paths.len()));
    // unzip reports an empty archive as an error.
    let full = paths.iter().zip(&wanted);
    for (path, _) in full.filter(|(_, wanted)| *wanted != &json!({})) {
        let Ok(unzip) = Command::new("unzip").args(["-t", path]).output() else {
            return report("NOT TESTED: npz files by unzip (not installed)");
        };
        let text = String::from_utf8_lossy(&unzip.stdout);
        assert!(unzip.status.success(), "{path}: {text}");
    }
}
