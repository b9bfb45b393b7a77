//! Files in archives, and files beside a file: a member is read like a separate file, whatever else is in the archive.
//!
//! The archives were written by Python and tar(1) (`data/archives/make.py`), larger ones by the `tar` and `zip` crates.

use std::fs;
use std::path::Path;

use blob_convert::{Options, Silent, verify};
use blob_io::{Bytes, Checkpoint, Error, Format, Limit, Limits, OpenOptions, Reason};
use zip::CompressionMethod;

use crate::support::alloc::peak;
use crate::support::archive::{ints, tar_header, tarred, theirs};
use crate::support::conversion::to_file;
use crate::support::{changed, data, find, open, refusal, sha256};

/// An MXNet file of one array.
pub(crate) const TINY: &str = "mxnet/golden/mxnet-1.9.1/checkpoints/bf16_mixed-0000.params";
const PARAMS: &str = "mxnet/golden/mxnet-1.9.1/checkpoints/module_mlp-0007.params";

#[test]
fn a_file_beside_the_open_one_is_read_whole_and_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::copy(data(PARAMS), at("net-0000.params")).expect("copied");
    fs::write(at("net-symbol.json"), "{}").expect("written");
    fs::create_dir(at("inner")).expect("made");
    fs::write(at("inner/x"), "x").expect("written");
    fs::File::create(at("large")).and_then(|file| file.set_len((64 << 20) + 1)).expect("written");
    let file = Checkpoint::open(at("net-0000.params")).expect("opens");
    assert_eq!(file.beside("net-symbol.json").expect("readable").as_deref(), Some(&b"{}"[..]));
    for none in ["other", "inner", "inner/x", "../x", "..", "", ".", "/etc/passwd"] {
        assert_eq!(file.beside(none).expect("none"), None, "{none}");
    }
    let error = file.beside("large").expect_err("too long");
    assert!(matches!(error, Error::LimitExceeded { limit: Limit::Fixed, .. }), "{error}");
    assert!(error.to_string().contains("large: at byte 0: the file's length: expected at most 67108864"), "{error}");
    let bytes = fs::read(at("net-0000.params")).expect("readable");
    let unplaced = Checkpoint::from_bytes("net-0000.params", bytes).expect("opens");
    assert_eq!(unplaced.beside("net-symbol.json").expect("none"), None);
}

fn archive(name: &str) -> String {
    data("archives").join(name).display().to_string()
}

/// Each entry with its values.
pub(crate) fn contents(file: &Checkpoint) -> Vec<String> {
    let each = file.entries().iter();
    each.map(|entry| format!("{entry:?} {}", sha256(&file.view(entry).expect("readable")))).collect()
}

pub(crate) fn alone(path: &str) -> Vec<String> {
    contents(&Checkpoint::open(data(path)).expect("opens"))
}

#[test]
fn the_one_tensor_file_of_an_archive_is_read_as_if_it_lay_there_alone() {
    let long = format!("{}{}0000.params", "a/".repeat(60), "long-".repeat(20));
    for (name, member, golden) in [
        ("sagemaker.tar.gz", "model_algo-1-0000.params", PARAMS),
        ("model.mar", "model_algo-1-0000.params", PARAMS),
        ("small.tar", "net-0000.params", TINY),
        ("small.tar.gz", "net-0000.params", TINY),
        ("small-stored.zip", "net-0000.params", TINY),
        ("small-deflated.zip", "net-0000.params", TINY),
        ("gnu-long.tar", &long, TINY),
        ("pax-long.tar", &format!("größe/{long}"), TINY),
        ("pax-size.tar", "net.params", TINY),
        ("ustar-prefix.tar", &format!("{}net.params", "folder/".repeat(20)), TINY),
        ("v7.tar", "bf16_mixed-0000.params", TINY),
        ("links.tar", "real.params", TINY),
        // Of members with the same name the last one counts, as when they are unpacked.
        ("twice.tar", "net.params", TINY),
        ("gzip-inside.tar", "net.params.gz", TINY),
    ] {
        let path = archive(name);
        let full = format!("{path}/{member}");
        for opened in [Checkpoint::open(&path), Checkpoint::open(&full)] {
            let opened = opened.expect(name);
            assert_eq!(contents(&opened), alone(golden), "{name}");
            assert_eq!((opened.name(), opened.file(), opened.member()), (&*full, &*path, Some(member)));
            assert_eq!((opened.format(), opened.is_packed()), (Format::MxnetList, true));
            assert_eq!(opened.stored().len(), fs::metadata(&path).expect("there").len());
        }
        let bytes = fs::read(&path).expect("readable");
        let piped = OpenOptions::new().open_stream("pipe", &bytes[..]).expect(name);
        assert_eq!((contents(&piped), piped.name()), (alone(golden), &*format!("pipe/{member}")));
    }
}

