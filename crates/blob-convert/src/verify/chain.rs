//! Does the conversions of a history again, one after the other, each on the file that the one before made.
//!
//! Of a file in between, the bytes around the tensors are made and opened: names, places, dtypes, shapes and a receipt.
//! A later conversion knows nothing else of its source. Values are read from the first source alone.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use blob_io::{Checkpoint, Entry, Error, Files, Format, Nets, OpenOptions};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::By;
use crate::chosen::chosen;
use crate::history::{Origin, parse, receipt_text};
use crate::layout;
use crate::options::{Options, refuse};
use crate::pipeline::{Chained, MAX_READS, ValueChange};
use crate::planned::Planned;
use crate::receipt::Receipt;
use crate::shown::PlannedBytes;
use crate::step::Step;
use crate::template::Template;
use crate::transform::{Bound, Choice, Eps, Fold, Followed, NetFrom, NetOrigin, OtherEps, Own, Topology, Transform};
use crate::written::truncated;

/// One conversion to repeat.
pub(super) struct Conversion<'a> {
    pub(super) steps: &'a [Step],
    pub(super) transforms: Vec<Arc<dyn Transform>>,
    /// The file that was made, by the history; `None` for the file at hand.
    pub(super) made: Option<&'a Origin>,
}

/// The outcome of conversions that are done again.
pub(super) struct Chain {
    /// The last conversion's own source; `None` for the first source.
    between: Option<Between>,
    pub(super) options: Options,
    /// The outcome of the last conversion on its own source.
    pub(super) last: Chained,
    /// The same tensors, made of the first source; `None` where that is the last conversion's own source.
    over_first: Option<Vec<Planned>>,
    pub(super) told: Told,
}

/// What is to be said of conversions that are done again.
#[derive(Default)]
pub(super) struct Told {
    /// The changes of values, with entries of the first source.
    pub(super) value_changes: Vec<ValueChange>,
    /// The steps that the tensors do not prove, in words.
    pub(super) unproven: Vec<String>,
    /// What the receipt says and a net does not, in words.
    pub(super) contradictions: Vec<String>,
}

/// The file that a conversion made, without the values.
struct Between {
    file: Checkpoint,
    /// The tensor that each entry is, made of the first source.
    tensors: Vec<Planned>,
}

impl Chain {
    /// Does conversions again, the first of `source`, the last for `file`.
    ///
    /// # Errors
    /// As [`chosen`]; [`Error::Request`] also where a file in between cannot be made.
    pub(super) fn again(
        file: &Checkpoint,
        source: &Checkpoint,
        earlier: &[Conversion<'_>],
        last: &Conversion<'_>,
        by: &By,
    ) -> Result<Self, Error> {
        let mut walk = Walk { file, source, by, between: None, told: Told::default() };
        for conversion in earlier {
            let done = walk.convert(conversion)?;
            if let Some(made) = conversion.made {
                walk.between = Some(Between::new(walk.own(), done, made)?);
            }
        }
        let Done { options, chained, over_first } = walk.convert(last)?;
        Ok(Self { between: walk.between, options, last: chained, over_first, told: walk.told })
    }

    /// The tensors, made of the first source.
    pub(super) fn tensors(&self) -> &[Planned] {
        self.over_first.as_deref().unwrap_or(&self.last.tensors)
    }

    /// The last conversion's own source.
    pub(super) fn own<'c>(&'c self, first: &'c Checkpoint) -> &'c Checkpoint {
        self.between.as_ref().map_or(first, |between| &between.file)
    }
}

/// The conversions that are done so far.
struct Walk<'a> {
    file: &'a Checkpoint,
    /// The first source.
    source: &'a Checkpoint,
    by: &'a By,
    between: Option<Between>,
    told: Told,
}

/// One conversion that is done again.
struct Done {
    options: Options,
    /// The outcome on the conversion's own source.
    chained: Chained,
    over_first: Option<Vec<Planned>>,
}

