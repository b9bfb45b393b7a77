//! Converts every small golden file to every written format. The result opens as that format, passes `verify` against
//! its source, has the same digest exactly if the tensors are the same, and differs only where the plan warns. A
//! conversion that is refused leaves no file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use blob_convert::digest::{self as digests, Algorithm, Subject};
use blob_convert::verify::{self, Remark};
use blob_convert::{Options, Place, Silent, plan};
use blob_io::mxnet::Version;
use blob_io::{Checkpoint, Format, IfExists, OpenOptions};

use crate::changes::check_said;
use crate::support::{Folder, data, report};

/// Larger files would add time, but no other forms.
const LARGEST: u64 = 32 << 10;

fn goldens(folder: &Path, found: &mut Vec<PathBuf>) {
    let listing = std::fs::read_dir(folder).expect("a folder");
    let mut paths: Vec<PathBuf> = listing.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            goldens(&path, found);
        } else if path.metadata().expect("a file").len() <= LARGEST {
            found.push(path);
        }
    }
}

/// The file that a conversion writes; `None` if the format cannot hold the tensors, and then no file is left.
fn converted(source: &Checkpoint, to: Format, options: &Options, folder: &Folder) -> Option<Checkpoint> {
    let path = folder.path().join("out").with_extension(to.extensions().first().unwrap_or(&"bin"));
    let what = format!("{} to {to}", source.name());
    let target = Place::File { path: &path, if_exists: IfExists::Refuse };
    let done = plan(source, options, &target).and_then(|plan| {
        let summary = plan.run(&Silent)?;
        let is_told = plan.notes().iter().any(|note| note.contains("does not show its format"));
        assert_eq!(summary.is_recognised, !is_told, "{what}");
        Ok(plan.changes())
    });
    if let Err(error) = &done {
        let said = error.to_string();
        assert!(said.len() > 20 && !said.contains("not what was planned"), "{what}: {said}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "{what}: {said}");
        // Only records of MXNet's newest version can hold scalars.
        let is_scalar = to == Format::MxnetList && said.contains("has no axes");
        return is_scalar
            .then(|| converted(source, to, &options.clone().with(|o| o.params_version = Some(Version::V3)), folder))
            .flatten();
    }
    let written = OpenOptions::new().from(to).open(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
    if !options.dense {
        check_said(source, &written, &done.unwrap_or_default());
    }
    let equal = verify::against(&written, source, &Silent, &mut |remark| {
        assert!(matches!(remark, Remark::Note(_)), "{what}: {remark:?}");
    });
    assert!(equal.as_ref().is_ok_and(|equal| equal.equal >= dense(source)), "{what}: {equal:?}");
    std::fs::remove_file(&path).expect("removable");
    Some(written)
}

/// The number of arrays, where a sparse array counts once.
fn dense(source: &Checkpoint) -> u64 {
    let arrays = source.entries().iter().filter(|entry| {
        entry.dtype().is_some() && !matches!(entry.kind(), blob_io::Kind::Indices | blob_io::Kind::Indptr)
    });
    arrays.count() as u64
}

/// The properties on which the digest depends, with a CRC in place of the bytes.
fn tensors(checkpoint: &Checkpoint) -> BTreeSet<(String, &'static str, Vec<usize>, u32)> {
    let arrays = checkpoint.entries().iter().filter_map(|entry| Some((entry, entry.dtype()?)));
    let arrays = arrays.map(|(entry, dtype)| {
        let crc = crc32fast::hash(&checkpoint.view(entry).expect("readable"));
        (entry.name().to_owned(), dtype.name(), entry.shape().dims().to_vec(), crc)
    });
    arrays.collect()
}

fn digest(checkpoint: &Checkpoint) -> String {
    digests::digest(Subject::Tensors(checkpoint), Algorithm::Blake3, &Silent).expect("readable").digest
}

#[test]
fn what_a_format_holds_is_equal_to_its_source() {
    let (mut files, mut counts) = (Vec::new(), BTreeMap::<&str, [usize; 3]>::new());
    goldens(&data(""), &mut files);
    let (mut by_digest, mut by_tensors, mut opened) = (BTreeMap::new(), BTreeMap::new(), 0);
    for path in &files {
        let Ok(source) = Checkpoint::open(path) else { continue };
        if source.entries().iter().any(|entry| entry.fault().is_some() || entry.foreign_dtype().is_some()) {
            continue;
        }
        opened += 1;
        // A file that cannot be read has no digest, and is not converted.
        if digests::digest(Subject::Tensors(&source), Algorithm::Blake3, &Silent).is_err() {
            let folder = Folder::new();
            for to in Format::ALL.iter().copied() {
                assert!(converted(&source, to, &Options::new(to), &folder).is_none(), "{} to {to}", path.display());
            }
            continue;
        }
        let (all, hash) = (tensors(&source), digest(&source));
        // Two goldens have the same digest exactly if the tensors are the same.
        assert_eq!(by_digest.entry(hash.clone()).or_insert(all.clone()), &all, "{}", path.display());
        assert_eq!(by_tensors.entry(all.clone()).or_insert(hash.clone()), &hash, "{}", path.display());
        let is_sparse = source.entries().iter().any(|entry| entry.sparse().is_some());
        for to in Format::ALL.iter().copied() {
            let folder = Folder::new();
            // The formats with names, by which each array is found.
            if is_sparse && matches!(to, Format::Hdf5 | Format::MxnetList | Format::Npz | Format::Safetensors) {
                converted(&source, to, &Options::new(to).with(|o| o.dense = true), &folder);
            }
            let count = counts.entry(to.name()).or_default();
            let Some(written) = converted(&source, to, &Options::new(to), &folder) else {
                count[0] += 1;
                continue;
            };
            let same = tensors(&written) == all;
            // bf16 in an npz is u16 for other readers, and bf16 by its receipt.
            let keeps = to == Format::Npz && all.iter().any(|(_, dtype, ..)| *dtype == "bf16");
            assert_eq!(digest(&written) == hash, same || keeps, "{} to {to}", path.display());
            count[1] += 1;
            count[2] += usize::from(same);
        }
    }
    for (to, [_, written, same]) in &counts {
        assert!(*written > 3 && *same > 3, "{to}: {written}, {same}");
    }
    let counts =
        counts.iter().map(|(to, [not, written, same])| format!("{to} {written} ({not} refused, {same} of one digest)"));
    report(&format!("matrix: {opened} files to {}", counts.collect::<Vec<_>>().join(", ")));
}
