//! Wrong files and their messages.

use driftless_taskfile::{DATA_PATHS_MAX, TASK_FILE_BYTES_MAX, TaskFile};

fn message(text: impl AsRef<[u8]>) -> String {
    match TaskFile::parse(text.as_ref()) {
        Ok(file) => format!("{file:?}"),
        Err(error) => error.to_string(),
    }
}

/// Checks the message of each text between two others.
fn check(before: &str, cases: &[(&str, &str)], behind: &str) {
    for (text, expected) in cases {
        let whole = format!("{before}{text}{behind}");
        assert_eq!(message(&whole), *expected, "{whole}");
    }
}

#[test]
fn defects_of_sections_are_named() {
    let cases = [
        (
            "",
            "line 1, column 1: section WLM is missing: write WLM { WLM_SYSTEM = SLURM; }",
        ),
        (
            "# nothing\n",
            "line 2, column 1: section WLM is missing: write WLM { WLM_SYSTEM = SLURM; }",
        ),
        (
            "WLM { WLM_SYSTEM = SGE; }",
            "line 1, column 26: section DATA is missing: write DATA { TRANSFER PATH; }",
        ),
        (
            "WLM { WLM_SYSTEM = SGE; } EXECUTE { DO b; }\n\n",
            "line 3, column 1: section DATA is missing: write DATA { TRANSFER PATH; }",
        ),
        (
            "WLM { WLM_SYSTEM = SGE; }\nDATA { TRANSFER a; }",
            "line 2, column 21: section EXECUTE is missing: write EXECUTE { DO SCRIPT; }",
        ),
        (
            "WLM { }",
            "line 1, column 7: section WLM without WLM_SYSTEM: write WLM_SYSTEM = SLURM;",
        ),
        (
            "DATA\n{\n}",
            "line 3, column 1: section DATA without TRANSFER: write TRANSFER PATH;",
        ),
        (
            "EXECUTE { # DO b;\n}",
            "line 2, column 1: section EXECUTE without DO: write DO SCRIPT;",
        ),
        (
            "WML { WLM_SYSTEM = SGE; }",
            "line 1, column 1: unknown section \"WML\": write WLM { WLM_SYSTEM = SLURM; }",
        ),
        (
            "OUTPUT { COLLECT TO a; }",
            "line 1, column 1: unknown section \"OUTPUT\": write WLM, DATA, EXECUTE, RESULTS or CLEANUP",
        ),
        (
            "DTA TRANSFER a;",
            "line 1, column 1: unknown section \"DTA\": write DATA { TRANSFER PATH; }",
        ),
        (
            "DATA TRANSFER a; }",
            "line 1, column 5: missing \"{\" behind DATA: write DATA { TRANSFER PATH; }",
        ),
        (
            "data",
            "line 1, column 5: missing \"{\" behind DATA: write DATA { TRANSFER PATH; }",
        ),
        (
            "DATA { TRANSFER a; }\nDATA { TRANSFER b; }",
            "line 2, column 1: second section DATA, the first is in line 1: write all its statements into the first",
        ),
        (
            "TRANSFER a;",
            "line 1, column 1: TRANSFER outside a section: write DATA { TRANSFER PATH; }",
        ),
        (
            "hello DATA { TRANSFER a; }",
            "line 1, column 1: text \"hello\" in front of the first section: write \"#\" in front of a comment",
        ),
        (
            "DATA { TRANSFER a; }\n  and more",
            "line 2, column 3: text \"and\" behind section DATA: write \"#\" in front of a comment",
        ),
        (
            "DATA { TRANSFER a; };",
            "line 1, column 21: \";\" without a statement: remove it",
        ),
        (
            "DATA { TRANSFER a; } }",
            "line 1, column 22: \"}\" without \"{\": remove it",
        ),
        (
            "{ TRANSFER a; }",
            "line 1, column 1: unexpected \"{\": write DATA { TRANSFER PATH; }",
        ),
        (
            "\"DATA\" { }",
            "line 1, column 1: unexpected quote: write DATA { TRANSFER PATH; }",
        ),
        (
            "\n  DATA {\n    TRANSFER a;\n",
            "line 4, column 1: missing \"}\" of section DATA, which begins in line 2: write \"}\" behind the last statement",
        ),
        (
            "DATA {\n TRANSFER a;\nEXECUTE { DO b; }",
            "line 3, column 1: section EXECUTE within section DATA, which begins in line 1: write \"}\" in front of it",
        ),
        (
            "\u{feff}  DTA { }",
            "line 1, column 3: unknown section \"DTA\": write DATA { TRANSFER PATH; }",
        ),
        (
            "déjà   DTA { }",
            "line 1, column 1: text \"déjà\" in front of the first section: write \"#\" in front of a comment",
        ),
    ];
    check("", &cases, "");
}

