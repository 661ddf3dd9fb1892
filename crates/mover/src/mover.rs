//! Making one entry equal: small files, symbolic links, nodes, hard links, metadata.

use crate::copy_with::Carrier;
use crate::new_attributes::new_attributes;
use crate::spot::{Moved, Opened, Spot, Trouble};
use driftless_model::{
    ACL_ACCESS, Entry, Fault, Kind, Level, Meta, PERMISSIONS, Stamp, Xattrs, errno,
    mode_for_other_group,
};
use driftless_reconcile::{Agreement, Rules, lends_rights, mtimes, ripens_in};
use driftless_tree::{
    Attributes, Copier, Dir, DirMut, Halt, Known, ReadFile, Removed, Stood, WriteFile, temp_name,
};
use std::ffi::CStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a file that changes while it is copied is copied again, and how long it is left in
/// peace before each time.
const SETTLE_PAUSES: [Duration; 3] = [
    Duration::from_millis(5),
    Duration::from_millis(50),
    Duration::from_millis(250),
];
/// How often a file is waited for whose time is so young that it does not vouch for what is read,
/// and for how long at most altogether.
const RIPENINGS_MAX: u32 = 3;
const RIPENING_MAX: Duration = Duration::from_secs(4);
/// In such pauses a thread that waits looks whether the run was asked to stop.
const LOOK_UP: Duration = Duration::from_millis(50);
/// From this size on, sharing extents is worth its overhead over copying.
const CLONE_BYTES_MIN: u64 = 128 * 1024;

/// What holds for all entries of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms {
    /// What is kept and how it is compared.
    pub rules: Rules,
    /// Every file is made durable before it gets its name.
    pub sync_each: bool,
    /// Large files are made durable before they get their names.
    pub sync_large: bool,
    /// What was written is read back and compared.
    pub verify: Option<Level>,
    /// What this process calls itself where others may copy the same files at the same time; 0
    /// where none does.
    pub own: u128,
}

/// What makes entries equal, for one thread.
pub struct Mover<'a> {
    /// Copies content.
    pub copier: Copier,
    /// What holds for the run.
    pub terms: Terms,
    /// Moves the content of files in the copier's place.
    pub carrier: Option<&'a dyn Carrier>,
    /// Told the bytes before each block is moved; may wait.
    pub pace: &'a (dyn Fn(u64) + Sync),
    /// Whether the run was asked to stop.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

/// The result of making an entry.
pub type Made = Result<Moved, Trouble>;

impl<'a> Mover<'a> {
    /// Keeps within the limits before more bytes are moved, and ends the moving when the run is to
    /// stop.
    pub(crate) fn pace(&self) -> impl FnMut(u64) -> Result<(), Halt> + use<'a> {
        let (pace, stopped) = (self.pace, self.stopped);
        move |bytes| {
            pace(bytes);
            if stopped() {
                Err(Halt::Stopped)
            } else {
                Ok(())
            }
        }
    }
}

