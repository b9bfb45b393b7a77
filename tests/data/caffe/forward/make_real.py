"""What OpenCV 4.14 computes with real weights of MTCNN, which are not kept here: inputs and outputs alone.

    python make_real.py MTCNN_DET1 MTCNN_DET2      (the .caffemodels)
"""
import os
import sys
import tempfile

import cv2
import numpy as np


def conv(name, bottom, filters, kernel):
    param = "convolution_param { num_output: %d kernel_size: %d }" % (filters, kernel)
    return 'layer { name: "%s" type: "Convolution" bottom: "%s" top: "%s" %s }\n' % (name, bottom, name, param)


def prelu(name, blob):
    return 'layer { name: "%s" type: "PReLU" bottom: "%s" top: "%s" }\n' % (name, blob, blob)


def pool(name, bottom, kernel):
    param = "pooling_param { pool: MAX kernel_size: %d stride: 2 }" % kernel
    return 'layer { name: "%s" type: "Pooling" bottom: "%s" top: "%s" %s }\n' % (name, bottom, name, param)


def ip(name, bottom, outputs):
    return 'layer { name: "%s" type: "InnerProduct" bottom: "%s" top: "%s" inner_product_param { num_output: %d } }\n' % (name, bottom, name, outputs)


det1 = conv("conv1", "data", 10, 3) + prelu("prelu1", "conv1") + pool("pool1", "conv1", 2) + conv("conv2", "pool1", 16, 3)
det1 += prelu("prelu2", "conv2") + conv("conv3", "conv2", 32, 3) + prelu("prelu3", "conv3") + conv("score", "conv3", 2, 1) + conv("bbox_pred", "conv3", 4, 1)
det2 = conv("conv1", "data", 28, 3) + prelu("prelu1", "conv1") + pool("pool1", "conv1", 3) + conv("conv2", "pool1", 48, 3) + prelu("prelu2", "conv2")
det2 += pool("pool2", "conv2", 3) + conv("conv3", "pool2", 64, 2) + prelu("prelu3", "conv3") + ip("fc", "conv3", 128) + prelu("prelu4", "fc")
det2 += ip("score", "fc", 2) + ip("bbox_pred", "fc", 4)
for stem, text, weights, side in [("det1", det1, sys.argv[1], 12), ("det2", det2, sys.argv[2], 24)]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "deploy.prototxt")
        with open(path, "w") as file:
            file.write('input: "data" input_dim: 1 input_dim: 3 input_dim: %d input_dim: %d\n' % (side, side) + text)
        net = cv2.dnn.readNetFromCaffe(path, weights)
    data = np.random.default_rng(side).standard_normal((1, 3, side, side)).astype("float32")
    net.setInput(data)
    np.savez(stem + ".npz", data=data, output=np.concatenate([out.ravel() for out in net.forward(["score", "bbox_pred"])]))
