//! The nets of `positions`, each with a naive evaluation.

use super::{CHANNELS, COLUMNS, Case, DENSE, Image, OUTPUTS, POSITIONS, UNKNOWN};
use crate::support::floats::wide;

pub(super) const CASES: &[Case] = &[
    // A reshape that flattens.
    Case {
        nodes: &[
            ("Reshape", "r", "shape=(0, -1)", &[2]),
            ("null", "f_weight", "", &[]),
            ("FullyConnected", "f", DENSE, &[3, 4]),
        ],
        weights: &[("arg:f_weight", &[5, 24])],
        compute: |net| net.product("arg:f_weight", OUTPUTS, &net.flat(&net.convolved())),
        alone: COLUMNS,
        behind: "",
    },
    // One that may divide images.
    Case {
        nodes: &[
            ("Reshape", "r", "shape=(-1, 24)", &[2]),
            ("null", "f_weight", "", &[]),
            ("FullyConnected", "f", DENSE, &[3, 4]),
        ],
        weights: &[("arg:f_weight", &[5, 24])],
        compute: |net| net.product("arg:f_weight", OUTPUTS, &net.flat(&net.convolved())),
        alone: UNKNOWN,
        behind: "refused: \"arg:f_weight\" reads \"r\", a Reshape",
    },
    Case {
        nodes: &[
            ("Flatten", "x", "", &[2]),
            ("relu", "y", "", &[3]),
            ("Concat", "k", "dim=1", &[3, 4]),
            ("null", "f_weight", "", &[]),
            ("FullyConnected", "f", DENSE, &[5, 6]),
        ],
        weights: &[("arg:f_weight", &[5, 48])],
        compute: |net| {
            let x = net.convolved();
            let both = [net.flat(&x), net.flat(&x.each(|_, x| x.max(0.0)))].concat();
            net.product("arg:f_weight", OUTPUTS, &both)
        },
        alone: UNKNOWN,
        behind: "refused: no weights of an inner product have 24 inputs",
    },
    // Channels that are weighed by the means.
    Case {
        nodes: &[
            ("mean", "m", "axis=(2, 3); keepdims=True", &[2]),
            ("sigmoid", "s", "", &[3]),
            ("broadcast_mul", "b", "", &[2, 4]),
            ("null", "f_weight", "", &[]),
            ("FullyConnected", "f", DENSE, &[5, 6]),
        ],
        weights: &[("arg:f_weight", &[5, 24])],
        compute: |net| {
            let (x, gates) = (net.convolved(), net.convolved().means());
            let x = x.each(|c, x| x / (1.0 + (-gates[c]).exp()));
            net.product("arg:f_weight", OUTPUTS, &net.flat(&x))
        },
        alone: COLUMNS,
        behind: "",
    },
    Case {
        nodes: &[("null", "f_weight", "", &[]), ("transpose", "t", "", &[3]), ("FullyConnected", "f", DENSE, &[2, 4])],
        weights: &[("arg:f_weight", &[24, 5])],
        compute: |net| {
            let (w, x) = (wide(net.file, "arg:f_weight"), net.flat(&net.convolved()));
            (0..OUTPUTS).map(|o| (0..24).map(|i| w[i * OUTPUTS + o] * x[i]).sum()).collect()
        },
        alone: "layout: computed weights stay channels",
        behind: "refused: no weights of an inner product have 24 inputs",
    },
    // The same by an inner product, and a normalisation of each channel.
    Case {
        nodes: &[
            ("Pooling", "p", "pool_type=avg; global_pool=True; kernel=(1, 1)", &[2]),
            ("null", "g_weight", "", &[]),
            ("FullyConnected", "g", "num_hidden=4; no_bias=True", &[3, 4]),
            ("Reshape", "r", "shape=(0, 4, 1, 1)", &[5]),
            ("broadcast_mul", "b", "", &[2, 6]),
            ("null", "n_gamma", "", &[]),
            ("null", "n_beta", "", &[]),
            ("InstanceNorm", "n", "eps=1e-5", &[7, 8, 9]),
            ("null", "f_weight", "", &[]),
            ("FullyConnected", "f", DENSE, &[10, 11]),
        ],
        weights: &[("arg:g_weight", &[4, 4]), ("arg:n_gamma", &[4]), ("arg:n_beta", &[4]), ("arg:f_weight", &[5, 24])],
        compute: |net| {
            let x = net.convolved();
            let gates = net.product("arg:g_weight", CHANNELS, &x.means());
            let x = x.each(|c, x| x * gates[c]);
            let (means, gamma, beta) = (x.means(), wide(net.file, "arg:n_gamma"), wide(net.file, "arg:n_beta"));
            let squares = x.each(|c, x| (x - means[c]) * (x - means[c])).means();
            let x = x.each(|c, x| (x - means[c]) / (squares[c] + 1e-5).sqrt() * gamma[c] + beta[c]);
            net.product("arg:f_weight", OUTPUTS, &net.flat(&x))
        },
        alone: COLUMNS,
        behind: "",
    },
    // An inner product along the width, of which one is left.
    Case {
        nodes: &[
            ("mean", "m", "axis=(2, 3); keepdims=True", &[2]),
            ("null", "w_weight", "", &[]),
            ("FullyConnected", "w", "num_hidden=6; no_bias=True; flatten=False", &[3, 4]),
            ("null", "f_weight", "", &[]),
            ("FullyConnected", "f", DENSE, &[5, 6]),
        ],
        weights: &[("arg:w_weight", &[6, 1]), ("arg:f_weight", &[5, 24])],
        compute: |net| {
            let means = net.convolved().means();
            let x = Image(means.iter().map(|mean| net.product("arg:w_weight", POSITIONS, &[*mean])).collect());
            net.product("arg:f_weight", OUTPUTS, &net.flat(&x))
        },
        alone: UNKNOWN,
        behind: "refused: \"arg:f_weight\" reads \"w\", a FullyConnected",
    },
    // No positions are left.
    Case {
        nodes: &[
            ("mean", "m", "axis=[2, 3]", &[2]),
            ("null", "f_weight", "", &[]),
            ("FullyConnected", "f", DENSE, &[3, 4]),
        ],
        weights: &[("arg:f_weight", &[5, 4])],
        compute: |net| net.product("arg:f_weight", OUTPUTS, &net.convolved().means()),
        alone: "",
        behind: "refused: no weights of an inner product have 24 inputs",
    },
    Case {
        nodes: &[
            ("Pooling", "p", "pool_type=avg; global_pool=True; kernel=(1, 1)", &[2]),
            ("Reshape", "r", "shape=(-1, 4)", &[3]),
            ("null", "f_weight", "", &[]),
            ("FullyConnected", "f", DENSE, &[4, 5]),
        ],
        weights: &[("arg:f_weight", &[5, 4])],
        compute: |net| net.product("arg:f_weight", OUTPUTS, &net.convolved().means()),
        alone: "",
        behind: "refused: no weights of an inner product have 24 inputs",
    },
    Case {
        nodes: &[
            ("mean", "m", "axis=(-2, -1)", &[2]),
            ("null", "v", "", &[]),
            ("broadcast_mul", "b", "", &[3, 4]),
            ("null", "h", "", &[]),
            ("dot", "d", "", &[5, 6]),
        ],
        weights: &[("arg:v", &[4]), ("arg:h", &[4, 5])],
        compute: |net| {
            let (v, w, x) = (wide(net.file, "arg:v"), wide(net.file, "arg:h"), net.convolved().means());
            (0..OUTPUTS).map(|o| (0..CHANNELS).map(|i| w[i * OUTPUTS + o] * x[i] * v[i]).sum()).collect()
        },
        alone: "",
        behind: "refused: no weights of an inner product have 24 inputs",
    },
    // An image of flattened values.
    Case {
        nodes: &[
            ("Flatten", "x", "", &[2]),
            ("Reshape", "r", "shape=(0, 6, 2, 2)", &[3]),
            ("mean", "m", "axis=(2, 3)", &[4]),
        ],
        weights: &[],
        compute: |net| {
            let x = net.flat(&net.convolved());
            (0..6)
                .map(|c| (0..4).map(|p| if net.is_last { x[p * 6 + c] } else { x[c * 4 + p] }).sum::<f64>() / 4.0)
                .collect()
        },
        alone: "layout: values become channels",
        behind: "refused: no weights of an inner product have 24 inputs",
    },
    // A factor for each flattened value, and none that mixes values.
    Case {
        nodes: &[
            ("Flatten", "x", "", &[2]),
            ("null", "n_gamma", "", &[]),
            ("null", "n_beta", "", &[]),
            ("LayerNorm", "n", "", &[3, 4, 5]),
            ("null", "f_weight", "", &[]),
            ("FullyConnected", "f", DENSE, &[6, 7]),
        ],
        weights: &[("arg:n_gamma", &[24]), ("arg:n_beta", &[24]), ("arg:f_weight", &[5, 24])],
        compute: |net| {
            let x = net.normalised(&net.flat(&net.convolved()));
            net.product("arg:f_weight", OUTPUTS, &x)
        },
        alone: "layout: values behind a flattening stay channels",
        behind: "",
    },
    Case {
        nodes: &[("Flatten", "x", "", &[2]), ("null", "h", "", &[]), ("_linalg_gemm2", "g", "", &[3, 4])],
        weights: &[("arg:h", &[24, 5])],
        compute: |net| {
            let (w, x) = (wide(net.file, "arg:h"), net.flat(&net.convolved()));
            (0..OUTPUTS).map(|o| (0..24).map(|i| w[i * OUTPUTS + o] * x[i]).sum()).collect()
        },
        alone: "layout: values behind a flattening stay channels",
        behind: "refused: no weights of an inner product have 24 inputs",
    },
];
