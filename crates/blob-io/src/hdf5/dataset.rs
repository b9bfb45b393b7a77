//! Reads a dataset's header as an entry: shape, datatype and the location of the values.

use std::sync::Arc;

use blob_core::Shape;
use hdf5_reader::messages::HdfMessage;
use hdf5_reader::messages::dataspace::{DataspaceMessage, DataspaceType};
use hdf5_reader::messages::fill_value::FillValueMessage;
use hdf5_reader::messages::filter_pipeline::FilterPipelineMessage;
use hdf5_reader::messages::layout::DataLayout;

use super::chunks::{self, ChunkedDataset};
use super::datatype::{Element, element};
use super::header::{self, DATASPACE, DATATYPE, EXTERNAL_FILES, FILL, FILTERS, LAYOUT, Message, OLD_FILL};
use super::structure::Structure;
use crate::entry::{Chunk, Chunked, Entry, Kind, Payload, Runs, Segment};
use crate::error::{FaultKind, ReadError};
use crate::limits::Limits;

/// The messages of a dataset's header.
struct Header {
    at: u64,
    space: DataspaceMessage,
    datatype: Vec<u8>,
    layout: DataLayout,
    /// Where the layout's message lies.
    layout_at: u64,
    fill: Option<FillValueMessage>,
    filters: Option<FilterPipelineMessage>,
    is_external: bool,
}

/// Version, class and length precede compact values since version 3 of the layout, from 2004.
const COMPACT_HEAD: u64 = 4;
/// The class of a layout whose values lie in other datasets, mostly of other files.
const VIRTUAL: u8 = 3;

/// Describes the dataset in `entry`.
pub(super) fn describe(
    structure: &Structure,
    header: &header::Header,
    limits: &Limits,
    entry: &mut Entry,
) -> Result<(), ReadError> {
    let at = header.at;
    let header = messages(structure, header)?;
    if header.space.dataspace_type == DataspaceType::Null {
        entry.kind = Kind::None;
        return Ok(());
    }
    entry.shape = shape(&header)?;
    let count = entry.shape.count() as u64;
    match element(&header.datatype) {
        Some(Element::Number { dtype, swapped }) => {
            let width = dtype.size() as u64;
            entry.dtype = Some(dtype);
            entry.swapped = swapped;
            if count.checked_mul(width).is_none_or(|n| i64::try_from(n).is_err()) {
                let axes = entry.shape.num_axes() as u32;
                return Err(ReadError::fault(at, FaultKind::Overflow { axes }));
            }
            entry.payload = payload(structure, &header, count, width, limits)?;
        }
        Some(Element::Foreign { name, size }) => {
            // A string's bytes may be metadata.
            if let (DataLayout::Contiguous { .. }, Some(count)) = (&header.layout, count.checked_mul(size)) {
                entry.payload = payload(structure, &header, count, 1, limits)?;
            }
            entry.set_foreign(at, name, count.saturating_mul(size));
        }
        None => return Err(ReadError::fault(at, FaultKind::words("a datatype", "a message that ends within it"))),
    }
    Ok(())
}

fn messages(structure: &Structure, header: &header::Header) -> Result<Header, ReadError> {
    let at = header.at;
    let missing = |field: &'static str| ReadError::fault(at, FaultKind::words(field, "a header without it"));
    let one = |kind: u16| header.of_kind(kind).last();
    let parsed = |message: Option<&Message>| message.map(|message| message.parsed(structure)).transpose();
    let stored = one(LAYOUT).ok_or_else(|| missing("a dataset's layout"))?;
    if matches!(stored.body[..], [version, VIRTUAL, ..] if version >= 3) {
        let found = "a virtual dataset, whose values lie in others";
        return Err(ReadError::fault(at, FaultKind::unsupported("values that lie within the dataset", found)));
    }
    let Some(HdfMessage::DataLayout(layout)) = parsed(Some(stored))? else {
        return Err(missing("a dataset's layout"));
    };
    let Some(HdfMessage::Dataspace(space)) = parsed(one(DATASPACE))? else {
        return Err(missing("a dataset's dataspace"));
    };
    let datatype = one(DATATYPE).ok_or_else(|| missing("a dataset's datatype"))?.bytes(structure)?;
    let fill = match parsed(one(FILL).or(one(OLD_FILL)))? {
        Some(HdfMessage::FillValue(fill)) => Some(fill),
        _ => None,
    };
    let filters = match parsed(one(FILTERS))? {
        Some(HdfMessage::FilterPipeline(filters)) => Some(filters),
        _ => None,
    };
    let is_external = one(EXTERNAL_FILES).is_some();
    let (layout, layout_at) = (layout.layout, stored.at);
    Ok(Header { at, space, datatype, layout, layout_at, fill, filters, is_external })
}

