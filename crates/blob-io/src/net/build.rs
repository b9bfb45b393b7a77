//! Builds a net layer by layer: names of values become indices, with one writer each.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use super::{Framework, Layer, LayerKind, Net, Role, Rule, Settings, State};
use crate::error::{Fault, check_limit};
use crate::limits::Limit;

/// A net with more layers is refused; the largest known ones have a few thousand.
const MAX_LAYERS: u64 = 1 << 16;
/// A net with more values is refused: inputs and outputs of all layers together.
const MAX_VALUES: u64 = 1 << 20;

/// The description of one layer. `V` is the type of names for values.
#[derive(Debug)]
pub(crate) struct Draft<V> {
    pub(crate) name: String,
    pub(crate) kind: LayerKind,
    pub(crate) type_name: String,
    pub(crate) bottoms: Vec<V>,
    pub(crate) tops: Vec<V>,
    /// Names are shared, not copied: a hostile file may use one long name in every layer.
    pub(crate) tensors: Vec<(Role, Arc<str>)>,
    /// The names by which parameters are shared between layers, each with the index of the tensor.
    pub(crate) shared: Vec<(usize, String)>,
    /// Whether the layer exists only in training, so that the layer's outputs hide no value of the net in inference.
    pub(crate) is_training: bool,
    pub(crate) is_conditional: bool,
    /// Of a layer that stands for the net's inputs: the inputs' extents.
    pub(crate) extents: Vec<Vec<u64>>,
    /// The conditions under which the layer is in the net.
    pub(crate) rules: Vec<Rule>,
    pub(crate) settings: Settings,
}

/// A parameter that layers may share.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Shareable {
    Tensor(Arc<str>),
    Shared(String),
}

/// An unfinished net.
#[derive(Debug)]
pub(crate) struct Builder<V> {
    net: Net,
    values: HashMap<V, usize>,
    /// The values that no layer has written so far.
    unwritten: HashSet<usize>,
    /// The first layer that uses a tensor or a shared name.
    users: HashMap<Shareable, usize>,
    /// The tensors that share a name, by the name: in one order, as their order shows in plans and messages.
    copies: BTreeMap<String, Vec<Arc<str>>>,
}

/// A name by which a description refers to a value.
pub(crate) trait Label: Hash + Eq {
    /// The name for the user of the net.
    fn text(&self) -> Arc<str>;
}

impl Label for String {
    fn text(&self) -> Arc<str> {
        self.as_str().into()
    }
}

impl Label for Arc<str> {
    fn text(&self) -> Arc<str> {
        Self::clone(self)
    }
}

/// The net with the layers that are in it in a state.
pub(super) fn filtered(net: &Net, state: &State) -> Net {
    let mut builder = Builder::new(net.framework);
    let name = |value: usize| Arc::clone(&net.names[value]);
    // Only stated inputs have a shape or no reader.
    let stated = net.inputs().filter(|value| net.writer(*value).is_none());
    for value in stated.filter(|value| net.uses(*value) == 0 || net.shape(*value).is_some()) {
        builder.declare(name(value), net.shape(value).unwrap_or_default());
    }
    for layer in net.layers.iter().filter(|layer| state.has(&layer.rules)) {
        let bottoms: Vec<usize> = layer.bottoms.iter().map(|value| builder.read(name(*value))).collect();
        let tops = layer.tops.iter().map(|value| {
            let own = builder.write(name(*value), &bottoms, false);
            builder.net.shapes.extend(net.shape(*value).map(|shape| (own, shape.to_vec())));
            own
        });
        let tops = tops.collect();
        builder.net.layers.push(Layer { bottoms, tops, ..layer.clone() });
    }
    Net { copies: net.copies.clone(), stages: net.stages.clone(), ..builder.finish() }
}

impl<V: Label> Builder<V> {
    pub(crate) fn new(framework: Framework) -> Self {
        let net = Net { framework, ..Net::default() };
        let (values, unwritten) = (HashMap::new(), HashSet::new());
        Self { net, values, unwritten, users: HashMap::new(), copies: BTreeMap::new() }
    }

    /// Adds a layer whose description is at byte `at`.
    pub(crate) fn push(&mut self, draft: Draft<V>, at: u64) -> Result<(), Fault> {
        let index = self.net.layers.len();
        check_limit(at, Limit::Fixed, "the number of layers", index as u64 + 1, MAX_LAYERS)?;
        let values = self.net.uses.len() + draft.bottoms.len() + draft.tops.len();
        check_limit(at, Limit::Fixed, "the inputs and outputs of all layers", values as u64, MAX_VALUES)?;
        let bottoms: Vec<usize> = draft.bottoms.into_iter().map(|name| self.read(name)).collect();
        let tops: Vec<usize> =
            draft.tops.into_iter().map(|name| self.write(name, &bottoms, draft.is_training)).collect();
        // One shape is that of all inputs.
        for (top, extents) in tops.iter().zip(draft.extents.iter().cycle()) {
            self.net.shapes.insert(*top, extents.clone());
        }
        let names = draft.tensors.iter().map(|(_, name)| Shareable::Tensor(Arc::clone(name)));
        let mut shares_tensors = false;
        for (index, name) in &draft.shared {
            let tensor = draft.tensors.get(*index).map(|(_, tensor)| Arc::clone(tensor));
            self.copies.entry(name.clone()).or_default().extend(tensor);
        }
        for name in names.chain(draft.shared.into_iter().map(|(_, name)| Shareable::Shared(name))) {
            let first = *self.users.entry(name).or_insert(index);
            if first != index {
                self.net.layers[first].shares_tensors = true;
                shares_tensors = true;
            }
        }
        let Draft { name, kind, type_name, tensors, is_conditional, rules, settings, .. } = draft;
        let normalises_by_input = match kind {
            LayerKind::BatchNorm => !settings.is_mxnet && settings.global_stats == Some(false),
            LayerKind::Bn => settings.is_inference == Some(false),
            _ => false,
        };
        self.net.layers.push(Layer {
            num_output: settings.num_output,
            group: settings.group.unwrap_or(1),
            kernel: settings.kernel,
            window: settings.window,
            axis: settings.axis.unwrap_or(if settings.channels_last { -1 } else { 1 }),
            num_axes: settings.num_axes.unwrap_or(1),
            bias_term: settings.bias_term.unwrap_or(kind != LayerKind::Scale),
            transpose: settings.transpose.unwrap_or(false),
            channels_last: settings.channels_last,
            flatten: settings.flatten.unwrap_or(true),
            eps: settings.eps.unwrap_or(if settings.is_mxnet { 1e-3 } else { f64::from(1e-5_f32) }),
            fix_gamma: settings.is_mxnet && kind == LayerKind::BatchNorm && settings.fix_gamma.unwrap_or(true),
            is_inference: settings.is_inference == Some(true),
            normalises_by_input,
            name,
            kind,
            type_name,
            bottoms,
            tops,
            tensors,
            shares_tensors,
            is_conditional,
            attributes: settings.attributes,
            rules,
        });
        Ok(())
    }

