//! What comes of batches, as the record of a run keeps it. The record knows no batch but by what an
//! operator wants to know of it.

use crate::monitor::Monitor;
use crate::shared::batch::{Batch, LinkName, Outcome, Piece};
use crate::shared::encoding::encoded;
use crate::shared::names::{note_alike, note_misspelt};
use crate::shared::unfinished::{Listed, Unfinished};
use driftless_model::RelPath;
use driftless_reconcile::Ranges;
use driftless_state::{LargeFile, Listing, OpenDir, StoreError, Transaction};

/// Whether something was noted.
pub type Noted<T> = Result<T, StoreError>;

/// Adds open batches.
pub fn add_batches(transaction: &Transaction<'_>, batches: &[Batch]) -> Noted<()> {
    batches
        .iter()
        .try_for_each(|batch| transaction.add_batch(&row_of(batch)).map(drop))
}

/// A batch as the record keeps it.
fn row_of(batch: &Batch) -> driftless_state::Batch {
    let entries = |piece: &Piece| {
        if let Piece::Entries(_, names) = piece {
            names.len()
        } else {
            0
        }
    };
    let bytes = |piece: &Piece| match piece {
        Piece::Bytes(_, _, range) => Some(range.end.saturating_sub(range.start)),
        Piece::Rest(_, source, _) => source.size(),
        Piece::Root | Piece::Entries(..) => None,
    };
    let (what, path) = match batch.pieces.first() {
        Some(Piece::Entries(dir, names)) => (
            "entries",
            names
                .first()
                .map_or(dir.clone(), |name| dir.join(name.as_bytes())),
        ),
        Some(Piece::Bytes(path, ..)) => ("bytes", path.clone()),
        Some(Piece::Rest(path, ..)) => ("rest", path.clone()),
        Some(Piece::Root) | None => ("tree", RelPath::root()),
    };
    driftless_state::Batch {
        class: batch.class,
        is_alone: batch.alone,
        what,
        path,
        pieces: batch.pieces.len(),
        entries: batch.pieces.iter().map(entries).sum(),
        bytes: batch
            .pieces
            .iter()
            .filter_map(bytes)
            .reduce(u64::saturating_add),
        body: encoded(batch),
    }
}

/// Notes what came of a batch. What is left for others goes to `rest`.
pub fn note_outcome(
    transaction: &Transaction<'_>,
    outcome: Outcome,
    monitor: &dyn Monitor,
    rest: &mut Vec<(u8, Piece)>,
) -> Noted<()> {
    outcome
        .done
        .into_iter()
        .for_each(|done| monitor.receipt(&done.into()));
    outcome
        .problems
        .iter()
        .for_each(|problem| monitor.problem(problem));
    outcome
        .unkept
        .iter()
        .for_each(|(what, path)| monitor.unkept(*what, path));
    outcome
        .problems
        .iter()
        .try_for_each(|problem| transaction.add_problem(problem))?;
    for LinkName {
        id,
        path,
        size,
        there,
    } in outcome.links
    {
        transaction.add_link(&driftless_state::LinkName {
            id,
            path,
            size,
            there,
        })?;
    }
    for (dir, names) in outcome.extras {
        names
            .iter()
            .try_for_each(|name| transaction.add_extra(&dir, name))?;
    }
    outcome
        .no_room
        .iter()
        .try_for_each(|path| transaction.add_no_room(path))?;
    outcome
        .mounts
        .iter()
        .try_for_each(|path| transaction.add_mount(path))?;
    note_alike(transaction, &outcome.alike)?;
    note_misspelt(transaction, &outcome.misspelt)?;
    for (path, left) in outcome.unfinished {
        let held = transaction.directory(&path)?.map(|held| unfinished(&held));
        put_unfinished(
            transaction,
            path,
            held.map_or(left, |held| joined(held, left)),
        )?;
    }
    for (path, source, copied) in outcome.copied {
        let source = source.to_line();
        copied
            .iter()
            .try_for_each(|range| transaction.add_copied((&path, &source), range))?;
    }
    rest.extend(outcome.rest);
    Ok(())
}

/// Counts the pieces of large files: those that are settled, and those that are new. A file none of
/// whose pieces is open any more is a piece of its own again.
pub fn settle_pieces(
    transaction: &Transaction<'_>,
    batch: &Batch,
    rest: &mut Vec<(u8, Piece)>,
) -> Noted<()> {
    for (class, piece) in rest.iter() {
        if let Piece::Bytes(path, source, _) = piece {
            let (size, source) = (source.size(), source.to_line());
            transaction.open_piece(&LargeFile {
                path: path.clone(),
                source,
                size,
                class: *class,
                is_alone: batch.alone,
            })?;
        }
    }
    for piece in &batch.pieces {
        let Piece::Bytes(path, source, _) = piece else {
            continue;
        };
        let Some((file, copied)) = transaction.close_piece(path, &source.to_line())? else {
            continue;
        };
        rest.push((
            file.class,
            Piece::Rest(file.path, source.clone(), Ranges::from(copied)),
        ));
    }
    Ok(())
}

/// Notes a directory that is to be finished, in the place of what was noted of it.
pub fn put_unfinished(transaction: &Transaction<'_>, path: RelPath, left: Unfinished) -> Noted<()> {
    let listing = match left.listed {
        Listed::As(meta) => Listing::Whole(meta),
        Listed::Changed => Listing::Changed,
        Listed::InPart => Listing::InPart,
    };
    let Unfinished {
        made,
        replaced,
        unlisted,
        ..
    } = left;
    transaction.put_directory(&OpenDir {
        path,
        listing,
        made,
        replaced,
        unlisted,
    })
}

/// What was noted of a directory that is to be finished.
pub fn unfinished(dir: &OpenDir) -> Unfinished {
    let listed = match dir.listing {
        Listing::Whole(meta) => Listed::As(meta),
        Listing::Changed => Listed::Changed,
        Listing::InPart => Listed::InPart,
    };
    Unfinished {
        listed,
        made: dir.made,
        replaced: dir.replaced,
        unlisted: dir.unlisted,
    }
}

/// Of what two movers say of a directory that they left, what holds.
pub fn joined(one: Unfinished, other: Unfinished) -> Unfinished {
    let listed = match (one.listed, other.listed) {
        (Listed::InPart, listed) | (listed, Listed::InPart) => listed,
        (Listed::Changed, _) | (_, Listed::Changed) => Listed::Changed,
        (listed, _) => listed,
    };
    Unfinished {
        listed,
        made: one.made || other.made,
        replaced: one.replaced || other.replaced,
        unlisted: one.unlisted || other.unlisted,
    }
}
