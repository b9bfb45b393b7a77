//! MXNet files: every golden array equals the writer's input, and every malformed file has the documented
//! outcome.
//!
//! The sidecars (`X.json`) come from the numpy arrays that were handed to MXNet, not from a parser.

use std::path::PathBuf;

use blob_io::{Bytes, Checkpoint, Entry, Format, Kind};
use serde_json::Value;

use crate::support::neoml::dims;
use crate::support::{data, files, opened, real, report, rows, sha256};

/// The files with a sidecar of an MXNet record: (file, sidecar).
fn goldens() -> Vec<(PathBuf, Value)> {
    let mut found = Vec::new();
    for writer in ["0.9.5-2", "0.11.0", "1.0.0", "1.5.0", "1.6.0", "1.9.1", "2.0.0beta1"] {
        for folder in [format!("mxnet-{writer}"), format!("mxnet-{writer}/checkpoints")] {
            let folder = data("mxnet/golden").join(folder);
            if !folder.is_dir() {
                continue;
            }
            for json in files(&folder, |name| name.ends_with(".json") && !name.ends_with("-symbol.json")) {
                let sidecar: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
                // A null version is a zip of npy files.
                if !sidecar["record_version"].is_null() {
                    found.push((json.with_extension(""), sidecar));
                }
            }
        }
    }
    found
}

/// Our name of a dtype, from NumPy's.
pub(crate) fn dtype(value: &Value) -> String {
    let name = value.as_str().unwrap();
    let short = [("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i")];
    match short.iter().find(|(long, _)| name.starts_with(long)) {
        Some((long, short)) => name.replacen(long, short, 1),
        None => name.to_owned(),
    }
}

/// Compares one stored array with the description in the sidecar, also after `load`.
fn check(file: &Checkpoint, entry: &Entry, kind: Kind, shape: &Value, truth: &Value) {
    let at = format!("{}: {:?}", file.name(), entry.name());
    assert_eq!(entry.kind(), kind, "{at}");
    assert!(entry.fault().is_none(), "{at}");
    assert_eq!(entry.shape().dims(), dims(shape), "{at}");
    assert_eq!(entry.dtype().unwrap().name(), dtype(&truth["dtype"]), "{at}");
    assert_eq!(entry.byte_len(), truth["nbytes"].as_u64().unwrap(), "{at}");
    let view = file.view(entry).unwrap();
    assert_eq!(sha256(&view), truth["sha256"].as_str().unwrap(), "{at}");
    let blob = file.load(entry).unwrap();
    assert_eq!((blob.shape(), blob.dtype()), (entry.shape(), entry.dtype().unwrap()), "{at}");
    if cfg!(target_endian = "little") {
        assert!(*blob.data().bytes().unwrap() == *view, "{at}");
    }
}

/// Compares one array of a sidecar with the entries. Returns the number of entries.
fn array(file: &Checkpoint, entries: &[Entry], position: usize, truth: &Value) -> usize {
    let name = truth["name"].as_str().map_or(format!("@{position}"), str::to_owned);
    assert_eq!(entries[0].position(), position);
    if truth["none"] == true {
        assert_eq!((entries[0].name(), entries[0].kind()), (&*name, Kind::None));
        assert!(file.load(&entries[0]).is_err());
        return 1;
    }
    let Some(aux) = truth["aux"].as_array() else {
        assert_eq!(entries[0].name(), name);
        check(file, &entries[0], Kind::Data, &truth["shape"], truth);
        return 1;
    };
    assert_eq!(entries[0].name(), format!("{name}#values"));
    check(file, &entries[0], Kind::Values, &truth["storage_shape"], truth);
    for (entry, truth) in entries[1..].iter().zip(aux) {
        let part = truth["name"].as_str().unwrap();
        let kind = if part == "indptr" { Kind::Indptr } else { Kind::Indices };
        assert_eq!(entry.name(), format!("{name}#{part}"));
        check(file, entry, kind, &truth["shape"], truth);
    }
    let parts = 1 + aux.len();
    for entry in &entries[..parts] {
        let sparse = entry.sparse().unwrap();
        assert_eq!((&*sparse.name, sparse.kind.name()), (&*name, truth["stype"].as_str().unwrap()));
        assert_eq!(sparse.shape.dims(), dims(&truth["shape"]));
        if let Some(dense) = truth["dense_sha256"].as_str() {
            let blob = file.load_dense(entry).unwrap();
            assert_eq!(blob.shape(), &sparse.shape);
            assert_eq!(sha256(&blob.data().bytes().unwrap()), dense, "{}: {name}", file.name());
        }
    }
    parts
}

