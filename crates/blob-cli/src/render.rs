//! The forms of what a command says: JSON for programs, tables, pictures and trees for people.

pub(crate) mod json;
pub(crate) mod picture;
pub(crate) mod table;
pub(crate) mod tree;
