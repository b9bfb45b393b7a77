//! Writes the records of a file's receipt: the source, the transforms, the changes by tensor, and earlier conversions.

use blob_convert::{Account, Origin, RECEIPT_KEY, Step};
use blob_io::Checkpoint;

use super::page::Markup;
use crate::units;

pub(super) fn write(page: &mut Markup, checkpoint: &Checkpoint) {
    let text = checkpoint.metadata().iter().find(|(key, _)| key == RECEIPT_KEY).map(|(_, text)| text);
    let Some(text) = text else { return };
    page.heading("receipt", "Receipt");
    let account = Account::of_receipt(text);
    let Some(account) = &account else {
        page.paragraph("bad", "The receipt cannot be read.");
        return;
    };
    let (earlier, sources) = account.history.split_at(account.history.len() - account.sources);
    let mut facts = Vec::new();
    for source in sources {
        facts.push(("converted from".to_owned(), source.name.clone()));
        facts.push(("of format".to_owned(), source.format.clone()));
        facts.push(("of size".to_owned(), units::exact_bytes(source.bytes)));
        facts.push(("with BLAKE3".to_owned(), source.blake3.clone()));
    }
    facts.extend(
        account.sources_left_out.iter().map(|why| ("merged of".to_owned(), format!("files without names: {why}"))),
    );
    facts.push(("left out".to_owned(), units::plural(account.left_out, "tensor")));
    facts.extend(account.lost_values.map(|lost| ("lost by rounding".to_owned(), units::plural(lost, "value"))));
    page.facts(&facts);
    match &account.transforms {
        None => page.paragraph("bad", "The transforms of the receipt cannot be read."),
        Some(steps) if steps.is_empty() => {}
        Some(steps) => {
            page.heading("transforms", "Transforms");
            page.table("steps", &["#step", "transform", "settings"]);
            for (number, step) in steps.iter().enumerate() {
                page.put("<tr>");
                page.cell("n", &(number + 1).to_string());
                page.cell("", &step.name);
                page.cell("name", &settings(step));
                page.end_row();
            }
            page.end_table();
        }
    }
    changes(page, account);
    history(page, earlier);
}

/// Writes the table of changes, each with the affected tensors.
fn changes(page: &mut Markup, account: &Account) {
    if account.changes.is_empty() {
        return;
    }
    page.heading("changes", "Changes");
    page.table("converted", &["change", "#tensors", "the first of them"]);
    for change in &account.changes {
        page.put("<tr>");
        page.cell("", &change.what);
        page.cell("n", &units::grouped(change.tensors));
        page.cell("name", &change.named.join(", "));
        page.end_row();
    }
    page.end_table();
}

/// Writes the table of the files that the source itself was converted from.
fn history(page: &mut Markup, earlier: &[Origin]) {
    if earlier.is_empty() {
        return;
    }
    page.heading("history", "History");
    page.table("history", &["file", "format", "#bytes", "BLAKE3", "transforms"]);
    for origin in earlier {
        page.put("<tr>");
        page.cell("name", &origin.name);
        page.cell("", &origin.format);
        page.cell("n", &units::grouped(origin.bytes));
        page.cell("name", &origin.blake3);
        let steps = origin.transforms.iter().map(|step| [&*step.name, &settings(step)].join(" ").trim_end().to_owned());
        page.cell("", &steps.collect::<Vec<_>>().join(", "));
        page.end_row();
    }
    page.end_table();
}

/// A transform's settings as JSON; empty without settings.
fn settings(step: &Step) -> String {
    let text = step.settings.to_string();
    if matches!(&*text, "null" | "{}") { String::new() } else { text }
}
