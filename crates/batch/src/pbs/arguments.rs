//! The user's `qsub` command, with a hold, a mark and variables.
//!
//! The last option `-v` of the command line replaces all others, also that of the job script. So the
//! lists of all are joined into one.

use super::{KEPT, MARK, MARK_BEGIN};
use crate::script::{read_input, read_script, script_text, unreadable};
use crate::{BatchError, BatchResult, HeldRequest, Submission};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Options of qsub(1B) without an argument.
const WITHOUT_ARGUMENT: &[u8] = b"fhIVXzG";

/// An option and its argument.
type QsubOption = (u8, Option<OsString>);

/// Returns the command that submits the job held.
pub(super) fn submission(request: &HeldRequest<'_>) -> BatchResult<Submission> {
    let [program, args @ ..] = request.command else {
        return Err(wrong(
            "a command of PBS is missing; give qsub and its arguments",
        ));
    };
    if Path::new(program).file_name() != Some(OsStr::new("qsub")) {
        return Err(wrong("only qsub can submit a job that waits for data"));
    }
    let (options, operands) = parse(args)?;
    refuse(&options)?;
    let input = match operands.first() {
        Some(word) if word != "-" => None,
        _ => Some(read_input(request.input, "qsub")?),
    };
    let in_script = script_options(&options, operands, input.as_deref());
    refuse(&in_script)?;
    let has_hold = options
        .iter()
        .chain(&in_script)
        .any(|(name, _)| *name == b'h');
    let mark = format!(
        "{MARK_BEGIN}{}{}",
        request.mark,
        if has_hold { KEPT } else { "" }
    );
    let mut env: Vec<(OsString, OsString)> = vec![(MARK.into(), mark.into())];
    env.extend(
        request
            .variables
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    Ok(Submission {
        program: program.clone(),
        args: joined(&env, &options, &in_script, operands),
        env,
        input,
    })
}

/// Returns the number of words from the script on.
pub(crate) fn script_words(args: &[OsString]) -> BatchResult<usize> {
    Ok(parse(args)?.1.len())
}

/// Returns the cause if the script that the arguments name cannot be read.
pub(crate) fn script_fault(args: &[OsString]) -> BatchResult<Option<String>> {
    let (_, operands) = parse(args)?;
    let script = operands
        .first()
        .filter(|word| *word != "--" && *word != "-");
    let script = script.filter(|name| read_script(Path::new(name)).is_none());
    Ok(script.map(|name| unreadable("qsub", name)))
}

/// Returns the arguments with one list of variables. `qsub` takes the values of ours from its
/// environment, and quotes them.
fn joined(
    env: &[(OsString, OsString)],
    options: &[QsubOption],
    in_script: &[QsubOption],
    operands: &[OsString],
) -> Vec<OsString> {
    let last = |options: &[QsubOption]| {
        let lists = options.iter().filter(|(name, _)| *name == b'v');
        lists.filter_map(|(_, list)| list.clone()).next_back()
    };
    let ours = env.iter().map(|(name, _)| name.clone());
    let lists = ours.chain(last(options).or_else(|| last(in_script)));
    let list = lists.collect::<Vec<_>>().join(OsStr::new(","));
    let mut args: Vec<OsString> = vec!["-h".into(), "-v".into(), list];
    for (name, argument) in options.iter().filter(|(name, _)| *name != b'v') {
        args.push(OsString::from_vec(vec![b'-', *name]));
        args.extend(argument.clone());
    }
    args.extend(operands.iter().cloned());
    args
}

/// Splits arguments as getopt(3) does: into options, and the script or `--` and a program.
fn parse(args: &[OsString]) -> BatchResult<(Vec<QsubOption>, &[OsString])> {
    let mut options = Vec::new();
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let bytes = word.as_bytes();
        if bytes == b"--" || !bytes.starts_with(b"-") || bytes.len() == 1 {
            break;
        }
        if bytes.starts_with(b"--") {
            return Err(wrong(&format!(
                "qsub {}: it submits no job that can wait",
                word.display()
            )));
        }
        at += 1;
        let mut letters = &bytes[1..];
        while let [name, rest @ ..] = letters {
            letters = rest;
            if WITHOUT_ARGUMENT.contains(name) {
                options.push((*name, None));
                continue;
            }
            let argument = match rest {
                [] => args.get(at).cloned(),
                _ => Some(OsString::from_vec(rest.to_vec())),
            };
            at += usize::from(rest.is_empty());
            let argument =
                argument.ok_or_else(|| wrong("qsub: the last option lacks its argument"))?;
            options.push((*name, Some(argument)));
            break;
        }
    }
    Ok((options, args.get(at..).unwrap_or_default()))
}

/// Returns the options in the job script, which may have come from the standard input. Without a script
/// that can be read there are none, and qsub tells the user.
fn script_options(
    options: &[QsubOption],
    operands: &[OsString],
    input: Option<&[u8]>,
) -> Vec<QsubOption> {
    let script = operands.first().filter(|word| *word != "--");
    let text = match (input, script) {
        (Some(bytes), _) => String::from_utf8_lossy(bytes).into_owned(),
        (None, Some(path)) => script_text(Path::new(path)).unwrap_or_default(),
        (None, None) => return Vec::new(),
    };
    let prefix = options.iter().rfind(|(name, _)| *name == b'C');
    let prefix = prefix
        .and_then(|(_, prefix)| prefix.as_ref()?.to_str())
        .unwrap_or("#PBS");
    if prefix.is_empty() {
        return Vec::new();
    }
    let words = directives(&text, prefix);
    parse(&words)
        .map(|(options, _)| options)
        .unwrap_or_default()
}

