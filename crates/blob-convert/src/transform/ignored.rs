//! Stored values that a file's own framework ignores: the statistics of Caffe's BatchNorms whose factor is 0, and
//! MXNet's gammas under `fix_gamma`.
//!
//! Reads only factors and gammas, at most [`MOST_BYTES`] in all.

use std::collections::HashSet;

use blob_io::net::{LayerKind, Net, Role};
use blob_io::{Checkpoint, Entry, Format, Kind, Nets};

use super::binding::{Bound, may_have_norms};
use super::followed::Topology;
use super::values::read;
use crate::change::{Change, Effect, Group, Groups};

/// The most bytes of factors and gammas to read. The largest known nets have 100 KiB of factors and gammas.
const MOST_BYTES: u64 = 4 << 20;

/// The reason why a framework computes with other values than the stored ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// `BatchNormLayer::Forward_cpu` of BVLC/caffe `9b891540`: `blobs_[2]->cpu_data()[0] == 0 ? 0 : 1 / …`.
    FactorZero,
    /// `BatchNormForward` of apache/mxnet 1.9.1: `param.fix_gamma ? 1 : gamma`.
    FixGamma,
}

/// The values of one layer that the file's framework ignores.
#[derive(Debug)]
pub(crate) struct Ignored<'a> {
    pub(crate) why: Why,
    /// The names of the layer's tensors in the file, the most telling one first.
    pub(crate) names: Vec<&'a str>,
}

impl Why {
    /// Whether a reader of this format also finds the layer, and ignores the same values.
    pub(crate) fn is_known_to(self, format: Format) -> bool {
        match self {
            Self::FactorZero => format.is_caffe(),
            Self::FixGamma => format.is_mxnet(),
        }
    }

    pub(crate) fn change(self) -> Change {
        let words = match self {
            Self::FactorZero => "factor 0: Caffe takes mean and variance as zero",
            Self::FixGamma => "fix_gamma: MXNet takes gamma as 1, not as stored",
        };
        Change::unasked(Effect::TakenOtherwise { words: words.into() })
    }
}

/// Groups the stored values that a file's own framework ignores. The net that the user names comes first, then the net
/// beside the file or in the file. An unreadable net counts as none.
#[must_use]
pub fn ignored(checkpoint: &Checkpoint, named: Option<&Topology>) -> Vec<Group> {
    let mut groups = Groups::default();
    if named.is_none() && checkpoint.format().holds().net == Nets::Read {
        // The entries have their layers' types: the file is not walked again for the description.
        let mut room = MOST_BYTES;
        for entry in checkpoint.entries().iter().filter(|entry| is_factor(entry)) {
            if stored(checkpoint, entry.name(), &mut room) == [0.0] {
                groups.of_tensor(entry.name(), &Why::FactorZero.change());
            }
        }
        return groups.finish();
    }
    let found = match named {
        None if may_have_norms(checkpoint) => Topology::of(checkpoint).ok().flatten(),
        _ => None,
    };
    let net = named.or(found.as_ref()).map(Topology::net);
    for ignored in net.into_iter().flat_map(|net| find(checkpoint, net)) {
        groups.of_tensor(ignored.names[0], &ignored.why.change());
    }
    groups.finish()
}

/// Whether an array of a .caffemodel is the factor of a BatchNorm: the third blob, after mean and variance.
fn is_factor(entry: &Entry) -> bool {
    entry.layer_type() == Some("BatchNorm") && entry.kind() == Kind::Data && entry.index() == 2
}

/// The layers of `net` whose stored values the framework ignores.
pub(crate) fn find<'a>(checkpoint: &'a Checkpoint, net: &'a Net) -> Vec<Ignored<'a>> {
    let bound = Bound::of(net, checkpoint);
    let (mut all, mut seen, mut room) = (Vec::new(), HashSet::new(), MOST_BYTES);
    for layer in bound.layers().filter(|layer| layer.kind == LayerKind::BatchNorm && bound.clashes().is_empty()) {
        let named = |role| bound.tensor(layer, role);
        let zero = named(Role::Factor).filter(|factor| stored(checkpoint, factor, &mut room) == [0.0]);
        let zero = zero.map(|factor| {
            let names = [Some(factor), named(Role::Mean), named(Role::Variance)];
            Ignored { why: Why::FactorZero, names: names.into_iter().flatten().collect() }
        });
        let gamma = named(Role::Weight).filter(|_| layer.fix_gamma);
        let other = gamma.filter(|gamma| stored(checkpoint, gamma, &mut room).iter().any(|value| *value != 1.0));
        let fixed = other.map(|gamma| Ignored { why: Why::FixGamma, names: vec![gamma] });
        // The train and test versions of a layer have the same tensors.
        all.extend([zero, fixed].into_iter().flatten().filter(|ignored| seen.insert(ignored.names[0])));
    }
    all
}

/// Whether the factor of this name in the file is 0.
pub(super) fn is_zero(checkpoint: &Checkpoint, factor: &str) -> bool {
    stored(checkpoint, factor, &mut 8) == [0.0]
}

/// The values of a small array of floats; empty for an unreadable array, or for an array larger than `room`.
fn stored(checkpoint: &Checkpoint, name: &str, room: &mut u64) -> Vec<f64> {
    let entry = checkpoint.entry(name).filter(|entry| entry.byte_len() <= *room);
    let Some((entry, dtype)) = entry.and_then(|entry| Some((entry, entry.dtype().filter(|dtype| dtype.is_float())?)))
    else {
        return Vec::new();
    };
    *room -= entry.byte_len();
    checkpoint.view(entry).map_or_else(|_| Vec::new(), |bytes| read(&bytes, dtype))
}
