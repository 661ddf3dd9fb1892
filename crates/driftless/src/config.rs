//! From arguments to what the engine is asked to do.

use crate::cli::{CacheArg, DurabilityArg, KeepArgs, SyncArgs};
use clap::ArgMatches;
use driftless_engine::{Durability, Options};
use driftless_model::{Filter, Keep, RelPath, Rule, Scope, Selection, Work, cause, escape};
use driftless_tree::Cache;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// What the engine is asked to do. An error says which file or argument is wrong and why.
pub fn options(args: &SyncArgs, matches: &ArgMatches) -> Result<Options, String> {
    let from_stdin = args.filter_from.iter().chain(&args.files_from).filter(|path| *path == Path::new("-"));
    if from_stdin.count() > 1 {
        return Err("standard input (\"-\") can be read only once".into());
    }
    Ok(Options {
        source: args.source.clone(),
        replica: args.replica.clone(),
        link_dest: args.link_dest.clone(),
        keep: keep(&args.keep),
        checksum: args.checksum,
        delete: args.delete,
        delete_excluded: args.delete_excluded,
        delete_limit: args.max_delete,
        filter: filter(args, matches)?,
        selection: args.files_from.as_deref().map(|path| selection(path, args.from0)).transpose()?,
        one_file_system: args.one_file_system,
        dry_run: args.dry_run,
        cache: match args.cache {
            CacheArg::Keep => Cache::Keep,
            CacheArg::Drop => Cache::Drop,
            CacheArg::Direct => Cache::Direct,
        },
        jobs: args.jobs,
        bytes_per_second_max: args.bwlimit,
        requests_per_second_max: args.iops_limit,
        durability: match args.durability {
            DurabilityArg::End => Durability::End,
            DurabilityArg::File => Durability::File,
            DurabilityArg::None => Durability::None,
        },
    })
}

fn keep(args: &KeepArgs) -> Keep {
    Keep {
        mode: args.mode,
        owner: args.owner,
        group: args.group,
        times: args.times,
        atimes: args.atimes,
        hard_links: args.hard_links,
        holes: args.holes,
        symlinks: args.symlinks,
        specials: args.specials,
        devices: args.devices,
        xattrs: args.xattrs,
        acls: args.acls,
    }
}

/// Rules in the order in which they were given, whichever argument gave them.
fn filter(args: &SyncArgs, matches: &ArgMatches) -> Result<Filter, String> {
    let mut sources: Vec<(usize, Result<Vec<Rule>, String>)> = Vec::new();
    for (name, patterns, include) in [("include", &args.include, true), ("exclude", &args.exclude, false)] {
        let rule = |pattern: &String| Rule::new(include, pattern).map(|rule| vec![rule]).map_err(|error| error.to_string());
        sources.extend(places(matches, name).zip(patterns.iter().map(rule)));
    }
    sources.extend(places(matches, "filter_from").zip(args.filter_from.iter().map(|path| rules_of(path))));
    sources.sort_by_key(|(place, _)| *place);
    let rules: Result<Vec<Vec<Rule>>, String> = sources.into_iter().map(|(_, rules)| rules).collect();
    Ok(Filter { rules: rules?.concat(), size_min: args.min_size, size_max: args.max_size })
}

fn places(matches: &ArgMatches, name: &str) -> impl Iterator<Item = usize> {
    matches.indices_of(name).into_iter().flatten()
}

fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

fn rules_of(path: &Path) -> Result<Vec<Rule>, String> {
    let text = read(path)?;
    let text = String::from_utf8(text).map_err(|_| format!("\"{}\": filter rules must be UTF-8", shown(path)))?;
    let rule = |(number, line): (usize, &str)| match Rule::from_line(line) {
        Ok(rule) => rule.map(Ok),
        Err(error) => Some(Err(format!("\"{}\" line {}: {error}", shown(path), number + 1))),
    };
    text.lines().enumerate().filter_map(rule).collect()
}

fn selection(path: &Path, nul: bool) -> Result<Arc<Selection>, String> {
    let list = read(path)?;
    let separator = if nul { 0 } else { b'\n' };
    let mut works = Vec::new();
    for line in list.split(|byte| *byte == separator).filter(|line| !line.is_empty()) {
        let path = RelPath::parse(line).map_err(|error| format!("\"{}\": {error}", shown(path)))?;
        works.push(Work { path, scope: Scope::Subtree });
    }
    Ok(Arc::new(Selection::of(&works)))
}

/// Reads a file that the user named; "-" is standard input. It is no part of a replicated tree.
#[allow(clippy::disallowed_methods)]
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let fail = |error: io::Error| format!("\"{}\": cannot read: {}", shown(path), cause(&error));
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().read_to_end(&mut bytes).map_err(fail)?;
    } else {
        File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(fail)?;
    }
    Ok(bytes)
}
