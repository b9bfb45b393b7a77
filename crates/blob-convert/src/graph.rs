//! The graph of the net that a file describes, or that is given for the file.

use blob_io::net::Phase;
use blob_io::{Checkpoint, Error, Remedy};

use crate::net_file::NetFile;
use crate::onnx::Onnx;
use crate::options::{refuse, refuse_first};
use crate::transform::Topology;

pub use blob_graph::{Graph, Node, Shapes, Unsupported, Value};

/// So many problems of a net are listed.
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
    let message = match net {
        None => "nothing says how its tensors are connected, and a graph needs that",
        Some(net) if net.symbol_text().is_some() || checkpoint.format().is_mxnet() => {
            return Err(refuse(
                checkpoint,
                "has a net of MXNet's, and only Caffe's layers are known as graphs".to_owned(),
            ));
        }
        Some(net) if !net.is_wired() => "its net names layers alone, and not the values that each reads",
        Some(net) => {
            let shapes = Shapes { named: settings.inputs.clone(), only: None };
            return Graph::from_net(&net.net().in_phase(Phase::Test), &shapes).map_err(|all| refused(checkpoint, &all));
        }
    };
    let (file, message) = (checkpoint.name().to_owned(), message.to_owned());
    Err(Error::Misfit { file, message, remedy: Some(Remedy::NetOrSymbol) })
}

/// The error with every problem of a net.
pub(crate) fn refused(checkpoint: &Checkpoint, unsupported: &Unsupported) -> Error {
    let problems = unsupported.problems.iter().map(ToString::to_string).collect();
    refuse_first(LISTED, checkpoint, "has a net with parts that are not supported", problems)
}
