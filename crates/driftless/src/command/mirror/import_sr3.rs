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
        let gap = if one.line > 0 { "" } else { " " };
        say::complaint(&format!("{file}:{gap}{one}"));
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

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;
    use driftless_mirror::job::{Job, parse};
    use driftless_queue::{Exchange, Subscription, Url};
    use driftless_sarracenia::{BaseUrl, binding};

    /// What is answered where the job asks, by the key: something that fits.
    const ANSWERS: [(&str, &str); 6] = [
        ("source", "far:/source"),
        ("replica", "far:/replica"),
        ("broker", "amqp://u@h"),
        ("exchange", "xs_u"),
        ("queue", "q_u"),
        ("base_url", "file:/x"),
    ];

    const OPTIONS: [&str; 40] = [
        "broker",
        "post_broker",
        "exchange",
        "exchangeSuffix",
        "post_exchange",
        "post_exchangeSuffix",
        "topicPrefix",
        "post_topicPrefix",
        "subtopic",
        "queueName",
        "queueShare",
        "baseDir",
        "base_dir",
        "bd",
        "document_root",
        "directory",
        "path",
        "p",
        "post_baseDir",
        "post_base_url",
        "post_baseUrl",
        "mirror",
        "sleep",
        "force_polling",
        "fileSizeMax",
        "byteRateMax",
        "permCopy",
        "timeCopy",
        "accept",
        "reject",
        "acceptUnmatched",
        "fileEvents",
        "events",
        "nodupe_ttl",
        "realpathPost",
        "declare env A",
        "declare env",
        "callback",
        "include",
        "#directory",
    ];

    const VALUES: [&str; 60] = [
        "",
        "None",
        "off",
        "on",
        "/",
        "//",
        "/a",
        "/a/",
        "/a/../b",
        "/a/./b//c",
        "/a/b",
        "/..",
        "../a",
        "a/b",
        "./a",
        "~/a",
        "~u/a",
        "far:/a",
        "/a b",
        "/a  b\t",
        "'/a'",
        "\"/a\"",
        "/a # b",
        "/a \\",
        "\\",
        "${A}",
        "${A}/b",
        "${B}",
        "${HOME}/a",
        "${",
        "/\u{fc}\u{1}",
        "/\0",
        "file:",
        "file:/a",
        "file:/a/../b",
        "file:/a\0",
        "http://h",
        "http:///a",
        "http://h/a/./b",
        "gopher://h/a",
        "sftp://u:pw@h//a/",
        "amqp://u:pw@h/v",
        "amqps://h",
        "amqp://u@h:99999",
        "amqp://a/b@h//x/y",
        "amqp://u%ff@h",
        "amqp://u@[::1]:5",
        "amqp://u@<h>/",
        "amqp://u@h/..",
        "amq.x",
        "xs_u_x",
        "v03/post",
        "-delete",
        "+all",
        "create|link",
        "5",
        "99999999999999999999",
        "9223372036854775808",
        "400w",
        ".*\\.o$",
    ];

    /// A configuration at random, whose options stand in any order and more than once.
    fn random(rng: &mut fastrand::Rng) -> String {
        let long = [format!("/{}", "n".repeat(300)), "x".repeat(300)];
        let mut text = String::new();
        for _ in 0..rng.usize(..20) {
            let value = match rng.usize(..25) {
                0 => &long[rng.usize(..2)],
                _ => VALUES[rng.usize(..VALUES.len())],
            };
            let gap = [" ", "  ", "\t", "=", ""][rng.usize(..5)];
            let end = ["\n", "\r\n", " \n", "\n\n"][rng.usize(..4)];
            text.push_str(OPTIONS[rng.usize(..OPTIONS.len())]);
            text.extend([gap, value, end]);
        }
        text
    }

    /// The job with an answer in the place of each question.
    fn answered(job: &str) -> String {
        let answer = |line: &str| {
            let key = line.strip_prefix("# ")?.split_once(" = \"...\"")?.0;
            let (_, value) = ANSWERS.iter().find(|(asked, _)| *asked == key)?;
            Some(format!("{key} = {value:?}\n"))
        };
        let lines = job.lines();
        lines
            .map(|line| answer(line).unwrap_or_else(|| format!("{line}\n")))
            .collect()
    }

    /// What "mirror check" would find wrong, but for passwords and what is there on this host.
    fn wrong(job: &str) -> Result<Job, String> {
        let told = |error: &dyn std::fmt::Display| error.to_string();
        let job = parse(job, Path::new("job.toml")).map_err(|error| told(&error))?;
        if let Some(from) = &job.announcements {
            let bindings = from.subtopics.iter();
            let bindings = bindings.map(|one| binding(&from.topic_prefix, one));
            let bindings: Vec<String> = bindings.collect();
            from.broker.parse::<Url>().map_err(|error| told(&error))?;
            let exchange = Exchange::new(&from.exchange).map_err(|error| told(&error))?;
            Subscription::new(&from.queue, exchange, &bindings).map_err(|error| told(&error))?;
            let base = from.base_url.as_deref();
            base.map_or(Ok(None), |base| BaseUrl::parse(base).map(Some))
                .map_err(|error| told(&error))?;
        }
        if let Some(to) = &job.publish {
            to.broker.parse::<Url>().map_err(|error| told(&error))?;
            Exchange::new(&to.exchange).map_err(|error| told(&error))?;
            let base = to.base_url.as_deref();
            base.map_or(Ok(None), |base| BaseUrl::parse(base).map(Some))
                .map_err(|error| told(&error))?;
        }
        match places::check(&job) {
            Err((_, why)) if !is_of_this_host(&why) => Err(why),
            _ => Ok(job),
        }
    }

    fn is_of_this_host(why: &str) -> bool {
        why.contains("cannot create the replica") || why.contains("is not a directory")
    }

    #[test]
    fn a_job_that_is_written_can_be_run_once_its_questions_are_answered() {
        let seeds = std::env::var("DRIFTLESS_SEEDS").ok();
        let seeds = seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(20_000);
        let mut said = [0; 6];
        for seed in 0..seeds {
            let mut rng = fastrand::Rng::with_seed(seed);
            let text = random(&mut rng);
            let component = ["cpost", "post", "watch", "subscribe", "sarra"][rng.usize(..5)];
            let name = ["hubs", "a b", "x-kept", ".x", &"n".repeat(99)][rng.usize(..5)].to_owned();
            let imported = import(component, &name, &text).expect(component);
            let lines = || imported.job.lines();
            for (count, (key, _)) in said.iter_mut().zip(ANSWERS) {
                *count += lines().filter(|line| line.starts_with(key)).count();
            }
            let job = answered(&imported.job);
            if let Err(why) = wrong(&job) {
                panic!("seed {seed}: {why}\n{component} {text:?}\n{job}");
            }
        }
        assert!(said.iter().all(|count| *count > 100), "{said:?}");
    }
}
