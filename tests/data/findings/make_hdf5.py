"""Makes the HDF5 files here, into the working folder: links of each kind, names in CP1251, a virtual dataset, messages
that objects share. Needs h5py 3.16 from its wheel, whose HDF5 shares messages on request.
"""
import ctypes, glob, os
import h5py, numpy as np

with h5py.File('part.h5', 'w') as f:
    f['p'] = np.arange(6, dtype='f4')
layout = h5py.VirtualLayout((6,), 'f4')
layout[:] = h5py.VirtualSource('part.h5', 'p', (6,))
with h5py.File('virtual.h5', 'w', libver='latest') as f:
    f['a'] = np.arange(3, dtype='f4')
    f.create_virtual_dataset('v', layout)
    f['z'] = np.arange(4, dtype='i4')
os.remove('part.h5')

for version in ('earliest', 'latest'):
    with h5py.File(f'cp1251-{version}.h5', 'w', libver=version) as f:
        f['a'] = np.arange(3, dtype='f4')
        f['z'] = np.arange(4, dtype='i4')
        f.id.links.create_hard('вес'.encode('cp1251'), f.id, b'a')
        f.create_group('g')['w'] = np.arange(2, dtype='f8')
        f.id.links.create_hard('слой'.encode('cp1251'), f.id, b'g')
    with h5py.File(f'links-{version}.h5', 'w', libver=version) as f:
        f['a'] = np.arange(3, dtype='f4')
        f['g/w'] = np.arange(2, dtype='f8')
        f['alias'] = f['g']
        f['b'] = h5py.ExternalLink('other.h5', '/x')
        f['s'] = h5py.SoftLink('/g')
        f['d'] = h5py.SoftLink('/nothing')
        f['sa'] = h5py.SoftLink('a')
        f['loop'] = h5py.SoftLink('/loop')
        f['g/up'] = f['/']
        f['a2'] = f['a']
        f['t'] = np.dtype('f4')
        f['e'] = h5py.Empty('f4')

with h5py.File('dense.h5', 'w', libver='latest') as f:
    for i in range(40):
        f[f'n{i}'] = np.float32(i)
    f.id.links.create_hard('вес'.encode('cp1251'), f.id, b'n3')
    f['soft'] = h5py.SoftLink('/n1')
    f['ext'] = h5py.ExternalLink('other.h5', '/x')

lib = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(h5py.__file__), '..', 'h5py.libs', 'libhdf5-*'))[0])
lib.H5Pset_shared_mesg_nindexes.argtypes = [ctypes.c_int64, ctypes.c_uint]
lib.H5Pset_shared_mesg_index.argtypes = [ctypes.c_int64, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint]
for version in ('earliest', 'latest'):
    made = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    if version == 'latest':
        access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    # Every type of message, from one byte on, as `h5repack -s 1` asks for.
    assert lib.H5Pset_shared_mesg_nindexes(made.id, 1) == 0
    assert lib.H5Pset_shared_mesg_index(made.id, 0, 0x182A, 1) == 0
    with h5py.File(h5py.h5f.create(f'shared-{version}.h5'.encode(), fapl=access, fcpl=made)) as f:
        for i in range(5):
            f[f'w{i}'] = np.arange(6, dtype='f4').reshape(2, 3) + i
        f.create_dataset('c', data=np.arange(10, dtype='f8'), chunks=(4,), compression='gzip')
        f.attrs['note'] = 'hello'
