//! Describes files that hold no tensors, or tensors in a format that this crate does not read.
//!
//! Checks a file's first bytes and extension; leaves our own formats to `sniff`, and marks to `marks`.

use super::marks::{self, NCNN_HELP, TORCH7_HELP, UNPACK, WEIGHTS};
use crate::error::{ReadError, Reason};
use crate::wire::tar;
use crate::words::grouped;

/// Describes a file of `len` bytes that begins with `head`, if the format is known but not read.
pub(crate) fn name(head: &[u8], len: u64, extension: Option<&str>) -> Option<ReadError> {
    if let Some((reason, what, help)) = marks::foreign(head) {
        return Some(other(reason, what, help));
    }
    if tar::has_mark(head) {
        return Some(other(Reason::Archive, "a tar archive", UNPACK));
    }
    without_magic(head, len, extension).or_else(|| describe_text(head, len))
}

/// Formats without a magic, recognised by the structure of the first bytes.
fn without_magic(head: &[u8], len: u64, extension: Option<&str>) -> Option<ReadError> {
    let unsupported = |what, help| Some(other(Reason::Unsupported, what, help));
    if head.len() >= 2 && head[0] == 0x80 && (2..=5).contains(&head[1]) {
        return unsupported(
            "a Python pickle (a PyTorch checkpoint or MXNet optimizer states), which blob never reads",
            Some("a pickle can run code when it is loaded; convert it where it was made"),
        );
    }
    if darknet(head, len) {
        let help = Some("the shapes stand in the .cfg file beside it");
        return unsupported("Darknet weights (YOLO's .weights)", help);
    }
    if paddle(head) {
        return unsupported("a PaddlePaddle parameter file", None);
    }
    if torch7_table(head) {
        return unsupported("a Torch7 file (.t7)", TORCH7_HELP);
    }
    if extension.is_some_and(|e| e.eq_ignore_ascii_case("bin")) && ncnn_floats(head, len) {
        return unsupported("what looks like ncnn weights (a .bin of floats)", NCNN_HELP);
    }
    None
}

/// The first little-endian words.
fn words<const N: usize>(head: &[u8]) -> Option<[u32; N]> {
    let mut out = [0; N];
    let (words, _) = head.as_chunks::<4>();
    for (out, word) in out.iter_mut().zip(words.get(..N)?) {
        *out = u32::from_le_bytes(*word);
    }
    Some(out)
}

/// Darknet: major 0, minor 1 or 2, a small revision, a counter; then floats.
fn darknet(head: &[u8], len: u64) -> bool {
    len >= 64 && len.is_multiple_of(4) && matches!(words(head), Some([0, 1 | 2, revision]) if revision <= 16)
}

/// PaddlePaddle: a version 0, no levels of detail, a version 0, the length of a message of dtype and dims.
fn paddle(head: &[u8]) -> bool {
    let length = matches!(words(head), Some([0, 0, 0, 0, 2..=128]));
    length && head.get(20) == Some(&0x08)
}

/// Torch7: an object that is a table, with index 1, a number of pairs, and a number or a string as the first key.
fn torch7_table(head: &[u8]) -> bool {
    matches!(words(head), Some([3, 1, 1..=0xFF_FFFF, 1 | 2]))
}

/// ncnn's plain floats: a word 0, then values of usual magnitudes.
fn ncnn_floats(head: &[u8], len: u64) -> bool {
    let Some([0, rest @ ..]) = words::<9>(head) else {
        return false;
    };
    let usual = rest.into_iter().filter(|word| (1e-12..1e4).contains(&f32::from_bits(*word).abs()));
    len.is_multiple_of(4) && usual.count() >= 6
}

fn describe_text(head: &[u8], len: u64) -> Option<ReadError> {
    let text = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    let text = text.trim_ascii_start();
    let lower = text.to_ascii_lowercase();
    let has = |needle: &[u8]| lower.windows(needle.len()).any(|w| w == needle);
    if lower.starts_with(b"version https://git-lfs") {
        return Some(other(
            Reason::LfsPointer,
            "a Git LFS pointer, not the file it stands for",
            Some("fetch the real file:  git lfs pull"),
        ));
    }
    if lower.starts_with(b"<!doctype html")
        || lower.starts_with(b"<html")
        || lower.starts_with(b"<!--") && has(b"<html")
    {
        let what = format!("an HTML page, not a model ({} bytes)", grouped(len));
        let help = "a web server sent a page instead of the file; download the raw file";
        return Some(ReadError::Other(Reason::Html, what, Some(help)));
    }
    if let Some(what) = refused_download(&lower, len, has) {
        let help = "a web server sent its refusal instead of the file; check the address and the access to it";
        return Some(ReadError::Other(Reason::Html, what, Some(help)));
    }
    let (what, help) = description(text, &lower, has)?;
    Some(other(Reason::NotTensors, what, help))
}

