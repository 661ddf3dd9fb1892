//! Carrying out one batch of a run, on whatever host.

use crate::monitor::Progress;
use crate::options::Options;
use crate::shared::batch::{Batch, Outcome, Piece};
use crate::shared::brief::Brief;
use crate::shared::lease::{Lease, Over};
use crate::shared::role::{Gathered, Part, Sharing};
use crate::shared::settled::{ReplicaView, Settled};
use crate::sync::begin::begin_root;
use crate::sync::ending::{End, end_run, or_cut_off};
use crate::sync::ground::Ground;
use crate::sync::run::Run;
use crate::sync::task::Task;
use crate::sync::visit::Visit;
use crate::tally::add;
use crate::trees::error::RunError;
use crate::trees::mounts::files_mounted;
use crate::trees::replica::Replica;
use crate::trees::roots::{Roots, find};
use crate::view::{Further, Views};
use driftless_model::{Scope, Selection, Side, Work, escape};
use driftless_pool::{descriptors, drive};
use driftless_tree::{DirMutRef, DirRef, HandlePool, MountTable};
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How a batch is told to end: at once and without an outcome, or early, leaving the rest to
/// others.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// At once.
    pub stop: &'a AtomicBool,
    /// Early.
    pub yields: &'a AtomicBool,
    /// Early, because this mover shall end: what is begun, and would have to be begun anew
    /// elsewhere, is left, too.
    pub leaves: &'a AtomicBool,
    /// What a mover may do; `None` in a process that holds the replica itself.
    pub lease: Option<&'a Arc<Lease>>,
}

const OTHER_TREE: &str =
    "this is not the directory that the coordinator sees; is its file system mounted on this host?";

/// What a mover has found out about the trees of a run, and need not find out with each batch: what
/// file systems can do, what its user may do, buffers, limits. The roots themselves are opened for
/// each batch: a file system may have been unmounted in between.
#[derive(Default)]
pub struct Known {
    ground: Option<Ground>,
    /// Number of entries of these trees that the coordinator was told for comparison.
    told: usize,
}

impl Known {
    /// What holds between these roots, known before or not.
    fn ground(&mut self, options: &Options, roots: (DirRef, Option<DirMutRef>)) -> Ground {
        let known = self.ground.take().filter(|known| known.is_of(&roots));
        if known.is_none() {
            self.told = 0;
        }
        let ground = known.map_or_else(
            || Ground::of(options, roots.clone()),
            |known| known.again(options, roots.clone()),
        );
        self.ground = Some(ground.clone());
        ground
    }
}

/// Carries out a batch between the trees of `options`, which are the ones of `brief`, and makes
/// what was done durable. `watch` is told a few times a second how far it is. The outcome counts
/// only where the end is `Complete` or `Lost`.
///
/// # Errors
/// The trees cannot be used, or what came of it could not be kept.
pub fn work_off(
    (options, known): (&Options, &mut Known),
    (brief, batch): (&Brief, &Batch),
    watch: &(dyn Fn(&Progress) + Sync),
    ends: Ends<'_>,
) -> Result<(Outcome, End), RunError> {
    or_cut_off(
        try_work_off((options, known), (brief, batch), watch, ends),
        options,
        |end| (Outcome::default(), end),
    )
}

fn try_work_off(
    (options, known): (&Options, &mut Known),
    (brief, batch): (&Brief, &Batch),
    watch: &(dyn Fn(&Progress) + Sync),
    ends: Ends<'_>,
) -> Result<(Outcome, End), RunError> {
    let (directories, threads_max) = descriptors();
    let (roots, renamed) = open_for_batch(options, directories)?;
    refuse_other(options, brief, &roots)?;
    refuse_misfit(options, brief, roots.1.as_ref())?;
    let replica = roots.1.clone().filter(|_| ends.lease.is_some());
    if let (Some(lease), Some(replica)) = (ends.lease, &replica) {
        lease
            .guard(replica, brief)
            .map_err(|over| refusal(options, over))?;
    }
    let ground = known.ground(options, roots);
    let charge = Charge {
        brief,
        batch,
        watch,
        ends,
        told: known.told,
    };
    let done = carry_out(options, &charge, (ground, renamed), threads_max);
    if let Ok((outcome, _)) = &done {
        known.told += outcome.settled.len();
    }
    // After all threads that change something have ended.
    ends.lease.into_iter().for_each(|lease| lease.leave());
    done
}

