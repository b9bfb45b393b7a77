//! Lays out an HDF5 file: the structure first, then each dataset in one run.
//!
//! The file is as libhdf5 writes one by default, and every version of libhdf5 reads one: superblock 0, groups with
//! symbol tables, headers of version 1; without times, so the same tensors give the same bytes. Source: HDF5 File
//! Format Specification 3.0.

use std::collections::BTreeMap;

use blob_core::DType;

use super::form::Form;
use super::nodes::{FORMAT, Object, tree};
use crate::error::Error;
use crate::spec::{TensorSpec, refuse, total, unique};

/// The alignment of datasets: that of the widest vector load and of a cache line.
const ALIGN: u64 = 64;
const SUPERBLOCK: usize = 96;
const UNDEFINED: u64 = u64::MAX;
/// The superblock's constants for all groups: half of the maximal number of names in a leaf, and of children in a node.
const LEAF_K: usize = 4;
const NODE_K: usize = 16;
/// A longer header of the root is refused: this crate's own reader takes at most 72 KiB.
const MAX_HEADER: usize = 60 << 10;
/// libhdf5 refuses a smaller global heap.
const LEAST_HEAP: usize = 4096;

/// The structure without the metadata's values.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    root: BTreeMap<String, Object>,
    specs: Vec<TensorSpec>,
    form: Form,
    keys: Vec<String>,
    offsets: Vec<u64>,
    /// The structure's length, padding included.
    head: u64,
    len: u64,
}

pub(crate) fn plan(
    specs: &[TensorSpec],
    form: Form,
    metadata: &[(String, String)],
) -> Result<(Plan, Vec<u64>, u64), Error> {
    unique(FORMAT, "the tensor", specs.iter().map(|spec| &*spec.name))?;
    unique(FORMAT, "the metadata key", metadata.iter().map(|(key, _)| key.as_str()))?;
    let root = tree(form, specs, metadata)?;
    let attributes = attributes(form, metadata);
    let keys = attributes.iter().map(|(key, _)| key.clone()).collect();
    if let Some((key, value)) = attributes.iter().find(|(k, v)| k.is_empty() || k.contains('\0') || v.contains('\0')) {
        return Err(refuse(FORMAT, format!("an attribute has a name and no NUL, unlike {key:?}: {value:?}")));
    }
    let header: usize = attributes.iter().map(|(key, _)| attribute(key, 0, 0, 0).len()).sum();
    if header > MAX_HEADER {
        return Err(refuse(FORMAT, format!("the metadata's keys take {header} bytes; the most is {MAX_HEADER}")));
    }
    let offsets = vec![0; specs.len()];
    let mut plan = Plan { root, specs: specs.to_vec(), form, keys, offsets, head: 0, len: 0 };
    plan.head = (plan.structure(&attributes).len() as u64).next_multiple_of(ALIGN);
    plan.len = plan.head;
    for (spec, offset) in specs.iter().zip(&mut plan.offsets) {
        *offset = plan.len;
        if spec.byte_len() > 0 {
            *offset = total(FORMAT, plan.len, ALIGN - 1)? / ALIGN * ALIGN;
            plan.len = total(FORMAT, *offset, spec.byte_len())?;
        }
    }
    let (offsets, len) = (plan.offsets.clone(), plan.len);
    Ok((plan, offsets, len))
}

/// The metadata that become attributes of the root.
fn attributes(form: Form, metadata: &[(String, String)]) -> Vec<(String, String)> {
    metadata.iter().filter(|(key, _)| !form.stores(key)).cloned().collect()
}

