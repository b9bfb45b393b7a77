//! Nets that are no graphs: the problems, all at once.

use super::{model, net, one};
use crate::{Graph, Reason, Shapes};

#[test]
fn all_problems_are_listed_at_once() {
    let text = "layer { name: \"d\" type: \"Input\" top: \"d\" input_param { shape { dim: 1 dim: 3 } } }
        layer { name: \"p\" type: \"Python\" bottom: \"d\" top: \"p\" python_param { module: \"m\" } }
        layer { name: \"r\" type: \"ReLU\" bottom: \"d\" top: \"r\" relu_param { bend: 3 } }
        layer { name: \"c\" type: \"Convolution\" bottom: \"d\" top: \"c\" convolution_param { num_output: 3 kernel_size: 1 } }
        layer { name: \"x\" type: \"Eltwise\" bottom: \"unknown\" bottom: \"p\" top: \"x\" }
        layer { name: \"n\" type: \"Power\" bottom: \"r\" top: \"n\" power_param { power: \"high\" } }";
    let error = Graph::from_net(&net(text), &Shapes::default()).expect_err("problems");
    let found: Vec<_> = error.problems.iter().map(|problem| (&*problem.layer, problem.reason)).collect();
    let expected = [
        ("", Reason::Input),
        ("p", Reason::Type),
        ("r", Reason::Parameter),
        ("c", Reason::Shape),
        ("n", Reason::Parameter),
    ];
    assert_eq!(found, expected, "{error}");
    assert!(error.to_string().contains("python_param.module = \"m\""), "{error}");
}

/// Types and shapes are checked in two walks, and what they find is in one order.
#[test]
fn problems_stand_in_the_net_s_order_and_a_long_list_is_cut() {
    let data = "layer { name: \"d\" type: \"Input\" top: \"d\" input_param { shape { dim: 1 dim: 3 } } } ";
    let layers = (0..5000).map(|i: usize| {
        let bad = if i.is_multiple_of(2) { "type: \"Python\"" } else { "type: \"Tile\" tile_param { axis: 7 }" };
        format!("layer {{ name: \"l{i}\" bottom: \"d\" top: \"t{i}\" {bad} }} ")
    });
    let text = data.to_owned() + &layers.collect::<String>();
    let error = Graph::from_net(&net(&text), &Shapes::default()).expect_err("problems");
    let names: Vec<&str> = error.problems.iter().map(|problem| &*problem.layer).collect();
    assert_eq!(names, (0..5000).map(|i| format!("l{i}")).collect::<Vec<_>>());
    let said = error.to_string();
    assert!(said.lines().count() == 20 && said.ends_with(" and 4,980 more") && said.len() < 4096, "{said}");
    let long = format!(
        "{data} layer {{ name: \"p\" type: \"{}\" bottom: \"d\" top: \"p\" x_param {{ {} }} }}",
        "T",
        "y: 123456 ".repeat(9999)
    );
    let error = Graph::from_net(&net(&long), &Shapes::default()).expect_err("a problem");
    assert!(error.to_string().len() < 1024, "{}", error.to_string().len());
}

#[test]
fn absurd_nets_are_refused() {
    let refused = |shape: &[u64], text: &str| model(&one(shape, text)).expect_err(text);
    for text in [
        "type: \"Convolution\" convolution_param { num_output: 0 kernel_size: 1 }",
        "type: \"Convolution\" convolution_param { num_output: 3 kernel_h: 2 }",
        "type: \"Convolution\" convolution_param { num_output: 3 kernel_size: 2 stride_w: 2 }",
        "type: \"Pooling\" pooling_param { kernel_h: 2 }",
        "type: \"Pooling\" pooling_param { kernel_size: 2 pad_w: 1 }",
        "type: \"Convolution\" convolution_param { num_output: 3 kernel_size: 0 }",
        "type: \"Convolution\" convolution_param { num_output: 3 kernel_size: 99 }",
        "type: \"Convolution\" convolution_param { num_output: 3 kernel_size: 1 stride: 0 }",
        "type: \"Convolution\" convolution_param { num_output: 4294967295 kernel_size: 1 }",
        "type: \"Convolution\" convolution_param { num_output: 3 kernel_size: 1 group: 2 }",
        "type: \"Convolution\" convolution_param { num_output: 3 kernel_size: 2 dilation: 4294967295 dilation: 1 }",
        "type: \"Deconvolution\" convolution_param { num_output: 3 kernel_size: 2 stride: 4294967295 }",
        "type: \"Deconvolution\" convolution_param { num_output: 3 kernel_size: 2 pad: 4294967295 }",
        "type: \"Pooling\" pooling_param { kernel_size: 2 pad: 2 }",
        "type: \"Pooling\" pooling_param { pool: STOCHASTIC kernel_size: 2 }",
        "type: \"Reshape\" reshape_param { shape { dim: 7 } }",
        "type: \"Reshape\" reshape_param { shape { dim: -1 dim: -1 } }",
        "type: \"Reshape\" reshape_param { shape { dim: 0 dim: 0 dim: 0 dim: 0 dim: 0 } }",
        "type: \"Reshape\" reshape_param { axis: -9223372036854775807 shape { dim: 1 } }",
        "type: \"Tile\" tile_param { tiles: 9223372036854775807 }",
        "type: \"Permute\" permute_param { order: 1 order: 1 }",
        "type: \"Softmax\" softmax_param { axis: 4 }",
        "type: \"Slice\" top: \"z\" slice_param { slice_point: 9 }",
        "type: \"Slice\" top: \"z\" top: \"w\" slice_param { axis: 0 }",
        "type: \"Interp\" interp_param { zoom_factor: 9223372036854775807 }",
        "type: \"Upsample\" upsample_param { scale: 9223372036854775807 }",
        "type: \"Upsample\"",
        "type: \"Interp\"",
        "type: \"ShuffleChannel\"",
        "type: \"BatchNorm\" batch_norm_param { use_global_stats: false }",
        "type: \"ArgMax\" argmax_param { axis: 1 top_k: 4 }",
        "type: \"Reduction\" reduction_param { axis: 5 }",
        "type: \"LRN\" lrn_param { local_size: 4 }",
        "type: \"Exp\" exp_param { base: 0 }",
    ] {
        refused(&[1, 3, 8, 8], text);
    }
    refused(&[1, 0, 8, 8], "type: \"ReLU\"");
    refused(&[1 << 20, 1 << 20], "type: \"ReLU\"");
    let order = "layer { name: \"x\" type: \"ReLU\" bottom: \"y\" top: \"x\" } layer { name: \"y\" type: \"ReLU\" bottom: \"x\" top: \"y\" }";
    let error = Graph::from_net(&net(order), &Shapes::default()).expect_err("a cycle");
    assert_eq!(error.problems[0].reason, Reason::Order);
    let twice = "input: \"d\" input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 1
        layer { name: \"x\" type: \"ReLU\" bottom: \"d\" top: \"x\" } layer { name: \"y\" type: \"ReLU\" bottom: \"d\" top: \"x\" }";
    let error = Graph::from_net(&net(twice), &Shapes::default()).expect_err("two writers");
    assert_eq!(error.problems[0].reason, Reason::Order);
}

#[test]
fn nothing_is_left_out_or_mixed_up_in_silence() {
    let data = "input: \"d\" input_dim: 1 input_dim: 3 input_dim: 2 input_dim: 2 ";
    let conv = "type: \"Convolution\" convolution_param { num_output: 3 kernel_size: 1 }";
    let loss = "layer { name: \"l\" type: \"EuclideanLoss\" bottom: \"d\" bottom: \"d\" top: \"l\" }
        layer { name: \"p\" type: \"Power\" bottom: \"l\" top: \"p\" } layer { name: \"r\" type: \"ReLU\" bottom: \"d\" top: \"r\" }";
    let twins = format!(
        "layer {{ name: \"c\" bottom: \"d\" top: \"x\" {conv} }} layer {{ name: \"c\" bottom: \"x\" top: \"y\" {conv} }}"
    );
    for (text, layer) in [(loss, "p"), (&twins, "c")] {
        let error = Graph::from_net(&net(&format!("{data}{text}")), &Shapes::default()).expect_err(text);
        assert_eq!((error.problems.len(), &*error.problems[0].layer), (1, layer), "{error}");
        assert_eq!(error.problems[0].reason, Reason::Order);
    }
    let global = format!(
        "{data} layer {{ name: \"g\" type: \"Pooling\" bottom: \"d\" top: \"g\"
            pooling_param {{ global_pooling: true kernel_h: 2 }} }}"
    );
    let error = Graph::from_net(&net(&global), &Shapes::default()).expect_err("Caffe refuses that, too");
    assert!(error.to_string().contains("beside a kernel"), "{error}");
    let relu = net(&format!("{data} layer {{ name: \"r\" type: \"ReLU\" bottom: \"d\" top: \"r\" }}"));
    let shapes = Shapes { named: [("dta".to_owned(), vec![1, 3])].into(), ..Shapes::default() };
    let error = Graph::from_net(&relu, &shapes).expect_err("an input that is not there");
    assert!(error.to_string().contains("dta"), "{error}");
}
