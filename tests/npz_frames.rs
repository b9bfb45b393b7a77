//! Receipts whose frame is a crafted npz: a restoration puts the tensors into the frame, or writes the npz anew.

use blob_convert::{Options, RECEIPT_KEY};
use blob_core::{AnyBlob, DType, Shape};
use blob_io::{Checkpoint, Format, IfExists, Writer};
use serde_json::json;

use crate::support::archive::npy;
use crate::support::receipt::deflated;
use crate::there_and_back::{convert, read};

/// A member of a zip: name, the bytes of extra fields in the local header, checksum, content, and the size
/// that the directory declares.
struct Member<'a> {
    name: &'a str,
    extra: usize,
    crc: u32,
    content: &'a [u8],
    size: usize,
}

/// A zip of these members, each with the flag of a descriptor after the content.
fn zip(members: &[Member<'_>]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for member in members {
        let local = file.len() as u32;
        let (size, name) = (member.size as u32, member.name.len() as u16);
        let common = |extra: usize| {
            let mut fields =
                [&20_u16.to_le_bytes()[..], &8_u16.to_le_bytes(), &[0; 6], &member.crc.to_le_bytes()].concat();
            fields.extend([size.to_le_bytes(), size.to_le_bytes()].concat());
            fields.extend([name.to_le_bytes(), (extra as u16).to_le_bytes()].concat());
            fields
        };
        file.extend([&b"PK\x03\x04"[..], &common(member.extra), member.name.as_bytes()].concat());
        file.resize(file.len() + member.extra, 0);
        file.extend(member.content);
        directory.extend([&b"PK\x01\x02"[..], &20_u16.to_le_bytes(), &common(0), &[0; 10]].concat());
        directory.extend([&local.to_le_bytes()[..], member.name.as_bytes()].concat());
    }
    let (at, len, count) = (file.len() as u32, directory.len() as u32, members.len() as u16);
    file.extend(directory);
    file.extend([&b"PK\x05\x06"[..], &[0; 4], &count.to_le_bytes(), &count.to_le_bytes()].concat());
    file.extend([&len.to_le_bytes()[..], &at.to_le_bytes(), &[0; 2]].concat());
    file
}

/// Restores a file by a frame of this npz, whose first hole has 4 bytes and whose second has 32. Returns the file and
/// the notes.
fn back(npz: &[u8], holes: [usize; 2]) -> (Checkpoint, Vec<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = [&npz[..holes[0]], &npz[holes[0] + 4..holes[1]], &npz[holes[1] + 32..]].concat();
    let frame = json!({
        "format": "npz", "bytes": npz.len(), "holes": [[holes[0], 4], [holes[1], 32]],
        "blake3": blake3::hash(&kept).to_hex().as_str(), "deflate": deflated(&kept),
    });
    let values =
        [vec![1_f32], vec![8.0; 8]].map(|values| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    let whole =
        [&npz[..holes[0]], &values[0], &npz[holes[0] + 4..holes[1]], &values[1], &npz[holes[1] + 32..]].concat();
    let source = json!({
        "name": "x.npz", "bytes": npz.len(), "format": "npz", "blake3": blake3::hash(&whole).to_hex().as_str(),
    });
    let blobs = [1_usize, 8].map(|count| {
        let mut blob = AnyBlob::new(Shape::new([count]).expect("fits"), DType::F32).expect("a blob");
        blob.data_mut().elements::<f32>().expect("floats").fill(count as f32);
        blob
    });
    let writer =
        Writer::new(Format::Safetensors).metadata(RECEIPT_KEY, json!({"frame": frame, "source": source}).to_string());
    let (carrier, out) = (folder.path().join("x.safetensors"), folder.path().join("x.npz"));
    writer.tensor("a", &blobs[0]).tensor("b", &blobs[1]).write(&carrier, IfExists::Refuse).expect("written");
    let notes = convert(&Checkpoint::open(&carrier).expect("opens"), &Options::new(Format::Npz), &out);
    (Checkpoint::from_bytes("x.npz", read(&out)).expect("opens"), notes.expect("converts"))
}

fn holds_the_tensors(file: &Checkpoint) {
    for (name, count) in [("a", 1), ("b", 8)] {
        let loaded = file.load(file.entry(name).expect(name)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(*loaded.data().elements::<f32>().expect("floats"), vec![count as f32; count]);
    }
}

#[test]
fn a_frame_of_members_that_share_bytes_is_not_used() {
    let (a, b) = (npy("'<f4'", "(1,)", &[0; 4]), npy("'<f4'", "(8,)", &[0; 32]));
    // By the directory, the first member's content ends inside the second one's values, where the descriptor would be.
    let extra = a.len() + 64;
    let second = 35 + extra + a.len();
    let size = second + 35 + b.len() - 28 - (35 + extra);
    let members = [
        Member { name: "a.npy", extra, crc: 0, content: &a, size },
        Member { name: "b.npy", extra: 0, crc: 0, content: &b, size: b.len() },
    ];
    let (file, notes) = back(&zip(&members), [second - 4, second + 35 + b.len() - 32]);
    let why = "it holds more than the tensors of the file";
    let anew = format!("the npz is written anew; the receipt's original bytes are not reused: {why}");
    assert_eq!(notes, [&*anew, "the way back will not give the same bytes: the receipt's frame makes no file"]);
    holds_the_tensors(&file);
}

#[test]
fn the_next_member_is_no_descriptor() {
    let (a, b) = (npy("'<f4'", "(1,)", &[0; 4]), npy("'<f4'", "(8,)", &[0; 32]));
    // The checksum is that of the zeros, or by chance equals the magic number of the next header.
    for crc in [crc32fast::hash(&a), 0x0403_4B50] {
        let members = [
            Member { name: "a.npy", extra: 0, crc, content: &a, size: a.len() },
            Member { name: "b.npy", extra: 0, crc: 0, content: &b, size: b.len() },
        ];
        let second = 35 + a.len();
        let (file, notes) = back(&zip(&members), [second - 4, second + 35 + b.len() - 32]);
        assert_eq!(notes, [""; 0]);
        holds_the_tensors(&file);
    }
}
