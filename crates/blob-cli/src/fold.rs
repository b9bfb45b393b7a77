//! `blob fold`: folds BatchNorms into the layers before them. `blob_convert` decides which ones can be folded.

mod symbol;

use std::io::Write;

use blob_convert::transform::{Amount, Fold as Folding, Found, NetOrigin, Refusal, RefusalKind};
use blob_convert::{Options, Silent, Target, plan};
use blob_io::Checkpoint;
use serde_json::{Value, json};

use crate::args::{Fold, if_exists};
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::json::{self, Document, FILE, Field, Fields, STRINGS, Type, field, nullable, properties};
use crate::net;
use crate::open::open;
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::sink::{Content, check_stdout, is_stdout};
use crate::output::written::{Begun, Writes, Written, written_fields};
use crate::regroup::format_of;
use crate::render::Text;
use crate::units;
use symbol::NewSymbol;

/// What helps where layers are in some phases of the net only.
const TESTED_NET: &str = "name the net as it is used after training: --net deploy.prototxt";

/// At most this many other layers that are refused for one reason are named.
const MAX_LISTED: usize = 5;

pub(crate) fn run(args: &Fold, context: &Context) -> Result<Status, Failure> {
    let (begun, if_exists) = (Begun::now(args.dry_run), if_exists(args.force));
    for read in args.nets.paths() {
        blob_convert::check_output(read, &args.output, if_exists)?;
    }
    let checkpoint = open(&args.input, &context.global)?;
    let to = format_of(&args.output, args.to)?;
    let net = net::wired(&args.nets, &checkpoint)?;
    let (mut fold, refused) = Folding::of(&net::bound(net.net(), &checkpoint)?);
    let (layers, scales) = (fold.count(), fold.scales());
    if layers == 0 {
        return Err(nothing_to_fold(&checkpoint, &refused));
    }
    by_reason(&refused).iter().for_each(|refused| context.terminal.warning(refused));
    if has_phases(&refused) {
        context.terminal.note(format!("help: {TESTED_NET}"));
    }
    let symbol = NewSymbol::of(&net, &fold, args, context)?;
    if symbol.is_some() {
        fold = fold.described();
    }
    check_stdout(&args.output, Content::Binary, args.dry_run, &context.global)?;
    let target = if is_stdout(&args.output) { Target::Stdout } else { Target::File { path: &args.output, if_exists } };
    let options = Options::new(to).with(|o| o.anew = true).follow(net);
    let plan = plan(&checkpoint, &options.transform(fold), &target)?;
    let planned = plan.changes();
    let warned = planned.iter().filter(|group| group.change.is_warned());
    warned.for_each(|group| context.terminal.warning(group));
    let notices = planned.iter().filter(|group| group.change.is_notice());
    notices.for_each(|group| context.terminal.note(context.terminal.text(&group.to_string())));
    let (found, bytes_out) = if args.dry_run {
        plan.check(&Silent)?;
        (Vec::new(), plan.output_len())
    } else {
        let beside = symbol.as_ref().map(|symbol| symbol.complete(args)).transpose()?;
        let progress = Progress::begin(&context.terminal, checkpoint.file_len());
        let done = plan.run_with(beside, &progress)?;
        progress.end();
        done.changes().iter().for_each(|lost| context.terminal.warning(lost));
        (done.found, done.bytes_out)
    };
    let left_out = plan.left_out().iter().map(|left| left.name.clone()).collect();
    let notes = plan.notes();
    let written = Written::new(&args.output, to.name(), bytes_out, begun);
    let written = written.tensors(plan.tensors().len()).of_bytes(checkpoint.stored().len());
    let net = plan.net().cloned();
    context.print(Folded {
        written,
        net,
        symbol,
        checkpoint: &checkpoint,
        layers,
        scales,
        left_out,
        notes,
        refused,
        found,
    })?;
    Ok(Status::Yes)
}

/// The failure if nothing can be folded.
fn nothing_to_fold(checkpoint: &Checkpoint, refused: &[Refusal]) -> Failure {
    let file = checkpoint.name();
    if refused.is_empty() {
        return Failure::new(format!("{file}: its net has no BatchNorm, nor a Scale alone"));
    }
    let failure = Failure::new(format!("{file}: no BatchNorm can be folded: {}", by_reason(refused).join("; ")));
    if has_phases(refused) { failure.help(TESTED_NET) } else { failure }
}

/// Whether the net is one for training.
fn has_phases(refused: &[Refusal]) -> bool {
    refused.iter().any(|refusal| refusal.kind == RefusalKind::Phase)
}

