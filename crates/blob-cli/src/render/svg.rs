//! Draws histograms as SVG: a file of its own, or a part of an HTML page. Text from files is escaped.

use std::fmt::Write;

use blob_convert::stats::Binned;

use crate::escape::escape;
use crate::output::width::{cut, wrap};
use crate::units;

/// The size of the area of the bars.
const WIDTH: usize = 640;
const HEIGHT: usize = 240;

/// The space around a drawing, and the height of the two lines above.
pub(crate) const MARGIN: usize = 20;
const HEAD: usize = 56;

/// The height of a line of text.
const LINE: usize = 18;

/// The most characters of a name, and of a line of about the width of a histogram.
const LONGEST: usize = 72;
const IN_A_LINE: usize = 100;

/// The two lines above a picture.
pub(crate) struct Title {
    pub(crate) name: String,
    pub(crate) about: String,
}

/// A drawing without a title.
pub(crate) struct Drawing {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// The markup; the upper left corner is at 0, 0.
    pub(crate) markup: String,
}

/// An SVG file, which follows the viewer's light or dark theme: the title, the drawing, and notes below.
pub(crate) fn page(title: &Title, drawing: &Drawing, notes: &[String]) -> String {
    let lines: Vec<String> = notes.iter().flat_map(|note| wrap(note, IN_A_LINE)).collect();
    let width = drawing.width.max(WIDTH) + 2 * MARGIN;
    let height = HEAD + drawing.height + MARGIN + LINE * lines.len();
    let label = escape_markup(&format!("{}: {}", title.name, title.about));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"{label}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <style>svg{{color:#222;background:#fff}}\
         @media(prefers-color-scheme:dark){{svg{{color:#ddd;background:#16181c}}}}text{{fill:currentColor}}\
         .bar{{fill:#3b6ea5}}.axis{{stroke:currentColor;opacity:.4}}</style>\n"
    );
    let name = escape_markup(&cut(&title.name, LONGEST, false));
    let _ = writeln!(text, "<text x=\"{MARGIN}\" y=\"24\" font-weight=\"bold\">{name}</text>");
    let _ = writeln!(text, "<text x=\"{MARGIN}\" y=\"44\">{}</text>", escape_markup(&title.about));
    let _ = writeln!(text, "<g transform=\"translate({MARGIN} {HEAD})\">{}</g>", drawing.markup);
    for (number, line) in lines.iter().enumerate() {
        let y = HEAD + drawing.height + LINE * (number + 1);
        let _ = writeln!(text, "<text x=\"{MARGIN}\" y=\"{y}\" opacity=\".7\">{}</text>", escape_markup(line));
    }
    text + "</svg>\n"
}

/// A histogram with an axis: the range of the values, 0 if in the range, and the most values of a bin.
pub(crate) fn histogram(bins: Option<&Binned>) -> Drawing {
    let Some(bins) = bins else {
        let markup = "<text x=\"0\" y=\"24\">no value is finite</text>".to_owned();
        return Drawing { width: WIDTH, height: 2 * LINE, markup };
    };
    let (base, below) = (HEIGHT + 1, HEIGHT + 20);
    let mut markup = bars(bins, WIDTH, HEIGHT);
    let most = bins.counts.iter().copied().max().unwrap_or(0);
    let _ = write!(markup, "<path class=\"axis\" d=\"M0 {base}h{WIDTH}\"/>");
    let _ = write!(markup, "<text x=\"0\" y=\"{below}\">{}</text>", units::number(bins.min));
    let _ = write!(markup, "<text x=\"{WIDTH}\" y=\"{below}\" text-anchor=\"end\">{}</text>", units::number(bins.max));
    let zero = -bins.min / (bins.max - bins.min) * WIDTH as f64;
    // Near an end the label would meet the other one.
    if zero > 90.0 && zero < WIDTH as f64 - 90.0 {
        let _ = write!(markup, "<path class=\"axis\" d=\"M{zero:.1} {base}v5\"/>");
        let _ = write!(markup, "<text x=\"{zero:.1}\" y=\"{below}\" text-anchor=\"middle\">0</text>");
    }
    let per_bin = format!("{} at most in each of {} bins", units::plural(most, "value"), bins.counts.len());
    let line = below + LINE;
    let _ = write!(markup, "<text x=\"0\" y=\"{line}\" opacity=\".7\">{per_bin}</text>");
    Drawing { width: WIDTH, height: line + 4, markup }
}

/// The bars alone, as one path: a report has thousands of histograms, and a path is small.
pub(crate) fn bars(bins: &Binned, width: usize, height: usize) -> String {
    let most = bins.counts.iter().copied().max().unwrap_or(0).max(1);
    let wide = width as f64 / bins.counts.len().max(1) as f64;
    let mut path = String::new();
    for (i, count) in bins.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        // Even a single value is visible.
        let high = (*count as f64 / most as f64 * height as f64).max(1.0);
        let (left, wide) = (i as f64 * wide, (wide - 0.5).max(0.5));
        let _ = write!(path, "M{left:.1} {height}h{wide:.1}v-{high:.1}h-{wide:.1}z");
    }
    format!("<path class=\"bar\" d=\"{path}\"/>")
}

/// Escapes text from a file: for markup, and characters that would move other text.
pub(crate) fn escape_markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in escape(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        let title = Title { name: "</text><script>a&b\"'\u{202e}".to_owned(), about: "x".to_owned() };
        let page = page(&title, &histogram(None), std::slice::from_ref(&title.name));
        assert!(page.contains("&lt;/text&gt;&lt;script&gt;a&amp;b&quot;&#39;\\u{202e}"), "{page}");
        assert!(!page.contains("<script"));
    }

    #[test]
    fn every_bin_that_is_not_empty_has_a_bar() {
        let bins = |counts: &[u64]| {
            let file = blob_io::Checkpoint::from_bytes("x.npy", npy(counts)).unwrap();
            blob_convert::stats::measure(&file, &file.entries()[0], Some(counts.len()), &blob_convert::Silent).unwrap()
        };
        let measured = bins(&[1, 0, 1000]);
        let bars = bars(measured.histogram.as_ref().unwrap(), 30, 10);
        assert_eq!(bars, "<path class=\"bar\" d=\"M0.0 10h9.5v-1.0h-9.5zM20.0 10h9.5v-10.0h-9.5z\"/>");
    }

    /// An npy file of u8 that has `counts[i]` values of `i`.
    fn npy(counts: &[u64]) -> Vec<u8> {
        let values: Vec<u8> = counts.iter().zip(0..).flat_map(|(n, i)| vec![i; *n as usize]).collect();
        let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({},), }}\n", values.len());
        [&b"\x93NUMPY\x01\x00"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), &values].concat()
    }
}
