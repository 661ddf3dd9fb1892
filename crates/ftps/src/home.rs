//! Home of a user: the only tree that a session touches. An agent with the UID and the groups of the
//! user does every act, and the kernel holds the agent to the home (Landlock).
//!
//! No symbolic link is followed. An upload has a temporary name until all of its bytes are durable.
//! An upload that broke off keeps its bytes under a name that follows from the final name, so that a
//! later upload can resume it.

use crate::FtpsSettings;
use crate::path::HomePath;
use crate::users::Account;
use driftless_deposit::{DepositArea, is_draft};
use driftless_model::{Act, Fault, Keep, Kind, Meta, Side, errno, is_reserved_name, quote};
use driftless_remote::{Reach, Root, SshHost};
use driftless_tree::{
    DirMutRef, DirRef, Done, Host, Names, Place, ReadFile, WriteFile, stable_temp_name, temp_name,
};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Mode of deposited files. Only the user may read them; casts read with the rights of the user.
const FILE_MODE: u32 = 0o600;
/// Longest wait for the agent of a user: getent(1) and setpriv(1) ask the name service.
const AGENT_MAX: Duration = Duration::from_secs(60);
/// Names that are listed before their metadata is read. The agent sends the metadata with the names,
/// and the connection holds it for a limited number of them.
const CHUNK_NAMES: usize = 1000;
/// Most entries of a listed directory.
const ENTRIES_MAX: usize = 100_000;

/// Open home of a user.
pub struct UserHome {
    root: DirMutRef,
    /// Its connection to the agent ends with this value.
    _agent: Arc<dyn Host>,
}

impl UserHome {
    /// Creates the home of a user if it is missing, and opens it through an agent of this user.
    ///
    /// # Errors
    /// Cause and remedy, for the log.
    pub fn open(account: &Account, settings: &FtpsSettings) -> Result<UserHome, String> {
        let area = DepositArea::new(&settings.deposits);
        let home = area
            .home(&account.name, account.uid, account.gid)
            .map_err(|error| error.to_string())?;
        let reach = Reach {
            ssh: account.words(),
            agent: vec![settings.program.clone()],
            keep: Keep::default(),
            streams: Some(1),
            compress: None,
            deploy: None,
            connecting: AGENT_MAX,
            stop: Arc::new(AtomicBool::new(false)),
        };
        let root = Root {
            path: home.as_os_str().as_bytes().to_vec(),
            side: Side::Replica,
        };
        let agent: Arc<dyn Host> = SshHost::connect(&account.name, vec![root], &reach)
            .map_err(|error| format!("the agent of the user: {error}"))?;
        match agent.locate_mut(&home).map_err(|error| error.to_string())? {
            Place::Dir(root) => Ok(UserHome {
                root,
                _agent: agent,
            }),
            _ => Err(format!("{}: not a directory", quote(&home))),
        }
    }

    /// Opens the directory at these names.
    fn dir(&self, names: &[CString]) -> Done<DirMutRef> {
        let mut dir = self.root.clone();
        for name in names {
            dir = dir.enter_mut(name)?;
        }
        Ok(dir)
    }

