//! Reads the chunks of a dataset: the location of each, in the order of the array, and the filters that were applied.

use hdf5_reader::chunk_index::{self, ChunkEntry};
use hdf5_reader::error::Result as Hdf5Result;
use hdf5_reader::messages::filter_pipeline::FilterPipelineMessage;
use hdf5_reader::messages::layout::ChunkIndexing;
use hdf5_reader::{Hdf5File, btree_v1, extensible_array, fixed_array};

use super::structure::Structure;
use crate::entry::{Chunk, Chunked, Filter};
use crate::error::{FaultKind, ReadError, check_limit};
use crate::limits::{Limit, Limits};

/// A dataset that is stored in chunks.
pub(super) struct ChunkedDataset<'a> {
    /// The offset of the dataset's header, for errors.
    pub(super) at: u64,
    /// The address of the chunk index.
    pub(super) address: u64,
    pub(super) shape: &'a [u64],
    pub(super) max_shape: Option<&'a [u64]>,
    pub(super) chunk: &'a [u32],
    pub(super) width: u64,
    pub(super) index: Option<&'a ChunkIndexing>,
    pub(super) filters: Option<&'a FilterPipelineMessage>,
}

/// Reads the chunk index and the filters.
pub(super) fn find(structure: &Structure, stored: &ChunkedDataset<'_>, limits: &Limits) -> Result<Chunked, ReadError> {
    let words = |found: String| ReadError::fault(stored.at, FaultKind::words("chunks that fit the dataset", found));
    if stored.chunk.len() != stored.shape.len() || stored.chunk.contains(&0) || stored.chunk.is_empty() {
        return Err(words(format!("chunks of {:?} for a shape of {:?}", stored.chunk, stored.shape)));
    }
    // HDF5 stores a chunk's size in four bytes.
    let size = stored.chunk.iter().fold(stored.width, |n, d| n.saturating_mul(u64::from(*d)));
    check_limit(stored.at, Limit::Fixed, "the bytes of a chunk", size, u32::MAX.into())?;
    let filters = filters(stored)?;
    let is_implicit = matches!(stored.index, Some(ChunkIndexing::Implicit));
    if is_implicit {
        // Only the shape states the number of chunks: no byte of an index pays for a chunk.
        let steps = stored.shape.iter().zip(stored.chunk).map(|(dim, step)| dim.div_ceil(u64::from(*step)));
        let (count, most) = (steps.fold(1, u64::saturating_mul), limits.max_segments as u64);
        check_limit(stored.at, Limit::Segments, "the number of chunks", count, most)?;
        structure.count_chunks(stored.at, count)?;
    }
    let found = if structure.is_undefined(stored.address) {
        Vec::new()
    } else {
        structure.call(|file| entries(file, structure.sizes(), stored))?
    };
    let (count, most) = (found.len() as u64, limits.max_segments as u64);
    check_limit(stored.at, Limit::Segments, "the number of chunks", count, most)?;
    if !is_implicit {
        structure.count_chunks(stored.at, count)?;
    }
    let mut chunks = Vec::with_capacity(found.len());
    for entry in found {
        // A dataset that was made smaller may still have chunks outside of the shape.
        if let Some(chunk) = place(structure, stored, size, filters.is_empty(), &entry)? {
            chunks.push(chunk);
        }
    }
    chunks.sort_unstable_by_key(|chunk| chunk.index);
    if chunks.windows(2).any(|pair| pair[0].index == pair[1].index) {
        return Err(words("two chunks at the same place".to_owned()));
    }
    let dims = stored.chunk.iter().map(|d| u64::from(*d)).collect();
    Ok(Chunked { dims, size, chunks: chunks.into(), filters: filters.into(), fill: [0; 8] })
}

