//! The options of `sr3` (sr3_options(7)): those that a job can say, by all their names, and why it
//! says nothing of the others.
//!
//! Names stand here without `_` and `-`, in lower case.

/// Options that a job can say, each with its other names.
const KNOWN: [(&str, &[&str]); 30] = [
    ("accept", &["get"]),
    ("acceptunmatched", &["acceptunmatch"]),
    ("basedir", &["bd", "documentroot"]),
    ("broker", &["b"]),
    ("byteratemax", &[]),
    ("directory", &[]),
    ("exchange", &["ex"]),
    ("exchangesuffix", &[]),
    ("fileevents", &["events", "e"]),
    ("filesizemax", &[]),
    ("followsymlinks", &["fs"]),
    ("forcepolling", &["fp"]),
    ("mirror", &[]),
    (
        "nodupettl",
        &[
            "cache",
            "caching",
            "nd",
            "noduplicates",
            "sd",
            "suppressduplicates",
        ],
    ),
    ("path", &["p"]),
    ("permcopy", &["preservemode", "pm"]),
    ("postbasedir", &["postdocumentroot"]),
    ("postbaseurl", &["posturl", "url"]),
    ("postbroker", &["pb"]),
    ("postexchange", &[]),
    ("postexchangesuffix", &[]),
    ("posttopicprefix", &[]),
    ("queuename", &["queue", "qn"]),
    ("queueshare", &[]),
    ("realpathpost", &["realpath"]),
    ("reject", &[]),
    ("sleep", &[]),
    ("subtopic", &[]),
    ("timecopy", &["preservetime", "pt"]),
    ("topicprefix", &[]),
];

const PLUGIN: &str = "a plugin: no job runs any; what follows a change can read the messages that \
                      are published";
const NO_SUM: &str = "nothing is summed when a change is told; \"level\" and \"driftless verify\" \
                      compare content";
const PARTS: &str = "files are announced whole, and copied in parts where that is faster";
const QUEUE: &str = "the queue is durable and keeps what waits";
const WAYS: &str = "files are copied as the system does it, or through [reach]";
const PLACES: &str = "the replica has the paths of the source";
const DUPLICATES: &str = "a change that is told twice is looked at once; nothing is left out";
const RETRIES: &str = "what fails is tried again by itself, for good";
const AGES: &str = "age makes no difference to what is kept equal";
const LOG: &str = "the log is an option of the command";
const RUNNING: &str = "the service manager runs the mirror, and \"mirror status\" says how it is";
const OTHERS: &str =
    "a field of messages that driftless does not read; what others send is forwarded";
const UNSAFE_WRITING: &str = "a file is written beside its name and renamed when it is whole";
const HOSTS: &str = "one mirror at a time holds a job";
const ENTRIES: &str = "a mirror keeps all attributes that [keep] names, from the source";

/// Why options are left out.
const LEFT_OUT: [(&str, &[&str]); 15] = [
    (
        PLUGIN,
        &[
            "callback",
            "plugin",
            "flowcb",
            "flowcallback",
            "callbackprepend",
            "flowmain",
            "set",
        ],
    ),
    (
        NO_SUM,
        &[
            "identity",
            "integrity",
            "sum",
            "identitymethod",
            "overridesum",
        ],
    ),
    (
        PARTS,
        &[
            "blocksize",
            "parts",
            "partsize",
            "inplace",
            "inline",
            "inlinebytemax",
            "inlineencoding",
            "inlineonly",
        ],
    ),
    (
        QUEUE,
        &[
            "durable",
            "expire",
            "expiry",
            "messagettl",
            "autodelete",
            "prefetch",
            "batch",
            "queuebind",
            "queuedeclare",
            "queuetype",
            "exchangedeclare",
            "declareexchange",
            "declarequeue",
            "persistent",
            "amqpconsumer",
            "amqpqueueargs",
            "cleansession",
            "qos",
            "reset",
            "tlsrigour",
        ],
    ),
    (
        WAYS,
        &[
            "accelcpcommand",
            "accelscpcommand",
            "accelwgetcommand",
            "accelftpgetcommand",
            "accelftpputcommand",
            "accelthreshold",
            "bufsize",
            "timeout",
            "downloadcpcommand",
            "sendto",
            "remoteurl",
            "pollurl",
            "destination",
            "httpuseragent",
            "httpssafequote",
        ],
    ),
    (
        PLACES,
        &[
            "strip",
            "flatten",
            "rename",
            "filename",
            "baseurlrelpath",
            "pathreplace",
            "pstrip",
        ],
    ),
    (
        DUPLICATES,
        &[
            "nodupebasis",
            "nodupedriver",
            "nodupefileagemax",
            "nodupefileagemin",
            "cachebasis",
        ],
    ),
    (
        RETRIES,
        &[
            "attempts",
            "retryttl",
            "retrycountmax",
            "retryrefilter",
            "retryemptybeforeexit",
            "retrymode",
            "overwrite",
            "acceptsizewrong",
            "recompute",
        ],
    ),
    (
        AGES,
        &[
            "fileagemax",
            "fileagemin",
            "filetimelimit",
            "messageagemax",
            "postmessageagemax",
        ],
    ),
    (
        LOG,
        &[
            "loglevel",
            "ll",
            "logevents",
            "logreject",
            "logformat",
            "logstdout",
            "logjson",
            "logmetrics",
            "logrotate",
            "logrotatecount",
            "logrotateinterval",
            "logdays",
            "debug",
            "messagedebugdump",
            "permlog",
            "chmodlog",
            "report",
            "reportback",
            "reportexchange",
        ],
    ),
    (
        RUNNING,
        &[
            "instances",
            "instance",
            "housekeeping",
            "heartbeat",
            "statehost",
            "sanitylogdead",
            "metricswriteinterval",
            "runstatethresholdlag",
            "runstatethresholdidle",
            "runstatethresholdhung",
            "runstatethresholdretry",
            "randomize",
            "reconnect",
            "save",
            "restore",
        ],
    ),
    (
        OTHERS,
        &[
            "header",
            "to",
            "source",
            "cluster",
            "fromcluster",
            "toclusters",
            "sourcefromexchange",
            "sourcefrommessage",
            "topiccopy",
            "posttopic",
            "topic",
            "postformat",
            "v2compatrenamedoublepost",
        ],
    ),
    (UNSAFE_WRITING, &["inflight", "lock"]),
    (HOSTS, &["vip"]),
    (
        ENTRIES,
        &[
            "permdefault",
            "permdirdefault",
            "chmod",
            "chmoddir",
            "defaultmode",
            "defaultdirmode",
            "xattrdisable",
            "timezone",
        ],
    ),
];

