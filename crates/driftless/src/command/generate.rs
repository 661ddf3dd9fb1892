//! Manual pages, completions and the command-line reference, all from the one definition of the
//! arguments.

use crate::args::{Cli, Document, exit_codes};
use crate::exit::Exit;
use crate::foreign;
use clap::{Arg, ArgAction, Command, CommandFactory};
use clap_complete::{Shell, generate};
use std::io::{self, Write};

/// The date of the manual pages, as man-pages(7) has it.
const DATE: &str = "2026-11-28";
/// Bytes of a line of a manual page, as mandoc(1) recommends.
const LINE_MAX: usize = 80;

/// A command that a user may see.
struct Listed {
    /// The names down to it, such as "driftless mirror trash list".
    name: String,
    /// The same with the arguments in between: "driftless mirror trash JOB list".
    line: String,
    command: Command,
}

/// Prints a document, a manual page for the command that `words` name; returns the exit code.
pub fn print(what: Document, words: &[String]) -> Exit {
    let commands = listed();
    let name = [&["driftless".to_owned()][..], words].concat().join(" ");
    let command = commands.iter().find(|command| command.name == name);
    let Some(command) = command.filter(|_| what == Document::Man || words.is_empty()) else {
        eprintln!(
            "driftless: {name}: no manual page; use the names of \"driftless generate commands\""
        );
        return Exit::Usage;
    };
    let mut text = Vec::new();
    let written = match what {
        Document::Man => manual(command, &mut text),
        Document::Commands => names(&commands, &mut text),
        Document::Pages => pages(&commands, &mut text),
        Document::ExitCodes => writeln!(text, "{}", exit_codes()),
        Document::Bash => complete(Shell::Bash, &mut text),
        Document::Zsh => complete(Shell::Zsh, &mut text),
        Document::Fish => complete(Shell::Fish, &mut text),
        Document::Reference => reference(&commands, &mut text),
        Document::OtherTools => foreign::page(&mut text),
    };
    match written.and_then(|()| io::stdout().lock().write_all(&text)) {
        Ok(()) => Exit::Equal,
        // The reader has had enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Equal,
        Err(error) => {
            eprintln!("driftless: cannot print: {error}");
            Exit::CouldNotRun
        }
    }
}

/// Returns the program and all its commands that are not hidden, each before those below it.
fn listed() -> Vec<Listed> {
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    let mut found = Vec::new();
    list(&cli, ("driftless", "driftless"), &mut found);
    found
}

fn list(command: &Command, (name, line): (&str, &str), found: &mut Vec<Listed>) {
    let arguments: String = command
        .get_positionals()
        .map(|arg| format!(" {}", signature(arg)))
        .collect();
    found.push(Listed {
        name: name.to_owned(),
        line: line.to_owned(),
        command: command.clone(),
    });
    for below in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        let own = below.get_name();
        let (name, line) = (format!("{name} {own}"), format!("{line}{arguments} {own}"));
        list(below, (&name, &line), found);
    }
}

fn names(commands: &[Listed], out: &mut impl Write) -> io::Result<()> {
    let mut names = commands.iter().map(|command| &command.name);
    names.try_for_each(|name| match name.strip_prefix("driftless ") {
        Some(words) => writeln!(out, "{words}"),
        None => Ok(()),
    })
}

/// Writes all manual pages, each after a comment that `make install` divides them by.
fn pages(commands: &[Listed], out: &mut impl Write) -> io::Result<()> {
    commands.iter().try_for_each(|command| {
        writeln!(out, ".\\\" File: {}.1", page_name(command))?;
        manual(command, out)
    })
}

fn page_name(listed: &Listed) -> String {
    listed.name.replace(' ', "-")
}

fn complete(shell: Shell, out: &mut impl Write) -> io::Result<()> {
    generate(shell, &mut Cli::command(), "driftless", out);
    Ok(())
}

/// Writes a manual page.
fn manual(listed: &Listed, out: &mut impl Write) -> io::Result<()> {
    let mut page = Vec::new();
    render(listed, &mut page)?;
    out.write_all(tidy(&String::from_utf8_lossy(&page)).as_bytes())
}

/// Returns a manual page without the faults that `mandoc -T lint` lists: long lines, empty lines,
/// blanks at the end of a line, and a break beside a space.
fn tidy(page: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in page.lines().map(str::trim_end) {
        let last = lines.last().map_or("", String::as_str);
        match line {
            "" | ".sp" => {
                if last == ".br" {
                    lines.pop();
                }
                lines.push(".sp".to_owned());
            }
            ".br" if [".br", ".sp"].contains(&last) => {}
            // The tag of a paragraph is one line.
            _ if last == ".TP" || line.starts_with(['.', '\'']) => lines.push(line.to_owned()),
            _ => wrap(line, &mut lines),
        }
    }
    lines.join("\n") + "\n"
}