/// A batch that is to be carried out: of which run, who is told how far it is, and how it is told
/// to end.
struct Charge<'a> {
    brief: &'a Brief,
    batch: &'a Batch,
    watch: &'a (dyn Fn(&Progress) + Sync),
    ends: Ends<'a>,
    /// Number of entries of the trees that earlier batches told.
    told: usize,
}

fn carry_out(
    options: &Options,
    charge: &Charge<'_>,
    (ground, renamed): (Ground, Option<CString>),
    threads_max: usize,
) -> Result<(Outcome, End), RunError> {
    let &Charge {
        brief,
        batch,
        watch,
        ends,
        told,
    } = charge;
    let gathered = Gathered::new(brief.receipts, watch);
    let (source, replica) = ground.roots.clone();
    let is_single = renamed.is_some();
    let mut run = Run::new(options, &gathered, ends.stop, ground);
    run.part = Part::Batch(Sharing::new(
        (brief, batch),
        (ends.yields, ends.leaves),
        &gathered,
    ));
    run.lease = ends.lease.cloned();
    run.is_single = is_single;
    run.renamed.clone_from(&renamed);
    run.rules.suspect_since = brief.suspect_since();
    let postponing = run.allow_postponing();
    if let Some(visit) = root_visit(&run, batch)? {
        run.queue.push(Task::Again(Arc::new(visit)));
    }
    for piece in &batch.pieces {
        if let Piece::Bytes(path, source, range) = piece {
            run.queue
                .push(Task::Bytes(path.clone(), source.clone(), range.clone()));
        }
    }
    let replica = replica.map(|replica| replica as DirRef);
    let note_mounts = || {
        if !is_single {
            note_source_mounts(options, &gathered, &source);
        }
    };
    // What is mounted may go while the batch is carried out.
    note_mounts();
    drive(&run, threads_max);
    // A batch that was taken away has no outcome: this look is all that is known of it.
    watch(&run.progress(0));
    run.gather_rest(postponing)
        .map_err(|error| RunError::Unusable {
            path: options.replica.to_string(),
            cause: error.to_string(),
        })?;
    let summary = end_run(&run, End::Complete);
    let mounts = summary.mounts.into_iter().collect();
    let mut outcome = Outcome {
        counts: summary.counts,
        mounts,
        ..gathered.take()
    };
    note_mounts();
    if let Some(replica) = replica.as_ref().filter(|_| !is_single) {
        note_replica_mounts(options, &gathered, (&source, replica));
    }
    let is_far = |root: &DirRef| root.as_local().is_none();
    let is_far = is_far(&source) || replica.as_ref().is_some_and(is_far);
    outcome.settled = gathered.settled.take(is_far, told);
    Ok((outcome, summary.end))
}

/// Notes the files of the source on which another is mounted on this host: the coordinator must see
/// the same there.
fn note_source_mounts(options: &Options, gathered: &Gathered<'_>, source: &DirRef) {
    let mut views = Views::of(source, &options.policy.keep);
    for path in files_mounted(options, &MountTable::default(), (&options.source, source)) {
        let seen = views.read(&path, Further::default());
        gathered.settled.add_mount(Settled {
            source: seen.ok(),
            replica: ReplicaView::Left,
            is_equal: false,
            is_mounted: true,
            path,
        });
    }
}

/// Notes the files of the replica on which another is mounted on this host.
fn note_replica_mounts(
    options: &Options,
    gathered: &Gathered<'_>,
    (source, replica): (&DirRef, &DirRef),
) {
    let keep = &options.policy.keep;
    let (mut of_source, mut of_replica) = (Views::of(source, keep), Views::of(replica, keep));
    let further = Further {
        birth: true,
        ..Further::default()
    };
    for path in files_mounted(options, &MountTable::default(), (&options.replica, replica)) {
        // What the source lacks is no work of this batch.
        let views = (
            of_source.read(&path, Further::default()),
            of_replica.read(&path, further),
        );
        if let (Ok(seen), Ok(there)) = views {
            gathered.settled.add_mount(Settled {
                source: Some(seen),
                replica: ReplicaView::Seen(Box::new(there)),
                is_equal: false,
                is_mounted: false,
                path,
            });
        }
    }
}

