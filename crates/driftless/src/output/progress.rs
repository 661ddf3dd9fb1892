//! Where a run stands, for a person: a bar at a terminal, a line now and then elsewhere, and
//! whenever SIGUSR1 asks.

use crate::signals;
use crate::units::{show_bytes, show_count, show_counted, show_entries};
use driftless_engine::{Estimator, Progress};
use driftless_lock::Mutex;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use rustix::termios::tcgetwinsize;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Columns of the bar itself.
const BAR_COLUMNS: usize = 12;
/// Columns that a terminal has at least, as far as we know.
const COLUMNS_MIN: usize = 40;
/// Between two lines where there is no terminal.
const PAUSE: Duration = Duration::from_secs(60);

/// When it is told where a run stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum When {
    /// By a bar at a terminal, elsewhere by a line a minute.
    #[default]
    Auto,
    /// When SIGUSR1 asks, and else never.
    Never,
    /// By a line after each pause, at a terminal, too.
    Every(Duration),
}

impl When {
    /// `auto`, `never` or a number of seconds.
    pub fn parse(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("auto", _) => Ok(When::Auto),
            ("never", _) => Ok(When::Never),
            (_, Ok(seconds @ 1..)) => Ok(When::Every(Duration::from_secs(seconds))),
            _ => Err("\"auto\", \"never\" or a number of seconds is expected".into()),
        }
    }
}

/// Tells where a run stands.
pub struct Standing {
    bar: Option<ProgressBar>,
    /// Between two lines.
    pause: Option<Duration>,
    told: Mutex<Instant>,
    estimator: Mutex<Estimator>,
}

impl Standing {
    /// Prepares the terminal. A `silent` run tells only when it is asked.
    pub fn new(when: When, silent: bool) -> Self {
        let at_terminal = io::stderr().is_terminal();
        let pause = match when {
            _ if silent => None,
            When::Auto => (!at_terminal).then_some(PAUSE),
            When::Never => None,
            When::Every(pause) => Some(pause),
        };
        let bar = (when == When::Auto && at_terminal && !silent).then(new_bar);
        Standing {
            bar,
            pause,
            told: Mutex::new(Instant::now()),
            estimator: Mutex::default(),
        }
    }

    /// Writes something while the bar is out of the way.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Leaves the terminal as it was.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Takes a look at the run in account, and returns the seconds that it will still take, as far
    /// as they are known.
    pub fn seconds_left(&self, progress: &Progress) -> Option<f64> {
        self.estimator.lock().see(progress)
    }

    /// Shows how far it is; the share is not always known. What matters most comes first in
    /// `parts`.
    pub fn show(&self, share: Option<f64>, parts: &[String]) {
        if let Some(bar) = &self.bar {
            bar.set_position((share.unwrap_or(0.0) * 1000.0) as u64);
            bar.set_message(fitting(parts, columns().saturating_sub(BAR_COLUMNS + 2)));
        }
        let is_due = self
            .pause
            .is_some_and(|pause| self.told.lock().elapsed() >= pause);
        if is_due || signals::was_asked() {
            *self.told.lock() = Instant::now();
            let share = share
                .map(|share| format!("{:.0} % done, ", share * 100.0))
                .unwrap_or_default();
            self.aside(|| eprintln!("driftless: {share}{}", parts.join(", ")));
        }
    }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(
        Some(1000),
        ProgressDrawTarget::term_like_with_hz(Box::new(Terminal), 10),
    );
    let style = ProgressStyle::with_template(&format!("{{bar:{BAR_COLUMNS}}} {{msg}}"))
        .expect("the template is right");
    bar.set_style(style.progress_chars("=> "));
    bar
}

/// The terminal of standard error. The library itself asks standard output for the width, which may
/// go elsewhere, and then takes one that is too large.
#[derive(Debug)]
struct Terminal;

impl Terminal {
    fn write(&self, text: &str) -> io::Result<()> {
        io::stderr().write_all(text.as_bytes())
    }

    /// Moves the cursor, if at all (ECMA-48, CUU, CUD, CUF, CUB).
    fn go(&self, steps: usize, sign: char) -> io::Result<()> {
        if steps == 0 {
            Ok(())
        } else {
            self.write(&format!("\x1b[{steps}{sign}"))
        }
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        u16::try_from(columns()).unwrap_or(u16::MAX)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.go(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.go(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.go(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.go(n, 'D')
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        self.write(&format!("{s}\n"))
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        self.write(s)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.write("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Columns of the terminal, which may be another size each time.
fn columns() -> usize {
    let columns = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 {
        80
    } else {
        columns.max(COLUMNS_MIN)
    }
}

/// As many of the parts, from the first, as there is room for.
fn fitting(parts: &[String], columns: usize) -> String {
    let mut line = String::new();
    for part in parts {
        let separator = if line.is_empty() { "" } else { ", " };
        if line.len() + separator.len() + part.len() > columns {
            break;
        }
        line.push_str(separator);
        line.push_str(part);
    }
    line
}

/// Where a run stands, what matters most first. `done` and `bytes`: what is done with content, and
/// with how much of it so far.
pub fn parts(
    progress: &Progress,
    seconds_left: Option<f64>,
    (done, bytes): (&str, u64),
) -> Vec<String> {
    let counts = &progress.counts;
    let seconds = progress.elapsed.as_secs_f64().max(0.001);
    let left = seconds_left.map_or("time left unknown".into(), |left| {
        format!("about {} left", shown(left))
    });
    let per_second = |count: u64| (count as f64 / seconds) as u64;
    vec![
        left,
        show_entries(counts.seen),
        format!("{} {done}", show_bytes(bytes)),
        format!("{}/s", show_bytes(per_second(bytes))),
        format!("{} entries/s", show_count(per_second(counts.seen))),
        show_counted(progress.jobs as u64, "thread", "threads"),
    ]
}

/// Seconds in words; an estimate may be beyond all bounds.
fn shown(seconds: f64) -> String {
    const CENTURY: f64 = 3.2e9;
    HumanDuration(Duration::from_secs_f64(seconds.clamp(0.0, CENTURY))).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_engine::{Counts, LargeFiles};

    #[test]
    fn the_line_fits_any_terminal_and_begins_with_the_time_left() {
        let counts = Counts {
            seen: 9_876_543_210,
            bytes_copied: 1 << 60,
            ..Counts::default()
        };
        let progress = Progress {
            counts,
            elapsed: Duration::from_secs(3),
            large: LargeFiles::default(),
            jobs: 1024,
        };
        let parts = parts(&progress, Some(1e30), ("copied", counts.bytes_copied));
        for columns in COLUMNS_MIN..300 {
            let line = fitting(&parts, columns - BAR_COLUMNS - 2);
            assert!(line.len() + BAR_COLUMNS + 1 < columns, "{columns}: {line}");
            assert!(
                columns < 60 || line.starts_with("about ") && line.contains("entries"),
                "{columns}: {line}"
            );
        }
    }

    #[test]
    fn it_is_told_never_or_after_pauses() {
        assert_eq!(
            (When::parse("auto"), When::parse("never")),
            (Ok(When::Auto), Ok(When::Never))
        );
        assert_eq!(When::parse("90"), Ok(When::Every(Duration::from_secs(90))));
        assert!(
            When::parse("0").is_err()
                && When::parse("-1").is_err()
                && When::parse("often").is_err()
        );
    }
}