impl Mover<'_> {
    /// Opens a source file that is to be copied, or compared so as to be taken to be equal, when
    /// its time vouches for what is read.
    pub fn open(&self, spot: &Spot) -> Result<Opened, Trouble> {
        self.ripen(spot, spot.open()?)
    }

    /// Waits for a file that was written a moment ago until whatever is written from now on gets
    /// another time, and opens it again: by its name, where another one may stand by now, unless it
    /// has to be this one. Costs an old file nothing.
    pub fn ripen(&self, spot: &Spot, opened: Opened) -> Result<Opened, Trouble> {
        self.ripe(spot, opened, RIPENING_MAX)
    }

    fn ripe(&self, spot: &Spot, mut opened: Opened, most: Duration) -> Result<Opened, Trouble> {
        let ripens_in = |opened: &Opened| match opened.meta {
            Meta {
                kind: Kind::File,
                size: 1..,
                ..
            } => ripens_in(&opened.meta, spot.replica.first_meta(), now()),
            _ => None,
        };
        let (mut count, mut waited) = (0, Duration::ZERO);
        while let Some(wait) = ripens_in(&opened) {
            if count == RIPENINGS_MAX || waited + wait > most {
                return Ok(Opened {
                    young: true,
                    ..opened
                });
            }
            self.pause(wait)?;
            (count, waited) = (count + 1, waited + wait);
            opened = spot.open()?;
        }
        Ok(opened)
    }

    fn pause(&self, wait: Duration) -> Result<(), Trouble> {
        let until = Instant::now() + wait;
        while !(self.stopped)() {
            match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => std::thread::sleep(left.min(LOOK_UP)),
            }
        }
        Err(Trouble::Stopped)
    }

    /// Copies a file that is small enough for one thread. Retries while the source changes under
    /// its hands.
    pub fn copy_small(&mut self, spot: &Spot, first: Opened) -> Made {
        let (mut opened, mut mismatches) = (first, 0);
        let mut trouble = Trouble::Changing;
        for pause in SETTLE_PAUSES.iter().map(Some).chain([None]) {
            match self
                .copy_once(spot, &opened)
                .map_err(|trouble| opened.cause_of(trouble))
            {
                Err(again @ (Trouble::Changing | Trouble::Mismatch)) => trouble = again,
                done => {
                    return done.map(|moved| Moved {
                        mismatches,
                        young: opened.young,
                        ..moved
                    });
                }
            }
            if (self.stopped)() {
                return Err(Trouble::Stopped);
            }
            mismatches += u64::from(trouble == Trouble::Mismatch);
            let Some(pause) = pause else { break };
            std::thread::sleep(*pause);
            // What did not come to rest before is not waited for again.
            opened = self.ripe(
                spot,
                spot.open()?,
                if opened.young {
                    Duration::ZERO
                } else {
                    RIPENING_MAX
                },
            )?;
        }
        Err(trouble)
    }

    /// Copies a file once.
    pub(crate) fn copy_once(&mut self, spot: &Spot, opened: &Opened) -> Made {
        if let Some(carrier) = self.carrier.filter(|_| opened.meta.size > 0) {
            return self.carry(carrier, spot, opened);
        }
        let xattrs = opened.file.xattrs(&self.terms.rules.keep)?;
        if !spot.private && lends_rights(&opened.meta, &xattrs, &self.terms.rules.keep) {
            return self.out_of_sight(spot, true, |mover, spot| {
                mover.copy_to(spot, opened, xattrs)
            });
        }
        self.copy_to(spot, opened, xattrs)
    }

    /// Makes an entry where others cannot get at it, and moves it to its place when it is finished.
    /// With `hidden` they may not open it before, either.
    fn out_of_sight(
        &mut self,
        spot: &Spot,
        hidden: bool,
        make: impl FnOnce(&mut Self, &Spot) -> Made,
    ) -> Made {
        let nest = if spot.private {
            None
        } else {
            spot.replica.nest(hidden)?
        };
        let Some(nest) = nest else {
            return make(self, spot);
        };
        let temp = temp_name();
        let moved = make(
            self,
            &Spot {
                replica: &*nest,
                name: &temp,
                private: true,
                nested: true,
                birth: None,
                ..*spot
            },
        )?;
        self.emerge(&*nest, &temp, spot).map(|()| moved)
    }

    /// Moves a finished entry out of the private directory to its name.
    pub(crate) fn emerge(
        &self,
        nest: &dyn DirMut,
        temp: &CStr,
        spot: &Spot,
    ) -> Result<(), Trouble> {
        let done = match spot.replica.take(nest, temp, spot.name) {
            Err(e) if in_the_way(e.errno) => match spot.replica.take(nest, temp, temp) {
                Ok(()) => self.publish(spot, Some(temp)),
                Err(fault) => Err(fault.into()),
            },
            other => other.map_err(Trouble::from),
        };
        if done.is_err() {
            let _wherever_it_is = nest.remove(temp).or_else(|_| spot.replica.remove(temp));
        }
        done
    }

    fn copy_to(&mut self, spot: &Spot, opened: &Opened, xattrs: Xattrs) -> Made {
        let temp = if spot.private {
            None
        } else {
            Some(temp_name())
        };
        let name = temp.as_deref().unwrap_or(spot.name);
        let mode = if spot.private {
            self.birth_mode(spot, &opened.meta, &xattrs)
        } else {
            0o600
        };
        let file = spot.replica.create_file(name, mode)?;
        let moved = match self.fill(spot, (opened, xattrs), &*file, mode) {
            Ok(moved) => moved,
            Err(trouble) => {
                undo(spot, name, &*file);
                return Err(trouble);
            }
        };
        let done = file
            .close()
            .map_err(Trouble::from)
            .and_then(|()| self.publish(spot, temp.as_deref()));
        if done.is_err() {
            let _the_first_error_counts = spot.replica.remove(name);
        }
        done.map(|()| moved)
    }

    /// The mode with which a file in a private directory is created: its own, so that it need not
    /// be set, but for what waits for the owner, the group or the ACL. A run that is killed leaves
    /// it as it is then, and a later one may open the directory.
    fn birth_mode(&self, spot: &Spot, meta: &Meta, xattrs: &Xattrs) -> u32 {
        let keep = &self.terms.rules.keep;
        let mode = xattrs.mode_of_copy(meta.mode) & PERMISSIONS;
        let mode = if keep.mode { mode } else { keep.new_mode(mode) };
        let is_group = spot.birth.is_some_and(|(_, gid)| gid == meta.gid);
        match () {
            () if xattrs.iter().any(|(name, _)| **name == *ACL_ACCESS) => mode & 0o700,
            () if !is_group => mode_for_other_group(mode),
            () => mode,
        }
    }

    fn fill(
        &mut self,
        spot: &Spot,
        (opened, xattrs): (&Opened, Xattrs),
        file: &dyn WriteFile,
        mode: u32,
    ) -> Made {
        let bytes = self.content(opened, file)?;
        let unkept = opened.meta.unkept | xattrs.unkept;
        let wanted = opened.wanted(&self.terms.rules.keep);
        let source = opened.entry(&xattrs);
        let attributes = new_attributes(spot, &wanted, xattrs, &self.terms.rules.keep);
        let known = spot.newborn(Kind::File, mode);
        let faults = self.complete(opened, file, (&known, &attributes), self.terms.sync_each)?;
        Ok(Moved {
            bytes,
            faults,
            id: leads(opened, file)?,
            unkept,
            source: Some(source),
            ..Moved::default()
        })
    }

    /// Looks again at the source, then gives a file with all its content its attributes. Returns
    /// what could not be set.
    pub(crate) fn complete(
        &self,
        opened: &Opened,
        file: &dyn WriteFile,
        (known, attributes): (&Known, &Attributes),
        sync: bool,
    ) -> Result<Vec<Fault>, Trouble> {
        if !opened.meta.unchanged(&opened.file.meta_again()?) {
            return Err(Trouble::Changing);
        }
        file.settle()?;
        let faults = file.set(known, attributes);
        if sync {
            file.sync().map_err(Trouble::Lost)?;
        }
        Ok(faults)
    }

    fn content(&mut self, opened: &Opened, file: &dyn WriteFile) -> Result<u64, Trouble> {
        let (source, size) = (&*opened.file, opened.meta.size);
        if size == 0 {
            return Ok(0);
        }
        if size >= CLONE_BYTES_MIN && self.clone_whole(opened, file)? {
            self.verify_clone(opened, file)?;
            return Ok(opened.data_bytes()?);
        }
        let sparse = self.terms.rules.keep.holes;
        let mut pace = self.pace();
        let copied = match self.terms.verify {
            None => self
                .copier
                .copy_small((source, file), size, sparse, &mut pace)?,
            Some(level) => {
                let (copied, same) = self.copier.copy_verified(
                    (source, file),
                    (0..size, sparse),
                    level == Level::Media,
                    &mut pace,
                )?;
                // A source that has become shorter is what the look at it will tell.
                if same {
                    copied
                } else {
                    return Err(Trouble::Mismatch);
                }
            }
        };
        if copied < size && sparse {
            file.set_len(size)?;
        }
        Ok(copied)
    }

    /// Verifies shared extents by reading both files: sharing has read neither.
    pub fn verify_clone(&mut self, opened: &Opened, file: &dyn WriteFile) -> Result<(), Trouble> {
        let Some(level) = self.terms.verify else {
            return Ok(());
        };
        if level == Level::Media {
            file.drop_cached()?;
        }
        let (mut same, mut pace) = (true, self.pace());
        let pair: (&dyn ReadFile, &dyn ReadFile) = (&*opened.file, file);
        self.copier
            .differing(pair, 0..opened.meta.size, &mut |_| same = false, &mut pace)?;
        if same { Ok(()) } else { Err(Trouble::Mismatch) }
    }

    /// Shares extents with the source, where both are on a file system that can. All of it is one
    /// step.
    pub fn clone_whole(&self, opened: &Opened, file: &dyn WriteFile) -> Result<bool, Trouble> {
        let devices = (opened.meta.dev, file.meta()?.dev);
        Ok(self.copier.clone_whole(&*opened.file, file, devices))
    }

    /// Gives a finished entry its name. A directory in its way goes, if it is empty or no more lies
    /// in it than may go with it.
    pub fn publish(&self, spot: &Spot, temp: Option<&CStr>) -> Result<(), Trouble> {
        let Some(temp) = temp else { return Ok(()) };
        match spot.replica.rename(temp, spot.name) {
            Err(e) if in_the_way(e.errno) => {
                displaced(spot.name, spot.replica.displace(temp, spot.name, spot.room))
            }
            other => other.map_err(Trouble::from),
        }
    }

    /// Makes a symbolic link to `target`, or a fifo, socket or device node.
    pub fn make_special(&mut self, spot: &Spot, source: &Entry, target: Option<&CStr>) -> Made {
        self.out_of_sight(spot, false, |mover, spot| {
            mover.make_handleless(spot, source, target)
        })
    }

    fn make_handleless(&self, spot: &Spot, source: &Entry, target: Option<&CStr>) -> Made {
        let temp = if spot.private {
            None
        } else {
            Some(temp_name())
        };
        let name = temp.as_deref().unwrap_or(spot.name);
        match target {
            Some(target) => spot.replica.make_symlink(name, target)?,
            None => spot
                .replica
                .make_node(name, source.meta.kind, source.meta.rdev)?,
        }
        let known = spot.newborn(source.meta.kind, 0o600);
        let attributes = new_attributes(
            spot,
            &source.meta,
            source.xattrs.clone(),
            &self.terms.rules.keep,
        );
        let done = spot
            .replica
            .set(name, &known, &attributes)
            .map_err(Trouble::from);
        let id = if source.meta.nlink > 1 {
            spot.replica.look(name).ok().map(|made| made.id())
        } else {
            None
        };
        let done = done.and_then(|faults| self.publish(spot, temp.as_deref()).map(|()| faults));
        if done.is_err() {
            let _the_first_error_counts = spot.replica.remove(name);
        }
        done.map(|faults| Moved {
            faults,
            id,
            unkept: source.meta.unkept | source.xattrs.unkept,
            source: Some(Box::new(source.clone())),
            ..Moved::default()
        })
    }

    /// Makes the entry one more name of the inode `id`, which is to be found as a name in a
    /// directory of the same tree.
    pub fn make_link(
        &self,
        spot: &Spot,
        (leader, leader_name): (&dyn Dir, &CStr),
        id: (u64, u64),
    ) -> Made {
        let temp = if spot.private {
            None
        } else {
            Some(temp_name())
        };
        let name = temp.as_deref().unwrap_or(spot.name);
        spot.replica
            .link(name, (leader, leader_name), id)
            .map_err(Trouble::Failed)?;
        let done = self.publish(spot, temp.as_deref());
        if temp.is_some() {
            // Also after a rename that worked: between two names of one inode it does nothing
            // (rename(2)).
            let _gone_as_a_rule = spot.replica.remove(name);
        }
        done.map(|()| Moved {
            id: Some(id),
            ..Moved::default()
        })
    }

    /// Sets what differs in metadata; no data moves. A time that can come no nearer is left alone.
    pub fn set_meta(&self, spot: &Spot, source: &Entry, replica: &Meta) -> Made {
        let keep = &self.terms.rules.keep;
        let mut attributes = Attributes {
            stood: (!keep.mode).then_some(Stood {
                mode: replica.mode,
                is_changed: false,
            }),
            ..Attributes::of(&source.meta, source.xattrs.clone(), keep)
                .or_mode(source.xattrs.mode_of_copy(source.meta.mode) & PERMISSIONS)
        };
        let takes_both = attributes.atime.is_some();
        attributes.mtime =
            attributes.mtime.filter(
                |_| match mtimes(&source.meta, replica, keep.modify_window) {
                    Agreement::Other => true,
                    // Some file systems set no time alone.
                    Agreement::Same => takes_both,
                    _ => false,
                },
            );
        let faults = spot
            .replica
            .set(spot.name, &Known::of(replica), &attributes)?;
        Ok(Moved {
            faults,
            id: Some(replica.id()),
            source: Some(Box::new(source.clone())),
            ..Moved::default()
        })
    }

    /// Sets the modification time of the entry that is known to be `replica`, and nothing else;
    /// returns what could not be set.
    ///
    /// # Errors
    /// Another entry stands at its name, or nothing may be changed.
    pub fn set_time(
        &self,
        spot: &Spot,
        mtime: Stamp,
        replica: &Meta,
    ) -> Result<Vec<Fault>, Trouble> {
        let attributes = Attributes {
            mtime: Some(mtime),
            ..Attributes::default()
        };
        let known = Known::of(replica);
        Ok(spot.replica.set(spot.name, &known, &attributes)?)
    }

    /// What a new file beside an entry is like when it was given this modification time; it is
    /// removed again.
    ///
    /// # Errors
    /// It cannot be made, looked at or removed.
    pub fn timed_beside(&self, spot: &Spot, mtime: Stamp) -> Result<Meta, Trouble> {
        let name = temp_name();
        let file = spot.replica.create_file(&name, 0o600)?;
        let attributes = Attributes {
            mtime: Some(mtime),
            ..Attributes::default()
        };
        let _seen_by_the_look = file.set(&Known::default(), &attributes);
        let timed = file.meta();
        spot.replica.remove(&name)?;
        Ok(timed?)
    }
}

