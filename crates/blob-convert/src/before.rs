//! The way back to the tensors that a file had before the conversion which its receipt describes: their names, and the
//! factors of BatchNorms. Relies on the receipt's steps; `done` reads them.

use std::sync::Arc;

use blob_io::caffe::Message;
use blob_io::{Checkpoint, Error, Format, Remedy};

use crate::receipt::{Origin, Step, receipt_text};
use crate::transform::{BatchNorm, Factors, Names, Norm, TorchLayout, Transform};

/// The names that an output needs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    Any,
    /// `<layer>/<index>`.
    Layers,
    /// MXNet's own, where the tensors had them before they got PyTorch's: its files hold any name.
    Mxnet,
    /// Those of the file that the tensors go into.
    Of(&'a Checkpoint),
}

impl Wanted<'_> {
    /// Whether the tensors have other names, and got them by `names`, from which `back` leads.
    fn lacks(self, checkpoint: &Checkpoint, names: &Names, back: Option<&Names>) -> bool {
        match self {
            Self::Any => false,
            Self::Layers => Message::named(Format::CaffeModel, checkpoint.names(), &[]).is_err(),
            Self::Mxnet => names.is_torch() && source_format(checkpoint).is_some_and(Format::is_mxnet),
            Self::Of(base) => {
                let is_there = |name: &&str| base.entry(name).is_some();
                let before = checkpoint.names().map(|name| back.map_or(name, |back| back.of(name)));
                checkpoint.names().filter(is_there).count() < before.filter(is_there).count()
            }
        }
    }
}

/// The format of the file that the receipt names.
fn source_format(checkpoint: &Checkpoint) -> Option<Format> {
    let origin = Origin::of_receipt(receipt_text(checkpoint)?)?;
    Format::ALL.iter().copied().find(|format| format.name() == origin.format)
}

/// What gives Caffe's BatchNorms a factor again that the receipt says was divided out, also where names stay.
pub(crate) fn factors(steps: &[Step], wanted: Wanted<'_>) -> Vec<Arc<dyn Transform>> {
    let is_wanted = |norm: &Norm| match wanted {
        Wanted::Any | Wanted::Mxnet => false,
        Wanted::Layers => true,
        Wanted::Of(base) => base.entry(norm.factor()).is_some(),
    };
    let divided = steps.iter().filter(|step| step.name == "bn").filter_map(|step| BatchNorm::read(&step.settings));
    let norms: Vec<Norm> = divided.flat_map(BatchNorm::without_factors).filter(is_wanted).collect();
    let step = (!norms.is_empty()).then(|| Arc::new(Factors::new(norms)) as Arc<dyn Transform>);
    step.into_iter().collect()
}

/// The steps that lead back; none where the output needs no other names, or the receipt has none.
///
/// # Errors
/// The conversion changed more than names, shapes and dtypes, so that the tensors of before would not come back.
pub(crate) fn before(
    checkpoint: &Checkpoint,
    steps: &[Step],
    wanted: Wanted<'_>,
) -> Result<Vec<Arc<dyn Transform>>, Error> {
    let (named, others): (Vec<&Step>, Vec<&Step>) = steps.iter().partition(|step| step.name == Names::NAME);
    let names = match named[..] {
        [named] => Names::read(&named.settings),
        _ => None,
    };
    let before = names.as_ref().and_then(|names| names.back(checkpoint.names()));
    if !names.is_some_and(|names| wanted.lacks(checkpoint, &names, before.as_ref())) {
        return Ok(factors(steps, wanted));
    }
    let (mut back, mut in_the_way): (Vec<Arc<dyn Transform>>, Vec<&str>) = Default::default();
    match before {
        Some(names) => back.push(Arc::new(names)),
        None => in_the_way.push(Names::NAME),
    }
    for step in others {
        match &*step.name {
            // MXNet takes such a gamma as 1, whatever it is.
            "select" | "strip-diff" | "squeeze-legacy" | "fix-gamma" | "dtype" => {}
            "torch-layout" if TorchLayout::read(&step.settings).is_some_and(|layout| layout.is_in_order()) => {}
            "bn" => match BatchNorm::read(&step.settings) {
                Some(divided) => back.push(Arc::new(Factors::new(divided.without_factors()))),
                None => in_the_way.push(&step.name),
            },
            other => in_the_way.push(other),
        }
    }
    match in_the_way.is_empty() {
        true => Ok(back),
        false => {
            let message = format!(
                "has names that a conversion gave, and the names of before do not come back by themselves, since its \
                 receipt says that {} changed more than names",
                in_the_way.join(", ")
            );
            Err(Error::Misfit { file: checkpoint.name().to_owned(), message, remedy: Some(Remedy::Names) })
        }
    }
}
