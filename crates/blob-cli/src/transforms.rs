//! Turns a command's arguments into the transforms of `blob_convert`, in the order that the help documents.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use blob_convert::Options;
use blob_convert::transform::{
    BatchNorm, Bound, Dtype, Eps, FcFrom, FixGamma, Layout, Names, Rgb, SqueezeLegacy, StripDiff, TorchLayout,
    Transform,
};
use blob_io::net::{LayerKind, Role};
use blob_io::{Checkpoint, Format};

use crate::args::{Bn, FixedGamma, Transforms};
use crate::failure::Failure;
use crate::net;
use crate::select::{by_names, select};

/// The options of a conversion to a format, with the requested transforms.
pub(crate) fn options(args: &Transforms, to: Format, checkpoint: &Checkpoint) -> Result<Options, Failure> {
    let mut options = Options::new(to);
    let selection = by_names(checkpoint, &args.only.selection())?;
    // A pattern without a match gets its help here.
    select(checkpoint, &selection)?;
    options = add(options, Some(selection));
    let names = args.names.as_deref();
    let is_torch = names == Some(Path::new("torch"));
    let needs_net = is_torch || args.bn.is_some() || args.fix_gamma.is_some() || args.eps.is_some();
    let net = match needs_net || args.layout.is_some() {
        true => net::of(&args.nets, checkpoint)?,
        // A transform that follows a net asks for it itself.
        false => net::named(args.nets.net.as_deref(), args.nets.symbol.as_deref())?,
    };
    if let Some(net) = &net {
        options = options.follow(Arc::clone(net));
    }
    let bound = net.as_ref().filter(|_| needs_net).map(|net| net::bound(net.net(), checkpoint)).transpose()?;
    if let Some(bound) = &bound {
        check_net(args, bound, checkpoint)?;
    }
    let is_divided = args.bn.map_or(is_torch, |bn| bn == Bn::FoldFactor);
    let is_fixed = args.fix_gamma.map_or(is_torch, |fix| fix == FixedGamma::Auto);
    if args.bn == Some(Bn::FoldFactor) && bound.is_none() {
        let message = format!("{}: nothing says which of its layers are BatchNorms", checkpoint.name());
        return Err(Failure::new(message).help("name the net: --net deploy.prototxt"));
    }
    if args.eps.is_some() && bound.is_none() {
        let message = format!("{}: --eps: nothing says what its BatchNorms add to their variances", checkpoint.name());
        return Err(Failure::new(message).help("name the net: --net deploy.prototxt, or --symbol net-symbol.json"));
    }
    options = add(options, args.strip_diff.then_some(StripDiff));
    options = add(options, (args.squeeze_legacy || is_torch).then_some(SqueezeLegacy));
    let divided = bound.as_ref().filter(|_| is_divided).map(BatchNorm::of);
    // Caffe refuses a BatchNorm without its factor, so a factor of one is written.
    let divided = divided.map(|divided| if to.is_caffe() { divided.with_ones() } else { divided });
    options = add(options, divided);
    options = add(options, is_fixed.then(|| FixGamma::of(bound.as_ref(), checkpoint)));
    options = add(options, bound.as_ref().zip(args.eps).map(|(bound, eps)| Eps::of(bound, eps)));
    options = add(options, bound.as_ref().filter(|_| is_torch).map(TorchLayout::of));
    options = add(options, args.rgb.then_some(Rgb));
    options = add(options, args.fc_from.iter().cloned().reduce(FcFrom::and));
    // PyTorch's modules have `oihw`, and so have most files.
    let is_turned = is_torch && net.as_ref().is_some_and(|net| net.has_other_order());
    options = add(options, args.layout.or(is_turned.then_some(Layout::Oihw)));
    options = add(options, args.dtype.and_then(Dtype::new));
    if is_torch {
        let names = Names::torch(bound.as_ref(), checkpoint);
        options = options.transform(args.eps.into_iter().fold(names, Names::after_eps));
    } else if let Some(path) = names.filter(|names| *names != Path::new("raw")) {
        options = options.transform(names_of(path, checkpoint)?);
    }
    options.names_stay = names == Some(Path::new("raw"));
    options.strict = args.strict;
    Ok(options)
}

/// Adds a transform if it is requested and has something to do.
fn add(options: Options, step: Option<impl Transform + 'static>) -> Options {
    match step {
        Some(step) if !step.is_idle() => options.transform(step),
        _ => options,
    }
}

/// Refuses a net given for --bn or --fix-gamma if the file has no weights of its BatchNorms.
fn check_net(args: &Transforms, net: &Bound<'_>, checkpoint: &Checkpoint) -> Result<(), Failure> {
    if args.nets.net.is_none() && args.nets.symbol.is_none() {
        return Ok(());
    }
    let has = |role| net.net().layers().iter().any(|l| l.kind == LayerKind::BatchNorm && net.tensor(l, role).is_some());
    let refuse = |option: &str, what: &str| {
        let message = format!("{}: {option}: no BatchNorm of the net has its {what} in the file", checkpoint.name());
        Err(Failure::new(message).help("name the net whose weights these are"))
    };
    if args.bn == Some(Bn::FoldFactor) && !has(Role::Factor) {
        return refuse("--bn fold-factor", "factor");
    }
    if args.fix_gamma == Some(FixedGamma::Auto) && !has(Role::Weight) {
        return refuse("--fix-gamma auto", "gamma");
    }
    Ok(())
}

/// Reads a map of names, a file of lines `OLD NEW`.
pub(crate) fn names_of(path: &Path, checkpoint: &Checkpoint) -> Result<Names, Failure> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|e| {
        Failure::new(format!("{name}: cannot read the names: {e}"))
            .help("--names is raw, torch, or a file of lines `OLD NEW`")
    })?;
    Names::from_file(&text, checkpoint.names()).map_err(|why| Failure::new(format!("{name}: {why}")))
}
