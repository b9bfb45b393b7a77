//! Options that change the bytes of a conversion within one format; broken files within one format. Files that stay as
//! they are: `there_and_back`.

use std::io::Write;
use std::path::Path;

use blob_convert::Options;
use blob_io::{Checkpoint, Entry, Format};
use serde_json::json;

use crate::support::receipt::receipt;
use crate::support::{Folder, blob, command, data, open};
use crate::there_and_back::{convert, read};

#[test]
fn what_is_asked_for_is_done_also_within_one_format() {
    let folder = Folder::new();
    for (file, extension) in [
        ("other/two.safetensors", "safetensors"),
        ("other/numpy_compressed.npz", "npz"),
        ("other/fortran_big_endian.npy", "npy"),
        ("caffe/net/f32.caffemodel.h5", "h5"),
    ] {
        let (kept, out) = (read(&data(file)), folder.file(&format!("x.{extension}")));
        let copied = blob(&["convert", "--json", "--force", file, "-o", &out]);
        assert_eq!((copied.code, &copied.json()[0]["copy"]), (Some(0), &json!(true)), "{copied:?}");
        assert!(read(Path::new(&out)) == kept, "{file}");
        let told = blob(&["convert", "--force", file, "-o", &out]);
        assert!(told.err.contains("same format: the bytes are kept, no receipt is added"), "{told:?}");
        // From a pipe into a pipe.
        let to = if extension == "h5" { "hdf5" } else { extension };
        let mut piped = command(&["convert", "-", "--to", to, "-o", "-"]);
        piped.stdin(std::fs::File::open(data(file)).expect("opens"));
        let output = piped.output().expect("runs");
        assert!(output.stdout == kept, "{file}: {}", String::from_utf8_lossy(&output.stderr));
        for asked in [&["--anew"][..], &["--dtype", "f64"], &["--dense"], &["--strip-diff"]] {
            let ran = blob(&[&["convert", "--json", "--force", file, "-o", &out], asked].concat());
            assert_eq!((ran.code, &ran.json()[0]["copy"]), (Some(0), &json!(false)), "{ran:?}");
            assert!(read(Path::new(&out)) != kept, "{file} {asked:?}");
        }
        // A gzip file is not copied: its content is written anew.
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&kept).expect("memory");
        std::fs::write(folder.file("x.gz"), packed.finish().expect("memory")).expect("written");
        let ran = blob(&["convert", "--json", "--force", &folder.file("x.gz"), "-o", &out]);
        assert_eq!((ran.code, &ran.json()[0]["copy"]), (Some(0), &json!(false)), "{ran:?}");
    }
    // --sha256 requests a receipt.
    let out = folder.file("y.npz");
    let ran = blob(&["convert", "--sha256", "other/numpy_savez.npz", "-o", &out]);
    assert_eq!((ran.code, receipt(&Checkpoint::open(&out).expect("opens")).is_object()), (Some(0), true), "{ran:?}");
}

/// A copied file is checked as a whole, so that a broken one is not passed on.
#[test]
fn a_broken_file_is_not_copied() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bytes = read(&data("other/numpy_savez.npz"));
    let file = open("x.npz", &bytes).expect("opens");
    let entry = file.entries().iter().find(|entry| entry.byte_len() > 0).expect("an array");
    bytes[entry.offset().expect("stored") as usize] ^= 1;
    let out = folder.path().join("x.npz");
    let refused = convert(&open("x.npz", &bytes).expect("opens"), &Options::new(Format::Npz), &out);
    assert!(refused.expect_err("a checksum").to_string().contains("CRC"), "it says why");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    // A file that the reference reader refuses is rewritten, not copied.
    let mut long = read(&data("other/two.safetensors"));
    long.extend([0; 7]);
    let source = open("x.safetensors", &long).expect("opens");
    assert_eq!(source.faults().len(), 1);
    convert(&source, &Options::new(Format::Safetensors), &out).expect("converts");
    assert_eq!(Checkpoint::open(&out).expect("opens").faults().len(), 0);
}

/// The archive with another first byte in this array, and with the member's new checksum wherever the old one was
/// stored.
fn with_other_values(bytes: &[u8], entry: &Entry) -> Vec<u8> {
    let at = entry.offset().expect("stored") as usize;
    let (begin, end) = (find_back(bytes, at, b"\x93NUMPY"), at + entry.byte_len() as usize);
    let old = crc32fast::hash(&bytes[begin..end]).to_le_bytes();
    let mut wanted = bytes.to_vec();
    wanted[at] ^= 0x55;
    let new = crc32fast::hash(&wanted[begin..end]).to_le_bytes();
    let places: Vec<usize> =
        (0..bytes.len() - 3).filter(|i| bytes[*i..][..4] == old && !(begin..end).contains(i)).collect();
    assert_eq!(places.len(), 2, "the directory's, and one at the member");
    places.into_iter().for_each(|place| wanted[place..place + 4].copy_from_slice(&new));
    wanted
}

/// The offset of the last occurrence of a text before an offset.
fn find_back(bytes: &[u8], at: usize, text: &[u8]) -> usize {
    bytes[..at].windows(text.len()).rposition(|window| window == text).expect("it is there")
}

/// A restored npz gets the checksums of the new values where the writer stored checksums: before a member or, in a
/// streamed archive, behind the member.
#[test]
fn an_npz_comes_back_and_other_values_have_their_checksums() {
    for file in ["other/numpy_savez.npz", "other/numpy_stream.npz"] {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |name: &str| folder.path().join(name);
        let (original, carrier) = (read(&data(file)), place("x.safetensors"));
        let source = open("x.npz", &original).expect("opens");
        convert(&source, &Options::new(Format::Safetensors), &carrier).expect("converts");
        let carried = read(&carrier);
        let back = |bytes: &[u8]| {
            let out = place("back.npz");
            let notes = convert(&open("x.safetensors", bytes).expect("opens"), &Options::new(Format::Npz), &out);
            assert_eq!(notes.unwrap_or_else(|e| panic!("{file}: {e}")), [""; 0]);
            let found = read(&out);
            std::fs::remove_file(&out).expect("removable");
            found
        };
        assert!(back(&carried) == original, "{file}");
        let held = open("x.safetensors", &carried).expect("opens");
        for entry in source.entries().iter().filter(|entry| entry.byte_len() > 0) {
            let mut changed = carried.clone();
            changed[held.entry(entry.name()).and_then(Entry::offset).expect("there") as usize] ^= 0x55;
            let found = back(&changed);
            assert!(found == with_other_values(&original, entry), "{file} {}", entry.name());
            let opened = open("x.npz", &found).expect("opens");
            let checked = opened.check(opened.entry(entry.name()).expect("there"), &mut |_| Ok(()));
            checked.unwrap_or_else(|e| panic!("{e}"));
            // Also from beginning to end.
            std::fs::write(&carrier, &changed).expect("written");
            let path = carrier.to_str().expect("UTF-8");
            let output = command(&["convert", path, "--to", "npz", "-o", "-"]).output().expect("runs");
            assert!(output.stdout == found, "{file}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
