//! Decides whether the values of a new ONNX model go into a file beside the model: where the options ask for that, and
//! past the 2 GiB that protobuf reads.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use blob_io::onnx::{Initializer, Model};
use blob_io::words::quoted;
use blob_io::{Checkpoint, Error, Remedy};

use crate::change::{Change, Effect};
use crate::goal::Place;
use crate::options::{Options, refuse};
use crate::planned::Planned;
use crate::source;

/// What is behind the model's name in the name of the file.
const EXTENSION: &str = ".data";

/// The name of the file of the values beside a model of this name.
pub(crate) fn values_name(model: &OsStr) -> OsString {
    let mut name = model.to_owned();
    name.push(EXTENSION);
    name
}

/// Names the file of the values in the model of the options, where the values go into one; returns what is said of it.
///
/// # Errors
/// An output without a second file: a pipe, a device, a place of the caller's; a second file that is the source or a
/// link.
pub(crate) fn put_beside(
    checkpoint: &Checkpoint,
    options: &mut Options,
    tensors: &[Planned],
    target: &Place<'_>,
) -> Result<Option<Change>, Error> {
    let Some(model) = &mut options.model else { return Ok(None) };
    let of_constants = model.initializers.iter().map(|own| match own {
        Initializer::Constant { bytes, .. } => bytes.len() as u64,
        Initializer::Stored { .. } => 0,
    });
    let of_tensors = tensors.iter().map(|tensor| tensor.spec.byte_len());
    let bytes = of_tensors.chain(of_constants).fold(0, u64::saturating_add);
    let has_long = tensors.iter().any(|tensor| tensor.spec.byte_len() >= Model::OUTSIDE);
    if !has_long || !options.external_data && bytes <= options.most_inside {
        return Ok(None);
    }
    let file = target.file().filter(|(path, _)| !path.exists() || path.is_file());
    let Some((path, if_exists)) = file else {
        let message = format!(
            "becomes a model with {bytes} bytes of values in a second file, and there is no file beside a pipe or a device"
        );
        let (file, remedy) = (checkpoint.name().to_owned(), Some(Remedy::NamedFile));
        return Err(Error::Misfit { file, message, remedy });
    };
    let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| is_portable(name)) else {
        let message = format!("becomes a model that names the file of its values, and {path:?} is no such name");
        return Err(refuse(checkpoint, message));
    };
    let values = format!("{name}{EXTENSION}");
    let beside = path.with_file_name(values_name(name.as_ref()));
    source::check(&[checkpoint], &Place::File { path: &beside, if_exists })?;
    // A link at the name that the user gave is followed; the other name was not given.
    if beside.is_symlink() {
        let message = format!("becomes a model whose values go into {}, which is a link", quoted(&values));
        return Err(refuse(checkpoint, message));
    }
    let words = format!("values of {} bytes and more are in {}, beside the model", Model::OUTSIDE, quoted(&values));
    Arc::make_mut(model).outside = Some(values);
    Ok(Some(Change::unasked(Effect::Notice(words))))
}

/// Whether readers of other systems take this for a name and not for a path.
fn is_portable(name: &str) -> bool {
    !name.contains(['\\', ':'])
}

#[cfg(test)]
mod tests {
    use blob_core::{DType, Shape};
    use blob_io::onnx::{Dim, Node, Value};
    use blob_io::{Bytes, Format, IfExists};

    use super::*;
    use crate::transform::{self, Onnx};
    use crate::{Silent, plan};

    /// y = x · w, where w has 300 floats.
    fn model(shape: &Shape) -> Model {
        let value = |name: &str, extent: u64| Value {
            name: name.to_owned(),
            dtype: DType::F32,
            shape: vec![Dim::Size(1), Dim::Size(extent)],
        };
        let node = Node {
            name: "y".to_owned(),
            op_type: "MatMul".to_owned(),
            domain: String::new(),
            inputs: vec!["x".to_owned(), "w".to_owned()],
            outputs: vec!["y".to_owned()],
            attributes: Vec::new(),
        };
        Model {
            ir_version: 8,
            opset: 17,
            name: "net".to_owned(),
            inputs: vec![value("x", 3)],
            outputs: vec![value("y", 100)],
            values: Vec::new(),
            nodes: vec![node],
            initializers: vec![Initializer::Stored { name: "w".to_owned(), dtype: DType::F32, shape: shape.clone() }],
            metadata: Vec::new(),
            outside: None,
        }
    }

    #[test]
    fn values_past_the_limit_go_beside_the_model() {
        let values = (0..300).flat_map(|i| (i as f32).to_le_bytes());
        let blob: Vec<u8> = [0x3A, 4, 0x0A, 2, 3, 100, 0x2A, 0xB0, 9].into_iter().chain(values).collect();
        let source = Checkpoint::from_source("w.binaryproto", Box::new(Bytes(blob))).expect("opens");
        let shape = Shape::new([3, 100]).expect("a shape");
        let initializer = transform::Initializer::new("w", "@0", &shape);
        let folder = std::env::temp_dir().join(format!("blob-beside-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for (name, most, others) in [("beside.onnx", 1199, 1), ("within.onnx", 1200, 0)] {
            let path = folder.join(name);
            let options = Options::new(Format::Onnx).model(model(&shape), Onnx::new(vec![initializer.clone()]));
            let options = options.with(|options| options.most_inside = most);
            let target = Place::File { path: &path, if_exists: IfExists::Refuse };
            let planned = plan(&source, &options, &target).expect("a plan");
            assert_eq!(planned.values().is_some(), others == 1, "{name}");
            let done = planned.run(&Silent).expect("written");
            let file = Checkpoint::open(&path).expect("opens");
            assert_eq!((file.shards().len(), file.stored().len()), (others, done.bytes_out), "{name}");
            assert_eq!(
                *file.view(&file.entries()[0]).expect("values"),
                *source.view(&source.entries()[0]).expect("values")
            );
            let refused = plan(&source, &options, &Place::Stdout).err().map(|e| e.to_string());
            assert_eq!(refused.is_some_and(|e| e.contains("1200 bytes of values in a second file")), others == 1);
        }
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
