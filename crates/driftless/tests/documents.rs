//! What the documents say is true: examples are run, tables are compared with the binary, generated
//! pages are up to date.
//!
//! Bash runs a `console` block in a folder of its own, after the commands of the `<!-- setup`
//! comment above it. A block without that comment continues the block before it on the page. In the
//! expected output `[..]` stands for anything on that line.
#![allow(clippy::disallowed_methods)]

mod common;
#[path = "documents/short.rs"]
mod short;

use common::pages::{BINARY, Shell, project, quoted, read, rows};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

/// All pages, by their paths in the project.
fn pages() -> Vec<String> {
    let mut pages: Vec<String> = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ]
    .map(String::from)
    .to_vec();
    for folder in ["docs", "docs/internals"] {
        for entry in fs::read_dir(project().join(folder)).expect("a folder") {
            let name = entry.expect("entry").file_name();
            let name = name.into_string().expect("a name that is text");
            if name.ends_with(".md") {
                pages.push(format!("{folder}/{name}"));
            }
        }
    }
    pages
}

#[test]
fn the_index_of_the_documents_lists_every_page_and_no_other() {
    let index = fs::read_to_string(project().join("docs/README.md")).expect("the index");
    let rows = index.lines().filter_map(|line| line.strip_prefix("| ["));
    let target = |row: &str| {
        row.split_once("](")?
            .1
            .split_once(')')
            .map(|(page, _)| format!("docs/{page}"))
    };
    let mut named: Vec<String> = rows.filter_map(target).collect();
    let is_indexed = |page: &String| page.starts_with("docs/") && page != "docs/README.md";
    let mut real: Vec<String> = pages().into_iter().filter(is_indexed).collect();
    named.sort();
    real.sort();
    assert_eq!(named, real);
}

