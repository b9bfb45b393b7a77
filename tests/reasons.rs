//! Each kind of error has a code. The codes never change, because scripts select by them.

use std::collections::HashSet;

use blob_io::{Bytes, Checkpoint, Error, Limits, OpenOptions, Reason};
use zip::CompressionMethod::Stored;

use crate::support::archive::{ints, theirs};

/// The error code of a file with this name and content: of opening it, of its first array's fault, or of loading that
/// array.
fn code(name: &str, bytes: &[u8]) -> &'static str {
    let opened = Checkpoint::from_source(name, Box::new(Bytes(bytes.to_vec())));
    let reason = match &opened {
        Err(error) => error.reason(),
        Ok(file) => {
            let entry = &file.entries()[0];
            let loaded = file.load(entry).map(drop);
            let loaded = loaded.and_then(|()| file.check(entry, &mut |_| Ok(())));
            let reason = loaded.expect_err("something wrong").reason();
            if let Some(fault) = entry.fault() {
                assert_eq!(fault.reason(), reason, "{name}");
            }
            reason
        }
    };
    reason.as_str()
}

#[test]
fn what_is_wrong_with_a_file_has_a_code() {
    let mut flipped = theirs(Stored, &[("a.npy", &ints(&[1, 2]))]);
    let end = flipped.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    flipped[end - 1] ^= 1;
    let pickle = theirs(Stored, &[("archive/data.pkl", b"\x80\x02.")]);
    let tar = std::fs::read(crate::support::data("archives/nested.tar")).expect("readable");
    let mat = [&b"MATLAB 7.3 MAT-file, Platform: GLNXA64"[..], &[b' '; 600], b"\x89HDF\r\n\x1A\n"].concat();
    for (name, bytes, expected) in [
        ("x", &tar[..], "archive"),
        ("x", &theirs(Stored, &[("a.txt", b"a")]), "archive"),
        ("x", &pickle, "unsupported"),
        ("x", &mat, "unsupported"),
        ("x.npz", &flipped, "checksum"),
    ] {
        assert_eq!(code(name, bytes), expected, "{name}: {bytes:?}");
    }
}

#[test]
fn what_the_system_and_the_caller_do_has_a_code() {
    let folder = tempfile::tempdir().unwrap();
    let of = |path: &std::path::Path| Checkpoint::open(path).unwrap_err().reason();
    assert_eq!(of(&folder.path().join("none")), Reason::Missing);
    assert_eq!(of(folder.path()), Reason::Directory);
    let io = |kind: std::io::ErrorKind| Error::Open { file: "x".into(), source: kind.into() };
    use std::io::ErrorKind;
    assert_eq!(io(ErrorKind::PermissionDenied).reason(), Reason::Denied);
    assert_eq!(io(ErrorKind::StorageFull).reason(), Reason::Io);
    assert_eq!(io(ErrorKind::OutOfMemory).reason(), Reason::Memory);
    assert_eq!(Error::Interrupted.reason(), Reason::Interrupted);

    let two = theirs(Stored, &[("a.npy", &ints(&[1, 2])), ("b.npy", &ints(&[3]))]);
    let open = |limits| {
        let options = OpenOptions::new().limits(limits);
        options.open_source("x.npz", Box::new(Bytes(two.clone())))
    };
    let few = open(Limits { max_arrays: 1, ..Limits::default() }).unwrap_err();
    assert_eq!(few.reason(), Reason::Limit);
    let file = open(Limits::default()).unwrap();
    let dense = file.load_dense(&file.entries()[0]).unwrap_err();
    assert_eq!(dense.reason(), Reason::Request);
}

#[test]
fn codes_are_distinct_stable_and_explained() {
    let codes: Vec<&str> = Reason::ALL.iter().map(|r| r.as_str()).collect();
    let expected = "missing denied directory empty html lfs-pointer compressed archive truncated unsupported \
                    not-tensors unknown malformed checksum limit memory io request interrupted usage no-match \
                    warning sha256 unreadable not-finite not-bool absent kind shape dtype differs receipt";
    assert_eq!(codes.join(" "), expected);
    assert_eq!(codes.iter().collect::<HashSet<_>>().len(), codes.len());
    for reason in Reason::ALL {
        assert_eq!(reason.to_string(), reason.as_str());
        assert!(!reason.meaning().is_empty());
    }
}
