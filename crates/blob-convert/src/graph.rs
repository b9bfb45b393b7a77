//! The graph of the net that a file describes, or that is given for the file.

use std::collections::BTreeMap;

use blob_graph::Reason;
use blob_io::net::{Net, Phase, Role};
use blob_io::words::{first_of, quoted};
use blob_io::{Checkpoint, Entry, Error, Nets, Remedy};

use crate::net_file::NetFile;
use crate::onnx::Onnx;
use crate::options::refuse;
use crate::transform::{Topology, spellings};

pub use blob_graph::{Graph, Node, Shapes, Unsupported, Value};

/// So many problems of a net are listed: whoever mends a net wants all of them.
const LISTED: usize = 200;

/// The graph of a file's net, as inference runs the net; `net` names a file in place of the one beside or in the file.
///
/// # Errors
/// A missing net, or everything in the net that is not supported; errors of reading the net.
pub fn of(checkpoint: &Checkpoint, net: Option<&NetFile>, settings: &Onnx) -> Result<Graph, Error> {
    let net = match net {
        Some(file) => Some(file.read()?),
        None => Topology::of(checkpoint)?.map(std::sync::Arc::new),
    };
    of_net(checkpoint, net.as_deref(), settings)
}

/// The graph of a net that was read.
pub(crate) fn of_net(checkpoint: &Checkpoint, net: Option<&Topology>, settings: &Onnx) -> Result<Graph, Error> {
    if let Some((name, _)) = settings.inputs.iter().find(|(_, extents)| extents.contains(&0)) {
        return Err(refuse(checkpoint, format!("is to become a net whose input {} has an extent of 0", quoted(name))));
    }
    let format = checkpoint.format();
    let message = match net {
        None if format.holds().net == Nets::Graph || format.is_neoml() => {
            let it = if format.is_neoml() { "of NeoML, of whose nets" } else { "an ONNX model, of which" };
            return Err(refuse(checkpoint, format!("is {it} the tensors alone are read, not the graph")));
        }
        None => "nothing says how its tensors are connected, and a graph needs that",
        Some(net) if !net.is_wired() => "its net names layers alone, and not the values that each reads",
        Some(net) => {
            let net = net.net().in_phase(Phase::Test);
            let shapes = Shapes { named: settings.inputs.clone(), only: None, stored: stored(&net, checkpoint) };
            return Graph::from_net(&net, &shapes).map_err(|all| refused(checkpoint, &all));
        }
    };
    Err(Error::misfit(checkpoint.name(), message, Remedy::NetOrSymbol))
}

/// The shapes of a file's tensors, by the names that the net has for them, in the order of the file.
fn stored(net: &Net, checkpoint: &Checkpoint) -> Vec<(String, Vec<u64>)> {
    let variables = net.inputs().filter_map(|value| net.variable(value));
    let names = net.layers().iter().flat_map(|layer| layer.tensors().map(|(_, name)| name)).chain(variables);
    let found: BTreeMap<&str, &Entry> = names.filter_map(|name| Some((name, entry(checkpoint, name)?))).collect();
    let mut found: Vec<(&str, &Entry)> = found.into_iter().collect();
    found.sort_by_key(|(_, entry)| (entry.position(), entry.index()));
    let shapes = found.into_iter().map(|(name, entry)| {
        let dims = entry.shape().dims().iter();
        (name.to_owned(), dims.map(|extent| *extent as u64).collect())
    });
    shapes.collect()
}

/// The entry of the tensor that a net has under this name; MXNet's files have `arg:` and `aux:` before it.
#[must_use]
pub fn entry<'c>(checkpoint: &'c Checkpoint, tensor: &str) -> Option<&'c Entry> {
    spellings(Role::Other, tensor).iter().find_map(|name| checkpoint.entry(name))
}

/// The error with the first problems of a net, and the number of the others.
pub(crate) fn refused(checkpoint: &Checkpoint, unsupported: &Unsupported) -> Error {
    let problems = unsupported.problems.iter().map(ToString::to_string).collect();
    let problems = first_of(LISTED, problems);
    let message = format!("has a net with parts that are not supported: {problems}");
    Error::misfit(checkpoint.name(), message, remedy(unsupported))
}

/// The next step for whoever has such a net. A loss tells that the net is the one of training, whose inputs are not
/// those of inference.
fn remedy(unsupported: &Unsupported) -> Option<Remedy> {
    let has = |reason| unsupported.problems.iter().any(|one| one.reason == reason);
    let mut types = unsupported.problems.iter().filter(|one| one.reason == Reason::Type).map(|one| &one.type_name);
    if types.any(|of| of.to_lowercase().ends_with("loss")) {
        Some(Remedy::TestedNet)
    } else if has(Reason::Input) {
        Some(Remedy::InputShape)
    } else {
        has(Reason::Type).then_some(Remedy::OtherLayers)
    }
}
