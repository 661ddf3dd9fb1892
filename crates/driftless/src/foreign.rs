//! Words of other programs, and what they come to here: one table, `tests/foreign.tsv`. The words of
//! rsync that `sync` takes, the refusal of an unknown option and `docs/other-tools.md` are made of
//! it, and tests try its rows.

use crate::output::progress::When;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;
use std::io::{self, Write};

/// The table: tool, word, what happens here, the equivalent, a note.
const TABLE: &str = include_str!("../tests/foreign.tsv");
/// The refusal of a third tree, which rsync takes.
const THIRD_TREE: &str = "only SRC and DST are taken; for several SRC, name the directory above them, and their paths with --files-from";
/// The command that takes words of rsync.
const COMMAND: &str = "sync";

/// A row of the table.
struct Row {
    tool: &'static str,
    /// Spellings of one option, or a piece of syntax.
    word: &'static str,
    /// `same`, `accepted`, `alias`, `refused` or `other`.
    here: &'static str,
    /// For an alias, our option; else a sentence.
    equivalent: &'static str,
    note: &'static str,
}

impl Row {
    /// Returns the spellings of an option, and whether a value follows, which one spelling says for
    /// all: `-e, --rsh=COMMAND`.
    fn options(&self) -> impl Iterator<Item = (&'static str, bool)> + use<> {
        let words = self.word;
        let is_value = |word: &str| word.contains(['=', ' ']);
        let has_value = words.split(", ").any(is_value);
        let name = |word: &'static str| word.split(['=', ' ']).next().unwrap_or(word);
        words.split(", ").map(move |word| (name(word), has_value))
    }
}

fn rows() -> impl Iterator<Item = Row> {
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [tool, word, here, equivalent, note] = cells[..] else {
            unreachable!("five cells in {line:?}, as a test has found")
        };
        Row {
            tool,
            word,
            here,
            equivalent,
            note,
        }
    };
    TABLE.lines().skip(1).map(row)
}

/// Returns the command line of this program with the words of rsync that `sync` takes.
pub fn parser(cli: Command) -> Command {
    let extended = |command: Command| {
        if command.get_name() != COMMAND {
            return command;
        }
        let aliases: Vec<Row> = rows().filter(|row| row.here == "alias").collect();
        let accepted = rows().filter(|row| row.here == "accepted");
        let accepted = accepted.flat_map(|row| row.options());
        command
            .mut_args(|option| with_aliases(option, &aliases))
            .args(accepted.map(ignored))
    };
    cli.mut_subcommands(extended)
}

/// Returns one of our options with its aliases in the table.
fn with_aliases(option: Arg, aliases: &[Row]) -> Arg {
    let Some(own) = option.get_long().map(|long| format!("--{long}")) else {
        return option;
    };
    let is_ours = |row: &&Row| row.equivalent.split(' ').next() == Some(&*own);
    aliases
        .iter()
        .filter(is_ours)
        .flat_map(Row::options)
        .fold(option, |option, (name, _)| match name.strip_prefix("--") {
            Some(long) => option.alias(long),
            None => option.short_alias(letter(name)),
        })
}