fn shape(header: &Header) -> Result<Shape, ReadError> {
    let dims = &header.space.dims;
    let (found, max) = (dims.len() as u64, 32);
    if found > max {
        return Err(ReadError::fault(header.at, FaultKind::Axes { found, max }));
    }
    let sizes: Option<Vec<usize>> = dims.iter().map(|d| usize::try_from(*d).ok()).collect();
    sizes.and_then(|sizes| Shape::new(sizes).ok()).ok_or_else(|| {
        let axes = dims.len() as u32;
        ReadError::fault(header.at, FaultKind::Overflow { axes })
    })
}

/// Where `count` elements of `width` bytes lie.
fn payload(
    structure: &Structure,
    header: &Header,
    count: u64,
    width: u64,
    limits: &Limits,
) -> Result<Payload, ReadError> {
    if header.is_external {
        let what = FaultKind::unsupported("values that lie within the file", "values in another file");
        return Err(ReadError::fault(header.at, what));
    }
    if count == 0 {
        return Ok(Payload::Runs(Runs::None));
    }
    match &header.layout {
        // The dataset was never written: all elements are the fill value, as in chunks that are not stored.
        DataLayout::Contiguous { address, .. } if structure.is_undefined(*address) => {
            let dims: Box<[u64]> = header.space.dims.iter().map(|dim| (*dim).max(1)).collect();
            let (chunks, filters, fill) = (Box::default(), Box::default(), fill(header, width));
            Ok(Payload::Chunked(Arc::new(Chunked { dims, size: count * width, chunks, filters, fill })))
        }
        DataLayout::Contiguous { address, size } => {
            let (offset, needed) = (structure.begin().saturating_add(*address), count * width);
            let left = structure.file_len().saturating_sub(offset);
            if needed > left {
                let field = "a dataset";
                return Err(ReadError::fault(offset, FaultKind::Truncated { field, needed, left }));
            }
            if *size != needed {
                let what = FaultKind::Mismatch { field: "a dataset's bytes", expected: needed, found: *size };
                return Err(ReadError::fault(header.at, what));
            }
            Ok(Payload::Runs(Runs::One(Segment { offset, count, stride: width })))
        }
        DataLayout::Chunked { address, dims, chunk_indexing, .. } => {
            let shape = &header.space.dims;
            // Older layouts have the element's size as a last axis.
            let chunk = dims.get(..shape.len()).unwrap_or(dims);
            let stored = ChunkedDataset {
                at: header.at,
                address: *address,
                shape,
                max_shape: header.space.max_dims.as_deref(),
                chunk,
                width,
                index: chunk_indexing.as_ref(),
                filters: header.filters.as_ref(),
            };
            let mut chunked = chunks::find(structure, &stored, limits)?;
            chunked.fill = fill(header, width);
            Ok(Payload::Chunked(Arc::new(chunked)))
        }
        DataLayout::Compact { data } => {
            let (needed, found) = (count * width, data.len() as u64);
            if found != needed {
                let what = FaultKind::Mismatch { field: "a dataset's bytes", expected: needed, found };
                return Err(ReadError::fault(header.at, what));
            }
            let offset = header.layout_at + COMPACT_HEAD;
            let dims = header.space.dims.iter().copied().collect();
            // A single unfiltered chunk, and not a run: a header may have a checksum, so the values cannot be
            // overwritten in place.
            let chunk = Chunk { index: 0, offset, packed: needed as u32, mask: 0 };
            let (chunks, filters) = (Box::new([chunk]), Box::default());
            Ok(Payload::Chunked(Arc::new(Chunked { dims, size: needed, chunks, filters, fill: [0; 8] })))
        }
    }
}

/// The bytes of an element that is not stored: zeros, unless the header has a fill value.
fn fill(header: &Header, width: u64) -> [u8; 8] {
    let mut bytes = [0; 8];
    if let Some(fill) =
        header.fill.as_ref().and_then(|fill| fill.value.as_deref()).filter(|value| value.len() as u64 == width)
    {
        bytes[..fill.len()].copy_from_slice(fill);
    }
    bytes
}
