//! From arguments to what the engine is asked to do.

use crate::args::AuditArgs;
use crate::args::{
    CacheArg, ChooseArgs, DurabilityArg, GuardArgs, KeepArgs, LevelArg, ReadBackArg, RunArgs,
    SyncArgs, VerifyArgs,
};
use crate::command::lists;
use crate::command::program::Program;
use crate::output::files::rules_for_state;
use crate::own;
use clap::ArgMatches;
use driftless_engine::{Carrier, Mode, Notes, Options};
use driftless_model::{Cache, Durability, Filter, Keep, Level, Policy, RelPath, Rule};
use driftless_remote::Target;
use driftless_tree::plain_path;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What `sync` asks of the engine.
pub fn sync(args: &SyncArgs, matches: &ArgMatches) -> Result<Options, String> {
    make_place_for_notes();
    let common = common(
        &args.choose,
        &args.running,
        ([&args.source, &args.replica], matches),
    )?;
    let policy = Policy {
        keep: keep(&args.keep),
        level: if args.checksum {
            Level::Content
        } else {
            Level::Meta
        },
        delete: args.delete,
        delete_excluded: args.delete_excluded,
        delete_unlike: args.delete_unlike,
        delete_limit: args.max_delete,
        required: required(&args.guard)?,
        durability: match args.durability {
            DurabilityArg::End => Durability::End,
            DurabilityArg::File => Durability::File,
            DurabilityArg::None => Durability::None,
        },
        read_back: args.verify.map(|level| match level {
            ReadBackArg::Content => Level::Content,
            ReadBackArg::Media => Level::Media,
        }),
        ..common.policy
    };
    checked(Options {
        link_dest: args.link_dest.clone(),
        policy,
        refuses_other_entries: !args.copy_into,
        refuses_set_aside: args.refuse_set_aside,
        mode: if args.dry_run {
            Mode::Preview
        } else {
            Mode::Apply
        },
        carrier: args
            .copy_with
            .clone()
            .map(|template| Arc::new(Program::new(template)) as Arc<dyn Carrier>),
        ..common
    })
}

/// What `verify` asks of the engine.
pub fn verify(args: &VerifyArgs, matches: &ArgMatches) -> Result<Options, String> {
    make_place_for_notes();
    let level = level(args.level);
    let common = common(
        &args.choose,
        &args.running,
        ([&args.source, &args.replica], matches),
    )?;
    let policy = Policy {
        keep: keep(&args.keep),
        level,
        delete: !args.repair || args.delete,
        delete_unlike: args.delete_unlike,
        required: required(&args.guard)?,
        ..common.policy
    };
    checked(Options {
        policy,
        mode: if args.repair {
            Mode::Apply
        } else {
            Mode::Compare
        },
        ledger: if level == Level::Meta {
            None
        } else {
            ledger(args)
        }
        .map(|path| Notes {
            path,
            age_max: args.resume_within,
        }),
        ..common
    })
}

/// Refuses what contradicts itself, whichever command it was asked of.
fn checked(options: Options) -> Result<Options, String> {
    let checked = options.policy.check();
    let checked = match options.mode {
        Mode::Compare => checked,
        Mode::Preview | Mode::Apply => checked.and_then(|()| options.policy.check_deletes()),
    };
    checked.map_err(|error| error.to_string())?;
    Ok(options)
}

/// A run that notes something makes the folder for it. It is there before the rules leave it out
/// and before anything is compared: new in it, the directory above has another time.
fn make_place_for_notes() {
    let _who_needs_it_says_why_it_is_missing = own::state_folder();
}

fn level(level: LevelArg) -> Level {
    match level {
        LevelArg::Meta => Level::Meta,
        LevelArg::Content => Level::Content,
        LevelArg::Media => Level::Media,
    }
}

/// What `audit` asks of the run that compares its sample.
pub fn audit(args: &AuditArgs, matches: &ArgMatches) -> Result<Options, String> {
    let common = common(
        &args.choose(),
        &args.running,
        ([&args.source, &args.replica], matches),
    )?;
    checked(Options {
        policy: Policy {
            keep: keep(&args.keep),
            level: level(args.level),
            ..common.policy
        },
        ..common
    })
}

