//! What every fuzz target does with its bytes: opens them as one format, reads all there is to read, and where the
//! format is written too, writes the tensors and reads them again. Of a net's description, what it says of its values.
//!
//! The targets differ in the format only; `cargo xtask fuzz` runs them from the golden files. The library does not know
//! the fuzzer.

#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};

use blob_core::DType;
use blob_graph::{Graph, Shapes, Ssd, Target, to_onnx};
use blob_io::mxnet::Symbol;
use blob_io::net::{Layer, Net, Phase};
use blob_io::{Bytes, Checkpoint, Entry, Format, IfExists, Limits, OpenOptions, Writer, caffe};

/// Bounds under which no input takes long: an error beyond them is as good as any other.
fn limits() -> Limits {
    Limits { max_arrays: 4096, max_alloc: 1 << 20, max_spool: 1 << 24, ..Limits::default() }
}

/// Reads the bytes as `format`, or as what they look like.
pub fn target(format: Option<&str>, bytes: &[u8]) {
    let format = format.map(|name| name.parse::<Format>().expect("a format of this crate"));
    for salvage in [false, true] {
        let options = OpenOptions::new().limits(limits());
        let options = format.into_iter().fold(options, OpenOptions::from);
        let options = if salvage { options.salvage() } else { options };
        if let Ok(checkpoint) = options.open_source("input", Box::new(Bytes(bytes.to_vec()))) {
            read(&checkpoint);
            if let Ok(Some(described)) = checkpoint.net() {
                net(&described);
                let tensors = described.layers().iter().flat_map(Layer::tensors);
                tensors
                    .for_each(|(_, name)| assert!(checkpoint.entry(name).is_some(), "{name}: no tensor of the file"));
            }
            there_and_back(&checkpoint);
        }
    }
}

/// Reads the bytes as an archive, and a member that the golden ones have as if it lay there alone.
pub fn archive(bytes: &[u8]) {
    target(None, bytes);
    let options = OpenOptions::new().limits(limits());
    for member in ["net-0000.params", "model_algo-1-0000.params", "symbol.json"] {
        let named = options.clone().member(member).open_source("input", Box::new(Bytes(bytes.to_vec())));
        if let Ok(checkpoint) = named {
            assert_eq!((checkpoint.member(), checkpoint.file()), (Some(member), "input"));
            read(&checkpoint);
            let _ = checkpoint.beside("symbol.json");
        }
    }
}

/// Reads the bytes as Caffe's description of a net.
pub fn prototxt(bytes: &[u8]) {
    if let Ok(described) = caffe::prototxt("input", bytes) {
        assert!(!described.layers().is_empty());
        net(&described);
    }
}

/// Reads the bytes as MXNet's description of a net.
pub fn symbol(bytes: &[u8]) {
    if let Ok(symbol) = Symbol::from_bytes("input", bytes) {
        assert!(
            symbol.variables.iter().all(|variable| !variable.is_auxiliary || variable.is_parameter),
            "an auxiliary state that is no parameter"
        );
        net(&symbol.net);
    }
}

/// Reads the bytes as a net of Caffe's or MXNet's, and makes every kind of ONNX model of it.
pub fn graph(bytes: &[u8]) {
    let net = caffe::prototxt("input", bytes)
        .ok()
        .or_else(|| Some(Symbol::from_bytes("input", bytes).ok()?.net))
        .or_else(|| {
            let options = OpenOptions::new().limits(limits()).from(Format::CaffeModel);
            options.open_source("input", Box::new(Bytes(bytes.to_vec()))).ok()?.net().ok()?
        });
    let Some(net) = net.map(|net| net.in_phase(Phase::Test)) else { return };
    let shapes = Shapes { only: Some(vec![1, 3, 8, 8]), ..Shapes::default() };
    let Ok(graph) = Graph::from_net(&net, &shapes) else { return };
    for (ssd, dynamic_batch) in [(Ssd::Standard, false), (Ssd::OpenCv, true), (Ssd::Raw, false)] {
        let Ok((model, needs)) = to_onnx(&graph, &Target { ssd, dynamic_batch, ..Target::default() }) else { continue };
        let mut known: HashSet<&str> = model.inputs.iter().map(|value| &*value.name).collect();
        let constants = model.initializers.iter().map(|initializer| initializer.name());
        constants.for_each(|name| assert!(known.insert(name), "{name} has two values"));
        for node in &model.nodes {
            let lacks = node.inputs.iter().find(|input| !input.is_empty() && !known.contains(&***input));
            assert!(lacks.is_none(), "{}: nothing writes {lacks:?}", node.name);
            node.outputs.iter().for_each(|name| assert!(known.insert(name), "{name} is written twice"));
        }
        assert!(model.outputs.iter().all(|output| known.contains(&*output.name)), "an output that nothing writes");
        assert!(needs.iter().all(|need| known.contains(&*need.initializer)));
    }
}

