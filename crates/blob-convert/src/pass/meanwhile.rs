//! A model and its values that replace two other files: the model for the moment in between, and the files that no
//! model names any more.

use std::fs;
use std::path::Path;

use blob_io::layout::{Frame, Layout, TensorSpec};
use blob_io::onnx::Model;
use blob_io::{Complete, Error, IfExists, Output};

use crate::hash::{self, Digests};
use crate::model::blake3;
use crate::plan::Plan;

impl Plan<'_> {
    /// Removes the files of values that no model names any more. What cannot be removed stays, and does no harm.
    pub(crate) fn remove_unnamed(&self) {
        self.unnamed.iter().for_each(|file| drop(fs::remove_file(file)));
    }

    /// A model and its values that replace others, with the same model for the moment in which the values have another
    /// name, too. Other outputs stay as they are.
    ///
    /// # Errors
    /// Errors of reading and writing.
    pub(crate) fn with_meanwhile(
        &self,
        complete: Complete,
        layout: &Layout,
        digests: &Digests,
    ) -> Result<Complete, Error> {
        let (Some(name), Some(model)) = (complete.name_meanwhile(), self.model()) else { return Ok(complete) };
        let meanwhile = self.model_of(&complete, model, layout, name, digests)?;
        complete.with_meanwhile(meanwhile)
    }

    /// The model that finds its values under the name `values`, with a receipt that says so.
    fn model_of(
        &self,
        complete: &Complete,
        model: &Model,
        layout: &Layout,
        values: &str,
        digests: &Digests,
    ) -> Result<Complete, Error> {
        let other = Model { outside: Some(values.to_owned()), ..model.clone() };
        let graph = |model| blake3(model, &self.tensors, &self.metadata).map(|graph| graph.to_hex());
        let (ours, theirs) = (graph(model)?, graph(&other)?);
        let mut metadata = self.metadata(digests);
        for (_, text) in &mut metadata {
            *text = text.replacen(&*ours, &theirs, 1);
        }
        let specs: Vec<TensorSpec> = self.tensors.iter().map(|tensor| tensor.spec.clone()).collect();
        let to = Layout::new(&specs, Frame::Onnx { model: &other, metadata: &metadata })?;
        let path = self.path().unwrap_or(Path::new(complete.name()));
        let mut output = Output::create_in_swept(path, IfExists::Replace)?;
        output.set_len(to.divided().unwrap_or(to.len()))?;
        to.each_part(&metadata, &[], |at, bytes| output.write_all_at(at, bytes))?;
        let Some(written) = complete.source()? else { return output.complete() };
        for ((spec, from), at) in specs.iter().zip(layout.offsets()).zip(to.offsets()) {
            if spec.byte_len() < Model::OUTSIDE {
                let mut bytes = vec![0; spec.byte_len() as usize];
                hash::read(self.checkpoint, &*written, *from, &mut bytes)?;
                output.write_all_at(*at, &bytes)?;
            }
        }
        output.complete()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use blob_core::{DType, Shape};
    use blob_io::onnx::{Dim, Initializer, Node, Value};
    use blob_io::{Bytes, Checkpoint, Format};

    use super::*;
    use crate::goal::Place;
    use crate::options::Options;
    use crate::transform::{self, Onnx, Reports};
    use crate::{Silent, plan, verify};

    /// y = x · w, where w has 300 floats.
    fn model(shape: &Shape) -> Model {
        let value = |name: &str, extent: u64| Value {
            name: name.to_owned(),
            dtype: DType::F32,
            shape: vec![Dim::Size(1), Dim::Size(extent)],
        };
        Model {
            ir_version: 8,
            opset: 17,
            name: "net".to_owned(),
            inputs: vec![value("x", 3)],
            outputs: vec![value("y", 100)],
            values: Vec::new(),
            nodes: vec![Node::new("MatMul", &["x", "w"], "y")],
            initializers: vec![Initializer::Stored { name: "w".to_owned(), dtype: DType::F32, shape: shape.clone() }],
            metadata: Vec::new(),
            outside: None,
        }
    }

    /// A blob of 3 × 100 floats, and the options for the model of it.
    fn source() -> (Checkpoint, Options) {
        let values = (0..300).flat_map(|i| (i as f32).to_le_bytes());
        let blob: Vec<u8> = [0x3A, 4, 0x0A, 2, 3, 100, 0x2A, 0xB0, 9].into_iter().chain(values).collect();
        let source = Checkpoint::from_source("w.binaryproto", Box::new(Bytes(blob))).expect("opens");
        let shape = Shape::new([3, 100]).expect("a shape");
        let made = Onnx::new(vec![transform::Initializer::new("w", "@0", &shape)]);
        (source, Options::new(Format::Onnx).model(model(&shape), made))
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("blob-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn values_past_the_limit_go_beside_the_model() {
        let ((source, options), folder) = (source(), folder("beside"));
        for (name, most, others) in [("beside.onnx", 1199, 1), ("within.onnx", 1200, 0)] {
            let path = folder.join(name);
            let options = options.clone().with(|options| options.most_inside = most);
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

    /// A model for the moment in which the values have another name is as whole as the final one.
    #[test]
    fn a_model_that_finds_its_values_under_another_name_is_sound() {
        let ((source, options), folder) = (source(), folder("meanwhile"));
        let options = options.with(|options| options.external_data = true);
        let (path, of_values) = (folder.join("m.onnx"), |name: &str| folder.join(name));
        let target = Place::File { path: &path, if_exists: IfExists::Replace };
        plan(&source, &options, &target).expect("a plan").run(&Silent).expect("written");
        let planned = plan(&source, &options, &target).expect("a plan");
        let (path, if_exists, layout) = planned.file().expect("a file");
        let output = planned.begin(path, if_exists, layout).expect("begun");
        let (complete, digests) =
            planned.job(&Silent).complete(&planned, layout, output, &Reports::default()).expect("written");
        assert!(complete.name_meanwhile().is_some_and(|name| name.starts_with(".m.onnx.blob-tmp-")));
        let model = planned.model().expect("a model");
        let other = planned.model_of(&complete, model, layout, "other", &digests).expect("written");
        drop(complete);
        other.publish().expect("named");
        std::fs::rename(of_values("m.onnx.data"), of_values("other")).expect("renamed");
        let file = Checkpoint::open(path).expect("opens");
        assert_eq!(file.shards(), ["other"]);
        let mut remarks = Vec::new();
        let right = verify::receipt(&file, &Silent, &mut |found| remarks.push(found.message)).expect("readable");
        verify::claims(&file, &mut |remark| remarks.push(format!("{remark:?}")));
        assert_eq!((right, &remarks[..]), (Some(1), &[][..]));
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
