//! Another host whose trees are worked on.

use crate::client::Client;
use crate::client::connection::{Connection, nonsense};
use crate::client::dir::{Foretold, RemoteDir, place};
use crate::ssh::child::{end, part};
use crate::ssh::deploy::bring;
use crate::ssh::reach::in_place_of;
use crate::ssh::reach::{Reach, ReachError};
use crate::ssh::spawn::{silent, tuned};
use crate::ssh::stream::Stream;
use crate::ssh::streams::{Children, Further, Told};
use crate::wire::{Frame, Identity, Limits, Met, Opening, Reply, Request, Root, WireFault};
use crossbeam_channel::unbounded;
use driftless_lock::Mutex;
use driftless_model::{Act, Side, errno, escape};
use driftless_tree::{Completion, DirMutRef, DirRef, Gate, Host, Loss, Place, RootError};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// What the first agent is started with; further ones hand their connections over to it. That both
/// sides can compress, the protocol's number says.
fn agent_arguments(reach: &Reach, known_as: &str) -> String {
    reach.compress.map_or(format!("agent {known_as}"), |level| {
        format!("agent --compress={level} {known_as}")
    })
}

/// Another host, reached through ssh.
pub struct SshHost {
    name: String,
    reach: Reach,
    /// By what an agent knows those that were started for the same run.
    token: String,
    identity: Identity,
    limits: Limits,
    roots: Vec<Root>,
    client: Arc<Client>,
    children: Children,
    told: Arc<Told>,
}

impl SshHost {
    /// Connects to `name`, which is what ssh takes: a host or `user@host`. Nothing but these roots
    /// can be used there.
    pub fn connect(
        name: &str,
        roots: Vec<Root>,
        reach: &Reach,
    ) -> Result<Arc<SshHost>, ReachError> {
        let (mut reach, token) = (tuned(name, reach), format!("{:032x}", fastrand::u128(..)));
        let arguments = agent_arguments(&reach, &format!("--run {token}"));
        let give_up = || false;
        let opened = match (
            Stream::open(name, &reach, &arguments, &give_up),
            &reach.deploy,
        ) {
            (Err(ReachError::NoAgent { .. } | ReachError::OtherVersion { .. }), Some(program)) => {
                reach.agent = in_place_of(&reach.agent, bring(name, &reach, program)?);
                Stream::open(name, &reach, &arguments, &give_up)?
            }
            (opened, _) => opened?,
        };
        Ok(SshHost::over(opened, (name, roots), (reach, token), None))
    }

    /// What the agent there lets its clients do.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Connects in place of this host, whose connection was lost. Its agent is ended, if it has not
    /// noticed. Nobody is asked for a password, since nobody may be there any more. Polls
    /// `give_up`, and ends with [`ReachError::NoAnswer`] when that says so.
    pub fn connect_again(&self, give_up: &dyn Fn() -> bool) -> Result<Arc<SshHost>, ReachError> {
        // What the lost connection still holds must not arrive there any more.
        for child in &mut *self.children() {
            end(child);
        }
        let silent = silent(&self.reach);
        let arguments = agent_arguments(&silent, &format!("--again {}", self.token));
        let opened = Stream::open(&self.name, &silent, &arguments, give_up)?;
        match self.identity.meets(&opened.hello.identity) {
            Met::Same => {}
            // What it reads of a source is what is there now.
            Met::Restarted if self.roots.iter().all(|root| root.side == Side::Source) => {}
            Met::Restarted => self.told.say(format!(
                "{}: the host was restarted: the run compares again the content of its earlier changes there",
                self.name
            )),
            Met::Other => {
                let now = opened.hello.identity.clone();
                opened.give_up();
                let shown = |identity: &Identity| escape(&identity.host);
                return Err(ReachError::OtherHost { host: self.name.clone(), first: shown(&self.identity), now: shown(&now) });
            }
        }
        let reach = (self.reach.clone(), self.token.clone());
        Ok(SshHost::over(
            opened,
            (&self.name, self.roots.clone()),
            reach,
            Some(self.told.clone()),
        ))
    }

    /// What the user should know and was not told yet.
    pub fn notes(&self) -> Vec<String> {
        self.told.take()
    }

