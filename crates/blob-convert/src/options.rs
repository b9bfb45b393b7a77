//! The settings of a conversion, and the error for a source that does not fit the settings.

use std::sync::Arc;

use blob_io::caffe::BlobForm;
use blob_io::mxnet::Version;
use blob_io::onnx::Model;
use blob_io::{Checkpoint, Error, Format};
use serde_json::{Value, json};

use crate::history::About;
use crate::symbol::NewSymbol;
use crate::transform::{Choice, Fold, FollowedNet, NetOrigin, Onnx, Registry, Topology, Transform};
use blob_io::words::{self, NAMED_PROBLEMS};

/// An ONNX model with more bytes of values has them beside it: the 2 GiB that protobuf reads, less room for the graph
/// and a receipt.
const MOST_INSIDE: u64 = (1 << 31) - (64 << 20);

/// The format to convert to, and all settings of a conversion.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The format of the output.
    pub to: Format,
    /// Expands sparse arrays instead of writing the parts.
    pub dense: bool,
    /// Puts the source's SHA-256 beside the BLAKE3: into the receipt, where the output has one, and the summary.
    pub sha256: bool,
    /// The version of MXNet records to write. `None` keeps the source's version, or takes V2 where the source has none.
    /// Other formats ignore this setting.
    pub params_version: Option<Version>,
    /// The form in which Caffe's blobs are stored. `None` keeps the source's form, where the source is a file of the
    /// same message. Other formats ignore this setting.
    pub form: Option<BlobForm>,
    /// Writes a new file from the tensors alone. Otherwise, if the source's receipt keeps the bytes around the tensors
    /// of an earlier file of the output's format, that file is restored.
    pub anew: bool,
    /// Writes safetensors in shards of at most this many bytes of tensors, with an index, if the tensors do not fit
    /// into one: `model-00001-of-00002.safetensors` and `model.safetensors.index.json` for `model.safetensors`. A
    /// larger tensor gets a separate shard. The receipt is in the index.
    pub shard_size: Option<u64>,
    /// Refuses to lose anything that nobody asked to leave out: each [loss](crate::change::Change::is_loss) is an
    /// error, and nothing is written.
    pub strict: bool,
    /// Keeps the source's names. Otherwise an output of Caffe or MXNet, and a file that the tensors go into, get the
    /// names of before a conversion, where such names are needed and the source's receipt has them.
    pub names_stay: bool,
    /// Whether the output holds a part of the source, whose arrays get new numbers where the format has no names.
    pub(crate) is_divided: bool,
    /// The facts about the source, for plans that are made of it one after the other.
    pub(crate) about: Option<Arc<About>>,
    /// Whether another file's plan tells the changes of the whole source.
    pub(crate) is_told: bool,
    /// Whether the output is one of several files that are made of the source together.
    pub(crate) is_part: bool,
    pub(crate) net: Choice,
    /// The net that says which values count otherwise than stored, where that is not the net to follow.
    pub(crate) told: Option<Choice>,
    /// The origin of that net, once there are such values.
    pub(crate) told_by: Option<NetOrigin>,
    /// The net that was followed, once decided.
    pub(crate) followed: Option<FollowedNet>,
    /// Leaves out arrays that are sound, but of a kind that cannot be converted: strings, complex numbers, LZF.
    pub skip_unsupported: bool,
    /// Writes no receipt where the format has room for one. A folder always has a receipt, which names the files.
    pub without_receipt: bool,
    /// Your own steps, which the source's receipt may name.
    pub registry: Registry,
    pub(crate) transforms: Vec<Arc<dyn Transform>>,
    /// The fold of a recipe, and the symbol that is written with the folded tensors.
    pub(crate) fold: Option<Fold>,
    pub(crate) symbol: Option<NewSymbol>,
    /// Puts the values of a new ONNX model into a file beside the model, as `net.onnx.data`. Past 2 GiB, which is all
    /// that protobuf reads, the values go there anyway.
    pub external_data: bool,
    /// The ONNX model that the tensors are written into, and the most bytes of values within the model.
    pub(crate) model: Option<Arc<Model>>,
    pub(crate) most_inside: u64,
    /// The mark of a job of a batch, for the receipt. The folder of the output was swept.
    pub(crate) mark: Option<String>,
}

