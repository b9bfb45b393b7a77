//! Finds a file's format, by content first and then by name, and calls that format's reader.
//!
//! `marks` has the beginnings of files; `foreign` describes files that are no tensor files.

mod foreign;
mod marks;
mod messages;

use crate::caffe;
use crate::caffe::read::Misread;
use crate::codec::{self, Found};
use crate::error::{ReadError, Reason};
use crate::format::{Files, Format};
use crate::names::NameTable;
use crate::neoml;
use crate::onnx;
use crate::wire::cursor::Cursor;
use crate::wire::gunzip;
use crate::wire::source::{Bytes, Input, Source};
use crate::wire::tar;

/// Reads the headers of a file into `table`. `name` gives the extension, `from` a format that need not be found.
pub(crate) fn read(
    source: &Input,
    name: &str,
    from: Option<Format>,
    table: &mut NameTable,
) -> Result<Found, ReadError> {
    table.set_file_len(source.len());
    let format = match from {
        Some(format) => format,
        None => {
            let first = First::of(source, name)?;
            match first.marked {
                Some(format) => format,
                None if onnx::read::is_model(&mut Cursor::new(source))? => Format::Onnx,
                None => match caffe::read::any(&mut Cursor::new(source), first.hint, table)? {
                    Some((format, dialect)) => return Ok(Found::new(format, dialect)),
                    None => first.promised()?,
                },
            }
        }
    };
    // A message of no bytes is one of Caffe's, too.
    if from.is_some()
        && format.is_caffe()
        && source.len() > 0
        && let Some(misread) = caffe::read::misread(&mut Cursor::new(source), format)?
    {
        return Err(match misread {
            Misread::Other(found) => other(found, format),
            Misread::Nothing => misnamed(source, name, format).unwrap_or_else(|| {
                let what = format!("no {}: it has none of its fields", format.name());
                ReadError::Other(Reason::Request, what, Some(LEAVE_OUT))
            }),
        });
    }
    match codec::read(format, source, table) {
        // Not where arrays were listed: such a file breaks off.
        Err(ReadError::Fault(fault)) if from.is_some() && table.len() == 0 => {
            Err(misnamed(source, name, format).unwrap_or(ReadError::Fault(fault)))
        }
        found => found,
    }
}

const LEAVE_OUT: &str = "leave the format out, and it is found by what the file holds; or name that one";

/// The error for a file of one format that is named as another.
fn other(found: Format, named: Format) -> ReadError {
    let what = format!("{}, not {}", found.name(), named.name());
    ReadError::Other(Reason::Request, what, Some(LEAVE_OUT))
}

/// The kind of a file that cannot be read as the format that the caller has named, if the file is known to have another
/// format.
fn misnamed(source: &Input, name: &str, named: Format) -> Option<ReadError> {
    let first = match First::of(source, name) {
        Err(ReadError::Io { .. }) => return None,
        Err(foreign) => return Some(foreign),
        Ok(first) => first,
    };
    match first.marked.or_else(|| message(source, first.hint)) {
        // Caffe's messages have one form, and a damaged one may look like another.
        Some(found) if found == named || found.is_caffe() && named.is_caffe() => None,
        Some(found) => Some(other(found, named)),
        // A zip that is cut or damaged still begins with a mark.
        None if named.holds().files == Files::Members || foreign::is_text(&first.bytes) => {
            messages::message(&first.bytes).or_else(|| Some(foreign::unknown(&first.bytes)))
        }
        None => messages::message(&first.bytes),
    }
}

/// The format of a file, found as in [`read`].
pub(crate) fn format(source: &dyn Source, name: &str) -> Option<Format> {
    let first = First::of(source, name).ok()?;
    if first.marked.is_some() {
        return first.marked;
    }
    message(source, first.hint).or_else(|| first.promised().ok())
}

