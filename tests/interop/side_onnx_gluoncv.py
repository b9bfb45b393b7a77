"""The nets of GluonCV's model zoo, traced to symbols, with random weights: as ONNX in onnxruntime, against MXNet.

    side_onnx_gluoncv.py names                              (Python 3.8, mxnet 1.9.1, gluoncv 0.10.5: the names of all nets)
    side_onnx_gluoncv.py write FOLDER NAME                  (there: NAME-symbol.json, NAME.params, NAME.npz)
    side_onnx_gluoncv.py read BLOB FOLDER PYTHON [NAME ...]  (in the environment of onnx.txt; PYTHON is that of Python 3.8)

The second environment is made by hand, without the packages' own wishes: `pip install --no-deps gluoncv==0.10.5.post0`, then tqdm,
Pillow, matplotlib, portalocker, scipy, opencv-python-headless. Each net is written by a process of its own, read, and removed: all
take an hour. The input is the smallest of a few that the net bears. Of a few scales of the weights the first one counts whose net gives
finite numbers, and changes its output by less than 100 times a change of the input: rounding shows by as much.
Without gluoncv nothing is compared, and NOT TESTED says so.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

from common import compared

SIDES = ((1, 3, 64, 64), (1, 3, 127, 127), (1, 3, 224, 224), (1, 3, 299, 299), (1, 3, 480, 480), (1, 3, 32, 32))
# Nets of videos take more axes, or fast and slow frames behind each other.
CLIPS = ((1, 3, 8, 64, 64), (1, 3, 16, 112, 112), (1, 3, 32, 64, 64), (1, 3, 36, 64, 64), (1, 3, 40, 64, 64), (1, 3, 32, 224, 224))
VIDEOS = ("c3d", "p3d", "r2plus1d", "i3d", "slowfast")
# Nets whose size of crops stands in layers.
CROPS = ("psp", "icnet", "deeplab_v3b", "fastscnn")
SCALES, BEARS, WORDS = (1.0, 0.6, 0.3, 1.6), 100, ("pretrained", "pretrained_base", "classes", "transfer", "nclass", "crop_size")


def made(name):
    """The net. Some of the zoo's functions take no `pretrained_base`, load weights unasked, or want classes."""
    import mxnet as mx
    import requests
    from gluoncv.model_zoo import action_recognition, get_model

    def refused(*_, **__):
        raise RuntimeError("the net wants a download")
    requests.get = refused
    mx.gluon.ParameterDict.reset_ctx = lambda *_, **__: None
    videos = action_recognition.actionrec_resnetv1b
    for depth in (18, 34, 50, 101, 152):
        own = getattr(videos, "resnet%d_v1b" % depth)
        setattr(videos, "resnet%d_v1b" % depth, lambda pretrained, own=own, **more: own(pretrained=False, **more))
    values, reasons = (False, False, ["a", "b", "c"], None, 10, 128), []
    for words in (WORDS[:2], WORDS[:1], WORDS[:4], (*WORDS[:2], "nclass")) if not name.startswith(CROPS) else ((*WORDS[:2], "crop_size"),):
        try:
            with mx.name.NameManager():
                return get_model(name, **dict(pair for pair in zip(WORDS, values) if pair[0] in words))
        except Exception as reason:
            reasons.append("%s: %s" % (type(reason).__name__, str(reason)[:200]))
    raise RuntimeError(" | ".join(dict.fromkeys(reasons)))


def flat(outputs):
    return [one for part in outputs for one in flat(part)] if isinstance(outputs, (list, tuple)) else [outputs]


def write(folder, name):
    os.environ.update(MXNET_MKLDNN_ENABLED="0", MXNET_SUBGRAPH_BACKEND="NONE", OMP_NUM_THREADS="1")
    import mxnet as mx
    net = made(name)
    with mx.name.NameManager():
        heads = [head for head in flat(net(mx.sym.Variable("data"))) if head is not None]
    symbol = mx.sym.Group(heads) if len(heads) > 1 else heads[0]
    constants = {key: own.value.asnumpy() for key, own in net.collect_params().items() if isinstance(own, mx.gluon.parameter.Constant)}

    def value(random, key, shape, scale):
        if key in constants:
            return constants[key]
        if key.endswith("var"):
            return np.abs(random.standard_normal(shape)) + 0.5
        if key.endswith("gamma"):
            return random.uniform(0.5, 1.5, shape) * scale
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 100
        return random.standard_normal(shape, dtype="float32") * np.float32(np.sqrt(2 / fan) * scale)

    def run(data, scale):
        random = np.random.default_rng(sum(name.encode()))
        shapes, _, states = symbol.infer_shape(data=data.shape)
        nd = lambda keys, shapes: {k: mx.nd.array(value(random, k, s, scale)) for k, s in zip(keys, shapes) if k != "data"}
        weights, states = nd(symbol.list_arguments(), shapes), nd(symbol.list_auxiliary_states(), states)
        bound = symbol.bind(mx.cpu(), {**weights, "data": mx.nd.array(data)}, aux_states=states, grad_req="null")
        first = [output.asnumpy() for output in bound.forward(is_train=False)]
        other = bound.forward(is_train=False, data=mx.nd.array(data * (1 + 1e-6 * random.standard_normal(data.shape))))
        moved = [np.max(np.abs(a - b.asnumpy())) / max(np.max(np.abs(a)), 1e-30) / 1e-6 for a, b in zip(first, other)]
        is_finite = all(np.isfinite(output).all() and np.max(np.abs(output)) < 1e12 for output in first)
        return max(moved) if is_finite else np.inf, first, {**{"arg:" + k: v for k, v in weights.items()}, **{"aux:" + k: v for k, v in states.items()}}

    reason = None
    for shape in CLIPS if name.startswith(VIDEOS) else SIDES:
        data = np.random.default_rng(1).standard_normal(shape).astype("float32")
        try:
            best = run(data, SCALES[0])
            for scale in SCALES[1:] if best[0] > BEARS else ():
                best = min([best, run(data, scale)], key=lambda one: one[0])
        except (mx.MXNetError, ValueError) as error:
            reason = str(error)[:200]
            continue
        _, outputs, saved = best
        path = os.path.join(folder, name)
        symbol.save(path + "-symbol.json")
        mx.nd.save(path + ".params", saved)
        return np.savez(path + ".npz", data=data, **{"out%d" % place: output for place, output in enumerate(outputs)})
    raise RuntimeError("no input: %s" % reason)


def read(blob, folder, python, *names):
    ask = lambda *words: subprocess.run([python, "-W", "ignore", os.path.abspath(__file__), *words], capture_output=True, text=True)
    done = ask("names")
    if done.returncode:
        return print("NOT TESTED: no gluoncv: %s" % done.stderr.strip()[-200:])
    all_names, found = done.stdout.split(), {}
    for name in names or all_names:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            done = ask("write", own, name)
            found[name] = compared(blob, os.path.join(own, name)) if done.returncode == 0 else "not written: " + done.stderr.strip()[-200:]
        print(json.dumps({name: found[name]}), flush=True)
    numbers = [value for value in found.values() if isinstance(value, float)]
    print("%d of %d nets, at most %.1e" % (len(numbers), len(found), max(numbers, default=0.0)))


if __name__ == "__main__":
    if sys.argv[1] == "names":
        from gluoncv.model_zoo import get_model_list
        print("\n".join(get_model_list()))
    else:
        {"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
