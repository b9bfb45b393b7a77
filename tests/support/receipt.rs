//! Reads receipts, replaces the receipt of a file, and encodes and decodes the frames in a receipt.

use std::io::{Read, Write};

use blob_convert::RECEIPT_KEY;
use blob_io::{Checkpoint, Format, IfExists, Writer};
use serde_json::Value;

use super::open;

/// The receipt of an open file.
pub(crate) fn receipt(file: &Checkpoint) -> Value {
    let (_, text) = file.metadata().iter().find(|(key, _)| key == RECEIPT_KEY).expect("a receipt");
    serde_json::from_str(text).expect("JSON")
}

/// The safetensors file with this receipt instead of its own. The tensor `without` is left out, and the first tensor is
/// added once more under the name `extra`.
pub(crate) fn with_receipt(bytes: &[u8], receipt: &Value, without: &str, extra: Option<&str>) -> Vec<u8> {
    with_receipt_text(bytes, receipt.to_string(), without, extra)
}

/// As [`with_receipt`], with a text that may be spelled otherwise.
pub(crate) fn with_receipt_text(bytes: &[u8], receipt: String, without: &str, extra: Option<&str>) -> Vec<u8> {
    let (file, folder) = (open("x.safetensors", bytes).expect("opens"), tempfile::tempdir().expect("a folder"));
    let kept = file.entries().iter().filter(|entry| entry.name() != without);
    let tensors: Vec<_> = kept.map(|entry| (entry.name(), file.tensor(entry).expect("a tensor"))).collect();
    let writer = Writer::new(Format::Safetensors).metadata(RECEIPT_KEY, receipt);
    let all = tensors.iter().map(|(name, tensor)| (*name, tensor)).chain(extra.map(|name| (name, &tensors[0].1)));
    let writer = all.fold(writer, |writer, (name, tensor)| writer.tensor(name, tensor));
    let path = folder.path().join("x");
    writer.write(&path, IfExists::Refuse).expect("written");
    std::fs::read(&path).expect("readable")
}

/// Bytes as a receipt stores them, deflated and in base64. Computes base64 bit by bit, as an oracle.
pub(crate) fn deflated(bytes: &[u8]) -> String {
    let mut packed = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).expect("memory");
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let packed = packed.finish().expect("memory");
    let bits: Vec<bool> = packed.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect();
    let text = bits.chunks(6).map(|six| {
        char::from(DIGITS[(0..6).fold(0, |value, i| value * 2 + usize::from(six.get(i).copied().unwrap_or(false)))])
    });
    let mut text: String = text.collect();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

/// The reverse of [`deflated`].
pub(crate) fn inflated(text: &str) -> Vec<u8> {
    let bits = text
        .chars()
        .filter_map(|c| match c {
            'A'..='Z' => Some(c as u8 - b'A'),
            'a'..='z' => Some(c as u8 - b'a' + 26),
            '0'..='9' => Some(c as u8 - b'0' + 52),
            '+' => Some(62),
            '/' => Some(63),
            _ => None,
        })
        .flat_map(|six| (0..6).rev().map(move |bit| six >> bit & 1));
    let bits: Vec<u8> = bits.collect();
    let packed: Vec<u8> = bits.chunks_exact(8).map(|eight| eight.iter().fold(0, |byte, bit| byte * 2 + bit)).collect();
    let mut bytes = Vec::new();
    flate2::read::DeflateDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("a stream");
    bytes
}
