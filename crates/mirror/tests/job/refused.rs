//! What is refused, of which line, and what is said to be possible.

use super::{TREES, errors, job, read};

/// Each added text has one error, which begins and goes on as told. Lines count from the first of
/// what is added.
fn refused(cases: &[(&str, &str, &str)]) {
    for (added, begins, says) in cases {
        let all = errors(&format!("{added}\n{TREES}"));
        let right = all.len() == 1 && all[0].starts_with(begins) && all[0].contains(says);
        assert!(right, "{added}: {begins} {says}\n{}", all.join("\n"));
    }
}

/// The same for what stands behind the trees, where tables do. The trees take two lines.
fn refused_behind(cases: &[(&str, &str, &str)]) {
    for (added, begins, says) in cases {
        let all = errors(&format!("{TREES}{added}"));
        let right = all.len() == 1 && all[0].starts_with(begins) && all[0].contains(says);
        assert!(right, "{added}: {begins} {says}\n{}", all.join("\n"));
    }
}

#[test]
fn a_value_of_another_type_is_refused_with_what_is_expected() {
    refused(&[
        ("rpo = 5", "1:7: rpo: ", "a time in quotes, such as \"90s\""),
        ("rpo = \"5\"", "1:7: rpo: \"5\": ", "such as 90m"),
        ("rpo = \"0s\"", "1:7: rpo: ", "above zero"),
        ("rpo = \"600w\"", "1:7: rpo: ", "more than ten years"),
        ("rpo = \"\"", "1:7: rpo: it is empty", "a time in quotes"),
        (
            "detect = \"walk\"",
            "1:10: detect: ",
            "a list in [ ] is expected, not text",
        ),
        ("detect = [1]", "1:11: detect: ", "not a number"),
        ("detect = []", "1:10: detect: ", "it is empty"),
        (
            "delete = \"yes\"",
            "1:10: delete: ",
            "true or false is expected, not text",
        ),
        ("delete = 1", "1:10: delete: ", "true or false is expected"),
        ("quiet = true", "1:9: quiet: ", "a list in [ ] is expected"),
        (
            "quiet = [\n  \"Sun\",\n  \"Mo 08:00-09:00\",\n]",
            "3:3: quiet: ",
            "Mon, Tue",
        ),
        ("on_problem = \" \"", "1:14: on_problem: ", "no command"),
        ("on_problem = \"a 'b\"", "1:14: on_problem: ", "quote"),
        ("operators = \"a:b\"", "1:13: operators: ", "no name of a"),
        ("operators = \"-x\"", "1:13: operators: ", "no name of a"),
        ("operators = 4", "1:13: operators: ", "a number"),
        (
            "required = [\"../x\"]",
            "1:13: required: ",
            "not a name below the root",
        ),
        (
            "required = [\"/x\"]",
            "1:13: required: ",
            "not a name below the root",
        ),
        ("filters = [\"*.o\"]", "1:12: filters: ", "+ "),
        ("filters = [\"- a[\"]", "1:12: filters: ", "a["),
        ("filters = [\"# x\"]", "1:12: filters: ", "comments"),
        ("filters = \"- x\"", "1:11: filters: ", "a list in [ ]"),
        ("min_size = -1", "1:12: min_size: ", "from 0"),
        ("min_size = 1.5", "1:12: min_size: ", "not a fraction"),
        (
            "max_size = \"10X\"",
            "1:12: max_size: \"10X\": ",
            "k, M, G, T and P",
        ),
        (
            "max_size = \"9000P\"",
            "1:12: max_size: ",
            "no file is so large",
        ),
        (
            "max_size = 99999999999999999999",
            "1:12: max_size: ",
            "a number from 0",
        ),
        ("cache = \"dorp\"", "1:9: cache: ", "did you mean \"drop\"?"),
        (
            "cache = \"none\"",
            "1:9: cache: ",
            "is none of keep, drop, direct",
        ),
        ("level = 2024-01-01", "1:9: level: ", "not a date"),
        (
            "read_back = \"meta\"",
            "1:13: read_back: ",
            "content, media",
        ),
        ("durability = [\"end\"]", "1:14: durability: ", "not a list"),
        (
            "detect = [\"fanotfy\"]",
            "1:11: detect: ",
            "did you mean \"fanotify\"?",
        ),
        ("name = true", "1:8: name: ", "not true or false"),
        ("rpo = { x = \"1s\" }", "1:7: rpo: ", "not a table"),
        (
            "walk = \"24h\"",
            "1:1: walk: ",
            "it is a table: write [walk]",
        ),
        ("keep = 24", "1:1: keep: ", "it is a table: write [keep]"),
    ]);
    refused_behind(&[
        ("[[walk]]\nevery = \"1h\"", "3:3: walk: ", "it is a table"),
        (
            "[walk]\nevery = \"0s\"",
            "4:9: walk.every: ",
            "or \"never\"",
        ),
        (
            "[keep]\nmodify_window = \"1500ms\"",
            "4:17: keep.modify_window: ",
            "whole seconds",
        ),
        (
            "[keep]\nmodify_window = \"2d\"",
            "4:17: keep.modify_window: ",
            "of a day",
        ),
        ("[keep]\nmode = 0", "4:8: keep.mode: ", "true or false"),
        ("[limits]\njobs = 0", "4:8: limits.jobs: ", "from 1 to 1024"),
        (
            "[limits]\njobs = \"8\"",
            "4:8: limits.jobs: ",
            "\"auto\" or a number",
        ),
        (
            "[limits]\nbytes_per_second = \"0\"",
            "4:20: limits.bytes_per_second: ",
            "above zero",
        ),
        (
            "[limits]\nrequests_per_second = 0",
            "4:23: limits.requests_per_second: ",
            "from 1 on",
        ),
        (
            "[reach]\ncompress = 20",
            "4:12: reach.compress: ",
            "from 1 to 19",
        ),
        (
            "[reach]\nstreams = 65",
            "4:11: reach.streams: ",
            "from 1 to 64",
        ),
        ("[reach]\nssh = \"\"", "4:7: reach.ssh: ", "a command"),
        (
            "[reach]\ndeploy = 1",
            "4:10: reach.deploy: ",
            "the path of a program",
        ),
        (
            "[metrics]\nlisten = \"localhost\"",
            "4:10: metrics.listen: ",
            "127.0.0.1:9464",
        ),
        (
            "[metrics]\nlisten = \"127.0.0.1:0\"",
            "4:10: metrics.listen: ",
            "port 0",
        ),
        (
            "[metrics]\nlisten = \"0.0.0.0:9464\"",
            "4:10: metrics.listen: ",
            "public = true",
        ),
        (
            "[metrics]\npublic = true",
            "3:2: metrics.listen: ",
            "it is missing",
        ),
        (
            "[publish]\nexchange = \"x\"\nbroker = \"http://x\"",
            "5:10: publish.broker: ",
            "amqp://",
        ),
        (
            "[publish]\nexchange = \"x\"\nbroker = \"amqp://me:secret@h/v\"",
            "5:10: publish.broker: ",
            "password",
        ),
        (
            "delete = true\n[trash]\nbytes = 0",
            "5:9: trash.bytes: ",
            "above zero",
        ),
        (
            "delete = true\n[trash]",
            "4:2: trash: ",
            "neither age nor bytes",
        ),
    ]);
    assert!(
        job("metrics = { listen = \"0.0.0.0:1\", public = true }")
            .metrics
            .is_some()
    );
}

