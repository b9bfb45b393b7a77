//! Gzip files are read as their content; a broken one is an error, and one with too much content is refused
//! early. flate2 writes the gzip files.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blob_convert::digest::{self, Algorithm, Subject};
use blob_convert::{Options, Silent};
use blob_io::{Bytes, Checkpoint, Error, Format, Limits, OpenOptions, Reason};
use flate2::{Compression, GzBuilder};

use crate::support::alloc::peak;
use crate::support::conversion::to_file;
use crate::support::{blob, command, data, ran, report, sha256};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut file = GzBuilder::new().filename("inside").write(Vec::new(), Compression::default());
    file.write_all(bytes).expect("written");
    file.finish().expect("finished")
}

/// All files under `tests/data`.
fn all() -> Vec<PathBuf> {
    let (mut found, mut todo) = (Vec::new(), vec![data("")]);
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            let listing = fs::read_dir(&path).expect("a folder");
            todo.extend(listing.map(|entry| entry.expect("an entry").path()));
        } else {
            found.push(path)
        }
    }
    found.sort();
    found
}

/// Each entry with the bytes, or the error.
fn contents(file: &Checkpoint) -> Vec<String> {
    let entries = file.entries().iter();
    entries
        .map(|e| {
            format!(
                "{e:?} {}",
                match file.view(e) {
                    Ok(bytes) => blake3::hash(&bytes).to_string(),
                    Err(error) => error.reason().to_string(),
                }
            )
        })
        .collect()
}

#[test]
fn every_golden_is_read_through_gzip_as_it_is_plain() {
    let (mut opened, mut refused) = (0, 0);
    for path in all() {
        let bytes = fs::read(&path).expect("readable");
        // Skips files that are already gzip files.
        if bytes.len() > 4 << 20 || bytes.starts_with(b"\x1F\x8B") {
            continue;
        }
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let packed = Checkpoint::from_bytes(format!("{name}.gz"), gzip(&bytes));
        match (Checkpoint::from_bytes(&name, bytes), packed) {
            (Ok(plain), Ok(packed)) => {
                assert!(packed.is_gzip() && !plain.is_gzip());
                assert_eq!(packed.format(), plain.format(), "{name}");
                assert_eq!(packed.dialect(), plain.dialect(), "{name}");
                assert_eq!(packed.metadata(), plain.metadata(), "{name}");
                assert_eq!(packed.file_len(), plain.file_len(), "{name}");
                assert_eq!(contents(&packed), contents(&plain), "{name}");
                opened += 1;
            }
            (Err(plain), Err(packed)) => {
                assert_eq!(packed.reason(), plain.reason(), "{packed}");
                assert_eq!(packed.offset(), plain.offset(), "{packed}");
                let chooses = packed.reason() == Reason::Request;
                assert!(chooses || packed.to_string().contains("unpacked"), "{packed}");
                refused += 1;
            }
            (plain, packed) => panic!("{name}: {plain:?}, packed {packed:?}"),
        }
    }
    assert!(opened > 100, "{opened}");
    report(&format!("gzip: {opened} goldens as plain, {refused} refused alike"));
}

fn golden() -> (Vec<u8>, Vec<u8>) {
    let plain = fs::read(data("caffe/net/f32_v2.caffemodel")).expect("readable");
    let packed = gzip(&plain);
    (plain, packed)
}

