//! Places of the source's directories by inode: what a mirror needs to find a directory again that
//! was renamed while no detector reported it.
//!
//! A row is a hint. A wrong one costs a copy and does no harm, since everything below a renamed
//! directory is compared. So nothing here is made durable, the caller makes a damaged file anew,
//! and an index that cannot be written holds nothing. A row names its parent by inode: a directory that is renamed
//! takes everything below it along with one row.

use crate::StoreError;
use driftless_model::{DirectoryId, Stamp};
use rusqlite::{Connection, OptionalExtension, Params, params};
use std::collections::HashMap;
use std::path::Path;

/// Directories that an index holds: with names of 20 bytes, 2 million take about 120 MiB.
pub const INDEXED_MAX: u64 = 2_000_000;
/// Rows that are held in memory before they are written together.
const PENDING_MAX: usize = 4096;
/// Levels that a path is followed up: a longer chain is a loop of rows that are out of date.
const LEVELS_MAX: usize = 4096;

/// `user_version` holds the number of the walk (sqlite.org/pragma.html).
const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = OFF;
    PRAGMA cache_size = -8192;
    CREATE TABLE IF NOT EXISTS directories (
        inode INTEGER PRIMARY KEY,
        made_sec INTEGER NOT NULL,
        made_nsec INTEGER NOT NULL,
        parent INTEGER NOT NULL,
        name BLOB NOT NULL,
        replica INTEGER NOT NULL,
        walk INTEGER NOT NULL
    );";

/// A row without its key: the place of one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    made: Stamp,
    parent: u64,
    name: Vec<u8>,
    replica: u64,
}

/// The index. Not shared: a caller with many threads puts a lock around it.
#[derive(Debug)]
pub struct DirectoryIndex {
    file: Option<Connection>,
    pending: HashMap<u64, Place>,
    rows: u64,
    rows_max: u64,
    walk: i64,
}

impl DirectoryIndex {
    /// Opens the index at `path`, or makes it.
    ///
    /// # Errors
    /// The file cannot be opened or written, or is no index. The caller, which named it, may remove it.
    pub fn open(path: &Path) -> Result<DirectoryIndex, StoreError> {
        let file = Connection::open(path)?;
        file.execute_batch(SCHEMA)?;
        let walk = file.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let rows = count(&file)?;
        Ok(DirectoryIndex {
            file: Some(file),
            pending: HashMap::new(),
            rows,
            rows_max: INDEXED_MAX,
            walk,
        })
    }

    /// Returns an index without a file, which holds nothing.
    pub fn without_file() -> DirectoryIndex {
        DirectoryIndex {
            file: None,
            pending: HashMap::new(),
            rows: 0,
            rows_max: INDEXED_MAX,
            walk: 0,
        }
    }

    /// Notes the place of a directory: the inode of its parent, its name there, and the inode of its
    /// copy on the replica.
    pub fn note(&mut self, id: DirectoryId, (parent, name): (u64, &[u8]), replica: u64) {
        if self.file.is_none() {
            return;
        }
        let place = Place {
            made: id.made,
            parent,
            name: name.to_owned(),
            replica,
        };
        self.pending.insert(id.inode, place);
        if self.pending.len() >= PENDING_MAX {
            self.flush();
        }
    }

    /// Returns the path below the root, names joined by `/`, at which the directory was noted last,
    /// and the inode of its copy. `root` is the root's inode.
    pub fn find(&self, id: DirectoryId, root: u64) -> Option<(Vec<u8>, u64)> {
        let mut place = self.place(id.inode)?;
        if place.made != id.made {
            return None;
        }
        let replica = place.replica;
        let mut names = vec![place.name];
        while place.parent != root {
            place = self.place(place.parent)?;
            names.push(std::mem::take(&mut place.name));
            if names.len() > LEVELS_MAX {
                return None;
            }
        }
        names.reverse();
        Some((names.join(&b'/'), replica))
    }

    fn place(&self, inode: u64) -> Option<Place> {
        if let Some(place) = self.pending.get(&inode) {
            return Some(place.clone());
        }
        const FIND: &str =
            "SELECT made_sec, made_nsec, parent, name, replica FROM directories WHERE inode = ?";
        let mut find = self.file.as_ref()?.prepare_cached(FIND).ok()?;
        let place = find.query_row([inode.cast_signed()], |row| {
            Ok(Place {
                made: Stamp {
                    sec: row.get(0)?,
                    nsec: row.get(1)?,
                },
                parent: row.get::<_, i64>(2)?.cast_unsigned(),
                name: row.get(3)?,
                replica: row.get::<_, i64>(4)?.cast_unsigned(),
            })
        });
        place.optional().ok()?
    }

    /// Begins a walk of the whole source.
    pub fn begin_walk(&mut self) {
        self.flush();
        self.walk += 1;
        self.execute(&format!("PRAGMA user_version = {}", self.walk), []);
    }

    /// Ends a walk that saw every directory: removes those that it did not see.
    pub fn end_walk(&mut self) {
        self.flush();
        self.execute("DELETE FROM directories WHERE walk < ?", [self.walk]);
        let counted = self.file.as_ref().map(count);
        self.rows = counted.and_then(Result::ok).unwrap_or(0);
    }

    /// Writes what is held in memory.
    pub fn flush(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() {
            return;
        }
        let Some(file) = &mut self.file else { return };
        let (walk, room) = (self.walk, self.rows_max.saturating_sub(self.rows));
        match write(file, walk, room, &pending) {
            Ok(new) => self.rows += new,
            Err(_) => self.file = None,
        }
    }

