//! The net that a conversion follows: one choice for all transforms.
//!
//! A net that the user names comes first, then MXNet's symbol file beside the weights, then the description in the file
//! of the weights. [`Context::net`](super::Context::net) gives the choice to transforms; a receipt names the net.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use blob_io::mxnet::Symbol;
use blob_io::net::Net;
use blob_io::{Checkpoint, Error, Nets, Remedy, caffe};
use serde::{Deserialize, Serialize};

use super::binding::may_have_norms;

/// A net, and the origin of the description.
#[derive(Clone, Debug)]
pub struct Topology {
    net: Net,
    origin: NetOrigin,
    /// The text of MXNet's symbol file.
    symbol: Option<Arc<[u8]>>,
}

/// The origin of a net's description.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct NetOrigin {
    /// How the description was found.
    pub from: NetFrom,
    /// The name of the file, without folders.
    pub name: String,
    /// The BLAKE3 of the file; `None` where the weights themselves describe the net.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
}

/// How the description of a net was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NetFrom {
    /// The user named the file.
    Option,
    /// The file lay beside the weights.
    Beside,
    /// The file of the weights describes the net.
    File,
}

impl fmt::Display for NetOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            NetFrom::Option => f.write_str(&self.name),
            NetFrom::Beside => write!(f, "{}, which lies beside the file,", self.name),
            NetFrom::File => f.write_str("the file itself"),
        }
    }
}

impl Topology {
    /// The net of a prototxt that the user names.
    ///
    /// # Errors
    /// As [`caffe::prototxt`].
    pub fn prototxt(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        Ok(Self { net: caffe::prototxt(name, bytes)?, origin: of_file(NetFrom::Option, name, bytes), symbol: None })
    }

    /// The net of a symbol file of MXNet's that the user names.
    ///
    /// # Errors
    /// As [`Symbol::from_bytes`].
    pub fn symbol(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        Self::of_symbol(NetFrom::Option, name, bytes)
    }

    fn of_symbol(from: NetFrom, name: &str, bytes: &[u8]) -> Result<Self, Error> {
        let net = Symbol::from_bytes(name, bytes)?.net;
        Ok(Self { net, origin: of_file(from, name, bytes), symbol: Some(bytes.into()) })
    }

    /// The net that lies beside a file, or else the net that the file describes; `None` for a file without either.
    ///
    /// # Errors
    /// Errors of reading the symbol file or the description.
    pub fn of(checkpoint: &Checkpoint) -> Result<Option<Self>, Error> {
        if !checkpoint.format().holds().symbol {
            return Self::own(checkpoint);
        }
        let name = symbol_name(checkpoint.name());
        let Some(bytes) = checkpoint.beside(&name)? else { return Self::own(checkpoint) };
        Self::of_symbol(NetFrom::Beside, &name, &bytes).map(Some)
    }

    /// The net that the file of the weights describes. A file that breaks off says of no layer which others read it.
    pub(crate) fn own(checkpoint: &Checkpoint) -> Result<Option<Self>, Error> {
        if checkpoint.salvaged().is_some() && checkpoint.format().holds().net == Nets::Read {
            let message = "breaks off, and so does its net, which would be followed";
            return Err(Error::misfit(checkpoint.name(), message, Remedy::Net));
        }
        let name = last(checkpoint.name()).to_owned();
        let origin = NetOrigin { from: NetFrom::File, name, blake3: None };
        Ok(checkpoint.net()?.map(|net| Self { net, origin, symbol: None }))
    }

    /// Whether the net has weights that are not in PyTorch's order: MXNet's NHWC, Caffe's `transpose`.
    #[must_use]
    pub fn has_other_order(&self) -> bool {
        self.net.layers().iter().any(|layer| layer.channels_last || layer.transpose)
    }

    /// Whether the net says which layer reads what. A transform that follows edges ignores a net without edges.
    #[must_use]
    pub fn is_wired(&self) -> bool {
        self.net.has_edges()
    }

    /// The net.
    #[must_use]
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// The text of MXNet's symbol file; `None` for a net from another description.
    #[must_use]
    pub fn symbol_text(&self) -> Option<&[u8]> {
        self.symbol.as_deref()
    }

    /// The origin of the description.
    #[must_use]
    pub fn origin(&self) -> &NetOrigin {
        &self.origin
    }
}

