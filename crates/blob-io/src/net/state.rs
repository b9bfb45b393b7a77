//! The state in which Caffe runs a net: the phase, the level, the stages; and the conditions of layers on it.
//!
//! The rules of `Net::FilterNet` and `Net::StateMeetsRule` in BVLC/caffe 9b891540. Reads nothing.

/// Caffe's phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Training.
    Train,
    /// Inference.
    #[default]
    Test,
}

/// The state in which a net runs: by default inference, at level 0, in no stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The phase.
    pub phase: Phase,
    /// The level.
    pub level: i64,
    /// The stages, such as "deploy".
    pub stages: Vec<String>,
}

/// A condition of a layer, a `NetStateRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Whether a state that meets the rule has the layer in it; otherwise such a state leaves the layer out.
    pub(crate) is_include: bool,
    pub(crate) phase: Option<Phase>,
    pub(crate) min_level: Option<i64>,
    pub(crate) max_level: Option<i64>,
    pub(crate) stages: Vec<String>,
    pub(crate) not_stages: Vec<String>,
}

impl State {
    /// Whether a layer with these rules is in the net.
    pub(super) fn has(&self, rules: &[Rule]) -> bool {
        let is_met = |wanted: bool| rules.iter().any(|rule| rule.is_include == wanted && self.meets(rule));
        if rules.iter().any(|rule| rule.is_include) { is_met(true) } else { !is_met(false) }
    }

    fn meets(&self, rule: &Rule) -> bool {
        rule.phase.is_none_or(|phase| phase == self.phase)
            && rule.min_level.is_none_or(|level| level <= self.level)
            && rule.max_level.is_none_or(|level| level >= self.level)
            && rule.stages.iter().all(|stage| self.stages.contains(stage))
            && !rule.not_stages.iter().any(|stage| self.stages.contains(stage))
    }
}

#[cfg(test)]
mod tests {
    use crate::caffe::prototxt;
    use crate::net::{Net, Phase, State};

    fn net() -> Net {
        let text = br#"input: "im" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 9
            layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN } }
            layer { name: "in" type: "Input" top: "data" include { phase: TEST stage: "deploy" }
                    input_param { shape { dim: 2 dim: 5 } } }
            layer { name: "loss" type: "SoftmaxWithLoss" bottom: "data" bottom: "label" top: "loss" exclude { phase: TEST } }
            layer { name: "prob" type: "Softmax" bottom: "data" top: "prob" include { phase: TEST min_level: 1 }
                    include { phase: TEST not_stage: "raw" } }
            layer { name: "relu" type: "ReLU" bottom: "im" top: "im" }"#;
        prototxt("net.prototxt", text).expect("a net")
    }

    fn layers(net: &Net) -> Vec<&str> {
        net.layers().iter().map(|layer| &*layer.name).collect()
    }

    fn names(net: &Net, values: impl Iterator<Item = usize>) -> Vec<(String, Vec<u64>)> {
        values.map(|value| (net.value_name(value).to_owned(), net.shape(value).unwrap_or_default().to_vec())).collect()
    }

    #[test]
    fn a_state_has_the_layers_whose_rules_it_meets() {
        let net = net();
        let of = |level, stages: &[&str]| {
            let stages = stages.iter().map(|stage| (*stage).to_owned()).collect();
            net.in_state(&State { phase: Phase::Test, level, stages })
        };
        assert_eq!(layers(&net.in_phase(Phase::Train)), ["data", "loss", "relu"]);
        assert_eq!(layers(&net.in_phase(Phase::Test)), ["prob", "relu"]);
        assert_eq!(layers(&of(0, &["deploy"])), ["in", "prob", "relu"]);
        assert_eq!(layers(&of(0, &["raw"])), ["relu"]);
        assert_eq!(layers(&of(1, &["raw"])), ["prob", "relu"]);
    }

    #[test]
    fn inputs_and_outputs_have_names_and_shapes() {
        let deploy = net().in_state(&State { stages: vec!["deploy".to_owned()], ..State::default() });
        let own = |name: &str, shape: &[u64]| (name.to_owned(), shape.to_vec());
        assert_eq!(names(&deploy, deploy.inputs()), [own("im", &[1, 3, 8, 9]), own("data", &[2, 5])]);
        assert_eq!(names(&deploy, deploy.outputs()), [own("prob", &[]), own("im", &[])]);
        let train = net().in_phase(Phase::Train);
        assert_eq!(names(&train, train.inputs()), [own("im", &[1, 3, 8, 9])]);
        assert_eq!(names(&train, train.outputs()), [own("loss", &[]), own("im", &[])]);
    }

    #[test]
    fn the_net_s_own_stages_and_inputs_count_wherever_they_stand() {
        let own = r#"state { phase: TEST stage: "a" level: 1 } input: "d" input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4"#;
        let layers_in = r#"layer { name: "x" type: "ReLU" bottom: "d" top: "x" include { stage: "a" } }
            layer { name: "y" type: "ReLU" bottom: "d" top: "y" exclude { stage: "a" } }
            layer { name: "z" type: "ReLU" bottom: "d" top: "z" include { min_level: 1 } }"#;
        for text in [format!("{own} {layers_in}"), format!("{layers_in} {own}")] {
            let net = prototxt("net.prototxt", text.as_bytes()).expect("a net").in_phase(Phase::Test);
            // Caffe opens a file at the level that its caller names, whatever the file's.
            assert_eq!(layers(&net), ["x"], "{text}");
            assert_eq!(names(&net, net.inputs()), [("d".to_owned(), vec![1, 2, 3, 4])], "{text}");
        }
    }
}
