"""Writes weights.tsv: the shapes of weights that MXNet infers, by operator, layout and groups. All extents differ, so that a
shape tells the axes. Run by MXNet 1.9.1; 2.0.0b1 infers the same.

MXNet computes layouts with the channels last on GPUs alone; which axis is which is known to every build.
"""

from pathlib import Path

import mxnet as mx

CHANNELS, FILTERS = 14, 22
KERNEL, IMAGE = (2, 3, 5), (7, 9, 11)

lines = ["operator\tlayout\tgroups\tkernel\tdata\tweight"]
for op in (mx.sym.Convolution, mx.sym.Deconvolution):
    for groups in (1, 2):
        for layout in ("NCW", "NCHW", "NHWC", "NCDHW", "NDHWC"):
            count = len(layout) - 2
            kernel, image = KERNEL[3 - count :], IMAGE[3 - count :]
            data = (1, *image, CHANNELS) if layout.endswith("C") else (1, CHANNELS, *image)
            layer = op(
                mx.sym.Variable("data"), name="c", layout=layout, kernel=kernel, num_filter=FILTERS, num_group=groups, no_bias=True
            )
            shapes, _, _ = layer.infer_shape(data=data)
            weight = dict(zip(layer.list_arguments(), shapes))["c_weight"]
            words = [op.__name__, layout, str(groups), *(",".join(map(str, shape)) for shape in (kernel, data, weight))]
            lines.append("\t".join(words))
Path(__file__).with_name("weights.tsv").write_text("\n".join(lines) + "\n")