    /// Executes a statement; the index holds nothing any more if that fails.
    fn execute(&mut self, statement: &str, values: impl Params) {
        if let Some(file) = &self.file
            && file.execute(statement, values).is_err()
        {
            self.file = None;
        }
    }
}

impl Drop for DirectoryIndex {
    fn drop(&mut self) {
        self.flush();
    }
}

fn count(file: &Connection) -> rusqlite::Result<u64> {
    const COUNT: &str = "SELECT COUNT(*) FROM directories";
    let rows = file.query_row(COUNT, [], |row| row.get::<_, i64>(0))?;
    Ok(rows.cast_unsigned())
}

/// Writes places in one transaction, `room` of them as new rows at most; returns the number of new
/// rows.
fn write(
    file: &mut Connection,
    walk: i64,
    room: u64,
    places: &HashMap<u64, Place>,
) -> rusqlite::Result<u64> {
    const UPDATE: &str =
        "UPDATE directories SET made_sec = ?2, made_nsec = ?3, parent = ?4, name = ?5, replica = ?6, walk = ?7
        WHERE inode = ?1";
    const INSERT: &str =
        "INSERT INTO directories (inode, made_sec, made_nsec, parent, name, replica, walk)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let transaction = file.transaction()?;
    let mut new = 0;
    for (inode, place) in places {
        let values = params![
            inode.cast_signed(),
            place.made.sec,
            place.made.nsec,
            place.parent.cast_signed(),
            place.name,
            place.replica.cast_signed(),
            walk
        ];
        let is_known = transaction.prepare_cached(UPDATE)?.execute(values)? > 0;
        if !is_known && new < room {
            transaction.prepare_cached(INSERT)?.execute(values)?;
            new += 1;
        }
    }
    transaction.commit()?;
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const ROOT: u64 = 2;

    fn id(inode: u64) -> DirectoryId {
        let made = Stamp { sec: 7, nsec: 9 };
        DirectoryId { inode, made }
    }

    fn path_of(index: &DirectoryIndex, inode: u64) -> Option<String> {
        let (path, replica) = index.find(id(inode), ROOT)?;
        assert_eq!(replica, inode + 100);
        Some(String::from_utf8(path).unwrap())
    }

    #[test]
    fn directory_takes_everything_below_it_along() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("index.db");
        let mut index = DirectoryIndex::open(&file).unwrap();
        index.note(id(10), (ROOT, b"a"), 110);
        index.note(id(11), (10, b"b"), 111);
        index.note(id(12), (11, b"c"), 112);
        assert_eq!(path_of(&index, 12).unwrap(), "a/b/c");
        drop(index);
        let mut index = DirectoryIndex::open(&file).unwrap();
        assert_eq!(path_of(&index, 12).unwrap(), "a/b/c");
        index.note(id(11), (ROOT, b"z"), 111);
        assert_eq!(path_of(&index, 12).unwrap(), "z/c");
        assert_eq!(path_of(&index, 10).unwrap(), "a");
        assert_eq!(path_of(&index, 13), None);
    }

    #[test]
    fn reused_inode_is_another_directory() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = DirectoryIndex::open(&folder.path().join("index.db")).unwrap();
        index.note(id(10), (ROOT, b"a"), 110);
        let made = Stamp { sec: 8, nsec: 9 };
        let later = DirectoryId { inode: 10, made };
        assert_eq!(index.find(later, ROOT), None);
    }

    #[test]
    fn walk_forgets_directories_that_it_did_not_see() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = DirectoryIndex::open(&folder.path().join("index.db")).unwrap();
        index.begin_walk();
        index.note(id(10), (ROOT, b"a"), 110);
        index.note(id(11), (ROOT, b"b"), 111);
        index.end_walk();
        index.begin_walk();
        index.note(id(11), (ROOT, b"b"), 111);
        assert_eq!(path_of(&index, 10).unwrap(), "a", "the walk may be cut off");
        index.end_walk();
        assert_eq!(path_of(&index, 10), None);
        assert_eq!(path_of(&index, 11).unwrap(), "b");
        assert_eq!(index.rows, 1);
    }

    #[test]
    fn loop_of_rows_has_no_path() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = DirectoryIndex::open(&folder.path().join("index.db")).unwrap();
        index.note(id(10), (11, b"a"), 110);
        index.note(id(11), (10, b"b"), 111);
        assert_eq!(path_of(&index, 10), None);
    }

    #[test]
    fn full_index_keeps_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let mut index = DirectoryIndex::open(&folder.path().join("index.db")).unwrap();
        index.rows_max = 1;
        index.note(id(10), (ROOT, b"a"), 110);
        index.flush();
        index.note(id(11), (ROOT, b"b"), 111);
        index.note(id(10), (ROOT, b"c"), 110);
        index.flush();
        assert_eq!(path_of(&index, 10).unwrap(), "c");
        assert_eq!(path_of(&index, 11), None);
    }

    #[test]
    fn damaged_index_is_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[b'x'; 5000]).unwrap();
        assert!(DirectoryIndex::open(file.path()).is_err());
        let mut index = DirectoryIndex::without_file();
        index.note(id(10), (ROOT, b"a"), 110);
        index.flush();
        assert_eq!(path_of(&index, 10), None);
    }
}
