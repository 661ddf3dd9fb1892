//! The user's `qsub` command, with a hold, a mark and variables.
//!
//! Options that add to a list, such as `-v` and `-ac`, may stand several times, also in the job
//! script: `qsub` joins them. So ours stand first, and the user's command follows unchanged.
//!
//! Two options `-h` are no hold: `qsub` 8.1.9 warns of the second one and submits the job without a
//! hold. Options of the script and of files behind `-@` are read here. Those of files `.sge_request` are
//! not: therefore the job also gets a start time that never comes. The command line has precedence there.

use super::{HOLD_OF_USER, KEPT, MARK, START_NEVER};
use crate::script::{read_input, read_script, script_text, unreadable};
use crate::{BatchError, BatchResult, HeldRequest, Submission};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Options of qsub(1) without an argument.
const WITHOUT_ARGUMENT: &[&str] = &[
    "-clear", "-cwd", "-h", "-hard", "-help", "-notify", "-soft", "-terse", "-V", "-verbose",
    "-verify",
];
/// Words between `-binding` and its argument (qsub(1)).
const BINDING_INSTANCES: [&str; 3] = ["env", "pe", "set"];
/// Files of options within each other.
const FILE_DEPTH_MAX: usize = 8;
/// Options that cannot be used, each with the reason and the remedy.
const REFUSED: [(&str, &str); 6] = [
    ("-a", "the job starts when its data has arrived; remove it"),
    ("-clear", "it would clear the hold, too; remove it"),
    ("-verify", "it submits no job; remove it"),
    ("-help", "it submits no job; remove it"),
    ("-sync", "qsub would wait while the job is held; remove it"),
    ("-sc", "it would remove the mark of the gateway; use -ac"),
];

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
    let line = QsubLine::parse(args)?;
    refuse(&line)?;
    let input = match line.reads_input() {
        true => Some(read_input(request.input, "qsub")?),
        false => None,
    };
    let in_script = QsubLine::parse(&line.script_words(input.as_deref()))?;
    refuse(&in_script)?;
    let has_hold = line.has("-h") || in_script.has("-h");
    let env = request.variables.iter();
    let env = env.map(|(name, value)| (name.into(), value.into()));
    Ok(Submission {
        program: program.clone(),
        args: held_arguments(request, has_hold, args),
        env: env.collect(),
        input,
    })
}

/// Returns the options of driftless and the arguments of the user.
fn held_arguments(request: &HeldRequest<'_>, has_hold: bool, args: &[OsString]) -> Vec<OsString> {
    let (hold, context) = match has_hold {
        true => (None, format!(",{HOLD_OF_USER}={KEPT}")),
        false => (Some("-h"), String::new()),
    };
    let fixed = hold.into_iter().chain(["-a", START_NEVER, "-terse", "-ac"]);
    let mut ours: Vec<OsString> = fixed.map(OsString::from).collect();
    ours.push(format!("{MARK}={}{context}", request.mark).into());
    // The values go through the environment, because a comma ends a value in an argument.
    let names = request.variables.iter().map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.collect();
    if !names.is_empty() {
        ours.extend(["-v".into(), names.join(",").into()]);
    }
    ours.extend(args.iter().cloned());
    ours
}

/// Returns the number of words from the script on.
pub(crate) fn script_words(args: &[OsString]) -> BatchResult<usize> {
    Ok(QsubLine::parse(args)?.words_behind)
}

/// Returns the cause if the script that the arguments name cannot be read.
pub(crate) fn script_fault(args: &[OsString]) -> BatchResult<Option<String>> {
    let line = QsubLine::parse(args)?;
    let is_script = !line.is_program() && !line.reads_input();
    let script = line.operand.filter(|_| is_script);
    let script = script.filter(|name| read_script(Path::new(name)).is_none());
    Ok(script.map(|name| unreadable("qsub", &name)))
}

/// Arguments of qsub: options, and then the job script or a program with its arguments.
#[derive(Default)]
struct QsubLine {
    /// Options, each with its arguments.
    options: Vec<(OsString, Vec<OsString>)>,
    operand: Option<OsString>,
    /// Number of words from the operand on.
    words_behind: usize,
}

impl QsubLine {
    fn parse(args: &[OsString]) -> BatchResult<QsubLine> {
        let mut line = QsubLine::default();
        let behind = line.add(args, 0)?;
        line.operand = behind.front().cloned();
        line.words_behind = behind.len();
        Ok(line)
    }

