//! Which trees a configuration is about, and what messages call them.

use super::Component;
use super::given::{Given, Said};
use super::{fit, units};
use crate::base::BaseUrl;
use std::path::Path;

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
    /// Which option says so, or was to.
    pub(super) told_by: Option<Said>,
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
    let source = given.path("basedir");
    let replica = replica(given, source.as_deref());
    let post_base = given.path("postbasedir");
    let told_by = given.one("postbaseurl");
    let has_folder = told_by
        .as_ref()
        .is_some_and(|said| folder_of(&said.value).is_some());
    let post_base = post_base.or_else(|| source.clone().filter(|_| !has_folder));
    let tree = replica.as_ref().map(|(path, _)| path.as_str());
    Trees {
        heard_as: source.as_ref().map(|dir| format!("file:{dir}")),
        told_as: told_as(told_by.as_ref(), tree, post_base.as_deref()),
        told_by,
        source,
        replica: replica
            .filter(|(_, is_apart)| *is_apart)
            .map(|(path, _)| path),
        detect: vec!["announcements", "walk"],
        ..Trees::default()
    }
}

/// The replica, and whether it lies apart from the source.
fn replica(given: &mut Given, source: Option<&str>) -> Option<(String, bool)> {
    let said = given.one("directory")?;
    let replica = given.path_of(&said)?;
    let is_apart = source.is_none_or(|source| !lie_within(source, &replica));
    if !is_apart {
        let why = "it and the source (baseDir) lie within each other: a mirror would copy the tree \
                   into itself";
        given.leave(&said, why);
    }
    Some((replica, is_apart))
}

/// Whether one of two paths lies within the other.
fn lie_within(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(Path::new);
    one.starts_with(other) || other.starts_with(one)
}

fn poster(given: &mut Given) -> Trees {
    let path = given.path("path");
    let post_base = given.path("postbasedir");
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
    let told_by = given.one("postbaseurl");
    Trees {
        told_as: told_as(told_by.as_ref(), source.as_deref(), post_base.as_deref()),
        told_by,
        source,
        walk_every: every.filter(|_| is_polled),
        detect,
        ..Trees::default()
    }
}

/// How long a poster rests between two looks, if it looks more than once.
fn pause(given: &mut Given, is_polled: bool) -> Option<String> {
    let said = given.one("sleep")?;
    let millis = units::milliseconds(&said.value);
    let pause = millis.filter(|millis| fit::is_time(*millis));
    if given.component == Component::Post {
        let why = "a mirror follows its source for good; \"driftless sync\" runs once";
        given.leave(&said, why);
        return None;
    }
    match pause.map(units::shown) {
        None => given.leave(&said, "no time that a job can have: write [walk] every"),
        Some(Some(_)) if !is_polled => {
            given.leave(&said, "changes are followed as soon as files are closed");
        }
        Some(_) => {}
    }
    pause.and_then(units::shown)
}

/// What messages call a tree: the URL of the folder that they leave away, and what of the tree's
/// path is left. Without such a folder, messages have whole paths.
fn told_as(said: Option<&Said>, tree: Option<&str>, base: Option<&str>) -> Option<String> {
    let (url, tree) = (&said?.value, tree?);
    fit::base_url(url).ok()?;
    let base = base.map(str::to_owned).or_else(|| folder_of(url));
    let below = match base {
        Some(base) if base != "/" => tree.strip_prefix(&base)?,
        _ if tree == "/" => "",
        _ => tree,
    };
    let is_whole = below.is_empty() || below.starts_with('/');
    let url = format!("{}{below}", url.trim_end_matches('/'));
    is_whole
        .then_some(url)
        .filter(|url| fit::base_url(url).is_ok())
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