fn generated(what: &str) -> String {
    let output = Command::new(BINARY)
        .arg("generate")
        .args(what.split(' '))
        .output()
        .expect("it starts");
    assert!(output.status.success(), "generate {what}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// A command, the place of its block, and what it prints.
struct Step {
    place: String,
    command: String,
    printed: String,
}

/// Blocks that one shell runs, after the commands of their setup.
#[derive(Default)]
struct Example {
    setup: String,
    steps: Vec<Step>,
}

fn examples(page: &str) -> Vec<Example> {
    let (text, mut found) = (read(page), Vec::<Example>::new());
    let mut lines = text.lines().enumerate();
    let mut setup = None;
    while let Some((number, line)) = lines.next() {
        let mut until = |end: &str| -> Vec<&str> {
            let lines = lines.by_ref().map(|(_, line)| line);
            lines.take_while(|line| *line != end).collect()
        };
        match line {
            "<!-- setup" => setup = Some(until("-->").join("\n")),
            "```console" => {
                let block = until("```");
                let setup = setup.take();
                if found.is_empty() || setup.is_some() {
                    found.push(Example {
                        setup: setup.unwrap_or_default(),
                        ..Example::default()
                    });
                }
                let steps = steps(&format!("{page}:{}", number + 1), &block);
                found.last_mut().expect("one has begun").steps.extend(steps);
            }
            _ => {}
        }
    }
    found
}

fn steps(place: &str, lines: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in lines {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push(Step {
                place: place.into(),
                command: command.into(),
                printed: String::new(),
            }),
            None => {
                let printed = &mut steps
                    .last_mut()
                    .expect("a block begins with a command")
                    .printed;
                printed.push_str(line);
                printed.push('\n');
            }
        }
    }
    steps
}

/// Runs an example in one shell; a NUL byte ends what each command prints, and its exit code is
/// there for the next one.
fn check_example(example: &Example) {
    let stage = Shell::new();
    let made = stage.bash(&format!("set -e\n{}", example.setup));
    let place = &example.steps.first().expect("a step").place;
    assert!(
        made.status.success(),
        "{place}: the setup failed: {}",
        String::from_utf8_lossy(&made.stdout)
    );
    let mut script = String::new();
    for Step { command, .. } in &example.steps {
        script.push_str(&format!("{command}\ncode=$?; printf '\\0'; (exit $code)\n"));
    }
    let output = stage.bash(&script);
    let printed = String::from_utf8(output.stdout).expect("text");
    for (step, got) in example.steps.iter().zip(printed.split('\0')) {
        assert!(
            matches(&step.printed, got),
            "{}: $ {}\n--- expected\n{}--- printed\n{got}",
            step.place,
            step.command,
            step.printed
        );
    }
    assert_eq!(
        printed.matches('\0').count(),
        example.steps.len(),
        "{place}: not all commands ran\n{printed}"
    );
}

fn matches(expected: &str, printed: &str) -> bool {
    let same_count = expected.lines().count() == printed.lines().count();
    same_count
        && expected
            .lines()
            .zip(printed.lines())
            .all(|(pattern, line)| line_matches(pattern, line))
}

fn line_matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("[..]");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn wildcards_stand_for_a_part_of_one_line() {
    assert!(matches("a [..] c\n", "a b c\n") && matches("[..]x[..]\n", "1x2\n") && matches("", ""));
    assert!(!matches("a\n", "a\nb\n") && !matches("a\n", "b\n") && !matches("a[..]c\n", "ab\n"));
}

#[test]
fn every_example_prints_what_the_page_says() {
    let examples: Vec<Example> = pages().iter().flat_map(|page| examples(page)).collect();
    assert!(
        examples.len() >= 12,
        "only {} examples found",
        examples.len()
    );
    // Examples wait for clocks and disks more than they compute.
    let left = Mutex::new(examples.iter());
    let next = || left.lock().expect("no example failed here").next();
    let work = || {
        while let Some(example) = next() {
            check_example(example);
        }
    };
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
}

#[test]
fn blocks_without_a_setup_continue_the_example() {
    let copy = examples("docs/copy.md");
    assert!(copy.len() == 1 && copy[0].steps.len() > 20);
    let filters = examples("docs/filters.md");
    assert!(filters.len() > 1 && filters.iter().all(|example| !example.setup.is_empty()));
}

#[test]
fn the_reference_is_what_the_binary_generates() {
    assert_eq!(
        read("docs/cli.md"),
        generated("reference"),
        "docs/cli.md is out of date: run `make docs`"
    );
}

#[test]
fn the_page_of_other_programs_is_generated() {
    assert_eq!(
        read("docs/other-tools.md"),
        generated("other-tools"),
        "docs/other-tools.md is out of date: run `make docs`"
    );
}

/// All long options of sync, from its help.
fn options() -> Vec<String> {
    let output = Command::new(BINARY)
        .args(["sync", "--help"])
        .output()
        .expect("it starts");
    let help = String::from_utf8(output.stdout).expect("text");
    let long = |line: &str| {
        let text = line.trim_start();
        let option = text
            .strip_prefix('-')
            .filter(|_| line.starts_with("  "))
            .and_then(|_| text.split("--").nth(1))?;
        option.split([' ', ',', '[']).next().map(str::to_owned)
    };
    let options: Vec<String> = help.lines().filter_map(long).collect();
    assert!(
        options.len() > 30 && options.contains(&"link-dest".into()),
        "{options:?}"
    );
    options
}

#[test]
fn generated_pages_and_completions_name_every_option() {
    let escaped = |option: &String| format!("\\-\\-{}", option.replace('-', "\\-"));
    let manual = generated("man sync");
    assert!(
        manual.contains(".TH DRIFTLESS-SYNC 1") && manual.contains(".SH OPTIONS"),
        "{manual}"
    );
    let main = generated("man");
    assert!(
        main.contains(".TH DRIFTLESS 1") && main.contains("driftless\\-sync(1)"),
        "{main}"
    );
    let (bash, zsh, fish) = (generated("bash"), generated("zsh"), generated("fish"));
    for option in options() {
        assert!(
            manual.contains(&escaped(&option)),
            "--{option} in the manual page"
        );
        assert!(
            bash.contains(&format!("--{option}")) && zsh.contains(&format!("--{option}")),
            "--{option} in bash and zsh"
        );
        assert!(fish.contains(&format!("-l {option}")), "--{option} in fish");
    }
    let stage = Shell::new();
    let write = |name: &str, text: &str| fs::write(stage.folder.path().join(name), text);
    write("completions", &bash).expect("write");
    for (name, page) in [
        ("main", &main),
        ("sync", &manual),
        ("list", &generated("man mirror trash list")),
    ] {
        write(&format!("{name}.1"), page).expect("write");
    }
    write("all", &generated("pages")).expect("write");
    let output = stage.bash(
        "bash -n completions; groff -ww -z -man -Tutf8 *.1
        csplit -sz -f page. -b %d.1 all '/^.\\\\\" File: /' '{*}'; mandoc -T lint *.1",
    );
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
}

#[test]
fn installed_files_stand_below_the_prefix() {
    let stage = Shell::new();
    let folder = stage.folder.path();
    stage.put_built();
    let output = stage.bash(&format!(
        "make -s --no-print-directory -C {} install-files FROM=$PWD/built DESTDIR=$PWD/root PREFIX=/opt/d",
        project().display()
    ));
    assert!(
        output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
    let found = tree(&folder.join("root/opt/d"));
    for path in [
        "bin/driftless",
        "lib/driftless/libdriftless_shim.so",
        "share/man/man1/driftless.1",
        "share/man/man1/driftless-mirror-trash-list.1",
        "share/bash-completion/completions/driftless",
        "share/zsh/site-functions/_driftless",
        "share/fish/vendor_completions.d/driftless.fish",
    ] {
        assert!(found.contains(path), "{path}: {found:?}");
    }
    let unit = folder.join("root/opt/d/lib/systemd/system/driftless-mirror@.service");
    let unit = fs::read_to_string(unit).expect("the unit");
    assert!(
        unit.contains("\nExecStart=/opt/d/bin/driftless mirror run %i\n"),
        "{unit}"
    );
    let library = stage.bash("root/opt/d/bin/driftless shim env");
    let text = String::from_utf8_lossy(&library.stdout).into_owned();
    assert!(
        text.contains("/opt/d/lib/driftless/libdriftless_shim.so"),
        "{text}"
    );
}

#[test]
fn links_between_pages_lead_somewhere() {
    for page in pages() {
        let folder = project().join(&page).parent().expect("a folder").to_owned();
        for target in read(&page)
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next().map(str::to_owned))
        {
            let path = target.split('#').next().unwrap_or_default();
            assert!(
                path.starts_with("https://") || folder.join(path).exists(),
                "{page}: ({target}) leads nowhere"
            );
        }
    }
}

#[test]
fn the_book_has_every_page_once() {
    let stage = Shell::new();
    let output = stage.bash(&format!("{}/packaging/book book", project().display()));
    assert!(output.status.success(), "{output:?}");
    let source = stage.folder.path().join("book/src");
    let summary = fs::read_to_string(source.join("SUMMARY.md")).expect("the contents");
    let links = summary.split("](").skip(1);
    let mut named: Vec<&str> = links.filter_map(|rest| rest.split(')').next()).collect();
    let mut real = pages();
    named.sort_unstable();
    real.sort_unstable();
    assert_eq!(named, real);
    let copied = |page: &&String| source.join(page).is_file();
    assert_eq!(real.iter().filter(copied).count(), real.len());
}

/// Everything below `root`, directories with a slash at the end.
fn tree(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)
            .expect("list")
            .map(|entry| entry.expect("entry"))
        {
            let is_dir = entry.file_type().expect("type").is_dir();
            let path = entry
                .path()
                .strip_prefix(root)
                .expect("below")
                .to_str()
                .expect("text")
                .to_owned();
            if is_dir {
                folders.push(entry.path());
            }
            found.insert(if is_dir { path + "/" } else { path });
        }
    }
    found
}

