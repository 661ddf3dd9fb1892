//! `driftless mirror`: a replica that stays equal, and what can be asked of it.

mod agree;
mod alone;
mod announcements;
mod asking;
mod back;
mod declared;
mod detectors;
mod give_up;
mod import_sr3;
mod join;
mod keep_equal;
mod kept;
mod list;
mod missing;
pub mod operators;
mod over;
mod places;
mod pool;
mod programs;
mod publish;
mod rivals;
mod shared;
mod take_job;
mod trash;
mod waiting;

use crate::args::{JobArgs, MirrorArgs, MirrorCommand};
use crate::command::job;
use crate::exit::Exit;
use crate::output::mirror as say;
use crate::units::show_counted;
use asking::{ask, ask_or_not_running, hear};
use driftless_mirror::ask::{Answer, Ask, Troubles};
use driftless_mirror::status::Status;
use std::os::unix::ffi::OsStrExt;

/// The exit code, and what to say.
type Failure = (Exit, String);

/// Runs a command of the mirror; returns the exit code.
pub fn run(args: &MirrorArgs) -> Exit {
    let done = match &args.command {
        MirrorCommand::Check(args) => check(args),
        MirrorCommand::Run {
            job,
            new_replica,
            log,
        } => keep_equal::keep_equal(job, *new_replica, log),
        MirrorCommand::Join { job, log } => join::join(job, log),
        MirrorCommand::List { json } => list::list(*json, false),
        MirrorCommand::Status {
            job: None,
            json,
            check,
        } => list::list(*json, *check),
        MirrorCommand::Status {
            job: Some(job),
            json,
            check,
        } => status(&JobArgs { job: job.clone() }, *json, *check),
        MirrorCommand::Pause(args) => ask_done(args, &Ask::Pause),
        MirrorCommand::Resume(args) => ask_done(args, &Ask::Resume),
        MirrorCommand::SyncNow { job, wait, all } => {
            let (wait, all) = (*wait, *all);
            let done = ask_done(job, &Ask::SyncNow { wait, all });
            done.inspect(|_| say_what_is_covered(job, wait))
        }
        MirrorCommand::Barrier { job, timeout } => {
            let done = ask_done(job, &Ask::Barrier { timeout: *timeout });
            done.inspect(|_| say_what_is_covered(job, true))
        }
        MirrorCommand::Problems { job, json } => problems(job, *json),
        MirrorCommand::Foreign { job, json } => foreign(job, *json),
        MirrorCommand::Failover(args) | MirrorCommand::Promote(args) => over::fail_over(args),
        MirrorCommand::Failback(args) => back::fail_back(args),
        MirrorCommand::Trash { job, command } => trash::run(job, command.as_ref()),
        MirrorCommand::ImportSr3(args) => import_sr3::run(args),
        MirrorCommand::Retry { job, path } => {
            let path = path
                .as_ref()
                .map(|path| path.as_os_str().as_bytes().to_vec());
            ask_done(job, &Ask::Retry { path })
        }
    };
    let code = done.unwrap_or_else(|(code, why)| {
        say::refusal(code, &why);
        code
    });
    say::final_code(code)
}

fn check(args: &JobArgs) -> Result<Exit, Failure> {
    let job = job::read(&args.job)?;
    job::refuse_long(&job.name)?;
    let warning = places::check(&job)?;
    detectors::check(&job)?;
    publish::check(&job)?;
    programs::check(&job)?;
    operators::check(&job)?;
    let hears = match (job.is_live(), job.snapshots().is_some()) {
        (true, _) => "detectors report changes as they happen",
        (_, true) => "the mirror finds changes by comparing snapshots",
        (false, false) => "the mirror finds changes by full scans",
    };
    for one in job.apart() {
        detectors::check_snapshots(&one)?;
    }
    say::line(&format!("{}: the job is valid; {hears}", job.name));
    let active = job::active(&job)?;
    let active = active
        .first()
        .map(|row| job::active_words(&job, row, &args.job));
    let declared = declared::refuse_here(&job, &args.job).err();
    let active = active.or(declared.map(|(_, why)| why));
    let told = warning.into_iter().chain(places::remembers(&job));
    for told in told.chain(active) {
        say::complaint(&told);
    }
    Ok(Exit::Equal)
}