#[test]
fn every_golden_array_equals_what_its_writer_was_given() {
    let (mut arrays, mut sparse, mut dense) = (0, 0, 0);
    let goldens = goldens();
    for (path, sidecar) in &goldens {
        let file = opened(path);
        let at = path.display();
        let bare = path.ends_with("raw_record.bin");
        assert_eq!(file.format(), if bare { Format::MxnetRecord } else { Format::MxnetList }, "{at}");
        assert_eq!(file.file_len(), sidecar["bytes"].as_u64().unwrap(), "{at}");
        let truth = sidecar["arrays"].as_array().unwrap();
        assert_eq!(file.positions(), truth.len(), "{at}");
        let noun = if bare { "record" } else { "records" };
        let dialect = match sidecar["record_version"].as_u64().unwrap() {
            _ if truth.is_empty() => format!("no {noun}"),
            3 => format!("V3 {noun} (np-shape)"),
            version => format!("V{version} {noun}"),
        };
        assert_eq!(file.dialect(), dialect, "{at}");
        assert_eq!(file.warnings(), [], "{at}");
        let mut next = 0;
        for (position, truth) in truth.iter().enumerate() {
            next += array(&file, &file.entries()[next..], position, truth);
            arrays += 1;
            sparse += usize::from(truth["aux"].is_array());
            dense += usize::from(truth["dense_sha256"].is_string());
        }
        assert_eq!(next, file.entries().len(), "{at}");
    }
    report(&format!("mxnet: {} files, {arrays} arrays, {sparse} of them sparse ({dense} made dense)", goldens.len()));
    assert!(goldens.len() > 200 && dense > 0, "the golden files are missing");
}

#[test]
fn opening_reads_headers_only() {
    let path = data("mxnet/golden/mxnet-1.9.1/checkpoints/mobilenet0_25-0000.params");
    let file = Checkpoint::open(path).unwrap();
    assert!(file.bytes_read() < file.file_len() / 4, "{} bytes", file.bytes_read());
}

#[test]
fn oddities_are_told_and_devices_are_not_obeyed() {
    let golden = |name: &str| Checkpoint::open(data("mxnet/golden").join(name)).unwrap();
    let warnings = |file: &Checkpoint| -> Vec<String> {
        file.entries().iter().flat_map(Entry::warnings).map(|w| w.text.to_string()).collect()
    };
    let stale = warnings(&golden("mxnet-1.9.1/sparse_stale_storage_shape.nd"));
    assert_eq!(stale.len(), 1);
    assert!(stale[0].contains("stale"));
    let scalar = warnings(&golden("mxnet-1.9.1/scalar_legacy_broken.nd"));
    assert!(scalar[0].contains("recovered"));
    assert_eq!(golden("mxnet-1.9.1/ctx_cpu3.nd").metadata(), []);
    let shared = golden("mxnet-1.9.1/ctx_cpu_shared.nd");
    assert_eq!(shared.metadata(), [("context".to_owned(), "cpu_shared(0)".to_owned())]);
}

/// Every truncated list is an error, with the same reason wherever the cut is.
#[test]
fn a_list_cut_anywhere_is_an_error_with_its_place() {
    for name in ["ok_sparse.nd", "ok_v0.nd", "ok_v1.nd", "ok_v3.nd"] {
        let bytes = std::fs::read(data("mxnet/malformed").join(name)).unwrap();
        for cut in 1..bytes.len() {
            let source = Bytes(bytes[..cut].to_vec());
            let error = Checkpoint::from_source("cut.nd", Box::new(source)).unwrap_err();
            let offset = error.offset().unwrap_or_else(|| panic!("{name} cut at {cut}: {error}"));
            assert!(offset <= cut as u64, "{name} cut at {cut}: {error}");
        }
    }
}

#[test]
fn real_files_are_what_their_manifest_says() {
    let Some(folder) = real("mxnet/real") else {
        report("NOT TESTED: real MXNet files (set BLOB_REAL_DATA)");
        return;
    };
    let mut read = 0;
    for row in rows(&folder.join("MANIFEST.tsv")).iter().skip(1) {
        let path = folder.join(&row[0]);
        if row[7] == "-" {
            // Raw floats without any header.
            assert!(Checkpoint::open(&path).is_err(), "{}", row[0]);
            continue;
        }
        let file = Checkpoint::open(&path).unwrap_or_else(|e| panic!("{e}"));
        real_file(&file, row);
        read += 1;
    }
    report(&format!("mxnet: {read} real files"));
}