    /// Records an input of the net before the first use.
    pub(crate) fn declare(&mut self, name: V, extents: &[u64]) {
        let value = self.value(name);
        if !extents.is_empty() {
            self.net.shapes.insert(value, extents.to_vec());
        }
    }

    /// Records a stage of the whole net.
    pub(crate) fn stage(&mut self, name: String) {
        self.net.stages.push(name);
    }

    /// Records an output of the net, which counts as a use.
    pub(crate) fn head(&mut self, name: V) {
        let value = self.read(name);
        self.net.heads.push(value);
    }

    /// Gives the value of each name the text that the function makes, where the function makes one.
    pub(crate) fn label(&mut self, mut text: impl FnMut(&V, &[Layer]) -> Option<Arc<str>>) {
        for (name, value) in &self.values {
            if let Some(text) = text(name, &self.net.layers) {
                self.net.names[*value] = text;
            }
        }
    }

    /// The value of this name. One that no layer has written is an input of the net.
    fn value(&mut self, name: V) -> usize {
        if let Some(known) = self.values.get(&name) {
            return *known;
        }
        let unwritten = self.next(name.text());
        self.values.insert(name, unwritten);
        self.unwritten.insert(unwritten);
        unwritten
    }

    /// A new value of this name.
    fn next(&mut self, name: Arc<str>) -> usize {
        self.net.names.push(name);
        self.net.uses.push(0);
        self.net.uses.len() - 1
    }

    /// Counts a use of a value.
    pub(crate) fn read(&mut self, name: V) -> usize {
        let value = self.value(name);
        self.net.uses[value] += 1;
        value
    }

    /// How many outputs a layer has so far.
    pub(crate) fn outputs(&self, layer: usize) -> usize {
        self.net.layers.get(layer).map_or(0, |layer| layer.tops.len())
    }

    /// Adds an output of a layer, of which the description tells at byte `at`.
    pub(crate) fn also_writes(&mut self, layer: usize, name: V, at: u64) -> Result<(), Fault> {
        let values = self.net.uses.len() as u64 + 1;
        check_limit(at, Limit::Fixed, "the inputs and outputs of all layers", values, MAX_VALUES)?;
        let next = self.next(name.text());
        self.values.insert(name, next);
        self.net.layers[layer].tops.push(next);
        Ok(())
    }

    /// Whether a layer or the net's user reads a value.
    pub(crate) fn is_read(&self, name: &V) -> bool {
        self.values.get(name).is_some_and(|value| self.net.uses[*value] > 0)
    }

    /// Records the variable that a value is, if something reads the value.
    pub(crate) fn variable(&mut self, value: &V, name: &Arc<str>) {
        let known = self.values.get(value).filter(|value| self.net.uses[**value] > 0);
        self.net.variables.extend(known.map(|value| (*value, Arc::clone(name))));
    }

    /// Records that a layer, or the net's user, reads a tensor's values as an input.
    pub(crate) fn read_as_value(&mut self, tensor: &Arc<str>, layer: Option<u32>) {
        self.net.value_readers.entry(Arc::clone(tensor)).or_insert(layer);
    }

    /// Records that something other than the tensor's layer uses the tensor.
    pub(crate) fn share(&mut self, tensor: &Arc<str>) {
        // If several layers use the tensor, each is already marked.
        if let Some(layer) = self.users.get(&Shareable::Tensor(Arc::clone(tensor))) {
            self.net.layers[*layer].shares_tensors = true;
        }
    }

    fn write(&mut self, name: V, bottoms: &[usize], is_training: bool) -> usize {
        let known = self.values.get(&name).map(|value| Arc::clone(&self.net.names[*value]));
        let value = self.next(known.unwrap_or_else(|| name.text()));
        // A layer that works in place reads the replaced value; that is not a duplicate.
        if let Some(other) = self.values.get(&name).filter(|other| !bottoms.contains(other)) {
            self.net.duplicates.extend([*other, value]);
            if !is_training && self.net.uses[*other] > 0 && self.unwritten.contains(other) {
                self.net.late.push((*other, value));
            }
        }
        if is_training {
            self.values.entry(name).or_insert(value);
        } else {
            self.values.insert(name, value);
        }
        value
    }

    pub(crate) fn finish(mut self) -> Net {
        self.net.link();
        self.net.copies = self.copies.into_values().filter(|tensors| tensors.len() > 1).collect();
        self.net
    }
}
