# What wrote the files beside it, with h5py 3.16 over HDF5 2.0.
import h5py, numpy as np
def ramp(dtype, *dims):
    n=int(np.prod(dims)); return (np.arange(n)*7%251).astype(dtype).reshape(dims)
for ver,name in [(('earliest','v108'),'earliest.h5'),(('latest','latest'),'latest.h5')]:
    with h5py.File(name,'w',libver=ver) as f:
        g=f.create_group('chunks')
        g.create_dataset('deflate',data=ramp('<f4',7,5,3),chunks=(3,2,3),compression='gzip',shuffle=True,fletcher32=True)
        g.create_dataset('plain',data=ramp('<i2',10,9),chunks=(4,4))
        g.create_dataset('single',data=ramp('<f8',4,6),chunks=(4,6),compression='gzip')
        g.create_dataset('growing',data=ramp('<u1',50),chunks=(8,),maxshape=(None,),shuffle=True)
        g.create_dataset('tree',data=ramp('<u2',6,6),chunks=(2,5),maxshape=(None,None))
        d=g.create_dataset('holes',(9,4),'<i4',chunks=(2,3),fillvalue=-5); d[4:6,:]=ramp('<i4',2,4)
        g.create_dataset('lzf',data=ramp('<f4',20),chunks=(10,),compression='lzf')
        dcpl=h5py.h5p.create(h5py.h5p.DATASET_CREATE); dcpl.set_chunk((2,4)); dcpl.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        sp=h5py.h5s.create_simple((5,6)); ds=h5py.h5d.create(g.id,b'early',h5py.h5t.IEEE_F32LE,sp,dcpl); ds.write(h5py.h5s.ALL,h5py.h5s.ALL,ramp('<f4',5,6))
        k=f.create_group('kinds')
        for t in ['>f8','<f2','<i1','<i8','>u4','<u8']:
            k.create_dataset(t.replace('<','le_').replace('>','be_'),data=ramp(t,2,3))
        k.create_dataset('bool',data=np.array([True,False,True]))
        k.create_dataset('scalar',data=np.float32(2.5))
        k.create_dataset('empty',shape=(3,0,2),dtype='<f4')
        k.create_dataset('null',data=h5py.Empty('f'))
        k.create_dataset('text',data=np.bytes_(b'words'))
        k.create_dataset('complex',data=ramp('<c8',2))
        k.create_dataset('unwritten',(4,),'<f4')
        many=f.create_group('many')
        for i in range(12): many.create_dataset(f'é{i}',data=np.int32(i))
        f['alias']=h5py.SoftLink('/kinds/scalar'); f['hard']=k['scalar']; f['loop']=f['kinds']; k['up']=f
        f['elsewhere']=h5py.ExternalLink('other.h5','/x')
for ver,name in [(('earliest','v108'),'tiny/earliest.h5'),(('latest','latest'),'tiny/latest.h5')]:
    with h5py.File(name,'w',libver=ver) as f:
        f.create_dataset('a',data=ramp('<f4',3,2))
        f.create_dataset('g/c',data=ramp('<f4',3,2),chunks=(2,2),compression='gzip',maxshape=(None,2))
# Chunks that are numbered by the largest shape, behind a user block.
for ver,name in [(('earliest','v108'),'bounded-earliest.h5'),(('latest','latest'),'bounded-latest.h5')]:
    with h5py.File(name,'w',libver=ver,userblock_size=512) as f:
        f.create_dataset('fixed',data=ramp('<i2',12,3,4),chunks=(11,2,2),maxshape=(24,6,8))
        f.create_dataset('packed',data=ramp('<f4',2,9),chunks=(1,2),maxshape=(4,18),compression='gzip')
        d=f.create_dataset('shrunk',data=ramp('<u1',6,7),chunks=(2,3),maxshape=(6,7)); d.resize((3,7))
        dcpl=h5py.h5p.create(h5py.h5p.DATASET_CREATE); dcpl.set_chunk((2,4)); dcpl.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        sp=h5py.h5s.create_simple((5,6),(10,12)); ds=h5py.h5d.create(f.id,b'early',h5py.h5t.IEEE_F32LE,sp,dcpl); ds.write(h5py.h5s.ALL,h5py.h5s.ALL,ramp('<f4',5,6))
# Texts as attributes of the root, and what is no single text.
for ver,name in [(('earliest','v108'),'tiny/attributes-earliest.h5'),(('latest','latest'),'tiny/attributes-latest.h5')]:
    with h5py.File(name,'w',libver=ver) as f:
        f.create_dataset('a',data=ramp('<f4',3,2))
        f.attrs['text']='two \u00fc words'; f.attrs['fixed']=np.bytes_(b'of seven'); f.attrs['number']=3
        f.attrs['texts']=['a','b']; f.attrs['empty']=''; f.attrs['last']='last'
# Never written: all of them are fill values.
for ver,name in [(('earliest','v108'),'unwritten-earliest.h5'),(('latest','latest'),'unwritten-latest.h5')]:
    with h5py.File(name,'w',libver=ver) as f:
        f.create_dataset('seven',(3,4),'<i4',fillvalue=7); f.create_dataset('scalar',(),'<f4',fillvalue=-2.5)
        f.create_dataset('zeros',(3,),'<f8'); f.create_dataset('swapped',(2,),'>i2',fillvalue=258)
# Values within the header, in headers of every kind: with times, with the order of attributes, with many of these.
for ver,name in [(('earliest','v108'),'compact-earliest.h5'),(('latest','latest'),'compact-latest.h5')]:
    with h5py.File(name,'w',libver=ver) as f:
        def compact(name,values,*settings):
            dcpl=h5py.h5p.create(h5py.h5p.DATASET_CREATE); dcpl.set_layout(h5py.h5d.COMPACT)
            for key,value in settings: getattr(dcpl,key)(*value)
            sp=h5py.h5s.create_simple(values.shape) if values.shape else h5py.h5s.create(h5py.h5s.SCALAR)
            h5py.h5d.create(f.id,name,h5py.h5t.py_create(values.dtype),sp,dcpl).write(h5py.h5s.ALL,h5py.h5s.ALL,np.ascontiguousarray(values))
        compact(b'floats',ramp('<f4',2,3))
        compact(b'swapped',ramp('>f8',3,1,2))
        compact(b'scalar',np.array(2.5,'<f4'))
        compact(b'times',ramp('<i2',7),('set_obj_track_times',(True,)))
        compact(b'ordered',ramp('<u1',5),('set_attr_creation_order',(h5py.h5p.CRT_ORDER_TRACKED|h5py.h5p.CRT_ORDER_INDEXED,)))
        compact(b'phases',ramp('<i8',4),('set_attr_phase_change',(4,2)))
        compact(b'long',ramp('<u1',300))
        for i in range(20): f['floats'].attrs[f'a{i}']='x'*40
        f.create_dataset('empty',shape=(0,),dtype='<f4')
