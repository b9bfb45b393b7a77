# What wrote the files beside it, with MXNet 1.9.1: small nets, the same in the older generations' spelling, and what MXNet finds in each.
import json
import mxnet as mx

def block(data):
    s = mx.sym
    conv = s.Convolution(data, name="conv", kernel=(3, 5), num_filter=8, num_group=2)
    bn = s.BatchNorm(conv, name="bn", fix_gamma=False)
    act = s.LeakyReLU(bn, name="act", act_type="prelu")
    up = s.Deconvolution(act, name="up", kernel=(2, 2), stride=(2, 2), num_filter=6, num_group=2, no_bias=False)
    fc = s.FullyConnected(s.Flatten(up), name="fc", num_hidden=10)
    return s.SoftmaxOutput(fc, name="softmax")

words = mx.sym.Embedding(mx.sym.Variable("words"), name="embed", input_dim=50, output_dim=7)
words = mx.sym.FullyConnected(words, name="dense", num_hidden=3, no_bias=True, flatten=False)
declared = mx.sym.FullyConnected(mx.sym.Variable("x"), mx.sym.Variable("w", shape=(4, 0), dtype="float16"), no_bias=True, num_hidden=4, name="f")
declared = mx.sym.broadcast_mul(declared, mx.sym.Variable("scale", shape=(1, 4)))
nets = {"block": (block(mx.sym.Variable("data")), {"data": (2, 4, 9, 9)}), "words": (words, {"words": (2, 5)}), "declared": (declared, {"x": (3, 6)})}

def renamed(text, change):
    graph = json.loads(text)
    for node in graph["nodes"]:
        change(node)
    return graph

def to_attr(node):  # MXNet 0.9 to 0.11
    if "attrs" in node:
        node["attr"] = node.pop("attrs")

def to_param(graph):  # before 0.9: no auxiliary states, two numbers an input, param
    keep, place = [], {}
    for index, node in enumerate(graph["nodes"]):
        if not (node["op"] == "null" and "moving" in node["name"]):
            place[index] = len(keep)
            keep.append(node)
    for node in keep:
        node["param"] = {k: v for k, v in node.pop("attrs", {}).items() if not k.startswith("__")} if node["op"] != "null" else {}
        node.pop("attrs", None)
        node["inputs"] = [[place[n], o] for n, o, _ in node["inputs"] if n in place]
        node["backward_source_id"] = -1
    return {"nodes": keep, "arg_nodes": [i for i, n in enumerate(keep) if n["op"] == "null"], "heads": [[place[n], o] for n, o, _ in graph["heads"]]}

truth = {}
def note(name, text, shapes):
    open(name + ".json", "w").write(text)
    symbol = mx.sym.load_json(text)
    arguments, _, auxiliary = symbol.infer_shape(**shapes)
    truth[name] = {"inputs": sorted(shapes) + [a for a in symbol.list_arguments() if a.endswith("label")],
                   "arguments": dict(zip(symbol.list_arguments(), arguments)), "auxiliary": dict(zip(symbol.list_auxiliary_states(), auxiliary))}

for name, (symbol, shapes) in nets.items():
    note(name, symbol.tojson(), shapes)
graph = renamed(nets["block"][0].tojson(), to_attr)
graph["attrs"] = {"mxnet_version": ["int", 905]}
note("block-0.9", json.dumps(graph, indent=1), nets["block"][1])
note("block-0.8", json.dumps(to_param(json.loads(nets["block"][0].tojson())), indent=1), nets["block"][1])
json.dump(truth, open("truth.json", "w"), indent=1, sort_keys=True)