    /// Opens the directory of an entry, and returns the name of the entry.
    fn parent<'a>(&self, path: &'a HomePath) -> Done<(DirMutRef, &'a CStr)> {
        let (above, name) = path.split().ok_or(fault(Act::Find, errno::EISDIR))?;
        Ok((self.dir(above)?, name))
    }

    /// Returns the metadata of an entry. If only an upload to this name broke off, the metadata is
    /// that of the bytes that arrived: clients ask for the size to resume.
    pub fn meta(&self, path: &HomePath) -> Done<Meta> {
        if path.split().is_none() {
            return self.root.meta();
        }
        let (dir, name) = self.parent(path)?;
        match dir.look(name) {
            Err(fault) if fault.is_missing() => {
                dir.look(&stable_temp_name(name)).map_err(|_| fault)
            }
            looked => looked,
        }
    }

    /// Checks that a directory can be opened.
    pub fn enter(&self, path: &HomePath) -> Done {
        self.dir(path.names()).map(drop)
    }

    /// Returns the entries of a directory, without temporary ones and drafts of `driftless put`. Returns
    /// one entry for a path that is no directory.
    pub fn list(&self, path: &HomePath) -> Done<Vec<(CString, Meta)>> {
        if path.split().is_some() {
            let (dir, name) = self.parent(path)?;
            let meta = dir.look(name)?;
            if meta.kind != Kind::Dir {
                return Ok(vec![(name.to_owned(), meta)]);
            }
        }
        let dir: DirRef = self.dir(path.names())?;
        let is_top = path.split().is_none();
        let mut entries = Vec::new();
        each_name(&dir, &mut |name| {
            let bytes = name.to_bytes();
            if is_reserved_name(bytes) || is_top && is_draft(bytes) {
                return Ok(());
            }
            match dir.look(name) {
                Ok(meta) => entries.push((name.to_owned(), meta)),
                // It went after it was listed.
                Err(fault) if fault.is_missing() => {}
                Err(fault) => return Err(fault),
            }
            Ok(())
        })?;
        Ok(entries)
    }

    /// Opens a regular file, and returns its size.
    pub fn read(&self, path: &HomePath) -> Done<Box<dyn ReadFile>> {
        let (dir, name) = self.parent(path)?;
        // A fifo is not opened: its other end could hold up this session.
        check_file(&dir.look(name)?)?;
        let file = dir.open_file(name)?;
        check_file(&file.meta()?)?;
        Ok(file)
    }

    /// Begins an upload at a position: 0, or the number of bytes of an upload that broke off.
    ///
    /// # Errors
    /// [`UploadRefusal`], or a failed act.
    pub fn upload(&self, path: &HomePath, start: u64) -> Result<Upload, UploadRefusal> {
        let (dir, name) = self.parent(path)?;
        let is_there = match dir.look(name) {
            Ok(meta) if meta.kind == Kind::Dir => {
                return Err(fault(Act::Create, errno::EISDIR).into());
            }
            Ok(_) => true,
            Err(fault) if fault.is_missing() => false,
            Err(fault) => return Err(fault.into()),
        };
        let (kept, temp) = (stable_temp_name(name), temp_name());
        let file = match (start, is_there) {
            (0, _) => {
                remove_if_there(&dir, &kept)?;
                dir.create_file(&temp, FILE_MODE)?
            }
            (_, true) => return Err(UploadRefusal::Finished),
            (_, false) => resumed(&dir, (&kept, &temp), start)?,
        };
        Ok(Upload {
            dir,
            name: name.to_owned(),
            temp,
            at: start,
            file: Some(file),
        })
    }

    /// Removes an entry that is no directory, and what an upload to its name left.
    pub fn remove(&self, path: &HomePath) -> Done {
        let (dir, name) = self.parent(path)?;
        let kept = stable_temp_name(name);
        match dir.look(name) {
            Ok(meta) if meta.kind == Kind::Dir => Err(fault(Act::Remove, errno::EISDIR)),
            Ok(_) => {
                dir.remove(name)?;
                remove_if_there(&dir, &kept)
            }
            Err(fault) if fault.is_missing() => dir.remove(&kept).map_err(|_| fault),
            Err(fault) => Err(fault),
        }
    }

    /// Creates a directory. Only the user may enter it.
    pub fn make_dir(&self, path: &HomePath) -> Done {
        let (dir, name) = self.parent(path)?;
        // The agent has answered once the metadata is there.
        dir.make_dir(name)?.meta().map(drop)
    }

    /// Removes an empty directory. Temporary entries, which the client does not see, go with it.
    pub fn remove_dir(&self, path: &HomePath) -> Done {
        let (dir, name) = self.parent(path)?;
        match dir.remove_dir(name) {
            Err(fault) if fault.errno == errno::ENOTEMPTY => {
                let below = dir.enter_mut(name)?;
                let reader: DirRef = below.clone();
                let names = names_of(&reader)?;
                if !names.iter().all(|name| is_reserved_name(name.to_bytes())) {
                    return Err(fault);
                }
                names.iter().try_for_each(|name| below.remove(name))?;
                dir.remove_dir(name)
            }
            removed => removed,
        }
    }

    /// Renames an entry. It replaces what is no directory.
    pub fn rename(&self, from: &HomePath, to: &HomePath) -> Done {
        let (from_dir, from) = self.parent(from)?;
        let (to_dir, to) = self.parent(to)?;
        to_dir.take(&*from_dir, from, to)
    }
}

/// Refusal of an upload.
#[derive(Debug)]
pub enum UploadRefusal {
    /// A finished file has the name, and an upload cannot continue it.
    Finished,
    /// No upload to this name broke off at this position.
    NothingToResume,
    /// Failed act.
    Fault(Fault),
}

impl From<Fault> for UploadRefusal {
    fn from(fault: Fault) -> Self {
        UploadRefusal::Fault(fault)
    }
}

