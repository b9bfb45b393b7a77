//! Builds npy and safetensors files, zip archives as MXNet 2 and the `zip` crate write them, and tar archives.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// An npy file of version 1.0.
pub(crate) fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    npy_of(1, &format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"), data)
}

/// An npy file of this major version, with any text as its header.
pub(crate) fn npy_of(version: u8, dict: &str, data: &[u8]) -> Vec<u8> {
    let len = (dict.len() as u32).to_le_bytes();
    let len = if version == 1 { &len[..2] } else { &len };
    [b"\x93NUMPY", &[version, 0][..], len, dict.as_bytes(), data].concat()
}

/// A safetensors file with any text as its header.
pub(crate) fn safetensors(json: &str, data: &[u8]) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes(), json.as_bytes(), data].concat()
}

/// Writes a safetensors file that has a tensor of one byte for each name.
pub(crate) fn named(path: &Path, names: &[String]) {
    let tensors = names.iter().enumerate().map(|(i, name): (usize, &String)| {
        let name = serde_json::to_string(name).unwrap();
        format!("{name}:{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[{i},{}]}}", i + 1)
    });
    let tensors: Vec<String> = tensors.collect();
    fs::write(path, safetensors(&format!("{{{}}}", tensors.join(",")), &vec![7; names.len()])).unwrap();
}

/// Writes an npy file of `count` float zeros. It is sparse, so it takes no disk space.
pub(crate) fn zeros(path: &Path, count: u64) {
    let header = npy("'<f4'", &format!("({count},)"), b"");
    fs::write(path, &header).unwrap();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(header.len() as u64 + 4 * count).unwrap();
}

pub(crate) fn ints(values: &[i64]) -> Vec<u8> {
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    npy("'<i8'", &format!("({},)", values.len()), &data)
}

/// A zip archive as MXNet 2 writes it: members are stored, their sizes follow the data and are in the central directory
/// but not in the local header, and the month is 0.
#[derive(Default)]
pub(crate) struct Zip {
    bytes: Vec<u8>,
    central: Vec<u8>,
    count: u16,
}

impl Zip {
    pub(crate) fn add(mut self, name: &str, content: &[u8]) -> Self {
        let (offset, len) = (self.bytes.len() as u32, content.len() as u32);
        let crc = crc32fast::hash(content);
        self.bytes.extend(b"PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0");
        self.bytes.extend([0; 12]);
        self.bytes.extend((name.len() as u32).to_le_bytes());
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(content);
        self.bytes.extend(b"PK\x07\x08");
        self.bytes.extend([crc, len, len].map(u32::to_le_bytes).concat());
        self.central.extend(b"PK\x01\x02\0\0\0\0\x08\x08\0\0\0\0\0\0");
        self.central.extend([crc, len, len, name.len() as u32].map(u32::to_le_bytes).concat());
        self.central.extend([0; 10]);
        self.central.extend(offset.to_le_bytes());
        self.central.extend(name.as_bytes());
        self.count += 1;
        self
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        let (offset, len) = (self.bytes.len() as u32, self.central.len() as u32);
        self.bytes.append(&mut self.central);
        self.bytes.extend(b"PK\x05\x06\0\0\0\0");
        self.bytes.extend([self.count, self.count].map(u16::to_le_bytes).concat());
        self.bytes.extend([len, offset].map(u32::to_le_bytes).concat());
        self.bytes.extend([0, 0]);
        self.bytes
    }
}

/// A zip archive written by the `zip` crate.
pub(crate) fn theirs(method: CompressionMethod, members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in members {
        let options = SimpleFileOptions::default().compression_method(method);
        writer.start_file(*name, options).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// A zip archive of the csr array `w` of shape 2×3, as SciPy writes it. `values` is the npy file of its three values.
pub(crate) fn csr(values: &[u8]) -> Vec<u8> {
    Zip::default()
        .add("w/data.npy", values)
        .add("w/format.npy", &npy("'<U3'", "()", b"c\0\0\0s\0\0\0r\0\0\0"))
        .add("w/indices.npy", &ints(&[0, 2, 1]))
        .add("w/indptr.npy", &ints(&[0, 2, 3]))
        .add("w/shape.npy", &ints(&[2, 3]))
        .end()
}

/// A tar archive written by the `tar` crate.
pub(crate) fn tarred<'a>(members: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, content).expect("written");
    }
    builder.into_inner().expect("written")
}

/// A tar header of this entry type and size 0, written by the `tar` crate and then changed by `put`.
pub(crate) fn tar_header(name: &str, kind: u8, put: impl Fn(&mut [u8; 512])) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path(name).expect("a short name");
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_size(0);
    put(header.as_mut_bytes());
    header.set_cksum();
    header.as_bytes().to_vec()
}