/// A server's answer in place of the file, in lower case: of Amazon's S3 and similar servers, of Hugging Face, of
/// GitHub.
fn refused_download(lower: &[u8], len: u64, has: impl Fn(&[u8]) -> bool) -> Option<String> {
    const ANSWERS: [&[u8]; 17] = [
        b"entry not found", b"repository not found", b"file not found", b"not found", b"404: not found",
        b"404 not found", b"403 forbidden", b"access denied", b"access to model", b"invalid username or password",
        b"rate limit", b"too many requests", b"429 too many requests", b"unauthorized", b"bad gateway",
        b"service unavailable", b"internal server error",
    ];
    const KEYS: [&[u8]; 3] = [b"{\"error", b"{\"message\":", b"{\"detail\":"];
    let dense: Vec<u8> = lower.iter().copied().take(64).filter(|byte| !byte.is_ascii_whitespace()).collect();
    let is_xml = lower.starts_with(b"<error>") || lower.starts_with(b"<?xml") && has(b"<error>");
    let is_json = KEYS.iter().any(|key| dense.starts_with(key));
    let is_line = len < 512 && ANSWERS.iter().any(|answer| lower.starts_with(answer));
    let kind = match (is_xml, is_json, is_line) {
        (true, ..) => "XML",
        (_, true, _) => "JSON",
        (.., true) => "text",
        _ => return None,
    };
    Some(format!("an error message of a web server ({kind}), not a model ({} bytes)", grouped(len)))
}

/// Text that describes something other than weights.
fn description(text: &[u8], lower: &[u8], has: impl Fn(&[u8]) -> bool) -> Option<(&'static str, Option<&'static str>)> {
    if lower.starts_with(b"<?xml") && has(b"<net ") && has(b"<layers") {
        let help = Some("the weights lie in the .bin file beside it, which blob does not read");
        return Some(("an OpenVINO network's description (XML), not its weights", help));
    }
    if lower.starts_with(b"<?xml") {
        return Some(("an XML file, not a model", WEIGHTS));
    }
    if text.is_empty() || !text.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7E | 0x80..)) {
        return None;
    }
    if lower.starts_with(b"{") && (has(b"\"nodes\"") || has(b"\"arg_nodes\"")) {
        return Some((
            "an MXNet symbol.json: the network's description, not its weights",
            Some("the weights lie in the .params file beside it"),
        ));
    }
    if lower.starts_with(b"{") && has(b"\"weight_map\"") {
        return Some((
            "an index of shards: which tensor lies in which file",
            Some("open it by its path, with the shards beside it"),
        ));
    }
    if lower.starts_with(b"{") || lower.starts_with(b"[") {
        return Some(("a JSON file, not weights", WEIGHTS));
    }
    let prototxt: [&[u8]; 9] =
        [b"layer {", b"layers {", b"layer{", b"layers{", b"input:", b"input_dim:", b"input_shape", b"net:", b"base_lr"];
    if prototxt.iter().any(|word| has(word)) || lower.starts_with(b"name:") {
        return Some((
            "a prototxt: the network's description, not its weights",
            Some("the weights lie in the .caffemodel"),
        ));
    }
    None
}

/// Whether these bytes are plain text.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7E))
}

/// The description of an unknown file: text, or bytes.
pub(crate) fn unknown(head: &[u8]) -> ReadError {
    if is_text(head) {
        return other(Reason::NotTensors, "a text file, not a model", WEIGHTS);
    }
    let first: Vec<String> = head.iter().take(8).map(|b| format!("{b:02x}")).collect();
    let what = format!("of no format that blob knows (it begins with {})", first.join(" "));
    ReadError::Other(Reason::Unknown, what, None)
}

pub(crate) fn other(reason: Reason, what: &str, help: Option<&'static str>) -> ReadError {
    ReadError::Other(reason, what.to_owned(), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_a_comma_before_each_three_digits() {
        let numbers = [0, 999, 1000, 263_468, 1_000_007];
        assert_eq!(numbers.map(grouped), ["0", "999", "1,000", "263,468", "1,000,007"]);
    }
}