/// The name of the symbol file that MXNet saves beside the parameters: `net-symbol.json` for `net-0012.params`.
#[must_use]
pub fn symbol_name(file: &str) -> String {
    let file = last(file);
    let endings = [".params", ".npz", ".safetensors"];
    let stem = endings.iter().find_map(|ending| file.strip_suffix(ending)).unwrap_or(file);
    let stem = match stem.rsplit_once('-') {
        Some((stem, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => stem,
        _ => stem,
    };
    format!("{stem}-symbol.json")
}

fn of_file(from: NetFrom, name: &str, bytes: &[u8]) -> NetOrigin {
    let name = last(name);
    let name = name.strip_suffix(".gz").unwrap_or(name).to_owned();
    NetOrigin { from, name, blake3: Some(blake3::hash(bytes).to_hex().to_string()) }
}

/// The last part of a path.
fn last(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// The origin of the net that a conversion follows, and whether the net has edges.
#[derive(Clone, Debug)]
pub(crate) struct FollowedNet {
    pub(crate) origin: NetOrigin,
    /// Whether the net says which layer reads what.
    pub(super) is_wired: bool,
}

/// The choice of the net that a conversion follows.
#[derive(Clone, Debug, Default)]
pub(crate) enum Choice {
    /// The net beside the file, or else the file's own.
    #[default]
    Found,
    /// The net that the user names.
    Given(Arc<Topology>),
    /// The net that a receipt says was followed, with the net that the user names now. A receipt without a net says
    /// that at most the file's own net was followed.
    Recorded(Option<NetOrigin>, Option<Arc<Topology>>),
}

/// The net of one conversion, read when the first transform asks for it.
#[derive(Debug)]
pub(crate) struct Followed<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    choice: &'a Choice,
    found: OnceCell<Result<Option<Arc<Topology>>, String>>,
}

impl<'a> Followed<'a> {
    pub(crate) fn new(checkpoint: &'a Checkpoint, choice: &'a Choice) -> Self {
        Self { checkpoint, choice, found: OnceCell::new() }
    }

    /// The net; the error says why the net is missing.
    pub(crate) fn get(&self) -> Result<Option<&Topology>, &str> {
        let found = self.found.get_or_init(|| self.find());
        found.as_ref().map(Option::as_deref).map_err(|why| &**why)
    }

    /// The net, for a transform that follows the net. An unreadable net is `None` here, as the transform has reported
    /// the error.
    pub(crate) fn net(&self) -> Option<FollowedNet> {
        let net = self.get().ok().flatten()?;
        Some(FollowedNet { origin: net.origin.clone(), is_wired: net.is_wired() })
    }

    /// Whether the net may say which values count otherwise than stored.
    pub(crate) fn tells(&self) -> bool {
        match self.choice {
            Choice::Found => may_have_norms(self.checkpoint),
            Choice::Given(_) => true,
            Choice::Recorded(net, _) => net.is_some(),
        }
    }

    /// Whether the net has weights that are not in PyTorch's order.
    pub(crate) fn has_other_order(&self) -> bool {
        self.get().ok().flatten().is_some_and(Topology::has_other_order)
    }

    fn find(&self) -> Result<Option<Arc<Topology>>, String> {
        let read = |net: Result<Option<Topology>, Error>| match net {
            Ok(net) => Ok(net.map(Arc::new)),
            // The refusal of a step names the file.
            Err(Error::Misfit { file, message, remedy: Some(Remedy::Net) }) if file == self.checkpoint.name() => {
                Err(format!("the file {message}: --net can name it"))
            }
            Err(error) => Err(error.to_string()),
        };
        match self.choice {
            Choice::Found => read(Topology::of(self.checkpoint)),
            Choice::Given(net) => Ok(Some(Arc::clone(net))),
            Choice::Recorded(None, _) => read(Topology::own(self.checkpoint)),
            Choice::Recorded(Some(origin), _) if origin.from == NetFrom::File => read(Topology::own(self.checkpoint)),
            Choice::Recorded(Some(origin), given) => {
                let is_it = |net: &Arc<Topology>| net.origin.blake3 == origin.blake3;
                if let Some(given) = given.as_ref().filter(|net| is_it(net)) {
                    return Ok(Some(Arc::clone(given)));
                }
                let beside = read(Topology::of(self.checkpoint)).ok().flatten();
                beside.filter(is_it).map(Some).ok_or_else(|| lacking(origin))
            }
        }
    }
}

/// The problem of a replay without the net that was followed.
fn lacking(origin: &NetOrigin) -> String {
    let option = if origin.name.ends_with(".json") { "--symbol" } else { "--net" };
    let digest: String = origin.blake3.iter().flat_map(|digest| digest.chars()).take(16).collect();
    format!("the net of {} was followed, whose BLAKE3 begins with {digest}: {option} can name it", origin.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_symbol_of_a_file_has_its_name_without_the_epoch() {
        for (file, symbol) in [
            ("a/net-0012.params", "net-symbol.json"),
            ("net.params", "net-symbol.json"),
            ("my-net.npz", "my-net-symbol.json"),
            ("net-0000.safetensors", "net-symbol.json"),
            ("weights", "weights-symbol.json"),
        ] {
            assert_eq!(symbol_name(file), symbol);
        }
    }
}
