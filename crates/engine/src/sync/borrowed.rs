//! A replica that is lent to this process: what is looked at before each change.

use crate::lent::Lent;
use crate::options::Options;
use crate::shared::brief::misfit;
use crate::shared::lease::{Lease, Moment, Over};
use crate::trees::error::RunError;
use crate::trees::held::Held;
use driftless_model::{Side, escape};
use driftless_tree::{DirMutRef, DirRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};

/// A lease, with the threads that keep what it knows fresh.
pub struct Borrowed {
    lease: Arc<Lease>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Borrowed {
    /// Stands guard over a replica that is lent to this process.
    ///
    /// # Errors
    /// It is not lent, or not to a process that reads the same source with the same rights.
    pub fn of(
        (options, lent): (&Options, &Lent),
        source: &DirRef,
        replica: &DirMutRef,
    ) -> Result<Borrowed, RunError> {
        let unusable = |path: String, cause: &str| RunError::Unusable {
            path,
            cause: cause.to_owned(),
        };
        if !lent.source.is_of(source) {
            let why = "this is not the directory that the leader reads; is its file system mounted on this host?";
            return Err(unusable(options.source.to_string(), why));
        }
        let seen = replica.clone() as DirRef;
        let keep = &options.policy.keep;
        if let Some((path, side)) = lent.shown.differs((source, &seen), keep) {
            let why = format!(
                "\"{}\" is not what the leader sees; is another file system, a snapshot or an old copy mounted on this host, or are owners, attributes or ACLs shown otherwise?",
                escape(path.as_bytes())
            );
            let root = match side {
                Side::Source => &options.source,
                Side::Replica => &options.replica,
            };
            return Err(unusable(root.to_string(), &why));
        }
        let path = options.replica.to_string();
        if let Some(why) = misfit(&options.policy.keep, &lent.rights, &replica.rights()) {
            return Err(RunError::Misfit { path, why });
        }
        let lease = Arc::new(Lease::default());
        lease.heard(Moment::now());
        lease
            .guard_held(replica, Some(Held::from(lent)))
            .map_err(|over| not_held(&path, &over))?;
        let mut borrowed = Borrowed {
            lease,
            is_over: Arc::default(),
            threads: Vec::new(),
        };
        borrowed
            .keep_fresh()
            .map_err(|error| unusable(path, &error.to_string()))?;
        Ok(borrowed)
    }

    fn keep_fresh(&mut self) -> std::io::Result<()> {
        let (lease, is_over) = (self.lease.clone(), self.is_over.clone());
        let tick = move || lease.tick_until(&is_over);
        self.threads
            .push(Builder::new().name("tick".into()).spawn(tick)?);
        let (lease, is_over) = (self.lease.clone(), self.is_over.clone());
        let look = move || lease.look_until(&is_over);
        self.threads
            .push(Builder::new().name("look".into()).spawn(look)?);
        Ok(())
    }

    /// What is asked before each change.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Why nothing may be changed any more, if nothing may.
    pub fn refusal(&self, options: &Options) -> Option<RunError> {
        let over = self.lease.over()?;
        Some(not_held(&options.replica.to_string(), &over))
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.lease.end(Over::Unwanted);
        self.lease.leave();
        self.is_over.store(true, Relaxed);
        for thread in &self.threads {
            thread.thread().unpark();
        }
    }
}

fn not_held(path: &str, over: &Over) -> RunError {
    let path = path.to_owned();
    let why = match over {
        Over::Unwanted => "the leader sends no messages any more".to_owned(),
        Over::NotHeld(_) => {
            "the leader has ended, or another run works on the replica now".to_owned()
        }
        Over::OtherTree => {
            "this is not the leader's replica; is its file system mounted on this host?".to_owned()
        }
        Over::Unknown(why) => why.clone(),
    };
    RunError::NotHeld { path, why }
}
