//! What comes of shares, as the record of a run keeps it.

use crate::monitor::Monitor;
use crate::shared::facts::{Noted, decoded, encoded, fact, keyed};
use crate::shared::names::{note_alike, note_misspelt};
use crate::shared::share::{Outcome, Piece, Share};
use crate::shared::unfinished::{Listed, Unfinished};
use driftless_model::{EntryName, RelPath};
use driftless_reconcile::{Fingerprint, Ranges};
use driftless_state::Batch;
use serde::{Deserialize, Serialize};

/// A large file whose bytes are copied by several movers: what was copied, and how many pieces are open.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Divided {
    path: RelPath,
    source: Fingerprint,
    copied: Ranges,
    pieces: u64,
    class: u8,
    alone: bool,
}

/// Adds open shares.
pub fn add_shares(batch: &Batch<'_>, shares: &[Share]) -> Noted<()> {
    shares.iter().try_for_each(|share| batch.add_item(&encoded(share)).map(drop))
}

/// Notes what came of a share. What is left for others goes to `rest`.
pub fn note_outcome(batch: &Batch<'_>, outcome: Outcome, monitor: &dyn Monitor, rest: &mut Vec<(u8, Piece)>) -> Noted<()> {
    outcome.done.into_iter().for_each(|done| monitor.receipt(&done.into()));
    outcome.problems.iter().for_each(|problem| monitor.problem(problem));
    outcome.unkept.iter().for_each(|(what, path)| monitor.unkept(*what, path));
    for link in outcome.links {
        let key = [&link.id.0.to_be_bytes()[..], &link.id.1.to_be_bytes(), &keyed(&link.path)].concat();
        batch.put(fact::LINK, &key, &encoded(&(link.size, link.there)))?;
    }
    for extra in outcome.extras {
        let first = extra.1.first().map_or(&b""[..], EntryName::as_bytes);
        batch.put(fact::EXTRA, &[&keyed(&extra.0), &b"\0"[..], first].concat(), &encoded(&extra))?;
    }
    for path in outcome.no_room {
        batch.put(fact::NO_ROOM, &keyed(&path), &encoded(&path))?;
    }
    for path in outcome.mounts {
        batch.put(fact::MOUNT, &keyed(&path), b"")?;
    }
    note_alike(batch, &outcome.alike)?;
    note_misspelt(batch, &outcome.misspelt)?;
    for (path, left) in outcome.unfinished {
        let held = batch.get(fact::DIR, &keyed(&path))?.and_then(|held| decoded(&held));
        batch.put(fact::DIR, &keyed(&path), &encoded(&held.map_or(left, |held| joined(held, left))))?;
    }
    for (path, source, copied) in outcome.copied {
        change_divided(batch, &path, &source, |file| copied.iter().for_each(|range| file.copied.add(range.clone())))?;
    }
    rest.extend(outcome.rest);
    Ok(())
}

/// Counts the pieces of large files: those that are settled, and those that are new. A file none of whose pieces is open any more is a
/// piece of its own again.
pub fn settle_pieces(batch: &Batch<'_>, share: &Share, rest: &mut Vec<(u8, Piece)>) -> Noted<()> {
    for (class, piece) in rest.iter() {
        if let Piece::Bytes(path, source, _) = piece {
            let new = Divided {
                path: path.clone(),
                source: source.clone(),
                copied: Ranges::default(),
                pieces: 0,
                class: *class,
                alone: share.alone,
            };
            let held = batch.get(fact::FILE, &file_key(path, source))?.and_then(|held| decoded::<Divided>(&held)).unwrap_or(new);
            batch.put(fact::FILE, &file_key(path, source), &encoded(&Divided { pieces: held.pieces + 1, ..held }))?;
        }
    }
    let settled: Vec<(RelPath, Fingerprint)> = share
        .pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Bytes(path, source, _) => Some((path.clone(), source.clone())),
            _ => None,
        })
        .collect();
    for (path, source) in settled {
        change_divided(batch, &path, &source, |file| file.pieces = file.pieces.saturating_sub(1))?;
        let key = file_key(&path, &source);
        let held = batch.get(fact::FILE, &key)?.and_then(|held| decoded::<Divided>(&held));
        if let Some(file) = held.filter(|file| file.pieces == 0) {
            batch.take(fact::FILE, &key)?;
            rest.push((file.class, Piece::Rest(file.path, file.source, file.copied)));
        }
    }
    Ok(())
}

fn file_key(path: &RelPath, source: &Fingerprint) -> Vec<u8> {
    [keyed(path), vec![0], encoded(source)].concat()
}

fn change_divided(batch: &Batch<'_>, path: &RelPath, source: &Fingerprint, change: impl FnOnce(&mut Divided)) -> Noted<()> {
    let key = file_key(path, source);
    let Some(mut file) = batch.get(fact::FILE, &key)?.and_then(|held| decoded::<Divided>(&held)) else { return Ok(()) };
    change(&mut file);
    batch.put(fact::FILE, &key, &encoded(&file))
}

/// Of what two movers say of a directory that they left, what holds.
pub fn joined(one: Unfinished, other: Unfinished) -> Unfinished {
    let listed = match (one.listed, other.listed) {
        (Listed::InPart, listed) | (listed, Listed::InPart) => listed,
        (Listed::Changed, _) | (_, Listed::Changed) => Listed::Changed,
        (listed, _) => listed,
    };
    Unfinished { listed, made: one.made || other.made, replaced: one.replaced || other.replaced, unlisted: one.unlisted || other.unlisted }
}