#[test]
fn defects_of_paths_are_named() {
    let cases = [
        (
            "TRANFSER a;",
            "line 2, column 1: unknown statement \"TRANFSER\": write TRANSFER PATH;",
        ),
        (
            "COPY a;",
            "line 2, column 1: unknown statement \"COPY\": write TRANSFER PATH;",
        ),
        (
            "this_is_a_word_that_is_longer_than_forty_characters a;",
            "line 2, column 1: unknown statement \"this_is_a_word_that_is_longer_than_forty\"...: write TRANSFER PATH;",
        ),
        (
            "DO a;",
            "line 2, column 1: DO in section DATA: write EXECUTE { DO SCRIPT; }",
        ),
        (
            "COLLECT TO a;",
            "line 2, column 1: COLLECT in section DATA: write RESULTS { COLLECT TO \"PATTERN\"; }",
        ),
        (
            "TRANSFER a",
            "line 2, column 11: missing \";\" behind TRANSFER: write TRANSFER PATH;",
        ),
        (
            "TRANSFER a # ;\n",
            "line 2, column 11: missing \";\" behind TRANSFER: write TRANSFER PATH;",
        ),
        (
            "TRANSFER a\n  TRANSFER b;",
            "line 2, column 11: missing \";\" behind TRANSFER: write TRANSFER PATH;",
        ),
        (
            "TRANSFER a TRANSFER b;",
            "line 2, column 11: missing \";\" behind TRANSFER: write TRANSFER PATH;",
        ),
        (
            "TRANSFER a b;",
            "line 2, column 12: unexpected \"b\" behind TRANSFER: write TRANSFER PATH; for each path, and put a path with blanks in double quotes",
        ),
        (
            "TRANSFER a \"b c\";",
            "line 2, column 12: unexpected \"b c\" behind TRANSFER: write TRANSFER PATH; for each path, and put a path with blanks in double quotes",
        ),
        (
            "TRANSFER a\nb;",
            "line 2, column 11: missing \";\" behind TRANSFER: write TRANSFER PATH;",
        ),
        (
            "TRANSFER a{b,c};",
            "line 2, column 11: \"{\" within a word: put the whole value in double quotes",
        ),
        (
            "TRANSFER;",
            "line 2, column 9: missing value behind TRANSFER: write TRANSFER PATH;",
        ),
        (
            "TRANSFER\nTRANSFER a;",
            "line 2, column 9: missing value behind TRANSFER: write TRANSFER PATH;",
        ),
        (
            "TRANSFER",
            "line 2, column 9: missing value behind TRANSFER: write TRANSFER PATH;",
        ),
        (
            "TRANSFER \"\";",
            "line 2, column 10: empty value of TRANSFER: write TRANSFER PATH;",
        ),
        (
            "TRANSFER = a;",
            "line 2, column 10: unexpected \"=\": write TRANSFER PATH;",
        ),
        (
            "TRANSFER \"a;",
            "line 2, column 10: unterminated quote: write a quote behind the value",
        ),
        (
            "TRANSFER \"a\nTRANSFER \"b\";",
            "line 3, column 11: text behind a closing quote, whose opening quote is in line 2: put the whole value in double quotes",
        ),
        (
            "TRANSFER \"a\"b;",
            "line 2, column 13: text behind a closing quote: put the whole value in double quotes",
        ),
        (
            "TRANSFER a\"b\";",
            "line 2, column 11: quote within a word: put the whole value in double quotes, and write \\\" for a quote in it",
        ),
        (
            "TRANSFER \"a\\ b\";",
            "line 2, column 12: backslash without \\ or \" behind it: write \\\\ for a backslash, and \\\" for a quote",
        ),
        (
            "TRANSFER \"a\\",
            "line 2, column 12: backslash without \\ or \" behind it: write \\\\ for a backslash, and \\\" for a quote",
        ),
        (
            ";",
            "line 2, column 1: \";\" without a statement: remove it",
        ),
        (
            "TRANSFER a;;",
            "line 2, column 12: \";\" without a statement: remove it",
        ),
        (
            "= a;",
            "line 2, column 1: unexpected \"=\": write TRANSFER PATH;",
        ),
        (
            "\"TRANSFER\" a;",
            "line 2, column 1: unexpected quote: write TRANSFER PATH;",
        ),
    ];
    check("DATA {\n", &cases, "\n}");
}