/// What all have in common: the trees, which entries are looked at, and how hard it is worked.
fn common(
    choose: &ChooseArgs,
    running: &RunArgs,
    (roots, matches): ([&Path; 2], &ArgMatches),
) -> Result<Options, String> {
    let from_stdin = choose
        .filter_from
        .iter()
        .chain(&choose.files_from)
        .filter(|path| *path == Path::new("-"));
    if from_stdin.count() > 1 {
        return Err("standard input (\"-\") can be read only once".into());
    }
    let policy = Policy {
        filter: filter(choose, rules_for_state(roots), matches)?,
        one_file_system: choose.one_file_system,
        cache: match running.cache {
            CacheArg::Keep => Cache::Keep,
            CacheArg::Drop => Cache::Drop,
            CacheArg::Direct => Cache::Direct,
        },
        ..Policy::default()
    };
    let [source, replica] = roots.map(|root| root.to_owned().into());
    Ok(Options {
        source,
        replica,
        policy,
        selection: choose
            .files_from
            .as_deref()
            .map(|path| lists::selection(path, choose.from0, roots[0]))
            .transpose()?,
        throttle: running.throttle.for_engine(),
        ..Options::default()
    })
}

/// The name of a file about a pair of trees.
pub fn name_of_pair(what: &str, [source, replica]: [&Path; 2]) -> String {
    let here =
        |path: &Path| Target::parse(path.as_os_str()).is_ok_and(|target| target.host.is_none());
    let whole = |path: &Path| {
        if here(path) {
            plain_path(path)
        } else {
            path.components().collect()
        }
        .into_os_string()
    };
    let pair = [whole(source).as_bytes(), b"\0", whole(replica).as_bytes()].concat();
    format!("{what}-{}", driftless_engine::ledger_name(&pair))
}

/// Where a verification of this pair of trees notes how far it is, if there is a place for it.
fn ledger(args: &VerifyArgs) -> Option<PathBuf> {
    let path = own::state_file(&name_of_pair("verify", [&args.source, &args.replica]));
    path.iter()
        .filter(|_| args.fresh)
        .for_each(|path| own::forget_database(path));
    let untold = |why: &String| {
        eprintln!(
            "driftless: {why}: nothing is noted, so this verification begins anew if it is interrupted"
        )
    };
    path.inspect_err(untold).ok()
}

fn required(args: &GuardArgs) -> Result<Vec<RelPath>, String> {
    let path = |path: &PathBuf| {
        RelPath::parse(path.as_os_str().as_bytes()).map_err(|error| format!("--require: {error}"))
    };
    args.require.iter().map(path).collect()
}

fn keep(args: &KeepArgs) -> Keep {
    Keep {
        mode: args.mode,
        owner: args.owner,
        group: args.group,
        demands_owners: args.demand_owner || args.demand_group,
        times: args.times,
        modify_window: args.modify_window,
        atimes: args.atimes,
        hard_links: args.hard_links,
        holes: args.holes,
        symlinks: args.symlinks,
        specials: args.specials,
        devices: args.devices,
        xattrs: args.xattrs,
        acls: args.acls,
        ..Keep::default()
    }
}

/// Rules in the order in which they were given, whichever argument gave them, behind those of our
/// `own`.
fn filter(args: &ChooseArgs, own: Vec<Rule>, matches: &ArgMatches) -> Result<Filter, String> {
    let mut sources: Vec<(usize, Result<Vec<Rule>, String>)> = Vec::new();
    for (name, patterns, include) in [
        ("include", &args.include, true),
        ("exclude", &args.exclude, false),
    ] {
        let rule = |pattern: &String| {
            Rule::new(include, pattern)
                .map(|rule| vec![rule])
                .map_err(|error| error.to_string())
        };
        sources.extend(places(matches, name).zip(patterns.iter().map(rule)));
    }
    sources.extend(
        places(matches, "filter_from")
            .zip(args.filter_from.iter().map(|path| lists::rules_of(path))),
    );
    sources.sort_by_key(|(place, _)| *place);
    let rules: Result<Vec<Vec<Rule>>, String> =
        sources.into_iter().map(|(_, rules)| rules).collect();
    Ok(Filter {
        rules: [own, rules?.concat()].concat(),
        size_min: args.min_size,
        size_max: args.max_size,
    })
}

fn places(matches: &ArgMatches, name: &str) -> impl Iterator<Item = usize> {
    matches.indices_of(name).into_iter().flatten()
}
