//! Which trees a configuration is about, and what messages call them.

use super::Component;
use super::given::Given;
use super::units;
use crate::base::BaseUrl;

/// The trees of a job.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Trees {
    /// What is read.
    pub(super) source: Option<String>,
    /// What becomes equal to it.
    pub(super) replica: Option<String>,
    /// What messages that are heard call the source.
    pub(super) heard_as: Option<String>,
    /// What messages that are published call the tree.
    pub(super) told_as: Option<String>,
    /// How changes are found out.
    pub(super) detect: Vec<&'static str>,
    /// How often all is compared, if the configuration says so.
    pub(super) walk_every: Option<String>,
}

/// Finds the trees.
pub(super) fn find(given: &mut Given) -> Trees {
    if given.component.is_subscriber() {
        subscriber(given)
    } else {
        poster(given)
    }
}

fn subscriber(given: &mut Given) -> Trees {
    let source = given.value("basedir").map(|dir| trimmed(&dir));
    let replica = given.value("directory").map(|dir| trimmed(&dir));
    let post_base = given.value("postbasedir");
    let post_url = given.value("postbaseurl");
    let has_folder = post_url
        .as_deref()
        .is_some_and(|url| folder_of(url).is_some());
    let post_base = post_base.or_else(|| source.clone().filter(|_| !has_folder));
    Trees {
        heard_as: source.as_ref().map(|dir| format!("file:{dir}")),
        told_as: told_as(post_url, replica.as_deref(), post_base.as_deref()),
        source,
        replica,
        detect: vec!["announcements", "walk"],
        ..Trees::default()
    }
}

fn poster(given: &mut Given) -> Trees {
    let path = given.value("path").map(|path| trimmed(&path));
    let post_base = given.value("postbasedir").map(|dir| trimmed(&dir));
    let source = path.or_else(|| post_base.clone());
    let polled = given.value("forcepolling");
    let is_polled = polled.and_then(|value| units::is_on(&value)) == Some(true);
    let every = pause(given, is_polled);
    let is_watched = given.component == Component::Watch || every.is_some();
    let detect = match given.component {
        Component::CPost if !is_watched => vec!["announcements", "walk"],
        Component::CPost | Component::Watch if !is_polled => vec!["fanotify", "walk"],
        _ => vec!["walk"],
    };
    let post_url = given.value("postbaseurl");
    Trees {
        told_as: told_as(post_url, source.as_deref(), post_base.as_deref()),
        source,
        walk_every: every.filter(|_| is_polled),
        detect,
        ..Trees::default()
    }
}

/// How long a poster rests between two looks, if it looks more than once.
fn pause(given: &mut Given, is_polled: bool) -> Option<String> {
    let said = given.one("sleep")?;
    let pause = units::time(&said.value);
    if given.component == Component::Post {
        let why = "a mirror follows its source for good; \"driftless sync\" runs once";
        given.leave(&said, why);
        return None;
    }
    if !is_polled && pause.is_some() {
        given.leave(&said, "changes are followed as soon as files are closed");
    }
    pause
}

/// What messages call a tree: the URL of the folder that they leave away, and what of the tree's
/// path is left. Without such a folder, messages have whole paths.
fn told_as(url: Option<String>, tree: Option<&str>, base: Option<&str>) -> Option<String> {
    let (url, tree) = (url?, tree?);
    let base = base.map(trimmed).or_else(|| folder_of(&url));
    let below = match base {
        Some(base) if base != "/" => tree.strip_prefix(&base)?.to_owned(),
        _ => tree.to_owned(),
    };
    let is_whole = below.is_empty() || below.starts_with('/');
    is_whole.then(|| format!("{}{below}", url.trim_end_matches('/')))
}

/// The folder that a URL names, if its scheme has paths of the host in it: what `sr3` leaves away
/// unless it is told otherwise.
fn folder_of(url: &str) -> Option<String> {
    let has_paths = ["file:", "sftp:"]
        .iter()
        .any(|scheme| url.starts_with(scheme));
    let base = BaseUrl::parse(url).ok().filter(|_| has_paths)?;
    let path = std::str::from_utf8(base.path().as_bytes()).ok()?;
    Some(format!("/{path}"))
}

fn trimmed(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" if path.starts_with('/') => "/".into(),
        trimmed => trimmed.into(),
    }
}
