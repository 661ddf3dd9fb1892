//! Statements in the forms that the grammar allows.

use driftless_taskfile::{Cleanup, ParameterRange, ResultPattern, TaskFile, WorkloadManager};
use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

const EXAMPLE: &[u8] = include_bytes!("example.tdf");

fn parse(text: impl AsRef<[u8]>) -> TaskFile {
    let text = text.as_ref();
    TaskFile::parse(text)
        .unwrap_or_else(|error| panic!("{error}:\n{}", String::from_utf8_lossy(text)))
}

/// Parses a file with these statements.
fn with(wlm: &str, data: &str, execute: &str, rest: &str) -> TaskFile {
    parse(format!(
        "WLM {{{wlm}}}DATA{{{data}}} EXECUTE {{{execute}}}\n{rest}"
    ))
}

fn with_data(data: &[u8]) -> TaskFile {
    let start = b"WLM { WLM_SYSTEM = SGE; } EXECUTE { DO run; } DATA { TRANSFER ";
    parse([&start[..], data, b"; }"].concat())
}

fn with_action(execute: &str) -> TaskFile {
    with("WLM_SYSTEM=PBS;", "TRANSFER a;", execute, "")
}

fn with_rest(rest: &str) -> TaskFile {
    with("WLM_SYSTEM=PBS;", "TRANSFER a;", "DO run;", rest)
}

fn range(start: u32, stop: u32, step: u32, tasks_at_once_max: u32) -> Option<ParameterRange> {
    Some(ParameterRange {
        start,
        stop,
        step: NonZeroU32::new(step).expect("a step"),
        tasks_at_once_max: NonZeroU32::new(tasks_at_once_max),
    })
}

#[test]
fn example_of_replicator_parses_unchanged() {
    let file = parse(EXAMPLE);
    assert_eq!(file.system, WorkloadManager::GridEngine);
    assert_eq!(file.options, [""; 0]);
    assert_eq!(file.data.len(), 19);
    let paths: Vec<&Path> = file.data.iter().map(|data| data.path.as_path()).collect();
    assert_eq!(paths[0], Path::new("/var/tmp/blastSTAGE/nr.00.phr"));
    assert_eq!(paths[18], Path::new("/var/tmp/blastSTAGE/nr.pal"));
    assert!(file.data.iter().all(|data| !data.is_glob));
    let script = Path::new("/wrg/home/csci/cjm/blast/blast_rep.sh");
    assert_eq!(file.script, script);
    assert!(file.arguments.is_empty());
    assert_eq!(file.parameters, range(1, 20, 1, 0));
    assert_eq!(file.parameters.map(|range| range.count()), Some(20));
    assert_eq!(file.results, None);
    assert_eq!(file.cleanup, Cleanup::PurgeAll);
}

#[test]
fn example_parses_with_other_line_ends() {
    let text = String::from_utf8_lossy(EXAMPLE);
    assert_eq!(parse(text.replace('\n', "\r\n")), parse(EXAMPLE));
    assert_eq!(parse(format!("\u{feff}{text}")), parse(EXAMPLE));
}

#[test]
fn keywords_are_read_in_any_case() {
    let text = "wlm{wlm_system=slurm;}Data{transfer a;}execute{Do b PARMS=[1:2];}\
                results{collect to c;}cleanup{keep 7D;}";
    let upper = "WLM{WLM_SYSTEM=SLURM;}DATA{TRANSFER a;}EXECUTE{DO b parms=[1:2];}\
                 RESULTS{COLLECT TO c;}CLEANUP{KEEP 7d;}";
    assert_eq!(parse(text), parse(upper));
}

#[test]
fn sections_may_have_any_order() {
    let sections = [
        "WLM { WLM_SYSTEM = UGE; }",
        "DATA { TRANSFER a; TRANSFER b; }",
        "EXECUTE { DO c; }",
        "RESULTS { COLLECT TO d; }",
        "CLEANUP { KEEP; }",
    ];
    let first = parse(sections.join("\n"));
    for turn in 0..sections.len() {
        let mut turned = sections;
        turned.rotate_left(turn);
        assert_eq!(parse(turned.join(" ")), first);
        turned.reverse();
        assert_eq!(parse(turned.join("")), first);
    }
}

