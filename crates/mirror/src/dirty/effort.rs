//! How much may be done to follow what renames take with them. Among few names that change places
//! hundreds of times, each rename would take along what every one before it has left, and that
//! doubles each few renames. So what is done to follow them is bounded by what was told; where that
//! is used up, all below the names in question is looked at instead.

/// Steps that may be taken without anything that was told: each is a path that is put elsewhere, or
/// a rename that is looked at.
const STEPS_MAX: usize = 10_000;
/// Steps for each change that is told.
const STEPS_PER_CHANGE: usize = 4;

/// Steps that may be taken.
#[derive(Debug)]
pub(super) struct Effort {
    left: usize,
    max: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Effort::at_most(STEPS_MAX)
    }
}

impl Effort {
    /// So many at once.
    pub(super) fn at_most(max: usize) -> Effort {
        Effort { left: max, max }
    }

    /// A change was told.
    pub(super) fn told(&mut self) {
        self.left = self.max.min(self.left + STEPS_PER_CHANGE);
    }

    /// Nothing that was told before matters any more.
    pub(super) fn renew(&mut self) {
        self.left = self.max;
    }

    /// How many are left.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Takes so many; whether they were left. If not, none is afterwards.
    pub(super) fn spend(&mut self, steps: usize) -> bool {
        let is_enough = steps <= self.left;
        self.left = self.left.saturating_sub(steps);
        is_enough
    }
}