/// Adds text in short lines. None of them begins with a control character.
fn wrap(text: &str, lines: &mut Vec<String>) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= LINE_MAX {
            line = format!("{line} {word}");
        } else {
            let escape = if word.starts_with(['.', '\'']) {
                "\\&"
            } else {
                ""
            };
            lines.push(std::mem::replace(&mut line, format!("{escape}{word}")));
        }
    }
    lines.push(line);
}

/// Writes a manual page with the exit codes in the section that man-pages(7) names for them.
fn render(listed: &Listed, out: &mut impl Write) -> io::Result<()> {
    let page = page_name(listed);
    let has_codes = listed.command.get_after_long_help().is_some();
    let command = listed.command.clone();
    let command = command
        .name(page.clone())
        .display_name(page)
        .bin_name(listed.line.clone())
        .override_usage(usage(listed))
        .after_long_help(None::<&'static str>);
    let source = concat!("driftless ", env!("CARGO_PKG_VERSION"));
    let manual = clap_mangen::Man::new(command);
    let manual = manual.title(page_name(listed).to_uppercase());
    let manual = manual.date(DATE).source(source).manual("Driftless");
    manual.render(out)?;
    writeln!(out, ".SH \"EXIT STATUS\"")?;
    if has_codes {
        let name = listed.name.strip_prefix("driftless ").unwrap_or_default();
        let mut codes = Exit::table_of(name).into_iter();
        return codes.try_for_each(|(code, meaning)| writeln!(out, ".TP\n{code}\n{meaning}"));
    }
    writeln!(
        out,
        "0 on success.\n\\fBdriftless\\fR(1) lists all exit codes.\n.SH \"SEE ALSO\"\n\\fBdriftless\\fR(1)"
    )
}

fn reference(commands: &[Listed], out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "# Command-line reference\n\nGenerated by `driftless generate reference`; do not edit."
    )?;
    let (_program, commands) = commands.split_first().expect("the program");
    commands.iter().try_for_each(|one| section(one, out))?;
    writeln!(out, "\n## Exit codes\n\n| code | meaning |\n| --- | --- |")?;
    Exit::table().try_for_each(|(code, meaning)| writeln!(out, "| {code} | {meaning} |"))
}

/// Writes the section of a command: its purpose, arguments and options, and the commands below it.
fn section(listed: &Listed, out: &mut impl Write) -> io::Result<()> {
    let (name, command) = (&listed.name, &listed.command);
    writeln!(out, "\n## {name}\n\n{}\n", about(command))?;
    writeln!(out, "```\n{}\n```", usage(listed))?;
    let mut group = None;
    for arg in command.get_arguments().filter(|arg| is_listed(arg)) {
        let heading = arg.get_help_heading();
        if group != Some(heading) {
            match heading.or(group.map(|_| "Other")) {
                Some(heading) => writeln!(out, "\n### {heading}\n")?,
                None => writeln!(out)?,
            }
            group = Some(heading);
        }
        writeln!(out, "- `{}`: {}", signature(arg), help(arg))?;
    }
    let mut below = command.get_subcommands().filter(|one| !one.is_hide_set());
    if command.has_subcommands() {
        writeln!(out, "\n| command | purpose |\n| --- | --- |")?;
    }
    below.try_for_each(|below| {
        let name = format!("{name} {}", below.get_name());
        let purpose = short(below).replace('\n', " ");
        writeln!(
            out,
            "| [`{name}`](#{}) | {purpose} |",
            name.replace(' ', "-")
        )
    })
}

/// Tells whether an argument is one of the command's own that a user sees.
fn is_listed(arg: &Arg) -> bool {
    arg.get_id() != "help" && arg.get_id() != "version" && !arg.is_hide_set()
}

/// Returns the line that calls a command.
fn usage(listed: &Listed) -> String {
    let command = &listed.command;
    let mut words = vec![listed.line.clone()];
    let mut options = command.get_arguments().filter(|arg| is_listed(arg));
    if options.any(|arg| !arg.is_positional()) {
        words.push("[OPTIONS]".to_owned());
    }
    let required = command.get_arguments().filter(|arg| is_listed(arg));
    let required = required.filter(|arg| !arg.is_positional() && arg.is_required_set());
    words.extend(required.map(signature));
    words.extend(
        command
            .get_positionals()
            .map(|arg| match arg.is_required_set() {
                true => signature(arg),
                false => format!("[{}]", signature(arg)),
            }),
    );
    if command.has_subcommands() {
        let is_required = command.is_subcommand_required_set();
        let word = if is_required { "COMMAND" } else { "[COMMAND]" };
        words.push(word.to_owned());
    }
    words.join(" ")
}

fn short(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string);
    about.unwrap_or_default()
}