#[test]
fn a_conversion_names_the_gzip_file_and_verify_compares_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (plain, packed) = golden();
    let (source, other) = (folder.path().join("net.caffemodel.gz"), folder.path().join("plain"));
    fs::write(&source, &packed).expect("written");
    fs::write(&other, &plain).expect("written");
    for to in [Format::Safetensors, Format::Npz] {
        let target = folder.path().join(format!("net.{}", to.name()));
        let file = Checkpoint::open(&source).expect("opens");
        to_file(&file, &Options::new(to).with(|o| o.sha256 = true), &target).expect("converts");
        let written = Checkpoint::open(&target).expect("opens");
        let receipt = written.metadata().iter().find(|(key, _)| key == "blob.receipt");
        let receipt: serde_json::Value = serde_json::from_str(&receipt.expect("a receipt").1).expect("JSON");
        let from = &receipt["source"];
        let digest = sha256(&packed);
        assert_eq!(from["name"], "net.caffemodel.gz");
        assert_eq!(from["compression"], "gzip");
        assert_eq!(from["bytes"], packed.len());
        assert_eq!(from["unpacked_bytes"], plain.len());
        assert_eq!(from["blake3"], blake3::hash(&packed).to_string());
        assert_eq!(from["sha256"], digest);
        assert_eq!(
            digest::digest(Subject::File { name: "", source: file.stored() }, Algorithm::Sha256, &Silent)
                .expect("a digest")
                .digest,
            digest
        );
        let target = target.to_str().expect("UTF-8");
        for against in [&source, &other] {
            let against = against.to_str().expect("UTF-8");
            for [a, b] in [[target, against], [against, target]] {
                blob(&["verify", a, "--against", b]).ok();
            }
        }
    }
}

#[test]
fn every_cut_of_a_gzip_file_is_an_error() {
    let (_, packed) = golden();
    for cut in 1..packed.len() {
        let error = Checkpoint::from_bytes("net.caffemodel.gz", packed[..cut].to_vec()).expect_err("a cut file");
        if cut >= 3 {
            assert_eq!(error.reason(), Reason::Truncated, "{cut}: {error}");
            assert_eq!(error.offset().map(|at| at <= cut as u64), Some(true), "{error}");
        }
    }
}

/// The whole arrays of a file that may break off, with the reason for the break.
fn taken(name: &str, bytes: &[u8]) -> Option<(Checkpoint, Option<String>)> {
    let opened = OpenOptions::new().salvage().open_source(name, Box::new(Bytes(bytes.to_vec()))).ok()?;
    let broken = opened.check_whole().err().map(|error| error.to_string());
    Some((opened.take_whole_arrays(), broken))
}

#[test]
fn of_a_cut_gzip_file_the_arrays_are_taken_that_it_unpacks_to() {
    let (plain, packed) = golden();
    let whole = contents(&Checkpoint::from_bytes("net.caffemodel", plain).expect("opens"));
    let mut counts = std::collections::BTreeSet::new();
    for cut in 1..packed.len() {
        let strict = Checkpoint::from_bytes("net.caffemodel.gz", packed[..cut].to_vec()).expect_err("a cut file");
        let Some((part, broken)) = taken("net.caffemodel.gz", &packed[..cut]) else {
            assert_eq!(strict.intact().unwrap_or(0), 0, "{cut}");
            continue;
        };
        assert_eq!(broken, Some(strict.to_string()), "{cut}");
        assert_eq!(strict.intact(), Some(part.entries().len()), "{cut}");
        assert!(part.warnings().iter().any(|w| w.to_string().contains("CRC-32")), "{cut}");
        let arrays = contents(&part);
        assert_eq!(arrays[..], whole[..arrays.len()], "{cut}");
        counts.insert(arrays.len());
    }
    // The last cuts leave the whole content, and lack the checksum.
    assert!(counts.len() > 5 && counts.contains(&whole.len()), "{counts:?}");
    // Of an archive in a cut gzip file nothing is taken.
    let tar = gzip(&fs::read(data("archives/nested.tar")).expect("readable"));
    assert!(taken("a.tar.gz", &tar[..tar.len() - 9]).is_none());
}

