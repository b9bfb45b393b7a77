//! Each reader on files made to cost most: the work, which is counted and not timed, and the memory grow
//! linearly with the file, and only up to the limits.

mod conversions;
mod others;

use std::io::Write;
use std::sync::Arc;

use blob_io::layout::Splice;
use blob_io::{Bytes, Format, OpenOptions};
use flate2::Compression;
use flate2::write::GzEncoder;
use zip::CompressionMethod;

use crate::hdf5_links::{
    datasets_of_chunks as hdf5_datasets_of_chunks, groups_of_groups as hdf5_groups_of_groups,
    links_to_chunks as hdf5_links_to_chunks, soft_links as hdf5_soft_links,
    texts_in_one_heap as hdf5_texts_in_one_heap,
};
use crate::support::Folder;
use crate::support::archive::{self, Zip, npy, npy_of, safetensors};
use crate::support::message::{floats, len, shape, var};
use crate::support::onnx::{onnx_of_dims, onnx_of_metadata, onnx_of_names, onnx_of_numbers, onnx_of_tensors};
use crate::support::work::broken_bounds;

/// A test for each reader, with a maker of hostile files, and the format that the file is opened as.
macro_rules! rows {
    ($($name:ident $(as $from:ident)?;)*) => { $(
        pub(crate) mod $name {
            #[test]
            pub(crate) fn does_linear_work_in_linear_memory() {
                let from = super::rows!(@ $($from)?);
                let broken = super::broken_bounds(stringify!($name), super::$name, |file| super::list(file, from));
                assert!(broken.is_empty(), "{}", broken.join("\n"));
            }
        }
    )* };
    (@) => { None };
    (@ $from:ident) => { Some(super::Format::$from) };
}
use rows;

rows! {
    caffe_v2 as CaffeModel;
    caffe_v2_layers as CaffeModel;
    caffe_v2_names as CaffeModel;
    caffe_v1 as CaffeModel;
    caffe_v0 as CaffeModel;
    caffe_blob_of_pieces as BlobProto;
    caffe_blob_of_floats as BlobProto;
    caffe_vector as BlobProtoVector;
    caffe_solver_state as SolverState;
    caffe_detected;
    mxnet_list;
    mxnet_list_of_one_key;
    mxnet_record;
    neoml_blob;
    neoml_array as NeomlArray;
    neoml_array_of_nulls as NeomlArray;
    neoml_net_of_false_layers as NeomlNet;
    neoml_net_of_versions as NeomlNet;
    neoml_net_nested as NeomlNet;
    neoml_pickle;
    onnx_of_tensors;
    onnx_of_names;
    onnx_of_dims;
    onnx_of_numbers;
    onnx_of_metadata as Onnx;
    npy_header;
    npz_of_one_name;
    npz_of_sparse_folders;
    npz_of_long_headers;
    safetensors_of_empty_tensors;
    safetensors_of_metadata;
    tar_of_models;
    tar_of_one_name;
    zip_of_models;
    gzip_of_blobs;
    hdf5_links_to_chunks;
    hdf5_datasets_of_chunks;
    hdf5_groups_of_groups;
    hdf5_soft_links;
    hdf5_texts_in_one_heap;
}

/// Opens and lists a file, with all that is listed on demand.
fn list(file: &[u8], from: Option<Format>) {
    let options = from.map_or_else(OpenOptions::new, |from| OpenOptions::new().from(from));
    let source: Arc<[u8]> = file.into();
    let Ok(opened) = options.open_source("file", Box::new(Bytes(source))) else { return };
    for entry in opened.entries() {
        std::hint::black_box((entry.name(), entry.byte_len(), entry.warnings().count()));
    }
    assert!(opened.entry("no such name").is_none());
    // Each of these may be refused, after work of its own.
    let _ = opened.mxnet_list();
    let _ = opened.neoml_archive();
    let _ = opened.neoml_layers();
}

#[test]
fn the_settings_of_a_net_do_linear_work_in_linear_memory() {
    let read = |file: &[u8]| {
        let source: Arc<[u8]> = file.into();
        let opened = OpenOptions::new().from(Format::CaffeModel).open_source("file", Box::new(Bytes(source)));
        // A net of too many layers is refused after work of its own.
        let _ = opened.expect("opens").net();
    };
    let mut broken = broken_bounds("long texts", settings_of_long_texts, read);
    broken.extend(broken_bounds("many names", settings_of_many_names, read));
    broken.extend(broken_bounds("many layers", settings_of_many_layers, read));
    assert_eq!(broken, [""; 0]);
}

