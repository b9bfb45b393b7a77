//! Encodes pictures as PNG, and prints pictures in the terminal: coloured half blocks, or characters by darkness.

use std::io::Write;

use blob_convert::stats::Binned;

use super::raster::{NOT_FINITE, Picture, Raster, Scale};
use crate::failure::Failure;
use crate::output::width::{width, wrap};
use crate::output::{Out, Terminal};
use crate::render::svg::Title;
use crate::units;

/// The height of a histogram's bars in rows.
const BAR_ROWS: u64 = 8;

/// A picture in a file is enlarged to at most this many points a side.
const SIDE: usize = 800;

/// The least height of a picture in a file: a vector is one row.
const MIN_HEIGHT: usize = 48;

/// A picture in the terminal is enlarged at most this often.
const MAX_BY: usize = 4;

/// The longest legend in the terminal, in columns.
const RAMP: usize = 24;

/// How often each point is repeated in a file: small pictures are enlarged, images are not, whose points are pixels.
pub(super) fn enlargement(raster: &Raster) -> (usize, usize) {
    let (width, height) = (raster.width.max(1), raster.height().max(1));
    let by = (SIDE / width.max(height)).max(1);
    (by, by.max(MIN_HEIGHT / height))
}

/// Encodes a picture as PNG, with the title and the notes in the file's text.
pub(super) fn png(raster: &Raster, title: &Title, notes: &[String]) -> Result<Vec<u8>, Failure> {
    let failed = |e: png::EncodingError| Failure::new(format!("the picture cannot be encoded: {e}"));
    let (width, height) = (raster.width as u32, raster.height() as u32);
    if width == 0 || height == 0 {
        return Err(Failure::new("the tensor has no values, and a picture at least one point"));
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.add_itxt_chunk("Title".to_owned(), title.name.clone()).map_err(failed)?;
    let about = [std::slice::from_ref(&title.about), notes].concat().join("; ");
    encoder.add_itxt_chunk("Description".to_owned(), about).map_err(failed)?;
    let mut writer = encoder.write_header().map_err(failed)?;
    let pixels: Vec<[u8; 3]> = raster.pixels.iter().map(|pixel| pixel.unwrap_or([255; 3])).collect();
    writer.write_image_data(pixels.as_flattened()).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}

/// Prints a picture below the title, and the legend below that.
pub(super) fn picture(
    terminal: &Terminal,
    title: &Title,
    drawn: &Picture,
    columns: usize,
    rows: usize,
    out: &mut Out,
) -> Result<(), Failure> {
    heading(terminal, title, out)?;
    let raster = &drawn.raster;
    let by = (columns / raster.width.max(1)).min(2 * rows / raster.height().max(1)).min(MAX_BY);
    let fitted = if by > 1 { raster.enlarged(by, by) } else { raster.shrunk(columns, 2 * rows) };
    blocks(terminal, &fitted, out)?;
    let (low, high) = (units::number(drawn.scale.low), units::number(drawn.scale.high));
    if drawn.scale.low <= drawn.scale.high {
        let room = columns.saturating_sub(low.len() + high.len() + 2).min(RAMP);
        writeln!(out, "{low} {} {high}", ramp(terminal, &drawn.scale, room))?;
    }
    for note in &drawn.notes {
        for line in wrap(&terminal.text(note), columns) {
            writeln!(out, "{}", terminal.dim(line))?;
        }
    }
    Ok(())
}

/// The colours of a scale from low to high.
fn ramp(terminal: &Terminal, scale: &Scale, columns: usize) -> String {
    let last = columns.saturating_sub(1).max(1) as f64;
    let pixels = (0..columns).map(|x| scale.colour(scale.low + (scale.high - scale.low) * x as f64 / last));
    if terminal.has_colour() {
        return pixels.map(|pixel| half_block(Some(pixel), Some(pixel))).collect::<String>() + "\x1b[0m";
    }
    pixels.map(|pixel| shade(Some(pixel), Some(pixel), terminal.ascii)).collect()
}

/// The title's two parts, on one line where both fit.
fn heading(terminal: &Terminal, title: &Title, out: &mut Out) -> Result<(), Failure> {
    let (name, about) = (terminal.name(&title.name), terminal.text(&title.about));
    let fits = terminal.width.is_none_or(|most| width(&name) + 2 + width(&about) <= most);
    if fits {
        writeln!(out, "{}  {about}", terminal.strong(name))?;
        return Ok(());
    }
    writeln!(out, "{}", terminal.strong(name))?;
    for line in wrap(&about, terminal.width.unwrap_or(usize::MAX)) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Prints points, two rows a line.
fn blocks(terminal: &Terminal, raster: &Raster, out: &mut Out) -> Result<(), Failure> {
    let is_coloured = terminal.has_colour();
    for y in (0..raster.height()).step_by(2) {
        let pairs = (0..raster.width).map(|x| (raster.at(x, y), raster.at(x, y + 1)));
        if is_coloured {
            let line: String = pairs.map(|(upper, lower)| half_block(upper, lower)).collect();
            writeln!(out, "{line}\x1b[0m")?;
            continue;
        }
        let is_last = y + 1 == raster.height();
        let line: String =
            pairs.map(|(upper, lower)| shade(upper, if is_last { upper } else { lower }, terminal.ascii)).collect();
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Two points as one character in both colours; the background shows through where there is none.
fn half_block(upper: Option<[u8; 3]>, lower: Option<[u8; 3]>) -> String {
    let text = |[r, g, b]: [u8; 3]| format!("\x1b[38;2;{r};{g};{b}m");
    match (upper, lower) {
        (None, None) => "\x1b[0m ".to_owned(),
        (Some(upper), None) => format!("{}\x1b[49m▀", text(upper)),
        (None, Some(lower)) => format!("{}\x1b[49m▄", text(lower)),
        (Some(upper), Some([r, g, b])) => format!("{}\x1b[48;2;{r};{g};{b}m▀", text(upper)),
    }
}

/// The character for two points: darker points fill more of the cell. `?` is not finite.
fn shade(upper: Option<[u8; 3]>, lower: Option<[u8; 3]>, ascii: bool) -> char {
    if [upper, lower].contains(&Some(NOT_FINITE)) {
        return '?';
    }
    let light = |pixel: Option<[u8; 3]>| {
        let [r, g, b] = pixel.unwrap_or([255; 3]);
        299 * u32::from(r) + 587 * u32::from(g) + 114 * u32::from(b)
    };
    let light = (light(upper) + light(lower)) / 2000;
    let shades: &[char] = if ascii { &['@', '#', '*', '+', '-', '.', ' '] } else { &['█', '▓', '▒', '░', ' '] };
    shades[light as usize * shades.len() / 256]
}

/// Prints a histogram.
pub(super) fn bars(terminal: &Terminal, title: &Title, bins: Option<&Binned>, out: &mut Out) -> Result<(), Failure> {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 9] = [' ', '#', '#', '#', '#', '#', '#', '#', '#'];
    heading(terminal, title, out)?;
    let Some(bins) = bins else {
        writeln!(out, "no value is finite")?;
        return Ok(());
    };
    let most = bins.counts.iter().copied().max().unwrap_or(0).max(1);
    // The height of a bar in eighths of a row, rounded up: only an empty bin has none.
    let heights = bins
        .counts
        .iter()
        .map(|count| (u128::from(*count) * u128::from(8 * BAR_ROWS)).div_ceil(u128::from(most)) as u64);
    let heights: Vec<u64> = heights.collect();
    for row in (0..BAR_ROWS).rev() {
        let eighths = heights.iter().map(|height| height.saturating_sub(8 * row).min(8) as usize);
        let blocks = if terminal.ascii { &ASCII } else { &BLOCKS };
        let line: String = eighths.map(|eighths| blocks[eighths]).collect();
        writeln!(out, " {}", line.trim_end())?;
    }
    let (min, max) = (units::number(bins.min), units::number(bins.max));
    let rule = if terminal.ascii { "-" } else { "─" };
    writeln!(out, " {}", rule.repeat(bins.counts.len()))?;
    let room = bins.counts.len().saturating_sub(min.len());
    writeln!(out, " {min}{max:>room$}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dark_pixels_are_full_characters() {
        let both = |value: u8, ascii| shade(Some([value; 3]), Some([value; 3]), ascii);
        assert_eq!([both(0, false), both(255, false)], ['█', ' ']);
        assert_eq!([both(0, true), both(255, true)], ['@', ' ']);
        assert_eq!(shade(Some([0; 3]), Some([255; 3]), false), '▒');
        assert_eq!(shade(Some([0; 3]), None, false), '▒', "nothing is as light as white");
        assert_eq!(shade(Some([0; 3]), Some(NOT_FINITE), true), '?');
    }

    #[test]
    fn small_pictures_are_enlarged() {
        let raster = |width: usize, height: usize| Raster { width, pixels: vec![None; width * height] };
        for ((width, height), by) in
            [((25, 31), (25, 25)), ((500, 1), (1, 48)), ((1024, 3), (1, 16)), ((1, 1), (800, 800))]
        {
            assert_eq!(enlargement(&raster(width, height)), by, "{width}×{height}");
        }
    }
}
