//! Which trees a configuration is about, and what messages call them.

use super::Component;
use super::given::Given;
use super::units;

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
    /// How long changes are waited for.
    pub(super) settle: Option<String>,
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
    let paths = given.one("path").map(|said| trimmed(&said.value));
    let post_base = given.value("postbasedir").map(|dir| trimmed(&dir));
    let source = paths.or_else(|| post_base.clone());
    let sleep = given.one("sleep");
    let every = sleep.as_ref().and_then(|said| units::time(&said.value));
    let is_polled = given
        .value("forcepolling")
        .and_then(|value| units::is_on(&value));
    let is_polled = is_polled == Some(true);
    let post_url = given.value("postbaseurl");
    let is_watched = given.component == Component::Watch || every.is_some();
    let detect = match (given.component, is_watched && !is_polled) {
        (Component::Post, _) => vec!["walk"],
        (_, true) => vec!["fanotify", "walk"],
        (Component::CPost, _) if !is_polled => vec!["announcements", "walk"],
        _ => vec!["walk"],
    };
    if let (Some(said), Component::Post) = (&sleep, given.component) {
        given.leave(
            said,
            "a mirror follows its source for good; \"driftless sync\" runs once",
        );
    }
    let every = every.filter(|_| given.component != Component::Post);
    Trees {
        told_as: told_as(post_url, source.as_deref(), post_base.as_deref()),
        source,
        walk_every: every.clone().filter(|_| is_polled),
        settle: every.filter(|_| !is_polled),
        detect,
        ..Trees::default()
    }
}

/// What messages call a tree: the URL of the folder that they leave away, and what of the tree's
/// path is left. Without such a folder, messages have whole paths.
fn told_as(url: Option<String>, tree: Option<&str>, base: Option<&str>) -> Option<String> {
    let (url, tree) = (url?, tree?);
    let below = match base.map(trimmed) {
        Some(base) => tree.strip_prefix(&base)?.to_owned(),
        None => tree.to_owned(),
    };
    let is_whole = below.is_empty() || below.starts_with('/');
    is_whole.then(|| format!("{}{below}", url.trim_end_matches('/')))
}

fn trimmed(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" if path.starts_with('/') => "/".into(),
        trimmed => trimmed.into(),
    }
}
