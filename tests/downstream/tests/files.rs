//! Files of every format: opened, a tensor found by its name, a range of it read; written again as a user writes them.

use std::io::{BufRead, Cursor, Read};
use std::path::Path;

use blob_core::{AnyBlob, DType, Shape};
use blob_io::{Checkpoint, Format, IfExists, Tensor, Writer};

/// A file of the tests' data with its format, one of its tensors, that one's shape.
const FILES: &[(&str, Format, &str, &[usize])] = &[
    ("caffe/net/v1.caffemodel", Format::CaffeModel, "conv1/0", &[4, 3, 3, 3]),
    ("caffe/blobproto/f32_2x3x4x5.binaryproto", Format::BlobProto, "@0", &[2, 3, 4, 5]),
    (MXNET, Format::MxnetList, "arg:mobilenet0_25_conv0_weight", &[8, 3, 3, 3]),
    ("other/two.safetensors", Format::Safetensors, "w", &[2, 3]),
    ("other/fortran_big_endian.npy", Format::Npy, "@0", &[2, 3]),
    ("other/numpy_savez.npz", Format::Npz, "w", &[2, 3]),
];
const MXNET: &str = "mxnet/golden/mxnet-1.9.1/checkpoints/mobilenet0_25-0000.params";

fn open(path: &str) -> Checkpoint {
    Checkpoint::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../data").join(path)).unwrap()
}

#[test]
fn a_tensor_of_every_format_is_found_and_read_in_part() {
    for (path, format, name, shape) in FILES {
        let checkpoint = open(path);
        assert_eq!(checkpoint.format(), *format);
        let entry = checkpoint.entry(name).unwrap();
        assert_eq!((entry.shape().dims(), entry.dtype()), (*shape, Some(DType::F32)), "{path}");
        let whole = checkpoint.load(entry).unwrap();
        let mut reader = checkpoint.reader(entry).unwrap();
        let mut part = [0; 12];
        reader.by_ref().take(8).read_to_end(&mut Vec::new()).unwrap();
        reader.read_exact(&mut part).unwrap();
        assert_eq!(part, whole.data().range(2..5).unwrap().bytes().unwrap()[..], "{path}");
        assert!(part.iter().any(|byte| *byte != 0), "{path}");
        assert_eq!(checkpoint.names().filter(|found| found == name).count(), 1, "{path}");
    }
}

#[test]
fn any_file_is_a_vector_of_floats() {
    for (path, _, name, shape) in FILES {
        let (found, values) = open(path).read::<f32>(name).unwrap();
        assert_eq!((found.dims(), values.len()), (*shape, found.count()), "{path}");
    }
    // Stored as f16, f64 and i32.
    let folder = "mxnet/golden/mxnet-1.9.1";
    for dtype in ["float16", "float64", "int32", "uint8", "bfloat16"] {
        let checkpoint = open(&format!("{folder}/dtype_{dtype}.nd"));
        let name = checkpoint.names().next().unwrap().to_owned();
        let (shape, values) = checkpoint.read::<f32>(&name).unwrap();
        assert_eq!(values.len(), shape.count(), "{dtype}");
        let wide = checkpoint.read::<f64>(&name).unwrap().1;
        assert!(
            values
                .iter()
                .zip(&wide)
                .all(|(narrow, wide): (&f32, &f64)| *narrow == *wide as f32 || narrow.is_nan() && wide.is_nan()),
            "{dtype}"
        );
        assert!(values.iter().any(|value| *value != 0.0), "{dtype}");
    }
    let refused = open(FILES[0].0).read::<f32>("conv1/7").unwrap_err().to_string();
    assert!(refused.ends_with(r#"v1.caffemodel: has no array "conv1/7""#), "{refused}");
}

/// An image of a user's own, row by row.
struct Image {
    width: usize,
    pixels: Vec<u16>,
}

impl Tensor for Image {
    fn dtype(&self) -> DType {
        DType::U16
    }

    fn shape(&self) -> Result<Shape, blob_io::Error> {
        Ok(Shape::new([self.pixels.len() / self.width, self.width])?)
    }

    fn reader(&self) -> Result<Box<dyn BufRead + '_>, blob_io::Error> {
        let bytes: Vec<u8> = self.pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
        Ok(Box::new(Cursor::new(bytes)))
    }
}

#[test]
fn tensors_of_any_type_are_written_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let image = Image { width: 3, pixels: vec![1, 2, 3, 0x0405, 5, 6] };
    let blob = AnyBlob::from_vec(Shape::new([2, 3]).unwrap(), DType::F32, (1..=24).collect()).unwrap();
    let old = open("caffe/net/v1.caffemodel");
    let weight = old.tensor(old.entry("conv1/0").unwrap()).unwrap();
    for format in [Format::Safetensors, Format::Npz] {
        let path = folder.path().join(format.name());
        let writer = Writer::new(format).tensor("image", &image).tensor("blob", &blob).tensor("weight", &weight);
        writer.metadata("made by", "a user").write(&path, IfExists::Refuse).unwrap();
        let new = Checkpoint::from_bytes(format.name(), std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((new.format(), new.entries().len()), (format, 3));
        assert_eq!(new.metadata(), [("made by".to_owned(), "a user".to_owned())]);
        let image = new.load(new.entry("image").unwrap()).unwrap();
        assert_eq!((image.dtype(), image.shape().dims()), (DType::U16, &[2, 3][..]));
        assert_eq!(image.data().at::<u16>(&[1, 0]).unwrap(), 0x0405);
        assert_eq!(new.view(new.entry("blob").unwrap()).unwrap()[..], (1..=24).collect::<Vec<u8>>());
        let (old, new) = (old.view(old.entry("conv1/0").unwrap()), new.view(new.entry("weight").unwrap()));
        assert!(old.unwrap() == new.unwrap());
    }
    let path = folder.path().join("image.npy");
    Writer::new(Format::Npy).tensor("", &image).write(&path, IfExists::Refuse).unwrap();
    assert_eq!(Checkpoint::open(&path).unwrap().entries()[0].shape().dims(), [2, 3]);
}

#[test]
fn a_format_is_its_name() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse(), Ok(*format));
    }
    assert!("cafemodel".parse::<Format>().is_err());
}

#[test]
fn a_checkpoint_is_converted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.npz");
    let source = open("caffe/net/v1.caffemodel");
    let target = blob_convert::Place::File { path: &path, if_exists: IfExists::Refuse };
    let options = blob_convert::Options::new(Format::Npz);
    blob_convert::plan(&source, &options, &target).unwrap().run(&blob_convert::Silent).unwrap();
    let target = Checkpoint::open(&path).unwrap();
    let (old, new) = (source.entry("ip/0").unwrap(), target.entry("ip/0").unwrap());
    assert!(source.view(old).unwrap() == target.view(new).unwrap());
}