impl Walk<'_> {
    /// The source of the next conversion.
    fn own(&self) -> &Checkpoint {
        self.between.as_ref().map_or(self.source, |between| &between.file)
    }

    fn convert(&mut self, conversion: &Conversion<'_>) -> Result<Done, Error> {
        let options = self.options(conversion);
        let own = self.own();
        let mut chained = chosen(own, &options, options.to.holds().files == Files::Folder)?;
        let contradictions = other_eps(own, conversion.steps, &options.net);
        let over_first = self.between.as_ref().map(|between| between.over_first(&chained.tensors)).transpose()?;
        let mut changes = std::mem::take(&mut chained.value_changes);
        if let Some(between) = &self.between {
            changes
                .iter_mut()
                .flat_map(|change| &mut change.entries)
                .for_each(|entry| *entry = between.tensors[*entry].entry);
        }
        self.told.value_changes.extend(changes);
        self.told.contradictions.extend(contradictions);
        self.told.unproven.extend(unproven(&chained, conversion.steps));
        Ok(Done { options, chained, over_first })
    }

    /// The choices of a conversion. A later one knows only what its own source had.
    fn options(&self, conversion: &Conversion<'_>) -> Options {
        let (file, source) = (self.file, self.source);
        let mut options = choices(file, source, conversion.steps, conversion.transforms.clone(), self.by);
        if self.between.is_some() {
            // The first conversion has expanded the sparse arrays, or none has.
            options.dense = false;
            if let Choice::Recorded(Some(net), given) = options.net {
                let given = given.filter(|given| given.origin().blake3 == net.blake3);
                options.net = Choice::Recorded(Some(net), given.or_else(|| beside(source)));
            }
        }
        if let Some(made) = conversion.made {
            (options.to, options.told, options.is_part) = (carrier(made), None, false);
        }
        options
    }
}

/// The net of the first source, which may be the net that a later conversion followed: the digest decides.
fn beside(source: &Checkpoint) -> Option<Arc<Topology>> {
    Topology::of(source).ok().flatten().map(Arc::new)
}

/// The format in which a file of the history is made again: its own, where the format has other places for tensors than
/// those that a conversion gives them.
fn carrier(made: &Origin) -> Format {
    let own = made.format.parse().ok().filter(|format: &Format| {
        let holds = format.holds();
        holds.receipt && holds.net == Nets::None && holds.files != Files::Folder
    });
    own.unwrap_or(Format::Npz)
}

/// The choices of a conversion that a receipt tells by its fields.
#[derive(Default, Deserialize)]
struct Chosen {
    /// The sparse arrays that were not expanded.
    sparse: Option<Vec<IgnoredAny>>,
    told_by: Option<NetOrigin>,
    #[serde(default, rename = "part")]
    is_part: bool,
}

/// The conversion that made `file` of `source` by these steps, but for the choices that no receipt tells.
pub(super) fn choices(
    file: &Checkpoint,
    source: &Checkpoint,
    steps: &[Step],
    transforms: Vec<Arc<dyn Transform>>,
    by: &By,
) -> Options {
    let mut options = Options::new(file.format());
    // A receipt lists the sparse arrays that were not expanded. Without that list, the names decide.
    let told = receipt_text(file).and_then(parse::<Chosen>).unwrap_or_default();
    options.dense = match told.sparse {
        Some(parts) => parts.is_empty(),
        None => source.entries().iter().filter_map(Entry::sparse).any(|whole| file.entry(&whole.name).is_some()),
    };
    (options.transforms, options.registry) = (transforms, by.registry.clone());
    // Each step that followed a net names the same one.
    let recorded = steps.iter().find_map(|step| NetOrigin::deserialize(&step.settings["net"]).ok());
    options.net = Choice::Recorded(recorded, by.net.clone());
    options.told = Some(Choice::Recorded(told.told_by, by.net.clone()));
    (options.is_part, options.skip_unsupported) = (told.is_part, true);
    options
}

