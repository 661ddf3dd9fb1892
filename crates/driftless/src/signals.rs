//! Ctrl-C and the like: the first asks the run to stop cleanly, the second ends the process at once.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// What a signal has said so far.
pub struct Signals {
    /// Set by the first signal.
    pub stop: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
}

/// Starts to watch for signals.
pub fn watch() -> Signals {
    let signals = Signals { stop: Arc::default(), number: Arc::default() };
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Registered in this order, the second signal finds the flag set and ends the process.
        let ends = flag::register_conditional_shutdown(signal, 128 + signal, signals.stop.clone());
        let notes = flag::register_usize(signal, signals.number.clone(), signal as usize);
        let stops = flag::register(signal, signals.stop.clone());
        if ends.and(notes).and(stops).is_err() {
            eprintln!("driftless: signal {signal} cannot be caught: it will end the run at once");
        }
    }
    signals
}

impl Signals {
    /// The number of the signal that came.
    pub fn number(&self) -> u8 {
        u8::try_from(self.number.load(Relaxed)).unwrap_or(0)
    }
}
