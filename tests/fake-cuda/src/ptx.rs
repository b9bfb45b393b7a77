//! Parses PTX text as NVRTC writes it into instructions that can be run. The parser supports what this project's
//! kernels use; anything else is an error that names the line, never a guess. Runs nothing.

mod body;
mod decode;
mod module;
mod op;
mod shapes;
mod text;

pub(crate) use module::{Kernel, Module};
pub(crate) use op::{
    AtomicOp, Binary, Bool, Kind, Op, Operand, Place, Reg, Rounding, Shuffle, Space, Special, Ternary, Test, Type,
    Unary, Vote,
};