/// Opens an upload that broke off. The rename comes first, so that no other session resumes the same.
fn resumed(
    dir: &DirMutRef,
    (kept, temp): (&CStr, &CStr),
    start: u64,
) -> Result<Box<dyn WriteFile>, UploadRefusal> {
    match dir.rename(kept, temp) {
        Err(fault) if fault.is_missing() => return Err(UploadRefusal::NothingToResume),
        renamed => renamed?,
    }
    let opened = dir.reopen_file(temp).and_then(|file| {
        let size = file.meta()?.size;
        Ok((file, size))
    });
    match opened {
        Ok((file, size)) if size == start => Ok(file),
        opened => {
            let _it_stays_under_the_other_name = dir.rename(temp, kept);
            opened?;
            Err(UploadRefusal::NothingToResume)
        }
    }
}

/// Upload under a temporary name.
pub struct Upload {
    dir: DirMutRef,
    name: CString,
    temp: CString,
    at: u64,
    /// `None` once the upload has ended.
    file: Option<Box<dyn WriteFile>>,
}

impl Upload {
    /// Returns the number of bytes that the file has.
    pub fn bytes(&self) -> u64 {
        self.at
    }

    /// Appends bytes. A failure shows here or at the end.
    pub fn write(&mut self, data: &[u8]) -> Done {
        let file = self.file.as_ref().ok_or(fault(Act::Write, errno::EBADF))?;
        file.write_at(data, self.at)?;
        self.at += data.len() as u64;
        Ok(())
    }

    /// Makes the bytes that arrived durable.
    pub fn settle(&mut self) -> Done {
        let file = self.file.as_ref().ok_or(fault(Act::Write, errno::EBADF))?;
        file.settle()?;
        file.sync()?;
        file.flush()
    }

    /// Gives a settled file its name. On failure, nothing of this upload stays.
    pub fn publish(mut self) -> Done<u64> {
        let Some(file) = self.file.take() else {
            return Err(fault(Act::Write, errno::EBADF));
        };
        if let Err(fault) = self.dir.rename(&self.temp, &self.name) {
            let _nothing_more_can_be_done = self.dir.remove(&self.temp);
            return Err(fault);
        }
        // A second fsync(2) makes the rename durable: the log of ext4, XFS and Btrfs up to the last
        // change of this inode goes to the disk.
        file.sync()?;
        file.close()?;
        Ok(self.at)
    }

    /// Removes the upload, for example because the disk is full.
    pub fn discard(mut self) {
        self.file = None;
        let _nothing_more_can_be_done = self.dir.remove(&self.temp);
    }

    /// Keeps the bytes that arrived, for a later upload that resumes this one.
    fn keep(&mut self) -> Done {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        if self.at == 0 {
            return self.dir.remove(&self.temp);
        }
        file.settle()?;
        file.sync()?;
        self.dir.rename(&self.temp, &stable_temp_name(&self.name))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.keep().is_err() {
            let _it_may_be_gone = self.dir.remove(&self.temp);
        }
    }
}

fn names_of(dir: &DirRef) -> Done<Vec<CString>> {
    let mut names = Vec::new();
    each_name(dir, &mut |name| {
        names.push(name.to_owned());
        Ok(())
    })?;
    Ok(names)
}

/// Calls `act` with each name of a directory.
fn each_name(dir: &DirRef, act: &mut dyn FnMut(&CStr) -> Done) -> Done {
    let (mut stream, mut count) = (dir.list()?, 0);
    loop {
        let mut names = Names::default();
        let has_more = stream.fill(&mut names, CHUNK_NAMES)?;
        count += names.len();
        if count > ENTRIES_MAX {
            return Err(fault(Act::List, errno::EFBIG));
        }
        (0..names.len()).try_for_each(|index| act(names.get(index).0))?;
        if !has_more {
            return Ok(());
        }
    }
}

fn check_file(meta: &Meta) -> Done {
    match meta.kind {
        Kind::File => Ok(()),
        Kind::Dir => Err(fault(Act::Open, errno::EISDIR)),
        _ => Err(fault(Act::Open, errno::ELOOP)),
    }
}

fn remove_if_there(dir: &DirMutRef, name: &CStr) -> Done {
    match dir.remove(name) {
        Err(fault) if fault.is_missing() => Ok(()),
        removed => removed,
    }
}

fn fault(act: Act, errno: i32) -> Fault {
    Fault {
        side: Side::Replica,
        act,
        errno,
    }
}
