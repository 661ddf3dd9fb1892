//! A job from a configuration of `sr3`: the job goes to standard output, and what of the
//! configuration is not in it to standard error.

use super::Failure;
use crate::args::ImportSr3Args;
use crate::exit::Exit;
use crate::output::mirror as say;
use driftless_model::{cause, escape, quote};
use driftless_sarracenia::import::{CONFIGURATION_BYTES_MAX, Imported, NoJob, import};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub fn run(args: &ImportSr3Args) -> Result<Exit, Failure> {
    let component = component(args)?;
    let text = read(&args.file)?;
    let name = args.file.file_stem().unwrap_or_default();
    let imported = import(&component, &name.to_string_lossy(), &text);
    let Imported { job, left_out } = imported.map_err(|why| refusal(&args.file, &why))?;
    job.lines().for_each(say::line);
    let file = escape(args.file.as_os_str().as_bytes());
    for one in &left_out {
        say::complaint(&format!("{file}:{one}"));
    }
    Ok(Exit::Equal)
}

/// The component that is named, or that of the folder that the file is in, as `sr3` has them.
fn component(args: &ImportSr3Args) -> Result<String, Failure> {
    if let Some(component) = &args.component {
        return Ok(component.clone());
    }
    let file = std::path::absolute(&args.file).unwrap_or_else(|_| args.file.clone());
    let folder = file.parent().and_then(Path::file_name);
    let folder = folder.unwrap_or_default().to_string_lossy().into_owned();
    match folder.is_empty() {
        true => Err((Exit::Usage, "name the component with --component".into())),
        false => Ok(folder),
    }
}

fn refusal(file: &Path, why: &NoJob) -> Failure {
    let hint = match why {
        NoJob::Component(_) => " (the folder of the file says it, or --component)",
        NoJob::TooLong => "",
    };
    (Exit::Usage, format!("{}: {why}{hint}", quote(file)))
}

/// The user's own file. What is no text in it is told with its line by whoever reads it.
#[allow(
    clippy::disallowed_methods,
    reason = "the user's own file, no part of a replicated tree"
)]
fn read(file: &Path) -> Result<String, Failure> {
    let failed = |why: String| (Exit::Usage, format!("{}: {why}", quote(file)));
    // Whoever opens a pipe waits for somebody who writes.
    if !std::fs::metadata(file).is_ok_and(|meta| meta.is_file()) {
        return Err(failed("it is no regular file".into()));
    }
    let mut text = Vec::new();
    let opened = File::open(file).map_err(|error| failed(cause(&error)))?;
    let mut bounded = opened.take(CONFIGURATION_BYTES_MAX as u64 + 1);
    let read = bounded.read_to_end(&mut text);
    read.map_err(|error| failed(cause(&error)))?;
    String::from_utf8(text).map_err(|_| failed("it is no text in UTF-8".into()))
}
