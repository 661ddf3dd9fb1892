//! What is told of the table `[publish]`.

use driftless_watch::config::parse;
use std::path::Path;

const HEAD: &str = "trees = [\"/a\"]\n[publish]\n";
const NEEDED: &str = "broker = \"amqp://u@b/v\"\nexchange = \"xs_u\"\n";

const PASSWORD: &str = "5:12: publish.base_url: it has a password in it, which each message would tell: only a user may stand before the host";

fn told(text: &str) -> String {
    let errors = parse(text, Path::new("node.toml")).unwrap_err();
    errors.to_string()
}

#[test]
fn what_is_not_written_is_as_it_is_documented() {
    let config = parse(&format!("{HEAD}{NEEDED}"), Path::new("node.toml")).unwrap();
    let publish = config.publish.unwrap();
    assert_eq!(publish.broker, "amqp://u@b/v");
    assert_eq!(publish.exchange, "xs_u");
    assert_eq!(publish.topic_prefix, "v03");
    let others = (publish.credentials, publish.ca, publish.base_url);
    assert_eq!(others, (None, None, None));
    let more =
        "credentials = \"/c\"\nca = \"/ca\"\ntopic_prefix = \"v\"\nbase_url = \"sftp://h/x\"\n";
    let config = parse(&format!("{HEAD}{NEEDED}{more}"), Path::new("node.toml")).unwrap();
    let publish = config.publish.unwrap();
    assert_eq!(publish.credentials, Some("/c".into()));
    assert_eq!(publish.ca, Some("/ca".into()));
    assert_eq!(publish.topic_prefix, "v");
    assert_eq!(publish.base_url.as_deref(), Some("sftp://h/x"));
    for url in [
        "sftp://me@h:22/a:b@c",
        "sftp://h:22/a@b",
        "file:/a:b@c",
        "http://[::1]/a@b",
    ] {
        let text = format!("{HEAD}{NEEDED}base_url = \"{url}\"\n");
        let config = parse(&text, Path::new("node.toml")).unwrap();
        assert_eq!(config.publish.unwrap().base_url.as_deref(), Some(url));
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let url = "base_url = \"file:/x\"\n";
    for (text, line) in [
        (
            HEAD.to_owned(),
            "2:2: publish.broker: it is missing, such as \"amqps://USER@HOST/VHOST\"\nnode.toml:2:2: publish.exchange: it is missing, such as \"xs_USER\"",
        ),
        (
            format!("{HEAD}exchange = \"e\"\nbroker = \"amqp://u:secret@b/\""),
            "4:10: publish.broker: it has a password in it: name the file that holds it in credentials",
        ),
        (
            format!("{HEAD}exchange = \"e\"\nbroker = \"http://b/\""),
            "4:10: publish.broker: amqp://USER@HOST[:PORT]/VHOST or amqps://... is expected",
        ),
        (
            format!("{HEAD}broker = \"amqp://u@b/\"\nexchange = \"amq.topic\""),
            "4:12: publish.exchange: names that begin with amq. are the broker's own",
        ),
        (
            format!("{HEAD}{NEEDED}base_url = \"gopher://x\"\n"),
            "5:12: publish.base_url: a URL is expected, such as \"file:/projects\"; its scheme is one of file, sftp, scp, ftp, ftps, http, https",
        ),
        (
            format!("{HEAD}{NEEDED}base_url = \"sftp://u:secret@h/y\"\n"),
            PASSWORD,
        ),
        (
            format!("{HEAD}{NEEDED}base_url = \"ftp://u:p/secret@h/y\"\n"),
            PASSWORD,
        ),
        (
            format!("trees = [\"/a\", \"/b\"]\n[publish]\n{NEEDED}{url}"),
            "5:12: publish.base_url: there are several trees, and one URL cannot name them all: without it, messages call each by its path",
        ),
        (
            format!("{HEAD}{NEEDED}credentials = \"c\"\n"),
            "5:15: publish.credentials: an absolute path is expected",
        ),
        (
            format!("{HEAD}{NEEDED}queue = \"q\"\n"),
            "5:1: publish.queue: no such key; possible here: broker, credentials, ca, exchange, topic_prefix, base_url",
        ),
    ] {
        let told = told(&text);
        assert!(!told.contains("secret"), "{told}");
        assert_eq!(told, format!("node.toml:{line}"), "{text}");
    }
}
