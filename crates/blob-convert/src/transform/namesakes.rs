//! Layers of one name in a file of Caffe's: which of their tensors a net gets.
//!
//! Sees names alone.

use std::collections::{HashMap, HashSet};

use blob_io::net::{Framework, Layer, Net};

/// The tensors that Caffe loads under each name of a net, of a file where several layers have one name: each is copied
/// into the net's layer of that name, so the last stays. A net that has the layers apart, as the file's own, reads
/// each.
pub(super) fn last_of_layers<'n>(own: &'n Net, net: &Net) -> HashMap<String, &'n str> {
    let named: HashSet<&str> = net.layers().iter().flat_map(Layer::tensors).map(|(_, name)| name).collect();
    let mut last = HashMap::new();
    for layer in own.layers().iter().filter(|_| own.framework() == Framework::Caffe) {
        for (index, (_, tensor)) in layer.tensors().enumerate() {
            let name = format!("{}/{index}", layer.name);
            if tensor != name && !named.contains(tensor) {
                last.insert(name, tensor);
            }
        }
    }
    last
}
