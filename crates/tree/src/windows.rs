//! The names of a directory in windows, so that only one window of them is held at a time, however
//! many names there are.

use crate::{Dir, Done, Names};
use std::sync::Arc;

/// About so many names of one directory are held at a time.
pub const WINDOW_NAMES: usize = 16 * 1024;

/// Lists a directory, window by window. After an error no window follows.
pub fn windows<D: Dir + ?Sized>(dir: &Arc<D>) -> Done<impl Iterator<Item = Done<Names>> + use<D>> {
    let (mut stream, mut more) = (dir.list()?, true);
    Ok(std::iter::from_fn(move || {
        let mut names = Names::default();
        let filled = more.then(|| stream.fill(&mut names, WINDOW_NAMES))?;
        more = matches!(filled, Ok(true));
        Some(filled.map(|_| names))
    }))
}