#[test]
fn an_unknown_key_is_refused_and_the_right_one_is_suggested() {
    refused(&[
        (
            "soruce = \"x\"",
            "1:1: soruce: no such key",
            "did you mean source?",
        ),
        (
            "max-delete = 1",
            "1:1: max-delete: ",
            "write max_delete, with an underscore",
        ),
        (
            "every = \"1h\"",
            "1:1: every: ",
            "every belongs in [cycle] or [walk]",
        ),
        (
            "settle = \"1s\"",
            "1:1: settle: ",
            "settle belongs in [live]",
        ),
        (
            "bwlimit = \"1M\"",
            "1:1: bwlimit: ",
            "bytes_per_second in [limits]",
        ),
        (
            "no_owner = true",
            "1:1: no_owner: ",
            "write owner = false in [keep]",
        ),
        (
            "exclude = [\"x\"]",
            "1:1: exclude: ",
            "filters = [\"- PATTERN\"]",
        ),
        (
            "fanotfy.unlimited = true",
            "1:1: fanotfy: ",
            "did you mean fanotify?",
        ),
        (
            "setle = \"1s\"",
            "1:1: setle: ",
            "did you mean settle in [live]?",
        ),
        ("zzz = 1", "1:1: zzz: ", "possible here: name, source,"),
        ("\"\\u001b[2J\" = 1", "1:1: \\x1b[2J: ", "no such key"),
        ("\"\" = 1", "1:1: no such key", "possible here"),
    ]);
    refused_behind(&[
        (
            "[walk]\nevry = \"1h\"",
            "4:1: walk.evry: ",
            "did you mean every?",
        ),
        (
            "[walk]\ndelete = true",
            "4:1: walk.delete: ",
            "delete belongs above the first [table]",
        ),
        (
            "[walk]\nkeep = 3",
            "4:1: walk.keep: ",
            "keep belongs in [cycle]",
        ),
        (
            "[keep]\nzzz = 3",
            "4:1: keep.zzz: ",
            "possible here: mode, owner,",
        ),
        ("[walk.every]\nx = 1", "3:1: walk.every: ", "not a table"),
        (
            "[movers]\nhosts = [\"a\"]",
            "3:2: movers: ",
            "driftless mirror join",
        ),
        (
            "[wlak]\nevery = \"1h\"",
            "3:2: wlak: ",
            "did you mean walk?",
        ),
    ]);
}

