//! A net's values: their names, the stated shapes, the inputs and outputs; and the net as Caffe runs it in a state.
//!
//! Questions to a finished net. Infers no shapes.

use super::{Net, Phase, State, build};

impl Net {
    /// The shape of a value, where the value is an input and the net's description states a shape; an extent that the
    /// description leaves open is 0.
    #[must_use]
    pub fn shape(&self, value: usize) -> Option<&[u64]> {
        self.shapes.get(&value).map(Vec::as_slice)
    }

    /// The name of a value, as the description has it: of Caffe the blob's, which a layer that works in place gives to
    /// its output too; of MXNet the variable's, or the operator's with `_output` and the output's number unless that
    /// is 0. Empty for a value that the net does not have.
    #[must_use]
    pub fn value_name(&self, value: usize) -> &str {
        self.names.get(value).map_or("", |name| name)
    }

    /// The extents of a value, where the value is an input with four axes and the net's description states extents.
    #[must_use]
    pub fn extents(&self, value: usize) -> Option<[u64; 4]> {
        let extents: &[u64; 4] = self.shape(value)?.try_into().ok()?;
        // The net leaves an extent of 0 open; only the number of images may be open here.
        (!extents[1..].contains(&0)).then_some(*extents)
    }

    /// The net's inputs: the values that no layer writes, in the order of the description, then the tops of Caffe's
    /// `Input` layers. The variables of MXNet's that are parameters are among them where an operator reads them as
    /// inputs.
    pub fn inputs(&self) -> impl Iterator<Item = usize> {
        let unwritten = (0..self.uses.len()).filter(|value| self.writer(*value).is_none());
        let layers = self.layers.iter().filter(|layer| layer.type_name == "Input");
        unwritten.chain(layers.flat_map(|layer| layer.tops.iter().copied()))
    }

    /// The net's outputs: the values that the description names as such, and where the description names none, those of
    /// layers that no layer reads, in the order of the layers. Inputs are not among them.
    pub fn outputs(&self) -> impl Iterator<Item = usize> {
        let layers = self.layers.iter().filter(|layer| self.heads.is_empty() && layer.type_name != "Input");
        let unread = layers.flat_map(|layer| layer.tops.iter().copied()).filter(|value| self.uses(*value) == 0);
        self.heads.iter().copied().chain(unread)
    }

    /// The net without the layers that Caffe leaves out in this phase, at level 0 and in no stage but the net's own.
    #[must_use]
    pub fn in_phase(&self, phase: Phase) -> Self {
        self.in_state(&State { phase, ..State::default() })
    }

    /// The net without the layers that Caffe leaves out in this state, by their `include` and `exclude`. The stages
    /// that the description names for the whole net count, too. The values are numbered anew.
    #[must_use]
    pub fn in_state(&self, state: &State) -> Self {
        let all = self.stages.iter().chain(&state.stages).cloned().collect();
        let state = State { stages: all, ..state.clone() };
        if self.layers.iter().all(|layer| state.has(&layer.rules)) {
            self.clone()
        } else {
            build::filtered(self, &state)
        }
    }
}
