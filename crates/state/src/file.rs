//! Files of ours in which something is kept for later: how they are opened.
//!
//! A file says what it is in its header (sqlite.org/fileformat2.html, "application ID" and "user
//! version"): which kind of file of ours, and which layout it has. Nothing is written before it is
//! known whose file it is. One of an older layout is brought to the newest one, step by step, in
//! one transaction.

use crate::{StateError, StateFile, StoreError};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long another process that uses the file is waited for.
const BUSY: Duration = Duration::from_secs(10);
/// Pause between two attempts to open a file that others make.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Statements that are kept prepared: more than there are.
const STATEMENTS: usize = 64;

/// What a way from one layout to the next keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Everything.
    All,
    /// Nothing: what the file is for begins anew, and says so where there was anything.
    Nothing {
        /// Whether there was a run.
        was_run: bool,
    },
}

/// A way from a layout to the next.
pub(crate) type Upgrade = fn(&Transaction<'_>) -> Result<Kept, StoreError>;

/// A kind of file of ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind<'a> {
    /// How errors call it.
    pub(crate) file: StateFile,
    /// What the header says it is.
    pub(crate) application: i32,
    /// What is set whenever it is opened.
    pub(crate) settings: &'a str,
    /// The newest layout.
    pub(crate) schema: &'a str,
    /// The number of the oldest layout that there is.
    pub(crate) first: i32,
    /// Tables of files of layout 0, whose headers do not say what they are; none where there are no
    /// such files.
    pub(crate) nameless: &'a [&'a str],
    /// The way from each layout to the next, the oldest first.
    pub(crate) upgrades: &'a [Upgrade],
}

