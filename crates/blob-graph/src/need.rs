//! The weights of a model: the source's tensor that each is made of, and how.
//!
//! Knows no values.

/// A weight of the model, and where its values come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The name of the initializer, whose shape and element type the model has.
    pub initializer: String,
    /// The source's tensor, by the name that `Layer::tensors` gives.
    pub tensor: String,
    /// How the values are made.
    pub make: Make,
}

/// How an initializer's values are made of a tensor's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Make {
    /// The values as they are, in order. The shape is the initializer's, from which the tensor's may differ by axes of
    /// extent 1, as in files of 2014.
    AsIs,
    /// The values as they are, in order, in this shape.
    Reshape(Vec<u64>),
    /// As many ones: a gamma of MXNet's that is fixed. The transform is `fix-gamma`.
    Ones,
    /// A mean or a variance of Caffe's, divided by the factor that the layer's third tensor, of this name, has: the
    /// transform `BatchNorm`. A factor of 0 makes zeros.
    BatchNorm(String),
    /// The gates of an LSTM along the first axis, from Caffe's order (input, forget, output, new) to ONNX's (input,
    /// output, forget, new), and an axis of 1 before them.
    LstmGates,
    /// An LSTM's bias: the gates as for [`Make::LstmGates`], then as many zeros, which are ONNX's second bias.
    LstmBias,
}
