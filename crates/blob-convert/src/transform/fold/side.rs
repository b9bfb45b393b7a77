//! The place of a layer's output channels in the weights.

use blob_core::Shape;
use serde::{Deserialize, Serialize};

/// The axis of the weights that runs over the output channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Side {
    /// In the first axis.
    First,
    /// In the last axis.
    Last,
    /// In the rows of a matrix, which may have the leading ones of Caffe before 2015.
    Rows,
    /// In the second axis, in groups along the first one.
    Second { groups: u64 },
    /// In the last axis, in groups along the first one.
    LastOf { groups: u64 },
}

impl Side {
    /// How many output channels weights have.
    pub(super) fn channels(self, shape: &Shape) -> Option<usize> {
        let dims = shape.dims();
        match self {
            Side::First => dims.first().copied(),
            Side::Last => dims.last().copied().filter(|_| dims.len() > 1),
            Side::Rows => matrix(dims).map(|[rows, _]| rows),
            Side::Second { groups } => in_groups(dims, groups, dims.get(1)),
            Side::LastOf { groups } => in_groups(dims, groups, dims.last()),
        }
    }

    /// How the channels lie in the weights.
    pub(super) fn run(self, shape: &Shape) -> Run {
        let dims = shape.dims();
        let inner = |axes: usize| dims[axes..].iter().product::<usize>().max(1);
        match self {
            Side::First => Run { inner: inner(1), per: dims[0], group: shape.count().max(1) },
            Side::Last => Run { inner: 1, per: dims[dims.len() - 1], group: shape.count().max(1) },
            Side::Rows => {
                let [rows, columns] = matrix(dims).unwrap_or([1, 1]);
                Run { inner: columns.max(1), per: rows, group: shape.count().max(1) }
            }
            Side::LastOf { groups } => {
                let group = shape.count() / (groups as usize).max(1);
                Run { inner: 1, per: dims[dims.len() - 1], group: group.max(1) }
            }
            Side::Second { groups } => {
                let group = shape.count() / (groups as usize).max(1);
                Run { inner: inner(2), per: dims[1], group: group.max(1) }
            }
        }
    }
}

/// How many channels there are, if the first axis has this many groups of `per` channels.
fn in_groups(dims: &[usize], groups: u64, per: Option<&usize>) -> Option<usize> {
    let groups = usize::try_from(groups).ok().filter(|groups| *groups > 0)?;
    (dims.len() >= 2 && dims[0].is_multiple_of(groups)).then(|| per?.checked_mul(groups)).flatten()
}

/// The extents of a matrix, without the leading ones of Caffe before 2015.
fn matrix(dims: &[usize]) -> Option<[usize; 2]> {
    match *dims {
        [rows, columns] | [1, 1, rows, columns] => Some([rows, columns]),
        _ => None,
    }
}

/// How the channels lie in the weights: a channel has runs of `inner` values, `per` channels take turns, and each
/// `group` of values has other channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    inner: usize,
    per: usize,
    group: usize,
}

impl Run {
    /// The channel of the value at `index`.
    pub(super) fn channel(self, index: usize) -> usize {
        index / self.inner % self.per + index / self.group * self.per
    }
}