/// The steps that change no tensor, in words: the comparison of the tensors proves nothing of these. A selection leaves
/// tensors out, and a second one nothing more; the names of torch bring steps along that may have nothing to do.
fn unproven(chained: &Chained, steps: &[Step]) -> Option<String> {
    let mut names = steps.iter().filter(|step| step.own() == Some(Own::Names));
    let brought = names.any(|step| step.settings["torch"] == true).then(Step::with_torch_names);
    let mut selections = 0;
    let idle = chained.idle.iter().filter(|name| match Own::of(name) {
        Some(Own::Select) => {
            selections += 1;
            selections > 1
        }
        // The graph that this step describes is made again.
        Some(Own::Onnx) => false,
        _ => !brought.iter().flatten().any(|step| step.name == **name),
    });
    let named: Vec<&str> = idle.copied().collect();
    (!named.is_empty()).then(|| format!("not checked: steps that change no tensor: {}", named.join(", ")))
}

impl Between {
    /// The file that a conversion made of its own source. Nothing but the receipt's own word says what it was called.
    fn new(own: &Checkpoint, done: Done, made: &Origin) -> Result<Self, Error> {
        let Done { options, chained, over_first } = done;
        let mut tensors = chained.tensors;
        let receipt = Receipt::new(own, &options, &tensors, &[], &[], &[], Err(""))?;
        let (name, metadata) = (truncated(&made.name), [receipt.placeholder()]);
        let of = Template::None;
        let layout = layout::of(own, &of, &options, &mut tensors, &[], &metadata, Some(Path::new(name)))?;
        let frame = layout.frame(&metadata, &vec![0; tensors.len()])?;
        let bytes = PlannedBytes { len: layout.len(), frame, copies: &[], base: None };
        let opening = OpenOptions::new().from(options.to).limits(own.limits().clone());
        let file = opening.open_source(name, Box::new(bytes))?;
        let places: HashMap<&str, usize> =
            tensors.iter().enumerate().map(|(place, tensor)| (&*tensor.spec.name, place)).collect();
        let over_first = over_first.as_ref().unwrap_or(&tensors);
        let each = file.entries().iter().map(|entry| Some(over_first[*places.get(entry.name())?].clone()));
        let each: Option<Vec<Planned>> = each.collect();
        match each {
            Some(tensors) => Ok(Self { file, tensors }),
            None => Err(refuse(&file, "cannot be made again: it has other names than were planned".to_owned())),
        }
    }

    /// The tensors that a conversion makes of this file, made of the first source.
    fn over_first(&self, tensors: &[Planned]) -> Result<Vec<Planned>, Error> {
        let all: Vec<Planned> = tensors.iter().map(|tensor| tensor.over(&self.tensors)).collect();
        match all.iter().find(|tensor| tensor.reads() > MAX_READS) {
            None => Ok(all),
            Some(tensor) => {
                let (name, reads) = (truncated(&tensor.spec.name), tensor.reads());
                let message = format!("has {name:?}, which would read the first source {reads} times");
                Err(refuse(&self.file, message))
            }
        }
    }
}

/// An eps that steps say their source had, and that the net of the source tells otherwise, in words. A net that cannot
/// be read is a problem of the step that needs the net.
fn other_eps(own: &Checkpoint, steps: &[Step], choice: &Choice) -> Option<String> {
    // Behind `eps` variances are for another one.
    let last = steps.iter().position(|step| step.own() == Some(Own::Eps));
    let steps = &steps[..last.map_or(steps.len(), |last| last + 1)];
    let known = steps.iter().filter(|step| matches!(step.own(), Some(Own::Fold | Own::Eps)));
    let followed = Followed::new(own, choice);
    let mut known = known.filter_map(|step| Some((step, followed.get().ok().flatten()?)));
    let (OtherEps { layer, said, told }, net) = known.find_map(|(step, net)| {
        let bound = Bound::new(net.net(), own);
        let other = match step.own() {
            Some(Own::Fold) => Fold::deserialize(&step.settings).ok()?.other_eps(&bound),
            _ => Eps::deserialize(&step.settings).ok()?.other_eps(&bound),
        };
        Some((other?, net))
    })?;
    let origin = match net.origin().from {
        NetFrom::File => own.name(),
        _ => &net.origin().name,
    };
    // Both are compared as f32.
    let (said, told, layer) = (said as f32, told as f32, truncated(&layer));
    Some(format!("the receipt says that the eps of {layer:?} was {said:e}, and the net of {origin} says {told:e}"))
}
