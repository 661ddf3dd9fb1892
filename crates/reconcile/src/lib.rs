//! Pure decisions: what differs, what to do about it, how to cut work, what may be deleted.
//!
//! Values go in and values come out; nothing here makes a system call, so every rule can be tested
//! by a table.

mod compare;
mod fold;
mod guard;
mod index;
mod mark;
mod ranges;
mod times;
mod upstream;
mod words;

pub use compare::{
    Rules, Step, after_content, decide, differences, lacks_change_time, lends_rights, opens_more,
};
pub use fold::{
    Likeness, composed, fold, likeness, without, without_case, without_end, without_form,
};
pub use guard::{Guard, Refusal};
pub use index::NameIndex;
pub use mark::{EVER, Ending, Mark, SOMEBODY, Scope, Unsettled};
pub use ranges::{Fingerprint, Ranges, Resume};
pub use times::{Agreement, Grain, held_back, is_kept, may_cut, mtimes, ripens_in, step_of};
pub use upstream::{UPSTREAM_MAX, ring, upstream_by};
pub use words::values;
