# `draw FOLDER` writes arrays; `check FOLDER` reads the PNG files that `blob plot` made of them, and says where a point is another one.

import struct, sys, zlib, numpy
folder = sys.argv[2]

def read(path):
    data, at, body = open(path, 'rb').read(), 8, b''
    assert data[:8] == b'\x89PNG\r\n\x1a\n'
    while at < len(data):
        n, kind = struct.unpack('>I4s', data[at:at + 8])
        chunk = data[at + 8:at + 8 + n]
        assert zlib.crc32(kind + chunk) == struct.unpack('>I', data[at + 8 + n:at + 12 + n])[0]
        if kind == b'IHDR':
            width, height, depth, colour, _, _, interlaced = struct.unpack('>IIBBBBB', chunk)
            assert (depth, colour, interlaced) == (8, 2, 0)
        if kind == b'IDAT':
            body += chunk
        at += 12 + n
    raw, line, rows = zlib.decompress(body), 1 + 3 * width, []
    before = [0] * (3 * width)
    for y in range(height):
        kind, row = raw[y * line], list(raw[y * line + 1:(y + 1) * line])
        for i in range(len(row)):
            a, b, c = (row[i - 3] if i >= 3 else 0), before[i], (before[i - 3] if i >= 3 else 0)
            p = a + b - c
            paeth = a if abs(p - a) <= abs(p - b) and abs(p - a) <= abs(p - c) else b if abs(p - b) <= abs(p - c) else c
            row[i] = (row[i] + [0, a, b, (a + b) // 2, paeth][kind]) & 255
        rows.append(row)
        before = row
    return numpy.array(rows, 'u1').reshape(height, width, 3)

def near(found, expected, what):
    assert found.shape == expected.shape, (what, found.shape, expected.shape)
    apart = numpy.abs(found.astype(int) - numpy.rint(expected).astype(int)).max()
    assert apart <= 1, (what, apart)

r = numpy.random.default_rng(7)
filters = r.standard_normal((10, 3, 5, 4)).astype('f4')
planes = r.standard_normal((3, 2, 7, 7)).astype('f8')
mean = (r.random((1, 3, 11, 13)) * 255).astype('f4')
grey = r.random((6, 5)).astype('f2')
signed = r.standard_normal((30, 2, 20)).astype('f4')
large = r.integers(0, 200, (2500, 1100)).astype('u1')
vector = signed.reshape(30, 40)[0]
odd = numpy.arange(1, 31).astype('f4')
odd[7] = numpy.inf
if sys.argv[1] == 'draw':
    for name in ['filters', 'planes', 'mean', 'grey', 'signed', 'large', 'vector', 'odd']:
        numpy.save(f'{folder}/{name}.npy', globals()[name])
    sys.exit()

def enlarged(points):
    # Small pictures are enlarged by a whole number to at most 800 points a side.
    by = max(1, 800 // max(points.shape[:2]))
    return points.repeat(max(by, 48 // points.shape[0]), 0).repeat(by, 1)

def grid(tiles):
    # As vis_square of Caffe's examples: one scale for all, a square of tiles, one point between them.
    n, h, w, _ = tiles.shape
    side = int(numpy.ceil(numpy.sqrt(n)))
    whole = numpy.full((-(-n // side) * (h + 1) + 1, side * (w + 1) + 1, 3), 255.0)
    for i, tile in enumerate(tiles):
        y, x = i // side * (h + 1) + 1, i % side * (w + 1) + 1
        whole[y:y + h, x:x + w] = tile
    return enlarged(whole)

unit = lambda a: (a - a.min()) / (a.max() - a.min()) * 255
near(read(f'{folder}/filters.png'), grid(unit(filters.astype('f8')).transpose(0, 2, 3, 1)), 'filters')
near(read(f'{folder}/bgr.png'), grid(unit(filters.astype('f8'))[:, ::-1].transpose(0, 2, 3, 1)), 'bgr')
near(read(f'{folder}/planes.png'), grid(unit(planes).reshape(6, 7, 7, 1).repeat(3, 3)), 'planes')
assert min(read(f'{folder}/filters.png').shape[:2]) >= 500
near(read(f'{folder}/mean.png'), mean[0, ::-1].transpose(1, 2, 0), 'mean')
near(read(f'{folder}/grey.png'), unit(grey.astype('f8'))[:, :, None].repeat(3, 2), 'grey')

def stops(at, colours):
    return numpy.stack([numpy.interp(at, [0, 1, 2], [c[i] for c in colours]) for i in range(3)], -1)

# The hundredth that lies furthest out has the colours of the ends.
matrix = signed.reshape(30, 40).astype('f8')
most = numpy.percentile(numpy.abs(matrix), 99, method='inverted_cdf')
two = [(33, 102, 172), (247, 247, 247), (178, 24, 43)]
near(read(f'{folder}/signed.png'), enlarged(stops(1 + matrix / most, two)), 'signed')
near(read(f'{folder}/vector.png'), enlarged(stops(1 + matrix[:1] / numpy.abs(matrix[:1]).max(), two)), 'vector')
# Of 30 values none is clipped, and the infinite one is magenta.
odd_points = stops(2 * (odd[None].astype('f8') - 1) / 29, [(68, 1, 84), (33, 145, 140), (253, 231, 37)])
odd_points[0, 7] = (255, 0, 255)
near(read(f'{folder}/odd.png'), enlarged(odd_points), 'odd')
# 2500 rows are three to a point, the last of them alone; 1100 columns two.
sums = numpy.zeros((834, 550)); counts = numpy.zeros((834, 550))
rows, columns = numpy.indices(large.shape)
numpy.add.at(sums, (rows // 3, columns // 2), large); numpy.add.at(counts, (rows // 3, columns // 2), 1)
means = sums / counts
low, high = -numpy.percentile(-means, 99, method='inverted_cdf'), numpy.percentile(means, 99, method='inverted_cdf')
light = [(68, 1, 84), (33, 145, 140), (253, 231, 37)]
near(read(f'{folder}/large.png'), stops(2 * (means - low) / (high - low), light), 'large')
print('ok')
