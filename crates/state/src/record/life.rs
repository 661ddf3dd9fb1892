//! The life of a run: which process keeps its record, and what it stands on. Plain values; who may
//! go on with what, the engine decides.

use crate::StoreError;
use crate::columns::{from_hex, hex};
use crate::record::rows::opt_stamp;
use driftless_model::Stamp;
use rusqlite::{Connection, OptionalExtension, params};

/// Which directory a root is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root {
    /// The boot of its machine, as a number.
    pub boot: u64,
    /// Its device.
    pub dev: u64,
    /// Its inode number on that device.
    pub ino: u64,
    /// When it was made, where its file system says so.
    pub made: Option<Stamp>,
}

/// What a run stands on: by this it is known whether what was noted of it still speaks of the same
/// trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ground {
    /// The root of the source.
    pub source: Root,
    /// The root of the replica.
    pub replica: Root,
    /// Which replica its mark says it is, and which run has changed it last; none if nothing says
    /// so.
    pub mark: Option<(u128, u128)>,
}

/// The life of a run, as it stands in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// A number that the process has drawn.
    pub process: u128,
    /// What it stands on.
    pub ground: Ground,
    /// When it was noted last, in seconds since 1970.
    pub seconds: u64,
    /// Some of what is settled was settled in an earlier life: all is to be looked at once more.
    pub is_second_hand: bool,
    /// What the coordinator alone did in an earlier life, nobody has heard to be durable.
    pub is_doubtful: bool,
}

pub(super) fn read(file: &Connection) -> Result<Option<Life>, StoreError> {
    let mut find = file.prepare_cached(
        "SELECT process, heard, second_hand, doubtful, source_boot, source_dev, source_ino, source_made, source_made_nsec,
            replica_boot, replica_dev, replica_ino, replica_made, replica_made_nsec, mark_replica, mark_run FROM life",
    )?;
    find.query_row([], |row| {
        let root = |at: usize| -> Result<Root, StoreError> {
            let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
            Ok(Root {
                boot: number(at)?,
                dev: number(at + 1)?,
                ino: number(at + 2)?,
                made: opt_stamp(row, at + 3)?,
            })
        };
        let mark = row
            .get::<_, Option<String>>(14)?
            .zip(row.get::<_, Option<String>>(15)?);
        let mark = mark.map(|(replica, run)| {
            Ok::<_, StoreError>((from_hex(14, &replica)?, from_hex(15, &run)?))
        });
        Ok(Life {
            process: from_hex(0, &row.get::<_, String>(0)?)?,
            seconds: row.get::<_, i64>(1)?.cast_unsigned(),
            is_second_hand: row.get(2)?,
            is_doubtful: row.get(3)?,
            ground: Ground {
                source: root(4)?,
                replica: root(9)?,
                mark: mark.transpose()?,
            },
        })
    })
    .optional()
}

pub(super) fn write(file: &Connection, life: &Life) -> Result<(), StoreError> {
    let Ground {
        source,
        replica,
        mark,
    } = life.ground;
    let mut put = file.prepare_cached(
        "INSERT OR REPLACE INTO life VALUES (0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    let (second, nano) = (
        |root: &Root| root.made.map(|made| made.sec),
        |root: &Root| root.made.map(|made| made.nsec),
    );
    put.execute(params![
        hex(life.process),
        life.seconds.cast_signed(),
        life.is_second_hand,
        life.is_doubtful,
        source.boot.cast_signed(),
        source.dev.cast_signed(),
        source.ino.cast_signed(),
        second(&source),
        nano(&source),
        replica.boot.cast_signed(),
        replica.dev.cast_signed(),
        replica.ino.cast_signed(),
        second(&replica),
        nano(&replica),
        mark.map(|mark| hex(mark.0)),
        mark.map(|mark| hex(mark.1)),
    ])
    .map(drop)
}