/// Compares a real file with the table's row: name, size, …, versions, dtypes, count, notes.
fn real_file(file: &Checkpoint, row: &[String]) {
    let [name, bytes, .., versions, dtypes, count, notes] = row else { panic!("{row:?}") };
    assert_eq!(file.file_len().to_string(), *bytes, "{name}");
    assert_eq!(file.dialect(), format!("{versions} records"), "{name}");
    assert_eq!(file.positions().to_string(), *count, "{name}");
    assert_eq!(file.warnings(), [], "{name}");
    assert_eq!(file.metadata(), [], "{name}");
    let arrays = || file.entries().iter().filter(|e| matches!(e.kind(), Kind::Data | Kind::Values));
    let floats = arrays().filter(|e| e.dtype() == Some(blob_core::DType::F32)).count();
    assert_eq!(format!("float32x{floats}"), *dtypes, "{name}");
    let sparse = arrays().any(|e| e.sparse().is_some());
    assert_eq!(sparse, notes.contains("row_sparse"), "{name}");
    for entry in file.entries() {
        let (prefix, promised) = match entry.name() {
            key if key.starts_with('@') => ("@", notes.contains("keys=unnamed")),
            key if key.starts_with("aux:") => ("aux:", notes.contains(",aux:")),
            key if key.starts_with("arg:") => ("arg:", notes.contains("keys=arg:")),
            _ => ("", notes.contains("keys=plain")),
        };
        assert!(promised, "{name}: {prefix:?}");
        file.load(entry).unwrap_or_else(|e| panic!("{e}"));
        if entry.sparse().is_some() {
            file.load_dense(entry).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

/// The same mean image was published twice: as an array, and as the bytes alone.
#[test]
fn a_real_array_equals_its_raw_copy() {
    let Some(folder) = real("mxnet/real") else {
        report("NOT TESTED: real MXNet files (set BLOB_REAL_DATA)");
        return;
    };
    let mean = "dmlc__web-data__mxnet__example__feature_extract__mean_224.nd";
    let file = Checkpoint::open(folder.join(mean)).unwrap();
    let view = file.view(&file.entries()[0]).unwrap();
    let raw = "pppoe__WhatsThis-iOS__WhatIsThis__Inception__mean_224.bin";
    assert!(*view == std::fs::read(folder.join(raw)).unwrap());
}

/// For each file, `OUTCOMES.tsv` has an error with the offset, or the reason of the acceptance. What the real MXNet
/// does with these files (it crashes, hangs, or takes gigabytes) is documented beside their originals, in
/// RESULTS-*.tsv.
#[test]
fn every_malformed_file_has_its_stated_outcome() {
    let folder = data("mxnet/malformed");
    let found = files(&folder, |name| name.ends_with(".nd"));
    let names: Vec<_> = found.iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    let outcomes = rows(&folder.join("OUTCOMES.tsv"));
    let stated: Vec<_> = outcomes.iter().map(|row| row[0].clone()).collect();
    assert_eq!(names, stated, "the table has a line for each file, in order");
    for (path, outcome) in found.iter().zip(&outcomes) {
        let [name, outcome, offset, text, told] = &outcome[..] else { panic!("{outcome:?}") };
        match (Checkpoint::open(path), &**outcome) {
            (Err(e), "error" | "other") => stated_error(name, &e, offset.parse().ok(), text),
            (Ok(file), "listing") => {
                let lines: Vec<_> = file.entries().iter().map(listed).collect();
                assert_eq!(lines.join(", "), *text, "{name}");
                stated_oddity(name, &file, told);
                for entry in file.entries().iter().filter(|e| e.kind() != Kind::None) {
                    file.load(entry).unwrap_or_else(|e| panic!("{e}"));
                }
            }
            (Ok(file), "dense") => {
                for entry in file.entries() {
                    file.load(entry).unwrap_or_else(|e| panic!("{e}"));
                    stated_error(name, &file.load_dense(entry).unwrap_err(), offset.parse().ok(), text);
                }
            }
            (Ok(_), _) => panic!("{name} opens"),
            (Err(e), _) => panic!("{e}"),
        }
    }
    report(&format!("mxnet: {} malformed files", found.len()));
}

fn stated_error(name: &str, error: &blob_io::Error, offset: Option<u64>, text: &str) {
    let message = error.to_string();
    assert_eq!(error.offset(), offset, "{message}");
    assert!(message.contains(text), "{name}: {text:?} is not in {message:?}");
}

/// Asserts that a file has this one warning, or none.
fn stated_oddity(name: &str, file: &Checkpoint, told: &str) {
    let of_entries = file.entries().iter().flat_map(Entry::warnings).map(|w| w.to_string());
    let of_file = file.warnings().iter().map(ToString::to_string);
    let contexts = file.metadata().iter().map(|(_, value)| value.clone());
    let all: Vec<_> = of_file.chain(of_entries).chain(contexts).collect();
    match told {
        "" => assert!(all.is_empty(), "{name}: {all:?}"),
        told => assert!(all.iter().any(|line| line.contains(told)), "{name}: {all:?}"),
    }
}

fn listed(entry: &Entry) -> String {
    let dtype = entry.dtype().map_or("none", |d| d.name());
    format!("{} {dtype} {}", entry.name(), entry.shape())
}
