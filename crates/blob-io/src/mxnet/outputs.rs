//! The names of operators' outputs, by MXNet's `Symbol::ListOutputNames`: an operator's own list of names, else
//! `output`, with a number where the operator has several outputs.
//!
//! Both tables are those of apache/mxnet 1.9.1, whose symbols were asked for the outputs of all operators.

use crate::net::Layer;

/// Operators with a list of names, in which the first is not the only one or not `output`.
const NAMED: &[(&[&str], &[&str])] = &[
    (
        &["BatchNorm", "BatchNorm_v1", "CuDNNBatchNorm", "_contrib_SyncBatchNorm", "SyncBatchNorm"],
        &["output", "mean", "var"],
    ),
    (&["LayerNorm", "GroupNorm"], &["output", "mean", "std"]),
    (&["RNN"], &["output", "state_output", "statecell_output"]),
    (&["_contrib_MultiBoxTarget"], &["loc_target", "loc_mask", "cls_target"]),
    (&["_contrib_Proposal", "_contrib_MultiProposal"], &["output", "score"]),
    (&["make_loss", "_sparse_make_loss"], &["loss"]),
];

/// Operators with several outputs of which a net may see one alone: the others are hidden, or are counted by a
/// parameter.
const NUMBERED: &str = "SliceChannel split _split_v2 _contrib_box_nms _contrib_box_non_maximum_suppression \
    _contrib_box_encode _contrib_bipartite_matching sort moments CTCLoss ctc_loss _contrib_CTCLoss _contrib_ctc_loss \
    _linalg_det linalg_det _linalg_slogdet linalg_slogdet _linalg_gelqf linalg_gelqf _linalg_syevd _histogram \
    _contrib_quantize _contrib_quantize_v2 _contrib_requantize";

/// The name of an output of an operator.
pub(super) fn name(layer: &Layer, output: u64) -> String {
    let own = NAMED.iter().find(|(ops, _)| ops.contains(&&*layer.type_name)).map(|(_, names)| *names);
    let own = own.and_then(|names| names.get(usize::try_from(output).ok()?));
    let name = match own {
        Some(own) => (*own).to_owned(),
        None if is_numbered(layer) => format!("output{output}"),
        None => "output".to_owned(),
    };
    if layer.name.is_empty() { name } else { format!("{}_{name}", layer.name) }
}

fn is_numbered(layer: &Layer) -> bool {
    let op = &*layer.type_name;
    // `topk` has one output of indices or of a mask; the values alone have the indices behind them, hidden.
    layer.tops.len() > 1
        || NUMBERED.split_ascii_whitespace().any(|one| one == op)
        || op == "topk" && layer.attributes().any(|(key, value)| key == "ret_typ" && ["value", "both"].contains(&value))
}

#[cfg(test)]
mod tests {
    use crate::mxnet::Symbol;

    /// What `get_internals().list_outputs()` of MXNet 1.9.1 lists for a node X; of `RNN` those that another one reads.
    const LISTED: &[(&str, &str, &str)] = &[
        ("SliceChannel", "\"num_outputs\": \"1\"", "X_output0"),
        ("SliceChannel", "\"num_outputs\": \"3\"", "X_output0 X_output1 X_output2"),
        ("split", "\"num_outputs\": \"2\"", "X_output0 X_output1"),
        ("_split_v2", "", "X_output0 X_output1"),
        ("_contrib_box_nms", "", "X_output0"),
        ("sort", "", "X_output0"),
        ("topk", "", "X_output"),
        ("topk", "\"ret_typ\": \"mask\"", "X_output"),
        ("topk", "\"ret_typ\": \"value\"", "X_output0"),
        ("topk", "\"ret_typ\": \"both\"", "X_output0 X_output1"),
        ("moments", "", "X_output0 X_output1"),
        ("amp_multicast", "\"num_outputs\": \"1\"", "X_output"),
        ("BatchNorm", "", "X_output"),
        ("BatchNorm", "\"output_mean_var\": \"True\"", "X_output X_mean X_var"),
        ("LayerNorm", "\"output_mean_var\": \"True\"", "X_output X_mean X_std"),
        ("RNN", "\"mode\": \"lstm\"", "X_output X_state_output X_statecell_output"),
        ("make_loss", "", "X_loss"),
        ("Convolution", "", "X_output"),
        ("Pooling", "", "X_output"),
    ];

    #[test]
    fn outputs_have_the_names_of_list_outputs() {
        for (op, attributes, listed) in LISTED {
            let listed: Vec<&str> = listed.split(' ').collect();
            let last = listed.len() - 1;
            let names = |node: &str| {
                let text = format!(
                    "{{\"nodes\": [{{\"op\": \"null\", \"name\": \"data\", \"inputs\": []}},
                      {{\"op\": {op:?}, \"name\": {node:?}, \"attrs\": {{{attributes}}}, \"inputs\": [[0, 0, 0]]}}],
                      \"heads\": [[1, {last}, 0]]}}"
                );
                let net = Symbol::from_bytes("net-symbol.json", text.as_bytes()).expect(op).net;
                let tops = net.layers()[0].tops.iter();
                tops.map(|top| net.value_name(*top).to_owned()).collect::<Vec<String>>()
            };
            assert_eq!(names("X"), listed, "{op} {attributes}");
            let unnamed: Vec<&str> = listed.iter().map(|name| &name[2..]).collect();
            assert_eq!(names(""), unnamed, "{op} {attributes}");
        }
    }
}
