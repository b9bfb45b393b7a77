//! HDF5 of h5py: every name of a dataset is listed, whatever link leads to it and in whatever encoding; what
//! leads nowhere is said. One dataset that cannot be read hides no other. The files: `data/findings/make_hdf5.py`.

use blob_io::work::measure;
use blob_io::{Bytes, Checkpoint, Entry, Kind, Limits, OpenOptions, Reason};

use crate::hdf5::values;
use crate::support::alloc::peak;
use crate::support::data;
use crate::support::hdf5::{File, floats, link, message};

fn opened(name: &str) -> Checkpoint {
    Checkpoint::open(data(&format!("findings/{name}.h5"))).unwrap_or_else(|e| panic!("{e}"))
}

fn warnings(file: &Checkpoint) -> Vec<String> {
    file.warnings().iter().map(|warning| warning.text.to_string()).collect()
}

fn ramp(count: usize) -> Vec<f64> {
    (0..count).map(|i| i as f64).collect()
}

#[test]
fn every_name_of_a_dataset_is_listed_and_links_to_nothing_are_said() {
    for name in ["links-earliest", "links-latest"] {
        let file = opened(name);
        let names: Vec<&str> = file.names().collect();
        assert_eq!(names, ["a", "a2", "e", "sa", "alias/w", "g/w", "s/w"], "{name}");
        for name in ["a", "a2", "sa"] {
            assert_eq!(values(&file, name), ramp(3));
        }
        for name in ["alias/w", "g/w", "s/w"] {
            assert_eq!(values(&file, name), ramp(2));
        }
        assert_eq!(file.entry("e").map(Entry::kind), Some(Kind::None), "h5py.Empty holds nothing");
        let said = ["links that lead to nothing are left out: d, loop", "links to other files are left out: b"];
        assert_eq!(warnings(&file), said, "{name}");
    }
}

#[test]
fn names_in_another_encoding_hide_no_array() {
    for name in ["cp1251-earliest", "cp1251-latest"] {
        let file = opened(name);
        let names: Vec<&str> = file.names().collect();
        assert_eq!(names, ["a", "z", r"\xE2\xE5\xF1", "g/w", r"\xF1\xEB\xEE\xE9/w"], "{name}");
        assert_eq!(values(&file, r"\xE2\xE5\xF1"), ramp(3));
        assert_eq!(values(&file, r"\xF1\xEB\xEE\xE9/w"), ramp(2));
    }
    let file = opened("dense");
    assert_eq!(file.entries().len(), 42);
    for i in 0..40 {
        assert_eq!(values(&file, &format!("n{i}")), [f64::from(i)]);
    }
    assert_eq!((values(&file, r"\xE2\xE5\xF1"), values(&file, "soft")), (vec![3.0], vec![1.0]));
    assert_eq!(warnings(&file), ["links to other files are left out: ext"]);
}

#[test]
fn a_virtual_dataset_is_listed_with_its_reason_beside_the_others() {
    let file = opened("virtual");
    assert_eq!((values(&file, "a"), values(&file, "z")), (ramp(3), ramp(4)));
    let fault = file.entry("v").and_then(Entry::fault).expect("a fault");
    assert_eq!(fault.reason(), Reason::Unsupported, "{fault}");
    assert!(fault.to_string().contains("a virtual dataset"), "{fault}");
}

#[test]
fn messages_that_objects_share_are_found() {
    for name in ["shared-earliest", "shared-latest"] {
        let file = opened(name);
        assert_eq!(file.names().collect::<Vec<_>>(), ["c", "w0", "w1", "w2", "w3", "w4"], "{name}");
        for i in 0..5 {
            let expected: Vec<f64> = ramp(6).iter().map(|value| value + f64::from(i)).collect();
            assert_eq!(values(&file, &format!("w{i}")), expected, "{name}");
        }
        assert_eq!(file.entry("w0").expect("listed").shape().dims(), [2, 3]);
        assert_eq!(values(&file, "c"), ramp(10));
    }
}

/// The messages of a dataset of `count` bytes in chunks of one byte, without an index, from address `at` on.
fn implicit(count: u64, at: u64) -> Vec<Vec<u8>> {
    let byte = [0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0];
    let space = [&[1, 1, 0, 0, 0, 0, 0, 0][..], &count.to_le_bytes()].concat();
    let layout = [&[4, 2, 0, 2, 1, 1, 1, 2][..], &at.to_le_bytes()].concat();
    vec![message(1, &space), message(3, &byte), message(8, &layout)]
}