#[test]
fn a_cut_file_gives_the_same_arrays_through_gzip() {
    let (plain, _) = golden();
    for cut in (1..plain.len()).step_by(7) {
        let (bare, packed) = (taken("net.caffemodel", &plain[..cut]), taken("net.caffemodel.gz", &gzip(&plain[..cut])));
        assert_eq!(bare.is_some(), packed.is_some(), "{cut}");
        let (Some((bare, why)), Some((packed, packed_why))) = (bare, packed) else { continue };
        assert_eq!(contents(&bare), contents(&packed), "{cut}");
        let plain = |why: String| why.replace(".gz: unpacked", "").replace("net.caffemodel: ", "net.caffemodel ");
        assert_eq!(packed_why.map(plain), why.map(plain), "{cut}");
    }
    // An MXNet list has the names behind all arrays.
    let list = fs::read(data("mxnet/golden/mxnet-1.9.1/sparse_dtypes.nd")).expect("readable");
    let (part, _) = taken("x.nd.gz", &gzip(&list[..list.len() - 20])).expect("arrays");
    assert!(part.warnings().iter().any(|w| w.to_string().contains("the names")));
}

#[test]
fn a_wrong_bit_is_an_error_or_changes_nothing() {
    let (plain, packed) = golden();
    let mut same = 0;
    for bit in 0..packed.len() * 8 {
        let mut bytes = packed.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(file) = Checkpoint::from_bytes("net.caffemodel.gz", bytes) {
            let mut back = vec![0; file.file_len() as usize];
            file.source().read_at(0, &mut back).expect("in memory");
            assert!(back == plain, "bit {bit}");
            same += 1;
        }
    }
    // Only changes of the header have no effect: time, level, system, name and a flag.
    assert!(same > 0 && same < 20 * 8, "{same}");
}

#[test]
fn members_follow_one_another_and_nothing_else_does() {
    let (plain, _) = golden();
    let (a, b) = plain.split_at(1000);
    let members = [gzip(a), gzip(b""), gzip(b)].concat();
    let file = Checkpoint::from_bytes("net.caffemodel.gz", members.clone()).expect("three members");
    assert_eq!(contents(&file), contents(&Checkpoint::from_bytes("net.caffemodel", plain.clone()).expect("opens")));
    let zeros = [0; 100_000];
    for rest in [&b"rest"[..], b"\x1F\x8B\x07"] {
        for padding in [&b""[..], &zeros] {
            let bytes = [members.as_slice(), padding, rest].concat();
            let error = Checkpoint::from_bytes("net.caffemodel.gz", bytes).expect_err("bytes behind the members");
            assert_eq!(error.offset(), Some((members.len() + padding.len()) as u64), "{error}");
            assert_eq!(error.reason(), Reason::Malformed, "{error}");
        }
    }
    // Zeros between and after members are accepted, as by gzip(1) and Python.
    let padded = [&gzip(a), &zeros[..], &gzip(b), &zeros].concat();
    let file = Checkpoint::from_bytes("net.caffemodel.gz", padded).expect("zeros between and behind members");
    assert_eq!(contents(&file), contents(&Checkpoint::from_bytes("net.caffemodel", [a, b].concat()).expect("opens")));
}