#[test]
fn of_several_tensor_files_one_is_named() {
    let path = archive("two.tar");
    let error = Checkpoint::open(&path).expect_err("two");
    assert_eq!(
        error.to_string(),
        format!(
            "{path}: holds 2 tensor files: b-0000.params, in/a-0000.params; choose one by its path: {path}/b-0000.params"
        )
    );
    assert_eq!(error.reason(), Reason::Request);
    for (member, golden) in [("b-0000.params", TINY), ("in/a-0000.params", PARAMS)] {
        let opened = Checkpoint::open(Path::new(&path).join(member)).expect(member);
        assert_eq!(contents(&opened), alone(golden));
        let bytes = Bytes(fs::read(&path).expect("readable"));
        let opened = OpenOptions::new().member(member).open_source("x", Box::new(bytes)).expect(member);
        assert_eq!(contents(&opened), alone(golden));
    }
    let error = |member: &str| Checkpoint::open(format!("{path}/{member}")).expect_err(member).to_string();
    assert_eq!(error("c"), format!("{path}: has no file \"c\" in it"));
    assert!(error("readme.txt").ends_with("readme.txt is a text file, not a model"), "{}", error("readme.txt"));
    let plain = data(TINY).display().to_string();
    let error = Checkpoint::open(format!("{plain}/x")).expect_err("no archive").to_string();
    assert_eq!(error, format!("{plain}: is not a tar or zip archive, so there is no \"x\" in it"));
}

#[test]
fn many_tensor_files_are_listed_up_to_twenty() {
    let params = fs::read(data(TINY)).expect("readable");
    let names: Vec<String> = (0..25).map(|i| format!("{}{i}.params", "n".repeat(200))).collect();
    let said = refusal("x.tar", &tarred(names.iter().map(|name| (&**name, &params[..]))));
    assert!(said.starts_with("x.tar: holds 25 tensor files: ") && said.contains(" and 5 more; "), "{said}");
    assert_eq!(said.matches(", n").count(), 19, "{said}");
    assert!(said.len() < 4096, "{}", said.len());
}

#[test]
fn what_is_no_plain_file_is_never_opened() {
    let error = |name: &str| Checkpoint::open(archive(name)).expect_err(name);
    let links = Checkpoint::open(archive("links.tar/net.params")).expect_err("a link").to_string();
    assert!(links.contains("found a link to \"/etc/passwd\": links in archives are not followed"), "{links}");
    let links = Checkpoint::open(archive("links.tar/hard.params")).expect_err("a link").to_string();
    assert!(
        links.contains("member \"hard.params\": at byte 512: expected a file, found a link to \"net.params\""),
        "{links}"
    );
    let beside = Checkpoint::open(archive("links.tar")).expect("one file").beside("net.params");
    assert_eq!(beside.expect("no error"), None);
    for sparse in ["sparse-gnu.tar", "sparse-pax.tar"] {
        let said = error(sparse);
        assert!(said.to_string().contains("expected a file that is stored whole, found a sparse one"), "{said}");
        assert_eq!(said.reason(), Reason::Unsupported);
    }
    let nested = error("nested.tar");
    assert!(nested.to_string().ends_with("is a tar archive without a tensor file in it"), "{nested}");
    assert_eq!((nested.reason(), nested.help().is_some()), (Reason::Archive, true));
    let inner = error("nested.tar/inner.tar");
    assert!(inner.to_string().ends_with("nested.tar/inner.tar is a tar archive"), "{inner}");
}