#[test]
fn defects_of_batch_systems_are_named() {
    let cases = [
        (
            "WLM_SYSTEM = SLRUM;",
            "line 1, column 20: unknown batch system \"SLRUM\": write SLURM",
        ),
        (
            "WLM_SYSTEM = LSF;",
            "line 1, column 20: unknown batch system \"LSF\": write SLURM, SGE, GE, UGE, PBS, PBSPRO, OPENPBS or TORQUE",
        ),
        (
            "WLM_SYSTEM = GEX;",
            "line 1, column 20: unknown batch system \"GEX\": write GE",
        ),
        (
            "WLM_SYSTEM SGE;",
            "line 1, column 17: missing \"=\" behind WLM_SYSTEM: write WLM_SYSTEM = SLURM;",
        ),
        (
            "WLM_SYSTEM = ;",
            "line 1, column 19: missing value behind WLM_SYSTEM: write WLM_SYSTEM = SLURM;",
        ),
        (
            "WLM_SYSTEM == SGE;",
            "line 1, column 19: unexpected \"=\": write WLM_SYSTEM = SLURM;",
        ),
        (
            "WLM_SYSTEM = SGE PBS;",
            "line 1, column 24: unexpected \"PBS\" behind WLM_SYSTEM: write WLM_SYSTEM = SLURM;",
        ),
        (
            "SYSTEM = SGE;",
            "line 1, column 7: unknown statement \"SYSTEM\": write WLM_SYSTEM = SLURM; or OPTIONS = \"OPTIONS\";",
        ),
        (
            "QUEUE = long;",
            "line 1, column 7: unknown statement \"QUEUE\": write WLM_SYSTEM = SLURM; or OPTIONS = \"OPTIONS\";",
        ),
        (
            "WLM_SYSTEM = SGE; WLM_SYSTEM = SGE;",
            "line 1, column 25: second WLM_SYSTEM, the first is in line 1: remove one of them",
        ),
        (
            "WLM_SYSTEM = SGE; OPTIONS = \"'a\";",
            "line 1, column 35: unterminated quote of the shell in OPTIONS: close each quote and write an even number of backslashes at the end",
        ),
        (
            "WLM_SYSTEM = SGE; OPTIONS = -q long;",
            "line 1, column 38: unexpected \"long\" behind OPTIONS: write OPTIONS = \"OPTIONS\";",
        ),
        (
            "WLM_SYSTEM = SGE; OPTIONS = a; OPTIONS = b;",
            "line 1, column 38: second OPTIONS, the first is in line 1: remove one of them",
        ),
    ];
    check("WLM { ", &cases, "}");
}

