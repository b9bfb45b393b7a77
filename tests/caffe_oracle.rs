//! Compares our parser with prost's on generated nets: names, types, shapes, values.
//!
//! prost also writes the nets, so the two sides share no code.

use proptest::prelude::*;
use prost::Message;

use blob_io::caffe::proto::{BlobProto, BlobShape, LayerParameter, NetParameter, V0LayerParameter, V1LayerParameter};
use blob_io::{Bytes, Checkpoint, Format, Kind, OpenOptions};

/// A blob whose number of values fits the shape, in floats or doubles, with the shape in either form.
fn blob() -> impl Strategy<Value = BlobProto> {
    let dims = prop::collection::vec(0..5_i64, 0..5);
    (dims, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(dims, double, legacy, diff)| {
        let legacy = legacy && dims.len() == 4;
        let count = dims.iter().product::<i64>() as usize;
        let values: Vec<f64> = (0..count).map(|i| i as f64 * 0.5 - 3.0).collect();
        let floats: Vec<f32> = values.iter().map(|v| *v as f32).collect();
        let mut blob = BlobProto::default();
        if double {
            blob.double_data = values.clone();
        } else {
            blob.data = floats.clone();
        }
        if diff {
            blob.diff = floats;
        }
        if legacy {
            let dim = |i: usize| Some(dims[i] as i32);
            (blob.num, blob.channels, blob.height, blob.width) = (dim(0), dim(1), dim(2), dim(3));
        } else {
            blob.shape = Some(BlobShape { dim: dims });
        }
        blob
    })
}

fn blobs() -> impl Strategy<Value = Vec<BlobProto>> {
    prop::collection::vec(blob(), 0..4)
}

fn net() -> impl Strategy<Value = NetParameter> {
    let name = "[a-z/]{0,6}";
    let v2 = (name, "[A-Z][a-z]{1,8}", blobs()).prop_map(|(name, kind, blobs)| LayerParameter {
        name: Some(name),
        r#type: Some(kind),
        blobs,
        ..LayerParameter::default()
    });
    let v1 = (name, 0..40_i32, blobs(), any::<bool>()).prop_map(|(name, kind, blobs, nested)| {
        if nested {
            let layer = V0LayerParameter { name: Some(name), r#type: Some("conv".to_owned()), blobs };
            return V1LayerParameter { layer: Some(layer), ..V1LayerParameter::default() };
        }
        V1LayerParameter { name: Some(name), r#type: Some(kind), blobs, ..V1LayerParameter::default() }
    });
    let v1 = prop::collection::vec(v1, 0..3);
    let v2 = prop::collection::vec(v2, 0..4);
    (name, v1, v2).prop_map(|(name, layers, layer)| NetParameter {
        name: Some(name),
        layers,
        layer,
        ..NetParameter::default()
    })
}

/// Unknown fields of every wire type, which a fork may put anywhere.
fn junk() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        vec![],
        vec![0xF8, 0x07, 0x96, 0x01],
        vec![0xFD, 0x07, 1, 2, 3, 4],
        vec![0xF9, 0x07, 1, 2, 3, 4, 5, 6, 7, 8],
        vec![0xFA, 0x07, 3, 1, 2, 3],
        vec![0xFB, 0x07, 0x08, 0x01, 0xFB, 0x07, 0xFC, 0x07, 0xFC, 0x07],
    ])
}

/// The blobs that prost parses, in the order in which prost writes layers: `layers` (2), then `layer` (100).
fn expected(net: &NetParameter) -> Vec<(u32, usize, &BlobProto)> {
    let old = net.layers.iter().map(|l| match &l.layer {
        Some(nested) => &nested.blobs,
        None => &l.blobs,
    });
    let all = old.chain(net.layer.iter().map(|l| &l.blobs));
    all.enumerate()
        .flat_map(|(position, blobs)| blobs.iter().enumerate().map(move |(index, blob)| (position as u32, index, blob)))
        .collect()
}

fn check(net: &NetParameter, bytes: Vec<u8>) -> Result<(), TestCaseError> {
    let decoded = NetParameter::decode(&bytes[..]).expect("prost reads it");
    prop_assert_eq!(&decoded, net);
    let options = OpenOptions::new().from(Format::CaffeModel);
    let checkpoint: Checkpoint = options.open_source("net", Box::new(Bytes(bytes))).expect("we read it");
    prop_assert_eq!(checkpoint.positions(), net.layers.len() + net.layer.len());
    let data: Vec<_> = checkpoint.entries().iter().filter(|e| e.kind() == Kind::Data).collect();
    let expected = expected(net);
    prop_assert_eq!(data.len(), expected.len());
    for (entry, (position, index, blob)) in data.iter().zip(expected) {
        prop_assert_eq!((entry.position() as u32, entry.index()), (position, index));
        let loaded = checkpoint.load(entry).expect("loads");
        if blob.double_data.is_empty() && loaded.dtype() == blob_core::DType::F32 {
            prop_assert_eq!(&loaded.data().elements::<f32>().expect("floats")[..], &blob.data[..]);
        } else {
            prop_assert_eq!(&loaded.data().elements::<f64>().expect("doubles")[..], &blob.double_data[..]);
        }
        let diff = checkpoint.diff_of(entry).map(|e| checkpoint.load(e).expect("loads"));
        prop_assert_eq!(diff.is_some(), !blob.diff.is_empty());
        if let Some(diff) = diff {
            prop_assert_eq!(&diff.data().elements::<f32>().expect("floats")[..], &blob.diff[..]);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn nets_read_as_prost_reads_them(net in net(), before in junk(), after in junk()) {
        let mut bytes = before;
        bytes.extend(net.encode_to_vec());
        bytes.extend(after);
        check(&net, bytes)?;
    }
}