#[test]
fn zips_that_are_a_format_of_their_own_stay_that() {
    let params = fs::read(data(TINY)).expect("readable");
    let npz = theirs(CompressionMethod::Stored, &[("w.npy", &ints(&[1, 2])), ("net.params", &params)]);
    let opened = open("x.zip", &npz).expect("an npz");
    assert_eq!((opened.format(), opened.member()), (Format::Npz, None));
    let source = || Box::new(Bytes(npz.clone()));
    let member = OpenOptions::new().member("net.params").open_source("x.zip", source()).expect("a member");
    assert_eq!(contents(&member), alone(TINY));
    let member = OpenOptions::new().member("w.npy").open_source("x.zip", source()).expect("a member");
    assert_eq!((member.format(), member.entries().len()), (Format::Npy, 1));
    let torch = theirs(CompressionMethod::Stored, &[("a/data.pkl", b"\x80\x02."), ("net.params", &params)]);
    assert!(refusal("x.pt", &torch).contains("a PyTorch checkpoint"));
}

#[test]
fn a_stored_member_is_not_copied_and_a_deflated_one_is_bounded_and_checked() {
    let large = [(
        "net.safetensors",
        crate::support::archive::safetensors(
            r#"{"w":{"dtype":"F32","shape":[4194304],"data_offsets":[0,16777216]}}"#,
            &vec![0; 16 << 20],
        ),
    )];
    let members: Vec<(&str, &[u8])> = large.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    for stored in [tarred(members.iter().copied()), theirs(CompressionMethod::Stored, &members)] {
        let used = peak(|| {
            let opened = open_static(stored);
            assert!(opened.view(&opened.entries()[0]).expect("readable").iter().all(|byte| *byte == 0));
        });
        assert!(used < 1 << 20, "{used} bytes");
    }
    let deflated = theirs(CompressionMethod::Deflated, &members);
    let limits = Limits { max_spool: 8 << 20, ..Limits::default() };
    let error = OpenOptions::new().limits(limits).open_source("x.zip", Box::new(Bytes(deflated.clone())));
    let error = error.expect_err("too much");
    assert!(matches!(error, Error::LimitExceeded { limit: Limit::Spool, .. }), "{error}");
    for zipped in [deflated, theirs(CompressionMethod::Stored, &members)] {
        // The CRC-32 in the central directory.
        let at = find(&zipped, b"PK\x01\x02") + 16;
        let said = refusal("x.zip", &changed(&zipped, at, &[zipped[at] ^ 1]));
        assert!(said.starts_with("x.zip: member \"net.safetensors\": at byte "), "{said}");
        assert!(said.contains("expected a member of the CRC-32 in the zip's directory"), "{said}");
    }
}

/// A file of these bytes, which it shares and does not copy.
fn open_static(bytes: Vec<u8>) -> Checkpoint {
    Checkpoint::from_source("x", Box::new(Bytes(bytes))).expect("opens")
}

#[test]
fn errors_name_the_archive_the_member_and_the_byte_in_it() {
    let mut params = fs::read(data(TINY)).expect("readable");
    params.truncate(150);
    let tar = tarred([("in/net.params", &params[..])]);
    let whole = open("x.params", &params).expect_err("cut").to_string();
    let said = open("x.tar", &tar).expect_err("cut").to_string();
    assert_eq!(said, whole.replace("x.params", "x.tar/in/net.params"));
    // The archive itself.
    let tar = fs::read(archive("small.tar")).expect("readable");
    for (bytes, expected) in [
        (
            tar[..1000].to_vec(),
            "x.tar: member \"symbol.json\": at byte 514: a tar member's last block needs 510 bytes, but 486 are left",
        ),
        (
            tar[..1600].to_vec(),
            "x.tar: member \"net-0000.params\": at byte 1536: a tar member needs 214 bytes, but 64 are left",
        ),
        (
            changed(&tar, 1030, b"X"),
            "x.tar: at byte 1024: expected a tar header with its checksum, found bytes that do not have it",
        ),
    ] {
        let said = open("x.tar", &bytes).expect_err(expected).to_string();
        assert_eq!(said, expected);
    }
}

