//! Content that a program of the user's moves (`--copy-with`), while all the rest is done here.
//!
//! The program gets a private directory, in which it makes the file in whatever way it likes: at
//! once, or under another name first. Nobody else can put anything in its way there. When it has
//! ended, what it made is looked at without trust, and goes on like any other unfinished file.

use crate::copy_with::{Carrier, Undone};
use crate::large::CHECKPOINT_BYTES;
use crate::mover::{Made, Mover, leads};
use crate::new_attributes::new_attributes;
use crate::spot::{Moved, Opened, Spot, Trouble};
use driftless_model::{Act, Fault, Kind, Meta, Side, errno};
use driftless_tree::{
    Attributes, Dir, DirMut, DirMutRef, Known, LocalDir, LocalFile, WriteFile, temp_name,
};
use std::ffi::CStr;

/// What the file is called in the private directory. Names of the tree, which anybody may have
/// chosen, are no business of a program that may hand them to a shell.
const CONTENT: &CStr = c"content";

/// What may be done to a file while it is unfinished: read and write, by its owner.
const UNFINISHED_MODE: u32 = 0o600;

impl Mover<'_> {
    /// Copies a file once, its content with `carrier`.
    pub(crate) fn carry(&mut self, carrier: &dyn Carrier, spot: &Spot, opened: &Opened) -> Made {
        let name = temp_name();
        let room = spot.replica.make_dir(&name)?;
        let done = self.carry_into(carrier, spot, opened, &room);
        // By its handle: another user may have put another directory at its name.
        let cleared = room.as_local().map_or(Ok(()), |room| room.clear().done());
        let left = cleared.and_then(|()| spot.replica.remove_dir(&name)).err();
        done.map(|mut moved| {
            moved.faults.extend(left);
            moved
        })
    }

    fn carry_into(
        &mut self,
        carrier: &dyn Carrier,
        spot: &Spot,
        opened: &Opened,
        room: &DirMutRef,
    ) -> Made {
        let (source, place) = near(opened, &**room)?;
        let xattrs = opened.file.xattrs(&self.terms.rules.keep)?;
        let unkept = opened.meta.unkept | xattrs.unkept;
        let lent = place.lend(CONTENT)?;
        (self.pace)(0);
        let carried = carrier.carry(&source.lend(), &lent.path, self.stopped);
        // Of a source that has changed nobody could have made a copy: that is not the program's
        // failure.
        if carried != Err(Undone::Stopped) && !opened.meta.unchanged(&opened.file.meta_again()?) {
            return Err(Trouble::Changing);
        }
        carried?;
        let file = accept(place, opened.meta.size)?;
        self.verify_clone(opened, &*file)?;
        let known = Known {
            made_now: true,
            ..Known::default()
        };
        let sync =
            self.terms.sync_each || self.terms.sync_large && opened.meta.size >= CHECKPOINT_BYTES;
        let wanted = opened.wanted(&self.terms.rules.keep);
        let source = opened.entry(&xattrs);
        let attributes = new_attributes(spot, &wanted, xattrs, &self.terms.rules.keep);
        let faults = self.complete(opened, &*file, (&known, &attributes), sync)?;
        let id = leads(opened, &*file)?;
        file.close()?;
        self.take(place, spot)?;
        Ok(Moved {
            bytes: opened.meta.size,
            faults,
            id,
            unkept,
            source: Some(source),
            ..Moved::default()
        })
    }

    /// Moves the finished file out of the private directory and gives it its name.
    fn take(&self, place: &LocalDir, spot: &Spot) -> Result<(), Trouble> {
        let temp = temp_name();
        spot.replica.take(place, CONTENT, &temp)?;
        let published = self.publish(spot, Some(&temp));
        if published.is_err() {
            let _the_first_error_counts = spot.replica.remove(&temp);
        }
        published
    }
}

/// Both ends as a program on this machine can reach them.
fn near<'a>(
    opened: &'a Opened,
    room: &'a dyn DirMut,
) -> Result<(&'a LocalFile, &'a LocalDir), Trouble> {
    opened
        .file
        .as_local()
        .zip(room.as_local())
        .ok_or_else(elsewhere)
}

fn elsewhere() -> Trouble {
    Trouble::Failed(Fault {
        side: Side::Replica,
        act: Act::LetReach,
        errno: errno::EXDEV,
    })
}

/// Opens what the program has made, if it is what it should be.
fn accept(place: &LocalDir, size: u64) -> Result<Box<dyn WriteFile>, Trouble> {
    let made = place.look(CONTENT).map_err(|fault| {
        if fault.is_missing() {
            undone("it made no file")
        } else {
            Trouble::Failed(fault)
        }
    })?;
    fits(&made, place.first_meta().uid)?;
    // Many programs keep the mode of what they copy, with which the file may not be open to its
    // owner.
    let mode = Attributes {
        mode: Some(UNFINISHED_MODE),
        ..Attributes::default()
    };
    let faults = place.set(
        CONTENT,
        &Known {
            made_now: true,
            ..Known::of(&made)
        },
        &mode,
    )?;
    faults
        .first()
        .map_or(Ok(()), |fault| Err(Trouble::Failed(*fault)))?;
    let file = place.reopen_file(CONTENT)?;
    match file.meta()?.size {
        there if there == size => Ok(file),
        there => Err(Trouble::Undone(format!("it made {there} bytes of {size}"))),
    }
}

fn fits(made: &Meta, owner: u32) -> Result<(), Trouble> {
    match made {
        Meta { kind, .. } if *kind != Kind::File => Err(undone("what it made is no regular file")),
        Meta { nlink: 2.., .. } => Err(undone("the file that it made has other names, too")),
        Meta { uid, .. } if *uid != owner => Err(undone(
            "it gave the file to another user; that is for driftless to do",
        )),
        _ => Ok(()),
    }
}

fn undone(cause: &str) -> Trouble {
    Trouble::Undone(cause.into())
}
