//! `driftless report`: what a mirror did in a day or in the last 24 hours, as its state tells, whether it
//! runs or not.

mod axis;
mod facts;
mod page;
mod plots;
mod told;

use crate::args::ReportArgs;
use crate::command::{job, record};
use crate::exit::Exit;
use crate::output::product::Product;
use crate::output::{html, mirror as say};
use driftless_mirror::clock::now;
use facts::Facts;

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
    let now = now().as_secs();
    // The hour that has begun is the last one.
    let from = args.day.unwrap_or((now / HOUR + 1) * HOUR - DAY);
    let replicas = job::read(&args.job.job)?.apart();
    let all = replicas.iter().map(|one| {
        let facts = Facts::gather(
            &job::view(one, &args.job.job)?,
            from..from + DAY,
            now,
            one.rpo,
        );
        facts.map_err(|error| record::refusal(&error))
    });
    let all: Vec<Facts> = all.collect::<Result<_, _>>()?;
    match page {
        Some(file) => html::write(file, &page::page(&all)).map_err(failed)?,
        None if args.json => all.iter().for_each(told::json),
        None => all.iter().for_each(told::text),
    }
    Ok(())
}
