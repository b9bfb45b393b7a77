//! Protobuf messages of other frameworks: TensorFlow, Core ML.
//!
//! Checks a file's first bytes only; `caffe` and `onnx` recognise the messages that are read.

use super::foreign::other;
use crate::error::{ReadError, Reason};

const TENSORFLOW: Option<&str> = Some("in Python, TensorFlow reads it, and numpy.savez writes what blob reads");

/// Describes protobuf messages of other frameworks, which have no magic; the bytes must not be Caffe's or ONNX's.
pub(crate) fn message(head: &[u8]) -> Option<ReadError> {
    let unsupported = |what, help| Some(other(Reason::Unsupported, what, help));
    if graph_def(head).is_some() {
        return unsupported("a TensorFlow graph (GraphDef, a frozen .pb)", TENSORFLOW);
    }
    match versioned(head)? {
        0x0A => unsupported(
            "a Core ML model (.mlmodel)",
            Some("in Python, coremltools reads it, and numpy.savez writes what blob reads"),
        ),
        _ => unsupported("a TensorFlow SavedModel", TENSORFLOW),
    }
}

/// If `bytes` begin with a length-delimited field of this key: the content, possibly cut off, and the bytes behind.
fn field(bytes: &[u8], key: u8) -> Option<(&[u8], &[u8])> {
    let mut rest = bytes.strip_prefix(&[key])?;
    let mut len = 0_usize;
    for shift in (0..35).step_by(7) {
        let (byte, more) = rest.split_first()?;
        rest = more;
        len |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(rest.split_at(len.min(rest.len())));
        }
    }
    None
}

/// TensorFlow's GraphDef: nodes (1) with a name (1) and an operation (2) of a capital letter, then letters and digits.
fn graph_def(head: &[u8]) -> Option<()> {
    let (node, _) = field(head, 0x0A)?;
    let (name, rest) = field(node, 0x0A)?;
    let (op, _) = field(rest, 0x12)?;
    let named = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    let [first, more @ ..] = op else { return None };
    let is_op = first.is_ascii_uppercase() && more.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    (named && is_op && more.len() > 1).then_some(())
}

/// A version (1, varint) and a message (2) that begins with a message (1): Core ML's description of an input, which
/// begins with the input's name (1), or a SavedModel's meta graph. Returns the key of the innermost field.
fn versioned(head: &[u8]) -> Option<u8> {
    let [0x08, 1..=15, rest @ ..] = head else {
        return None;
    };
    let (outer, _) = field(rest, 0x12)?;
    let (inner, _) = field(outer, 0x0A)?;
    inner.first().copied()
}
