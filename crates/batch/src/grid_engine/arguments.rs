//! The user's `qsub` command, with a hold, a mark and variables.
//!
//! Options that add to a list, such as `-v` and `-ac`, may stand several times, also in the job
//! script: `qsub` joins them. So ours stand first, and the user's command follows unchanged.
//!
//! Two options `-h` are no hold: `qsub` 8.1.9 warns of the second one and submits the job without a
//! hold. The other one may stand in the job script or in a file `.sge_request`. Therefore the job also
//! gets a start time that never comes. That option counts once, and the command line has precedence.

use super::{HOLD_OF_USER, KEPT, MARK, START_NEVER};
use crate::{BatchError, HeldRequest, Result, Submission};
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
pub(super) fn submission(request: &HeldRequest<'_>) -> Result<Submission> {
    let [program, args @ ..] = request.command else {
        return Err(wrong(
            "a command of Grid Engine is missing; give qsub and its arguments",
        ));
    };
    if Path::new(program).file_name() != Some(OsStr::new("qsub")) {
        return Err(wrong("only qsub can submit a job that waits for data"));
    }
    let options = options(args);
    refuse(&options)?;
    let has_hold = options.iter().any(|option| *option == "-h");
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

/// Returns the options before the job script or program.
fn options(args: &[OsString]) -> Vec<&OsStr> {
    let mut found = Vec::new();
    let mut rest = args.iter().map(OsString::as_os_str);
    while let Some(option) = rest.next() {
        if !option.as_bytes().starts_with(b"-") || option.len() == 1 {
            break;
        }
        found.push(option);
        let names = |options: &[&str]| options.iter().any(|name| option == *name);
        let arguments: usize = match (names(WITHOUT_ARGUMENT), names(WITH_TWO_ARGUMENTS)) {
            (true, _) => 0,
            (_, true) => 2,
            _ => 1,
        };
        if let Some(skipped) = arguments.checked_sub(1) {
            let _its_arguments = rest.nth(skipped);
        }
    }
    found
}

fn refuse(options: &[&OsStr]) -> Result<()> {
    let reasons = [
        ("-a", "the job starts when its data has arrived"),
        ("-clear", "it would clear the hold, too"),
        ("-verify", "it submits no job"),
        ("-help", "it submits no job"),
        ("-sync", "qsub would wait while the job is held"),
    ];
    match reasons
        .iter()
        .find(|(name, _)| options.iter().any(|option| option == name))
    {
        Some((name, reason)) => Err(wrong(&format!("qsub {name}: cannot be used: {reason}"))),
        None => Ok(()),
    }
}

fn wrong(text: &str) -> BatchError {
    BatchError::Arguments(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobMark;

    fn submitted(command: &[&str], variables: &[(String, String)]) -> Result<Submission> {
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
