//! The coordinator of a cast: builds the catalogue, keeps the nodes connected, and carries out the
//! orders of the planner.
//!
//! One thread owns the planner. Two threads for each node carry messages. The source feeds from this
//! process, as node 0. Data of the other nodes never pass through here.

pub(crate) mod asked;
mod conductor;
mod failed;
pub(crate) mod launch;
mod record;
mod report;
mod run;
mod source;

use crate::message::{CastId, OUTBOX_ALONE, READER_ALONE};
use crate::node::host::{link_settings, open_store};
use crate::{
    CastEvent, CastMonitor, CastPlace, CastReport, CastSettings, Error, PeerTrust, TlsIdentity,
};
use conductor::ConductorContext;
use crossbeam_channel::{bounded, unbounded};
use driftless_dataplane::DataEndpoint;
use driftless_lock::Mutex;
use driftless_store::{BuildOptions, BuiltSet, CopyRights, is_outbox_name};
use launch::Launcher;
use ring::rand::{SecureRandom, SystemRandom};
use run::CastRun;
use source::{SourceFeeders, SourceParts};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Messages of nodes that wait for the loop.
const INPUTS_MAX: usize = 1024;

/// Distributes the sources to the nodes, and returns the outcome of each node.
///
/// Returns once each node has an outcome, or `stop` is set. A node that fails is no error.
///
/// # Errors
/// Fails before the distribution begins: sources are unreadable, the store cannot be opened, or the
/// settings contradict each other.
pub fn cast(
    settings: &CastSettings,
    monitor: &dyn CastMonitor,
    stop: &AtomicBool,
) -> Result<CastReport, Error> {
    let began = Instant::now();
    check(settings)?;
    let built = build(settings, monitor, stop)?;
    let catalogue = Arc::clone(&built.catalogue);
    monitor.event(CastEvent::Catalogued {
        set: catalogue.hash().to_string(),
        entries: catalogue.entries(),
        bytes: catalogue.bytes(),
        units: catalogue.units(),
    });
    let (endpoint, trust) = endpoint_of(settings)?;
    let cast = random_id()?;
    // A node that sends more than the loop takes waits.
    let (inputs, arriving) = bounded(INPUTS_MAX);
    let (reports, reported) = unbounded();
    let parts = SourceParts {
        cast,
        endpoint: endpoint.clone(),
        reports,
    };
    let source = SourceFeeders::new(built, parts, &settings.transfer);
    let is_over = AtomicBool::new(false);
    let done: Vec<AtomicBool> = settings
        .nodes
        .iter()
        .map(|_| AtomicBool::new(false))
        .collect();
    let programs = Mutex::new(HashMap::new());
    let is_stopped = || stop.load(Relaxed) || is_over.load(Relaxed);
    let context = ConductorContext {
        launcher: Launcher {
            endpoint: &endpoint,
            trust: &trust,
            has_authority: settings.authority_pem.is_some(),
            ssh: settings.ssh.as_ref(),
            programs: &programs,
            is_stopped: &is_stopped,
        },
        catalogue: Arc::clone(&catalogue),
        inputs,
        is_over: &is_over,
    };
    let mut run = CastRun::new(settings, monitor, (cast, catalogue, source), &done)?;
    run.began = began;
    std::thread::scope(|scope| {
        let started = run.start_conductors(scope, &context);
        if started.is_ok() {
            run.serve(&arriving, &reported, stop);
        }
        run.close(&arriving);
        is_over.store(true, Relaxed);
        // Nobody waits for room.
        drop(arriving);
        started
    })?;
    Ok(run.report(stop.load(Relaxed)))
}

fn check(settings: &CastSettings) -> Result<(), Error> {
    if settings.sources.is_empty() {
        return Err(Error::Settings(
            "no source is given: name a file or directory",
        ));
    }
    if settings.nodes.is_empty() {
        return Err(Error::Settings("no node is given: name one with --nodes"));
    }
    if let CastPlace::Directory(path) = &settings.place
        && !path.is_absolute()
    {
        return Err(Error::Settings(
            "the directory on the nodes is not absolute: write the whole path",
        ));
    }
    let content = &settings.content;
    let is_closed = content.job.is_some() && settings.place == CastPlace::Cache;
    if content.reader.is_some() && !is_closed {
        return Err(Error::Settings(READER_ALONE));
    }
    let has_outbox_name = content.job.as_ref().is_some_and(|job| is_outbox_name(job));
    if content.has_outbox && !(is_closed && has_outbox_name) {
        return Err(Error::Settings(OUTBOX_ALONE));
    }
    if settings.rights == CopyRights::ReadOnly && content.reader.is_none() {
        // Every user could read the entries.
        return Err(Error::Settings(
            "a copy that all users may read needs a user who alone can open it: name a reader",
        ));
    }
    Ok(())
}

/// Checks that the store of this host is no part of a source, and no source a part of the store. Makes
/// nothing.
///
/// # Errors
/// [`Error::Overlap`]; a source cannot be opened.
pub fn check_sources(sources: &[PathBuf], dir: &Path) -> Result<(), Error> {
    for source in sources {
        if driftless_store::overlaps(source, dir)? {
            return Err(Error::Overlap {
                source_path: source.clone(),
                dir: dir.to_owned(),
            });
        }
    }
    Ok(())
}

fn build(
    settings: &CastSettings,
    monitor: &dyn CastMonitor,
    stop: &AtomicBool,
) -> Result<BuiltSet, Error> {
    check_sources(settings.sources.paths(), &settings.dir)?;
    let store = open_store(&settings.dir)?;
    let mut pace = |bytes| {
        monitor.event(CastEvent::Hashed { bytes });
        !stop.load(Relaxed)
    };
    let mut options = BuildOptions {
        keep: settings.keep,
        rights: settings.rights,
        user: settings.content.reader.unwrap_or_else(own_user),
        pace: &mut pace,
    };
    Ok(store.build(&settings.sources, &mut options)?)
}

/// Returns the endpoint of a coordinator, and the keys that it trusts.
pub(crate) fn endpoint_with(
    identity: Option<&TlsIdentity>,
    authority_pem: Option<&[u8]>,
    transfer: &crate::TransferSettings,
) -> Result<(DataEndpoint, PeerTrust), Error> {
    let identity = match identity {
        Some(identity) => identity.clone(),
        None => TlsIdentity::generate()?,
    };
    let trust = match authority_pem {
        Some(pem) => PeerTrust::authority(pem)?,
        None => PeerTrust::keys([]),
    };
    let endpoint = DataEndpoint::new(identity, trust.clone(), link_settings(transfer))?;
    Ok((endpoint, trust))
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn endpoint_of(settings: &CastSettings) -> Result<(DataEndpoint, PeerTrust), Error> {
    let authority = settings.authority_pem.as_deref();
    endpoint_with(settings.identity.as_ref(), authority, &settings.transfer)
}

fn random_id() -> Result<CastId, Error> {
    let mut id = [0; 16];
    let filled = SystemRandom::new().fill(&mut id);
    filled
        .map_err(|_| Error::Settings("the system gives no random numbers: check /dev/urandom"))?;
    Ok(CastId(id))
}
