//! Every small golden file to every written format: what is written opens again as that format, and `verify` finds it equal to its
//! source, as `blob convert` promises when it prints the command; what does not fit leaves no file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use blob_convert::verify::{self, Remark};
use blob_convert::{Options, Silent, Target, plan};
use blob_io::{Checkpoint, Format, IfExists, OpenOptions};

use crate::support::{data, report};

/// Larger files add time, and no forms.
const LARGEST: u64 = 32 << 10;

pub(crate) fn goldens(folder: &Path, found: &mut Vec<PathBuf>) {
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

/// Whether the file was written; what went wrong is a panic.
fn converts(source: &Checkpoint, to: Format, folder: &Path) -> bool {
    let path = folder.join("out").with_extension(to.extensions().first().unwrap_or(&"bin"));
    let target = Target::File { path: &path, if_exists: IfExists::Refuse };
    let done = plan(source, &Options::new(to), &target).and_then(|plan| plan.run(&Silent));
    let what = format!("{} to {to}", source.name());
    if let Err(error) = done {
        assert!(error.to_string().len() > 20, "{what}: {error}");
        assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 0, "{what}: {error}");
        return false;
    }
    let written = OpenOptions::new().from(to).open(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
    let equal = verify::against(&written, source, &Silent, &mut |remark| {
        assert!(matches!(remark, Remark::Note(_)), "{what}: {remark:?}");
    });
    assert!(equal.as_ref().is_ok_and(|equal| *equal >= dense(source)), "{what}: {equal:?}");
    std::fs::remove_file(&path).expect("removable");
    true
}

/// How many arrays there are if each sparse one counts once.
fn dense(source: &Checkpoint) -> u64 {
    let is_part = |kind| matches!(kind, blob_io::Kind::Indices | blob_io::Kind::Indptr);
    let arrays = source.entries().iter().filter(|entry| entry.dtype().is_some() && !is_part(entry.kind()));
    arrays.count() as u64
}

#[test]
fn what_a_format_holds_is_equal_to_its_source() {
    let (mut files, mut counts) = (Vec::new(), BTreeMap::<&str, [usize; 2]>::new());
    goldens(&data(""), &mut files);
    let folder = tempfile::tempdir().expect("a folder");
    let mut opened = 0;
    for path in &files {
        let Ok(source) = Checkpoint::open(path) else { continue };
        if source.entries().iter().any(|entry| entry.fault().is_some() || entry.foreign_dtype().is_some()) {
            continue;
        }
        opened += 1;
        for to in Format::ALL.iter().copied().filter(|to| to.is_written()) {
            counts.entry(to.name()).or_default()[usize::from(converts(&source, to, folder.path()))] += 1;
        }
    }
    for (to, [_, written]) in &counts {
        assert!(*written > 3, "{to}: {written}");
    }
    let counts: Vec<String> =
        counts.iter().map(|(to, [not, written])| format!("{to} {written} ({not} refused)")).collect();
    report(&format!("matrix: {opened} files to {}", counts.join(", ")));
}
