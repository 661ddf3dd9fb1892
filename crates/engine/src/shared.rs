//! A run that movers on other hosts share: what they are told, what they tell, and who may still write.

pub mod brief;
pub mod coordinate;
pub mod exchange;
pub mod facts;
pub mod lease;
pub mod life;
pub mod message;
pub mod part;
pub mod plan;
pub mod sample;
pub mod serve;
pub mod settled;
pub mod share;
pub mod watcher;
pub mod work_off;