/// Trouble if what stands at the name of an entry did not go as a whole.
fn displaced(name: &CStr, removed: Removed) -> Result<(), Trouble> {
    match &removed.stuck[..] {
        [] => Ok(()),
        [(path, fault)] if removed.entries == 0 && path.as_bytes() == name.to_bytes() => {
            Err(Trouble::Failed(*fault))
        }
        _ => Err(Trouble::Stuck(removed)),
    }
}

/// Which inode a file is, if its source has other names.
pub(crate) fn leads(opened: &Opened, file: &dyn WriteFile) -> Result<Option<(u64, u64)>, Trouble> {
    if opened.meta.nlink < 2 {
        Ok(None)
    } else {
        Ok(Some(file.meta()?.id()))
    }
}

/// By the clock of this machine; that of a file server may be a little off.
fn now() -> Stamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Stamp {
        sec: since.as_secs().cast_signed(),
        nsec: since.subsec_nanos(),
    }
}

/// Removes an unfinished file. Where this mover slept and another one took over, the file at the
/// name may be the other's: that stays.
fn undo(spot: &Spot, name: &CStr, file: &dyn WriteFile) {
    let is_ours = matches!((file.meta(), spot.replica.look(name)), (Ok(made), Ok(there)) if made.id() == there.id());
    if is_ours {
        let _the_first_error_counts = spot.replica.remove(name);
    }
}

/// EEXIST, EISDIR and ENOTEMPTY say that a directory stands where a file shall go (rename(2)).
fn in_the_way(errno: i32) -> bool {
    matches!(errno, errno::EEXIST | errno::EISDIR | errno::ENOTEMPTY)
}
