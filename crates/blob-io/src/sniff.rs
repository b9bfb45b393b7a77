//! What a file really is: by its content, then by its name; and the reader that fits.
//!
//! Files that hold no tensors, or tensors in a format that this crate does not read, get a word for what they are.

use crate::caffe;
use crate::cursor::Cursor;
use crate::error::{Fault, Stop};
use crate::format::Format;
use crate::mxnet;
use crate::names::Gather;
use crate::source::Source;
use crate::{npy, npz, safetensors};

/// Why a file was not read: broken (with the layer concerned), or something else (with what to do).
#[derive(Debug)]
pub(crate) enum Refusal {
    Stop(Stop, Option<String>),
    Other(String, Option<&'static str>),
}

impl From<Stop> for Refusal {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop, None)
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Stop(fault.into(), None)
    }
}

/// Reads the headers of a file into `gather`; returns its format and its dialect.
pub(crate) fn read(
    source: &dyn Source,
    name: &str,
    from: Option<Format>,
    gather: &mut Gather,
) -> Result<(Format, String), Refusal> {
    let mut cursor = Cursor::new(source);
    let format = match from {
        Some(format) => format,
        None => detect(source, &mut cursor, name)?,
    };
    cursor.seek(0);
    let dialect = match format {
        Format::CaffeModel => caffe::read::net(&mut cursor, gather)?,
        Format::BlobProto => caffe::read::blob(&mut cursor, gather)?,
        Format::BlobProtoVector => caffe::read::vector(&mut cursor, gather)?,
        Format::SolverState => caffe::read::solver(&mut cursor, gather)?,
        Format::Datum => caffe::read::datum(&mut cursor, gather)?,
        Format::MxnetList => mxnet::read::list(&mut cursor, gather)?,
        Format::MxnetRecord => mxnet::read::record(&mut cursor, gather)?,
        Format::Npy => npy::read::read(&mut cursor, gather)?,
        Format::Npz => npz::read::read(source, &mut cursor, gather)?,
        Format::Safetensors => safetensors::read::read(&mut cursor, gather)?,
    };
    Ok((format, dialect))
}

/// How much of a file's beginning tells what it is: a tar's mark lies at byte 257, HTML may follow a comment.
const HEAD: u64 = 1024;

fn detect(source: &dyn Source, cursor: &mut Cursor<'_>, name: &str) -> Result<Format, Refusal> {
    let len = source.len();
    if len == 0 {
        return Err(other(
            "empty (0 bytes)",
            Some("the download or the copy failed; fetch the file again"),
        ));
    }
    let mut head = vec![0; len.min(HEAD) as usize];
    source.read_at(0, &mut head).map_err(|source| {
        let offset = 0;
        Refusal::Stop(Stop::Io { offset, source }, None)
    })?;
    if let Some(format) = magic(&head) {
        return Ok(format);
    }
    if let Some(what) = foreign(&head, len) {
        return Err(what);
    }
    let hint = extension(name).and_then(|e| Format::from_extension(&e));
    if let Some(format) = caffe::classify::classify(cursor, hint)? {
        return Ok(format);
    }
    if onnx(&head) {
        return Err(other("an ONNX model", Some("open it with onnx or Netron")));
    }
    // A name that promises a format gets that format's own account of what is wrong.
    match hint {
        Some(format) => Ok(format),
        None => Err(unknown(&head)),
    }
}

/// The formats of ours that begin with a mark of their own.
fn magic(head: &[u8]) -> Option<Format> {
    let word = head.first_chunk::<4>().map(|b| u32::from_le_bytes(*b));
    let long = head.first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
    // Four bytes of it are enough in a file that ends there: as protobuf they would be broken.
    let list = 0x112u64.to_le_bytes();
    if long == Some(0x112) || (4..8).contains(&head.len()) && list.starts_with(head) {
        return Some(Format::MxnetList);
    }
    if word.is_some_and(|w| (0xF993_FAC8..=0xF993_FACA).contains(&w)) {
        return Some(Format::MxnetRecord);
    }
    if head.starts_with(b"\x93NUMPY") {
        return Some(Format::Npy);
    }
    // An archive is an npz until its members say otherwise.
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        return Some(Format::Npz);
    }
    let json = |text: &[u8]| matches!(text, [b'{', b'"' | b'}' | b' ' | b'\t' | b'\r' | b'\n', ..]);
    if long.is_some_and(|n| n <= 100 << 20) && json(&head[8..]) {
        return Some(Format::Safetensors);
    }
    None
}

/// Files of other kinds that people hand to a tensor tool.
fn foreign(head: &[u8], len: u64) -> Option<Refusal> {
    binary(head).or_else(|| textual(head, len))
}

