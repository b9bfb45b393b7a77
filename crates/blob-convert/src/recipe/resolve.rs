//! Makes the steps of a recipe exact for a source, in the order in which they are done.

use std::sync::Arc;

use blob_io::{Checkpoint, Error, Format};
use serde::Deserialize;

use super::{NetFile, Recipe, Target};
use crate::history::MAX_STEPS;
use crate::model;
use crate::options::{Options, refuse};
use crate::state::State;
use crate::step::Step;
use crate::symbol::NewSymbol;
use crate::transform::{Bound, Dtype, Fold, Given, Layout, Own, Registry, Topology, Wish, Wished, WishedEps};

/// The refusal of settings that a model alone has.
const OF_MODELS: &str = "input, dynamic_batch, ssd, opset and external_data are for an ONNX model made of a net";

/// A step of the recipe, or a step that another one adds.
struct Asked {
    step: Step,
    is_implied: bool,
}

/// The settings of the conversion of one source, with exact steps.
pub(super) fn resolved(
    recipe: &Recipe,
    checkpoint: &Checkpoint,
    to: Format,
    registry: &Registry,
) -> Result<Options, Error> {
    let (mut steps, names) = asked(recipe, checkpoint)?;
    let is_model = model::is_made(checkpoint, to, recipe.target.into.is_some());
    check_target(&recipe.target, checkpoint, to, is_model)?;
    if is_model {
        for_model(checkpoint, registry, &mut steps)?;
    }
    let is_torch = names.to == Some(Given::Torch);
    let has = |steps: &[Asked], own| found(steps.iter().map(|asked| &asked.step), own).is_some();
    let binds = is_torch || is_model || steps.iter().any(|asked| asked.step.own().is_some_and(Own::is_of_layers));
    let net = match recipe.named_net()? {
        Some(net) => Some(net),
        // Any other step that follows a net looks for that net itself.
        None if binds || has(&steps, Own::Layout) => Topology::of(checkpoint)?.map(Arc::new),
        None => None,
    };
    // PyTorch's modules and most files have the order `oihw`.
    if is_torch && net.as_ref().is_some_and(|net| net.has_other_order()) {
        imply(&mut steps, [Layout::Oihw.into()]);
    }
    steps.sort_by_key(|asked| Registry::rank(&asked.step.name));
    let mut options = recipe.target.options(to, registry.clone());
    options.mark.clone_from(&recipe.mark);
    options.names_stay = names.to == Some(Given::Raw);
    options.is_divided = recipe.target.divide.is_some();
    if let Some(net) = &net {
        options = options.follow(Arc::clone(net));
    }
    let followed = net.as_deref().filter(|_| binds);
    let mut wish = Wish::new(checkpoint, to, followed, followed.map(|net| Bound::new(net.net(), checkpoint)))?;
    wish.is_given = recipe.net.is_some();
    let eps = found(steps.iter().map(|asked| &asked.step), Own::Eps);
    wish.stated = State::of(checkpoint, registry).stated_eps(checkpoint);
    wish.eps = eps.and_then(|step| Some(WishedEps::deserialize(&step.settings).ok()?.to));
    let renames = has(&steps, Own::Names) && !options.names_stay;
    for Asked { step, is_implied } in steps {
        wish.is_implied = is_implied;
        if step.own() == Some(Own::Fold) {
            let mut fold = match Fold::deserialize(&step.settings) {
                Ok(fold) => fold,
                Err(_) => Fold::find(&step.settings, &wish)?,
            };
            if is_model {
                // The model is the net's new description: its layers have the biases.
                fold.described(Ok(()));
            }
            let file = recipe.target.place()?.file().filter(|_| !(renames || is_model));
            if let (Some(net), Some((output, if_exists))) = (&net, file) {
                let given = recipe.net.as_ref().map(NetFile::path);
                options.symbol = NewSymbol::of(checkpoint, net, given, &mut fold, output, if_exists)?;
            }
            wish.bound = wish.bound.take().map(|bound| bound.without(fold.folded()));
            options.fold = Some(fold.clone());
            options = options.transform(fold);
        } else if let Some(made) = registry.make(&step.name, &step.settings, &wish)? {
            options.transforms.extend((!made.is_idle()).then_some(made));
        }
    }
    if is_model { with_model(options, recipe, &wish, net.as_deref()) } else { Ok(options) }
}

