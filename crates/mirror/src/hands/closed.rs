//! A replica that is closed to others while nothing is done there.

use super::Hands;
use driftless_detect::snapshot::Provider;
use driftless_lock::Mutex;

impl Hands {
    /// The same with somebody who opens the replica and, if it `closes`, closes it to others while
    /// nothing is done there.
    #[must_use]
    pub fn kept_by(mut self, keeper: Option<Box<dyn Provider>>, closes: bool) -> Hands {
        self.keeper = keeper.map(Mutex::new);
        self.closes = closes;
        self
    }

    /// Closes the replica to others, or opens it.
    ///
    /// # Errors
    /// Why not, for a person.
    pub fn close_replica(&self, is_closed: bool) -> Result<(), String> {
        let Some(keeper) = self.keeper.as_ref().filter(|_| self.closes || !is_closed) else {
            return Ok(());
        };
        let done = keeper.lock().set_read_only(is_closed);
        done.map_err(|error| error.to_string())
    }
}