/// Walks the chunk index, which has one of five types.
fn entries(file: &Hdf5File, sizes: (u8, u8), stored: &ChunkedDataset<'_>) -> Hdf5Result<Vec<ChunkEntry>> {
    let ((offset, length), storage, at) = (sizes, file.storage(), stored.address);
    let (shape, chunk, axes, width) = (stored.shape, stored.chunk, stored.shape.len(), stored.width as usize);
    match stored.index {
        None => {
            let rank = Some(axes as u32);
            let leaves = btree_v1::collect_btree_v1_leaves_storage(storage, at, offset, length, rank, chunk, None)?;
            Ok(leaves.into_iter().filter_map(|(key, address)| leaf(key, address)).collect())
        }
        Some(ChunkIndexing::SingleChunk { filtered_size, filters }) => {
            Ok(vec![chunk_index::single_chunk_entry(at, *filtered_size, *filters, axes)])
        }
        Some(ChunkIndexing::Implicit) => {
            let last: Vec<u64> =
                shape.iter().zip(chunk).map(|(n, step)| n.saturating_sub(1) / u64::from(*step)).collect();
            let (grid, first) = (grid(stored), vec![0; axes]);
            let within = Some((&first[..], &last[..]));
            chunk_index::collect_implicit_chunk_entries(at, &grid, chunk, width, within, storage.len())
        }
        Some(ChunkIndexing::FixedArray { .. }) => {
            let grid = grid(stored);
            fixed_array::collect_fixed_array_chunk_entries_storage(storage, at, offset, length, &grid, chunk, None)
        }
        Some(ChunkIndexing::ExtensibleArray { .. }) => {
            let most = stored.max_shape;
            extensible_array::collect_extensible_array_chunk_entries_storage(
                storage, at, offset, length, shape, most, chunk, None,
            )
        }
        Some(ChunkIndexing::BTreeV2) => {
            let rank = axes as u32;
            chunk_index::collect_v2_chunk_entries_storage(storage, at, offset, length, rank, chunk, None)
        }
    }
}

/// The extents that determine the numbers of chunks: the maximal ones if the dataset can grow to a known size.
fn grid(stored: &ChunkedDataset<'_>) -> Vec<u64> {
    let most = stored.max_shape.filter(|most| most.len() == stored.shape.len()).unwrap_or(stored.shape);
    stored.shape.iter().zip(most).map(|(now, most)| *now.max(most)).collect()
}

fn leaf(key: btree_v1::BTreeV1Key, address: u64) -> Option<ChunkEntry> {
    match key {
        btree_v1::BTreeV1Key::RawData { chunk_size, filter_mask, offsets } => {
            Some(ChunkEntry { address, size: chunk_size.into(), filter_mask, offsets })
        }
        _ => None,
    }
}

/// The chunk with its index in the grid; `None` for a chunk outside of the array or without an address.
fn place(
    structure: &Structure,
    stored: &ChunkedDataset<'_>,
    size: u64,
    is_plain: bool,
    entry: &ChunkEntry,
) -> Result<Option<Chunk>, ReadError> {
    let offset = structure.begin().saturating_add(entry.address);
    let bad = |kind| Err(ReadError::fault(stored.at, kind));
    if entry.offsets.len() < stored.shape.len() {
        return bad(FaultKind::words("a place for each axis of a chunk", format!("{:?}", entry.offsets)));
    }
    let mut index = 0_u64;
    for ((begin, extent), step) in entry.offsets.iter().zip(stored.shape).zip(stored.chunk) {
        let step = u64::from(*step);
        if begin % step != 0 {
            return bad(FaultKind::words("chunks on a grid", format!("one at {:?}", entry.offsets)));
        }
        if begin >= extent {
            return Ok(None);
        }
        // This cannot overflow: the index stays below the number of elements.
        index = index * extent.div_ceil(step) + begin / step;
    }
    if structure.is_undefined(entry.address) {
        return Ok(None);
    }
    let packed = if is_plain { size } else { entry.size };
    let left = structure.file_len().saturating_sub(offset);
    let needed = packed.max(1);
    if needed > left {
        return Err(ReadError::fault(offset, FaultKind::Truncated { field: "a chunk", needed, left }));
    }
    check_limit(offset, Limit::Fixed, "the bytes of a chunk", packed, u32::MAX.into())?;
    Ok(Some(Chunk { index, offset, packed: packed as u32, mask: entry.filter_mask }))
}

/// The filters, in the order of application.
fn filters(stored: &ChunkedDataset<'_>) -> Result<Vec<Filter>, ReadError> {
    let pipeline = stored.filters.map_or(&[][..], |pipeline| &pipeline.filters);
    check_limit(stored.at, Limit::Fixed, "the number of filters", pipeline.len() as u64, 32)?;
    let filters = pipeline.iter().map(|filter| {
        let found = match (filter.id, filter.client_data.first()) {
            (1, _) => return Ok(Filter::Deflate),
            (2, Some(width)) if u64::from(*width) == stored.width => return Ok(Filter::Shuffle),
            (3, _) => return Ok(Filter::Fletcher32),
            (2, _) => "shuffle by another width than the element's".to_owned(),
            (4, _) => "szip".to_owned(),
            (32000, _) => "LZF".to_owned(),
            (id, _) => format!("filter {id}"),
        };
        Err(ReadError::fault(stored.at, FaultKind::unsupported("deflate, shuffle and Fletcher-32 as filters", found)))
    });
    filters.collect()
}