/// Groups of links to `targets`, in the order of the targets, and a root above.
fn linked(mut file: File, targets: &[u64]) -> Vec<u8> {
    // A header has at most 72 KiB.
    let groups: Vec<u64> = targets
        .chunks(1000)
        .map(|targets| {
            let links: Vec<Vec<u8>> = targets.iter().enumerate().map(|(i, to)| link(&format!("{i:x}"), *to)).collect();
            file.object(&links)
        })
        .collect();
    let links: Vec<Vec<u8>> = groups.iter().enumerate().map(|(i, to)| link(&format!("{i:x}"), *to)).collect();
    let root = file.object(&links);
    file.finish(root)
}

/// Hard links to one dataset of many chunks, which no byte of an index pays for.
pub(crate) fn links_to_chunks(size: usize) -> Vec<u8> {
    let mut file = File::new();
    let count = (size / 2).min(60_000) as u64;
    let at = file.add(&vec![7; count as usize]);
    let dataset = file.object(&implicit(count, at));
    linked(file, &vec![dataset; size / 2 / 30])
}

/// Datasets of their own, each of all chunks.
pub(crate) fn datasets_of_chunks(size: usize) -> Vec<u8> {
    let mut file = File::new();
    let count = (size / 2).min(60_000) as u64;
    let at = file.add(&vec![7; count as usize]);
    let datasets: Vec<u64> = (0..size / 2 / 150).map(|_| file.object(&implicit(count, at))).collect();
    linked(file, &datasets)
}

/// Layers of 60 groups, each of which contains all groups of the layer below: every layer has 60 times the paths.
pub(crate) fn groups_of_groups(size: usize) -> Vec<u8> {
    let mut file = File::new();
    let at = file.add(&[0; 8]);
    let mut below = vec![file.object(&floats(at)); 60];
    while file.0.len() < size {
        let links: Vec<Vec<u8>> = below.iter().enumerate().map(|(i, to)| link(&format!("{i:x}"), *to)).collect();
        below = (0..60).map(|_| file.object(&links)).collect();
    }
    let root = below[0];
    file.finish(root)
}

/// Soft links through each other.
pub(crate) fn soft_links(size: usize) -> Vec<u8> {
    let mut file = File::new();
    let at = file.add(&[0; 8]);
    let dataset = file.object(&floats(at));
    let each = size / 70 / 700 + 1;
    let groups = (0..each).map(|_| {
        let first = link("0", dataset);
        let rest = (1..700).map(|i| {
            let (name, to) = (format!("{i}"), format!("{}{}", "./".repeat(10), i - 1));
            let (name_len, to_len) = (name.len() as u8, (to.len() as u16).to_le_bytes());
            message(6, &[&[1, 8, 1, name_len], name.as_bytes(), &to_len, to.as_bytes()].concat())
        });
        let links: Vec<Vec<u8>> = std::iter::once(first).chain(rest).collect();
        file.object(&links)
    });
    let groups: Vec<u64> = groups.collect();
    linked(file, &groups)
}

