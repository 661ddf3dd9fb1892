//! `driftless shim`: how the library that announces changes is loaded into programs.

use crate::args::{EnvArgs, ShimArgs, ShimCommand};
use crate::exit::Exit;
use crate::output::mirror::{self as say, line};
use driftless_model::{cause, escape, quote};
use driftless_spool::Folder;
use driftless_watch::config::{MAP, SPOOL};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The exit code, and what to say.
type Failure = (Exit, String);

/// What the library is called.
const LIBRARY: &str = "libdriftless_shim.so";
/// Places in which it is sought, from the folder of this program: as it is built, as its page has
/// it, and as other libraries are installed.
const PLACES: [&str; 3] = [
    "libdriftless_shim.so",
    "../lib/driftless/libdriftless_shim.so",
    "../lib/libdriftless_shim.so",
];
/// Has the loader load it (ld.so(8)).
const PRELOAD: &str = "LD_PRELOAD";
/// The same for all programs of the machine.
const PRELOAD_OF_ALL: &str = "/etc/ld.so.preload";
/// Where the library looks for an agent.
const MAP_VARIABLE: &str = "DRIFTLESS_SHIM_MAP";
/// "0" has it announce nothing.
const SWITCH: &str = "DRIFTLESS_SHIM";

/// Runs a command about the library; returns the exit code.
pub fn run(args: &ShimArgs) -> Exit {
    let done = match &args.command {
        ShimCommand::Env(args) => env(args),
        ShimCommand::Status { map } => Ok(status(map.as_deref())),
    };
    let code = done.unwrap_or_else(|(code, why)| {
        say::refusal(code, &why);
        code
    });
    say::final_code(code)
}

fn env(args: &EnvArgs) -> Result<Exit, Failure> {
    let library = library(args.library.as_deref())?;
    let map = args.map.as_deref().map(text).transpose()?;
    let lines = match args.module {
        true => module_lines(&library, map.as_deref()),
        false => shell_lines(&library, map.as_deref()),
    };
    lines.iter().for_each(|text| line(text));
    Ok(Exit::Equal)
}

fn shell_lines(library: &str, map: Option<&str>) -> Vec<String> {
    let quoted = |text: &str| shell_words::quote(text).into_owned();
    let mut lines = vec![
        format!("export {SWITCH}=1"),
        format!(
            "export {PRELOAD}={}\"${{{PRELOAD}:+:${PRELOAD}}}\"",
            quoted(library)
        ),
    ];
    lines.extend(map.map(|map| format!("export {MAP_VARIABLE}={}", quoted(map))));
    lines
}

/// In Tcl, which both kinds of modules understand. Within braces nothing has a meaning.
fn module_lines(library: &str, map: Option<&str>) -> Vec<String> {
    let mut lines = vec![
        "#%Module1.0".to_owned(),
        format!("setenv {SWITCH} 1"),
        format!("prepend-path {PRELOAD} {{{library}}}"),
    ];
    lines.extend(map.map(|map| format!("setenv {MAP_VARIABLE} {{{map}}}")));
    lines
}

/// The library that is named, or that which lies where this program lies.
#[allow(
    clippy::disallowed_methods,
    reason = "our own library, no part of a replicated tree"
)]
fn library(named: Option<&Path>) -> Result<String, Failure> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => found()?,
    };
    let failed = |why: &str| (Exit::CouldNotRun, format!("{}: {why}", quote(&path)));
    let real = std::fs::canonicalize(&path).map_err(|error| failed(&cause(&error)))?;
    let text = text(&real)?;
    // Both end a name there (ld.so(8)).
    if text.contains([':', ' ']) {
        return Err(failed(
            "a path with \":\" or a space cannot be in LD_PRELOAD",
        ));
    }
    Ok(text)
}

/// A path that can be written into a script.
fn text(path: &Path) -> Result<String, Failure> {
    let is_plain = |text: &&str| !text.contains(['{', '}', '\\', '\n']);
    let text = path.to_str().filter(is_plain).map(str::to_owned);
    text.ok_or_else(|| {
        let why = "a path with braces, backslashes or newlines cannot be written there";
        (Exit::Usage, format!("{}: {why}", quote(path)))
    })
}

#[allow(
    clippy::disallowed_methods,
    reason = "our own library, no part of a replicated tree"
)]
fn found() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize);
    let own = own.map_err(|error| (Exit::CouldNotRun, cause(&error)))?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let mut places = PLACES.map(|place| beside.join(place)).into_iter();
    let there = places.find(|place| std::fs::metadata(place).is_ok());
    there.ok_or_else(|| {
        let why = format!(
            "{LIBRARY}: cannot find it beside this program, in ../lib/driftless or in ../lib; name it with --library"
        );
        (Exit::CouldNotRun, why)
    })
}

