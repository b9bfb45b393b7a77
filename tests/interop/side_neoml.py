"""NeoML's own `Blob.store` and `Blob.load`: seven axes, float and int."""
import os

import neoml
import numpy as np

import common

ENGINE = neoml.MathEngine.CpuMathEngine(1)


def write(folder, random, count):
    made = {}
    for index in range(count):
        array = common.values(random, str(random.choice(["float32", "int32"])), common.shape(random, 7))
        neoml.Blob.store(neoml.Blob.asblob(ENGINE, array, array.shape, True), os.path.join(folder, "%03d.neoml" % index))
        made["%03d" % index] = {"@0": common.row(array)}
    return made


def read(path):
    blob = neoml.Blob.load(ENGINE, path)
    return {"@0": common.row(np.asarray(blob.asarray(True, True)).reshape(blob.shape))}


common.main(write, read)