#[test]
fn defects_of_scripts_and_ranges_are_named() {
    let cases = [
        (
            "DO;",
            "line 2, column 5: missing value behind DO: write DO SCRIPT;",
        ),
        (
            "DO \"\";",
            "line 2, column 6: empty value of DO: write DO SCRIPT;",
        ),
        (
            "DO a b\n}",
            "line 2, column 9: missing \";\" behind DO: write DO SCRIPT;",
        ),
        (
            "DO a\nDO b;",
            "line 2, column 7: missing \";\" behind DO: write DO SCRIPT;",
        ),
        (
            "DO a\n} CLEANUP { KEEP; }",
            "line 2, column 7: missing \";\" behind DO: write DO SCRIPT;",
        ),
        (
            "DO a\nCLEANUP { KEEP; }",
            "line 2, column 7: missing \";\" behind DO: write DO SCRIPT;",
        ),
        (
            "DO a; DO b;",
            "line 2, column 9: second DO, the first is in line 2: write a task file for each script",
        ),
        (
            "DO a params=[1:20;1];",
            "line 2, column 8: unknown word \"params=\": write parms=[START:STOP;STEP]",
        ),
        (
            "TRANFSER a;",
            "line 2, column 3: unknown statement \"TRANFSER\": write DATA { TRANSFER PATH; }",
        ),
        (
            "DO a parms=1:20;",
            "line 2, column 14: unexpected \"1\" in a range: write parms=[START:STOP;STEP]",
        ),
        (
            "DO a parms=[20];",
            "line 2, column 17: unexpected \"]\" in a range: write parms=[START:STOP;STEP]",
        ),
        (
            "DO a parms=[1-20];",
            "line 2, column 16: unexpected \"-\" in a range: write parms=[START:STOP;STEP]",
        ),
        (
            "DO a parms=[1:20;1;",
            "line 2, column 21: unexpected \";\" in a range: write parms=[START:STOP;STEP]",
        ),
        (
            "DO a parms=[1:20",
            "line 2, column 19: unexpected end of the file in a range: write parms=[START:STOP;STEP]",
        ),
        (
            "DO a parms=[1:20,1];",
            "line 2, column 19: unexpected \",\" in a range: write parms=[START:STOP;STEP]",
        ),
        (
            "DO a parms=[a:20];",
            "line 2, column 15: unexpected \"a\" in a range: write parms=[START:STOP;STEP]",
        ),
        (
            "DO a parms=[\u{1f980}];",
            "line 2, column 15: unexpected \"\u{1f980}\" in a range: write parms=[START:STOP;STEP]",
        ),
        (
            "DO a parms=[:20];",
            "line 2, column 15: unexpected \":\" in a range: write parms=[START:STOP;STEP]",
        ),
        (
            "DO a parms=[1:20;0];",
            "line 2, column 20: 0 is not a step: write a number from 1",
        ),
        (
            "DO a parms=[1:20]%0;",
            "line 2, column 21: 0 is not a number of tasks at once: write a number from 1",
        ),
        (
            "DO a parms=[1:20]%;",
            "line 2, column 21: unexpected \";\" in a range: write parms=[START:STOP;STEP]",
        ),
        (
            "DO a parms=[20:1];",
            "line 2, column 15: range 20:1 ends before it starts: write parms=[1:20]",
        ),
        (
            "DO a parms=[1:4294967296];",
            "line 2, column 17: number \"4294967296\" is too large: write a number from 0 to 4294967295",
        ),
        (
            "DO a parms=[-1:3];",
            "line 2, column 15: unexpected \"-\" in a range: write parms=[START:STOP;STEP]",
        ),
        (
            "DO a parms=[1:2] b;",
            "line 2, column 20: unexpected \"b\" behind the range: write arguments in front of parms=",
        ),
        (
            "DO a parms=[1:2] parms=[3:4];",
            "line 2, column 20: unexpected \"parms=[3:4]\" behind the range: write arguments in front of parms=",
        ),
        (
            "DO a parms=[1:2]",
            "line 2, column 19: missing \";\" behind DO: write DO SCRIPT;",
        ),
    ];
    check("EXECUTE {\n  ", &cases, "");
}

