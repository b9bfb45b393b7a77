//! Blobs to a file in one call, over `Layout` and `Output`.

use std::path::Path;

use blob_core::AnyBlob;

use crate::error::Error;
use crate::format::Format;
use crate::layout::Layout;
use crate::output::{IfExists, Output};
use crate::payload;
use crate::spec::TensorSpec;

/// What is turned around at a time on a big-endian machine.
const CHUNK: usize = 64 << 10;

/// Writes named blobs to a file: their data, not their diffs.
///
/// The file appears under its name when it is whole; see [`Output`]. `npy` takes exactly one blob and no metadata.
///
/// ```no_run
/// use blob_core::{AnyBlob, DType, Shape};
/// use blob_io::{Format, IfExists, write_tensors};
///
/// let weight = AnyBlob::new(Shape::new([8, 3, 3, 3])?, DType::F32)?;
/// write_tensors("net.safetensors", Format::Safetensors, &[("conv1/0", &weight)], &[], IfExists::Refuse)?;
/// # Ok::<(), blob_io::Error>(())
/// ```
///
/// # Errors
/// [`Error::Request`] where the format cannot hold the blobs; [`Error::Exists`]; [`Error::Io`]; [`Error::Blob`] where a blob's memory cannot be read.
pub fn write_tensors(
    path: impl AsRef<Path>,
    format: Format,
    tensors: &[(&str, &AnyBlob)],
    metadata: &[(String, String)],
    if_exists: IfExists,
) -> Result<(), Error> {
    let path = path.as_ref();
    let layout = layout(path, format, tensors, metadata)?;
    let mut output = Output::create(path, if_exists)?;
    let mut crcs = Vec::new();
    if layout.wants_crc() {
        for (_, blob) in tensors {
            let mut hasher = crc32fast::Hasher::new();
            little_endian(blob, &mut |bytes| {
                hasher.update(bytes);
                Ok(())
            })?;
            crcs.push(hasher.finalize());
        }
    }
    output.set_len(layout.len())?;
    // One after the other, so that a pipe will do as well.
    let mut parts: Vec<(u64, Part<'_>)> = Vec::new();
    for (offset, bytes) in layout.frame(metadata, &crcs)? {
        parts.push((offset, Part::Frame(bytes)));
    }
    for ((_, blob), place) in tensors.iter().zip(layout.places()) {
        if place.len() > 0 {
            parts.push((place.offset(), Part::Blob(blob)));
        }
    }
    parts.sort_by_key(|(offset, _)| *offset);
    for (_, part) in parts {
        match part {
            Part::Frame(bytes) => output.write_all(&bytes)?,
            Part::Blob(blob) => little_endian(blob, &mut |bytes| output.write_all(bytes))?,
        }
    }
    output.finish()
}

enum Part<'a> {
    Frame(Vec<u8>),
    Blob(&'a AnyBlob),
}

fn layout(
    path: &Path,
    format: Format,
    tensors: &[(&str, &AnyBlob)],
    metadata: &[(String, String)],
) -> Result<Layout, Error> {
    let specs: Vec<TensorSpec> =
        tensors.iter().map(|(name, blob)| TensorSpec::new(*name, blob.dtype(), blob.shape().clone())).collect();
    let refuse = |message: String| Error::Request { file: path.display().to_string(), message };
    match (format, &specs[..]) {
        (Format::Safetensors, specs) => Layout::safetensors(specs, metadata),
        (Format::Npz, specs) => Layout::npz(specs, metadata),
        (Format::Npy, [_]) if !metadata.is_empty() => Err(refuse("an npy file has no place for metadata".to_owned())),
        (Format::Npy, [spec]) => Layout::npy(spec),
        (Format::Npy, specs) => {
            let found = specs.len();
            Err(refuse(format!("an npy file holds one array, not {found}; npz holds many")))
        }
        _ => Err(refuse(format!("{} files are read, not written", format.title()))),
    }
}

/// Hands over a blob's bytes as a file has them.
fn little_endian(blob: &AnyBlob, sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
    let bytes = blob.data().bytes()?;
    if !payload::BIG_ENDIAN {
        return sink(&bytes);
    }
    for chunk in bytes.chunks(CHUNK) {
        let mut chunk = chunk.to_vec();
        payload::swap(&mut chunk, blob.dtype().size());
        sink(&chunk)?;
    }
    Ok(())
}
