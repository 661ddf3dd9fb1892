//! Events as objects of JSON, one a line. The types, and so the fields, are those of the model's
//! events.

use base64::prelude::{BASE64_STANDARD, Engine};
use driftless_engine::{Counts, End};
use driftless_model::event::{Counters, PathText, Roots};
use driftless_model::{RelPath, escape, escape_json};
use driftless_tree::Endpoint;
use serde::Serialize;

/// An object as the line that is printed, its fields in the order of the alphabet.
pub fn line(event: &impl Serialize) -> String {
    escape_json(
        &serde_json::to_value(event)
            .expect("events have fields that JSON knows")
            .to_string(),
    )
}

/// Escaped text, and the bytes in base64 where the text does not say all.
fn text(bytes: &[u8]) -> (String, Option<String>) {
    let text = escape(bytes);
    let more = (text.as_bytes() != bytes).then(|| BASE64_STANDARD.encode(bytes));
    (text, more)
}

/// A path as it is told.
pub fn path_text(path: &RelPath) -> PathText {
    let (path, path_base64) = if path.is_root() {
        (".".to_owned(), None)
    } else {
        text(path.as_bytes())
    };
    PathText { path, path_base64 }
}

/// Both roots as they are told.
pub fn roots(source: &Endpoint, replica: &Endpoint) -> Roots {
    let ((source, source_base64), (replica, replica_base64)) =
        (text(&source.to_bytes()), text(&replica.to_bytes()));
    Roots {
        source,
        source_base64,
        replica,
        replica_base64,
    }
}

/// Any path as it is told, whatever it is below.
pub fn bytes_text(path: &[u8]) -> PathText {
    let (path, path_base64) = text(path);
    PathText { path, path_base64 }
}

/// What was counted, as it is told.
pub fn counters(counts: &Counts) -> Counters {
    Counters {
        seen: counts.seen,
        same: counts.same,
        changed: counts.changed,
        skipped: counts.skipped(),
        skipped_filtered: counts.skipped_filtered,
        skipped_kind: counts.skipped_kind,
        skipped_other_file_system: counts.skipped_other_fs,
        skipped_vanished: counts.skipped_vanished,
        failed: counts.failed,
        problems: counts.problems(),
        deleted: counts.deleted,
        respelt: counts.respelt,
        only_on_replica: counts.only_on_replica,
        bytes_copied: counts.bytes_copied,
        bytes_resumed: counts.bytes_resumed,
        bytes_compared: counts.bytes_compared,
        unkept_owners: counts.unkept_owners,
        unkept_privileges: counts.unkept_privileges,
        unkept_links: counts.unkept_links,
        unkept_flags: counts.unkept_flags,
        unkept_acls: counts.unkept_acls,
        known_equal: counts.known_equal,
        oldest_note_seconds: counts.oldest_note_seconds,
        mismatched: counts.mismatched,
        times_cut: counts.times_cut_fine + counts.times_cut_seconds,
        times_cut_to_seconds: counts.times_cut_seconds,
    }
}

/// How a run ended, for a program.
pub fn end_words(end: &End) -> (&'static str, Option<&str>) {
    match end {
        End::Complete => ("complete", None),
        End::Stopped => ("stopped", None),
        End::Lost => ("lost", None),
        End::CutOff(why) => ("cut_off", Some(why)),
        End::Refused(why) => ("refused", Some(why)),
        End::NoPlan(why) => ("no_plan", Some(why)),
    }
}