/// How the value of an option is read there (sr3_options(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// On or off; on without a value.
    Flag,
    /// The first word.
    Word,
    /// All words.
    Text,
    /// All words, or one that says that there is none.
    TextOrNone,
}

/// How the value of an option that a job can say is read.
pub(super) fn form(option: &str) -> Form {
    match option {
        "acceptunmatched" | "followsymlinks" | "forcepolling" | "mirror" | "permcopy"
        | "realpathpost" | "timecopy" => Form::Flag,
        "byteratemax" | "fileevents" | "filesizemax" | "sleep" | "subtopic" | "topicprefix"
        | "posttopicprefix" => Form::Word,
        "accept" | "reject" | "path" | "nodupettl" => Form::Text,
        _ => Form::TextOrNone,
    }
}

/// The one name of an option that a job can say.
pub(super) fn known(spelt: &str) -> Option<&'static str> {
    let named =
        |(name, others): &&(&'static str, &[&str])| *name == spelt || others.contains(&spelt);
    KNOWN.iter().find(named).map(|(name, _)| *name)
}

/// Why a job says nothing of an option.
pub(super) fn why(spelt: &str) -> &'static str {
    let listed = LEFT_OUT.iter().find(|(_, names)| names.contains(&spelt));
    match (listed, spelt) {
        (Some((why, _)), _) => why,
        (None, "include" | "config" | "c") => {
            "another file, which was not read: what it says is not in the job"
        }
        (None, "declare") => "the broker's administrator declares users and exchanges",
        (None, "admin" | "feeder" | "manager" | "users") => "nothing here administers a broker",
        (None, "postexchangesplit" | "exchangesplit") => {
            "all is published to one exchange: mirrors share its work through one queue"
        }
        (None, "messageratemax" | "messageratemin" | "postratelimit") => {
            "changes are taken as they come; [limits] bounds the work that they make"
        }
        (None, "messagecountmax") => "a mirror does not end by itself",
        (None, "download" | "nodownload" | "notifyonly" | "discard" | "downloadanddiscard") => {
            "a mirror always copies; without a replica there is no job"
        }
        (None, "realpathfilter" | "realpathadjust" | "realpathpre") => {
            "symbolic links are kept and not followed"
        }
        (None, "recursive") => "a mirror keeps all below its source",
        (None, "delete") => "a mirror never removes anything from its source",
        (None, "postonstart") => "all is compared at the start",
        (None, "dryrun" | "simulate" | "simulation") => {
            "\"mirror check\" and \"sync --dry-run\" change nothing"
        }
        (None, name) if is_shim(name) => "the preloaded library has its own settings",
        (None, name) if is_plugin(name) => PLUGIN,
        _ => "this option is not known here",
    }
}

fn is_shim(name: &str) -> bool {
    name.starts_with("shim")
}

/// Options of plugins have the names of what they hook into.
fn is_plugin(name: &str) -> bool {
    ["on", "do", "msg", "file", "post", "destfn"]
        .iter()
        .any(|start| name.starts_with(start))
}