#[test]
fn names_of_batch_systems_are_known() {
    for (names, expected) in [
        ("SLURM slurm", WorkloadManager::Slurm),
        ("SGE GE UGE Uge", WorkloadManager::GridEngine),
        ("PBS PBSPRO OPENPBS OpenPBS", WorkloadManager::Pbs),
        ("TORQUE", WorkloadManager::Torque),
    ] {
        for name in names.split(' ') {
            let wlm = format!("WLM_SYSTEM = {name};");
            let file = with(&wlm, "TRANSFER a;", "DO b;", "");
            assert_eq!(file.system, expected, "{name}");
        }
    }
}

#[test]
fn options_are_divided_as_in_a_shell() {
    for (options, expected) in [
        (r#"-q long.q"#, &["-q", "long.q"][..]),
        (
            r#"--time=1:00:00  --mem=4G"#,
            &["--time=1:00:00", "--mem=4G"],
        ),
        (r#"--comment='a b; {c}'"#, &["--comment=a b; {c}"]),
        (
            r#"-N \"a b\" -l x=\\\"1\\\""#,
            &["-N", "a b", "-l", "x=\"1\""],
        ),
        ("", &[]),
    ] {
        let wlm = format!("OPTIONS = \"{options}\"; WLM_SYSTEM = GE;");
        let file = with(&wlm, "TRANSFER a;", "DO b;", "");
        assert_eq!(file.options, expected, "{options}");
    }
    let file = with(
        "WLM_SYSTEM=GE;OPTIONS=--exclusive;",
        "TRANSFER a;",
        "DO b;",
        "",
    );
    assert_eq!(file.options, ["--exclusive"]);
}

#[test]
fn paths_are_bytes() {
    for (text, expected, is_glob) in [
        (&b"/data/nr"[..], &b"/data/nr"[..], false),
        (b"/data/nr/", b"/data/nr/", false),
        (b"relative/./path", b"relative/./path", false),
        (b"/data/nr.*", b"/data/nr.*", true),
        (b"/data/nr.0?", b"/data/nr.0?", true),
        (b"/data/nr.[0-9]", b"/data/nr.[0-9]", true),
        (b"\"/data/nr.*\"", b"/data/nr.*", false),
        (b"/a#b=c,d", b"/a#b=c,d", false),
        (b"a\\b", b"a\\b", false),
        (b"\"/my data; {old} # 1\"", b"/my data; {old} # 1", false),
        (br#""a\"b\\c""#, br#"a"b\c"#, false),
        (b"\"two\nlines\"", b"two\nlines", false),
        (b"/\xff\xfe", b"/\xff\xfe", false),
        (b"\"/\xe9t\xe9 \xff\"", b"/\xe9t\xe9 \xff", false),
        (
            "/donn\u{e9}es/\u{540d}".as_bytes(),
            "/donn\u{e9}es/\u{540d}".as_bytes(),
            false,
        ),
    ] {
        let file = with_data(text);
        let [data] = &file.data[..] else {
            panic!("{} paths", file.data.len());
        };
        assert_eq!(data.path.as_os_str(), OsStr::from_bytes(expected));
        assert_eq!(data.is_glob, is_glob, "{:?}", data.path);
    }
}

#[test]
fn comments_stand_between_words() {
    let file = parse(
        "# first\nWLM # a {\n{ # b }\nWLM_SYSTEM # c ;\n= # d\nSGE # e\n; # f\n} # g\n\
         DATA{#h\nTRANSFER #i\n# j\na#k\n;}EXECUTE{DO b # l\nc # ; m\nd;}# last",
    );
    assert_eq!(file.data[0].path, Path::new("a#k"));
    assert_eq!(file.arguments, ["c", "d"]);
    assert_eq!(file.system, WorkloadManager::GridEngine);
}

#[test]
fn scripts_have_arguments() {
    for (text, script, arguments) in [
        ("DO run.sh;", "run.sh", &[][..]),
        ("DO\n  run.sh\n  a\n  b\n;", "run.sh", &["a", "b"]),
        (
            "DO \"my run\" \"a b\" \"\" -x=1;",
            "my run",
            &["a b", "", "-x=1"],
        ),
        (
            "DO run = parms x=[1] \"parms=[1:2]\";",
            "run",
            &["=", "parms", "x=[1]", "parms=[1:2]"],
        ),
        (
            "DO run DO KEEP\n \"DO\" DATA\n data;",
            "run",
            &["DO", "KEEP", "DO", "DATA", "data"],
        ),
    ] {
        let file = with_action(text);
        assert_eq!(file.script, Path::new(script), "{text}");
        assert_eq!(file.arguments, arguments, "{text}");
        assert_eq!(file.parameters, None, "{text}");
    }
}

#[test]
fn ranges_of_tasks_are_read() {
    for (text, expected, count) in [
        ("parms=[1:20;1]", range(1, 20, 1, 0), 20),
        ("parms=[1:20]", range(1, 20, 1, 0), 20),
        ("parms=[1:20;1]%4", range(1, 20, 1, 4), 20),
        ("parms=[0:9;3]", range(0, 9, 3, 0), 4),
        ("parms=[0:8;3]%1", range(0, 8, 3, 1), 3),
        ("parms=[5:5;7]", range(5, 5, 7, 0), 1),
        (
            "parms = [ 001 : 4294967295 ; 1 ] % 2",
            range(1, u32::MAX, 1, 2),
            u64::from(u32::MAX),
        ),
        ("parms=[0:4294967295]", range(0, u32::MAX, 1, 0), 1 << 32),
        ("Parms=#c\n[1#;\n:2]", range(1, 2, 1, 0), 2),
    ] {
        let file = with_action(&format!("DO run a {text};"));
        assert_eq!(file.parameters, expected, "{text}");
        assert_eq!(
            file.parameters.map(|range| range.count()),
            Some(count),
            "{text}"
        );
        assert_eq!(file.arguments, ["a"], "{text}");
    }
}

#[test]
fn results_are_expanded() {
    for (pattern, expected) in [
        ("results/%j/%t", "results/17/3"),
        ("\"/my results/%h-%j.%t\"", "/my results/n07-17.3"),
        ("%%%j%%t", "%17%t"),
        ("plain", "plain"),
        ("\"a\\\\b\\\"%t\"", "a\\b\"3"),
    ] {
        let file = with_rest(&format!("RESULTS {{ COLLECT TO {pattern}; }}"));
        let path = file.results.map(|results| results.expand("17", "3", "n07"));
        assert_eq!(path.as_deref(), Some(expected.as_bytes()), "{pattern}");
    }
    assert_eq!(with_rest("RESULTS { }").results, None);
}

#[test]
fn wrong_patterns_name_the_position() {
    for (pattern, expected) in [
        ("a%x", "byte 2: unknown placeholder \"%x\": "),
        ("%j%", "byte 3: \"%\" at the end: "),
        ("%J", "byte 1: unknown placeholder \"%J\": "),
        ("%\u{e9}", "byte 1: unknown placeholder \"%\u{e9}\": "),
        ("%\u{1f980}", "byte 1: unknown placeholder \"%\u{1f980}\": "),
        ("%\n", "byte 1: unknown placeholder \"%\\n\": "),
    ] {
        let error = ResultPattern::parse(pattern.as_bytes()).expect_err(pattern);
        let message = error.to_string();
        let instead =
            "write %j for the job, %t for the task, %h for the node, or %% for a percent sign";
        assert_eq!(message, format!("{expected}{instead}"), "{pattern:?}");
    }
}

#[test]
fn cleanup_keeps_or_purges() {
    let days = |days: u64| Cleanup::KeepFor(Duration::from_secs(days * 24 * 3600));
    let seconds = |seconds| Cleanup::KeepFor(Duration::from_secs(seconds));
    for (text, expected) in [
        ("PURGEALL;", Cleanup::PurgeAll),
        ("", Cleanup::PurgeAll),
        ("KEEP;", Cleanup::Keep),
        ("KEEP 7d;", days(7)),
        ("KEEP 2w;", days(14)),
        ("KEEP \"12h\";", seconds(12 * 3600)),
        ("KEEP 90m;", seconds(90 * 60)),
        ("KEEP 007s;", seconds(7)),
        ("KEEP 3650d;", days(3650)),
    ] {
        let file = with_rest(&format!("CLEANUP {{ {text} }}"));
        assert_eq!(file.cleanup, expected, "{text}");
    }
}
