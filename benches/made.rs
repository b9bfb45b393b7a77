//! Generates large files, with the same bytes every time: a model with VGG-16's layers, a gigabyte of MXNet parameters,
//! and a blob and a net of NeoML.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// VGG-16's convolutions with 3×3 kernels, and the inner products: name, output channels, input channels.
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

/// A block of small finite values without a simple pattern; each payload repeats the block.
fn values() -> Vec<u8> {
    let mut state = 16_u32;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 24) as f32 - 0.5) * 0.04
    })
    .take(1 << 18)
    .flat_map(f32::to_le_bytes)
    .collect()
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

/// The key and the length of a length-delimited field.
fn head(number: u64, len: u64) -> Vec<u8> {
    [varint(number << 3 | 2), varint(len)].concat()
}

fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [head(number, bytes.len() as u64), bytes.to_vec()].concat()
}

/// Writes a NetParameter of 553 MB as Caffe does: V2 layers, packed floats, `shape` after `data`.
pub(crate) fn vgg16(path: &Path) -> io::Result<()> {
    let block = values();
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    out.write_all(&field(1, b"VGG_ILSVRC_16_layers"))?;
    let convs = CONVS.iter().map(|(n, o, i)| (*n, "Convolution", vec![*o, *i, 3, 3], *o));
    let full = FULL.iter().map(|(n, o, i)| (*n, "InnerProduct", vec![*o, *i], *o));
    for (name, kind, weights, bias) in convs.chain(full) {
        let names = [field(1, name.as_bytes()), field(2, kind.as_bytes())].concat();
        // A blob: the key and length of the data, the length again, and the field after the data.
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

/// The description of VGG-16's net, as a prototxt.
pub(crate) fn vgg16_net() -> String {
    let mut net = "input: \"data\" input_shape { dim: 1 dim: 3 dim: 224 dim: 224 }\n".to_owned();
    let mut bottom = "data".to_owned();
    let mut layer = |name: &str, kind: &str, settings: &str| {
        net +=
            &format!("layer {{ name: \"{name}\" type: \"{kind}\" bottom: \"{bottom}\" top: \"{name}\" {settings} }}\n");
        name.clone_into(&mut bottom);
    };
    for (at, (name, outputs, _)) in CONVS.iter().enumerate() {
        let settings = format!("convolution_param {{ num_output: {outputs} pad: 1 kernel_size: 3 }}");
        layer(name, "Convolution", &settings);
        layer(&format!("relu_{name}"), "ReLU", "");
        // A pooling ends each of the five groups.
        if CONVS.get(at + 1).is_none_or(|(next, ..)| next[..5] != name[..5]) {
            layer(&format!("pool_{name}"), "Pooling", "pooling_param { pool: MAX kernel_size: 2 stride: 2 }");
        }
    }
    for (name, outputs, _) in FULL {
        layer(name, "InnerProduct", &format!("inner_product_param {{ num_output: {outputs} }}"));
    }
    net
}

/// A NetParameter of `count` layers without weights: sigmoids and hyperbolic tangents in turn.
pub(crate) fn layers(count: usize) -> Vec<u8> {
    let text = |number: u64, text: &str| field(number, text.as_bytes());
    let dims = [1, 3, 224, 224].iter().flat_map(|dim| varint(*dim)).collect::<Vec<u8>>();
    let mut net = [text(3, "v0"), field(8, &field(1, &dims))].concat();
    for i in 0..count {
        let kind = ["Sigmoid", "TanH"][i % 2];
        let names =
            [text(1, &format!("l{i}")), text(2, kind), text(3, &format!("v{i}")), text(4, &format!("v{}", i + 1))];
        net.extend(field(100, &names.concat()));
    }
    net
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

/// The header of a NeoML blob of `rows` × `columns` floats.
fn neoml_head(rows: u32, columns: u32) -> Vec<u8> {
    let words = [2000, 1, 0, 1, rows, 1, 1, 1, 1, columns, rows * columns];
    std::iter::once(0xFF).chain(words.into_iter().flat_map(u32::to_le_bytes)).collect()
}

/// Writes one NeoML blob of 268 MB.
pub(crate) fn neoml_blob(path: &Path) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    out.write_all(&neoml_head(8192, 8192))?;
    payload(&mut out, &values(), 8192 * 8192 * 4)?;
    out.flush()
}

/// Writes a NeoML net of 125 fully connected layers of 1000 × 1000 weights: 500 MB.
pub(crate) fn neoml_net(path: &Path) -> io::Result<()> {
    const LAYERS: u32 = 125;
    let block = values();
    let string = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let version: &[u8] = b"\xFF\xD0\x07\0\0";
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for word in [2000, 100, LAYERS] {
        out.write_all(&word.to_le_bytes())?;
    }
    for layer in 0..LAYERS {
        out.write_all(&[&string("FmlCnnFullyConnectedLayer")[..], version, version].concat())?;
        out.write_all(&string(&format!("fc{layer}")))?;
        out.write_all(&[&1_u32.to_le_bytes()[..], &string(&format!("fc{}", layer.wrapping_sub(1))), &[0; 4]].concat())?;
        // Backward is not forced, learning is enabled; three multipliers of 1; two blobs follow.
        out.write_all(&[0, 1])?;
        for word in [1_f32.to_bits(), 1_f32.to_bits(), 1_f32.to_bits(), 2] {
            out.write_all(&word.to_le_bytes())?;
        }
        for (rows, columns) in [(1000, 1000), (1, 1000)] {
            out.write_all(&[&[0][..], &neoml_head(rows, columns)].concat())?;
            payload(&mut out, &block, 4 * u64::from(rows * columns))?;
        }
        // The fields of the class: the number of elements, and whether the free term is zero.
        out.write_all(&[&1000_u32.to_le_bytes()[..], &[0]].concat())?;
    }
    out.write_all(&[1])?;
    out.flush()
}
