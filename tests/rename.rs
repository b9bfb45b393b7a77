//! `blob rename` in a Caffe net: a layer has another name, and every other byte is as it was.

use std::path::Path;

use blob_io::caffe::proto::NetParameter;
use prost::Message;

use crate::support::{Ran, blob, data};

/// Decoded by `prost`, the net is the old one but for the layer's name.
#[test]
fn a_layer_of_a_caffe_net_is_called_otherwise_and_every_other_byte_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.caffemodel");
    let decoded = |path: &Path| NetParameter::decode(&*std::fs::read(path).expect("readable")).expect("a net");
    for net in ["f32_v2_diff", "v1"] {
        let source = data(&format!("caffe/net/{net}.caffemodel"));
        let ran = renamed(&source, "s/^conv1/eins/", &out);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let mut wanted = decoded(&source);
        let of = |name: &mut Option<String>| {
            if name.as_deref() == Some("conv1") {
                *name = Some("eins".to_owned());
            }
        };
        wanted.layer.iter_mut().for_each(|layer| of(&mut layer.name));
        wanted.layers.iter_mut().for_each(|layer| of(&mut layer.name));
        assert!(decoded(&out) == wanted, "{net}");
        assert_ne!(decoded(&out), decoded(&source));
    }
}

fn renamed(source: &Path, sed: &str, out: &Path) -> Ran {
    let (source, out) = (source.to_str().expect("UTF-8"), out.to_str().expect("UTF-8"));
    blob(&["rename", source, "--sed", sed, "--force", "-o", out])
}
