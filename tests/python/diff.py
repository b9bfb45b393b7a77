# Writes pairs of arrays to FOLDER, and prints what NumPy finds between them: changed elements, the largest differences, the
# root mean square.

import json, sys, numpy
folder, seeds = sys.argv[1], int(sys.argv[2])
for seed in range(seeds):
    r = numpy.random.default_rng(seed)
    rtol, atol = [(0.0, 0.0), (1e-3, 0.0), (0.0, 1e-2), (1e-4, 1e-3)][seed % 4]
    one, two, found = {}, {}, {}
    for i, dtype in enumerate(['f4', 'f8', 'f2', 'i4', 'u1', 'i8']):
        shape = tuple(int(n) for n in r.integers(0, 7, r.integers(1, 4)))
        a = (r.standard_normal(shape) * 20).astype(dtype)
        b = a.copy()
        some = r.random(shape) < 0.3
        if dtype[0] == 'f':
            b[some] = (b[some].astype('f8') * (1 + r.choice([1e-5, 1e-3, -1e-2, 0.5], some.sum()))).astype(dtype)
            odd = r.random(shape) < 0.05
            a[odd] = r.choice([numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0], odd.sum()).astype(dtype)
            odd = r.random(shape) < 0.05
            b[odd] = r.choice([numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0], odd.sum()).astype(dtype)
        else:
            b[some] = (b[some].astype('i8') ^ r.integers(0, 100, some.sum())).astype(dtype)
        x, y = a.astype('f8'), b.astype('f8')
        with numpy.errstate(all='ignore'):
            close = numpy.isclose(x, y, rtol=rtol, atol=atol, equal_nan=True)
            apart = numpy.where((x == y) | (numpy.isnan(x) & numpy.isnan(y)), 0.0, numpy.abs(x - y))
            apart = numpy.where(numpy.isnan(apart), numpy.inf, apart)
            relative = numpy.where((y != 0) & (apart > 0), numpy.where(numpy.isinf(apart), apart, apart / numpy.abs(y)), 0.0)
            finite = numpy.where(numpy.isinf(apart), 0.0, apart)
        name = f't{i}'
        one[name], two[name] = a, b
        found[name] = [int((~close).sum()), str(float(apart.max(initial=0.0))), str(float(relative.max(initial=0.0))),
                       str(float(numpy.sqrt((finite ** 2).mean())) if a.size else 0.0)]
    numpy.savez(f'{folder}/{seed}a.npz', **one)
    numpy.savez(f'{folder}/{seed}b.npz', **two)
    print(json.dumps([seed, rtol, atol, found]))