impl Options {
    /// Conversion to a format, with names, values and shapes kept bit for bit.
    #[must_use]
    pub fn new(to: Format) -> Self {
        Self {
            to,
            dense: false,
            sha256: false,
            params_version: None,
            form: None,
            anew: false,
            shard_size: None,
            strict: false,
            names_stay: false,
            is_divided: false,
            about: None,
            is_told: false,
            is_part: false,
            net: Choice::Found,
            told: None,
            told_by: None,
            followed: None,
            skip_unsupported: false,
            without_receipt: false,
            registry: Registry::default(),
            transforms: Vec::new(),
            fold: None,
            symbol: None,
            external_data: false,
            model: None,
            most_inside: MOST_INSIDE,
            mark: None,
        }
    }

    /// Changes settings in a chain: `Options::new(to).with(|options| options.dense = true)`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Whether arrays get new numbers where the format has numbers in place of names.
    pub(crate) fn renumbers(&self) -> bool {
        self.is_divided || self.transforms.iter().any(|step| step.renumbers())
    }

    /// Follows this net. Otherwise the net comes from MXNet's symbol file beside the source, or from the source.
    #[must_use]
    pub fn follow(mut self, net: Arc<Topology>) -> Self {
        self.net = Choice::Given(net);
        self
    }

    /// The settings of a transform as a receipt stores them, with the net that was followed.
    pub(crate) fn settings(&self, step: &dyn Transform) -> Value {
        let mut settings = step.settings();
        if let (Some(net), Value::Object(fields)) =
            (self.followed.as_ref().filter(|net| step.follows(net)), &mut settings)
        {
            fields.insert("net".to_owned(), json!(net.origin));
        }
        settings
    }

    /// Writes this ONNX model, whose initializers a last step makes of the tensors.
    #[must_use]
    pub fn model(mut self, model: Model, initializers: Onnx) -> Self {
        self.model = Some(Arc::new(model));
        self.transform(initializers)
    }

    /// Adds a transform. Transforms are applied in the order of these calls.
    #[must_use]
    pub fn transform(mut self, step: impl Transform + 'static) -> Self {
        self.transforms.push(Arc::new(step));
        self
    }

    /// The facts about the source.
    pub(crate) fn about(&self, checkpoint: &Checkpoint) -> Arc<About> {
        self.about.clone().unwrap_or_else(|| Arc::new(About::of(checkpoint)))
    }

    /// Whether a new file of this format gets a receipt.
    pub(crate) fn gives_receipt(&self, to: Format) -> bool {
        to.holds().receipt && !self.without_receipt
    }

    /// Whether the output may be the file that the source's receipt describes.
    pub(crate) fn keeps_frame(&self) -> bool {
        let is_plain = self.keeps_blobs() && self.params_version.is_none() && self.shard_size.is_none();
        is_plain
            && !self.anew
            && !self.dense
            && !self.without_receipt
            && !self.skip_unsupported
            && self.transforms.is_empty()
    }

    /// Whether unchanged blobs of a Caffe file keep the stored form.
    pub(crate) fn keeps_blobs(&self) -> bool {
        self.form.is_none()
    }
}

/// The error for a source that does not allow the request.
pub(crate) fn refuse(checkpoint: &Checkpoint, message: String) -> Error {
    Error::Request { file: checkpoint.name().to_owned(), message }
}

/// [`refuse`] with a list of problems, of which the first [`NAMED_PROBLEMS`] are named.
pub(crate) fn refuse_all(checkpoint: &Checkpoint, what: &str, problems: Vec<String>) -> Error {
    refuse_first(NAMED_PROBLEMS, checkpoint, what, problems)
}

/// [`refuse`] with a list of problems, of which the first `max` are named.
pub(crate) fn refuse_first(max: usize, checkpoint: &Checkpoint, what: &str, problems: Vec<String>) -> Error {
    refuse(checkpoint, format!("{what}: {}", words::first_of(max, problems)))
}