#[test]
fn what_contradicts_itself_is_told_of_the_line_that_would_change() {
    refused(&[
        (
            "max_delete = 1",
            "1:14: max_delete: ",
            "without delete = true",
        ),
        (
            "delete = false\nmax_delete = 1",
            "2:14: max_delete: ",
            "without delete",
        ),
        (
            "delete_excluded = true",
            "1:19: delete_excluded: ",
            "without delete",
        ),
        (
            "delete_unlike = true",
            "1:17: delete_unlike: ",
            "without delete",
        ),
        ("trash = \"30d\"", "1:9: trash: ", "without delete"),
        (
            "max_delete = \"101%\"\ndelete = true",
            "1:14: max_delete: ",
            "from 0% to 100%",
        ),
        (
            "min_size = 6\nmax_size = 5",
            "1:12: min_size: 6 is more than max_size 5",
            "no file",
        ),
        (
            "detect = [\"walk\", \"walk\"]",
            "1:19: detect: ",
            "walk is listed twice",
        ),
        (
            "detect = [\"zfs\", \"walk\", \"btrfs\"]",
            "1:26: detect: zfs and btrfs: ",
            "one kind",
        ),
        ("quiet = [\"00:00-24:00\"]", "1:9: quiet: ", "no minute"),
        (
            "detect = [\"list\"]",
            "1:1: list.path: ",
            "it is missing: detect has \"list\"",
        ),
    ]);
    refused_behind(&[
        (
            "detect = [\"zfs\"]\n[walk]\nevery = \"1h\"",
            "4:2: walk: ",
            "not in detect",
        ),
        (
            "[fanotify]\nunlimited = true",
            "3:2: fanotify: ",
            "not in detect",
        ),
        ("[list]\npath = \"x\"", "3:2: list: ", "not in detect"),
        ("[gpfs]\ndevice = \"x\"", "3:2: gpfs: ", "not in detect"),
        (
            "[lustre]\nmdt = \"x\"\nuser = \"y\"",
            "3:2: lustre: ",
            "not in detect",
        ),
        ("[announcements]", "3:2: announcements: ", "not in detect"),
        ("[command]", "3:2: command: ", "not in detect"),
        (
            "[cycle]\nkeep = 3",
            "3:2: cycle: ",
            "btrfs, zfs, gpfs, cephfs, command",
        ),
        (
            "[live]\nsettle = \"1s\"",
            "3:2: live: ",
            "fanotify, lustre, list, announcements",
        ),
        (
            "detect = [\"list\"]\n[list]\nformat = \"nul\"",
            "4:2: list.path: ",
            "it is missing",
        ),
        (
            "detect = [\"lustre\"]\n[lustre]\nmdt = \"x\"",
            "4:2: lustre.user: ",
            "it is missing",
        ),
        (
            "detect = [\"announcements\"]\n[announcements]\nbroker = \"amqp://u@h\"\nqueue = \"q\"",
            "4:2: announcements.exchange: ",
            "it is missing",
        ),
        (
            "[publish]\nexchange = \"x\"",
            "3:2: publish.broker: ",
            "it is missing",
        ),
        (
            "detect = [\"fanotify\"]\n[live]\nsettle = \"6m\"",
            "5:10: live.settle: ",
            "6m is more than rpo, 5m",
        ),
        (
            "detect = [\"fanotify\"]\nrpo = \"1500ms\"",
            "4:7: rpo: ",
            "1500ms is less than live.settle, 2s",
        ),
        (
            "detect = [\"btrfs\"]\n[cycle]\nevery = \"1d\"",
            "5:9: cycle.every: ",
            "1d is more than rpo, 4h",
        ),
        (
            "detect = [\"btrfs\"]\nrpo = \"30m\"",
            "4:7: rpo: ",
            "less than cycle.every, 1h",
        ),
        ("[trash]\nage = \"30d\"", "3:2: trash: ", "without delete"),
        (
            "[keep]\nowner = false\ngroup = false\ndemand_owners = true",
            "6:17: keep.demand_owners: ",
            "neither",
        ),
    ]);
    // What is wrong with one element says nothing of the others, wherever they stand.
    refused(&[
        (
            "detect = [\"x\", \"zfs\", \"zfs\"]",
            "1:11: detect: ",
            "none of",
        ),
        (
            "detect = [\"x\"]\ncycle.keep = 3",
            "1:11: detect: ",
            "none of",
        ),
    ]);
    job("detect = [\"btrfs\", \"fanotify\"]\nrpo = \"1h\"\n[live]\nsettle = \"1h\"\n");
}

