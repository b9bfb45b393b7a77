//! A layer of a NeoML net and the layers in front of it: what a net's blobs are parameters of.

/// A layer of a net: its path, its class and its inputs.
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
    /// The layer's name, with those of the layers that it is in joined by `/` in front: what its arrays' names begin
    /// with.
    pub path: String,
    /// The name under which NeoML knows the class (`FmlCnnFullyConnectedLayer`); the class's own parameters are not
    /// read.
    pub class: Option<String>,
    /// The layers of the same net whose outputs it takes, each with the output's number.
    pub inputs: Vec<(String, u32)>,
    /// Where the record that all classes have begins in the file.
    pub offset: u64,
}