/// A file system that is not mounted on this host looks like an empty tree.
fn refuse_other(
    options: &Options,
    brief: &Brief,
    (source, replica): &(DirRef, Option<DirMutRef>),
) -> Result<(), RunError> {
    let Some(replica) = replica else {
        return Ok(());
    };
    let path = match brief.other_root(source, replica) {
        None => return refuse_beneath(options, brief, &(replica.clone() as DirRef)),
        Some(Side::Source) => options.source.to_string(),
        Some(Side::Replica) => options.replica.to_string(),
    };
    Err(RunError::Unusable {
        path,
        cause: OTHER_TREE.into(),
    })
}

/// Refuses a replica that lacks a file system which is mounted below it on the coordinator's host:
/// what was written there would lie beneath that file system.
fn refuse_beneath(options: &Options, brief: &Brief, replica: &DirRef) -> Result<(), RunError> {
    let Some(lacking) = brief.lacking_mount(replica) else {
        return Ok(());
    };
    let path = escape(lacking.as_bytes());
    Err(RunError::Unusable {
        path: options.replica.to_string(),
        cause: format!(
            "\"{path}\" is not what is mounted there on the coordinator's host; mount it on this host"
        ),
    })
}

/// A mover of another user may leave what it makes to the wrong owner.
fn refuse_misfit(
    options: &Options,
    brief: &Brief,
    replica: Option<&DirMutRef>,
) -> Result<(), RunError> {
    let why = replica.and_then(|replica| brief.misfit(&replica.rights()));
    why.map_or(Ok(()), |why| {
        Err(RunError::Misfit {
            path: options.replica.to_string(),
            why,
        })
    })
}

/// Why a mover cannot carry out a batch.
fn refusal(options: &Options, over: Over) -> RunError {
    let path = options.replica.to_string();
    match over {
        Over::Unwanted => RunError::NotHeld {
            path,
            why: "the batch is not wanted any more".into(),
        },
        Over::NotHeld(why) => RunError::NotHeld { path, why },
        Over::OtherTree => RunError::Unusable {
            path,
            cause: OTHER_TREE.into(),
        },
        Over::Unknown(cause) => RunError::Unusable { path, cause },
    }
}

/// Both roots, and the name of the replica of a single file.
type ForBatch = ((DirRef, Option<DirMutRef>), Option<CString>);

/// Opens both roots. The coordinator has asked whether they may be used, has made the
/// replica's, and holds its lock.
fn open_for_batch(options: &Options, directories: usize) -> Result<ForBatch, RunError> {
    match find(options, &HandlePool::new(directories))? {
        Roots::Trees {
            source,
            replica: Replica::There(replica),
        } => Ok(((source, Some(replica)), None)),
        Roots::Trees {
            replica: Replica::Missing(..),
            ..
        } => Err(RunError::NoReplica(options.replica.to_string())),
        Roots::Entries { source, replica } => Ok(((source.0, Some(replica.0)), Some(replica.1))),
    }
}

/// The root as a visit, if anything of the batch is found by walking from there.
fn root_visit(run: &Run<'_>, batch: &Batch) -> Result<Option<Visit>, RunError> {
    let mut works = Vec::new();
    for piece in &batch.pieces {
        match piece {
            Piece::Root => works.push(Work {
                path: driftless_model::RelPath::root(),
                scope: Scope::Subtree,
            }),
            Piece::Entries(dir, names) => {
                works.extend(names.iter().map(|name| Work {
                    path: dir.join(name.as_bytes()),
                    scope: Scope::Subtree,
                }));
            }
            Piece::Rest(path, ..) => works.push(Work {
                path: path.clone(),
                scope: Scope::Subtree,
            }),
            Piece::Bytes(..) => {}
        }
    }
    if works.is_empty() {
        return Ok(None);
    }
    let selection = Selection::of(&works);
    add(&run.tally.seen, u64::from(selection.whole));
    begin_root(run, selection, batch.walk).map(Some)
}