impl Plan {
    pub(crate) fn frame(&self, metadata: &[(String, String)]) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        let attributes = attributes(self.form, metadata);
        if !self.keys.iter().eq(attributes.iter().map(|(key, _)| key)) {
            return Err(refuse(FORMAT, "the metadata have other keys than in the layout"));
        }
        let mut head = self.structure(&attributes);
        let found = (head.len() as u64).next_multiple_of(ALIGN);
        if found != self.head {
            return Err(refuse(FORMAT, format!("the structure takes {found} bytes, in the layout {}", self.head)));
        }
        head.resize(self.head as usize, 0);
        let mut parts = vec![(0, head)];
        let mut end = self.head;
        for (spec, offset) in self.specs.iter().zip(&self.offsets).filter(|(spec, _)| spec.byte_len() > 0) {
            if end < *offset {
                parts.push((end, vec![0; (offset - end) as usize]));
            }
            end = offset + spec.byte_len();
        }
        Ok(parts)
    }

    /// The structure's bytes. The length depends neither on the offsets nor on the values' bytes.
    fn structure(&self, attributes: &[(String, String)]) -> Vec<u8> {
        let mut out = Structure { bytes: vec![0; SUPERBLOCK], plan: self };
        let heap = out.global_heap(attributes);
        let attributes = attributes.iter().enumerate();
        let attributes: Vec<Vec<u8>> =
            attributes.map(|(i, (key, value))| attribute(key, value.len(), heap, i + 1)).collect();
        let root = out.group(&self.root, attributes);
        out.bytes[..SUPERBLOCK].copy_from_slice(&superblock(&root, self.len));
        out.bytes
    }
}

/// The offsets of a group's parts.
struct GroupOffsets {
    header: u64,
    tree: u64,
    heap: u64,
}

/// The bytes so far, from the file's beginning; the target of a reference is written before the part that refers.
struct Structure<'a> {
    bytes: Vec<u8>,
    plan: &'a Plan,
}

