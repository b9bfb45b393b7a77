//! Whether tensors fit into the places that another file has for them.

use blob_core::DType;
use blob_io::words::{joined, listed_problems, quoted};
use blob_io::{Checkpoint, Entry, Error, Kind, Nets, Remedy, TensorName};

use crate::planned::Planned;

/// The most names in parentheses behind the first misfit, of other tensors with the same reason.
const NAMED: usize = 2;

/// The reason why a tensor does not fit in the place of an array.
pub(crate) struct Unfit {
    /// The reason, in words that follow the tensor's name.
    words: String,
    remedy: Option<Remedy>,
}

impl Unfit {
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self { words: words.into(), remedy: None }
    }

    /// A diff beside its data can be left out, where the base has the data; a diff alone is left out by its name; other
    /// names can be given.
    fn missing(name: &str, base: &Checkpoint, tensors: &[Planned]) -> Self {
        let name = TensorName::of(name);
        let is_diff = name.kind == Kind::Diff && base.entry(name.array).is_some();
        let (words, remedy) = if !is_diff {
            ("is not there", Remedy::Names)
        } else if tensors.iter().any(|tensor| tensor.spec.name == name.array) {
            ("is not there", Remedy::NoDiffs)
        } else {
            ("is a diff, which is not there, without its data here", Remedy::LoneDiff)
        };
        Self { words: words.to_owned(), remedy: Some(remedy) }
    }

    pub(crate) fn of_shape(tensor: &Planned, entry: &Entry) -> Self {
        Self::new(format!("is {} there, not {}", entry.shape(), tensor.spec.shape))
    }

    pub(crate) fn of_dtype(tensor: &Planned, there: DType) -> Self {
        let remedy = (there.is_float() && tensor.spec.dtype.is_float()).then_some(Remedy::Dtype);
        Self { words: format!("is of {there} there, not of {}", tensor.spec.dtype), remedy }
    }
}

/// Checks that `base` has an array of each tensor's name that the tensor fits into; the error names the tensors that
/// fail.
pub(crate) fn check_fits(
    checkpoint: &Checkpoint,
    base: &Checkpoint,
    tensors: &[Planned],
    mut misfit: impl FnMut(&Planned, &Entry) -> Result<Option<Unfit>, Error>,
) -> Result<(), Error> {
    let mut misfits = Vec::new();
    for tensor in tensors {
        let name = &tensor.spec.name;
        let found = match base.entry(name) {
            None => Some(Unfit::missing(name, base, tensors)),
            Some(entry) => match (entry.foreign_dtype(), entry.fault()) {
                (Some(dtype), _) => Some(Unfit::new(format!("is of dtype {dtype} there, which blob does not write"))),
                (_, Some(fault)) => Some(Unfit::new(format!("cannot be replaced there: {fault}"))),
                _ => misfit(tensor, entry)?,
            },
        };
        misfits.extend(found.map(|found| (quoted(name), found)));
    }
    let Some((_, first)) = misfits.first() else { return Ok(()) };
    let is_net_s_own = is_of_net(base) && matches!(first.remedy, None | Some(Remedy::Names));
    let remedy = if is_net_s_own { Some(Remedy::NewModel) } else { first.remedy };
    let problems = grouped(misfits.iter().map(|(name, misfit)| (&**name, &*misfit.words)));
    let message = format!("does not fit into {}: {}", base.name(), listed_problems(problems));
    Err(Error::misfit(checkpoint.name(), message, remedy))
}

/// The problems of tensors, each with its quoted name; those that follow each other and are the same in one sentence.
pub(crate) fn grouped<'a>(problems: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut same: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, words) in problems {
        match same.last_mut().filter(|(of, names)| *of == words && !names.contains(&"")) {
            Some((_, names)) => names.push(name),
            None => same.push((words, vec![name])),
        }
    }
    let sentences = same.iter().map(|(words, names)| match &names[..] {
        [""] | [] => (*words).to_owned(),
        [name] => format!("{name} {words}"),
        [first, others @ ..] => format!("{first} {words} (the same of {})", joined(NAMED, others)),
    });
    sentences.collect()
}

/// Whether the file is a model that blob made of a net.
pub(crate) fn is_of_net(base: &Checkpoint) -> bool {
    let mut metadata = base.metadata().iter();
    base.format().holds().net == Nets::Graph && metadata.any(|(key, value)| key == "producer_name" && value == "blob")
}