/// Text attributes of the root, all in one heap of many values.
pub(crate) fn texts_in_one_heap(size: usize) -> Vec<u8> {
    let mut file = File::new();
    let values = size / 24;
    let mut heap = [b"GCOL\x01\0\0\0", &(16 + 24 * values as u64).to_le_bytes()[..]].concat();
    for index in 1..=values as u64 {
        heap.extend([(index as u16).max(1).to_le_bytes(), [1, 0], [0; 2], [0; 2]].concat());
        heap.extend(2_u64.to_le_bytes());
        heap.extend(b"ok\0\0\0\0\0\0");
    }
    let heap = file.add(&heap);
    let text = [0x19, 1, 0, 0, 16, 0, 0, 0, 0x13, 0, 0, 0, 1, 0, 0, 0];
    let attributes = (0..900).map(|i: u32| {
        let reference = [&2_u32.to_le_bytes()[..], &heap.to_le_bytes(), &(3001 + i).to_le_bytes()].concat();
        let name = format!("{i:07}\0");
        let sizes = [8_u16, text.len() as u16, 8].map(u16::to_le_bytes).concat();
        let head = [&[1, 0][..], &sizes, name.as_bytes(), &text, &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
        message(12, &[head, reference].concat())
    });
    let attributes: Vec<Vec<u8>> = attributes.collect();
    let root = file.object(&attributes);
    file.finish(root)
}

#[test]
fn many_texts_in_one_heap_are_found_in_one_walk() {
    let bytes = texts_in_one_heap(4000 * 24);
    let len = bytes.len() as u64;
    let (file, work) = measure(|| Checkpoint::from_bytes("x.h5", bytes).expect("opens"));
    assert_eq!(file.metadata().len(), 900);
    assert!(file.metadata().iter().all(|(_, text)| text == "ok"), "{:?}", file.metadata());
    assert!(work.sum() < 8 * len, "{work:?} for {len} bytes");
}

#[test]
pub(crate) fn many_names_of_one_dataset_share_its_chunks() {
    let bytes = links_to_chunks(130_000);
    let mut opened = None;
    let used = peak(|| opened = Some(Checkpoint::from_bytes("x.h5", bytes).expect("opens")));
    let file = opened.expect("opened");
    assert_eq!(file.entries().len(), 130_000 / 60);
    assert!(used < 16 << 20, "{used}");
    assert_eq!(values(&file, "0/0"), vec![7.0; 60_000]);
    // Reading all 2,166 names would take minutes, for a file of 130 KB.
    let most = (file.file_len() + 64 * 65_536) / 60_000;
    let refused: Vec<String> = file.entries().iter().filter_map(Entry::fault).map(ToString::to_string).collect();
    assert_eq!(refused.len() as u64, 130_000 / 60 - most);
    assert!(refused.iter().all(|why| why.contains("the chunks of all arrays up to this one")), "{:?}", refused[0]);
    // As many datasets of their own are too many lists.
    let file = Checkpoint::from_bytes("x.h5", datasets_of_chunks(130_000)).expect("opens");
    let faults: Vec<_> = file.entries().iter().filter_map(Entry::fault).collect();
    let last = faults.last().expect("too many chunks").to_string();
    assert!(last.contains("the number of chunks of all datasets"), "{last}");
    assert_eq!(values(&file, "0/0"), vec![7.0; 60_000], "the first ones are within the limit");
}

#[test]
pub(crate) fn what_was_never_written_is_bounded_over_all_names() {
    // A dataset of 1 GiB, two floats less, at no address.
    let mut file = File::new();
    let mut messages = floats(u64::MAX);
    let count = (1_u64 << 28) - 2;
    messages[0] = message(1, &[&[1, 1, 0, 0, 0, 0, 0, 0][..], &count.to_le_bytes()].concat());
    messages[2] = message(8, &[&[3, 1][..], &u64::MAX.to_le_bytes(), &(4 * count).to_le_bytes()].concat());
    let dataset = file.object(&messages);
    let bytes = linked(file, &[dataset; 2000]);
    let total = |max_alloc| {
        let limits = Limits { max_alloc, ..Limits::default() };
        let source = Box::new(Bytes(bytes.clone()));
        let file = OpenOptions::new().limits(limits).open_source("x.h5", source).expect("opens");
        let sound = file.entries().iter().filter(|entry| entry.fault().is_none()).count();
        let fault = file.entries().last().and_then(Entry::fault).cloned();
        (sound, file.entries().iter().map(Entry::byte_len).sum::<u64>(), fault)
    };
    let (sound, sum, fault) = total(Limits::default().max_alloc);
    assert_eq!((sound, sum), (1, 4 * count));
    let fault = fault.expect("the others are too much");
    assert_eq!(fault.reason(), Reason::Limit, "{fault}");
    assert!(fault.to_string().contains("the bytes of all arrays up to this one"), "{fault}");
    assert_eq!(total(1 << 33).0, 8, "the limit can be raised");
}

#[test]
pub(crate) fn sums_of_sizes_never_wrap() {
    // Five datasets of 4 EiB.
    let mut file = File::new();
    let count = 1_u64 << 60;
    let mut messages = floats(u64::MAX);
    messages[0] = message(1, &[&[1, 1, 0, 0, 0, 0, 0, 0][..], &count.to_le_bytes()].concat());
    messages[2] = message(8, &[&[3, 1][..], &u64::MAX.to_le_bytes(), &(4 * count).to_le_bytes()].concat());
    let datasets: Vec<u64> = (0..5).map(|_| file.object(&messages)).collect();
    let bytes = linked(file, &datasets);
    for max_alloc in [1 << 30, u64::MAX] {
        let limits = Limits { max_alloc, ..Limits::default() };
        let source = Box::new(Bytes(bytes.clone()));
        let file = OpenOptions::new().limits(limits).open_source("x.h5", source).expect("opens");
        assert_eq!(file.entries().len(), 5);
        let sum = file.entries().iter().try_fold(0, |sum: u64, entry| sum.checked_add(entry.byte_len()));
        assert!(sum.is_some(), "{max_alloc}");
    }
}