    /// Adds options, and returns the words behind them.
    fn add(&mut self, args: &[OsString], depth: usize) -> BatchResult<VecDeque<OsString>> {
        let mut left: VecDeque<OsString> = args.iter().cloned().collect();
        while let Some(option) = left.pop_front() {
            let is_operand = !option.as_bytes().starts_with(b"-");
            if is_operand || option == "-" || option == "--" {
                left.push_front(option);
                break;
            }
            let count = argument_count(&option, left.front().map(OsString::as_os_str));
            let rest = left.split_off(count.min(left.len()));
            let arguments: Vec<OsString> = std::mem::replace(&mut left, rest).into();
            if option == "-@" {
                for file in &arguments {
                    self.add(&option_file(file, depth)?, depth + 1)?;
                }
            }
            self.options.push((option, arguments));
        }
        Ok(left)
    }

    fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(option, _)| option == name)
    }

    fn argument(&self, name: &str) -> Option<&OsStr> {
        let last = self.options.iter().rfind(|(option, _)| option == name);
        last.and_then(|(_, arguments)| Some(arguments.first()?.as_os_str()))
    }

    fn is_program(&self) -> bool {
        let binary = self.argument("-b");
        binary.is_some_and(|word| word.as_bytes().starts_with(b"y"))
    }

    /// Returns whether qsub reads the script from its standard input.
    fn reads_input(&self) -> bool {
        let names_none = |word: &OsString| word == "-" || word == "--";
        self.operand.as_ref().is_none_or(names_none) && !self.is_program()
    }

    /// Returns the words of options in the job script, which may have come from the standard input.
    fn script_words(&self, input: Option<&[u8]>) -> Vec<OsString> {
        let script = self.operand.as_ref().filter(|_| !self.is_program());
        let text = match (input, script) {
            (Some(bytes), _) => Some(String::from_utf8_lossy(bytes).into_owned()),
            (None, Some(path)) => script_text(Path::new(path)),
            (None, None) => None,
        };
        let prefix = self.argument("-C").and_then(OsStr::to_str).unwrap_or("#$");
        let text = text.filter(|_| !prefix.is_empty()).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
        lines.flat_map(words).collect()
    }
}

/// Returns the number of arguments of an option (qsub(1)).
fn argument_count(option: &OsStr, next: Option<&OsStr>) -> usize {
    let has_instance = || next.is_some_and(|word| BINDING_INSTANCES.iter().any(|one| word == *one));
    match option.to_str() {
        Some(name) if WITHOUT_ARGUMENT.contains(&name) => 0,
        Some("-pe") => 2,
        Some("-binding") if has_instance() => 2,
        _ => 1,
    }
}