    fn children(&self) -> MutexGuard<'_, Vec<Child>> {
        self.children.lock()
    }

    fn over(
        opened: Stream,
        (name, roots): (&str, Vec<Root>),
        (reach, token): (Reach, String),
        earlier: Option<Arc<Told>>,
    ) -> Arc<SshHost> {
        let (out, frames) = unbounded();
        out.send(Frame::new(
            0,
            &Opening {
                roots: roots.clone(),
            },
            Vec::new(),
        ))
        .expect("both ends are here");
        let client = Arc::new(Client {
            connection: Connection::new(out),
            rights: opened.hello.rights.clone(),
            keep: reach.keep,
            gate: Gate::default(),
            host: name.into(),
            is_again: earlier.is_some(),
        });
        let told = earlier.unwrap_or_default();
        let (identity, limits) = (opened.hello.identity.clone(), opened.hello.limits.clone());
        // A key with a command of its own may start an agent that knows nothing of it.
        let agreed = Reach {
            compress: reach.compress.filter(|_| opened.hello.compresses),
            ..reach.clone()
        };
        let child = opened.run(frames, (&client, &agreed), || ());
        let children = Arc::new(Mutex::new(vec![child]));
        Further::new(name, &silent(&agreed), (&client, &children), &told).begin();
        Arc::new(SshHost {
            name: name.into(),
            reach,
            token,
            identity,
            limits,
            roots,
            client,
            children,
            told,
        })
    }
}

impl Drop for SshHost {
    fn drop(&mut self) {
        let was_lost = self.client.connection.lost().is_some();
        self.client.connection.lose(Loss {
            why: "it was given up".into(),
            is_mendable: false,
        });
        let mut children = std::mem::take(&mut *self.children());
        for child in &mut children {
            // Over a connection that is lost nobody is told anything any more.
            if was_lost {
                end(child)
            } else {
                part(child)
            };
        }
    }
}

impl Host for SshHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn machine(&self) -> &[u8] {
        &self.identity.machine
    }

    fn locate(&self, path: &Path, side: Side) -> Result<Place, RootError> {
        Ok(self.find(path, side)?.map(|dir| Arc::new(dir) as DirRef))
    }

    fn locate_mut(&self, path: &Path) -> Result<Place<DirMutRef>, RootError> {
        Ok(self
            .find(path, Side::Replica)?
            .map(|dir| Arc::new(dir) as DirMutRef))
    }

    fn completions(&self, wait: Duration) -> Vec<(u64, Completion)> {
        self.client.connection.next_completions(wait)
    }

    fn round_trip(&self) -> Duration {
        self.client.connection.round_trip()
    }

    fn lost(&self) -> Option<Loss> {
        self.client.connection.lost()
    }
}

fn request_path(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

impl SshHost {
    /// What stands at a path that was named when this was connected to.
    fn find(&self, path: &Path, side: Side) -> Result<Place<RemoteDir>, RootError> {
        let named = self
            .roots
            .iter()
            .position(|root| root.path == path.as_os_str().as_bytes() && root.side == side);
        let Some(root) = named else {
            return Err(self.refused(
                &request_path(path),
                &WireFault::new(Act::Open, errno::EACCES),
                side,
            ));
        };
        let at = self.client.connection.handle();
        let request = Request::Locate {
            root: root as u32,
            at,
        };
        let mut foretold = Foretold::default();
        let located = match self.client.connection.call_and(&request, Vec::new(), || {
            foretold = Foretold::ask(&self.client, at)
        }) {
            Ok((Reply::Located(located), _)) => place(&self.client, (side, at), located, foretold),
            Ok(_) => Err((request_path(path), nonsense())),
            Err(fault) => Err((request_path(path), fault)),
        };
        located.map_err(|(path, fault)| self.refused(&path, &fault, side))
    }

    fn refused(&self, path: &[u8], fault: &WireFault, side: Side) -> RootError {
        let fault = fault.on(side);
        let shown = [self.name.as_bytes(), b":", path].concat();
        let error = RootError::from_errno(
            &PathBuf::from(std::ffi::OsString::from_vec(shown)),
            fault.act,
            fault.errno,
        );
        let limits = if fault.errno == errno::EACCES {
            self.limits.places()
        } else {
            None
        };
        limits.map_or(error.clone(), |places| {
            error.with_hint(format!("the agent there limits this login to {places}"))
        })
    }
}
