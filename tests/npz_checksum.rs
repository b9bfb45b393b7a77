//! The checksums of an npz: one wrong bit anywhere in a member's content is detected, and so is a wrong end of a
//! deflate stream.

use blob_convert::Silent;
use blob_convert::verify::{self, Remark};
use blob_io::{Bytes, Checkpoint, Error, Limits, OpenOptions};
use zip::CompressionMethod::{Deflated, Stored};

use crate::support::archive::{Zip, ints, npy, npy_of, theirs};
use crate::support::{changed, data, files, find, open};

/// The findings of `verify` for a file's arrays: name and message.
fn findings(bytes: &[u8]) -> Vec<(String, String)> {
    let file = open("x.npz", bytes).expect("opens");
    let mut found = Vec::new();
    verify::arrays(&file, &Silent, &mut |remark| {
        if let Remark::Finding(f) = remark {
            let place = f.offset.map(|at| format!("at byte {at}: ")).unwrap_or_default();
            found.push((f.tensor.to_owned(), place + &f.message));
        }
    })
    .expect("can be read");
    found
}

#[test]
fn goldens_have_their_checksums() {
    for path in files(&data("mxnet/golden/mxnet-2.0.0beta1/npz"), |n| n.ends_with(".npz")) {
        let file = Checkpoint::open(&path).unwrap();
        assert!(file.entries().iter().any(|e| e.checked_len().is_some()));
        verify::arrays(&file, &Silent, &mut |found| panic!("{found:?}")).unwrap();
    }
}

#[test]
fn a_bit_in_a_stored_member_is_found() {
    let content = npy("'|u1'", "(700000,)", &[5; 700_000]);
    let bytes = theirs(Stored, &[("a.npy", &ints(&[1, 2])), ("b.npy", &content)]);
    assert_eq!(findings(&bytes), []);
    let begin = find(&bytes, &content);
    // The header, the first value, the last one.
    for at in [find(&content, b", }"), content.len() - 700_000, content.len() - 1] {
        let mut broken = bytes.clone();
        if at < 100 {
            // The header stays valid: a comma and a space are swapped.
            broken[begin + at..begin + at + 2].copy_from_slice(b" ,")
        } else {
            broken[begin + at] ^= 1
        }
        let (name, message) = findings(&broken).remove(0);
        let expected = crc32fast::hash(&content);
        let found = crc32fast::hash(&broken[begin..begin + content.len()]);
        assert_eq!(name, "b");
        assert_eq!(
            message,
            format!(
                "at byte {begin}: expected a member of the CRC-32 in the zip's directory, found one of {found:#010x} in place of {expected:#010x}"
            )
        );
    }
}

#[test]
fn a_deflated_member_ends_where_the_zip_says() {
    let content = npy("'|u1'", "(700000,)", &[5; 700_000]);
    let bytes = theirs(Deflated, &[("b.npy", &content)]);
    assert_eq!(findings(&bytes), []);
    // The central directory: CRC, packed size, size.
    let record = find(&bytes, b"PK\x01\x02");
    let packed = u32::from_le_bytes(bytes[record + 20..record + 24].try_into().unwrap());
    let with = |at: usize, number: u32| {
        let (name, message) = findings(&changed(&bytes, record + at, &number.to_le_bytes())).remove(0);
        assert_eq!(name, "b");
        message
    };
    assert!(with(16, 1).ends_with("in place of 0x00000001"));
    assert!(with(20, packed - 1).contains("a deflate stream that ends within the member"));
    let size = content.len() as u32;
    assert!(with(24, size + 1).ends_with(&format!("the member's length: expected {}, found {size}", size + 1)));
    // The member's size includes one byte more than the stream, from the data behind.
    let mut longer = bytes.clone();
    longer.insert(record, 0);
    let end = longer.len() - 6;
    longer[record + 21..record + 25].copy_from_slice(&(packed + 1).to_le_bytes());
    longer[end..end + 4].copy_from_slice(&(record as u32 + 1).to_le_bytes());
    let (_, message) = findings(&longer).remove(0);
    assert!(
        message.ends_with(&format!("the deflate stream's length: expected {}, found {packed}", packed + 1)),
        "{message}"
    );
}

