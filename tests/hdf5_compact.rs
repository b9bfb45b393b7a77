//! HDF5's compact datasets, whose values are in the object header: from h5py, of maximum length, and with false
//! lengths.

use blob_io::{Bytes, Entry, Limits, OpenOptions, Reason};

use crate::hdf5::values;
use crate::support::hdf5::{File, floats, link, message};
use crate::support::{changed, data, find, open};

#[test]
fn compact_values_are_those_that_h5py_wrote() {
    for version in ["earliest", "latest"] {
        let bytes = std::fs::read(data(&format!("hdf5/compact-{version}.h5"))).expect("readable");
        let file = open("x.h5", &bytes).expect("opens");
        let ramps = [("floats", 6), ("swapped", 6), ("times", 7), ("ordered", 5), ("phases", 4), ("long", 300)];
        for (name, count) in ramps {
            let ramp: Vec<f64> = (0..count).map(|i| f64::from(i * 7 % 251)).collect();
            assert_eq!(values(&file, name), ramp, "{version} {name}");
        }
        assert_eq!((values(&file, "scalar"), file.entries().len()), (vec![2.5], 8));
        assert_eq!(file.entry("swapped").expect("listed").shape().dims(), [3, 1, 2]);
        // The values are read at the offset in the file.
        let at = file.entry("long").and_then(Entry::offset).expect("a place") as usize;
        let wanted: Vec<u8> = (0..300_u32).map(|i| (i * 7 % 251) as u8).collect();
        assert!(bytes[at..at + 300] == wanted);
    }
}

/// A file of one dataset `x` with these messages.
fn file(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut file = File::new();
    let dataset = file.object(messages);
    let root = file.object(&[link("x", dataset)]);
    file.finish(root)
}

/// A layout message with these values, which declares `len` bytes.
fn layout(len: u16, values: &[u8]) -> Vec<u8> {
    message(8, &[&[3, 0][..], &len.to_le_bytes(), values].concat())
}

/// The messages of a dataset of `count` floats, without the layout.
fn described(count: u64) -> Vec<Vec<u8>> {
    let space = [&[1, 1, 0, 0, 0, 0, 0, 0][..], &count.to_le_bytes()].concat();
    vec![message(1, &space), floats(0).swap_remove(1)]
}

#[test]
fn the_longest_compact_values_are_read() {
    // A message has at most 65,535 bytes, and of version 1 a multiple of eight.
    let count = (65_528 - 4) / 4;
    let floats: Vec<u8> = (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let whole = [described(count), vec![layout(floats.len() as u16, &floats)]].concat();
    let wanted: Vec<f64> = (0..count).map(|i| i as f64).collect();
    assert_eq!(values(&open("x.h5", &file(&whole)).expect("opens"), "x"), wanted);
}

#[test]
fn compact_values_are_found_behind_a_continuation() {
    let mut made = File::new();
    let later = layout(8, &[0, 0, 128, 63, 0, 0, 0, 64]);
    let at = made.add(&later);
    let to = [at.to_le_bytes(), (later.len() as u64).to_le_bytes()].concat();
    let dataset = made.object(&[described(2), vec![message(16, &to)]].concat());
    let root = made.object(&[link("x", dataset)]);
    assert_eq!(values(&open("x.h5", &made.finish(root)).expect("opens"), "x"), [1.0, 2.0]);
}

#[test]
fn compact_lengths_that_lie_are_faults() {
    let two = [0, 0, 128, 63, 0, 0, 0, 64];
    for (count, len, reason) in [(2, 7, Reason::Malformed), (2, 12, Reason::Malformed), (3, 8, Reason::Malformed)] {
        let bytes = file(&[described(count), vec![layout(len, &two)]].concat());
        let fault = open("x.h5", &bytes).map(|file| file.entry("x").and_then(Entry::fault).cloned());
        let fault = fault.expect("opens").unwrap_or_else(|| panic!("{count} {len}: no fault"));
        assert_eq!(fault.reason(), reason, "{fault}");
    }
    // A length beyond the message, the header and the file.
    let good = file(&[described(2), vec![layout(8, &two)]].concat());
    let at = find(&good, &[&[3, 0, 8, 0][..], &two].concat());
    let file = open("x.h5", &changed(&good, at + 2, &[255, 255])).expect("opens");
    let fault = file.entry("x").and_then(Entry::fault).expect("a fault").to_string();
    assert!(fault.contains("need 65535 bytes"), "{fault}");
    // Truncated and changed files give errors or other values.
    let options = OpenOptions::new().limits(Limits { max_alloc: 1 << 20, ..Limits::default() });
    for version in ["earliest", "latest"] {
        let bytes = std::fs::read(data(&format!("hdf5/compact-{version}.h5"))).expect("readable");
        for at in (0..bytes.len()).step_by(3) {
            for bytes in [bytes[..at].to_vec(), changed(&bytes, at, &[bytes[at] ^ 0xFF])] {
                let Ok(file) = options.open_source("x.h5", Box::new(Bytes(bytes))) else { continue };
                file.entries().iter().for_each(|entry| drop(file.load(entry)));
            }
        }
    }
}
