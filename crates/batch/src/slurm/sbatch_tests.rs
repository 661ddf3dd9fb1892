//! Tests of command lines of `sbatch`.

use super::*;
use crate::{JobInput, JobMark};

const MARK: &str = "driftless:0000000000000007";

#[derive(Default)]
struct SbatchUser {
    variables: Vec<(&'static str, &'static str)>,
    script: &'static str,
    input: &'static str,
}

impl SbatchUser {
    fn submit(&self, command: &[&str]) -> BatchResult<Vec<String>> {
        let (args, input) = self.held(command)?;
        let is_read = input.as_deref() == Some(self.input.as_bytes());
        assert_eq!(is_read, input.is_some(), "the input is passed on");
        let words = args.into_iter().map(|arg| arg.into_string().unwrap());
        Ok(words.collect())
    }

    fn held(&self, command: &[&str]) -> BatchResult<HeldArguments> {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let variables = [
            ("SPOOL_DIRECTORY".to_owned(), "/data, all".to_owned()),
            ("RESULTS".to_owned(), "/r".to_owned()),
        ];
        let request = HeldRequest {
            command: &command,
            mark: &JobMark::of(7),
            variables: &variables,
            input: JobInput::Bytes(self.input.as_bytes()),
        };
        let variable = |name: &str| {
            let found = self.variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        };
        let script = |name: &OsStr, folder: Option<&Path>| match folder {
            None => (name == "job.sh").then(|| self.script.into()),
            Some(folder) => {
                (name == "deep.sh" && folder == Path::new("sub")).then(|| self.script.into())
            }
        };
        let user = UserSettings {
            variable: &variable,
            script: &script,
        };
        held_arguments(&request, &user)
    }
}

/// Checks the arguments that follow `--hold --parsable`.
#[track_caller]
fn check(user: &SbatchUser, command: &[&str], expected: &[&str]) {
    let args = user.submit(command).unwrap();
    assert_eq!(args[..2], ["--hold", "--parsable"]);
    assert_eq!(args[2..], *expected, "{command:?}");
}

#[test]
fn words_pass_through_unchanged() {
    let user = SbatchUser::default();
    let mark = format!("--comment={MARK}");
    for words in [
        &["job.sh"] as &[&str],
        &[
            "--array=1-20%4",
            "-N",
            "2",
            "-Jname",
            "job.sh",
            "--comment=no",
            "-W",
        ],
        &["--wrap", "echo $x", "--array", "1-4"],
        &["--wrap=sleep 1"],
        &["-p", "all", "--", "job.sh", "--wait"],
        &["--bigmem", "plenty", "job.sh", "--export=NONE"],
        &["--bigmem", "job.sh", "--export=NONE"],
        &["-kn2", "-Hn", "--wait", "job.sh"],
        &[],
    ] {
        let command = [&["/usr/bin/sbatch"], words].concat();
        check(&user, &command, &[&[mark.as_str()], words].concat());
    }
}

#[test]
fn comments_are_joined() {
    let mut user = SbatchUser::default();
    let joined = format!("--comment=my job {MARK}");
    check(
        &user,
        &["sbatch", "--comment=my job", "job.sh"],
        &[&joined, "job.sh"],
    );
    check(
        &user,
        &["sbatch", "-n1", "--comm", "my job", "job.sh"],
        &["-n1", &joined, "job.sh"],
    );
    user.script = "#!/bin/sh\n#SBATCH -n 1 --comment='my job' # text\n";
    check(&user, &["sbatch", "job.sh"], &[&joined, "job.sh"]);
    let own = format!("--comment=other {MARK}");
    check(
        &user,
        &["sbatch", "--comment=other", "job.sh"],
        &[&own, "job.sh"],
    );
    user.input = user.script;
    check(&user, &["sbatch"], &[&joined]);
}

#[test]
fn exported_lists_get_the_variables() {
    let mark = format!("--comment={MARK}");
    let mut user = SbatchUser::default();
    for (old, new) in [
        ("ALL", "ALL"),
        ("ALL,FOO=1", "ALL,FOO=1,SPOOL_DIRECTORY,RESULTS"),
        ("FOO,B=2", "FOO,B=2,SPOOL_DIRECTORY,RESULTS"),
        ("NONE", "SPOOL_DIRECTORY,RESULTS"),
        ("nil", "SPOOL_DIRECTORY,RESULTS"),
    ] {
        let new = format!("--export={new}");
        let old = format!("--export={old}");
        check(&user, &["sbatch", &old, "job.sh"], &[&mark, &new, "job.sh"]);
    }
    user.script = "#!/bin/sh\n\n# text\n#SBATCH --export=NONE\n#SBATCH --export=A\ntrue\n#SBATCH --export=B\n";
    let new = "--export=A,SPOOL_DIRECTORY,RESULTS";
    check(&user, &["sbatch", "job.sh"], &[&mark, new, "job.sh"]);
    user.variables = vec![("SBATCH_EXPORT", "V")];
    let new = "--export=V,SPOOL_DIRECTORY,RESULTS";
    check(&user, &["sbatch", "job.sh"], &[&mark, new, "job.sh"]);
    check(
        &user,
        &["sbatch", "--wrap=true"],
        &[&mark, new, "--wrap=true"],
    );
    let new = "--export=W,SPOOL_DIRECTORY,RESULTS";
    check(
        &user,
        &["sbatch", "--export", "W", "job.sh"],
        &[&mark, new, "job.sh"],
    );
}