#[test]
fn trees_are_there_and_differ() {
    for (text, expected) in [
        ("replica = \"/r\"", &["1:1: source: it is missing"][..]),
        ("source = \"/s\"", &["1:1: replica: it is missing"]),
        (
            "",
            &["1:1: source: it is missing", "1:1: replica: it is missing"],
        ),
        (
            "source = \"/s\"\nreplica = \"/r\"\nreplicas = [\"/q\"]",
            &["2:11: replica: replicas is there, too"],
        ),
        (
            "source = \"/s\"\nreplicas = []",
            &["2:12: replicas: it is empty"],
        ),
        (
            "source = \"/s\"\nreplica = \"//s/./\"",
            &["2:11: replica: it is the source"],
        ),
        (
            "source = \"h:x\"\nreplica = \"h:x/\"",
            &["2:11: replica: it is the source"],
        ),
        (
            "source = \"/\"\nreplica = \"//\"",
            &["2:11: replica: it is the source"],
        ),
        (
            "source = \"./a\"\nreplica = \"a\"",
            &["2:11: replica: it is the source"],
        ),
        (
            "source = \"/s\"\nreplicas = [\"/r\", \"/q\",\n\"/r/\"]",
            &["3:1: replicas: this replica is listed twice"],
        ),
        (
            "source = \"a\\u0000b\"\nreplica = \"\"",
            &["1:10: source: it has a NUL", "2:11: replica: it is empty"],
        ),
    ] {
        let all = errors(text);
        assert_eq!(all.len(), expected.len(), "{text}: {all:?}");
        for (error, expected) in all.iter().zip(expected) {
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
    read("source = \"a:b\"\nreplica = \"./a:b\"").expect("one is on another host");
}
