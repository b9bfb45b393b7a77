# Writes pairs of arrays to FOLDER, and prints what NumPy finds between them: changed elements, the largest differences, the
# root mean square; then, for a pair of two dtypes, how many elements are not one once both are rounded to the coarser.

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
            relative = numpy.where(apart > 0, numpy.where(numpy.isinf(apart), apart, apart / numpy.abs(y)), 0.0)
        name = f't{i}'
        one[name], two[name] = a, b
        found[name] = [int((~close).sum()), str(float(apart.max(initial=0.0))), str(float(relative.max(initial=0.0))),
                       str(float(numpy.sqrt((apart ** 2).mean())) if a.size else 0.0)]
    numpy.savez(f'{folder}/{seed}a.npz', **one)
    numpy.savez(f'{folder}/{seed}b.npz', **two)
    print(json.dumps([seed, rtol, atol, found]))

# Every special number beside every other, of each two dtypes, in both directions: rounded to the coarser dtype, and an
# infinity is what a finite number never is.
special = [0.0, -0.0, 1.0, 1 / 3, -1 / 3, 65504.0, 65519.0, 65520.0, 7e4, -7e4, 1e30, -1e20, 1e-8, 6e-8, 1e-30, 1e300, -1e300,
           3.4028234e38, 3.4028236e38, numpy.inf, -numpy.inf, numpy.nan]
x, y = (side.ravel() for side in numpy.meshgrid(special, special))
one, two, found = {}, {}, {}
order = ['f2', 'f4', 'f8']
with numpy.errstate(all='ignore'):
    for left in order:
        for right in order:
            a, b = x.astype(left), y.astype(right)
            coarse = order[min(order.index(left), order.index(right))]
            same = (a.astype(coarse) == b.astype(coarse)) & (numpy.isfinite(a) == numpy.isfinite(b))
            same |= numpy.isnan(a) & numpy.isnan(b)
            beyond = numpy.isinf(a.astype(coarse)) & numpy.isfinite(a) & numpy.isinf(b.astype(coarse)) & numpy.isfinite(b)
            name = f'{left}{right}'
            one[name], two[name], found[name] = a[~beyond], b[~beyond], int((~same[~beyond]).sum())
numpy.savez(f'{folder}/specials-a.npz', **one)
numpy.savez(f'{folder}/specials-b.npz', **two)
print(json.dumps(['specials', found]))
