//! Destinations to which results are copied at this moment.
//!
//! `driftless sync` refuses a destination at which another run works, or that lies in or above one. The
//! nodes of a job often share a destination. So their runs come one after the other.

use driftless_lock::Mutex;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Pause between two attempts.
const TICK: Duration = Duration::from_millis(5);

/// Destinations to which results are copied at this moment.
#[derive(Debug, Default)]
pub(crate) struct BusyPlaces(Mutex<Vec<(u32, PathBuf)>>);

/// A destination that is taken until the value is dropped.
#[derive(Debug)]
pub(crate) struct TakenPlace<'a> {
    places: &'a BusyPlaces,
    place: (u32, &'a Path),
}

impl BusyPlaces {
    /// Takes a destination for a run of a user. Waits until no other one of this user is taken that is the
    /// same, or lies in or above it. Returns `None` if `stop` is set before. A user can stop the own
    /// runs, and holds up no other user by that.
    pub fn take<'a>(&'a self, place: (u32, &'a Path), stop: &AtomicBool) -> Option<TakenPlace<'a>> {
        while !self.try_take(place) {
            if stop.load(Relaxed) {
                return None;
            }
            thread::sleep(TICK);
        }
        Some(TakenPlace {
            places: self,
            place,
        })
    }

    fn try_take(&self, (uid, path): (u32, &Path)) -> bool {
        let mut taken = self.0.lock();
        let overlaps = |(owner, other): &(u32, PathBuf)| {
            *owner == uid && (other.starts_with(path) || path.starts_with(other))
        };
        let is_free = !taken.iter().any(overlaps);
        if is_free {
            taken.push((uid, path.to_owned()));
        }
        is_free
    }
}

impl Drop for TakenPlace<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock();
        let (uid, path) = self.place;
        taken.retain(|(owner, other)| *owner != uid || other != path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_places_are_taken_in_turn() {
        let (places, stop) = (BusyPlaces::default(), AtomicBool::new(true));
        let is_free = |path: &str| places.take((1, Path::new(path)), &stop).is_some();
        let own = places.take((1, Path::new("/out/1")), &stop);
        assert!(own.is_some());
        for (path, expected) in [
            ("/out/1", false),
            ("/out", false),
            ("/out/1/n1", false),
            ("/out/10", true),
            ("/out/2", true),
        ] {
            assert_eq!(is_free(path), expected, "{path}");
        }
        let of_another = places.take((2, Path::new("/out")), &stop);
        assert!(of_another.is_some(), "of another user");
        drop(own);
        assert!(is_free("/out"));
    }

    #[test]
    fn run_waits_for_the_end_of_another_one() {
        let (places, stop) = (BusyPlaces::default(), AtomicBool::new(false));
        let own = places.take((1, Path::new("/out")), &stop);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| places.take((1, Path::new("/out/a")), &stop).is_some());
            assert!(!waiting.is_finished());
            drop(own);
            assert!(waiting.join().is_ok_and(|is_taken| is_taken));
        });
    }
}
