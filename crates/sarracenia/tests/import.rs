//! Configurations of `sr3` become jobs: what can be said is in them, all else is told with its
//! line, and no password is anywhere.

use driftless_model::{Filter, Rule};
use driftless_sarracenia::import::{Imported, NoJob, import};

fn imported(component: &str, text: &str) -> Imported {
    import(component, "hubs", text).expect(component)
}

/// The lines that were left out, with their options.
fn left_out(imported: &Imported) -> Vec<String> {
    let all = imported.left_out.iter();
    all.map(|one| format!("{} {}", one.line, one.option))
        .collect()
}

#[test]
fn a_subscriber_on_a_shared_file_system_becomes_a_mirror_of_announcements() {
    let text = "\
# the suites
broker amqps://feed:S3CRET@pump.example.org/hpc
exchange xs_feed_mirror
topicPrefix v03.post
expire 2d
queueName q_${BROKER_USER}.${PROGRAM}.${CONFIG}.${QUEUESHARE}
queueShare site2
subtopic hubs.suites.#
subtopic hubs.par.#
instances 10
batch 25
mirror True
baseDir /src/tree/
directory /dst/tree
nodupe_ttl 0
permCopy on
timeCopy no
fileSizeMax 4g
byteRateMax 50Mi
reject .*\\.tmp$
reject .*/scratch/.*
accept .*
reject .*never.*
callback accept.delete
";
    let imported = imported("subscribe", text);
    assert_eq!(
        imported.job,
        "\
# From the configuration \"hubs\" of sr3 subscribe.
name = \"hubs\"
source = \"/src/tree\"
replica = \"/dst/tree\"
detect = [\"announcements\", \"walk\"]
filters = [\"- *.tmp\", \"- **/scratch/**\"]
max_size = 4000000000
# delete = true  # see what was left out

[keep]
times = false

[limits]
bytes_per_second = 52428800

[announcements]
broker = \"amqps://feed@pump.example.org/hpc\"
exchange = \"xs_feed_mirror\"
topic_prefix = \"v03.post\"
subtopics = [\"hubs.suites.#\", \"hubs.par.#\"]
queue = \"q_feed.subscribe.hubs.site2\"
base_url = \"file:/src/tree\"
"
    );
    assert_eq!(
        left_out(&imported),
        [
            "0 fileEvents",
            "2 broker",
            "5 expire",
            "10 instances",
            "11 batch",
            "23 reject",
            "24 callback"
        ]
    );
    let why = &imported.left_out[6].to_string();
    assert!(why.starts_with("24: callback: a plugin: "), "{why}");
}

#[test]
fn a_sarra_publishes_what_it_has_received() {
    let text = "\
declare env PEER=amqps://peer:hidden@hub.example.org
broker ${PEER}
exchange xs_peer_public
directory /data/wmo
baseDir /net/wmo
accept .*
post_broker amqp://tfeed:alsohidden@localhost
post_exchangeSuffix out
post_baseUrl http://here.example.org/data
post_baseDir /data
permDefault 644
header a=b
";
    let imported = imported("sarra", text);
    assert_eq!(
        imported.job,
        "\
# From the configuration \"hubs\" of sr3 sarra.
name = \"hubs\"
source = \"/net/wmo\"
replica = \"/data/wmo\"
detect = [\"announcements\", \"walk\"]
# delete = true  # see what was left out

[announcements]
broker = \"amqps://peer@hub.example.org\"
exchange = \"xs_peer_public\"
queue = \"q_peer.driftless.hubs\"
base_url = \"file:/net/wmo\"

[publish]
broker = \"amqp://tfeed@localhost\"
exchange = \"xs_tfeed_out\"
base_url = \"http://here.example.org/data/wmo\"
"
    );
    assert_eq!(
        left_out(&imported),
        [
            "0 fileEvents",
            "2 broker",
            "7 post_broker",
            "11 permDefault",
            "12 header"
        ]
    );
}

#[test]
fn a_watch_becomes_a_mirror_that_watches_and_asks_for_its_replica() {
    let text = "\
path /home/user/public_html/a
post_broker amqp://user@broker
post_base_url sftp://user@server/~user
post_base_dir /home/user/public_html
sleep 2.5
fileEvents create|link|modify
blocksize 0
sum sha512
to broker
";
    let imported = imported("watch", text);
    assert_eq!(
        imported.job,
        "\
# From the configuration \"hubs\" of sr3 watch.
name = \"hubs\"
source = \"/home/user/public_html/a\"
# replica = \"...\"  # the tree that becomes equal: a path or HOST:PATH
detect = [\"fanotify\", \"walk\"]

[publish]
broker = \"amqp://user@broker\"
exchange = \"xs_user\"
base_url = \"sftp://user@server/~user/a\"
"
    );
    assert_eq!(
        left_out(&imported),
        ["5 sleep", "6 fileEvents", "7 blocksize", "8 sum", "9 to"]
    );
}

#[test]
fn what_is_polled_is_compared_as_often() {
    let text = "path /gpfs/hubs\nforce_polling\nsleep 5m\npost_broker amqp://u@h/\npost_exchange xs_u_x\npost_baseUrl file:\n";
    let imported = imported("cpost", text);
    let job = &imported.job;
    for line in [
        "detect = [\"walk\"]",
        "[walk]\nevery = \"300s\"",
        "exchange = \"xs_u_x\"",
        "base_url = \"file:/gpfs/hubs\"",
    ] {
        assert!(job.contains(&format!("{line}\n")), "{line}: {job}");
    }
    assert!(left_out(&imported).iter().all(|one| !one.contains("sleep")));
}

#[test]
fn a_configuration_of_the_preloaded_library_becomes_a_mirror_of_posts() {
    let text = "post_broker amqp://u@h/\npost_baseUrl file:/\npost_baseDir /hubs\nshim_post_minterval 5\nrealpathPost on\nevents modify,link,delete,create,mkdir,rmdir\n";
    let imported = imported("cpost", text);
    assert!(
        imported.job.contains("source = \"/hubs\"\n"),
        "{}",
        imported.job
    );
    assert!(
        imported
            .job
            .contains("detect = [\"announcements\", \"walk\"]\n")
    );
    assert!(
        imported.job.contains("base_url = \"file:\"\n"),
        "{}",
        imported.job
    );
    assert_eq!(
        left_out(&imported),
        ["4 shim_post_minterval", "5 realpathPost", "6 fileEvents"]
    );
}

#[test]
fn only_what_is_accepted_is_taken_when_nothing_else_is() {
    let rules = |text: &str| {
        let imported = imported("subscribe", text);
        let line = imported
            .job
            .lines()
            .find(|line| line.starts_with("filters"));
        line.map(str::to_owned).unwrap_or_default()
    };
    for (text, expected) in [
        ("accept .*", ""),
        (
            "acceptUnmatched True\nreject .*\\.o$",
            "filters = [\"- *.o\"]",
        ),
        (
            "acceptUnmatched off\naccept .*\\.grib2$",
            "filters = [\"+ *.grib2\", \"+ */\", \"- *\"]",
        ),
        (
            "accept .*/keep/.*\nreject .*",
            "filters = [\"+ **/keep/**\", \"+ */\", \"- *\"]",
        ),
        (
            "accept .*q1.*\nreject .*q2.*",
            "filters = [\"+ *q1*\", \"+ **/*q1*/**\", \"- *q2*\"]",
        ),
    ] {
        assert_eq!(rules(text), expected, "{text}");
    }
    let odd = imported(
        "subscribe",
        "mirror\naccept .*(a|b)[0-9]+.*\nreject .*\\.x$ a b",
    );
    assert_eq!(left_out(&odd), ["0 fileEvents", "2 accept", "3 reject"]);
    assert!(
        odd.left_out[1].why.contains("filters"),
        "{:?}",
        odd.left_out
    );
}

#[test]
fn what_a_job_can_say_once_is_taken_from_the_last_line() {
    let text = "mirror\nbroker amqp://a@h\nbroker amqp://b@h\ndirectory /x\naccept .*\ndirectory ${HOME}/y\ndirectory /z\ninclude other.inc\nfrobnicate 3\n\u{1b}[2J 4\n";
    let imported = imported("subscribe", text);
    assert!(
        imported.job.contains("broker = \"amqp://b@h\""),
        "{}",
        imported.job
    );
    assert!(
        imported.job.contains("replica = \"/z\""),
        "{}",
        imported.job
    );
    let told: Vec<String> = imported.left_out.iter().map(ToString::to_string).collect();
    assert_eq!(
        told[1],
        "2: broker: line 3 says otherwise, and a job has one: write a job for each"
    );
    assert!(
        told[3].starts_with("6: directory: it names the variable HOME, which"),
        "{told:?}"
    );
    assert!(told[4].starts_with("8: include: another file"), "{told:?}");
    assert_eq!(told[5], "9: frobnicate: this option is not known here");
    assert!(told[6].starts_with("10: \\x1b[2J: "), "{told:?}");
}

#[test]
fn messages_call_a_tree_what_sr3_calls_it() {
    let told_as = |component: &str, text: &str| {
        let text = format!("mirror\npost_broker amqp://u@h\n{text}");
        let job: toml::Table = imported(component, &text).job.parse().expect("TOML");
        let url = job["publish"].get("base_url")?.as_str()?;
        Some(url.to_owned())
    };
    for (text, expected) in [
        ("path /d/t\npost_baseUrl file:/d/t", Some("file:/d/t")),
        ("path /d/t\npost_baseUrl file:/d", Some("file:/d/t")),
        ("path /d/t\npost_baseUrl file:/", Some("file:/d/t")),
        (
            "path /d/t\npost_baseUrl sftp://u@h/d/t/",
            Some("sftp://u@h/d/t"),
        ),
        ("path /d/t\npost_baseUrl sftp://u@h", Some("sftp://u@h/d/t")),
        (
            "path /d/t\npost_baseUrl http://h/x\npost_baseDir /d",
            Some("http://h/x/t"),
        ),
        (
            "path /d/t\npost_baseUrl http://h/x\npost_baseDir /",
            Some("http://h/x/d/t"),
        ),
        ("path /d/t\npost_baseUrl file:/e", None),
        ("path /d/t\npost_baseUrl http://h\npost_baseDir /d/tt", None),
        ("path ~/t\npost_baseUrl http://h", None),
        ("path /d/t", None),
    ] {
        assert_eq!(told_as("watch", text).as_deref(), expected, "{text}");
    }
    let text = "baseDir /s\ndirectory /s/r\npost_baseUrl http://h/x";
    assert_eq!(told_as("sarra", text).as_deref(), Some("http://h/x/r"));
    let text = "baseDir /s\ndirectory /d/r\npost_baseUrl file:/d/r";
    assert_eq!(told_as("subscribe", text).as_deref(), Some("file:/d/r"));
}

#[test]
fn what_depends_on_a_user_is_asked_for_where_the_broker_is_not_known() {
    let text = "mirror\nbroker amqps://${WHO}@h\nexchangeSuffix x\npost_broker amqp://u:${\npost_exchange y\n";
    let imported = imported("sarra", text);
    for key in ["broker", "exchange", "queue", "base_url"] {
        let asked = format!("\n# {key} = \"...\"  # ");
        assert!(imported.job.contains(&asked), "{key}: {}", imported.job);
    }
    assert!(!imported.job.contains("[publish]"), "{}", imported.job);
    assert!(!imported.job.contains("anonymous"), "{}", imported.job);
    let told: Vec<String> = imported.left_out.iter().map(ToString::to_string).collect();
    assert!(told[1].contains("the variable WHO"), "{told:?}");
    assert!(told[2].contains("it names a variable that"), "{told:?}");
    assert_eq!(
        told[3],
        "5: post_exchange: nothing is published without post_broker"
    );
}

#[test]
fn what_is_about_no_tree_becomes_no_job() {
    for component in ["poll", "winnow", "sender", "", "SUBSCRIBE"] {
        let why = import(component, "x", "").expect_err(component);
        assert_eq!(why, NoJob::Component(component.into()));
    }
    let long = "#".repeat((1 << 20) + 1);
    assert_eq!(import("watch", "x", &long), Err(NoJob::TooLong));
}

#[test]
fn every_job_is_toml_and_a_name_is_one_that_a_job_can_have() {
    for (name, expected) in [
        ("hubs", "hubs"),
        ("../a b\"\n", "a-b--"),
        ("", "imported"),
        ("ü", "imported"),
    ] {
        for component in ["cpost", "post", "watch", "subscribe", "sarra"] {
            let job = import(component, name, "").expect(component).job;
            let table: toml::Table = job.parse().unwrap_or_else(|why| panic!("{job}: {why}"));
            let found = table["name"].as_str();
            assert!(
                found.is_some_and(|found| found.starts_with(expected)),
                "{found:?}"
            );
        }
    }
}

/// Each rule is one that a job can have.
fn check_rules(job: &toml::Table) {
    let rules = job.get("filters").and_then(|rules| rules.as_array());
    for rule in rules.into_iter().flatten() {
        let rule = rule.as_str().expect("a text");
        let read = Rule::from_line(rule);
        assert!(matches!(read, Ok(Some(_))), "{rule}: {read:?}");
    }
}

/// A rule takes of a tree what the expression takes of it.
#[test]
fn rules_take_what_the_expressions_take() {
    let takes = |expression: &str, path: &str| {
        let text = format!("mirror\nbaseDir /t\nacceptUnmatched off\naccept {expression}\n");
        let job: toml::Table = imported("subscribe", &text).job.parse().expect("TOML");
        check_rules(&job);
        let rules = job["filters"].as_array().expect("rules").iter();
        let rules = rules.map(|rule| Rule::from_line(rule.as_str().expect("a text")));
        let filter = Filter {
            rules: rules
                .map(|rule| rule.expect("a rule").expect("one"))
                .collect(),
            ..Filter::default()
        };
        filter.takes(path.as_bytes(), false)
    };
    for (expression, taken, not_taken) in [
        (
            r".*\.o$",
            &["a.o", "b/c.o"][..],
            &["a.oo", "b.o/c", "ao"][..],
        ),
        (
            r".*\.tar",
            &["a.tar", "a.tar.gz", "x.tar/y/z"],
            &["atar", "x/y"],
        ),
        (
            ".*/a/b/.*",
            &["a/b/c", "x/a/b/c/d"],
            &["a/b", "xa/b/c", "a/bc/d"],
        ),
        (".*/core$", &["core", "x/core"], &["score", "core/x"]),
        (".*/core", &["core", "x/core.1", "cores/x"], &["score"]),
        (
            r".*/a/.*\.o$",
            &["a/x.o", "b/a/c/d/x.o"],
            &["x.o", "b/x.o", "a/x.c"],
        ),
        (".*q.r.*", &["aqxrb", "d/qxr", "qxr/y"], &["qr", "q/r"]),
        (r".*\[1\]\{2\},#$", &["x[1]{2},#"], &["x1", "x[1]"]),
    ] {
        for path in taken {
            assert!(takes(expression, path), "{expression} {path}");
        }
        for path in not_taken {
            assert!(!takes(expression, path), "{expression} {path}");
        }
    }
}

/// Options with values of which a password is part.
const WITH_PASSWORD: [&str; 12] = [
    "broker amqp://u:SESAME@h/v",
    "post_broker amqps://u:SESAME@h",
    "broker mqtt://u:SESAME@h",
    "broker amqp://u:SESAME",
    "broker SESAME",
    "post_baseUrl sftp://u:SESAME@h/x",
    "declare env PW=SESAME\npost_broker amqp://u:${PW}@h",
    "declare env B=amqp://u:SESAME@h\nbroker ${B}\nqueueName q_x",
    "sendTo sftp://u:SESAME@h",
    "amqp://u:SESAME@h",
    "path /a\nheader url=ftp://u:SESAME@h",
    "admin amqp://u:SESAME@h",
];

#[test]
fn no_password_is_in_a_job_or_in_what_is_told() {
    for text in WITH_PASSWORD {
        for component in ["cpost", "post", "watch", "subscribe", "sarra"] {
            let shown = format!("{:?}", import(component, "x", text).expect(component));
            assert!(!shown.contains("SESAME"), "{text}: {shown}");
        }
    }
}

#[test]
fn hostile_configurations_never_panic_and_make_toml_without_passwords() {
    let words = [
        "broker",
        "accept",
        "reject",
        "path",
        "${",
        "}",
        "${X}",
        "declare env X=${X}${X}",
        "\\",
        ".*",
        "/",
        "*",
        "[",
        "$",
        "amqp://",
        "@",
        ":",
        "\n",
        "\n",
        " ",
        "\t",
        "\u{0}",
        "\"",
        "ü",
        "界",
        "directory",
        "subtopic",
        "sleep",
        "9".repeat(40).leak(),
        "h",
        "1.5",
        "byteRateMax",
        "k",
        "queueName",
        "baseDir",
        "post_baseUrl",
        "post_baseDir",
        "post_broker",
        "fileEvents",
        "#",
        "acceptUnmatched",
        "off",
        "\u{202e}",
        "post_exchangeSuffix",
        "x",
    ];
    for seed in 0..20_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut text = String::new();
        for _ in 0..rng.usize(..30) {
            text.push_str(words[rng.usize(..words.len())]);
            if rng.bool() {
                text.push(' ');
            }
        }
        text.push('\n');
        text.push_str(WITH_PASSWORD[rng.usize(..WITH_PASSWORD.len())]);
        let component = ["cpost", "post", "watch", "subscribe", "sarra"][rng.usize(..5)];
        let imported = import(component, "x \"y", &text).expect(component);
        let read: Result<toml::Table, _> = imported.job.parse();
        let table = read.unwrap_or_else(|why| panic!("seed {seed}: {}\n{why}", imported.job));
        check_rules(&table);
        assert!(
            !format!("{imported:?}").contains("SESAME"),
            "seed {seed}: {text}"
        );
    }
}

#[test]
fn values_are_the_words_that_sr3_reads() {
    let text = "\
baseDir  /src/two\twords # and more
directory \"/dst\"
mirror True # yes
permCopy maybe
subtopic a.# b.#
topicPrefix v03/post
exchange None
exchangeSuffix x
broker amqp://u@h//site/a/
fileSizeMax 4k or so
declare env Q=named not this
queueName q_${Q}
post_baseDir
";
    let imported = imported("subscribe", text);
    for line in [
        "source = \"/src/two words # and more\"",
        "max_size = 4000",
        "mode = false",
        "broker = \"amqp://u@h/site%2fa\"",
        "exchange = \"xs_u_x\"",
        "topic_prefix = \"v03.post\"",
        "subtopics = [\"a.#\"]",
        "queue = \"q_named\"",
    ] {
        assert!(
            imported.job.contains(&format!("{line}\n")),
            "{line}: {}",
            imported.job
        );
    }
    assert_eq!(
        left_out(&imported),
        ["0 fileEvents", "2 directory", "13 post_baseDir"]
    );
}

#[test]
fn events_are_added_and_taken_away() {
    let told = |text: &str| {
        let imported = imported("subscribe", &format!("mirror\n{text}"));
        let deletes = imported.job.contains("# delete = true");
        let whys = imported.left_out.iter().map(|one| one.why.clone());
        let lacks =
            whys.filter_map(|why| why.split_once("out: ").map(|(_, kinds)| kinds.to_owned()));
        (deletes, lacks.collect::<String>())
    };
    for (text, deletes, lacks) in [
        ("", true, ""),
        ("events -delete", false, ""),
        ("events -delete\nevents +delete", true, ""),
        ("events modify|delete", true, "create, link, mkdir"),
        ("events none", false, "create, link, mkdir, modify"),
        ("events none\nevents +all", true, ""),
        ("events", true, ""),
    ] {
        assert_eq!(told(text), (deletes, lacks.into()), "{text}");
    }
}

#[test]
fn what_a_job_would_refuse_is_told() {
    let long = "n".repeat(256);
    for (component, option, value) in [
        ("subscribe", "exchange", "amq.topic"),
        ("subscribe", "subtopic", &*long),
        ("subscribe", "topicPrefix", "none"),
        ("subscribe", "queueName", &*long),
        ("subscribe", "exchangeSuffix", &*long),
        ("sarra", "post_exchange", &*long),
        ("sarra", "post_baseUrl", "file:/a/../b"),
        ("sarra", "post_baseUrl", "http://h"),
        ("watch", "post_baseUrl", "file:/elsewhere"),
        ("subscribe", "broker", "amqp://u@h:99999"),
        ("subscribe", "baseDir", "/s/.."),
        ("watch", "path", "s"),
        ("watch", "sleep", "1h30m"),
        ("watch", "fileSizeMax", "9223372036854775808"),
    ] {
        let text = format!(
            "{option} {value}\nmirror\npost_broker amqp://u@h\npath /p\nbroker amqp://u@h\n"
        );
        let text = match option {
            "broker" | "path" => format!("mirror\n{option} {value}\n"),
            _ => text,
        };
        let imported = imported(component, &text);
        let told = imported.left_out.iter();
        let is_told = told.filter(|one| one.option == option).count();
        assert_eq!(is_told, 1, "{option} {value}: {imported:?}");
    }
}
