//! What `mirror trash` prints.

use crate::output::json::bytes_text;
use crate::output::mirror::{complaint, line};
use crate::units::{show_bytes, show_counted, show_entries};
use driftless_engine::{Gone, Purged, Restored};
use driftless_model::{RelPath, escape, quote};
use serde_json::Value;
use std::path::Path;

/// Prints an entry that is in the trash of a replica.
pub fn gone(replica: &str, gone: &Gone, json: bool) {
    let (path, kind) = (gone.path.as_bytes(), gone.meta.kind.word());
    if !json {
        let size = show_bytes(gone.size.bytes);
        let more = match gone.size.entries {
            0 | 1 => String::new(),
            entries => format!(" in {}", show_entries(entries)),
        };
        let text = escape(path);
        return line(&format!("{}  {kind}, {size}{more}  {text}", gone.date));
    }
    let value = serde_json::json!({
        "replica": replica,
        "date": gone.date.to_string(),
        "since": gone.date.since_sec(),
        "until": gone.date.until_sec(),
        "kind": kind,
        "size": gone.meta.size,
        "entries": gone.size.entries,
        "bytes": gone.size.bytes,
    });
    line(&with_path(value, path).to_string());
}

/// Adds a path to an object.
fn with_path(mut value: Value, path: &[u8]) -> Value {
    let told = bytes_text(path);
    value["path"] = told.path.into();
    if let Some(base64) = told.path_base64 {
        value["path_base64"] = base64.into();
    }
    value
}

/// Prints what was brought back to a path below a place, from the trash of a tree. A restore with
/// problems is a complaint and no success.
pub fn restored(tree: &str, (to, place): (&RelPath, &Path), restored: &Restored, json: bool) {
    if json {
        line(&restored_json(tree, (to, place), restored).to_string());
    }
    if restored.problems > 0 {
        complaint(&with_problems((to, place), restored));
    } else if !json {
        restored_lines((to, place), restored)
            .iter()
            .for_each(|text| line(text));
    }
}

fn restored_json(tree: &str, (to, place): (&RelPath, &Path), restored: &Restored) -> Value {
    let (first, last) = restored.span.unzip();
    let value = serde_json::json!({
        "replica": tree,
        "place": place.to_string_lossy(),
        "entries": restored.entries,
        "pieces": restored.pieces,
        "dates": restored.dates,
        "first_date": first.map(|date| date.to_string()),
        "last_date": last.map(|date| date.to_string()),
        "stays": restored.stays,
        "older": restored.older,
        "made": restored.made,
        "problems": restored.problems,
    });
    with_path(value, to.as_bytes())
}

fn with_problems((to, place): (&RelPath, &Path), restored: &Restored) -> String {
    format!(
        "\"{}\": not all of it was restored to {}: {} came back, with {}; mend what is reported, and restore it again: the trash keeps all of it",
        escape(to.as_bytes()),
        quote(place),
        show_entries(restored.entries),
        show_counted(restored.problems, "problem", "problems"),
    )
}

fn restored_lines((to, place): (&RelPath, &Path), restored: &Restored) -> Vec<String> {
    let dates = match restored.span {
        Some((first, last)) if first != last => {
            let dates = show_counted(restored.dates, "date", "dates");
            format!(" of {dates}, {first} to {last}")
        }
        Some((date, _)) => format!(" of {date}"),
        None => String::new(),
    };
    let mut lines = vec![format!(
        "{} copied to \"{}\" in {}, from {}{dates}",
        show_entries(restored.entries),
        escape(to.as_bytes()),
        quote(place),
        show_counted(restored.pieces, "piece", "pieces"),
    )];
    let mut tell = |count: u64, text: &str| {
        if count > 0 {
            lines.push(format!("{} {text}", show_entries(count)));
        }
    };
    tell(
        restored.stays,
        "not copied: the name exists there, and stays",
    );
    tell(
        restored.older,
        "not copied: a newer one of the path was; --from DATE restores it",
    );
    if restored.made > 0 {
        lines.push(format!(
            "{} not in the trash: made anew, closed to other users",
            show_counted(restored.made, "directory", "directories")
        ));
    }
    lines
}

/// Prints what is gone for good from the trash of a tree.
pub fn purged(purged: &Purged, tree: &str) {
    for (path, fault) in &purged.stuck {
        let (path, act) = (escape(path.as_bytes()), fault.act.on_tree(tree));
        complaint(&format!("\"{path}\": cannot {act}: {}", fault.cause()));
    }
    line(&format!(
        "{} removed; {}, {} left",
        show_entries(purged.removed),
        show_entries(purged.left.entries),
        show_bytes(purged.left.bytes)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_engine::Date;

    #[test]
    fn restored_pieces_are_counted_with_their_dates() {
        let date = |text: &str| Date::parse(text.as_bytes()).expect("a date");
        let (first, last) = (date("2026-11-24T193000Z"), date("2026-11-24T193012.345Z"));
        let path = RelPath::parse(b"plans").expect("a path");
        let at = (&path, Path::new("data"));
        let mut restored = Restored {
            entries: 605,
            pieces: 1,
            dates: 1,
            span: Some((first, first)),
            ..Restored::default()
        };
        let told = restored_lines(at, &restored);
        let one = "605 entries copied to \"plans\" in \"data\", from 1 piece of 2026-11-24T193000Z";
        assert_eq!(told, [one]);
        (restored.pieces, restored.dates, restored.span) = (604, 2, Some((first, last)));
        (restored.stays, restored.older, restored.made) = (1, 2, 1);
        let told = restored_lines(at, &restored);
        assert!(
            told[0].ends_with(
                "from 604 pieces of 2 dates, 2026-11-24T193000Z to 2026-11-24T193012.345Z"
            ),
            "{told:?}"
        );
        let begins = ["605 ", "1 entry not ", "2 entries not ", "1 directory not "];
        assert_eq!(told.len(), begins.len());
        for (line, begin) in told.iter().zip(begins) {
            assert!(line.starts_with(begin), "{line}");
        }
        let value = restored_json("/copy", at, &restored);
        assert_eq!(value["last_date"], "2026-11-24T193012.345Z");
        assert_eq!(
            (&value["entries"], &value["stays"]),
            (&605.into(), &1.into())
        );
    }
}
