//! The user's `qsub` command, with a hold, a mark and variables.
//!
//! Options that add to a list, such as `-v` and `-ac`, may stand several times, also in the job
//! script: `qsub` joins them. So ours stand first, and the user's command follows unchanged.
//!
//! Two options `-h` are no hold: `qsub` 8.1.9 warns of the second one and submits the job without a
//! hold. Options of the script are read here. Those of files `.sge_request` are not: therefore the job
//! also gets a start time that never comes. The command line has precedence there.

use super::{HOLD_OF_USER, KEPT, MARK, START_NEVER};
use crate::script::script_text;
use crate::{BatchError, BatchResult, HeldRequest, Submission};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Options of qsub(1) without an argument.
const WITHOUT_ARGUMENT: &[&str] = &[
    "-clear", "-cwd", "-h", "-hard", "-help", "-notify", "-soft", "-terse", "-V", "-verbose",
    "-verify",
];
/// Options of qsub(1) with two arguments. All others have one.
const WITH_TWO_ARGUMENTS: &[&str] = &["-pe"];

/// Returns the command that submits the job held.
pub(super) fn submission(request: &HeldRequest<'_>) -> BatchResult<Submission> {
    let [program, args @ ..] = request.command else {
        return Err(wrong(
            "a command of Grid Engine is missing; give qsub and its arguments",
        ));
    };
    if Path::new(program).file_name() != Some(OsStr::new("qsub")) {
        return Err(wrong("only qsub can submit a job that waits for data"));
    }
    let line = QsubLine::parse(args);
    let in_script = line.script_words();
    let in_script = QsubLine::parse(&in_script);
    refuse(line.names().chain(in_script.names()))?;
    let has_hold = |line: &QsubLine<'_>| line.names().any(|name| name == "-h");
    let has_hold = has_hold(&line) || has_hold(&in_script);
    let (hold, context) = match has_hold {
        true => (None, format!(",{HOLD_OF_USER}={KEPT}")),
        false => (Some("-h"), String::new()),
    };
    let fixed = hold.into_iter().chain(["-a", START_NEVER, "-terse", "-ac"]);
    let mut ours: Vec<OsString> = fixed.map(OsString::from).collect();
    ours.push(format!("{MARK}={}{context}", request.mark).into());
    // The values go through the environment, because a comma ends a value in an argument.
    let names: Vec<&str> = request
        .variables
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    if !names.is_empty() {
        ours.extend(["-v".into(), names.join(",").into()]);
    }
    ours.extend(args.iter().cloned());
    let env = request.variables.iter();
    Ok(Submission {
        program: program.clone(),
        args: ours,
        env: env
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
    })
}

/// Arguments of qsub: options, and then the job script or a program with its arguments.
struct QsubLine<'a> {
    /// Options, each with its first argument.
    options: Vec<(&'a OsStr, Option<&'a OsStr>)>,
    operand: Option<&'a OsStr>,
}

impl<'a> QsubLine<'a> {
    fn parse(args: &'a [OsString]) -> QsubLine<'a> {
        let mut options = Vec::new();
        let mut rest = args.iter().map(OsString::as_os_str);
        while let Some(option) = rest.next() {
            if !option.as_bytes().starts_with(b"-") || option.len() == 1 {
                let operand = Some(option);
                return QsubLine { options, operand };
            }
            let names = |options: &[&str]| options.iter().any(|name| option == *name);
            let argument = match names(WITHOUT_ARGUMENT) {
                true => None,
                false => rest.next(),
            };
            if names(WITH_TWO_ARGUMENTS) {
                let _second = rest.next();
            }
            options.push((option, argument));
        }
        QsubLine {
            options,
            operand: None,
        }
    }

    fn names(&self) -> impl Iterator<Item = &'a OsStr> {
        self.options.iter().map(|(name, _)| *name)
    }

