"""MXNet's operators with random numbers in their attributes: as ONNX in onnxruntime, against MXNet.

    side_onnx_random.py write FOLDER SETS        (Python 3.8, mxnet 1.9.1: CASE.npz with symbols, inputs and outputs; SETS of each operator)
    side_onnx_random.py read BLOB FOLDER         (in the environment of onnx.txt)

Each symbol is one of tests/data/onnx_graph with small numbers in place of some of its attributes'. What MXNet refuses is drawn again, up
to 16 times as often; what MXNet computes otherwise a second time, in fresh memory, is left out, and so is what is not finite.
`read` converts each, and counts by operator: equal to 1e-4 of the output's largest value, refused by blob, different.
"""
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/onnx_graph/mxnet.npz")
# Values that mean places or boxes stay as they are.
PLACED = ("box", "multibox", "roi", "gather", "where", "integers", "broadcast-mod")


def varied(random, text):
    """The symbol with other numbers in a third of its attributes."""
    symbol = json.loads(text)
    other = lambda match: str(random.integers(5)) if random.random() < 0.5 else match.group()
    for node in symbol["nodes"]:
        own = node.get("attrs") or node.get("attr") or node.get("param") or {}
        for key in sorted(own):
            if random.random() < 1 / 3:
                own[key] = re.sub(r"(?<![\w.])\d+", other, own[key])
    return json.dumps(symbol)


def computed(text, inputs, random):
    """The weights' names and values, and the outputs; of two runs in a row."""
    import mxnet as mx
    net = mx.sym.load_json(text)
    shapes, ends, states = net.infer_shape(**{key: value.shape for key, value in inputs.items() if key in net.list_arguments()})
    if not shapes or max(np.prod(shape, dtype=float) for shape in [*shapes, *ends, *states]) > 1e5:
        return None

    def value(name, shape):
        if name in inputs or name.endswith("label"):
            return inputs.get(name, np.zeros(shape, np.float32))
        drawn = random.standard_normal(shape).astype(np.float32)
        return np.abs(drawn) + 0.3 if name.endswith("var") else drawn / 2
    named = lambda names, shapes: {name: value(name, shape) for name, shape in zip(names, shapes)}
    known, kept = named(net.list_arguments(), shapes), named(net.list_auxiliary_states(), states)
    runs = []
    for filler in (1e3, -1e3):
        # Memory that is handed out again has other values in each run.
        stale = [mx.nd.full((4096,), filler) for _ in range(64)]
        del stale
        nd = lambda arrays: {key: mx.nd.array(array) for key, array in arrays.items()}
        bound = net.bind(mx.cpu(), nd(known), aux_states=nd(kept), grad_req="null")
        runs.append([output.asnumpy() for output in bound.forward(is_train=False)])
    same = all(a.shape == b.shape and np.array_equal(a, b) and np.isfinite(a).all() and a.size for a, b in zip(*runs))
    own = {"arg:" + key: array for key, array in known.items() if key not in inputs and not key.endswith("label")}
    return ({**own, **{"aux:" + key: array for key, array in kept.items()}}, dict(zip(net.list_outputs(), runs[0]))) if same else None


def write_case(folder, name, text, inputs, sets):
    random, arrays, found = np.random.default_rng(sum(name.encode())), {}, 0
    for _ in range(16 * sets):
        given = inputs
        if not name.startswith(PLACED):
            given = {key: random.permutation(array.ravel()).reshape(array.shape) for key, array in inputs.items()}
        own = varied(random, text)
        try:
            done = computed(own, given, random)
        except Exception:  # MXNet's errors, and those of numbers that it cannot read
            continue
        if done is None:
            continue
        arrays["%d/symbol" % found] = np.frombuffer(own.encode(), np.uint8)
        for side, named in zip(("in", "weight", "out"), (given, *done)):
            arrays.update({"%d/%s/%s" % (found, side, key): array for key, array in named.items()})
        found += 1
        if found == sets:
            break
    np.savez(os.path.join(folder, name + ".npz"), **arrays)


