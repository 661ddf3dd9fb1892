//! A run that movers on other hosts share: what they are told, what they tell, and who may still
//! write.

pub mod batch;
pub mod brief;
pub mod coordinate;
pub mod encoding;
pub mod exchange;
pub mod give_back;
pub mod handed;
pub mod lease;
pub mod life;
pub mod message;
pub mod names;
pub mod noted;
pub mod plan;
pub mod role;
pub mod serve;
pub mod settled;
pub mod unfinished;
pub mod watcher;
pub mod work_off;
