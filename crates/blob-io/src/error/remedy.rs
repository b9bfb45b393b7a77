//! The next steps for whoever has tensors that do not fit into a file.

/// A request that would succeed where tensors do not fit into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// MXNet records of V3, which hold arrays without axes.
    Version3,
    /// MXNet records of V2, which hold sparse arrays.
    Version2,
    /// NVCaffe's `raw_data`, which holds f16.
    RawData,
    /// No diffs.
    NoDiffs,
    /// To leave out a diff whose data is not there.
    LoneDiff,
    /// Other names: `<layer>/<index>`, or those of the file that the tensors go into.
    Names,
    /// The names that the tensors have, which the format holds, or others.
    KeepNames,
    /// The dtype of the file that the tensors go into.
    Dtype,
    /// A new file, since arrays cannot be put into this one.
    NewFile,
    /// A model without a receipt, since the receipt of this one would not hold for other values; or a new model.
    BareModel,
    /// A new model of the tensors and their net, since a model of a net holds tensors as ONNX computes with them.
    NewModel,
    /// Another name for the output, since the output is the source.
    OtherName,
    /// Another folder for the output, since the output is one of the shards that are read.
    OtherFolder,
    /// To leave out the arrays whose dtypes blobs do not have.
    SkipUnsupported,
    /// A prototxt that describes the net.
    Net,
    /// A prototxt or a symbol file that describes the net.
    NetOrSymbol,
    /// The shapes of the net's inputs.
    InputShape,
    /// A net without the layers that have no form.
    OtherLayers,
    /// A new file of the tensors, without the bytes that a receipt holds.
    Anew,
    /// The net whose weights these are.
    OtherNet,
    /// A net in which no two layers of one phase have one name.
    LayerNames,
    /// The net as used after training.
    TestedNet,
    /// A file of lines `OLD NEW`.
    NamesFile,
    /// Another name for the output, since the symbol beside the output is called as the weights are.
    SymbolName,
    /// A further conversion, since the file that the tensors go into keeps its format.
    OtherFormat,
    /// A receipt, or a file in place of the folder.
    Receipt,
    /// A file in place of a pipe, since the output has a second file.
    NamedFile,
}
