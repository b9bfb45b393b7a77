"""The nets of GluonCV's model zoo, traced to symbols, with random weights: as ONNX in onnxruntime, against MXNet.

    side_onnx_gluoncv.py names                              (Python 3.8, mxnet 1.9.1, gluoncv 0.10.5: the names of all nets)
    side_onnx_gluoncv.py write FOLDER NAME                  (there: NAME-symbol.json, NAME.params, NAME.npz)
    side_onnx_gluoncv.py read BLOB FOLDER PYTHON [NAME ...]  (in the environment of onnx.txt; PYTHON is that of Python 3.8)

The second environment is made by hand, without the packages' own wishes: `pip install --no-deps gluoncv==0.10.5.post0`, then tqdm,
Pillow, matplotlib, portalocker, scipy, opencv-python-headless. Each net is written by a process of its own, read, and removed: all
take an hour. The input is the smallest of a few that the net bears. Of a few scales of the weights the first one counts whose net gives
finite numbers, and changes its output by less than 100 times a change of the input: rounding shows by as much.
A net whose rows change places where two scores are equal but for rounding is compared in parts, too: what leads to each operator that
sorts or looks for equal values, each of them, and what follows, every part from MXNet's own values. The second figure is the greatest
difference of a part.
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
# Operators that turn rounding into other places. The second value of box_nms is for its gradient alone.
SORTS, BAR = ("_contrib_box_nms", "topk", "argsort", "broadcast_equal"), 1e-4
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
        cuts = sorts(symbol, data, saved)
        path = os.path.join(folder, name)
        symbol.save(path + "-symbol.json")
        mx.nd.save(path + ".params", saved)
        return np.savez(path + ".npz", data=data, **{"out%d" % place: output for place, output in enumerate(outputs)}, **cuts)
    raise RuntimeError("no input: %s" % reason)


def sorts(symbol, data, saved):
    """MXNet's values before and behind each operator that sorts, by name, and which of them belong together."""
    import mxnet as mx
    nodes, values, pairs = json.loads(symbol.tojson())["nodes"], symbol.get_internals(), []
    names = values.list_outputs()
    called = lambda place, output: next(name for name in (nodes[place]["name"] + end for end in ("_output", "_output%d" % output)) if name in names)
    for place, node in enumerate(nodes):
        if node["op"] in SORTS:
            attributes = node.get("attrs", {})
            count = 2 if attributes.get("ret_typ") == "both" else 1
            axis = attributes.get("axis", "-1") if node["op"] in ("topk", "argsort") else None
            before = [called(*source[:2]) for source in node["inputs"]]
            pairs.append([before, [called(place, output) for output in range(count)], axis and int(axis)])
    if not pairs:
        return {}
    group = mx.sym.Group([values[name] for before, own, _ in pairs for name in [*before, *own]])
    weights = {key[4:]: value for key, value in saved.items() if key[4:] in group.list_arguments()}
    states = {key[4:]: value for key, value in saved.items() if key[4:] in group.list_auxiliary_states()}
    bound = group.bind(mx.cpu(), {**weights, "data": mx.nd.array(data)}, aux_states=states, grad_req="null")
    found = [value.asnumpy() for value in bound.forward(is_train=False)]
    return {"cuts": json.dumps(pairs), **dict(zip(("cut:" + name for before, own, _ in pairs for name in [*before, *own]), found))}


def in_parts(path):
    """The greatest relative difference of a part of the model, from MXNet's values before it.

    Of places that an operator has sorted the values there are compared: MXNet gives equal values any order.
    """
    import onnx
    import onnxruntime
    arrays, whole = np.load(path + ".npz"), onnx.load(path + ".onnx")
    extractor = onnx.utils.Extractor(whole)
    cuts, heads = json.loads(str(arrays["cuts"])), [output.name for output in whole.graph.output]
    mine = lambda name: arrays["out%d" % heads.index(name)] if name in heads else arrays["cut:" + name]
    far = lambda found, wanted: float(np.max(np.abs(found - wanted), initial=0.0) / max(np.max(np.abs(wanted), initial=0.0), 1e-30))
    around = (["data", *(name for cut in cuts for name in cut[1])], [*dict.fromkeys(name for cut in cuts for name in cut[0]), *heads], None)
    most = 0.0
    for before, after, axis in [around, *cuts]:
        model = extractor.extract_model([*before], [name for name in after if name not in before])
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        types = {"tensor(float)": "float32", "tensor(int64)": "int64"}
        given = {own.name: arrays["data"] if own.name == "data" else mine(own.name).astype(types[own.type]) for own in session.get_inputs()}
        for output, found in zip(session.get_outputs(), session.run(None, given)):
            wanted = mine(output.name)
            if axis is not None and output.name == after[-1]:
                is_each_once = np.all(np.diff(np.sort(found, axis), axis=axis) != 0)
                found, wanted = (np.take_along_axis(mine(before[0]), places.astype("int64"), axis) for places in (found, wanted))
                most = most if is_each_once else np.inf
            most = max(most, far(found, wanted))
    return most


def read(blob, folder, python, *names):
    ask = lambda *words: subprocess.run([python, "-W", "ignore", os.path.abspath(__file__), *words], capture_output=True, text=True)
    done = ask("names")
    if done.returncode:
        return print("NOT TESTED: no gluoncv: %s" % done.stderr.strip()[-200:])
    all_names, found = done.stdout.split(), {}
    for name in names or all_names:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            done = ask("write", own, name)
            path = os.path.join(own, name)
            found[name] = compared(blob, path) if done.returncode == 0 else "not written: " + done.stderr.strip()[-200:]
            if isinstance(found[name], float) and found[name] > BAR and "cuts" in np.load(path + ".npz"):
                found[name] = [found[name], in_parts(path)]
        print(json.dumps({name: found[name]}), flush=True)
    numbers = [value[-1] if isinstance(value, list) else value for value in found.values() if not isinstance(value, str)]
    print("%d of %d nets, at most %.1e" % (len(numbers), len(found), max(numbers, default=0.0)))


if __name__ == "__main__":
    if sys.argv[1] == "names":
        from gluoncv.model_zoo import get_model_list
        print("\n".join(get_model_list()))
    else:
        {"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