/// Reads the words of a file behind `-@`. Its comments are lines that begin with `#` (qsub(1)).
fn option_file(path: &OsStr, depth: usize) -> BatchResult<Vec<OsString>> {
    let shown = driftless_model::quote(Path::new(path));
    if depth >= FILE_DEPTH_MAX {
        let why = format!("qsub -@ {shown}: files of options name each other; write them into one");
        return Err(wrong(&why));
    }
    let bytes = read_script(Path::new(path)).ok_or_else(|| {
        let why = "cannot read a file of options; name a file that you may read";
        wrong(&format!("qsub -@ {shown}: {why}"))
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    Ok(lines.flat_map(words).collect())
}

/// Returns the words of a line. A line that no shell can divide is divided at its blanks.
fn words(line: &str) -> Vec<OsString> {
    let divided = shell_words::split(line);
    let divided = divided.unwrap_or_else(|_| line.split_whitespace().map(str::to_owned).collect());
    divided.into_iter().map(OsString::from).collect()
}

fn refuse(line: &QsubLine) -> BatchResult<()> {
    for (name, arguments) in &line.options {
        let argument = arguments.first().map(OsString::as_os_str);
        let argument = argument.unwrap_or_default().to_string_lossy();
        let refused = REFUSED.iter().find(|(refused, _)| name == refused);
        let reason = match name.to_str() {
            _ if refused.is_some() => refused.map(|(_, reason)| *reason),
            Some("-w") if ["v", "p"].contains(&&*argument) => {
                Some("it submits no job; use -w e or -w w")
            }
            Some("-ac" | "-dc") if names_ours(&argument) => {
                Some("the gateway needs this variable of the context; use another name")
            }
            _ => None,
        };
        if let Some(reason) = reason {
            let shown = format!("{} {argument}", name.display());
            let shown = shown.trim_end();
            return Err(wrong(&format!("qsub {shown}: cannot be used: {reason}")));
        }
    }
    Ok(())
}

/// Returns whether a list of variables of the context has one of driftless.
fn names_ours(list: &str) -> bool {
    let names = list.split(',').map(|one| one.split('=').next());
    names
        .flatten()
        .any(|name| [MARK, HOLD_OF_USER].contains(&name.trim()))
}

fn wrong(text: &str) -> BatchError {
    BatchError::Arguments(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobInput, JobMark};
    use std::io::Write;

    fn submitted(command: &[&str], variables: &[(String, String)]) -> BatchResult<Submission> {
        submitted_with(command, variables, b"")
    }

    fn submitted_with(
        command: &[&str],
        variables: &[(String, String)],
        input: &[u8],
    ) -> BatchResult<Submission> {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        submission(&HeldRequest {
            command: &command,
            mark: &JobMark::of(7),
            variables,
            input: JobInput::Bytes(input),
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
            &[
                "qsub", "-binding", "set", "linear:1", "-a", "01010000", "job.sh",
            ],
            &["qsub", "-w", "v", "job.sh"],
            &["qsub", "-w", "p", "job.sh"],
            &["qsub", "-sc", "A=1", "job.sh"],
            &["qsub", "-dc", "A,driftless", "job.sh"],
            &["qsub", "-ac", "A=1,driftless=0000000000000001", "job.sh"],
            &["qsub", "-ac", "driftless_hold=user", "job.sh"],
            &["qsub", "-@", "/nonexistent", "job.sh"],
        ] {
            let error = submitted(command, &[]).unwrap_err();
            assert!(
                matches!(error, BatchError::Arguments(_)),
                "{command:?}: {error}"
            );
        }
    }

    #[test]
    fn fit_commands_pass_through() {
        for command in [
            &["qsub", "-w", "e", "job.sh"][..],
            &["qsub", "-ac", "A=driftless", "-dc", "B", "job.sh"],
            &["qsub", "-C", "", "job.sh"],
            &["qsub", "-binding", "linear:1", "job.sh", "-a"],
        ] {
            let args = submitted(command, &[]).unwrap().args;
            assert_eq!(args[args.len() - command.len() + 1..], command[1..]);
        }
    }

    #[test]
    fn hold_stands_behind_every_form_of_options() {
        for command in [
            &["qsub", "-binding", "env", "linear:1", "-h", "job.sh"][..],
            &["qsub", "-binding", "linear:1", "-h", "job.sh"],
            &["qsub", "-pe", "smp", "2", "-h", "job.sh"],
            &["qsub", "-pe", "smp"],
            &["qsub", "-"],
            &["qsub", "--", "argument"],
        ] {
            let script = b"#!/bin/sh\n#$ -h -N don't\n";
            let submission = submitted_with(command, &[], script).unwrap();
            let is_read = command.last() != Some(&"job.sh");
            assert_eq!(submission.input.is_some(), is_read, "{command:?}");
            assert_eq!(submission.args[0], "-a", "{command:?}");
        }
    }

    #[test]
    fn files_of_options_count() {
        let file = |text: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file
        };
        let try_with = |text: &str| {
            let options = file(text);
            let path = options.path().to_str().unwrap();
            submitted(&["qsub", "-@", path, "-N", "a", "job.sh"], &[])
        };
        assert_eq!(try_with("# -clear\n-h\n").unwrap().args[0], "-a");
        assert_eq!(try_with("-N name script\n").unwrap().args[0], "-h");
        for refused in ["-N a\n-clear\n", "-verify", "-w v", "-sc A=1"] {
            let error = try_with(refused).unwrap_err().to_string();
            assert!(error.contains("cannot be used"), "{error}");
        }
        let inner = file("-clear");
        let outer = format!("-@ {}", inner.path().display());
        try_with(&outer).unwrap_err();
        let mut looped = file("");
        let itself = format!("-@ {}", looped.path().display());
        looped.write_all(itself.as_bytes()).unwrap();
        let error = try_with(&itself).unwrap_err();
        assert!(error.to_string().contains("name each other"), "{error}");
    }
}
