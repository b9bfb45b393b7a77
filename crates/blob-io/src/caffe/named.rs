//! Makes a Caffe message from tensor names: a layer's blobs are `<layer>/<index>`, those of a list `@<index>`, and a
//! diff has `.diff` appended.

use std::collections::{BTreeMap, HashMap};

use crate::caffe::message::{Layer, Message, Pair};
use crate::entry::Kind;
use crate::error::{Error, Remedy};
use crate::format::Format;
use crate::spec::{self, NAMED};
use crate::tensor_name::TensorName;
use crate::words;

impl Message {
    /// The message of a format that holds tensors of these names: in a net `<layer>/<index>`, in a vector and a
    /// solver's history `@<index>`, with `.diff` at the end of a diff's name; any name where the message holds one
    /// tensor. `metadata` has the message's other fields: a net's `name`, a solver's `iter`, `learned_net` and
    /// `current_step`, a Datum's `label`.
    ///
    /// # Errors
    /// [`Error::Request`] with the names that do not fit; metadata that the message does not have; a format that is not
    /// Caffe's.
    pub fn named<'n>(
        format: Format,
        names: impl IntoIterator<Item = &'n str>,
        metadata: &[(String, String)],
    ) -> Result<Self, Error> {
        let names: Vec<&str> = names.into_iter().collect();
        let refuse = |message: String| Err(spec::refuse(format.name(), message));
        let misnamed = |message: String| {
            let message = format!("as {format}: {message}");
            Err(Error::Misfit { file: String::new(), message, remedy: Some(Remedy::Names) })
        };
        let known = format.holds().metadata;
        if let Some((key, _)) = metadata.iter().find(|(key, _)| !known.contains(key)) {
            return refuse(format!("there is no place for metadata called {key:?}"));
        }
        let text = |key: &str| metadata.iter().find(|(known, _)| known == key).map(|(_, value)| &**value);
        let number = |key: &str| match text(key).map(|text| (text, text.parse::<i32>())) {
            None => Ok(None),
            Some((_, Ok(number))) => Ok(Some(number)),
            Some((text, Err(_))) => {
                Err(spec::refuse(format.name(), format!("{key} is a whole number of 32 bits, not {text:?}")))
            }
        };
        match (format, &names[..]) {
            (Format::CaffeModel, _) => {
                let name = text("name").unwrap_or_default().to_owned();
                grouped(&names).map(|layers| Self::Net { name, layers }).or_else(misnamed)
            }
            (Format::BlobProtoVector, _) => listed(&names).map(Self::Vector).or_else(misnamed),
            (Format::SolverState, _) => {
                let (iter, current_step) = (number("iter")?, number("current_step")?);
                let learned_net = text("learned_net").map(str::to_owned);
                let history = listed(&names);
                history.map(|history| Self::Solver { iter, learned_net, current_step, history }).or_else(misnamed)
            }
            (Format::Datum, [_]) => Ok(Self::Datum { tensor: 0, label: number("label")? }),
            (Format::BlobProto, [_]) => Ok(Self::Blob(Pair { data: 0, diff: None })),
            (Format::BlobProto, [one, other]) if TensorName::of(other).diffed() == Some(*one) => {
                Ok(Self::Blob(Pair { data: 0, diff: Some(1) }))
            }
            (Format::BlobProto, [one, other]) if TensorName::of(one).diffed() == Some(*other) => {
                Ok(Self::Blob(Pair { data: 1, diff: Some(0) }))
            }
            (Format::Datum | Format::BlobProto, _) => {
                refuse(format!("holds one array, and a BlobProto its diff beside it, not {} arrays", names.len()))
            }
            _ => refuse("is not a Caffe format".to_owned()),
        }
    }
}

/// A blob's place in a message, told by the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlobPlace<'a> {
    /// Empty in a list of blobs.
    pub(crate) layer: &'a str,
    pub(crate) index: usize,
    pub(crate) is_diff: bool,
}

impl<'a> BlobPlace<'a> {
    /// The place of a blob in a layer: `<layer>/<index>`.
    pub(crate) fn in_layer(name: &'a str) -> Option<Self> {
        let name = TensorName::of(name);
        let layer = name.layer().filter(|layer| !layer.is_empty())?;
        Self::of(name, layer, name.index()?)
    }

    /// The place of a blob in a list: `@<index>`.
    pub(crate) fn in_list(name: &'a str) -> Option<Self> {
        let name = TensorName::of(name);
        Self::of(name, "", name.position()?)
    }

    fn of(name: TensorName<'_>, layer: &'a str, index: usize) -> Option<Self> {
        let is_diff = name.kind == Kind::Diff;
        (is_diff || name.kind == Kind::Data).then_some(Self { layer, index, is_diff })
    }
}

/// Data and diff of each blob of a list, by the blob's index.
type Slots = BTreeMap<usize, [Option<usize>; 2]>;

/// The layers that the names form, in the order of the layers' first tensors.
fn grouped(names: &[&str]) -> Result<Vec<Layer>, String> {
    let (mut layers, mut positions): (Vec<(&str, Slots)>, HashMap<&str, usize>) = Default::default();
    let mut misfits = Vec::new();
    for (tensor, name) in names.iter().enumerate() {
        let Some(BlobPlace { layer, index, is_diff }) = BlobPlace::in_layer(name) else {
            misfits.push(*name);
            continue;
        };
        let position = *positions.entry(layer).or_insert(layers.len());
        if position == layers.len() {
            layers.push((layer, Slots::new()));
        }
        if layers[position].1.entry(index).or_default()[usize::from(is_diff)].replace(tensor).is_some() {
            misfits.push(*name);
        }
    }
    let layers = layers.iter().map(|(name, slots)| {
        let blobs = pairs(slots, names, &mut misfits);
        Layer { name: (*name).to_owned(), layer_type: None, blobs }
    });
    let layers = layers.collect();
    check_misfits(layers, &misfits, "<layer>/<index>, with indices from 0 on, and .diff at the end of a diff's name")
}

/// The blobs, in the order of the numbers.
fn listed(names: &[&str]) -> Result<Vec<Pair>, String> {
    let (mut slots, mut misfits) = (Slots::new(), Vec::new());
    for (tensor, name) in names.iter().enumerate() {
        match BlobPlace::in_list(name) {
            Some(BlobPlace { index, is_diff, .. })
                if slots.entry(index).or_default()[usize::from(is_diff)].is_none() =>
            {
                slots.entry(index).or_default()[usize::from(is_diff)] = Some(tensor);
            }
            _ => misfits.push(*name),
        }
    }
    let blobs = pairs(&slots, names, &mut misfits);
    check_misfits(blobs, &misfits, "@<index>, with indices from 0 on, and .diff at the end of a diff's name")
}

/// The blobs, which must be numbered without gaps and have data; the names of others are added to `misfits`.
fn pairs<'n>(slots: &Slots, names: &[&'n str], misfits: &mut Vec<&'n str>) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (position, (index, [data, diff])) in slots.iter().enumerate() {
        match data {
            Some(data) if position == *index => pairs.push(Pair { data: *data, diff: *diff }),
            _ => misfits.extend([data, diff].into_iter().flatten().map(|tensor| names[*tensor])),
        }
    }
    pairs
}

fn check_misfits<T>(found: T, misfits: &[&str], rule: &str) -> Result<T, String> {
    if misfits.is_empty() {
        return Ok(found);
    }
    Err(format!("names that do not fit: {}; its arrays are called {rule}", words::listed(NAMED, misfits)))
}
