"""Makes the shards here, with huggingface_hub 2.4 and safetensors, as its save_torch_state_dict does: python make.py"""

import json
import pathlib
import random

import numpy as np
from huggingface_hub.serialization import split_state_dict_into_shards_factory
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
PATTERN = "model{suffix}.safetensors"


def split(tensors, most):
    return split_state_dict_into_shards_factory(
        tensors, get_storage_size=lambda t: t.nbytes, filename_pattern=PATTERN, max_shard_size=most
    )


def save(tensors, most, metadata):
    done = split(tensors, most)
    for file, names in done.filename_to_tensors.items():
        save_file({name: tensors[name] for name in names}, HERE / file, {"format": "pt"})
    index = {"metadata": {**done.metadata, **metadata}, "weight_map": done.tensor_to_filename}
    (HERE / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def ramp(dtype, *shape):
    return (np.arange(np.prod(shape)) * 7 % 251).astype(dtype).reshape(shape)


save(
    {
        "conv1.weight": ramp(np.float32, 4, 3, 2),
        "conv1.bias": ramp(np.float16, 4),
        "größe/層": ramp(np.int8, 5),
        "fc.weight": ramp(np.float64, 5, 5),
        "none": ramp(np.float32, 0, 3),
        "fc.bias": ramp(np.float32, 5),
    },
    120,
    {"note": "by \"hand\"\n"},
)


class Sized:
    def __init__(self, nbytes):
        self.nbytes = nbytes


random.seed(7)
plans = []
for trial in range(100):
    most = random.choice([1, 10, 100])
    sizes = [random.choice([0, 1, most - 1, most, most + 1, random.randrange(2 * most)]) for _ in range(random.randrange(1, 14))]
    done = split({str(i): Sized(size) for i, size in enumerate(sizes)}, most)
    shards = [[int(name) for name in names] for names in done.filename_to_tensors.values()]
    plans.append({"most": most, "sizes": sizes, "shards": shards, **done.metadata})
(HERE / "plans.json").write_text("".join(json.dumps(plan) + "\n" for plan in plans))
