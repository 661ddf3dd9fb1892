//! Requests about one entry of a directory, or about a file that is open.
//!
//! Each function carries out requests of one kind, and hands the others on to the next.

use super::{Server, done, faults, or_too_long, sparing, told, xattrs_max};
use crate::agent::hold::Hold;
use crate::wire::{Reply, Request, WireFault};
use driftless_model::{Act, Kind, errno};
use driftless_tree::Spared;

impl Server<'_> {
    /// What an entry, or a directory as a whole, is like.
    pub(super) fn on_entry(&self, request: Request) -> Result<Reply, WireFault> {
        use Request as R;
        Ok(match request {
            R::Look { dir, name } => told(self.dir(dir)?.look(&name.0), Reply::Meta),
            R::Peek { dir, name } => told(self.dir(dir)?.peek(&name.0), Reply::Meta),
            R::EntryXattrs {
                dir,
                name,
                keep,
                long,
            } => told(
                self.dir(dir)?
                    .xattrs_of_within(&name.0, &keep, xattrs_max(long)),
                or_too_long,
            ),
            R::ReadLink { dir, name } => told(self.dir(dir)?.read_link(&name.0), |to| {
                Reply::Note(Some(to.into_bytes()))
            }),
            R::CountTree {
                dir,
                name,
                max,
                spared,
                is_wary,
            } => {
                let sparing = sparing(spared)?;
                let spared = Spared {
                    is_wary,
                    ..self.spared(&sparing)
                };
                Reply::Removed(self.dir(dir)?.count_tree(&name.0, max, spared).into())
            }
            R::IsKept { at } => self.is_kept(at)?,
            R::Marks { dir, above } => told(self.dir(dir)?.marks(above), Reply::Marks),
            R::Lineage { dir } => told(self.dir(dir)?.lineage(), Reply::Lineage),
            R::Birthmark { dir } => told(self.dir(dir)?.birthmark(), Reply::Birthmark),
            other => self.on_making(other)?,
        })
    }

    /// New entries that have no content.
    fn on_making(&self, request: Request) -> Result<Reply, WireFault> {
        use Request as R;
        Ok(match request {
            R::Symlink { dir, name, target } => done(
                self.replica(dir, Act::MakeSymlink)?
                    .make_symlink(&name.0, &target),
            ),
            R::Node {
                kind: Kind::File | Kind::Dir | Kind::Symlink,
                ..
            } => return Err(WireFault::new(Act::MakeNode, errno::EINVAL)),
            R::Node {
                dir,
                name,
                kind,
                rdev,
            } => done(
                self.replica(dir, Act::MakeNode)?
                    .make_node(&name.0, kind, rdev),
            ),
            R::Link {
                dir,
                name,
                from,
                from_name,
                id,
            } => done(self.replica(dir, Act::Link)?.link(
                &name.0,
                (&*self.dir(from)?, &from_name.0),
                id,
            )),
            other => self.on_moving(other)?,
        })
    }

    /// Entries that get another name.
    fn on_moving(&self, request: Request) -> Result<Reply, WireFault> {
        use Request as R;
        Ok(match request {
            R::Take {
                dir,
                from,
                name,
                to,
            } => done(self.replica(dir, Act::Rename)?.take(
                &*self.replica(from, Act::Rename)?,
                &name.0,
                &to.0,
            )),
            R::Rename { dir, from, to } => {
                done(self.replica(dir, Act::Rename)?.rename(&from.0, &to.0))
            }
            R::Displace {
                dir,
                from,
                to,
                below_max,
            } => Reply::Removed(
                self.replica(dir, Act::Rename)?
                    .displace(&from.0, &to.0, below_max)
                    .into(),
            ),
            other => self.on_removing(other)?,
        })
    }

    /// Entries that go.
    fn on_removing(&self, request: Request) -> Result<Reply, WireFault> {
        use Request as R;
        Ok(match request {
            R::Remove { dir, name } => done(self.replica(dir, Act::Remove)?.remove(&name.0)),
            R::RemoveDir { dir, name } => {
                done(self.replica(dir, Act::RemoveDirectory)?.remove_dir(&name.0))
            }
            R::RemoveTree { dir, name, spared } => {
                let sparing = sparing(spared)?;
                Reply::Removed(
                    self.replica(dir, Act::Remove)?
                        .remove_tree(&name.0, self.spared(&sparing))
                        .into(),
                )
            }
            R::RemoveLeftover { dir, name } => Reply::Removed(
                self.replica(dir, Act::Remove)?
                    .remove_leftover(&name.0)
                    .into(),
            ),
            other => self.on_setting(other)?,
        })
    }

    /// What is set of an entry, or of a directory as a whole.
    fn on_setting(&self, request: Request) -> Result<Reply, WireFault> {
        use Request as R;
        Ok(match request {
            R::SetEntry {
                dir,
                name,
                known,
                attributes,
            } => told(
                self.replica(dir, Act::SetAttributes)?
                    .set(&name.0, &known, &attributes),
                faults,
            ),
            R::MakeWritable { dir } => {
                self.replica(dir, Act::SetMode)?.make_writable();
                Reply::Done
            }
            R::SyncAll { dir } => done(self.replica(dir, Act::Flush)?.sync_all()),
            R::SetUnfinished { dir, is } => {
                done(self.replica(dir, Act::SetXattr)?.set_unfinished(is))
            }
            R::SetMark { dir, text, durable } => told(
                self.replica(dir, Act::Mark)?.set_mark(&text, durable),
                Reply::Time,
            ),
            R::Hold {
                dir,
                identity,
                movers,
            } => {
                Hold::guard(&self.replica(dir, Act::Change)?, identity, movers);
                Reply::Done
            }
            other => self.on_file(other)?,
        })
    }

    /// What is asked of an open file, but for its content.
    fn on_file(&self, request: Request) -> Result<Reply, WireFault> {
        use Request as R;
        Ok(match request {
            R::NextData { file, within } => {
                told(self.file(file)?.reader().next_data(within), Reply::Range)
            }
            R::DropCached { file } => done(self.file(file)?.reader().drop_cached()),
            R::SetLen { file, len } => done(self.file(file)?.writer()?.set_len(len)),
            R::Allocate { file, range } if range.start < range.end => {
                done(self.file(file)?.writer()?.allocate(range))
            }
            R::SyncFile { file } => done(self.file(file)?.writer()?.sync()),
            R::FlushFile { file } => done(self.file(file)?.writer()?.flush()),
            R::Progress { file } => Reply::Note(self.file(file)?.writer()?.progress()),
            R::SaveProgress { file, note } => {
                done(self.file(file)?.writer()?.save_progress(note.as_deref()))
            }
            _ => return Err(WireFault::new(Act::Obey, errno::EINVAL)),
        })
    }
}