/// The protobuf message that a file without a mark is: ONNX's or one of Caffe's.
fn message(source: &dyn Source, hint: Option<Format>) -> Option<Format> {
    if onnx::read::is_model(&mut Cursor::new(source)).unwrap_or(false) {
        return Some(Format::Onnx);
    }
    caffe::read::classify(&mut Cursor::new(source), hint).ok().flatten()
}

/// How many bytes at a file's beginning tell the kind: a tar's mark lies at byte 257, HTML may follow a comment.
const HEAD: u64 = 1024;

/// The hints at the format in a file's first bytes and name.
struct First {
    bytes: Vec<u8>,
    /// The format whose mark the bytes begin with; Caffe's messages have none.
    marked: Option<Format>,
    /// The format that the name suggests.
    hint: Option<Format>,
}

impl First {
    /// Reads the first bytes, and refuses an empty file and one that is known not to hold tensors.
    fn of(source: &dyn Source, name: &str) -> Result<Self, ReadError> {
        let len = source.len();
        if len == 0 {
            let help = "the download or the copy failed; fetch the file again";
            let what = "empty (0 bytes)".to_owned();
            return Err(ReadError::Other(Reason::Empty, what, Some(help)));
        }
        let mut bytes = vec![0; len.min(HEAD) as usize];
        source.read_at(0, &mut bytes).map_err(|source| {
            let offset = 0;
            ReadError::Io { offset, source }
        })?;
        let extension = extension(name);
        let marked = magic(&bytes);
        if marked.is_none()
            && let Some(refusal) = foreign::name(&bytes, len, extension.as_deref())
        {
            return Err(refusal);
        }
        let hint = extension.as_deref().and_then(Format::from_extension);
        Ok(Self { bytes, marked, hint })
    }

    /// The format of a file without a mark that is none of Caffe's messages: the one that the name suggests, whose
    /// reader then names the fault.
    fn promised(&self) -> Result<Format, ReadError> {
        match (messages::message(&self.bytes), self.hint) {
            (Some(refusal), _) => Err(refusal),
            (None, Some(format)) => Ok(format),
            (None, None) => Err(foreign::unknown(&self.bytes)),
        }
    }
}

/// Why a long stream is not a tensor file, if the beginning alone shows that. The rest, which may be endless, is then
/// not read.
pub(crate) fn hopeless(begin: &[u8], name: &str) -> Option<ReadError> {
    let head = &begin[..begin.len().min(HEAD as usize)];
    if magic(head).is_some() || gunzip::is_gzip(head) || tar::has_mark(head) {
        return None;
    }
    let extension = extension(name);
    let hint = extension.as_deref().and_then(Format::from_extension);
    if foreign::is_text(begin) {
        return Some(foreign::unknown(head));
    }
    let named = foreign::name(head, begin.len() as u64, extension.as_deref());
    named.or_else(|| {
        // For a name that promises one of Caffe's messages, the reader reports the fault, unless the message breaks at
        // once.
        let part = if hint.is_some() { &head[..1] } else { begin };
        let source = Bytes(part.to_vec());
        let damaged = caffe::read::is_damaged(&mut Cursor::new(&source));
        damaged.then(|| foreign::unknown(head))
    })
}

/// The formats that begin with a mark.
fn magic(head: &[u8]) -> Option<Format> {
    let long = head.first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
    // A file that is cut within the mark is MXNet's too: these bytes are not valid protobuf.
    let list = 0x112u64.to_le_bytes();
    // First, because a header of 0x112 bytes begins like MXNet's list. A list has a reserved word there, which is 0.
    if long.is_some_and(|n| n <= 100 << 20)
        && matches!(head[8..], [b'{', b'"' | b'}' | b' ' | b'\t' | b'\r' | b'\n', ..])
    {
        return Some(Format::Safetensors);
    }
    if (4..8).contains(&head.len()) && list.starts_with(head) {
        return Some(Format::MxnetList);
    }
    marks::own(head).or_else(|| neoml::read::sniff(head))
}

fn extension(name: &str) -> Option<String> {
    let extension = std::path::Path::new(name).extension()?;
    Some(extension.to_str()?.to_owned())
}
