//! What may differ when a message is heard.
//!
//! Nothing that the message tells is done: the paths that it names are looked at. It is told a
//! little more than it says, since posters do not tell everything: a hard link may be announced as
//! a rename, a directory that was removed as a file, one that was renamed as removed; and the times
//! of the directory above are never announced.

use crate::base::BaseUrl;
use crate::message::{Message, path};
use crate::operation::Operation;
use driftless_model::{Change, Hint, RelPath, Scope};

/// What may differ below `base`, in the order in which it is to be heard: a move before what stands
/// at its old path. Empty if the message is about another tree.
///
/// Base URLs need not be written alike: `file:/` with the path `src/tree/a` is `a` of
/// `file:/src/tree`.
pub fn changes_of(message: &Message, base: &BaseUrl) -> Vec<Change> {
    let mut told = Told::default();
    if !message.base_url.is_beside(base) {
        return told.changes;
    }
    let place = |path: &RelPath| base.below(&message.base_url.absolute(path));
    let other = |path: Option<&[u8]>| other_path(path?, message, base);
    let here = place(&message.rel_path);
    let nothing = Operation::default();
    let operation = message.file_op.as_ref().unwrap_or(&nothing);
    let (here, old) = match other(new_name(message, operation)) {
        Some(new) => (Some(new), here),
        None => (here, other(operation.rename.as_deref())),
    };
    let scope = scope(message, operation);
    let old = old.filter(|old| Some(old) != here.as_ref());
    if let Some(path) = here.clone() {
        let hint = old.clone().map(Hint::MovedFrom);
        told.tell(Change { path, scope, hint });
    }
    if let Some(path) = old.clone() {
        // It is gone, or was never renamed.
        let hint = None;
        told.tell(Change { path, scope, hint });
    }
    let fetched = message.retrieve_path.as_ref();
    let fetched = fetched.and_then(|text| path("retrievePath", text.as_bytes()).ok());
    let further = [
        other(operation.hlink.as_deref()),
        fetched.as_ref().and_then(place),
    ];
    let further = further.into_iter().flatten();
    further.for_each(|path| told.tell(Change::entry(path)));
    for (directory, _) in [here, old].iter().flatten().filter_map(RelPath::split_last) {
        told.tell(Change::entry(directory));
    }
    told.changes
}

/// Where an entry went that was removed from its path: what `sr3 watch` tells of a directory that
/// was renamed is that, and the new name of one entry in it.
fn new_name<'m>(message: &'m Message, operation: &Operation) -> Option<&'m [u8]> {
    let name = message.others.get("newname").filter(|_| operation.remove);
    name?.as_str().map(str::as_bytes)
}

/// How far below the path something may differ.
fn scope(message: &Message, operation: &Operation) -> Scope {
    let is_file = message.size.is_some() || message.identity.is_some();
    let is_no_directory = is_file || operation.link.is_some() || operation.hlink.is_some();
    if message.is_below || operation.remove || (operation.rename.is_some() && !is_no_directory) {
        Scope::Subtree
    } else {
        Scope::Entry
    }
}

/// Another path of the message, told from the tree: an absolute one on the host; one that goes up
/// from the directory of the entry (`../`); else one below the base URL. `None` if it is elsewhere.
fn other_path(text: &[u8], message: &Message, base: &BaseUrl) -> Option<RelPath> {
    let below = |path: &RelPath| base.below(&message.base_url.absolute(path));
    if text.starts_with(b"/") {
        let absolute = path("fileOp", text).ok()?;
        return base.below(&absolute).or_else(|| below(&absolute));
    }
    if text == b".." || text.starts_with(b"../") {
        return below(&climbed(text, &message.rel_path)?);
    }
    below(&path("fileOp", text).ok()?)
}

/// A path that goes up from the directory that holds `from`; `None` if it leads out of the tree.
fn climbed(text: &[u8], from: &RelPath) -> Option<RelPath> {
    let (mut directory, _) = from.split_last()?;
    let mut rest = text;
    while let Some(after) = rest.strip_prefix(b"../") {
        (directory, _) = directory.split_last()?;
        rest = after;
    }
    let rest = RelPath::parse(rest).ok()?;
    Some(rest.rebased(&RelPath::root(), &directory))
}

/// Changes, each once.
#[derive(Default)]
struct Told {
    changes: Vec<Change>,
}

impl Told {
    fn tell(&mut self, change: Change) {
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
    }
}
