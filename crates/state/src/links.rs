//! Which inodes of the source have which names on the replica: a table that spills to disk.
//!
//! Up to a stated number of inodes are held in memory; more go to an unnamed SQLite database, a
//! temporary file that is gone when the run ends, however it ends (sqlite.org/inmemorydb.html,
//! "temporary databases"). It needs no durability: the next run builds it again.

use driftless_model::RelPath;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashMap;

/// Device and inode number.
pub type InodeId = (u64, u64);

/// The entry of the replica that the other names of a group are linked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Its path below the root, bytes joined by `/`.
    pub path: Vec<u8>,
    /// Its inode on the replica.
    pub id: InodeId,
    /// Names of the group that were not met yet.
    pub left: u64,
    /// Whether its content is known to be the source's: it was copied by this run, or compared.
    pub proven: bool,
}

/// The table. Not shared: a caller with many threads puts a lock around it.
#[derive(Debug)]
pub struct LinkTable {
    memory_max: usize,
    leaders: HashMap<InodeId, Leader>,
    claims: HashMap<InodeId, InodeId>,
    disk: Option<Connection>,
}

const SCHEMA: &str = "
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA temp_store = FILE;
    PRAGMA cache_size = -8192;
    CREATE TABLE leaders (dev INTEGER, ino INTEGER, path BLOB, replica_dev INTEGER, replica_ino INTEGER, left INTEGER,
                          proven INTEGER, PRIMARY KEY (dev, ino)) WITHOUT ROWID;
    CREATE TABLE put_off (number INTEGER PRIMARY KEY, path BLOB);
    CREATE TABLE claims (dev INTEGER, ino INTEGER, source_dev INTEGER, source_ino INTEGER, PRIMARY KEY (dev, ino)) WITHOUT ROWID;
    BEGIN;";

/// SQLite's integers are signed; the bits are what matters.
fn bits(number: u64) -> i64 {
    number.cast_signed()
}

impl LinkTable {
    /// An empty table that holds at most `memory_max` inodes in memory.
    pub fn new(memory_max: usize) -> Self {
        LinkTable {
            memory_max,
            leaders: HashMap::new(),
            claims: HashMap::new(),
            disk: None,
        }
    }

    fn has_room(&self) -> bool {
        self.leaders.len() + self.claims.len() < self.memory_max
    }

    fn disk(&mut self) -> rusqlite::Result<&Connection> {
        if self.disk.is_none() {
            let disk = Connection::open("")?;
            disk.execute_batch(SCHEMA)?;
            self.disk = Some(disk);
        }
        Ok(self.disk.as_ref().expect("it was opened above"))
    }

    /// The leader of the group of a source inode, if its group has one. The name that asks counts
    /// as met.
    pub fn meet(&mut self, source: InodeId) -> rusqlite::Result<Option<Leader>> {
        if let Some(leader) = self.leaders.get_mut(&source) {
            leader.left = leader.left.saturating_sub(1);
            let found = leader.clone();
            if found.left == 0 {
                self.leaders.remove(&source);
            }
            return Ok(Some(found));
        }
        let Some(disk) = &self.disk else {
            return Ok(None);
        };
        let found = stored_leader(disk, source)?;
        if found.is_some() {
            disk.prepare_cached(
                "UPDATE leaders SET left = MAX(left - 1, 0) WHERE dev = ? AND ino = ?",
            )?
            .execute(params![bits(source.0), bits(source.1)])?;
        }
        Ok(found)
    }

    /// A name that was met has to be met again, or was met before: `leader`, as it was given to it,
    /// has one more to come.
    pub fn give_back(&mut self, source: InodeId, leader: Leader) -> rusqlite::Result<()> {
        if let Some(known) = self.leaders.get_mut(&source) {
            known.left += 1;
            return Ok(());
        }
        if let Some(disk) = &self.disk {
            let mut update = disk
                .prepare_cached("UPDATE leaders SET left = left + 1 WHERE dev = ? AND ino = ?")?;
            if update.execute(params![bits(source.0), bits(source.1)])? > 0 {
                return Ok(());
            }
        }
        // The table forgets a group when all of its names were met.
        self.settle(source, Leader { left: 1, ..leader })
    }

