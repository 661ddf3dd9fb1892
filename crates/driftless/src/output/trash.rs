//! What `mirror trash` prints.

use crate::output::mirror::{complaint, line};
use crate::units::{show_bytes, show_entries};
use base64::prelude::{BASE64_STANDARD, Engine};
use driftless_engine::{Counts, Gone, Purged};
use driftless_model::{RelPath, escape, quote};
use std::path::Path;

/// Prints an entry that is in the trash of a replica.
pub fn gone(replica: &str, gone: &Gone, json: bool) {
    let (path, kind) = (gone.path.as_bytes(), gone.meta.kind.word());
    let text = escape(path);
    if !json {
        let size = show_bytes(gone.size.bytes);
        let more = match gone.size.entries {
            0 | 1 => String::new(),
            entries => format!(" in {}", show_entries(entries)),
        };
        return line(&format!("{}  {kind}, {size}{more}  {text}", gone.date));
    }
    let mut value = serde_json::json!({
        "replica": replica,
        "path": text,
        "date": gone.date.to_string(),
        "since": gone.date.since_sec(),
        "until": gone.date.until_sec(),
        "kind": kind,
        "size": gone.meta.size,
        "entries": gone.size.entries,
        "bytes": gone.size.bytes,
    });
    if text.as_bytes() != path {
        value["path_base64"] = BASE64_STANDARD.encode(path).into();
    }
    line(&value.to_string());
}

/// Prints what was brought back.
pub fn restored(to: &RelPath, place: &Path, counts: &Counts) {
    let entries = show_entries(counts.changed);
    line(&format!(
        "{entries} copied to \"{}\" in {}",
        escape(to.as_bytes()),
        quote(place)
    ));
}

/// Prints what is gone for good.
pub fn purged(purged: &Purged) {
    for (path, fault) in &purged.stuck {
        complaint(&format!("\"{}\": {fault}", escape(path.as_bytes())));
    }
    line(&format!(
        "{} removed; {}, {} left",
        show_entries(purged.removed),
        show_entries(purged.left.entries),
        show_bytes(purged.left.bytes)
    ));
}
