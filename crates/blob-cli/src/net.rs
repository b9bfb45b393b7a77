//! Finds the description of the net that weights belong to: in a file named on the command line, in the weights
//! themselves, or in MXNet's symbol file beside them.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use blob_convert::transform::{Bound, NetOrigin, Topology};
use blob_io::net::Net;
use blob_io::{Checkpoint, Error};
use serde_json::json;

use crate::args::NetFiles;
use crate::failure::Failure;
use crate::json::{Field, Fields, Type, field, nullable};

/// The most bytes of a prototxt and of a symbol file; their readers refuse longer ones.
const MAX_PROTOTXT: u64 = 16 << 20;
const MAX_SYMBOL: u64 = 128 << 20;

/// The net that a conversion of the file follows: the one that the user names, or else the one beside the file or in
/// it. `None` if nothing describes it.
pub(crate) fn of(args: &NetFiles, checkpoint: &Checkpoint) -> Result<Option<Arc<Topology>>, Failure> {
    match named(args.net.as_deref(), args.symbol.as_deref())? {
        Some(net) => Ok(Some(net)),
        None => Ok(Topology::of(checkpoint)?.map(Arc::new)),
    }
}

/// The same net, where it says what its layers read.
pub(crate) fn wired(args: &NetFiles, checkpoint: &Checkpoint) -> Result<Arc<Topology>, Failure> {
    let Some(net) = of(args, checkpoint)?.filter(|net| net.is_wired()) else {
        let message = format!("{}: no net says what its layers read", checkpoint.name());
        return Err(Failure::new(message).help("name the net: --net deploy.prototxt, or --symbol net-symbol.json"));
    };
    match net.net().disorder() {
        Some(why) => Err(Failure::new(format!("{}: the net does not fit: {why}", checkpoint.name()))),
        None => Ok(net),
    }
}

/// The net that the user names.
pub(crate) fn named(prototxt: Option<&Path>, symbol: Option<&Path>) -> Result<Option<Arc<Topology>>, Failure> {
    let net = match (prototxt, symbol) {
        (Some(path), _) => Topology::prototxt(&path.display().to_string(), &read(path, MAX_PROTOTXT)?)?,
        (None, Some(path)) => Topology::symbol(&path.display().to_string(), &read(path, MAX_SYMBOL)?)?,
        (None, None) => return Ok(None),
    };
    Ok(Some(Arc::new(net)))
}

/// Binds a net's layers to the tensors of a file.
pub(crate) fn bound<'a>(net: &'a Net, checkpoint: &'a Checkpoint) -> Result<Bound<'a>, Failure> {
    let bound = Bound::new(net, checkpoint);
    match bound.clashes() {
        [] => Ok(bound),
        clashes => Err(Failure::new(format!("{}: the net does not fit: {}", checkpoint.name(), clashes.join("; ")))),
    }
}

/// At most `most` bytes of a file, and one more, so that a longer one is refused by its reader.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    let name = path.display().to_string();
    let failed = |action: &str, source| Error::Io { file: name.clone(), action: action.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| failed("open", e))?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| failed("read", e))?;
    Ok(bytes)
}

impl Fields for NetOrigin {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("from", Type::String, "how it was found: option, beside, file", |net| json!(net.from)),
            field("name", Type::String, "the name of its file", |net| json!(net.name)),
            nullable("blake3", Type::String, "the BLAKE3 of its file; not where the weights describe it", |net| {
                json!(net.blake3)
            }),
        ]
    }
}