/// Refuses settings of another output than this one.
fn check_target(target: &Target, checkpoint: &Checkpoint, to: Format, is_model: bool) -> Result<(), Error> {
    let settings = [
        (target.params_version.is_some() && !to.is_mxnet(), "params_version is for MXNet's files"),
        (target.form.is_some() && !to.is_caffe(), "form is for Caffe's files"),
        (target.onnx.is_some() && !is_model, OF_MODELS),
    ];
    let Some((_, words)) = settings.iter().find(|(is_unfit, _)| *is_unfit) else { return Ok(()) };
    Err(refuse(checkpoint, format!("is {}, to be written as {}, and {words}", checkpoint.format().name(), to.name())))
}

/// The options with the ONNX model that the net becomes.
fn with_model(options: Options, recipe: &Recipe, wish: &Wish<'_>, net: Option<&Topology>) -> Result<Options, Error> {
    let settings = recipe.target.onnx.clone().unwrap_or_default();
    let rounded = found(&recipe.steps, Own::Dtype);
    let dtype = rounded.and_then(|step| Dtype::read(&step.settings)).map(Dtype::to);
    let (model, initializers) = model::of(wish.checkpoint, net, options.fold.as_ref(), &settings, dtype)?;
    Ok(options.model(model, initializers).with(|options| options.external_data = settings.external_data))
}

/// Adds the steps that give a model's weights the values with which the framework computes.
fn for_model(checkpoint: &Checkpoint, registry: &Registry, steps: &mut Vec<Asked>) -> Result<(), Error> {
    let mut names = steps.iter().map(|Asked { step, .. }| (&step.name, registry.fits_net(&step.name, &step.settings)));
    if let Some((name, _)) = names.find(|(_, fits)| !fits) {
        let message =
            format!("becomes an ONNX model, which reads all tensors as its net does: {name:?} has no place there");
        return Err(refuse(checkpoint, message));
    }
    imply(steps, [Step::bn(), Step::fix_gamma()]);
    Ok(())
}

/// Adds the steps of other names than there are.
fn imply(steps: &mut Vec<Asked>, others: impl IntoIterator<Item = Step>) {
    for step in others {
        if !steps.iter().any(|asked| asked.step.name == step.name) {
            steps.push(Asked { step, is_implied: true });
        }
    }
}

/// The step that is this one of ours.
fn found<'s>(steps: impl IntoIterator<Item = &'s Step>, own: Own) -> Option<&'s Step> {
    steps.into_iter().find(|step| step.own() == Some(own))
}

/// All steps, and the names that are asked for.
fn asked(recipe: &Recipe, checkpoint: &Checkpoint) -> Result<(Vec<Asked>, Wished), Error> {
    if recipe.steps.len() > MAX_STEPS {
        return Err(refuse(checkpoint, format!("has {} steps to do; at most {MAX_STEPS} are", recipe.steps.len())));
    }
    for (place, step) in recipe.steps.iter().enumerate() {
        if !(step.settings.is_object() || step.settings.is_null()) {
            let message = format!("has the step {:?} to do, whose settings are no JSON object", step.name);
            return Err(refuse(checkpoint, message));
        }
        if recipe.steps[..place].iter().any(|before| before.name == step.name) {
            return Err(refuse(checkpoint, format!("has the step {:?} to do twice", step.name)));
        }
    }
    let mut steps: Vec<Asked> =
        recipe.steps.iter().map(|step| Asked { step: step.clone(), is_implied: false }).collect();
    let names = found(&recipe.steps, Own::Names);
    let names = names.and_then(|step| Wished::deserialize(&step.settings).ok()).unwrap_or_default();
    if names.to == Some(Given::Torch) {
        let mut brought = Step::with_torch_names().to_vec();
        if let Some(other) = names.keep.iter().find(|name| !brought.iter().any(|step| step.name == **name)) {
            return Err(refuse(checkpoint, format!("has the step \"names\", which does not bring {other:?} with it")));
        }
        brought.retain(|step| !names.keep.contains(&step.name));
        imply(&mut steps, brought);
    }
    Ok((steps, names))
}