impl Kind<'_> {
    /// The number of the newest layout.
    fn newest(&self) -> i32 {
        self.first + self.upgrades.len() as i32
    }

    /// Opens the file at `path` with the newest layout; one that is not there, or empty, is made.
    /// Says what was kept of an older layout.
    pub(crate) fn open(&self, path: &Path) -> Result<(Connection, Kept), StateError> {
        let begin = Instant::now();
        loop {
            match self.open_once(path) {
                // SQLite does not wait for others where it changes the journal mode.
                Err(error) if error.is_busy() && begin.elapsed() < BUSY => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                done => return done,
            }
        }
    }

    fn open_once(&self, path: &Path) -> Result<(Connection, Kept), StateError> {
        let failed = |cause| StateError::of(self.file, path, cause);
        let mut file = Connection::open(path).map_err(failed)?;
        let header = prepare(&mut file).map_err(failed)?;
        if header.is_new() {
            file.execute_batch(self.settings).map_err(failed)?;
            return match self.make(&mut file).map_err(failed)? {
                Some(kept) => Ok((file, kept)),
                // Another process made it meanwhile.
                None => self.open_once(path),
            };
        }
        self.layout(path, &header)?;
        self.check(path, &file)?;
        file.execute_batch(self.settings).map_err(failed)?;
        let kept = self.upgrade(&mut file).map_err(failed)?;
        Ok((file, kept))
    }

    /// Opens the file at `path` to read it, while another process may write to it. It is not read
    /// whole first: what is damaged in it shows when it is met.
    pub(crate) fn look(&self, path: &Path) -> Result<Connection, StateError> {
        let failed = |cause| StateError::of(self.file, path, cause);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut file = Connection::open_with_flags(path, flags).map_err(failed)?;
        let header = prepare(&mut file).map_err(failed)?;
        if header.is_new() || self.layout(path, &header)? < self.newest() {
            return Err(StateError::Unready {
                file: self.file,
                path: path.to_owned(),
            });
        }
        Ok(file)
    }

    /// The layout of a file, if it is one of this kind.
    fn layout(&self, path: &Path, header: &Header) -> Result<i32, StateError> {
        let (path, file, known) = (path.to_owned(), self.file, self.newest());
        let is_old = (header.application, header.layout) == (0, 0)
            && self.first == 0
            && header
                .tables
                .iter()
                .all(|table| self.nameless.contains(&&**table));
        match header.layout {
            _ if header.application != self.application && !is_old => Err(StateError::Foreign {
                file,
                path,
                what: format!("its application id is {:#010x}", header.application),
            }),
            found if found > known => Err(StateError::Newer {
                file,
                path,
                found,
                known,
            }),
            found if found < self.first || found == 0 && !is_old => Err(StateError::Damaged {
                file,
                path,
                what: format!("there is no layout {found}"),
            }),
            found => Ok(found),
        }
    }

    /// Reads all pages once (sqlite.org/pragma.html, "quick_check"). It is done at each opening,
    /// whatever the size: a run opens its record once, a record has some hundred bytes for each
    /// directory or link that is open, and each entry that it speaks of costs the run many times
    /// the time in which its row is read.
    fn check(&self, path: &Path, file: &Connection) -> Result<(), StateError> {
        let said = file.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        match said.map_err(|cause| StateError::of(self.file, path, cause))? {
            ok if ok == "ok" => Ok(()),
            what => Err(StateError::Damaged {
                file: self.file,
                path: path.to_owned(),
                what: what.replace('\n', " "),
            }),
        }
    }

    /// Makes the tables. Returns `None` if another process has made some.
    fn make(&self, file: &mut Connection) -> Result<Option<Kept>, StoreError> {
        change(file, |transaction| {
            if !Header::of(transaction)?.is_new() {
                return Ok(None);
            }
            transaction.execute_batch(self.schema)?;
            transaction.pragma_update(None, "application_id", self.application)?;
            transaction.pragma_update(None, "user_version", self.newest())?;
            Ok(Some(Kept::Nothing { was_run: false }))
        })
    }

    /// Goes the way from the layout of the file to the newest, or stays where it was.
    fn upgrade(&self, file: &mut Connection) -> Result<Kept, StoreError> {
        change(file, |transaction| {
            // Another process may have gone it meanwhile.
            let layout = Header::of(transaction)?.layout;
            let mut kept = Kept::All;
            for step in self.upgrades.iter().skip((layout - self.first) as usize) {
                match step(transaction)? {
                    Kept::All => {}
                    nothing => kept = nothing,
                }
            }
            transaction.pragma_update(None, "user_version", self.newest())?;
            Ok(kept)
        })
    }
}

/// Makes changes together, in a transaction that holds the lock of writers from its start
/// (sqlite.org/lang_transaction.html, "IMMEDIATE").
///
/// # Errors
/// None of the changes was made.
pub(crate) fn change<T>(
    file: &mut Connection,
    change: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let transaction = file.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = change(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

/// Sets what is no setting of the file, and reads what the file says of itself.
fn prepare(file: &mut Connection) -> Result<Header, StoreError> {
    file.busy_timeout(BUSY)?;
    file.set_prepared_statement_cache_capacity(STATEMENTS);
    // One state, while another process may make the tables.
    let transaction = file.transaction()?;
    Header::of(&transaction)
}

/// What a file says of itself.
struct Header {
    application: i32,
    layout: i32,
    tables: Vec<String>,
}

impl Header {
    fn of(file: &Connection) -> Result<Header, StoreError> {
        let pragma = |name: &str| file.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        Ok(Header {
            application: pragma("application_id")?,
            layout: pragma("user_version")?,
            tables: tables(file)?,
        })
    }

    /// Whether nobody has written anything to the file.
    fn is_new(&self) -> bool {
        self.tables.is_empty() && (self.application, self.layout) == (0, 0)
    }
}

/// The tables of a database, in order.
pub(crate) fn tables(file: &Connection) -> Result<Vec<String>, StoreError> {
    let mut find = file.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")?;
    find.query_map([], |row| row.get(0))?.collect()
}
