//! Tests of the output of `squeue`, with records of Slurm 22.05.8.

use super::*;

const BEGIN: &str = "0123456789abcdef";

const TITLES: &str = "@|ARRAY_JOB_ID|ARRAY_TASK_ID|STATE|REASON|PRIORITY|PARTITION|REQ_NODES|EXC_NODES|FEATURES|NODES|NODELIST|RESERVATION|USER|COMMENT\n";

/// Returns the output with `|` for the separator and `@` for the begin of a record.
fn output(text: &str) -> String {
    without_titles(&[TITLES, text].concat())
}

fn without_titles(text: &str) -> String {
    text.replace('|', &SEPARATOR.to_string())
        .replace('@', BEGIN)
}

fn parsed(text: &str) -> Vec<SqueueJob> {
    parse(&output(text), BEGIN).unwrap()
}

#[test]
fn arrays_are_counted() {
    let records = parsed(
        "@|108|7-200%4|PENDING|Resources|4294901733|all||n[1-3,6]|A&B|1||(null)|alice|a driftless:00000000000000ff\n\
         @|108|6|RUNNING|None|4294901733|all||n[1-3,6]|(null)|1|n5|(null)|alice|(null)\n\
         @|126|N/A|PENDING|JobHeldUser|0|all,big|n1||(null)|1||res|bob|(null)\n\
         @|127|N/A|COMPLETED|None|4294901733|all|||(null)|2|n[4-5]||bob|(null)\n",
    );
    let [array, task, held, ended] = &records[..] else {
        panic!("{records:?}")
    };
    assert_eq!((array.pending(), array.running()), (194, None));
    assert_eq!(array.excluded, ["n1", "n2", "n3", "n6"]);
    assert_eq!(array.mark(), Some(JobMark::of(255)));
    let live = task.running().unwrap();
    assert_eq!((live.index, live.nodes), (Some(6), vec!["n5".to_owned()]));
    assert!(held.is_held(JobHold::User) && !held.has_other_hold(JobHold::User));
    assert!(!array.is_held(JobHold::User) && !ended.is_held(JobHold::User));
    assert_eq!(held.reservation.as_deref(), Some("res"));
    assert_eq!((ended.pending(), ended.running()), (0, None));
}

#[test]
fn joined_tasks_have_several_holds() {
    let joined = |reason: &str, priority: &str| {
        let line = format!("@|1|1-10|PENDING|{reason}|{priority}|all|||(null)|1||(null)|eve|\n");
        parsed(&line).remove(0)
    };
    for priority in ["0", "7"] {
        let mixed = joined("JobArrayTaskLimit,JobHeldAdmin,JobHeldUser", priority);
        assert!(mixed.is_held(JobHold::User) && mixed.has_other_hold(JobHold::User));
        assert!(!mixed.is_held(JobHold::Slurm));
    }
    let limited = joined("Resources,BadConstraints", "7");
    assert!(limited.is_held(JobHold::Slurm) && !limited.has_other_hold(JobHold::Slurm));
    assert!(
        !joined("BadConstraints", "7").is_held(JobHold::Slurm),
        "an old reason"
    );
}

#[test]
fn comment_cannot_be_a_record() {
    let records = parsed(
        "@|1|N/A|PENDING|None|5|all|||(null)|1||(null)|eve|x|y\n2|N/A|PENDING\n@|2|N/A|PENDING|None|5|all|||(null)|1||(null)|bob|\n",
    );
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].owner, "eve");
    assert!(records[0].comment.ends_with("2\u{1f}N/A\u{1f}PENDING"));
}

#[test]
fn unknown_forms_are_errors() {
    for text in [
        "@|1|N/A|PENDING|None|5|all|||(null)|1||(null)|eve\n",
        "@|1|N/A|DREAMING|None|5|all|||(null)|1||(null)|eve|\n",
        "@|1|1-4,...|PENDING|None|5|all|||(null)|1||(null)|eve|\n",
        "@|x|N/A|PENDING|None|5|all|||(null)|1||(null)|eve|\n",
        "@|1|N/A|PENDING|None|5|all|||(null)|1|n[1|(null)|eve|\n",
        "@|1|N/A|PENDING|None|5|all|||(null)|1||(null)|eve|no end",
    ] {
        let error = parse(&output(text), BEGIN).unwrap_err();
        assert!(error.to_string().contains("unknown form"), "{error}");
    }
    assert!(parsed("").is_empty());
}

#[test]
fn output_without_titles_is_an_error() {
    let job = "@|1|N/A|PENDING|None|5|all|||(null)|1||(null)|eve|\n";
    let cut = &TITLES[..TITLES.len() - 1];
    let after = format!("a message\n{TITLES}");
    for text in ["", "\n", "squeue: a message\n", job, "@", cut, &after] {
        let error = parse(&without_titles(text), BEGIN).unwrap_err();
        assert!(error.to_string().contains("unknown form"), "{error}");
    }
}

#[test]
fn expressions_have_their_tasks() {
    for (text, count) in [
        ("1-200", Some(200)),
        ("1,3,5-7", Some(5)),
        ("1-199:2", Some(100)),
        ("10-20:3", Some(4)),
        ("5-1", None),
        ("1-9:0", None),
        ("", None),
        ("1,...", None),
    ] {
        assert_eq!(
            TaskRanges::parse(text).map(|tasks| tasks.count()),
            count,
            "{text}"
        );
    }
}

#[test]
fn copied_comment_hides_no_mark() {
    let comment = |text: &str| {
        let line = format!("@|1|N/A|PENDING|None|5|all|||(null)|1||(null)|eve|{text}\n");
        parsed(&line).remove(0)
    };
    let own = "driftless:00000000000000ff";
    let copied = comment(&format!(
        "driftless:000000000000000a driftless-excluded:n1 {own}"
    ));
    assert_eq!(copied.mark(), Some(JobMark::of(255)));
    assert_eq!(copied.word("driftless-excluded:"), None);
    let excluded = comment(&format!("driftless-excluded:n1 {own} driftless-excluded:-"));
    assert_eq!(excluded.mark(), Some(JobMark::of(255)));
    assert_eq!(excluded.word("driftless-excluded:"), Some("-"));
    assert_eq!(comment(&format!("{own} driftless:x")).mark(), None);
}

#[test]
fn failed_dependency_hides_no_hold() {
    let job = |reason: &str, priority: &str| {
        let line = format!("@|1|N/A|PENDING|{reason}|{priority}|all|||(null)|1||(null)|eve|\n");
        parsed(&line).remove(0)
    };
    for reason in ["DependencyNeverSatisfied", "Dependency", "JobHeldUser"] {
        assert!(job(reason, "0").seems_held(), "{reason}");
    }
    assert!(!job("DependencyNeverSatisfied", "7").seems_held());
    assert!(!job("JobHeldAdmin", "0").seems_held());
}
