# Makes `net.safetensors` with the weights of a convolution 25×3×7×7 that looks for edges and colours, as the first layer
# of a trained net does. The picture beside this file is drawn by:
#
#   python3 docs/images/filters.py && blob plot net.safetensors conv1.weight --filters -o docs/images/filters.svg

import math
import random
import struct

N, SIZE = 25, 7
# Light and dark, red and green, blue and yellow: the opponent colours that trained nets find.
COLOURS = [(1.0, 1.0, 1.0), (1.0, -0.7, -0.2), (-0.5, -0.4, 1.0), (0.9, 0.5, -0.9), (-0.6, 1.0, 0.1)]
dice = random.Random(23)


def filter_of(i):
    colour = COLOURS[0] if i % 2 else COLOURS[1 + i // 2 % 4]
    angle = math.pi * (i * 0.618 % 1)
    waves, phase = (0.35, math.pi / 2) if i % 7 == 0 else (0.75 + 0.45 * (i % 4), math.pi * dice.random())
    centre = (SIZE - 1) / 2
    planes = []
    for weight in colour:
        for y in range(SIZE):
            for x in range(SIZE):
                u, v = (x - centre) / centre, (y - centre) / centre
                along = u * math.cos(angle) + v * math.sin(angle)
                envelope = math.exp(-1.6 * (u * u + v * v))
                planes.append(weight * envelope * math.sin(math.pi * waves * along + phase) + dice.gauss(0, 0.02))
    return planes


values = [value for i in range(N) for value in filter_of(i)]
header = f'{{"conv1.weight":{{"dtype":"F32","shape":[{N},3,{SIZE},{SIZE}],"data_offsets":[0,{4 * len(values)}]}}}}'
with open("net.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(header)) + header.encode() + struct.pack(f"<{len(values)}f", *values))