fn plant(root: &Path, names: &BTreeSet<String>) {
    for name in names {
        let path = root.join(name);
        match name.strip_suffix('/') {
            Some(_) => fs::create_dir_all(path).expect("folder"),
            None => fs::write(path, name).expect("file"),
        }
    }
}

#[test]
fn each_filter_leaves_out_what_its_page_says() {
    let text = read("docs/filters.md");
    let listed = text
        .split("```text\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the tree");
    let all: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    let stage = Shell::new();
    let source = stage.folder.path().join("source");
    fs::create_dir(&source).expect("folder");
    plant(&source, &all);
    assert_eq!(tree(&source), all);
    for (number, row) in rows(&text, "### Examples").iter().enumerate() {
        let replica = stage.folder.path().join(format!("replica-{number}"));
        let (options, gone) = (
            quoted(row[0]),
            row.get(1).map(|cell| quoted(cell)).unwrap_or_default(),
        );
        let status = Command::new(BINARY)
            .args(["sync", "--quiet"])
            .args(&options)
            .arg(&source)
            .arg(&replica)
            .status();
        assert!(status.expect("it starts").success(), "{options:?}");
        let left_out: Vec<String> = all.difference(&tree(&replica)).cloned().collect();
        assert_eq!(left_out, gone, "{options:?}");
    }
}

