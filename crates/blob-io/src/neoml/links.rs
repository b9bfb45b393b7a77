//! A layer of a NeoML net and the layers that the inputs come from.

/// A layer of a net: path, class and inputs.
///
/// ```no_run
/// let net = blob_io::Checkpoint::open("net.cnnarch")?;
/// for layer in net.neoml_layers()? {
///     let inputs: Vec<_> = layer.inputs.iter().map(|(name, output)| format!("{name}:{output}")).collect();
///     println!("{} ({:?}) takes {}", layer.path, layer.class, inputs.join(", "));
/// }
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layer {
    /// The names of the outer layers and of the layer itself, joined by `/`: the prefix of the layer's array names.
    pub path: String,
    /// NeoML's name of the class (`FmlCnnFullyConnectedLayer`); the class's own parameters are not read.
    pub class: Option<String>,
    /// The inputs: layers of the same net, each with the index of the output that this layer reads.
    pub inputs: Vec<(String, u32)>,
    /// The offset in the file of the record that all classes have.
    pub offset: u64,
}