impl Structure<'_> {
    fn add(&mut self, bytes: &[u8]) -> u64 {
        let at = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(at, 0);
        self.bytes.extend_from_slice(bytes);
        at as u64
    }

    fn group(&mut self, links: &BTreeMap<String, Object>, mut messages: Vec<Vec<u8>>) -> GroupOffsets {
        // Eight zeros are an empty name, which sorts before all others.
        let mut names = vec![0; 8];
        let mut entries = Vec::with_capacity(links.len());
        for (name, node) in links {
            let entry = match node {
                Object::Group(inner) => group_entry(names.len(), &self.group(inner, Vec::new())),
                other => entry(names.len(), self.dataset(other)),
            };
            entries.push((names.len() as u64, entry));
            names.extend_from_slice(name.as_bytes());
            names.resize((names.len() + 1).next_multiple_of(8), 0);
        }
        let tree = self.tree(&entries);
        let heap = self.heap(&names);
        messages.insert(0, message(0x11, &[tree.to_le_bytes(), heap.to_le_bytes()].concat()));
        let header = self.header(&messages);
        GroupOffsets { header, tree, heap }
    }

    /// The B-tree of a group's entries, each with the offset of the entry's name.
    fn tree(&mut self, entries: &[(u64, Vec<u8>)]) -> u64 {
        // The greatest name below a child, and the child's offset.
        let mut level: Vec<(u64, u64)> = Vec::new();
        for leaf in entries.chunks(2 * LEAF_K) {
            let mut node = [&b"SNOD\x01\0"[..], &(leaf.len() as u16).to_le_bytes()].concat();
            leaf.iter().for_each(|(_, entry)| node.extend_from_slice(entry));
            node.resize(8 + 2 * LEAF_K * 40, 0);
            level.push((leaf[leaf.len() - 1].0, self.add(&node)));
        }
        let mut depth = 0;
        loop {
            level = self.level(depth, &level);
            match level[..] {
                [(_, root)] => return root,
                _ => depth += 1,
            }
        }
    }

    /// The nodes above `children`: a single node if all children fit.
    fn level(&mut self, depth: u8, children: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let len = 24 + (2 * NODE_K + 2 * NODE_K + 1) * 8;
        let mut nodes: Vec<&[(u64, u64)]> = children.chunks(2 * NODE_K).collect();
        if nodes.is_empty() {
            nodes.push(&[]);
        }
        let (count, first) = (nodes.len(), self.bytes.len().next_multiple_of(8));
        let offset = |node: usize| (first + node * len) as u64;
        let mut least = 0;
        let mut above = Vec::with_capacity(count);
        for (i, children) in nodes.into_iter().enumerate() {
            let left = i.checked_sub(1).map_or(UNDEFINED, offset);
            let right = if i + 1 < count { offset(i + 1) } else { UNDEFINED };
            let mut node = [b"TREE\0", &[depth][..], &(children.len() as u16).to_le_bytes()].concat();
            let words = [left, right, least].into_iter();
            let words = words.chain(children.iter().flat_map(|(greatest, child)| [*child, *greatest]));
            node.extend(words.flat_map(u64::to_le_bytes));
            node.resize(len, 0);
            least = children.last().map_or(0, |(greatest, _)| *greatest);
            above.push((least, self.add(&node)));
        }
        above
    }

    /// The heap of a group's names, without free space.
    fn heap(&mut self, names: &[u8]) -> u64 {
        let at = self.bytes.len().next_multiple_of(8) as u64;
        let words = [names.len() as u64, 1, at + 32].map(u64::to_le_bytes).concat();
        self.add(&[b"HEAP\0\0\0\0", &words[..], names].concat())
    }

    /// A dataset's header, after the bytes of a number or a text.
    fn dataset(&mut self, node: &Object) -> u64 {
        let (kind, dims, at, len) = match node {
            Object::Tensor(tensor) => {
                let (spec, offset) = (&self.plan.specs[*tensor], self.plan.offsets[*tensor]);
                (datatype(spec.dtype), spec.shape.dims(), offset, spec.byte_len())
            }
            Object::Number(number) => (datatype(DType::I32), &[1][..], self.add(&number.to_le_bytes()), 4),
            Object::Text(text) => {
                let at = self.add(&[text.as_bytes(), b"\0"].concat());
                let len = text.len() as u64 + 1;
                ([&[0x13, 0, 0, 0], &(len as u32).to_le_bytes()[..]].concat(), &[][..], at, len)
            }
            Object::Group(_) => unreachable!("a group has a header of its own"),
        };
        let offset = if len == 0 { UNDEFINED } else { at };
        let layout = [&[3, 1][..], &offset.to_le_bytes(), &len.to_le_bytes()].concat();
        // The fill value message, version 2: space is allocated late, and fill values, which are zeros, are written
        // only if the user sets one.
        let fill = [2, 2, 2, 1, 0, 0, 0, 0];
        let messages =
            [message(0x01, &dataspace(dims)), message(0x03, &kind), message(0x05, &fill), message(0x08, &layout)];
        self.header(&messages)
    }

    /// An object's header, version 1.
    fn header(&mut self, messages: &[Vec<u8>]) -> u64 {
        let body = messages.concat();
        let mut header = vec![1, 0];
        header.extend((messages.len() as u16).to_le_bytes());
        header.extend(1_u32.to_le_bytes());
        header.extend((body.len() as u32).to_le_bytes());
        header.extend([0; 4]);
        self.add(&[header, body].concat())
    }

    /// The global heap of the attributes' values, if there are any: one object each, numbered from 1.
    fn global_heap(&mut self, attributes: &[(String, String)]) -> u64 {
        if attributes.is_empty() {
            return UNDEFINED;
        }
        let mut objects = Vec::new();
        for (i, (_, value)) in attributes.iter().enumerate() {
            objects.extend([i as u16 + 1, 0, 0, 0].map(u16::to_le_bytes).concat());
            objects.extend((value.len() as u64).to_le_bytes());
            objects.extend_from_slice(value.as_bytes());
            objects.resize(objects.len().next_multiple_of(8), 0);
        }
        let len = (16 + objects.len()).max(LEAST_HEAP);
        // The free space is object 0, whose length includes the header's 16 bytes; a smaller rest is no object.
        let free = len - 16 - objects.len();
        if free >= 16 {
            objects.extend([0_u64, free as u64].map(u64::to_le_bytes).concat());
        }
        objects.resize(len - 16, 0);
        self.add(&[b"GCOL\x01\0\0\0", &(len as u64).to_le_bytes()[..], &objects].concat())
    }
}

