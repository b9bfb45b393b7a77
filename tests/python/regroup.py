# Writes arrays and their parts along each axis: `A.npz` has the parts beside another array, `B.npz` the whole in their place.

import json, sys, numpy
folder = sys.argv[1]
for seed in range(int(sys.argv[2])):
    r = numpy.random.default_rng(seed)
    shape = tuple(int(n) for n in r.integers(1, 7, r.integers(1, 5)))
    dtype = ['u1', 'f2', 'f4', 'f8', '?'][seed % 5]
    whole = r.integers(0, 2 if dtype == '?' else 200, shape).astype(dtype)
    axis = int(r.integers(0, len(shape)))
    cuts = sorted(int(n) for n in r.integers(0, shape[axis] + 1, r.integers(0, 4)))
    parts = numpy.split(whole, cuts, axis)
    assert (numpy.concatenate(parts, axis) == whole).all()
    other = r.random((3, 2))
    save = [numpy.savez, numpy.savez_compressed][seed % 2]
    save(f'{folder}/{seed}a.npz', first=other, **{f'w_{i}': part for i, part in enumerate(parts)}, last=other)
    save(f'{folder}/{seed}b.npz', first=other, w=whole, last=other)
    print(json.dumps([axis - len(shape) if seed % 3 else axis, [part.shape[axis] for part in parts]]))
