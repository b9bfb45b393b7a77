//! An npz with a wrong bit: every way to read an array's bytes reports the fault.

use blob_convert::{Options, Place, Silent, plan};
use blob_io::{Bytes, Checkpoint, Error, FileSource, Format, IfExists, OpenOptions, Reason, Source};
use zip::CompressionMethod::{Deflated, Stored};

use crate::support::archive::{csr, ints, npy, theirs};
use crate::support::{changed, data, find, open};

/// Changes a byte of a stored member's content.
fn with_byte(bytes: Vec<u8>, content: &[u8], at: usize, byte: u8) -> Vec<u8> {
    changed(&bytes, find(&bytes, content) + at, &[byte])
}

/// Flips a bit of a stored member's content.
fn flipped(bytes: Vec<u8>, content: &[u8], at: usize) -> Vec<u8> {
    with_byte(bytes, content, at, content[at] ^ 1)
}

/// Changes the CRC in the directory instead, for deflated content.
fn other_crc(mut bytes: Vec<u8>) -> Vec<u8> {
    let record = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    bytes[record + 16] ^= 1;
    bytes
}

/// The file opened from memory, and from disk, where nothing can be borrowed.
fn sources(bytes: &[u8]) -> Vec<Checkpoint> {
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, bytes).unwrap();
    let sources: [Box<dyn Source>; 2] =
        [Box::new(Bytes(bytes.to_vec())), Box::new(FileSource::try_from(file).unwrap())];
    sources.into_iter().map(|source| OpenOptions::new().open_source("x.npz", source).unwrap()).collect()
}

/// The error of each way to read the file's first array; `None` on success.
fn ways(file: &Checkpoint) -> [Option<Reason>; 6] {
    let entry = &file.entries()[0];
    let (dir, options) = (tempfile::tempdir().unwrap(), Options::new(Format::Safetensors));
    let path = dir.path().join("out.safetensors");
    let converted = plan(file, &options, &Place::File { path: &path, if_exists: IfExists::Refuse });
    let read = file.reader(entry).and_then(|mut reader| {
        while reader.pull(&mut [0; 100])? > 0 {}
        Ok(())
    });
    let reason = |outcome: Result<(), Error>| outcome.err().map(|e| e.reason());
    let found = [
        reason(file.load(entry).map(drop)),
        reason(file.load_pair(entry).map(drop)),
        reason(file.view(entry).map(drop)),
        reason(read),
        reason(file.check(entry, &mut |_| Ok(()))),
        reason(converted.and_then(|plan| plan.run(&Silent).map(drop))),
    ];
    assert_eq!(path.exists(), found[5].is_none());
    found
}

#[test]
fn a_wrong_bit_is_an_error_wherever_bytes_are_used() {
    let values: Vec<u8> = (0..600_000_u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let plain = npy("'<f4'", "(150000,)", &values);
    let swapped = npy("'>f4'", "(150000,)", &values);
    let columns = npy("'<f4'", "(300, 500)", &values);
    let columns = changed(&columns, find(&columns, b"False"), b"True ");
    let longer = [&plain[..], b"behind the array"].concat();
    for content in [plain, swapped, columns, longer] {
        for method in [Stored, Deflated] {
            let good = theirs(method, &[("a.npy", &content)]);
            for file in sources(&good) {
                assert_eq!(ways(&file), [None; 6]);
            }
            for file in sources(&other_crc(good)) {
                assert_eq!(ways(&file), [Some(Reason::Checksum); 6]);
            }
        }
        let good = theirs(Stored, &[("a.npy", &content)]);
        // A space of the header, the first value, one in the middle, and the last.
        let header = find(&content, b", ") + 1;
        let middle = content.len() / 2;
        for at in [content.len() - 600_000, middle, content.len() - 1] {
            for file in sources(&flipped(good.clone(), &content, at)) {
                assert_eq!(ways(&file), [Some(Reason::Checksum); 6], "{at}");
            }
        }
        let tab = with_byte(good, &content, header, b'\t');
        if let Ok(file) = open("x", &tab)
            && file.entries()[0].fault().is_none()
        {
            assert_eq!(ways(&file), [Some(Reason::Checksum); 6]);
        }
    }
}

#[test]
fn a_wrong_bit_in_a_sparse_array_is_an_error_also_when_it_is_made_dense() {
    let values = npy("'<i8'", "(3,)", &[7; 24]);
    let zip = csr(&values);
    let dense = |bytes: Vec<u8>| {
        let file = open("x.npz", &bytes).unwrap();
        let entry = &file.entries()[0];
        assert!(entry.sparse().is_some());
        file.load_dense(entry).map(drop).map_err(|e| e.reason())
    };
    assert_eq!(dense(zip.clone()), Ok(()));
    let last = values.len() - 1;
    assert_eq!(dense(flipped(zip.clone(), &values, last)), Err(Reason::Checksum));
    // An index changed from 2 to 3 is out of range; one changed within the range is detected only by the checksum.
    let columns = ints(&[0, 2, 1]);
    let at = columns.len() - 8;
    assert_eq!(dense(flipped(zip, &columns, at)), Err(Reason::Checksum));
}

#[test]
fn a_broken_deflate_stream_longer_than_declared_is_an_error() {
    let file = Checkpoint::open(data("other/broken-deflate.npz")).unwrap();
    let failed = file.entries().iter().filter(|entry| file.load(entry).is_err()).count();
    assert!(failed > 0, "of {} arrays", file.entries().len());
}

#[test]
fn a_header_that_says_wrongly_that_an_array_is_empty_is_an_error() {
    let content = npy("'<f4'", "(2, 3)", &[1; 24]);
    let two = find(&content, b"(2, 3)") + 1;
    for file in sources(&with_byte(theirs(Stored, &[("a.npy", &content)]), &content, two, b'0')) {
        assert_eq!(file.entries()[0].shape().dims(), [0, 3]);
        assert_eq!(ways(&file), [Some(Reason::Checksum); 6]);
    }
}

#[test]
fn an_array_that_is_not_read_is_compared_with_its_checksum_all_the_same() {
    let content = npy("'<f4'", "(2, 3)", &[1; 24]);
    let version = 6;
    for file in sources(&with_byte(theirs(Stored, &[("a.npy", &content)]), &content, version, 9)) {
        let entry = &file.entries()[0];
        assert_eq!(entry.fault().map(|fault| fault.reason()), Some(Reason::Unsupported));
        let checked = file.check(entry, &mut |_| Ok(()));
        assert_eq!(checked.map_err(|e| e.reason()), Err(Reason::Checksum));
    }
}
