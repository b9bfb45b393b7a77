//! Lays out a NeoML archive, byte for byte like the output of `CDnnBlob::Serialize` and `SerializeBlobs`.
//!
//! Only a blob's header has the extents and the number of cells, so everything else in an archive is copied unchanged.

use blob_core::{Dims7, Shape};

use crate::error::Error;
use crate::neoml::archive::{Archive, ArchivePart, OldBlob};
use crate::neoml::record::{self, HEAD, LONG};
use crate::parts::{self, FilePart, Placed};
use crate::spec::{Problems, TensorSpec, refuse};

/// The name of the format in errors.
const FORMAT: &str = "neoml";

/// Lays out an archive.
pub(crate) fn plan(specs: &[TensorSpec], archive: &Archive) -> Result<Placed, Error> {
    let blobs = archive.blobs();
    if blobs != specs.len() || i32::try_from(blobs).is_err() {
        return Err(refuse(FORMAT, format!("the archive holds {blobs} blobs, not {}", specs.len())));
    }
    let (mut parts, mut problems) = (Vec::new(), Problems::default());
    for part in &archive.parts {
        match part {
            ArchivePart::Bytes(found) => parts.push(FilePart::Bytes(found.clone())),
            ArchivePart::Kept(OldBlob { head, cells: from, len }) => {
                parts.extend([FilePart::Bytes(head.to_vec()), FilePart::Copy { from: *from, len: *len }]);
            }
            ArchivePart::Blob { version, pack, tensor, found } => {
                let spec = &specs[*tensor];
                match head(spec, *version, *pack) {
                    Ok(new) if archive.is_fixed && found.is_some_and(|found| found.head != new) => {
                        problems.add(&spec.name, "is of another shape, and a pickle counts its bytes");
                    }
                    Ok(new) => parts.extend([FilePart::Bytes(new.to_vec()), FilePart::Values(*tensor)]),
                    Err(problem) => problems.add(&spec.name, problem),
                }
            }
        }
    }
    problems.refused(FORMAT)?;
    parts::place(FORMAT, &parts, specs, u64::MAX)
}

/// The seven extents of a tensor: shorter shapes get trailing ones, as in NeoML's `CreateTensor`.
pub(crate) fn dims(shape: &Shape) -> Result<Dims7, blob_core::Error> {
    Dims7::from_leading(shape.dims())
}

/// The header before a blob's cells.
fn head(spec: &TensorSpec, version: i32, pack: i32) -> Result<[u8; HEAD], String> {
    let tag =
        record::tag(spec.dtype).ok_or_else(|| format!("is {}, and NeoML's blobs are of f32 or i32", spec.dtype))?;
    let dims = dims(&spec.shape).map_err(|_| {
        let axes = spec.shape.num_axes();
        format!("has {axes} axes, and a NeoML blob seven")
    })?;
    // NeoML counts bytes in an `int`, and writes only the header of a blob of 4 GiB.
    if i32::try_from(spec.byte_len()).is_err() {
        return Err(format!("has {} bytes; NeoML reads no blob over {}", spec.byte_len(), i32::MAX));
    }
    let mut words = vec![version, tag, pack];
    for dim in dims.dims() {
        // If another extent is 0, this one may have any value.
        words.push(i32::try_from(*dim).map_err(|_| format!("has an extent of {dim}; NeoML's go up to {}", i32::MAX))?);
    }
    words.push(spec.shape.count() as i32);
    let mut head = [LONG; HEAD];
    for (place, word) in head[1..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    Ok(head)
}
