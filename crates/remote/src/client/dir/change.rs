//! Changes of a directory on another host.

use super::completions::{made, own_set};
use super::lock::FarLock;
use super::read::may_be_directory;
use super::{Came, First, NO_META, RemoteDir};
use crate::wire::{Locked, Name, NewEntryHead, Reply, Request, WireSpared};
use driftless_model::{Act, Fault, Kind, Side, Stamp, errno};
use driftless_tree::{
    Attributes, BeforeChange, Completion, Dir, DirMut, DirMutRef, Done, Known, Lock, OpMut, Reach,
    Removed, Sentry, Spared, WriteFile,
};
use std::ffi::CStr;
use std::sync::{Arc, OnceLock};

impl DirMut for RemoteDir {
    fn enter_mut(&self, name: &CStr) -> Done<DirMutRef> {
        Ok(Arc::new(self.enter_far(name)?))
    }

    fn birth(&self) -> Option<(u32, u32)> {
        None
    }

    fn make_dir(&self, name: &CStr) -> Done<DirMutRef> {
        self.touched(name)?;
        let at = self.0.client.connection.handle();
        let promise = self.0.client.connection.ask(
            &Request::MakeDir {
                dir: self.0.at,
                name: name.into(),
                at,
            },
            Vec::new(),
        );
        let first = First::Coming(promise, OnceLock::new());
        let mut made = Self::of(&self.0.client, self.0.side, at, first, Came::default());
        made.above = Some(self.0.clone());
        Ok(Arc::new(made.open()))
    }

    fn create_file(&self, name: &CStr, mode: u32) -> Done<Box<dyn WriteFile>> {
        self.touched(name)?;
        let at = self.0.client.connection.handle();
        let file = self.open(
            at,
            &Request::Create {
                dir: self.0.at,
                name: name.into(),
                mode,
                at,
            },
        )?;
        Ok(Box::new(file))
    }

    fn reopen_file(&self, name: &CStr) -> Done<Box<dyn WriteFile>> {
        self.touched(name)?;
        let at = self.0.client.connection.handle();
        let file = self.open(
            at,
            &Request::Reopen {
                dir: self.0.at,
                name: name.into(),
                at,
            },
        )?;
        Ok(Box::new(file))
    }

    fn make_symlink(&self, name: &CStr, target: &CStr) -> Done {
        self.touched(name)?;
        self.done(&Request::Symlink {
            dir: self.0.at,
            name: name.into(),
            target: target.into(),
        })
    }

    fn make_node(&self, name: &CStr, kind: Kind, rdev: u64) -> Done {
        self.touched(name)?;
        self.done(&Request::Node {
            dir: self.0.at,
            name: name.into(),
            kind,
            rdev,
        })
    }

    fn link(&self, name: &CStr, (from, from_name): (&dyn Dir, &CStr), id: (u64, u64)) -> Done {
        self.touched(name)?;
        let from = from
            .token()
            .filter(|(client, _)| *client == Arc::as_ptr(&self.0.client) as usize);
        let Some((_, from)) = from else {
            return Err(Fault {
                side: self.0.side,
                act: Act::Link,
                errno: errno::EXDEV,
            });
        };
        self.done(&Request::Link {
            dir: self.0.at,
            name: name.into(),
            from,
            from_name: from_name.into(),
            id,
        })
    }

    fn set(&self, name: &CStr, expected: &Known, attributes: &Attributes) -> Done<Vec<Fault>> {
        self.touched(name)?;
        let (known, attributes) = (*expected, attributes.clone());
        self.faults_reply(&Request::SetEntry {
            dir: self.0.at,
            name: name.into(),
            known,
            attributes,
        })
    }

    fn set_own(&self, known: &Known, attributes: &Attributes) -> Vec<Fault> {
        if let Err(fault) = self.pass_gate() {
            return vec![fault];
        }
        self.0.forget_own();
        let request = Request::SetOwn {
            at: self.0.at,
            known: *known,
            attributes: attributes.clone(),
        };
        self.faults_reply(&request)
            .unwrap_or_else(|fault| vec![fault])
    }

    fn make_writable(&self) {
        if self.pass_gate().is_err() {
            return;
        }
        let _may_fail_for_others = self.done(&Request::MakeWritable { dir: self.0.at });
    }

    fn nest(&self, hidden: bool) -> Done<Option<DirMutRef>> {
        self.pass_gate()?;
        let at = self.0.client.connection.handle();
        // Its number is given back when this is dropped, also if there is none.
        let nested = |meta| {
            Self::of(
                &self.0.client,
                self.0.side,
                at,
                First::Known(meta, Some(false)),
                Came::default(),
            )
            .open()
        };
        match self.call(&Request::Nest {
            dir: self.0.at,
            hidden,
            at,
        }) {
            Ok((Reply::Meta(meta), _)) => Ok(Some(Arc::new(nested(meta)))),
            other => {
                drop(nested(NO_META));
                if matches!(other?.0, Reply::Done) {
                    Ok(None)
                } else {
                    self.confused()
                }
            }
        }
    }