#[test]
fn a_trailer_that_disagrees_is_said_with_both_numbers() {
    let (plain, packed) = golden();
    let at = packed.len() - 8;
    for (byte, field) in [(at, "the CRC-32"), (at + 4, "the length")] {
        let mut bytes = packed.clone();
        bytes[byte] ^= 1;
        let error = Checkpoint::from_bytes("net.caffemodel.gz", bytes).expect_err("a wrong trailer");
        assert_eq!(error.reason(), Reason::Checksum, "{error}");
        assert_eq!(error.offset(), Some(byte as u64), "{error}");
        let right = if byte == at { crc32fast::hash(&plain) } else { plain.len() as u32 };
        for word in [field, &format!("{right:#010x}"), &format!("{:#010x}", right ^ 1)] {
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}

/// A gzip file of `begin` and a GiB of zeros. A MiB of zeros is compressed once and repeated.
fn bomb(begin: &[u8]) -> Vec<u8> {
    let zeros = gzip(&vec![0; 1 << 20]);
    let mut file = gzip(begin);
    for _ in 0..1024 {
        file.extend(&zeros);
    }
    assert!(file.len() < 2 << 20, "{}", file.len());
    file
}

#[test]
fn a_bomb_ends_at_the_limit_in_bounded_memory() {
    let begin = b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, 'shape': (268435456,), }\n";
    let limits = Limits { max_spool: 64 << 20, ..Limits::default() };
    for (name, begin, reason) in [("zeros.gz", &b""[..], Reason::Unknown), ("zeros.npy.gz", begin, Reason::Limit)] {
        let file = bomb(begin);
        let mut error = None;
        let options = OpenOptions::new().limits(limits.clone());
        let used = peak(|| error = options.open_source(name, Box::new(Bytes(file))).err());
        let error = error.expect("refused");
        assert_eq!(error.reason(), reason, "{error}");
        assert!(used < 32 << 20, "{name}: {used} bytes");
        assert!(error.to_string().contains("unpacked"), "{error}");
    }
}

#[test]
fn what_is_inside_is_named() {
    let tar = fs::read(data("archives/nested.tar")).expect("readable");
    for (name, bytes, words, reason) in [
        ("a.tar.gz", tar, "a gzip file; unpacked, it is a tar archive without a tensor file in it", Reason::Archive),
        ("a.gz", Vec::new(), "a gzip file; unpacked, it is empty", Reason::Empty),
        ("a.gz.gz", gzip(b"x"), "a gzip file; unpacked, it is a gzip file", Reason::Compressed),
    ] {
        let error = Checkpoint::from_bytes(name, gzip(&bytes)).expect_err(name);
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.reason(), reason);
    }
}

#[cfg(unix)]
#[test]
fn a_stream_without_an_end_is_refused_at_once_or_at_the_limit() {
    let zero = blob(&["info", "/dev/zero"]);
    assert_eq!(zero.code, Some(2), "{zero:?}");
    assert!(zero.err.contains("of no format that blob knows"), "{zero:?}");
    // An npy header, then endless zeros.
    let mut stream = endless();
    let mut limited = command(&["info", "-", "--max-spool", "16M"]);
    limited.stdin(stream.stdout.take().expect("a pipe"));
    let limited = limited.output().expect("the tool runs");
    stream.kill().expect("it runs");
    stream.wait().expect("it ended");
    let err = String::from_utf8(limited.stderr).expect("UTF-8");
    assert_eq!(limited.status.code(), Some(2), "{err}");
    assert!(err.contains("expected at most 16777216"), "{err}");
    assert!(err.contains("--max-spool"), "{err}");
}

#[cfg(unix)]
fn endless() -> std::process::Child {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", r"printf '\223NUMPY'; exec cat /dev/zero"]);
    shell.stdout(Stdio::piped()).stderr(Stdio::null());
    shell.spawn().expect("a shell")
}

#[cfg(target_os = "linux")]
#[test]
fn a_temporary_folder_without_room_is_named() {
    let mut long = b"\x93NUMPY".to_vec();
    long.resize(9 << 20, 0);
    let mut command = command(&["info", "-"]);
    command.env("TMPDIR", "/dev/null/nowhere");
    let ran = ran(command, &long);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("standard input: cannot keep it in the temporary folder /dev/null/nowhere"), "{ran:?}");
}

#[test]
fn the_unpacking_of_a_stream_or_a_gzip_file_can_be_stopped() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let options = OpenOptions::new().stop_if(move || counted.fetch_add(1, Ordering::Relaxed) == 3);
    let stopped = options.open_stream("x", std::io::repeat(7));
    assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    let npy = vec![7; 4096];
    let stopped = OpenOptions::new().stop_if(|| true).open_source("x.npy.gz", Box::new(Bytes(gzip(&npy))));
    assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
}
