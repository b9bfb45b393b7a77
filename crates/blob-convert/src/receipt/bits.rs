//! The arrays of a receipt that hold bf16 as u16, where the list of changes has no room.

use blob_core::DType;
use serde_json::{Value, json};

/// The content of an array in an npz: bf16 stored as u16, real u16, or another dtype.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Bits {
    Bf16,
    U16,
    Others,
}

impl Bits {
    pub(super) fn of(dtype: DType, keeps_bf16: bool) -> Self {
        match dtype {
            _ if keeps_bf16 => Self::Bf16,
            DType::U16 => Self::U16,
            _ => Self::Others,
        }
    }
}

/// Why a file of bf16 and u16 is refused.
pub(super) const NO_ROOM: &str =
    "has so many arrays of bf16 and of u16 that the receipt has no room to tell them apart";

/// Says which arrays hold bf16, where the list of changes had no room: by the shorter list of names.
pub(super) fn note_bits<'t>(rest: &mut Value, tensors: impl Iterator<Item = (&'t str, Bits)>) {
    let (mut bf16, mut u16s) = (Vec::new(), Vec::new());
    for (name, bits) in tensors {
        match bits {
            Bits::Bf16 => bf16.push(name),
            Bits::U16 => u16s.push(name),
            Bits::Others => {}
        }
    }
    let len = |names: &[&str]| names.iter().map(|name| name.len()).sum::<usize>();
    if u16s.is_empty() || bf16.is_empty() {
        rest["bf16_as_u16"] = json!(!bf16.is_empty());
    } else if len(&u16s) <= len(&bf16) {
        (rest["bf16_as_u16"], rest["u16"]) = (json!(true), json!(u16s));
    } else {
        rest["bf16_as_u16"] = json!(bf16);
    }
}