/// Every value has one writer at most, and the readers that the layers name.
fn net(net: &Net) {
    let mut written = HashSet::new();
    for layer in net.layers() {
        for top in &layer.tops {
            assert!(written.insert(*top), "{}: value {top} has two writers", layer.name);
            assert!(net.writer(*top).is_some_and(|writer| std::ptr::eq(writer, layer)));
        }
    }
    let mut reads: HashMap<usize, Vec<*const Layer>> = HashMap::new();
    for layer in net.layers() {
        layer.bottoms.iter().for_each(|bottom| reads.entry(*bottom).or_default().push(layer));
    }
    for (value, layers) in &reads {
        assert!(net.uses(*value) >= layers.len(), "value {value} is read more often than it is used");
        assert!(net.readers(*value).map(std::ptr::from_ref).eq(layers.iter().copied()), "the readers of value {value}");
    }
}

/// Every way to an array's bytes agrees with every other.
fn read(checkpoint: &Checkpoint) {
    for entry in checkpoint.entries() {
        assert!(checkpoint.entry(entry.name()).is_some_and(|found| found.name() == entry.name()));
        let view = checkpoint.view(entry).map(std::borrow::Cow::into_owned);
        if let (Ok(view), Ok(mut reader)) = (&view, checkpoint.reader(entry)) {
            let mut pulled = Vec::new();
            let mut piece = vec![0; 1000];
            let whole = loop {
                match reader.pull(&mut piece) {
                    Ok(0) => break true,
                    Ok(n) => pulled.extend_from_slice(&piece[..n]),
                    Err(_) => break false,
                }
            };
            assert!(!whole || pulled == *view, "{}: a reader and a view differ", entry.name());
        }
        let _ = (checkpoint.check(entry, &mut |_| Ok(())), checkpoint.check_sparse(entry));
        if let (Ok(blob), Ok(view)) = (checkpoint.load(entry), view) {
            assert_eq!(blob.byte_len(), view.len(), "{}: a blob and a view differ", entry.name());
        }
        let _ = checkpoint.load_dense(entry);
    }
}

/// What the format's own writer makes of the tensors holds the same tensors.
fn there_and_back(checkpoint: &Checkpoint) {
    let tensors = checkpoint.entries().iter().filter(|entry| entry.dtype().is_some());
    let Ok(tensors) =
        tensors.map(|entry| Ok((entry, checkpoint.tensor(entry)?))).collect::<Result<Vec<_>, blob_io::Error>>()
    else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("again");
    let writer = Writer::new(checkpoint.format());
    let writer = tensors.iter().fold(writer, |writer, (entry, tensor)| writer.tensor(entry.name(), tensor));
    if writer.write(&path, IfExists::Refuse).is_err() {
        return;
    }
    let again = OpenOptions::new().from(checkpoint.format()).open(&path).expect("what was written is read");
    let kept: Vec<&Entry> = again.entries().iter().filter(|entry| entry.dtype().is_some()).collect();
    assert_eq!(kept.len(), tensors.len(), "as many tensors");
    for ((entry, _), kept) in tensors.iter().zip(kept) {
        // HDF5 has the order of names, not that of numbers.
        let is_sorted = checkpoint.format() == Format::Hdf5;
        let kept = if is_sorted { again.entry(entry.name()).expect("as it was called") } else { kept };
        // NumPy's formats have no bf16: its bits are stored as u16.
        let is_bits = entry.dtype() == Some(DType::BF16) && kept.dtype() == Some(DType::U16);
        // Caffe's messages store no dtype: a blob without values is one of floats.
        let is_empty = entry.shape().dims().contains(&0) && checkpoint.format().is_caffe();
        assert!(is_bits || is_empty || entry.dtype() == kept.dtype(), "{}", entry.name());
        assert_eq!(entry.shape(), kept.shape(), "{}", entry.name());
        let (before, after) = (checkpoint.view(entry), again.view(kept));
        assert_eq!(before.expect("was written"), after.expect("was written"), "{}", entry.name());
    }
}
