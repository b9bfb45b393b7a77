//! The results of a check: findings, notes, transforms that were repeated.

use blob_io::{Fault, Reason};

/// One result of a check. Each is handed over at once and not collected, because a hostile file can cause a million.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remark {
    /// Something is wrong.
    Finding(Finding),
    /// Something is unusual or was not checked, but nothing is wrong.
    Note(String),
    /// A sound array is not read, and so nothing of its values was checked.
    Unread(Finding),
    /// The comparison is with another file than the receipt names, and so proves nothing of the receipt.
    Unproven(Finding),
    /// A transform of the receipt was repeated and changed values.
    Redone(Redone),
}

/// A transform that [`against`](crate::verify::against) has repeated and that changes values. A receipt can name any
/// transform, so you must judge whether the transform is right.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redone {
    /// The transform's name: `fix-gamma`.
    pub transform: String,
    /// How many tensors get other values.
    pub tensors: usize,
    /// The names of the first of these tensors, as in the source.
    pub named: Vec<String>,
    /// The evidence for the transform, as a clause: `the receipt alone says`, `the receipt and net-symbol.json say`.
    pub said_by: String,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The tensor concerned.
    pub tensor: String,
    /// The byte offset in the file, where one is known.
    pub offset: Option<u64>,
    /// The message in words, without the place.
    pub message: String,
    /// The reason, which has a stable code.
    pub reason: Reason,
}

impl Finding {
    /// A finding about a tensor, or with an empty name about the file.
    pub fn new(tensor: &str, reason: Reason, message: impl Into<String>) -> Self {
        Self { tensor: tensor.to_owned(), offset: None, message: message.into(), reason }
    }

    /// A fault of the file as a finding.
    #[must_use]
    pub fn of_fault(tensor: &str, fault: &Fault) -> Self {
        Self { offset: Some(fault.offset()), ..Self::new(tensor, fault.reason(), fault.message()) }
    }
}