/// Whether two refusals differ in names only.
fn is_alike(a: &Refusal, b: &Refusal) -> bool {
    a.kind == b.kind && (a.kind != RefusalKind::Other || a.reason == b.reason)
}

/// The refusals, one text for each reason.
fn by_reason(refused: &[Refusal]) -> Vec<String> {
    let mut groups: Vec<(&Refusal, Vec<String>)> = Vec::new();
    for refusal in refused {
        match groups.iter_mut().find(|(first, _)| is_alike(first, refusal)) {
            Some((_, layers)) => layers.push(format!("{:?}", refusal.layer)),
            None => groups.push((refusal, Vec::new())),
        }
    }
    let text = |(first, others): (&Refusal, Vec<String>)| {
        let more = others.len().saturating_sub(MAX_LISTED);
        let more = if more > 0 { format!(" and {} more", units::grouped(more as u64)) } else { String::new() };
        match others.len() {
            0 => first.to_string(),
            _ => format!("{first}; so {}{more}", others[..others.len().min(MAX_LISTED)].join(", ")),
        }
    };
    groups.into_iter().map(text).collect()
}

/// The result of the command.
pub(crate) struct Folded<'a> {
    written: Written<'a>,
    checkpoint: &'a Checkpoint,
    net: Option<NetOrigin>,
    /// The new symbol of a net of MXNet's.
    symbol: Option<NewSymbol>,
    layers: usize,
    /// The number of these layers that are a Scale without a BatchNorm.
    scales: usize,
    left_out: Vec<String>,
    notes: Vec<String>,
    refused: Vec<Refusal>,
    found: Vec<Found>,
}

impl Folded<'_> {
    /// The tensor with the largest change, and that change.
    fn largest_change(&self) -> Option<(&str, f64)> {
        let changes = self.found.iter().filter_map(|found| match found.amount {
            Amount::Most(value) => Some((&*found.tensor, value)),
            _ => None,
        });
        changes.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl Writes for Folded<'_> {
    fn written(&self) -> &Written<'_> {
        &self.written
    }
}

impl Text for Folded<'_> {
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        out.flush()?;
        let terminal = &context.terminal;
        let counts = [(self.layers - self.scales, "BatchNorm"), (self.scales, "Scale")];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let layers: Vec<String> = counts.map(|(count, what)| units::plural(*count as u64, what)).collect();
        terminal.written(&self.written, &[format!("{} folded", layers.join(" and "))]);
        if let Some(symbol) = &self.symbol {
            terminal.note(symbol.said(self.written.took.is_none()));
        }
        if let Some((name, value)) = self.largest_change() {
            terminal.note(format!("the largest change of a weight is {value:.4} in {}", terminal.name(name)));
        }
        Ok(())
    }
}

impl Document for Folded<'_> {
    const SCHEMA: &'static str = "blob.fold/1";
    const COMMAND: &'static str = "blob fold --json FILE -o OUT";
    const DESCRIPTION: &'static str = "what was folded";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for Folded<'_> {
    fn fields() -> Vec<Field<Self>> {
        let own = vec![
            field("file", Type::String, FILE, |f: &Self| json!(f.checkpoint.name())),
            field("layers", Type::Integer, "how many normalisations were folded, a Scale alone among them", |f| {
                json!(f.layers)
            }),
            nullable("net", Type::Object(properties::<NetOrigin>), "the net that was followed", |f| {
                f.net.as_ref().map_or(Value::Null, json::value)
            }),
            nullable("symbol", Type::String, "the new symbol of MXNet's, without the layers that were folded", |f| {
                json!(f.symbol.as_ref().map(|symbol| symbol.path.to_string_lossy()))
            }),
            field("left_out", STRINGS, "the tensors that were folded into others", |f| json!(f.left_out)),
            field("refused", Type::Array(&Type::Object(properties::<Refusal>)), "what was not folded", |f| {
                f.refused.iter().map(json::value).collect()
            }),
            field("notes", STRINGS, "further remarks, such as new biases", |f| json!(f.notes)),
            nullable("change", Type::Number, "the largest change of a weight; not in a dry run", |f| {
                json!(f.largest_change().map(|(_, value)| value))
            }),
            nullable("changed", Type::String, "the tensor that it is in", |f| {
                json!(f.largest_change().map(|(name, _)| name))
            }),
        ];
        own.into_iter().chain(written_fields()).collect()
    }
}

impl Fields for Refusal {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("layer", Type::String, "the layer's name", |r| json!(r.layer)),
            field("reason", Type::String, "why, in words", |r| json!(r.reason)),
        ]
    }
}
