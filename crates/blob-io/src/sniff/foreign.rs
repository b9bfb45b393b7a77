//! Describes files that hold no tensors, or tensors in a format that this crate does not read.
//!
//! Checks a file's first bytes and its extension; leaves our own formats to `sniff`.

use crate::digits::grouped;
use crate::error::{ReadError, Reason};
use crate::wire::tar;

/// A magic: its offset, its bytes, the reason, what such a file is, what the user can do.
type Magic = (usize, &'static [u8], Reason, &'static str, Option<&'static str>);

const UNPACK: Option<&str> = Some("unpack it first and open the file inside");

/// Sources: each format's own specification or reader; for ncnn, `modelbin.cpp`.
const MAGICS: &[Magic] = &[
    (0, b"\x1F\x8B", Reason::Compressed, "a gzip file", UNPACK),
    (0, b"BZh", Reason::Compressed, "a bzip2 file", UNPACK),
    (0, b"\xFD7zXZ\0", Reason::Compressed, "an xz file", UNPACK),
    (0, b"\x28\xB5\x2F\xFD", Reason::Compressed, "a zstd file", UNPACK),
    (0, b"\x04\x22\x4D\x18", Reason::Compressed, "an LZ4 file", UNPACK),
    (0, b"7z\xBC\xAF\x27\x1C", Reason::Archive, "a 7-Zip archive", UNPACK),
    (0, b"Rar!\x1A\x07", Reason::Archive, "a RAR archive", UNPACK),
    (
        0,
        b"MATLAB 5.0 MAT-file",
        Reason::Unsupported,
        "a MATLAB file (v5), which blob does not read",
        Some("in Python, scipy.io.loadmat reads it, and numpy.savez writes what blob reads"),
    ),
    (
        0,
        b"MATLAB 7.3 MAT-file",
        Reason::Unsupported,
        "a MATLAB file (v7.3, HDF5 inside), which blob does not read",
        Some("in Python, h5py reads it, and numpy.savez writes what blob reads"),
    ),
    (
        0,
        b"\xB7\x9C\x04\x05\x4F\x8D\xE5\xF7",
        Reason::Unsupported,
        "a TVM parameter file, not MXNet's",
        Some("load it with tvm.runtime.load_param_dict"),
    ),
    (
        0,
        b"GGUF",
        Reason::Unsupported,
        "a GGUF file",
        Some("in Python, gguf.GGUFReader reads it, and numpy.savez writes what blob reads"),
    ),
    (
        4,
        b"TFL3",
        Reason::Unsupported,
        "a TensorFlow Lite model",
        Some("in Python, tf.lite.Interpreter reads it, and numpy.savez writes what blob reads"),
    ),
    (4, b"ORTM", Reason::Unsupported, "an ONNX Runtime model", Some("take the ONNX model that it was made of")),
    (0, b"\x47\x6B\x30\x01", Reason::Unsupported, "ncnn weights (a .bin of half floats)", NCNN_HELP),
    (0, b"\x38\x4B\x0D\x00", Reason::Unsupported, "ncnn weights (a .bin of 8-bit integers)", NCNN_HELP),
    (0, b"\x56\xC0\x02\x00", Reason::Unsupported, "ncnn weights (a .bin)", NCNN_HELP),
    (0, b"\x04\0\0\0\x01\0\0\0\x03\0\0\0V 1", Reason::Unsupported, "a Torch7 file (.t7)", TORCH7_HELP),
    (0, b"4\n1\n3\nV 1\n", Reason::Unsupported, "a Torch7 file (.t7, ASCII)", TORCH7_HELP),
    (
        0,
        b"\xDD\x85\x76\0",
        Reason::NotTensors,
        "an ncnn network's description (binary .param), not its weights",
        NCNN_BIN,
    ),
    (0, b"7767517\n", Reason::NotTensors, "an ncnn network's description (.param), not its weights", NCNN_BIN),
    (0, b"\x0A\x23\xD7\xCE", Reason::NotTensors, "an MXNet RecordIO file (a data set), not weights", WEIGHTS),
    (16, b"\xDE\xC0\xEF\xBE", Reason::NotTensors, "an LMDB database (a data set), not weights", WEIGHTS),
    (0, b"\x89PNG\r\n", Reason::NotTensors, "a PNG image", WEIGHTS),
    (0, b"\xFF\xD8\xFF", Reason::NotTensors, "a JPEG image", WEIGHTS),
    (0, b"GIF8", Reason::NotTensors, "a GIF image", WEIGHTS),
    (0, b"%PDF-", Reason::NotTensors, "a PDF document", WEIGHTS),
    (0, b"\x7FELF", Reason::NotTensors, "an ELF program", WEIGHTS),
    (
        0,
        b"\0\0\0\0\0\0\x01\x12",
        Reason::Unsupported,
        "an MXNet list of a big-endian machine, which MXNet itself cannot read either",
        None,
    ),
];

/// A file that never holds weights.
const WEIGHTS: Option<&str> =
    Some("look for the file of weights: a .caffemodel, .params, .cnnarch, .h5, .npz or .safetensors");
const NCNN_BIN: Option<&str> = Some("the weights lie in the .bin file beside it, which blob does not read");
const NCNN_HELP: Option<&str> = Some("the names and shapes stand in the .param file beside it");
const TORCH7_HELP: Option<&str> = Some("in Python, torchfile reads it");

/// Describes a file of `len` bytes that begins with `head`, if it is of a known format that is not read.
pub(crate) fn name(head: &[u8], len: u64, extension: Option<&str>) -> Option<ReadError> {
    let mark = MAGICS.iter().find(|(at, mark, ..)| {
        let there = head.get(*at..);
        there.is_some_and(|bytes| bytes.starts_with(mark))
    });
    if let Some((_, _, reason, what, help)) = mark {
        return Some(other(*reason, what, *help));
    }
    if tar::has_mark(head) {
        return Some(other(Reason::Archive, "a tar archive", UNPACK));
    }
    without_magic(head, len, extension).or_else(|| describe_text(head, len))
}

/// Formats without a magic, recognised by the structure of their first bytes.
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
    let usual = |word: u32| (1e-12..1e4).contains(&f32::from_bits(word).abs());
    len.is_multiple_of(4) && rest.into_iter().filter(|w| usual(*w)).count() >= 6
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

/// A server's answer in place of the file, in lower case: of Amazon's S3 and those like it, of Hugging Face, of GitHub.
fn refused_download(lower: &[u8], len: u64, has: impl Fn(&[u8]) -> bool) -> Option<String> {
    const ANSWERS: [&[u8]; 11] = [
        b"entry not found",
        b"repository not found",
        b"file not found",
        b"not found",
        b"404: not found",
        b"404 not found",
        b"403 forbidden",
        b"access denied",
        b"access to model",
        b"invalid username or password",
        b"rate limit",
    ];
    let is_xml = lower.starts_with(b"<error>") || lower.starts_with(b"<?xml") && has(b"<error>");
    let is_json = [&b"{\"error"[..], b"{ \"error", b"{\"message\":"].iter().any(|begin| lower.starts_with(begin));
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
    let printable = |b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7E | 0x80..);
    if text.is_empty() || !text.iter().all(printable) {
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

/// The description of an unknown file: text, or bytes.
pub(crate) fn unknown(head: &[u8]) -> ReadError {
    let text = head.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7E));
    if text {
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
