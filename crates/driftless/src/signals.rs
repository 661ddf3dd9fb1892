//! Ctrl-C and the like: the first asks the run to stop cleanly, the second ends the process at
//! once.
//!
//! One press may be heard twice: timeout(1) sends its signal to the command and then to the
//! command's process group, and whoever passes a terminal's signal on does so beside the terminal.
//!
//! Batch systems warn a job before they kill it: Slurm with the signal of `--signal`, Grid Engine with
//! SIGUSR2 (`qsub -notify`), the kernel with SIGXCPU each second (setrlimit(2)). A warning stops the
//! run as well, and never ends the process at once, however often it comes.
//!
//! A signal that was ignored when the program began stays ignored: whoever started it so (nohup(1),
//! a shell for what runs in the background) wants it to outlive the terminal.

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
use signal_hook::iterator::Signals as Arriving;
use signal_hook::{flag, low_level};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Signals that follow the first within this time are the same press: longer than a program needs
/// to send one twice, shorter than a person takes to ask again.
const SAME_PRESS: Duration = Duration::from_millis(300);

/// Signals that announce the end of a job.
const WARNINGS: [i32; 2] = [SIGUSR2, SIGXCPU];

/// What a signal has said so far.
#[derive(Clone)]
pub struct Signals {
    /// Set by the first signal.
    pub stop: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
}

/// Starts to watch for signals.
pub fn watch() -> Signals {
    let signals = Signals {
        stop: Arc::default(),
        number: Arc::default(),
    };
    let ignored = ignored();
    let heeded = [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .chain(WARNINGS)
        .filter(|signal| !has(ignored, *signal));
    let heeding = signals.clone();
    let watching = Arriving::new(heeded).and_then(|mut arriving| {
        Builder::new()
            .name("signals".into())
            .spawn(move || heeding.heed(arriving.forever()))
    });
    if let Err(error) = watching {
        eprintln!("driftless: signals cannot be caught: {error}");
    }
    signals
}

/// Has a file that grows beyond the limit of this process (`ulimit -f`) end in an error of that
/// file (EFBIG), not in the end of everything: what SIGXFSZ does where nobody listens
/// (setrlimit(2)).
pub fn outlive_file_limits() {
    let _without_it_the_limit_ends_the_run = flag::register(Signal::XFSZ.as_raw(), Arc::default());
}

/// Set when SIGUSR1 has asked where the run stands.
static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Has SIGUSR1 ask where a run stands, instead of ending it.
pub fn hear_questions() {
    let _without_it_the_signal_ends_the_run = flag::register(SIGUSR1, ASKED.clone());
}

/// Whether it was asked where the run stands; once for each time.
pub fn was_asked() -> bool {
    ASKED.swap(false, Relaxed)
}

/// The signals that are ignored, a bit each (proc(5): SigIgn).
fn ignored() -> u64 {
    #[allow(
        clippy::disallowed_methods,
        reason = "a word of the kernel, no part of a replicated tree"
    )]
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn has(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}

impl Signals {
    /// Has the first of these signals stop the run, and the next press end the process. Warnings
    /// are no presses.
    fn heed(&self, arriving: impl Iterator<Item = i32>) {
        let mut pressed: Option<Instant> = None;
        for signal in arriving {
            if self.number() == 0 {
                self.number.store(signal as usize, Relaxed);
                self.stop.store(true, Relaxed);
            }
            match pressed {
                _ if WARNINGS.contains(&signal) => {}
                None => pressed = Some(Instant::now()),
                Some(when) if when.elapsed() < SAME_PRESS => {}
                Some(_) => low_level::exit(128 + signal),
            }
        }
    }

    /// The number of the signal that came; 0 if none has.
    pub fn number(&self) -> u8 {
        u8::try_from(self.number.load(Relaxed)).unwrap_or(0)
    }
}