/// Returns a hidden option that changes nothing.
fn ignored((name, has_value): (&'static str, bool)) -> Arg {
    let option = Arg::new(name).hide(true);
    let option = match name.strip_prefix("--") {
        Some(long) => option.long(long),
        None => option.short(letter(name)),
    };
    option.action(if has_value {
        ArgAction::Set
    } else {
        ArgAction::SetTrue
    })
}

/// Returns the letter of a short option.
fn letter(name: &str) -> char {
    name.chars().nth(1).expect("a letter follows the hyphen")
}

/// Returns the arguments of this process in a form that our parser reads as rsync does: `-h` among
/// other letters asks for no help, and `--progress` needs no value.
pub fn readable(arguments: Vec<OsString>, parser: &Command) -> Vec<OsString> {
    if arguments.get(1).is_none_or(|command| command != COMMAND) {
        return arguments;
    }
    let end = arguments.iter().position(|argument| argument == "--");
    let (options, paths) = arguments.split_at(end.unwrap_or(arguments.len()));
    let mut all: Vec<OsString> = Vec::new();
    for (place, argument) in options.iter().enumerate() {
        let next = options.get(place + 1).and_then(|next| next.to_str());
        let has_value = next.is_some_and(|next| When::parse(next).is_ok());
        match argument.to_str() {
            Some("--progress") if !has_value => all.push("--progress=auto".into()),
            Some(letters) if is_cluster(letters) => {
                all.extend(without_help(letters, parser).map(OsString::from));
            }
            _ => all.push(argument.clone()),
        }
    }
    all.extend_from_slice(paths);
    all
}

/// Whether several letters stand behind one hyphen.
fn is_cluster(argument: &str) -> bool {
    argument.len() > 2 && argument.starts_with('-') && !argument.starts_with("--")
}

/// Returns letters of options without `h`. Returns `None` if no letter is left.
fn without_help(letters: &str, parser: &Command) -> Option<String> {
    let sync = parser.find_subcommand(COMMAND).expect("it exists");
    let takes_rest = |letter: char| {
        sync.get_arguments().any(|option| {
            let aliases = option.get_all_short_aliases().unwrap_or_default();
            let is_it = option.get_short() == Some(letter) || aliases.contains(&letter);
            is_it && option.get_action().takes_values() && !option.is_require_equals_set()
        })
    };
    let options = letters
        .split_once(takes_rest)
        .map_or(letters, |(options, _)| options);
    let rest = &letters[options.len()..];
    let kept = options.replace('h', "") + rest;
    (kept.len() > 1).then_some(kept)
}

/// Returns what to write for an option of another program, one line for each program, or for a
/// third tree. Returns `None` if the table does not have the option.
pub fn refusal(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let option = argument.split(['=', ' ']).next().unwrap_or(argument);
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    if !option.starts_with('-') {
        let is_of_trees = std::env::args_os().nth(1).is_some_and(|command| {
            ["sync", "verify", "audit"]
                .iter()
                .any(|name| command == *name)
        });
        return is_of_trees.then(|| format!("\"{argument}\": {THIRD_TREE}"));
    }
    let advice = |row: Row| {
        let is_it = row.options().any(|(name, _)| name == option);
        let text = match row.here {
            "refused" => row.equivalent.to_owned(),
            "accepted" => "leave it out".to_owned(),
            "alias" => format!("write {}", row.equivalent),
            _ => return None,
        };
        is_it.then(|| format!("{}'s {option}: {text}", row.tool))
    };
    let told: Vec<String> = rows().filter_map(advice).collect();
    (!told.is_empty()).then(|| told.join("\n"))
}

/// Writes the page about other programs.
pub fn page(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "# Words of other programs\n\n\
         Generated by `driftless generate other-tools`; do not edit.\n\n\
         An option that driftless does not have is refused with exit code 2 before anything is read, and the message names the\n\
         equivalent. The column \"here\" has one of five words:\n\n\
         - `same`: the option has the same name and meaning.\n\
         - `accepted`: `driftless sync` takes the option and changes nothing, since it is so already.\n\
         - `alias`: `driftless sync` takes the option as another name of the equivalent.\n\
         - `refused`: the option is refused.\n\
         - `other`: the option means something else, or is written elsewhere.\n\n\
         Patterns and lists are described in [filters.md](filters.md), addresses of trees in [remote.md](remote.md)."
    )?;
    let mut tool = "";
    for row in rows() {
        if row.tool != tool {
            tool = row.tool;
            writeln!(
                out,
                "\n## {tool}\n\n| word | here | equivalent | note |\n| --- | --- | --- | --- |"
            )?;
        }
        let cell = |text: &str| text.replace('|', "\\|");
        writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            cell(row.word),
            row.here,
            cell(row.equivalent),
            cell(row.note)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::{CommandFactory, FromArgMatches};

    /// Returns the arguments of `sync a b` with more words, as the program reads them. A list of
    /// paths lets `--from0` stand.
    fn read(words: &[&str]) -> Result<String, String> {
        let parser = parser(Cli::command());
        let line =
            ["driftless", COMMAND]
                .iter()
                .chain(words)
                .chain(&["--files-from=list", "a", "b"]);
        let line = readable(line.map(OsString::from).collect(), &parser);
        let matches = parser.try_get_matches_from(line);
        let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
        cli.map(|cli| format!("{cli:?}"))
            .map_err(|error| error.to_string())
    }

    /// Returns a value that is right for an option.
    fn value_of(name: &str) -> &'static str {
        if name == "-@" { "7" } else { "word" }
    }

    #[test]
    fn aliases_mean_their_options() {
        let mut tried = 0;
        for row in rows().filter(|row| row.here == "alias") {
            let own = row.equivalent.split(' ').next().unwrap();
            for (name, has_value) in row.options() {
                let value = has_value.then(|| value_of(name));
                let words = |name| {
                    [Some(name), value]
                        .into_iter()
                        .flatten()
                        .collect::<Vec<_>>()
                };
                let ours = read(&words(own));
                assert!(ours.is_ok() && ours != read(&[]), "{own}: {ours:?}");
                assert_eq!(read(&words(name)), ours, "{name}");
                tried += 1;
            }
        }
        assert!(tried > 20, "{tried} aliases");
    }

    #[test]
    fn accepted_words_change_nothing() {
        let mut tried = 0;
        for row in rows().filter(|row| row.here == "accepted") {
            for (name, has_value) in row.options() {
                let words = [Some(name), has_value.then_some("word")];
                let words: Vec<&str> = words.into_iter().flatten().collect();
                assert_eq!(read(&words), read(&[]), "{name}");
                tried += 1;
            }
        }
        assert!(tried > 40, "{tried} words");
    }

    #[test]
    fn letters_and_progress_are_read_as_by_rsync() {
        for (rsync, ours) in [
            (&["-avh"][..], &["-v"][..]),
            (&["-hh"], &[]),
            (&["-avzPhn"], &["-v", "--compress", "-n"]),
            (&["-ahessh -h"], &["--ssh", "ssh -h"]),
            (&["-hj8"], &["-j8"]),
            (&["--progress"], &[]),
            (&["--progress", "-n"], &["-n"]),
            (&["--progress", "never"], &["--progress=never"]),
            (&["--progress", "10"], &["--progress=10"]),
        ] {
            let ours = read(ours);
            assert!(ours.is_ok(), "{ours:?}");
            assert_eq!(read(rsync), ours, "{rsync:?}");
        }
        let help = read(&["-h"]);
        assert!(help.is_err_and(|text| text.contains("Usage: driftless sync")));
    }
}