    /// How many names of a group were not met yet; `None` if none is missing, or it has no leader.
    pub fn left(&self, source: InodeId) -> rusqlite::Result<Option<u64>> {
        if let Some(leader) = self.leaders.get(&source) {
            return Ok(Some(leader.left));
        }
        let Some(disk) = &self.disk else {
            return Ok(None);
        };
        let mut find =
            disk.prepare_cached("SELECT left FROM leaders WHERE dev = ? AND ino = ? AND left > 0")?;
        find.query_row(params![bits(source.0), bits(source.1)], |row| {
            Ok(row.get::<_, i64>(0)?.cast_unsigned())
        })
        .optional()
    }

    /// Notes the leader of a group.
    pub fn settle(&mut self, source: InodeId, leader: Leader) -> rusqlite::Result<()> {
        if leader.left == 0 {
            return Ok(());
        }
        if self.has_room() || self.leaders.contains_key(&source) {
            self.leaders.insert(source, leader);
            return Ok(());
        }
        let mut insert = self
            .disk()?
            .prepare_cached("INSERT OR REPLACE INTO leaders VALUES (?, ?, ?, ?, ?, ?, ?)")?;
        let Leader {
            path,
            id,
            left,
            proven,
        } = leader;
        insert.execute(params![
            bits(source.0),
            bits(source.1),
            path,
            bits(id.0),
            bits(id.1),
            bits(left),
            proven
        ])?;
        Ok(())
    }

    /// Notes that the content of a group's leader is the source's.
    pub fn prove(&mut self, source: InodeId) -> rusqlite::Result<()> {
        if let Some(leader) = self.leaders.get_mut(&source) {
            leader.proven = true;
        } else if let Some(disk) = &self.disk {
            disk.prepare_cached("UPDATE leaders SET proven = 1 WHERE dev = ? AND ino = ?")?
                .execute(params![bits(source.0), bits(source.1)])?;
        }
        Ok(())
    }

    /// Keeps the path of a name, for which there is no room in memory.
    pub fn put_off(&mut self, path: &[u8]) -> rusqlite::Result<()> {
        self.disk()?
            .prepare_cached("INSERT INTO put_off (path) VALUES (?)")?
            .execute(params![path])?;
        Ok(())
    }

    /// Takes out up to `max` of these paths, in the order in which they came.
    pub fn take_put_off(&mut self, max: usize) -> rusqlite::Result<Vec<Vec<u8>>> {
        let Some(disk) = &self.disk else {
            return Ok(Vec::new());
        };
        let mut find =
            disk.prepare_cached("SELECT number, path FROM put_off ORDER BY number LIMIT ?")?;
        let found = find.query_map(params![bits(max as u64)], |row| {
            Ok((row.get::<_, i64>(0)?, row.get(1)?))
        })?;
        let (numbers, paths): (Vec<i64>, Vec<Vec<u8>>) = found
            .collect::<rusqlite::Result<Vec<_>>>()?
            .into_iter()
            .unzip();
        if let Some(last) = numbers.last() {
            disk.prepare_cached("DELETE FROM put_off WHERE number <= ?")?
                .execute(params![last])?;
        }
        Ok(paths)
    }

    /// Claims an inode of the replica, one with several names, for a source inode; false when
    /// another source inode has it.
    pub fn claim(&mut self, replica: InodeId, source: InodeId) -> rusqlite::Result<bool> {
        if let Some(holder) = self.claims.get(&replica) {
            return Ok(*holder == source);
        }
        if let Some(disk) = &self.disk
            && let Some(holder) = stored_claim(disk, replica)?
        {
            return Ok(holder == source);
        }
        if self.has_room() {
            self.claims.insert(replica, source);
            return Ok(true);
        }
        let mut insert = self
            .disk()?
            .prepare_cached("INSERT INTO claims VALUES (?, ?, ?, ?)")?;
        insert.execute(params![
            bits(replica.0),
            bits(replica.1),
            bits(source.0),
            bits(source.1)
        ])?;
        Ok(true)
    }
}

