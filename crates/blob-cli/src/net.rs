//! Finds the description of the net that weights belong to: in a file named on the command line, in the weights
//! themselves, or in MXNet's symbol file beside them.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use blob_convert::transform::{Bound, symbol_beside};
use blob_io::mxnet::Symbol;
use blob_io::net::Net;
use blob_io::{Checkpoint, Error, Format, caffe};

use crate::args::NetFiles;
use crate::failure::Failure;

/// The bytes that are read of a prototxt: one more than it may have, so that a longer one is refused.
const READ_LIMIT: u64 = (16 << 20) + 1;

/// The net of a file; `None` if nothing describes it.
pub(crate) fn of(args: &NetFiles, checkpoint: &Checkpoint) -> Result<Option<Net>, Failure> {
    if let Some(path) = &args.net {
        return Ok(Some(prototxt(path)?));
    }
    if let Some(path) = &args.symbol {
        return Ok(Some(Symbol::open(path)?.net.clone()));
    }
    if matches!(checkpoint.format(), Format::MxnetList | Format::MxnetRecord | Format::Npz) {
        return Ok(symbol_beside(checkpoint)?.map(|symbol| symbol.net.clone()));
    }
    Ok(checkpoint.net()?)
}

/// Binds a net's layers to the tensors of a file.
pub(crate) fn bound<'a>(net: &'a Net, checkpoint: &'a Checkpoint) -> Result<Bound<'a>, Failure> {
    let bound = Bound::new(net, checkpoint);
    match bound.clashes() {
        [] => Ok(bound),
        clashes => Err(Failure::new(format!("{}: the net does not fit: {}", checkpoint.name(), clashes.join("; ")))),
    }
}

fn prototxt(path: &Path) -> Result<Net, Error> {
    let name = path.display().to_string();
    let failed = |action: &str, source| Error::Io { file: name.clone(), action: action.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| failed("open", e))?;
    file.take(READ_LIMIT).read_to_end(&mut bytes).map_err(|e| failed("read", e))?;
    caffe::prototxt(&name, &bytes)
}
