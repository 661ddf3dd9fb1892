//! `driftless report`: what a mirror did in a day or in the last 24 hours, as its state tells, whether it
//! runs or not.

pub mod axis;
mod facts;
mod page;
mod plots;
mod told;

use crate::args::ReportArgs;
use crate::command::mirror::operators;
use crate::command::{job, record};
use crate::exit::Exit;
use crate::output::product::Product;
use crate::output::{html, mirror as say};
use driftless_mirror::ask::{AskState, ReportForm};
use driftless_mirror::clock::now;
use driftless_mirror::job::Job;
use facts::Facts;
use std::path::Path;

/// The exit code, and what to say.
type Failure = (Exit, String);

/// Seconds of an hour, and of a day.
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// Runs the command; returns the exit code.
pub fn run(args: &ReportArgs) -> Exit {
    let done = report(args);
    let code = done.map_or_else(
        |(code, why)| {
            say::refusal(code, &why);
            code
        },
        |()| Exit::Equal,
    );
    say::final_code(code)
}

fn report(args: &ReportArgs) -> Result<(), Failure> {
    let failed = |why: String| (Exit::CouldNotRun, why);
    let page = args.html.as_ref();
    let page = page.map(|path| Product::begin(path, html::FORM));
    let page = page.transpose().map_err(failed)?;
    let form = match &page {
        Some(_) => ReportForm::Html,
        None if args.json => ReportForm::Json,
        None => ReportForm::Text,
    };
    let typed = &args.job.job;
    let question = AskState::Report {
        day: args.day,
        form,
    };
    let text = match operators::report(&job::name(typed)?, &question)? {
        Some(text) => text,
        None => made(&job::read(typed)?, typed, (args.day, form))?,
    };
    match page {
        Some(file) => html::write(file, &text).map_err(failed)?,
        None => text.lines().for_each(say::line),
    }
    Ok(())
}

/// Makes the report of a day, or of the last 24 hours, from the state of the mirror, whose job the
/// user has typed so.
pub fn made(
    job: &Job,
    typed: &Path,
    (day, form): (Option<u64>, ReportForm),
) -> Result<String, Failure> {
    let now = now().as_secs();
    // The hour that has begun is the last one.
    let from = day.unwrap_or((now / HOUR + 1) * HOUR - DAY);
    let time = from..from.saturating_add(DAY);
    let replicas = job.apart();
    let all = replicas.iter().map(|one| {
        let facts = Facts::gather(&job::view(one, typed)?, time.clone(), now, one.rpo);
        facts.map_err(|error| record::refusal(&error))
    });
    let all: Vec<Facts> = all.collect::<Result<_, _>>()?;
    let lines: Vec<String> = match form {
        ReportForm::Html => return Ok(page::page(&all, &job.policy.filter)),
        ReportForm::Json => all.iter().map(told::json).collect(),
        ReportForm::Text => all.iter().flat_map(told::text).collect(),
    };
    Ok(lines.join("\n"))
}