#[test]
fn a_tar_without_its_end_may_be_cut() {
    let tar = fs::read(archive("small.tar")).expect("readable");
    let cut = open("x.tar", &tar[..tar.len() - 1024]).expect("whole but for its end");
    assert_eq!(contents(&cut), alone(TINY));
    assert_eq!(cut.warnings()[0].to_string(), "the archive does not end with zeros: it may be cut, and lack files");
    assert!(open("x.tar", &tar[..tar.len() - 512]).expect("one block is enough").warnings().is_empty());
}

#[test]
fn lengths_that_lie_are_faults_with_their_place() {
    let size = |field: [u8; 12]| tar_header("x.params", b'0', |bytes| bytes[124..136].copy_from_slice(&field));
    let mut base256 = [0; 12];
    base256[0] = 0x80;
    let mut most = base256;
    most[4] = 0x7F;
    let mut over = base256;
    over[4] = 0x80;
    for (field, expected) in [
        (*b"77777777777\0", "a tar member needs 8589934591 bytes, but 1024 are left"),
        (most, "a tar member needs 9151314442816847872 bytes, but 1024 are left"),
        (over, "expected the length of a member, found one over 63 bits"),
        ([0xFF; 12], "expected the length of a member, found one that is negative or over 64 bits"),
        (*b"12x4567\0\0\0\0\0", "expected the length of a member, found something other than octal digits"),
    ] {
        let said = refusal("x.tar", &[&size(field)[..], &[0; 1024]].concat());
        assert!(said.contains(expected), "{said}");
    }
    // A correct base-256 length, and a length with spaces before its digits.
    let params = fs::read(data(TINY)).expect("readable");
    base256[11] = params.len() as u8;
    for field in [base256, *b"        326\0"] {
        let tar = [&size(field)[..], &params, &[0; 1024 + 298]].concat();
        assert_eq!(contents(&open("x.tar", &tar).expect("opens")), alone(TINY));
    }
}

#[test]
fn long_names_without_end_and_records_that_lie_are_bounded() {
    let limit =
        |len: usize| tar_header("x", b'L', |bytes| bytes[124..135].copy_from_slice(format!("{len:011o}").as_bytes()));
    let long = [&limit(70_000)[..], &vec![b'n'; 70_000 + 144]].concat();
    assert!(refusal("x.tar", &long).contains("a member's long name: expected at most 65536, found 70000"));
    // Long names of long names: each replaces the one before.
    let loops = [&limit(512)[..], &[b'n'; 512]].concat().repeat(4000);
    let used = peak(|| assert!(refusal("x.tar", &loops).contains("a tar archive without a tensor file")));
    assert!(used < (loops.len() as u64) * 2 + (1 << 20), "{used}");
    for records in ["0 path=x\n", "18446744073709551615 path=x\n", "x", "11 pathxyz\n", "13 size=-1234\n"] {
        let head = tar_header("x", b'x', |bytes| {
            bytes[124..135].copy_from_slice(format!("{:011o}", records.len()).as_bytes());
        });
        let mut content = records.as_bytes().to_vec();
        content.resize(512, 0);
        let tar = [&head[..], &content, &tar_header("y", b'0', |_| ()), &[0; 1024]].concat();
        let said = refusal("x.tar", &tar);
        assert!(said.contains("at byte 512: expected pax records"), "{records:?}: {said}");
    }
}

#[test]
fn a_million_members_are_counted_and_bounded() {
    let head = tar_header("x", b'0', |_| ());
    let tar = head.repeat(40_000);
    let limits = Limits { max_arrays: 30_000, ..Limits::default() };
    let mut error = None;
    let used = peak(|| error = OpenOptions::new().limits(limits).open_source("x.tar", Box::new(Bytes(tar))).err());
    let error = error.expect("refused");
    assert_eq!(
        error.to_string(),
        "x.tar: at byte 15360000: the number of the archive's members: expected at most 30000, found 30001"
    );
    assert!(used < 1 << 20, "{used}");
}