#[test]
fn the_parts_of_sparse_arrays_are_checked() {
    let format =
        npy("'<U10'", "()", "row_sparse".chars().flat_map(|c| [c as u8, 0, 0, 0]).collect::<Vec<_>>().as_slice());
    let members: [(&str, &[u8]); 4] = [
        ("e/data.npy", &npy("'|u1'", "(2, 3)", b"valued")),
        ("e/indices.npy", &ints(&[1, 4])),
        ("e/shape.npy", &ints(&[10, 3])),
        ("e/format.npy", &format),
    ];
    let bytes = theirs(Stored, &members);
    assert_eq!(findings(&bytes), []);
    for (member, name) in [(0, "e#values"), (1, "e#indices"), (2, "e/shape"), (3, "e/format")] {
        let (_, content) = members[member];
        let last = find(&bytes, content) + content.len() - if member == 0 { 1 } else { 8 };
        let found = findings(&changed(&bytes, last, &[bytes[last] ^ 2]));
        assert!(found.iter().any(|(n, _)| n == name), "{name}: {found:?}");
    }
}

#[test]
fn a_damaged_note_is_not_taken_for_what_it_was() {
    let mut bytes = Zip::default().add("a.npy", &ints(&[1])).add("note.txt", b"eleven").end();
    assert_eq!(open("x.npz", &bytes).unwrap().metadata().len(), 1);
    let at = find(&bytes, b"eleven");
    bytes[at] = b'E';
    let file = open("x.npz", &bytes).unwrap();
    assert_eq!(file.metadata()[0], ("members without arrays".to_owned(), "note.txt".to_owned()));
    assert_eq!(file.warnings()[0].text, "a note in the archive cannot be read");
}

/// A zip archive with an npy whose header has this length, deflated to about a hundred bytes.
fn blanks(header: usize) -> Vec<u8> {
    let dict = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}";
    npy_of(1, &format!("{dict:width$}", width = header - 10), &[9])
}

#[test]
fn deflated_headers_are_bounded_one_by_one_and_together() {
    let over = theirs(Deflated, &[("a.npy", &blanks(10_241))]);
    let fault = open("x.npz", &over).unwrap().entries()[0].fault().unwrap().to_string();
    assert!(fault.ends_with("the length of a deflated header: expected at most 10240, found 10241"), "{fault}");
    let stored = theirs(Stored, &[("a.npy", &blanks(10_241))]);
    assert!(open("x.npz", &stored).unwrap().entries()[0].fault().is_none());
    let content = blanks(10_240);
    let two = theirs(Deflated, &[("a.npy", &content), ("b.npy", &content)]);
    for (most, faults) in [(20_480, 0), (20_479, 1), (10_239, 2)] {
        let limits = Limits { max_alloc: most, ..Limits::default() };
        let source = Box::new(Bytes(two.clone()));
        let file = OpenOptions::new().limits(limits).open_source("x.npz", source);
        let file = file.unwrap();
        let with = file.entries().iter().filter(|e| e.fault().is_some());
        assert_eq!(with.count(), faults, "{most}");
    }
}

#[test]
fn a_check_stops_where_its_step_says() {
    let bytes = theirs(Deflated, &[("a.npy", &npy("'|u1'", "(4000000,)", &[5; 4_000_000]))]);
    let file = open("x.npz", &bytes).unwrap();
    let mut seen = 0;
    let outcome = file.check(&file.entries()[0], &mut |len| {
        seen += len;
        Err(Error::Interrupted)
    });
    assert!(matches!(outcome, Err(Error::Interrupted)));
    assert!((1..1 << 20).contains(&seen), "{seen}");
}
