//! Progress bars on stderr. Where stderr is no terminal nothing is drawn.

use indicatif::{ProgressBar, ProgressStyle};

fn styled(bar: ProgressBar, what: &'static str, template: &str) -> ProgressBar {
    // A template that does not parse is a fault of ours; the plain bar shows as much.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
    bar.set_prefix(what);
    bar
}

/// Counts things; `total` where it is known.
pub(crate) fn items(total: Option<u64>, what: &'static str) -> ProgressBar {
    match total {
        Some(total) => styled(ProgressBar::new(total), what, "{prefix} {bar:30} {pos}/{len} {msg} {elapsed}"),
        None => styled(ProgressBar::new_spinner(), what, "{prefix} {spinner} {pos} {msg} {elapsed}"),
    }
}

/// Counts bytes; `total` where it is known.
pub(crate) fn bytes(total: Option<u64>, what: &'static str) -> ProgressBar {
    match total {
        Some(total) => styled(
            ProgressBar::new(total),
            what,
            "{prefix} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {msg} {elapsed}",
        ),
        None => styled(ProgressBar::new_spinner(), what, "{prefix} {spinner} {bytes} {bytes_per_sec} {msg} {elapsed}"),
    }
}
