//! Lays out a NeoML archive, byte for byte like the output of `CDnnBlob::Serialize` and `SerializeBlobs`.
//!
//! Only a blob's header has the extents and the number of cells, so everything else in an archive is copied unchanged.

use std::collections::HashMap;

use blob_core::{Dims7, Shape};

use crate::error::Error;
use crate::neoml::archive::{Archive, Found, Part};
use crate::neoml::record::{self, HEAD, LONG};
use crate::parts::Copied;
use crate::parts::Placed;
use crate::spec::{Problems, TensorSpec, refuse, total};

/// The name of the format in errors.
const FORMAT: &str = "neoml";

/// Lays out an archive.
pub(crate) fn plan(specs: &[TensorSpec], archive: &Archive) -> Result<Placed, Error> {
    let blobs = archive.blobs();
    if blobs != specs.len() || i32::try_from(blobs).is_err() {
        return Err(refuse(FORMAT, format!("the archive holds {blobs} blobs, not {}", specs.len())));
    }
    let (mut frame, mut copies) = (Vec::new(), Vec::new());
    let (mut at, mut bytes) = (0, Vec::new());
    let mut offsets = vec![0; specs.len()];
    let mut problems = Problems::default();
    for part in &archive.parts {
        match part {
            Part::Bytes(found) => bytes.extend(found),
            Part::Kept(Found { head, cells: from, len }) => {
                bytes.extend(head);
                let (from, to, len) = (*from, total(FORMAT, at, bytes.len() as u64)?, *len);
                frame.push((at, std::mem::take(&mut bytes)));
                copies.extend((len > 0).then_some(Copied { from, to, len }));
                at = total(FORMAT, to, len)?;
            }
            Part::Blob { version, pack, tensor, found } => {
                let spec = &specs[*tensor];
                match head(spec, *version, *pack) {
                    Ok(new) if archive.is_fixed && found.is_some_and(|found| found.head != new) => {
                        problems.add(&spec.name, "is of another shape, and a pickle counts its bytes");
                    }
                    Ok(new) => bytes.extend(new),
                    Err(problem) => problems.add(&spec.name, problem),
                }
                let offset = total(FORMAT, at, bytes.len() as u64)?;
                frame.push((at, std::mem::take(&mut bytes)));
                offsets[*tensor] = offset;
                at = total(FORMAT, offset, spec.byte_len())?;
            }
        }
    }
    problems.refused(FORMAT)?;
    let len = total(FORMAT, at, bytes.len() as u64)?;
    if !bytes.is_empty() {
        frame.push((at, bytes));
    }
    Ok(Placed { frame, copies, offsets, len, interleaved: HashMap::new() })
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