#[test]
fn defects_of_results_and_cleanup_are_named() {
    let cases = [
        (
            "RESULTS { COLLECT \"a\"; }",
            "line 1, column 18: missing TO behind COLLECT: write COLLECT TO \"PATTERN\";",
        ),
        (
            "RESULTS { COLLECT TOTAL; }",
            "line 1, column 18: missing TO behind COLLECT: write COLLECT TO \"PATTERN\";",
        ),
        (
            "RESULTS { COLLECT TO; }",
            "line 1, column 21: missing value behind COLLECT: write COLLECT TO \"PATTERN\";",
        ),
        (
            "RESULTS { COLLECT TO \"\"; }",
            "line 1, column 22: empty value of COLLECT: write COLLECT TO \"PATTERN\";",
        ),
        (
            "RESULTS { COLLECT TO a; COLLECT TO b; }",
            "line 1, column 25: second COLLECT, the first is in line 1: remove one of them",
        ),
        (
            "RESULTS { COLLECT TO \"a\\\\%j/%x\"; }",
            "line 1, column 29: unknown placeholder \"%x\": write %j for the job, %t for the task, %h for the node, or %% for a percent sign",
        ),
        (
            "RESULTS { COLLECT TO a%; }",
            "line 1, column 23: \"%\" at the end: write %j for the job, %t for the task, %h for the node, or %% for a percent sign",
        ),
        (
            "RESULTS { COLECT TO a; }",
            "line 1, column 11: unknown statement \"COLECT\": write COLLECT TO \"PATTERN\";",
        ),
        (
            "CLEANUP { PURGEALL; KEEP; }",
            "line 1, column 21: second PURGEALL or KEEP, the first is in line 1: remove one of them",
        ),
        (
            "CLEANUP { KEEP 7d;\nPURGEALL; }",
            "line 2, column 1: second PURGEALL or KEEP, the first is in line 1: remove one of them",
        ),
        (
            "CLEANUP { PURGE; }",
            "line 1, column 11: unknown statement \"PURGE\": write PURGEALL; or KEEP 7d;",
        ),
        (
            "CLEANUP { PURGEALL }",
            "line 1, column 19: missing \";\" behind PURGEALL: write PURGEALL;",
        ),
        (
            "CLEANUP { PURGEALL now; }",
            "line 1, column 20: unexpected \"now\" behind PURGEALL: write PURGEALL;",
        ),
        (
            "CLEANUP { KEEP 7; }",
            "line 1, column 16: \"7\" is not a duration: write a number with s, m, h, d or w, such as 7d",
        ),
        (
            "CLEANUP { KEEP d; }",
            "line 1, column 16: \"d\" is not a duration: write a number with s, m, h, d or w, such as 7d",
        ),
        (
            "CLEANUP { KEEP 7y; }",
            "line 1, column 16: \"7y\" is not a duration: write a number with s, m, h, d or w, such as 7d",
        ),
        (
            "CLEANUP { KEEP 7 d; }",
            "line 1, column 16: \"7\" is not a duration: write a number with s, m, h, d or w, such as 7d",
        ),
        (
            "CLEANUP { KEEP 0d; }",
            "line 1, column 16: duration of zero: write PURGEALL;",
        ),
        (
            "CLEANUP { KEEP 3651d; }",
            "line 1, column 16: duration \"3651d\" is too long: write at most 3650d, or KEEP;",
        ),
        (
            "CLEANUP { KEEP 30500568904944w; }",
            "line 1, column 16: duration \"30500568904944w\" is too long: write at most 3650d, or KEEP;",
        ),
        (
            "CLEANUP { KEEP 99999999999999999999d; }",
            "line 1, column 16: duration \"99999999999999999999d\" is too long: write at most 3650d, or KEEP;",
        ),
        (
            "CLEANUP { KEEP 7d }",
            "line 1, column 18: missing \";\" behind KEEP: write KEEP 7d;",
        ),
        (
            "DATA { TRANSFER \"a\\",
            "line 1, column 17: unterminated quote: write a quote behind the value",
        ),
        (
            "a\0b",
            "line 1, column 2: zero byte: save the file as text in UTF-8",
        ),
        (
            "CLEANUP { \u{202e}KEEP\u{1b}[0m; }",
            "line 1, column 11: unknown statement \"\\u{202e}KEEP\\u{1b}[0m\": write PURGEALL; or KEEP 7d;",
        ),
    ];
    check("", &cases, "");
}

#[test]
fn columns_count_characters() {
    for (text, expected) in [
        (
            "DATA { TRANSFER \u{e9}\u{540d}\u{1f980}; COPY a; }".as_bytes(),
            "line 1, column 22: unknown statement \"COPY\": write TRANSFER PATH;",
        ),
        (
            b"DATA {\n TRANSFER \"\xe9\xe9\"; COPY a; }",
            "line 2, column 17: unknown statement \"COPY\": write TRANSFER PATH;",
        ),
        (
            b"DATA {\r\n\t\xff a; }",
            "line 2, column 2: unknown statement \"\u{fffd}\": write TRANSFER PATH;",
        ),
        (
            b"\xef\xbb\xbfWLM { OPTIONS = \"\xe9\"; }",
            "line 1, column 17: OPTIONS is not UTF-8: save the file in UTF-8",
        ),
    ] {
        assert_eq!(message(text), expected);
    }
}

#[test]
fn long_files_are_refused() {
    let start = "WLM{WLM_SYSTEM=SGE;}EXECUTE{DO b;}#";
    let file = |bytes: usize| format!("{start}{}\nDATA{{TRANSFER a;}}", "x".repeat(bytes - 53));
    assert_eq!(file(100).len(), 100);
    assert!(TaskFile::parse(file(TASK_FILE_BYTES_MAX).as_bytes()).is_ok());
    let expected = "line 1, column 1: the file exceeds 1048576 bytes: \
                    write TRANSFER for directories or globs";
    assert_eq!(message(file(TASK_FILE_BYTES_MAX + 1)), expected);
}

#[test]
fn too_many_paths_are_refused() {
    let file = |paths: usize| {
        let data = "TRANSFER a;\n".repeat(paths);
        format!("WLM{{WLM_SYSTEM=SGE;}}EXECUTE{{DO b;}}DATA{{\n{data}}}")
    };
    let parsed = TaskFile::parse(file(DATA_PATHS_MAX).as_bytes());
    assert_eq!(parsed.map(|file| file.data.len()), Ok(DATA_PATHS_MAX));
    let expected = "line 65538, column 1: more than 65536 TRANSFER: \
                    write TRANSFER for directories or globs";
    assert_eq!(message(file(DATA_PATHS_MAX + 1)), expected);
}