/// Returns the purpose of a command, and what `--help` adds to it.
fn about(command: &Command) -> String {
    let long = command.get_long_about().map(ToString::to_string);
    let text = long.unwrap_or_else(|| short(command));
    let paragraphs = text.split("\n\n").map(ended);
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// Ends a paragraph with a full stop.
fn ended(paragraph: &str) -> String {
    let stop = if paragraph.ends_with(['.', ':']) {
        ""
    } else {
        "."
    };
    format!("{paragraph}{stop}")
}

fn signature(arg: &Arg) -> String {
    let value = arg.get_value_names().unwrap_or_default().join(" ");
    let takes = arg.get_action().takes_values();
    if arg.is_positional() {
        let is_list = matches!(arg.get_action(), ArgAction::Append);
        return if is_list { value + "..." } else { value };
    }
    let short = arg
        .get_short()
        .map(|c| format!("-{c}, "))
        .unwrap_or_default();
    let long = arg.get_long().map(|l| format!("--{l}")).unwrap_or_default();
    let value = match takes {
        // Its value is optional, too.
        true if arg.is_require_equals_set() => format!("[={value}]"),
        true => format!(" {value}"),
        false => String::new(),
    };
    format!("{short}{long}{value}")
}

fn help(arg: &Arg) -> String {
    let text = arg
        .get_long_help()
        .or(arg.get_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .map(|v| format!("`{}`", v.get_name()))
        .collect();
    let choices = if values.len() > 1 && arg.get_action().takes_values() {
        format!(" ({})", values.join(", "))
    } else {
        String::new()
    };
    let text = match text.contains("\n\n") {
        true => text.split("\n\n").map(ended).collect::<Vec<_>>().join(" "),
        false => text,
    };
    format!("{}{choices}", text.replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the purpose of a command, and of the help of an option, on a line of 100 columns.
    const PURPOSE_MAX: usize = 80;
    const HELP_MAX: usize = 66;

    fn text(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut text = Vec::new();
        write(&mut text).expect("memory");
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn every_command_has_a_page_and_a_section() {
        let commands = listed();
        for name in ["sync", "mirror status", "mirror trash list", "shim env"] {
            let name = format!("driftless {name}");
            assert!(commands.iter().any(|one| one.name == name), "{name}");
        }
        let reference = text(|out| reference(&commands, out));
        for command in &commands[1..] {
            let page = text(|out| manual(command, out));
            let title = page_name(command).to_uppercase();
            assert!(page.contains(&format!(".TH {title} 1 {DATE} ")), "{page}");
            assert!(page.contains(".SH SYNOPSIS\n") && !page.contains(".SH EXTRA"));
            let long = page.lines().find(|line| line.len() > LINE_MAX);
            assert_eq!(long, None, "{title}");
            let section = format!("\n## {}\n", command.name);
            assert_eq!(reference.matches(&section).count(), 1, "{section}");
        }
    }

    #[test]
    fn manual_pages_are_tidy() {
        let long = format!("{} 'b .c", "a".repeat(LINE_MAX - 1));
        let wrapped = format!("{}\n\\&'b .c\n", "a".repeat(LINE_MAX - 1));
        for (page, tidied) in [
            ("a \n\nb\n", "a\n.sp\nb\n"),
            ("a\n.br\n\n.br\nb\n", "a\n.sp\nb\n"),
            (".TP\n\\fB\\-x\\fR\n", ".TP\n\\fB\\-x\\fR\n"),
            (&long, &wrapped),
        ] {
            assert_eq!(tidy(page), tidied);
        }
    }

    #[test]
    fn short_help_takes_one_line() {
        let mut long = Vec::new();
        for Listed { name, command, .. } in listed() {
            let purpose = short(&command);
            assert!(purpose.len() <= PURPOSE_MAX, "{name}: {purpose}");
            for arg in command.get_arguments().filter(|arg| is_listed(arg)) {
                let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
                if text.is_empty() || text.len() > HELP_MAX {
                    long.push(format!("{name} {}: {text}", signature(arg)));
                }
            }
        }
        assert!(long.is_empty(), "{}", long.join("\n"));
    }

    #[test]
    fn node_key_has_no_directory_of_a_store() {
        let commands = listed();
        let key = commands.iter().find(|one| one.name == "driftless node key");
        let section = text(|out| section(key.expect("a command"), out));
        assert!(!section.contains("`--dir DIR`"), "{section}");
    }

    #[test]
    fn optional_value_stands_in_brackets() {
        let reference = text(|out| reference(&listed(), out));
        for option in ["`--deploy[=FILE]`", "`--verify[=LEVEL]`", "`--log FILE`"] {
            assert!(reference.contains(option), "{option}");
        }
    }

    #[test]
    fn usage_has_the_arguments_of_the_commands_above() {
        let commands = listed();
        let of = |name: &str| {
            let mut commands = commands.iter();
            usage(commands.find(|one| one.name == name).expect("a command"))
        };
        let restore = "driftless mirror trash JOB restore [OPTIONS] PATH";
        assert_eq!(of("driftless mirror trash restore"), restore);
        assert_eq!(
            of("driftless mirror trash"),
            "driftless mirror trash JOB [COMMAND]"
        );
        assert_eq!(of("driftless shim"), "driftless shim COMMAND");
        assert_eq!(of("driftless sync"), "driftless sync [OPTIONS] SRC DST");
        let cast = "driftless cast [OPTIONS] --nodes LIST SRC...";
        assert_eq!(of("driftless cast"), cast);
    }
}