/// Returns the words of directives. They end at the first command.
fn directives(text: &str, prefix: &str) -> Vec<OsString> {
    let lines = text.lines().map(str::trim_start);
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with(['#', ':']));
    let words = lines.filter_map(|line| line.strip_prefix(prefix));
    let words = words.filter_map(|line| shell_words::split(line).ok());
    words.flatten().map(OsString::from).collect()
}

fn refuse(options: &[QsubOption]) -> BatchResult<()> {
    for (name, argument) in options {
        let argument = argument.as_deref().unwrap_or_default().to_string_lossy();
        let reason = match name {
            b'I' => "-I: an interactive job cannot wait for data; remove it",
            b'z' => "-z: the number of the job is needed; remove it",
            b'W' if argument
                .split(',')
                .any(|one| one.trim().starts_with("block=")) =>
            {
                "-W block: qsub would wait while the job is held; remove it"
            }
            b'v' if argument
                .split(',')
                .any(|one| one.split('=').next() == Some(MARK)) =>
            {
                "-v DRIFTLESS_MARK: the gateway needs this variable; remove it"
            }
            _ => continue,
        };
        return Err(wrong(&format!("qsub {reason}")));
    }
    Ok(())
}

fn wrong(text: &str) -> BatchError {
    BatchError::Arguments(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobInput, JobMark};
    use std::io::Write;

    fn submitted(command: &[&str]) -> BatchResult<Submission> {
        submitted_with(command, b"")
    }

    fn submitted_with(command: &[&str], input: &[u8]) -> BatchResult<Submission> {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        submission(&HeldRequest {
            command: &command,
            mark: &JobMark::of(7),
            variables: &[("A".to_owned(), "x,y".to_owned())],
            input: JobInput::Bytes(input),
        })
    }

    fn args(command: &[&str]) -> String {
        let submission = submitted(command).unwrap();
        let words = submission.args.iter().map(|word| word.to_str().unwrap());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn variables_of_all_are_joined() {
        for (command, expected) in [
            (&["qsub", "job.sh"][..], "-h -v DRIFTLESS_MARK,A job.sh"),
            (
                &[
                    "qsub", "-vX=1", "-Vl", "select=1", "-v", "Y=2,Z", "--", "/bin/a", "-v",
                ],
                "-h -v DRIFTLESS_MARK,A,Y=2,Z -V -l select=1 -- /bin/a -v",
            ),
        ] {
            assert_eq!(args(command), expected);
        }
        let env = submitted(&["qsub", "job.sh"]).unwrap().env;
        assert_eq!(
            env[0],
            ("DRIFTLESS_MARK".into(), "driftless:0000000000000007".into())
        );
        assert_eq!(env[1], ("A".into(), "x,y".into()));
    }

    #[test]
    fn directives_of_scripts_count() {
        let mut script = tempfile::NamedTempFile::new().unwrap();
        let text = "#!/bin/sh\n#PBS -N 'a b' -v FROM=script\n\n# PBS\n#PBS -h\ntrue\n#PBS -I\n";
        script.write_all(text.as_bytes()).unwrap();
        let path = script.path().to_str().unwrap();
        let submission = submitted(&["qsub", path]).unwrap();
        assert_eq!(submission.args[2], "DRIFTLESS_MARK,A,FROM=script");
        assert_eq!(submission.env[0].1, "driftless:0000000000000007:held");
        assert!(args(&["qsub", "-v", "B", path]).starts_with("-h -v DRIFTLESS_MARK,A,B /"));
    }

    #[test]
    fn directives_of_piped_scripts_count() {
        let script = b"#PBS -v FROM=pipe -h\ntrue\n";
        for command in [&["qsub"][..], &["qsub", "-"]] {
            let submission = submitted_with(command, script).unwrap();
            assert_eq!(submission.args[2], "DRIFTLESS_MARK,A,FROM=pipe");
            assert_eq!(submission.env[0].1, "driftless:0000000000000007:held");
            assert_eq!(submission.input.as_deref(), Some(&script[..]));
        }
        let submission = submitted_with(&["qsub", "-C", ""], script).unwrap();
        assert_eq!(submission.args[2], "DRIFTLESS_MARK,A");
        assert_eq!(submitted(&["qsub", "--", "/bin/a"]).unwrap().input, None);
        let error = submitted_with(&["qsub"], b"#PBS -I\n").unwrap_err();
        assert!(error.to_string().contains("-I"), "{error}");
    }

    #[test]
    fn unfit_commands_are_refused() {
        for command in [
            &[][..],
            &["sbatch", "job.sh"],
            &["qsub", "-I"],
            &["qsub", "-N", "a", "-Wblock=true", "job.sh"],
            &["qsub", "-W", "umask=22,block=1", "job.sh"],
            &["qsub", "-v", "A,DRIFTLESS_MARK=x", "job.sh"],
            &["qsub", "-z", "job.sh"],
            &["qsub", "--version"],
            &["qsub", "-N"],
        ] {
            let error = submitted(command).unwrap_err();
            assert!(
                matches!(error, BatchError::Arguments(_)),
                "{command:?}: {error}"
            );
        }
    }
}