fn binary(head: &[u8]) -> Option<Refusal> {
    const UNPACK: Option<&str> = Some("unpack it first and open the file inside");
    let marks: &[(&[u8], &str, Option<&'static str>)] = &[
        (b"\x1F\x8B", "a gzip file", UNPACK),
        (b"BZh", "a bzip2 file", UNPACK),
        (b"\xFD7zXZ\0", "an xz file", UNPACK),
        (b"7z\xBC\xAF\x27\x1C", "a 7-Zip archive", UNPACK),
        (b"Rar!\x1A\x07", "a RAR archive", UNPACK),
        (b"\x28\xB5\x2F\xFD", "a zstd file", UNPACK),
        (
            b"\x89HDF\r\n\x1A\n",
            "an HDF5 file (Caffe's .caffemodel.h5 is one), which blob does not read yet",
            Some("h5dump shows it; Caffe's classic .caffemodel holds the same weights"),
        ),
        (
            b"\xB7\x9C\x04\x05\x4F\x8D\xE5\xF7",
            "a TVM parameter file, not MXNet's",
            Some("load it with tvm.runtime.load_param_dict"),
        ),
        (
            b"\x0A\x23\xD7\xCE",
            "an MXNet RecordIO file (a data set), not weights",
            None,
        ),
        (b"GGUF", "a GGUF file", None),
        (b"\x89PNG\r\n", "a PNG image", None),
        (b"\xFF\xD8\xFF", "a JPEG image", None),
        (b"\x7FELF", "an ELF program", None),
    ];
    for (mark, what, help) in marks {
        if head.starts_with(mark) {
            return Some(other(what, *help));
        }
    }
    if head.len() >= 262 && &head[257..262] == b"ustar" {
        return Some(other("a tar archive", UNPACK));
    }
    if head.len() >= 2 && head[0] == 0x80 && (2..=5).contains(&head[1]) {
        return Some(other(
            "a Python pickle (a PyTorch checkpoint or MXNet optimizer states), which blob never reads",
            Some("a pickle can run code when it is loaded; convert it where it was made"),
        ));
    }
    if let Some(b"\0\0\0\0\0\0\x01\x12") = head.first_chunk::<8>() {
        return Some(other(
            "an MXNet list of a big-endian machine, which MXNet itself cannot read either",
            None,
        ));
    }
    if neoml(head) {
        return Some(other("a NeoML archive, which blob does not read yet", None));
    }
    None
}

/// NeoML: a bare blob begins with a version (1001 to 2000) as a small value, a net with one as i32, negated in old
/// files, a log frequency and a count of layers.
fn neoml(head: &[u8]) -> bool {
    let version = |b: &[u8]| {
        let b = b.first_chunk::<4>()?;
        Some(i32::from_le_bytes(*b).unsigned_abs())
    };
    let known = |v: Option<u32>| v.is_some_and(|v| (1001..=2000).contains(&v));
    if head.first() == Some(&0xFF) && known(version(&head[1..])) {
        return true;
    }
    known(version(head)) && head.len() >= 12 && head[6] == 0 && head[7] == 0 && head[11] == 0
}

/// ONNX's ModelProto: ir_version (1, varint), producer_name (2, string) or graph (7, message).
fn onnx(head: &[u8]) -> bool {
    let producers: [&[u8]; 6] = [
        b"pytorch",
        b"onnx",
        b"tf2onnx",
        b"skl2onnx",
        b"mxnet",
        b"keras2onnx",
    ];
    if head.len() < 8 || head[0] != 0x08 || head[1] > 0x20 {
        return false;
    }
    if head[2] == 0x12 {
        let name = &head[4..];
        return producers
            .iter()
            .any(|p| name.len() >= p.len() && name[..p.len()].eq_ignore_ascii_case(p));
    }
    head[2] == 0x3A
}

fn textual(head: &[u8], len: u64) -> Option<Refusal> {
    let text = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    let text = text.trim_ascii_start();
    let lower = text.to_ascii_lowercase();
    let has = |needle: &[u8]| lower.windows(needle.len()).any(|w| w == needle);
    if lower.starts_with(b"version https://git-lfs") {
        return Some(other(
            "a Git LFS pointer, not the file it stands for",
            Some("fetch the real file:  git lfs pull"),
        ));
    }
    if lower.starts_with(b"<!doctype html")
        || lower.starts_with(b"<html")
        || lower.starts_with(b"<!--") && has(b"<html")
    {
        let what = format!("an HTML page, not a model ({len} bytes)");
        let help = "a web server sent a page instead of the file; download the raw file";
        return Some(Refusal::Other(what, Some(help)));
    }
    if lower.starts_with(b"<?xml") {
        return Some(other("an XML file, not a model", None));
    }
    let printable = |b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7E | 0x80..);
    if text.is_empty() || !text.iter().all(printable) {
        return None;
    }
    if lower.starts_with(b"{") && (has(b"\"nodes\"") || has(b"\"arg_nodes\"")) {
        return Some(other(
            "an MXNet symbol.json: the network's description, not its weights",
            Some("the weights lie in the .params file beside it"),
        ));
    }
    if lower.starts_with(b"{") || lower.starts_with(b"[") {
        return Some(other("a JSON file, not weights", None));
    }
    let prototxt = [
        "layer {",
        "layers {",
        "layer{",
        "layers{",
        "input:",
        "input_dim:",
        "input_shape",
        "net:",
        "base_lr",
    ];
    if prototxt.iter().any(|word| has(word.as_bytes())) || lower.starts_with(b"name:") {
        return Some(other(
            "a prototxt: the network's description, not its weights",
            Some("the weights lie in the .caffemodel"),
        ));
    }
    None
}

fn unknown(head: &[u8]) -> Refusal {
    let text = head
        .iter()
        .all(|b| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7E));
    if text {
        return other("a text file, not a model", None);
    }
    let first: Vec<String> = head.iter().take(8).map(|b| format!("{b:02x}")).collect();
    Refusal::Other(
        format!(
            "of no format that blob knows (it begins with {})",
            first.join(" ")
        ),
        Some("`blob formats` lists the formats; --from names one for a file that hides it"),
    )
}

fn other(what: &str, help: Option<&'static str>) -> Refusal {
    Refusal::Other(what.to_owned(), help)
}

fn extension(name: &str) -> Option<String> {
    let extension = std::path::Path::new(name).extension()?;
    Some(extension.to_str()?.to_owned())
}