fn superblock(root: &GroupOffsets, len: u64) -> Vec<u8> {
    let mut out = b"\x89HDF\r\n\x1A\n\0\0\0\0\0\x08\x08\0".to_vec();
    out.extend([LEAF_K as u16, NODE_K as u16, 0, 0].map(u16::to_le_bytes).concat());
    out.extend([0, UNDEFINED, len, UNDEFINED].map(u64::to_le_bytes).concat());
    out.extend(group_entry(0, root));
    out
}

/// A name's entry in a group.
fn entry(name: usize, header: u64) -> Vec<u8> {
    let mut entry = [name as u64, header].map(u64::to_le_bytes).concat();
    entry.resize(40, 0);
    entry
}

/// The entry of a group, with the offsets of the group's parts.
fn group_entry(name: usize, group: &GroupOffsets) -> Vec<u8> {
    [name as u64, group.header, 1, group.tree, group.heap].map(u64::to_le_bytes).concat()
}

/// A message in a header, padded.
fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let len = body.len().next_multiple_of(8);
    let mut message = [kind, len as u16, 0, 0].map(u16::to_le_bytes).concat();
    message.extend_from_slice(body);
    message.resize(8 + len, 0);
    message
}

fn dataspace(dims: &[usize]) -> Vec<u8> {
    let mut out = vec![1, dims.len() as u8, 0, 0, 0, 0, 0, 0];
    out.extend(dims.iter().flat_map(|dim| (*dim as u64).to_le_bytes()));
    out
}

/// The message of a dtype, little-endian.
fn datatype(dtype: DType) -> Vec<u8> {
    let size = dtype.size() as u8;
    let float = |exponent: u8, mantissa: u8, bias: u32| {
        let head = [0x11, 0x20, size * 8 - 1, 0, size, 0, 0, 0, 0, 0, size * 8, 0, mantissa, exponent, 0, mantissa];
        [&head[..], &bias.to_le_bytes()].concat()
    };
    let integer = |is_signed: bool| vec![0x10, u8::from(is_signed) * 8, 0, 0, size, 0, 0, 0, 0, 0, size * 8, 0];
    match dtype {
        DType::F16 => float(5, 10, 15),
        DType::BF16 => float(8, 7, 127),
        DType::F32 => float(8, 23, 127),
        DType::F64 => float(11, 52, 1023),
        // As in h5py: an enumeration of i8.
        DType::Bool => {
            let head = [0x18, 2, 0, 0, 1, 0, 0, 0];
            [&head[..], &integer(true), b"FALSE\0\0\0TRUE\0\0\0\0\0\x01"].concat()
        }
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => integer(true),
        _ => integer(false),
    }
}

/// A text as an attribute: object `index` of the heap at `heap`, of `len` bytes.
fn attribute(key: &str, len: usize, heap: u64, index: usize) -> Vec<u8> {
    let padded = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    };
    // A variable-length text in UTF-8, of single characters.
    let kind = [&[0x19, 1, 1, 0, 16, 0, 0, 0][..], &[0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0]].concat();
    let space = dataspace(&[]);
    let sizes = [key.len() + 1, kind.len(), space.len()].map(|n| (n as u16).to_le_bytes()).concat();
    let (heap, index) = if len == 0 { (0, 0) } else { (heap, index) };
    let value = [&(len as u32).to_le_bytes()[..], &heap.to_le_bytes(), &(index as u32).to_le_bytes()].concat();
    let name = padded(&[key.as_bytes(), b"\0"].concat());
    message(0x0C, &[&[1, 0], &sizes[..], &name, &padded(&kind), &padded(&space), &value].concat())
}