fn stored_leader(disk: &Connection, source: InodeId) -> rusqlite::Result<Option<Leader>> {
    let mut find = disk.prepare_cached("SELECT path, replica_dev, replica_ino, left, proven FROM leaders WHERE dev = ? AND ino = ?")?;
    find.query_row(params![bits(source.0), bits(source.1)], |row| {
        let id = (
            row.get::<_, i64>(1)?.cast_unsigned(),
            row.get::<_, i64>(2)?.cast_unsigned(),
        );
        let left = row.get::<_, i64>(3)?.cast_unsigned().saturating_sub(1);
        Ok(Leader {
            path: row.get(0)?,
            id,
            left,
            proven: row.get(4)?,
        })
    })
    .optional()
}

fn stored_claim(disk: &Connection, replica: InodeId) -> rusqlite::Result<Option<InodeId>> {
    let mut find =
        disk.prepare_cached("SELECT source_dev, source_ino FROM claims WHERE dev = ? AND ino = ?")?;
    find.query_row(params![bits(replica.0), bits(replica.1)], |row| {
        Ok((
            row.get::<_, i64>(0)?.cast_unsigned(),
            row.get::<_, i64>(1)?.cast_unsigned(),
        ))
    })
    .optional()
}

/// The path of a leader as a path below the root.
impl Leader {
    /// The leader's directory and name.
    pub fn place(&self) -> Option<(RelPath, Vec<u8>)> {
        let path = RelPath::parse(&self.path).ok()?;
        path.split_last().map(|(dir, name)| (dir, name.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader(ino: u64, left: u64) -> Leader {
        Leader {
            path: format!("d/{ino}").into_bytes(),
            id: (9, ino),
            left,
            proven: false,
        }
    }

    #[test]
    fn the_table_answers_alike_in_memory_and_on_disk() {
        for memory_max in [0, 5, 1000] {
            let mut table = LinkTable::new(memory_max);
            for ino in 0..50 {
                assert_eq!(table.meet((1, ino)).unwrap(), None);
                table.settle((1, ino), leader(ino, 2)).unwrap();
                if ino % 2 == 0 {
                    table.prove((1, ino)).unwrap();
                }
            }
            for ino in 0..50 {
                let first = table.meet((1, ino)).unwrap().unwrap();
                assert_eq!(
                    (first.id, first.left, first.proven),
                    ((9, ino), 1, ino % 2 == 0),
                    "memory_max {memory_max}"
                );
                assert_eq!(table.meet((1, ino)).unwrap().unwrap().left, 0);
            }
        }
    }

    #[test]
    fn names_that_were_put_off_are_taken_once_and_in_order() {
        let mut table = LinkTable::new(5);
        assert!(table.take_put_off(3).unwrap().is_empty());
        (b'a'..=b'e').for_each(|name| table.put_off(&[name]).unwrap());
        assert_eq!(table.take_put_off(3).unwrap(), [b"a", b"b", b"c"]);
        table.put_off(b"f").unwrap();
        assert_eq!(table.take_put_off(3).unwrap(), [b"d", b"e", b"f"]);
        assert!(table.take_put_off(3).unwrap().is_empty());
    }

    #[test]
    fn a_name_that_is_given_back_is_met_again() {
        for memory_max in [0, 1000] {
            let mut table = LinkTable::new(memory_max);
            table.settle((1, 7), leader(7, 1)).unwrap();
            assert_eq!(table.left((1, 7)).unwrap(), Some(1));
            let met = table.meet((1, 7)).unwrap().unwrap();
            assert_eq!(
                (met.left, table.left((1, 7)).unwrap()),
                (0, None),
                "memory_max {memory_max}"
            );
            table.give_back((1, 7), met.clone()).unwrap();
            assert_eq!(
                table.left((1, 7)).unwrap(),
                Some(1),
                "memory_max {memory_max}"
            );
            assert_eq!(table.meet((1, 7)).unwrap(), Some(met));
        }
    }

    #[test]
    fn an_inode_of_the_replica_belongs_to_one_inode_of_the_source() {
        for memory_max in [0, 1000] {
            let mut table = LinkTable::new(memory_max);
            assert!(table.claim((9, u64::MAX), (1, 1)).unwrap());
            assert!(table.claim((9, u64::MAX), (1, 1)).unwrap());
            assert!(!table.claim((9, u64::MAX), (1, 2)).unwrap());
        }
    }
}