def write(folder, sets):
    os.environ.update(MXNET_MKLDNN_ENABLED="0", MXNET_SUBGRAPH_BACKEND="NONE", MXNET_ENGINE_TYPE="NaiveEngine", OMP_NUM_THREADS="1",
                      MXNET_STORAGE_FALLBACK_LOG_VERBOSE="0")
    import mxnet  # once, for all children
    golden = dict(np.load(DATA))
    symbols = {key.split("/")[0]: json.loads(golden[key].tobytes()) for key in golden if key.endswith("/symbol")}
    types = {name: {node["op"] for node in symbol["nodes"] if node["op"] != "null"} for name, symbol in symbols.items() if not name.startswith("resnet")}
    counts = collections.Counter(kind for kinds in types.values() for kind in kinds)
    for name in sorted(types):
        inputs = {key.split("/in/")[1]: golden[key] for key in golden if key.startswith(name + "/in/")}
        child = os.fork()  # some numbers end MXNet's process
        if child == 0:
            write_case(folder, name, golden[name + "/symbol"].tobytes().decode(), inputs, max(-(-int(sets) // counts[kind]) for kind in types[name]))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print(name, "" if status == 0 else "ended by %d" % status, flush=True)


def off(found, wanted):
    if found.shape != wanted.shape:
        return "%s, not %s" % (found.shape, wanted.shape)
    return float(np.max(np.abs(found.astype(float) - wanted), initial=0.0) / max(np.max(np.abs(wanted), initial=0.0), 1e-30))


def params(arrays):
    """MXNet's list of arrays, V2, of f32."""
    import struct
    names = list(arrays)
    out = struct.pack("<QQQ", 0x112, 0, len(names))
    for name in names:
        array = np.ascontiguousarray(arrays[name], np.float32)
        out += struct.pack("<IiI", 0xF993FAC9, 0, array.ndim) + struct.pack("<%dq" % array.ndim, *array.shape)
        out += struct.pack("<iii", 1, 0, 0) + array.tobytes()
    out += struct.pack("<Q", len(names))
    return out + b"".join(struct.pack("<Q", len(name.encode())) + name.encode() for name in names)


def read(blob, folder):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    counts, most, wrong = collections.defaultdict(collections.Counter), 0.0, []
    for file in sorted(os.listdir(folder)):
        arrays = np.load(os.path.join(folder, file))
        for number in sorted({key.split("/")[0] for key in arrays.files}, key=int):
            side = lambda name: {key.split("/", 2)[2]: arrays[key] for key in arrays.files if key.startswith("%s/%s/" % (number, name))}
            text, inputs, wanted = arrays[number + "/symbol"].tobytes(), side("in"), side("out")
            rows = {node["op"] for node in json.loads(text)["nodes"] if node["op"] != "null"}
            with tempfile.TemporaryDirectory() as own:
                path = lambda name: os.path.join(own, name)
                open(path("x-symbol.json"), "wb").write(text)
                open(path("x.params"), "wb").write(params(side("weight")))
                shapes = [word for key in inputs for word in ("--input", "%s=%s" % (key, ",".join(map(str, inputs[key].shape))))]
                done = subprocess.run([blob, "convert", path("x.params"), *shapes, "-o", path("x.onnx"), "-q"], capture_output=True, text=True)
                outcome = "refused"
                if done.returncode == 0:
                    try:
                        session = onnxruntime.InferenceSession(path("x.onnx"), options, providers=["CPUExecutionProvider"])
                        given = {value.name: inputs[value.name] for value in session.get_inputs()}
                        found = dict(zip([value.name for value in session.get_outputs()], session.run(None, given)))
                        every = [off(found[key], wanted[key]) if key in found else "no output " + key for key in wanted]
                    except Exception as error:  # of onnxruntime
                        every = [" ".join(str(error).split())[-200:]]
                    words = next((words for words in every if isinstance(words, str)), None)
                    outcome = "different" if words or max(every) > 1e-4 else "equal"
                    most = max([most, *(by for by in every if not isinstance(by, str) and outcome == "equal")])
                    if outcome == "different":
                        wrong.append("%s %s: %s" % (file[:-4], number, words or max(every)))
                elif done.returncode != 2:
                    wrong.append("%s %s: %s" % (file[:-4], number, done.stderr[-200:]))
            for row in rows:
                counts[row][outcome] += 1
        print(file, dict(sum((counts[row] for row in rows), collections.Counter())), len(wrong), file=sys.stderr, flush=True)
    for row in sorted(counts):
        print("%-36s %5d equal %5d refused %3d different" % (row, *(counts[row][key] for key in ("equal", "refused", "different"))))
    print("at most %.1e" % most)
    print("\n".join(wrong))


{"write": write, "read": read}[sys.argv[1]](*sys.argv[2:])