#[test]
fn help_lists_the_exit_codes_of_the_reference() {
    let page = read("docs/cli.md");
    let (_, table) = page.split_once("\n## Exit codes\n").expect("the table");
    let cells = |row: &str| {
        let (code, meaning) = row
            .strip_prefix("| ")?
            .strip_suffix(" |")?
            .split_once(" | ")?;
        Some(format!("  {code:<6} {meaning}"))
    };
    let codes: Vec<String> = table.lines().filter_map(cells).skip(2).collect();
    assert!(codes.len() > 9, "{codes:?}");
    for words in [&["help", "exit-codes"][..], &["exit-codes"]] {
        let output = Command::new(BINARY)
            .args(words)
            .output()
            .expect("it starts");
        let printed = String::from_utf8(output.stdout).expect("text");
        assert!(
            output.status.success() && printed.starts_with("Exit codes:\n"),
            "{printed}"
        );
        let lines: Vec<&str> = printed.lines().skip(1).collect();
        assert_eq!(lines, codes, "driftless {words:?}");
    }
}

/// The suites of this crate's tests, by name and text.
fn suites() -> Vec<(String, String)> {
    let files = fs::read_dir(project().join("crates/driftless/tests"))
        .expect("tests")
        .map(|entry| entry.expect("entry").path());
    let suites = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let named = |path: PathBuf| {
        (
            path.file_stem()
                .expect("a name")
                .to_str()
                .expect("text")
                .to_owned(),
            fs::read_to_string(&path).expect("read"),
        )
    };
    suites.map(named).collect()
}

#[test]
fn every_suite_goes_over_ssh_or_the_page_says_why_not() {
    let (page, makefile) = (
        read("CONTRIBUTING.md"),
        read("Makefile").replace("\\\n", " "),
    );
    let lists = makefile.lines().filter_map(|line| {
        line.strip_prefix("OVER_SSH")
            .and_then(|line| line.split_once('='))
    });
    let go: BTreeSet<&str> = lists
        .flat_map(|(_, names)| names.split_whitespace())
        .collect();
    let stay: Vec<String> = rows(&page, "## Tests over ssh")
        .iter()
        .flat_map(|row| quoted(row[0]))
        .collect();
    let stays = |name: &str| {
        stay.iter().any(|word| {
            word.strip_suffix('*')
                .map_or(word == name, |start| name.starts_with(start))
        })
    };
    for (name, _) in suites() {
        assert_ne!(
            go.contains(&*name),
            stays(&name),
            "{name} is in one of the lists of the Makefile, or in the table"
        );
    }
}

#[test]
fn the_page_has_every_reason_why_a_test_does_not_go_over_ssh() {
    let page = read("CONTRIBUTING.md");
    let told: BTreeSet<String> = rows(&page, "### Tests that stay here")
        .iter()
        .flat_map(|row| quoted(row[0]))
        .collect();
    // In two parts, so that this line is none of them.
    let opening = concat!("only_", "local!(\"");
    let reasons = |text: &str| {
        text.split(opening)
            .skip(1)
            .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
            .collect::<Vec<_>>()
    };
    let given: BTreeSet<String> = suites()
        .iter()
        .flat_map(|(_, text)| reasons(text))
        .collect();
    assert_eq!(told, given);
}
