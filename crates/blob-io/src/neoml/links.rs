//! A layer of a NeoML net and the layers in front of it: what a net's blobs are parameters of.

/// A layer of a net: its path, its class and its inputs.
///
/// ```no_run
/// let net = blob_io::Checkpoint::open("net.cnnarch")?;
/// for layer in net.neoml_layers()? {
///     let inputs: Vec<_> = layer.inputs().map(|(name, output)| format!("{name}:{output}")).collect();
///     println!("{} ({}) takes {}", layer.path(), layer.class().unwrap_or("?"), inputs.join(", "));
/// }
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    pub(super) path: String,
    pub(super) class: Option<String>,
    pub(super) inputs: Vec<(String, u32)>,
    pub(super) offset: u64,
}

impl Layer {
    /// The layer's name, with those of the layers that it is in joined by `/` in front: what its arrays' names begin with.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The name under which NeoML knows the class (`FmlCnnFullyConnectedLayer`); the class's own parameters are not read.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// The layers of the same net whose outputs it takes, each with the output's number.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, u32)> {
        self.inputs.iter().map(|(layer, output)| (&**layer, *output))
    }

    /// Where the record that all classes have begins in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }
}
