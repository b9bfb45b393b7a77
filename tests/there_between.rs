//! Receipts of files whose data and diff lie between each other: they have no frame, and say why.

use blob_convert::Options;
use blob_io::{Checkpoint, Format};

use crate::support::open;
use crate::there_and_back::{convert, receipt};

#[test]
fn a_receipt_says_that_data_and_diff_lie_between_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = |number: u8, value: f32| [&[number << 3 | 5][..], &value.to_le_bytes()].concat();
    let shape = crate::support::message::shape(&[4]);
    let order: [&[u8]; 2] = [&[5, 6, 5, 6, 5, 6, 5, 6], &[5, 5, 6, 6, 6, 5, 5, 6]];
    let after: &[u8] = &[5, 5, 5, 5, 6, 6, 6, 6];
    for (place, (numbers, kept)) in order.iter().map(|order| (*order, false)).chain([(after, true)]).enumerate() {
        let values = numbers.iter().enumerate().flat_map(|(i, number)| key(*number, i as f32));
        let file: Vec<u8> = shape.iter().copied().chain(values).collect();
        let out = folder.path().join(format!("{place}.safetensors"));
        convert(&open("x.binaryproto", &file).expect("opens"), &Options::new(Format::Safetensors), &out).expect("fits");
        let receipt = receipt(&Checkpoint::open(&out).expect("opens"));
        assert_eq!(receipt["frame"].is_object(), kept, "{receipt}");
        let why = "values of two tensors, as data and diff, lie between each other, or share bytes";
        assert!(kept || receipt["frame_left_out"] == why, "{receipt}");
    }
}
