//! Large files, the same bytes every time: a model of VGG-16's size and layers, and a gigabyte of MXNet parameters.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// VGG-16's layers: name, output and input channels (with 3×3 kernels), and the three inner products.
const CONVS: [(&str, u64, u64); 13] = [
    ("conv1_1", 64, 3),
    ("conv1_2", 64, 64),
    ("conv2_1", 128, 64),
    ("conv2_2", 128, 128),
    ("conv3_1", 256, 128),
    ("conv3_2", 256, 256),
    ("conv3_3", 256, 256),
    ("conv4_1", 512, 256),
    ("conv4_2", 512, 512),
    ("conv4_3", 512, 512),
    ("conv5_1", 512, 512),
    ("conv5_2", 512, 512),
    ("conv5_3", 512, 512),
];
const FULL: [(&str, u64, u64); 3] = [("fc6", 4096, 25088), ("fc7", 4096, 4096), ("fc8", 1000, 4096)];

/// Values that are finite, small and of no simple pattern: a block of them, repeated.
fn values() -> Vec<u8> {
    let mut state = 16_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 24) as f32 - 0.5) * 0.04
    };
    std::iter::repeat_with(next).take(1 << 18).flat_map(f32::to_le_bytes).collect()
}

fn payload(out: &mut impl Write, block: &[u8], mut len: u64) -> io::Result<()> {
    while len > 0 {
        let n = len.min(block.len() as u64);
        out.write_all(&block[..n as usize])?;
        len -= n;
    }
    Ok(())
}

fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n > 0x7F {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

/// A length-delimited field's key and length.
fn head(number: u64, len: u64) -> Vec<u8> {
    [varint(number << 3 | 2), varint(len)].concat()
}

fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [head(number, bytes.len() as u64), bytes.to_vec()].concat()
}

/// Writes a NetParameter of 553 MB: V2 layers, packed floats, `shape` behind the data, as Caffe writes them.
pub(crate) fn vgg16(path: &Path) -> io::Result<()> {
    let block = values();
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    out.write_all(&field(1, b"VGG_ILSVRC_16_layers"))?;
    let convs = CONVS.iter().map(|(n, o, i)| (*n, "Convolution", vec![*o, *i, 3, 3], *o));
    let full = FULL.iter().map(|(n, o, i)| (*n, "InnerProduct", vec![*o, *i], *o));
    for (name, kind, weights, bias) in convs.chain(full) {
        let names = [field(1, name.as_bytes()), field(2, kind.as_bytes())].concat();
        // A blob: the head of its data, the data's length, and what stands behind them.
        let blobs: Vec<(Vec<u8>, u64, Vec<u8>)> = [weights, vec![bias]]
            .iter()
            .map(|dims| {
                let len = 4 * dims.iter().product::<u64>();
                let packed: Vec<u8> = dims.iter().flat_map(|d| varint(*d)).collect();
                (head(5, len), len, field(7, &field(1, &packed)))
            })
            .collect();
        let sizes: Vec<u64> = blobs.iter().map(|(h, n, s)| h.len() as u64 + n + s.len() as u64).collect();
        let layer = names.len() as u64 + sizes.iter().map(|n| head(7, *n).len() as u64 + n).sum::<u64>();
        out.write_all(&head(100, layer))?;
        out.write_all(&names)?;
        for ((data, len, shape), size) in blobs.iter().zip(sizes) {
            out.write_all(&head(7, size))?;
            out.write_all(data)?;
            payload(&mut out, &block, *len)?;
            out.write_all(shape)?;
        }
    }
    out.flush()
}

/// Writes an MXNet list of 300 arrays of f32 (V2 records), 1 GB in all.
pub(crate) fn params(path: &Path) -> io::Result<()> {
    const ARRAYS: u64 = 300;
    const ROWS: u64 = 814;
    const COLUMNS: u64 = 1024;
    let block = values();
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for word in [0x112_u64, 0, ARRAYS] {
        out.write_all(&word.to_le_bytes())?;
    }
    for _ in 0..ARRAYS {
        out.write_all(&0xF993_FAC9_u32.to_le_bytes())?;
        for word in [0_i32, 2] {
            out.write_all(&word.to_le_bytes())?;
        }
        for dim in [ROWS, COLUMNS] {
            out.write_all(&dim.to_le_bytes())?;
        }
        for word in [1_i32, 0, 0] {
            out.write_all(&word.to_le_bytes())?;
        }
        payload(&mut out, &block, 4 * ROWS * COLUMNS)?;
    }
    out.write_all(&ARRAYS.to_le_bytes())?;
    for i in 0..ARRAYS {
        let key = format!("arg:layer{i}_weight");
        out.write_all(&(key.len() as u64).to_le_bytes())?;
        out.write_all(key.as_bytes())?;
    }
    out.flush()
}