fn foreign(args: &JobArgs, json: bool) -> Result<Exit, Failure> {
    let Answer::Foreign(replicas) = ask(args, &Ask::Foreign)? else {
        return Err((Exit::Bug, "the mirror gave another answer".into()));
    };
    say::foreign(&replicas, json);
    Ok(Exit::Equal)
}

fn ask_done(args: &JobArgs, question: &Ask) -> Result<Exit, Failure> {
    match ask(args, question)? {
        Answer::Refused(why) | Answer::Forbidden(why) | Answer::Busy(why) => {
            Err((Exit::CouldNotRun, why))
        }
        Answer::Reached { problems: 0 } | Answer::Done => Ok(Exit::Equal),
        Answer::Reached { problems } => Err((
            Exit::Problems,
            format!(
                "all is on the replica but {} (driftless mirror problems tells them, retry tries them at once)",
                show_counted(
                    problems,
                    "path that has a problem",
                    "paths that have problems"
                )
            ),
        )),
        Answer::Late { left: 0 } => Err((
            Exit::Behind,
            "what may differ is still being compared (driftless mirror status)".into(),
        )),
        Answer::Late { left } => Err((
            Exit::Behind,
            format!(
                "{} on the replica yet",
                show_counted(left, "path is not", "paths are not")
            ),
        )),
        Answer::Retried { paths, away } => {
            say::line(&retried(paths, away));
            Ok(Exit::Equal)
        }
        Answer::Status(_) | Answer::Problems(_) | Answer::Foreign(_) | Answer::Report(_) => {
            Ok(Exit::Equal)
        }
    }
}

/// Says what a barrier of a job cannot cover: agents of other hosts are not asked.
fn say_what_is_covered(args: &JobArgs, was_waited: bool) {
    let job = job::read(&args.job).ok().filter(|_| was_waited);
    if job.is_some_and(|job| job.announcements.is_some()) {
        say::complaint(
            "covered: what this host's watch daemons and the broker had; not covered: what watch daemons of other hosts had not announced yet (publisher.waiting and spool_bytes of driftless watch CONFIG --status --json there)",
        );
    }
}

/// What is tried again, in words.
fn retried(paths: u64, away: u64) -> String {
    let tried = show_counted(paths, "path is tried", "paths are tried");
    match (paths, away) {
        (0, 0) => "no path waits to be tried again".into(),
        (0, _) => "trees that were out of reach are tried again".into(),
        (_, 0) => format!("{tried} again"),
        (_, _) => format!("{tried} again, and trees that were out of reach"),
    }
}

fn status(args: &JobArgs, json: bool, check: bool) -> Result<Exit, Failure> {
    // A mirror may run whose file was taken away.
    if let Ok(job) = job::read(&args.job) {
        let active = job::active(&job)?;
        for row in &active {
            let back = job::command_words(&job, &args.job, "failback", &row.about.replica);
            say::active(row, &back, json);
        }
        if !active.is_empty() {
            return Ok(exit_if_behind(check));
        }
    }
    let has_heard = !check || hear(&job::name(&args.job)?)?;
    let replicas = match ask_or_not_running(args, &Ask::Status)? {
        Some(Answer::Status(replicas)) => replicas,
        Some(_) => return Err((Exit::Bug, "the mirror gave another answer".into())),
        None => kept::statuses(&args.job)?,
    };
    let named = args.job.display().to_string();
    let tell = |status| say::status(status, &named, json);
    replicas.iter().for_each(tell);
    let is_behind = |one: &Status| one.is_behind() || !has_heard && one.may_be_behind();
    Ok(exit_if_behind(check && replicas.iter().any(is_behind)))
}

/// Returns the exit code of a look at mirrors of which one is behind, or not.
fn exit_if_behind(is_behind: bool) -> Exit {
    match is_behind {
        true => Exit::Behind,
        false => Exit::Equal,
    }
}

fn problems(args: &JobArgs, json: bool) -> Result<Exit, Failure> {
    let problems = match ask_or_not_running(args, &Ask::Problems)? {
        Some(Answer::Problems(problems)) => problems,
        Some(_) => return Err((Exit::Bug, "the mirror gave another answer".into())),
        None => kept::troubles(&args.job)?,
    };
    let is_empty = |one: &Troubles| one.paths.is_empty();
    say::problems(&problems, json);
    Ok(if problems.iter().all(is_empty) {
        Exit::Equal
    } else {
        Exit::Problems
    })
}
