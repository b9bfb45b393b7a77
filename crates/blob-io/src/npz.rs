//! npz: a zip of npy files, as in NumPy, SciPy and MXNet 2.
//!
//! The container: PKWARE's APPNOTE.TXT 6.3.10; the part that an npz needs.

pub(crate) mod archive;
pub(crate) mod bare;
pub(crate) mod index;
mod members;
mod metadata;
pub(crate) mod read;
mod sparse;
pub(crate) mod sums;
pub(crate) mod write;
pub(crate) mod zip;

pub use members::member_names;

const LOCAL: u32 = 0x0403_4B50;
const CENTRAL: u32 = 0x0201_4B50;
const END: u32 = 0x0605_4B50;
const END64: u32 = 0x0606_4B50;
const LOCATOR64: u32 = 0x0706_4B50;

/// Extra field: sizes and offsets of 64 bits.
const EXTRA_ZIP64: u16 = 0x0001;
/// Extra field: padding, so that the data are aligned (in the form of Android's zipalign: the alignment, then zeros).
const EXTRA_ALIGN: u16 = 0xD935;
/// Our own extra field: the tensor's name, if the member's name had to differ.
const EXTRA_NAME: u16 = 0x6C62;
/// The first bytes of that field's content.
const NAME_MARK: &[u8] = b"blob name\0";