    fn take(&self, from: &dyn DirMut, name: &CStr, to: &CStr) -> Done {
        self.touched(to)?;
        let from = from
            .token()
            .filter(|(client, _)| *client == Arc::as_ptr(&self.0.client) as usize);
        let Some((_, from)) = from else {
            return Err(Fault {
                side: self.0.side,
                act: Act::Rename,
                errno: errno::EXDEV,
            });
        };
        self.done(&Request::Take {
            dir: self.0.at,
            from,
            name: name.into(),
            to: to.into(),
        })
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Done {
        self.touched(from)?;
        self.touched(to)?;
        self.done(&Request::Rename {
            dir: self.0.at,
            from: from.into(),
            to: to.into(),
        })
    }

    fn displace(&self, from: &CStr, to: &CStr, below_max: u64) -> Removed {
        if let Err(fault) = self.touched(from).and_then(|()| self.touched(to)) {
            return Removed::failed(to, fault);
        }
        self.removed(
            to,
            &Request::Displace {
                dir: self.0.at,
                from: from.into(),
                to: to.into(),
                below_max,
            },
        )
    }

    fn remove(&self, name: &CStr) -> Done {
        self.touched(name)?;
        self.done(&Request::Remove {
            dir: self.0.at,
            name: name.into(),
        })
    }

    fn remove_dir(&self, name: &CStr) -> Done {
        self.touched(name)?;
        self.done(&Request::RemoveDir {
            dir: self.0.at,
            name: name.into(),
        })
    }

    fn remove_tree(&self, name: &CStr, spared: Spared<'_>) -> Removed {
        // Most of what goes is no directory, and that needs no rules, which may be long.
        if spared.rules.is_some() {
            match self.remove(name) {
                Ok(()) => {
                    return Removed {
                        entries: 1,
                        met: 1,
                        ..Removed::default()
                    };
                }
                Err(fault) if !may_be_directory(&fault) => return Removed::failed(name, fault),
                Err(_) => {}
            }
        }
        if let Err(fault) = self.touched(name) {
            return Removed::failed(name, fault);
        }
        self.removed(
            name,
            &Request::RemoveTree {
                dir: self.0.at,
                name: name.into(),
                spared: WireSpared::of(spared),
            },
        )
    }

    fn remove_leftover(&self, name: &CStr) -> Removed {
        if let Err(fault) = self.touched(name) {
            return Removed::failed(name, fault);
        }
        self.removed(
            name,
            &Request::RemoveLeftover {
                dir: self.0.at,
                name: name.into(),
            },
        )
    }

    fn sync_all(&self) -> Done {
        self.done(&Request::SyncAll { dir: self.0.at })
    }

    fn lock(&self, name: Option<&CStr>, reach: Reach) -> Done<Lock> {
        let at = self.0.client.connection.handle();
        let held = FarLock(self.0.client.clone(), self.0.side, at);
        match self.call(&Request::Lock {
            dir: self.0.at,
            name: name.map(Name::from),
            reach,
            at,
        })? {
            (Reply::Lock(Locked::Held), _) => Ok(Lock::Held(Box::new(held))),
            (Reply::Lock(Locked::Taken(holder)), _) => Ok(Lock::Taken(holder)),
            (Reply::Lock(Locked::Left(name)), _) => Ok(Lock::Left(name)),
            (Reply::Lock(Locked::Missing(errno)), _) => Ok(Lock::Missing(errno)),
            _ => self.confused(),
        }
    }

    fn set_unfinished(&self, is: bool) -> Done {
        self.pass_gate()?;
        self.done(&Request::SetUnfinished { dir: self.0.at, is })
    }

    fn set_mark(&self, text: &[u8], durable: bool) -> Done<Stamp> {
        match self.call(&Request::SetMark {
            dir: self.0.at,
            text: text.to_vec(),
            durable,
        })? {
            (Reply::Time(now), _) => Ok(now),
            _ => self.confused(),
        }
    }

    fn before_change(&self, act: Option<BeforeChange>) {
        self.0.client.gate.set(act);
    }

    fn guard(&self, sentry: Option<Arc<dyn Sentry>>) {
        self.0.client.gate.guard(sentry);
    }

    fn hold(&self, identity: u128, movers: u128) -> Done {
        self.done(&Request::Hold {
            dir: self.0.at,
            identity,
            movers,
        })
    }

    fn confirm(&self) -> Done {
        if self.0.side == Side::Replica {
            self.0.client.gate.confirm()
        } else {
            Ok(())
        }
    }

    fn submit_change(&self, token: u64, op: OpMut) {
        let (at, side, kept) = (self.0.at, self.0.side, self.0.clone());
        let connection = &self.0.client.connection;
        match op {
            OpMut::Make(new) => {
                if let Err(fault) = self.touched(&new.name) {
                    return connection.refuse(token, Completion::Made(Err(fault)));
                }
                let (new, data) = NewEntryHead::of(*new);
                let request = Request::Make {
                    dir: at,
                    new: Box::new(new),
                };
                connection.submit(
                    token,
                    (&request, data),
                    false,
                    Box::new(move |reply| made(&kept, side, reply)),
                );
            }
            OpMut::SetOwn(known, attributes) => {
                if let Err(fault) = self.pass_gate() {
                    return connection.refuse(token, Completion::OwnSet(vec![fault]));
                }
                self.0.forget_own();
                let request = Request::SetOwn {
                    at,
                    known,
                    attributes: *attributes,
                };
                connection.submit(
                    token,
                    (&request, Vec::new()),
                    true,
                    Box::new(move |reply| own_set(&kept, side, reply)),
                );
            }
        }
    }
}