#[test]
fn options_without_a_held_job_are_refused() {
    let mut user = SbatchUser::default();
    for words in [
        &["--wait", "job.sh"] as &[&str],
        &["-W", "job.sh"],
        &["-HW", "job.sh"],
        &["--test-only", "job.sh"],
        &["-V"],
        &["-M", "other", "job.sh"],
        &["--clusters=other", "job.sh"],
        &["-n1", ":", "-n2", "job.sh"],
        &["--export-file=vars", "job.sh"],
    ] {
        let error = user.submit(&[&["sbatch"], words].concat()).unwrap_err();
        assert!(error.to_string().starts_with("sbatch: "), "{error}");
    }
    user.script = "#SBATCH --wait\n";
    user.submit(&["sbatch", "job.sh"]).unwrap_err();
    user.script = "#SBATCH hetjob\n";
    user.submit(&["sbatch", "job.sh"]).unwrap_err();
    user.script = "#SBATCH --comment='open\n";
    user.submit(&["sbatch", "job.sh"]).unwrap_err();
    user.script = "";
    user.variables = vec![("SLURM_CLUSTERS", "other")];
    user.submit(&["sbatch", "job.sh"]).unwrap_err();
}

#[test]
fn options_that_evade_the_constraint_are_refused() {
    let mut user = SbatchUser::default();
    for words in [
        &["--prefer=fast", "job.sh"] as &[&str],
        &["--pref", "fast", "job.sh"],
        &["--cluster=other", "job.sh"],
        &["--cluster-constraint=big", "job.sh"],
    ] {
        let error = user.submit(&[&["sbatch"], words].concat()).unwrap_err();
        assert!(error.to_string().ends_with("; remove it"), "{error}");
    }
    user.script = "#SBATCH --prefer=fast\n";
    let error = user.submit(&["sbatch", "job.sh"]).unwrap_err().to_string();
    assert!(error.contains("nodes without the data"), "{error}");
    user.script = "";
    user.variables = vec![("SBATCH_CLUSTER_CONSTRAINT", "big")];
    user.submit(&["sbatch", "job.sh"]).unwrap_err();
}

#[test]
fn variables_reach_tasks_of_every_script() {
    let mark = format!("--comment=of the script {MARK}");
    let none = "--export=SPOOL_DIRECTORY,RESULTS";
    let script = "#!/bin/sh\n#SBATCH--export=NONE\n#SBATCH --comment='of the script'#x\n";
    let piped = SbatchUser {
        input: script,
        ..SbatchUser::default()
    };
    check(&piped, &["sbatch"], &[&mark, none]);
    let user = SbatchUser {
        script,
        ..SbatchUser::default()
    };
    check(&user, &["sbatch", "job.sh"], &[&mark, none, "job.sh"]);
    for words in [
        &["-D", "sub"] as &[&str],
        &["-Dsub"],
        &["--chdir=sub"],
        &["-HDsub"],
    ] {
        let expected = [&[mark.as_str(), none], words, &["deep.sh"]].concat();
        check(
            &user,
            &[&["sbatch"], words, &["deep.sh"]].concat(),
            &expected,
        );
    }
}

#[test]
fn variables_of_pbs_directives_are_joined() {
    let mark = format!("--comment={MARK}");
    let mut user = SbatchUser {
        script: "#PBS -v A=1\n#SBATCH --export=B\n",
        ..SbatchUser::default()
    };
    let all = "--export=B,A=1,SPOOL_DIRECTORY,RESULTS";
    check(&user, &["sbatch", "job.sh"], &[&mark, all, "job.sh"]);
    let own = "--export=B,SPOOL_DIRECTORY,RESULTS";
    let ignoring = ["sbatch", "--ignore-pbs", "job.sh"];
    check(&user, &ignoring, &[&mark, own, "--ignore-pbs", "job.sh"]);
    user.variables = vec![("SBATCH_IGNORE_PBS", "")];
    check(&user, &["sbatch", "job.sh"], &[&mark, own, "job.sh"]);
}

#[test]
fn quiet_submission_prints_its_number() {
    let mark = format!("--comment={MARK}");
    for (words, expected) in [
        (&["-Q"] as &[&str], &[] as &[&str]),
        (&["--quiet"], &[]),
        (&["--qui", "-HQn1"], &["-Hn1"]),
        (&["-QQn", "2", "-JQ", "-kQ"], &["-n", "2", "-JQ", "-kQ"]),
    ] {
        let command = [&["sbatch"], words, &["job.sh", "-Q"]].concat();
        let expected = [&[mark.as_str()], expected, &["job.sh", "-Q"]].concat();
        check(&SbatchUser::default(), &command, &expected);
    }
}

#[test]
fn long_comment_is_refused() {
    let user = SbatchUser::default();
    let submit = |length: usize| {
        let comment = format!("--comment={}", "x".repeat(length));
        user.submit(&["sbatch", &comment, "job.sh"])
    };
    let args = submit(997).unwrap();
    assert_eq!(args[2].len(), "--comment=".len() + 1024);
    let error = submit(998).unwrap_err().to_string();
    assert!(
        error.contains("shorten the comment to 997 bytes"),
        "{error}"
    );
}