#[test]
fn an_index_of_shards_does_linear_work_in_linear_memory() {
    let broken = broken_bounds("shards", index_of_shards, |index| {
        let folder = Folder::new();
        let tensors = safetensors_of_empty_tensors(index.len());
        std::fs::write(folder.path().join("s"), tensors).unwrap();
        let index = folder.with("m.safetensors.index.json", index);
        let _ = blob_io::Checkpoint::open(index);
    });
    assert_eq!(broken, [""; 0]);
}

#[test]
fn the_metadata_of_shards_does_linear_work_in_linear_memory() {
    let broken = broken_bounds("metadata of shards", shard_of_metadata, |shard| {
        let folder = Folder::new();
        let other = String::from_utf8_lossy(&shard[8..]).replace("\"a", "\"b");
        std::fs::write(folder.path().join("a"), shard).unwrap();
        std::fs::write(folder.path().join("b"), safetensors(&other, b"")).unwrap();
        let index = folder.with("m.safetensors.index.json", br#"{"weight_map":{"a":"a","b":"b"}}"#);
        let opened = blob_io::Checkpoint::open(index).unwrap();
        let left_out = opened.warnings().iter().any(|warning| warning.to_string().contains("metadata beyond 4 MiB"));
        let pairs = 2 * shard.windows(3).filter(|text| text == b":\"\"").count();
        assert_eq!(left_out, opened.metadata().len() < pairs);
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn layers_are_taken_out_in_linear_work_and_memory() {
    let broken = broken_bounds("layers taken out", pairs_of_layers, |file| {
        let source: Arc<[u8]> = file.into();
        let base = OpenOptions::new().from(Format::CaffeModel).open_source("file", Box::new(Bytes(source))).unwrap();
        let names: Vec<String> = (0..file.len() / 80).map(|i| format!("b{i}")).collect();
        Splice::new(&base).unwrap().remove_layers(names.iter().map(String::as_str)).unwrap();
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// From the last pair to the first, each reads the one before in the file.
fn pairs_of_layers(size: usize) -> Vec<u8> {
    let layer = |kind: &[u8], bottom: &str, top: &str| {
        len(100, &[len(1, top.as_bytes()), len(2, kind), len(3, bottom.as_bytes()), len(4, top.as_bytes())].concat())
    };
    let pairs = (0..size / 70).rev().map(|i| {
        let (below, own, above) = (format!("b{i}"), format!("c{i}"), format!("b{}", i + 1));
        [layer(b"InnerProduct", &above, &own), layer(b"BatchNorm", &own, &below)].concat()
    });
    pairs.flatten().collect()
}

fn filled(size: usize, part: &[u8]) -> Vec<u8> {
    part.repeat(size / part.len())
}

fn caffe_v2(size: usize) -> Vec<u8> {
    len(100, &filled(size, &len(7, b"")))
}

fn caffe_v2_layers(size: usize) -> Vec<u8> {
    filled(size, &len(100, &len(7, b"")))
}

/// Layers whose names are those that a repeated name gets.
fn caffe_v2_names(size: usize) -> Vec<u8> {
    let names = (0..size / 220).map(|i| format!("a{}", "@9".repeat(i % 200)));
    names.flat_map(|name| len(100, &[len(1, name.as_bytes()), len(7, b"")].concat())).collect()
}

fn caffe_v1(size: usize) -> Vec<u8> {
    len(2, &[len(4, b"n"), filled(size, &len(6, b""))].concat())
}

/// Blobs in the nested layer and in the outer one.
fn caffe_v0(size: usize) -> Vec<u8> {
    let nested = [len(1, b"n"), filled(size / 2, &len(50, b""))].concat();
    len(2, &[len(1, &nested), filled(size / 2, &len(6, b""))].concat())
}

/// Numbers of a layer that are long as texts, in a field that repeats.
fn settings_of_long_texts(size: usize) -> Vec<u8> {
    let coeff = len(110, &len(2, &filled(size, &f32::from_bits(0x007F_FFFF).to_le_bytes())));
    [len(100, &len(7, b"")), len(100, &coeff)].concat()
}

/// Settings of a layer, which repeat in turn.
fn settings_of_many_names(size: usize) -> Vec<u8> {
    let pooling: Vec<u8> = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].iter().flat_map(|number| [number << 3, 1]).collect();
    let convolution: Vec<u8> =
        [1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14].iter().flat_map(|number| [number << 3, 1]).collect();
    let part = [len(121, &pooling), len(106, &convolution)].concat();
    [len(100, &len(7, b"")), len(100, &filled(size, &part))].concat()
}

/// Layers with a setting of a long name each.
fn settings_of_many_layers(size: usize) -> Vec<u8> {
    let filler = len(106, &len(7, &[8 << 3, 1]));
    [len(100, &len(7, b"")), filled(size, &len(100, &filler))].concat()
}

fn caffe_blob_of_pieces(size: usize) -> Vec<u8> {
    let piece = floats(&[1.0, 2.0]);
    let count = size / piece.len();
    [shape(&[2 * count as u64]), piece.repeat(count)].concat()
}

fn caffe_blob_of_floats(size: usize) -> Vec<u8> {
    [shape(&[size as u64 / 5]), filled(size, b"\x2D\0\0\x80\x3F")].concat()
}

fn caffe_vector(size: usize) -> Vec<u8> {
    filled(size, &len(1, b""))
}

fn caffe_solver_state(size: usize) -> Vec<u8> {
    [var(1, 5), filled(size, &len(3, b""))].concat()
}

/// A vector that is told from a net by the first blob.
fn caffe_detected(size: usize) -> Vec<u8> {
    [len(1, &[shape(&[1]), floats(&[1.0])].concat()), filled(size, &len(1, b""))].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Records of four bytes, an array without axes of version 0 each.
fn mxnet_list(size: usize) -> Vec<u8> {
    let count = size as u32 / 4;
    [words(&[0x112, 0, 0, 0, count, 0]), vec![0; 4 * count as usize], words(&[0, 0])].concat()
}

/// Ambiguous records of version 2 under one key.
fn mxnet_list_of_one_key(size: usize) -> Vec<u8> {
    let count = size as u32 / 21;
    let keys = [&1_u64.to_le_bytes()[..], b"a"].concat().repeat(count as usize);
    let records = words(&[0xF993_FAC9, 0, 0]).repeat(count as usize);
    [words(&[0x112, 0, 0, 0, count, 0]), records, words(&[count, 0]), keys].concat()
}

fn mxnet_record(size: usize) -> Vec<u8> {
    [words(&[0xF993_FAC9, 0, 32]), vec![1; size]].concat()
}

/// A version of NeoML's.
const VERSION: &[u8] = b"\xFF\xD0\x07\0\0";

/// A blob of NeoML with these extents.
fn neoml(extents: [i32; 7]) -> Vec<u8> {
    let cells: i32 = extents.iter().product();
    let head = [1, 0].into_iter().chain(extents).chain([cells]).flat_map(i32::to_le_bytes);
    [VERSION.to_vec(), head.collect(), vec![0; 4 * cells as usize]].concat()
}

fn neoml_blob(size: usize) -> Vec<u8> {
    [neoml([1; 7]), vec![0xFF; size]].concat()
}

fn neoml_array(size: usize) -> Vec<u8> {
    let blob = [vec![0], neoml([0; 7])].concat();
    let count = size / blob.len();
    [(count as i32).to_le_bytes().to_vec(), blob.repeat(count)].concat()
}

fn neoml_array_of_nulls(size: usize) -> Vec<u8> {
    [(size as i32).to_le_bytes().to_vec(), vec![1; size]].concat()
}

/// A layer without a class: the name, the number of blobs.
fn layer(name: &[u8], blobs: i32) -> Vec<u8> {
    let multipliers = [1.0_f32; 3].iter().flat_map(|one| one.to_le_bytes());
    let head = [VERSION, &[name.len() as u8], name, &[0; 4], &[1, 1]].concat();
    head.into_iter().chain(multipliers).chain(blobs.to_le_bytes()).collect()
}

/// Unnamed layers, each with a blob that leads to one run of null flags which ends badly.
fn neoml_net_of_false_layers(size: usize) -> Vec<u8> {
    let each = layer(b"", 0).len() + 1 + neoml([0; 7]).len();
    let (count, nulls) = (size / 2 / each, size / 2);
    let mut file = [b"\0", VERSION, b"zzz"].concat();
    let end = file.len() + count * each;
    for _ in 0..count {
        file.extend(layer(b"", nulls as i32 + 2));
        let cells = file.len() + 1 + 45;
        let extent = (end + (4 - (end - cells) % 4) % 4 - cells) as i32 / 4;
        file.push(0);
        file.extend(VERSION);
        // A pack field of 7, so that the search does not take the blob for a record of its own.
        file.extend([1, 7, extent, 1, 1, 1, 1, 1, 1, extent].map(i32::to_le_bytes).concat());
    }
    [file, vec![1; nulls], vec![2]].concat()
}

/// Before each layer, bytes that are chains of versions in as many ways as possible.
fn neoml_net_of_versions(size: usize) -> Vec<u8> {
    let versions = b"\xFF\x01\x01\0\0".repeat(8);
    let part = [&versions, &layer(b"a", 0)[..]].concat();
    filled(size, &part)
}

/// Composite layers within each other, with long names, around many small ones.
fn neoml_net_nested(size: usize) -> Vec<u8> {
    let class = |versions: usize| [b"\x17FmlCnnCompositeLayer000", &VERSION.repeat(versions)[..]].concat();
    let composite = [class(1), layer(&[b'n'; 200], 0), 60_000_i32.to_le_bytes().to_vec()].concat();
    let small = [class(0), layer(b"s", 0)].concat();
    [composite.repeat(40), filled(size, &small)].concat()
}

fn neoml_pickle(size: usize) -> Vec<u8> {
    [b"\x80\x02cneoml.Blob\n", &filled(size, &neoml([0; 7]))[..]].concat()
}

fn npy_header(size: usize) -> Vec<u8> {
    npy_of(3, &format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}\n", "1,".repeat(size / 2)), b"")
}

fn npz_of_one_name(size: usize) -> Vec<u8> {
    let member = npy("'<f4'", "(0,)", b"");
    (0..size / (member.len() + 102)).fold(Zip::default(), |zip, _| zip.add("a.npy", &member)).end()
}

fn npz_of_sparse_folders(size: usize) -> Vec<u8> {
    let member = npy("'<f4'", "(0,)", b"");
    let parts = ["data", "indices", "indptr", "shape", "format"];
    let names = (0..size / (member.len() + 124)).map(|i| format!("{}/{}.npy", i / 6, parts[i % 5]));
    names.fold(Zip::default(), |zip, name| zip.add(&name, &member)).end()
}

fn npz_of_long_headers(size: usize) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }}{}\n", " ".repeat(60_000));
    let member = npy_of(1, &header, b"");
    let names: Vec<String> = (0..size / 330).map(|i| format!("{i}.npy")).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (&name[..], &member[..])).collect();
    archive::theirs(CompressionMethod::Deflated, &members)
}

fn safetensors_of_empty_tensors(size: usize) -> Vec<u8> {
    let tensors = (0..size / 60).map(|i| format!(r#""{i:x}":{{"dtype":"F8_E5M2","shape":[0],"data_offsets":[0,0]}}"#));
    let tensors: Vec<String> = tensors.collect();
    safetensors(&format!("{{{}}}", tensors.join(",")), b"")
}

fn shard_of_metadata(size: usize) -> Vec<u8> {
    let pairs: Vec<String> = (0..size / 10).map(|i| format!(r#""a{i:x}":"""#)).collect();
    let tensor = r#""a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}"#;
    safetensors(&format!(r#"{{"__metadata__":{{{}}},{tensor}}}"#, pairs.join(",")), b"")
}

fn index_of_shards(size: usize) -> Vec<u8> {
    let names = (0..size / 100).map(|i| format!(r#""{i:x}":"s""#)).collect::<Vec<_>>().join(",");
    format!(r#"{{"weight_map":{{{names}}}}}"#).into_bytes()
}

fn safetensors_of_metadata(size: usize) -> Vec<u8> {
    let pairs: Vec<String> = (0..size / 10).map(|i| format!(r#""{i:x}":"""#)).collect();
    safetensors(&format!(r#"{{"__metadata__":{{{}}}}}"#, pairs.join(",")), b"")
}

fn tar_of_models(size: usize) -> Vec<u8> {
    let net = len(100, &[len(1, b"n"), len(2, b"X")].concat());
    let names: Vec<String> = (0..size / 1024).map(|i| format!("{i}.caffemodel")).collect();
    archive::tarred(names.iter().map(|name| (&name[..], &net[..])))
}

fn tar_of_one_name(size: usize) -> Vec<u8> {
    archive::tarred((0..size / 512).map(|_| ("a", &b""[..])))
}

fn zip_of_models(size: usize) -> Vec<u8> {
    let net = len(100, &[len(1, b"n"), len(2, b"X")].concat());
    (0..size / 130).fold(Zip::default(), |zip, i| zip.add(&format!("{i}.caffemodel"), &net)).end()
}

/// A layer of empty blobs that are packed a hundred to a byte or more.
fn gzip_of_blobs(size: usize) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&caffe_v2(64 * size)).unwrap();
    let mut file = packed.finish().unwrap();
    // Zeros may follow a gzip file.
    file.resize(size.max(file.len()), 0);
    file
}