    fn argument(&self, name: &str) -> Option<&'a OsStr> {
        let last = self.options.iter().rfind(|(option, _)| *option == name);
        last.and_then(|(_, argument)| *argument)
    }

    /// Returns the words of options in the job script. A script on the standard input has none here.
    fn script_words(&self) -> Vec<OsString> {
        let is_program = self
            .argument("-b")
            .is_some_and(|word| word.as_bytes().starts_with(b"y"));
        let script = self.operand.filter(|word| !is_program && *word != "-");
        let Some(text) = script.and_then(|path| script_text(Path::new(path))) else {
            return Vec::new();
        };
        let prefix = self.argument("-C").and_then(OsStr::to_str).unwrap_or("#$");
        let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
        let words = lines.filter_map(|line| shell_words::split(line).ok());
        words.flatten().map(OsString::from).collect()
    }
}

fn refuse<'a>(names: impl Iterator<Item = &'a OsStr>) -> BatchResult<()> {
    let reasons = [
        ("-a", "the job starts when its data has arrived"),
        ("-clear", "it would clear the hold, too"),
        ("-verify", "it submits no job"),
        ("-help", "it submits no job"),
        ("-sync", "qsub would wait while the job is held"),
    ];
    for name in names {
        if let Some((_, reason)) = reasons.iter().find(|(refused, _)| name == *refused) {
            let name = name.display();
            return Err(wrong(&format!("qsub {name}: cannot be used: {reason}")));
        }
    }
    Ok(())
}

fn wrong(text: &str) -> BatchError {
    BatchError::Arguments(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobMark;
    use std::io::Write;

    fn submitted(command: &[&str], variables: &[(String, String)]) -> BatchResult<Submission> {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        submission(&HeldRequest {
            command: &command,
            mark: &JobMark::of(7),
            variables,
        })
    }

    #[test]
    fn user_arguments_follow_unchanged() {
        let variables = [
            ("A".to_owned(), "x,y".to_owned()),
            ("B".to_owned(), String::new()),
        ];
        let submission =
            submitted(&["/opt/qsub", "-t", "1-4", "job.sh", "-h"], &variables).unwrap();
        let expected =
            "-h -a 203701010000 -terse -ac driftless=0000000000000007 -v A,B -t 1-4 job.sh -h";
        let args: Vec<&str> = submission
            .args
            .iter()
            .map(|arg| arg.to_str().unwrap())
            .collect();
        assert_eq!(args.join(" "), expected);
        assert_eq!(submission.program, "/opt/qsub");
        assert_eq!(submission.env[0], ("A".into(), "x,y".into()));
    }

    #[test]
    fn hold_of_user_is_recorded() {
        for (command, is_recorded) in [
            (["qsub", "-N", "-h", "job.sh"], false),
            (["qsub", "-cwd", "-h", "job.sh"], true),
        ] {
            let submission = submitted(&command, &[]).unwrap();
            assert_eq!(submission.args[0] == "-h", !is_recorded);
            let context = submission.args[if is_recorded { 4 } else { 5 }]
                .to_str()
                .unwrap();
            assert_eq!(
                context.ends_with(",driftless_hold=user"),
                is_recorded,
                "{context}"
            );
        }
    }

    #[test]
    fn options_of_scripts_count() {
        let mut script = tempfile::NamedTempFile::new().unwrap();
        script
            .write_all(b"#!/bin/sh\ntrue\n#$ -N a -h\n#x -sync y\n")
            .unwrap();
        let path = script.path().to_str().unwrap();
        let first = |command: &[&str]| submitted(command, &[]).unwrap().args[0].clone();
        assert_eq!(first(&["qsub", path]), "-a");
        assert_eq!(first(&["qsub", "-b", "y", path]), "-h");
        assert_eq!(first(&["qsub", "/dev/null"]), "-h");
        let error = submitted(&["qsub", "-C", "#x", path], &[]).unwrap_err();
        assert!(error.to_string().contains("-sync"), "{error}");
    }

    #[test]
    fn unfit_commands_are_refused() {
        for command in [
            &[][..],
            &["qrsh", "job.sh"],
            &["qsub", "-pe", "smp", "4", "-clear", "job.sh"],
            &["qsub", "-sync", "y", "job.sh"],
        ] {
            let error = submitted(command, &[]).unwrap_err();
            assert!(
                matches!(error, BatchError::Arguments(_)),
                "{command:?}: {error}"
            );
        }
    }
}