#[test]
fn a_file_beside_a_member_lies_in_the_same_folder_of_the_archive() {
    for (name, found) in [("sagemaker.tar.gz", true), ("model.mar", true), ("small.tar", false)] {
        let opened = Checkpoint::open(archive(name)).expect(name);
        let symbol = opened.beside("model_algo-1-symbol.json").expect("readable");
        let golden = fs::read(data("mxnet/golden/mxnet-1.9.1/checkpoints/module_mlp-symbol.json")).expect("readable");
        assert_eq!(symbol, found.then_some(golden), "{name}");
        assert_eq!(opened.beside("../hyperparams.json").expect("none"), None);
    }
    let params = fs::read(data(TINY)).expect("readable");
    let tar =
        tarred([("in/net.params", &params[..]), ("in/a", b"in"), ("a", b"out"), ("large", &vec![0; (64 << 20) + 1])]);
    let opened = open("x.tar", &tar).expect("opens");
    assert_eq!(opened.beside("a").expect("readable").as_deref(), Some(&b"in"[..]));
    let tar = tarred([("net.params", &params[..]), ("large", &vec![0; (64 << 20) + 1])]);
    let error = open("x.tar", &tar).expect("opens").beside("large").expect_err("too long").to_string();
    assert!(error.starts_with("x.tar: member \"large\": at byte ") && error.contains("at most 67108864"), "{error}");
}

#[test]
fn a_conversion_of_a_member_is_proved_by_the_archive() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["sagemaker.tar.gz", "model.mar", "small.tar"] {
        let source = Checkpoint::open(archive(name)).expect("opens");
        let path = folder.path().join(format!("{name}.safetensors"));
        let done = to_file(&source, &Options::new(Format::Safetensors), &path).expect(name);
        let bytes = fs::read(archive(name)).expect("readable");
        assert_eq!((done.bytes_in, done.blake3), (bytes.len() as u64, blake3::hash(&bytes).to_string()));
        let written = Checkpoint::open(&path).expect("opens");
        let (_, receipt) = written.metadata().iter().find(|(key, _)| key == "blob.receipt").expect("a receipt");
        let receipt: serde_json::Value = serde_json::from_str(receipt).expect("JSON");
        assert_eq!(receipt["source"]["name"], name);
        assert_eq!(receipt["source"]["member"], source.member().expect("a member"));
        let mut findings = Vec::new();
        verify::against(&written, &source, &Silent, &mut |finding| findings.push(finding)).expect("compared");
        assert!(findings.is_empty(), "{findings:?}");
    }
}

/// `tar cf x.tar a a` writes the file, then a hard link to itself.
#[test]
fn a_file_that_tar_was_given_twice_is_read_and_a_dot_is_a_name() {
    let params = fs::read(data(TINY)).expect("readable");
    let file = |name: &str| {
        let size = format!("{:011o}\0", params.len());
        let header = tar_header("x", b'0', |bytes| {
            bytes[124..136].copy_from_slice(size.as_bytes());
            bytes[0] = name.as_bytes()[0];
        });
        [header, params.clone(), vec![0; params.len().next_multiple_of(512) - params.len()]].concat()
    };
    let link = |kind: u8| tar_header("a", kind, |bytes| bytes[157] = b'a');
    let twice = [file("a"), link(b'1'), vec![0; 1024]].concat();
    assert_eq!(contents(&open("x.tar", &twice).expect("opens")), alone(TINY));
    // A symbolic link to itself has no target.
    assert!(open("x.tar", &[file("a"), link(b'2'), vec![0; 1024]].concat()).is_err());
    let said = refusal("x.tar", &[file("."), file("b"), vec![0; 1024]].concat());
    assert!(said.contains("x.tar/.") || said.contains("\".\""), "{said}");
}
