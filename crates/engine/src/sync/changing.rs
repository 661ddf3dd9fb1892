//! Entries of the source that do not come to rest.

use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use driftless_model::{Act, Class, Meta, Problem, RelPath, Side};
use driftless_tree::Done;
use std::ffi::CStr;

/// Looks at an entry that tell its own changes from stamps of its file system.
const LOOKS: usize = 3;

const CHANGES: &str = "it keeps changing";
const STAMPED: &str = "its file system stamps it with another time of change at each look, so nothing shows that it is at rest; copy it where it is stored";

impl Worker<'_> {
    /// Reports that a file of the source does not come to rest.
    pub fn report_changing(&self, visit: &Visit, name: &CStr) {
        let look = || visit.source.open_file(name)?.meta_again();
        self.report_unrest(visit.path_of(name), look);
    }

    /// Reports that a directory of the source does not come to rest.
    pub fn report_changing_dir(&self, visit: &Visit) {
        self.report_unrest(visit.path(), || visit.source.meta_again());
    }

    fn report_unrest(&self, path: RelPath, look: impl Fn() -> Done<Meta>) {
        let cause = if is_stamped(look) { STAMPED } else { CHANGES };
        self.run.report(&Problem {
            path,
            side: Side::Source,
            act: Act::CopyConsistent,
            cause: cause.into(),
            class: Class::Changing,
        });
    }
}

/// Returns whether looks that follow each other at once differ in the time of change, and in nothing
/// else.
fn is_stamped(look: impl Fn() -> Done<Meta>) -> bool {
    let looks: Done<Vec<Meta>> = (0..LOOKS).map(|_| look()).collect();
    let differs = |pair: &[Meta]| {
        let (first, later) = (pair[0], pair[1]);
        let ctime = first.ctime;
        ctime != later.ctime && first.unchanged(&Meta { ctime, ..later })
    };
    looks.is_ok_and(|looks| looks.windows(2).all(differs))
}