/// Says whether programs announce what they change; exit code 0 if so.
fn status(map: Option<&Path>) -> Exit {
    let variable = std::env::var_os(MAP_VARIABLE).map(PathBuf::from);
    let map = map.map(Path::to_owned).or(variable);
    let folder = Folder {
        map: map.unwrap_or_else(|| MAP.into()),
        spool: SPOOL.into(),
    };
    let (is_loaded, is_inherited) = (is_in_shell(), is_preloaded());
    let is_off = std::env::var_os(SWITCH).is_some_and(|switch| switch == "0");
    let (announces, listens) = folder.is_announced();
    let yes = |is_so: bool| if is_so { "yes" } else { "no" };
    line(&format!("the library is in this shell: {}", yes(is_loaded)));
    line(&format!(
        "the library comes into what it starts: {}",
        yes(is_inherited)
    ));
    line(&format!("switched off by {SWITCH}=0: {}", yes(is_off)));
    let place = quote(&folder.map);
    line(&format!(
        "a watch daemon has asked at {place}: {}",
        yes(announces)
    ));
    line(&format!("a watch daemon listens: {}", yes(listens)));
    for tree in folder.trees() {
        line(&format!(
            "tree: \"{}\"",
            escape(tree.as_os_str().as_bytes())
        ));
    }
    let is_covered = is_inherited && !is_off && announces;
    let words = match (is_covered, listens) {
        (true, true) => "covered: what programs of this shell change is announced",
        (true, false) => {
            "covered: what programs of this shell change is written down for the watch daemon"
        }
        (false, _) => "not covered",
    };
    line(words);
    if is_covered {
        Exit::Equal
    } else {
        Exit::CouldNotRun
    }
}

/// Whether the process that has started this one has loaded the library (proc(5), `maps`).
#[allow(
    clippy::disallowed_methods,
    reason = "a word of the kernel, no part of a replicated tree"
)]
fn is_in_shell() -> bool {
    let Some(parent) = rustix::process::getppid() else {
        return false;
    };
    let maps = std::fs::read(format!("/proc/{}/maps", parent.as_raw_nonzero()));
    maps.is_ok_and(|maps| has_library(&maps))
}

/// Whether the loader loads the library into programs that this shell starts.
#[allow(
    clippy::disallowed_methods,
    reason = "a file of the machine, no part of a replicated tree"
)]
fn is_preloaded() -> bool {
    let own = std::env::var_os(PRELOAD).unwrap_or_default();
    let of_all = std::fs::read(PRELOAD_OF_ALL).unwrap_or_default();
    has_library(own.as_bytes()) || has_library(&of_all)
}

/// Whether one of the paths in a text is that of the library.
fn has_library(text: &[u8]) -> bool {
    let words = text.split(|byte| byte.is_ascii_whitespace() || *byte == b':');
    let mut names = words.map(|word| Path::new(OsStr::from_bytes(word)).file_name());
    names.any(|name| name == Some(OsStr::new(LIBRARY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_is_sought_where_its_page_has_it() {
        let page = include_str!("../../../../docs/shim.md");
        let installed = PLACES.map(|place| format!("/usr/bin/{place}").replace("bin/../", ""));
        let preloads = |path: &String| page.contains(&format!("{PRELOAD}={path}`"));
        assert!(installed.iter().any(preloads), "{installed:?}");
    }

    #[test]
    fn the_library_is_known_by_its_name_alone() {
        for (text, has) in [
            (&b"/usr/lib/libdriftless_shim.so"[..], true),
            (b"/x.so:/opt/libdriftless_shim.so /y.so", true),
            (
                b"7f00-7f01 r-xp 0 08:01 7   /l/libdriftless_shim.so\n7f01",
                true,
            ),
            (b"/usr/lib/libdriftless_shim.so.old", false),
            (b"/usr/lib/notlibdriftless_shim.so", false),
            (b"", false),
        ] {
            assert_eq!(has_library(text), has, "{text:?}");
        }
    }

    #[test]
    fn lines_keep_what_was_preloaded_before() {
        let lines = shell_lines("/opt/it's/lib.so", Some("/m p"));
        assert_eq!(
            lines[1],
            "export LD_PRELOAD='/opt/it'\\''s/lib.so'\"${LD_PRELOAD:+:$LD_PRELOAD}\""
        );
        assert_eq!(lines[2], "export DRIFTLESS_SHIM_MAP='/m p'");
        let lines = module_lines("/opt/lib.so", None);
        assert_eq!(lines[2], "prepend-path LD_PRELOAD {/opt/lib.so}");
    }
}
