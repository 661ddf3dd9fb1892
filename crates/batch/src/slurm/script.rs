//! Job scripts: the options of their `#SBATCH` lines, and those of PBS that `sbatch` heeds.

use super::options::SbatchLine;
use crate::{BatchError, BatchResult};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

const DIRECTIVE: &str = "#SBATCH";
/// Directive of PBS, which `sbatch` heeds up to a number of other lines (opt.c).
const PBS_DIRECTIVE: &str = "#PBS";
const PBS_OTHER_LINES_MAX: usize = 100;
/// Options of PBS without an argument, as `sbatch` reads them.
const PBS_WITHOUT_ARGUMENT: &str = "hIVz";
/// Long form of the option `-v` of PBS.
const PBS_VARIABLES: &str = "--variable_list";

/// Returns the options of a script. `sbatch` stops at the first line that is no comment.
///
/// # Errors
/// [`BatchError::Arguments`] if a quote is not closed, which `sbatch` refuses as well.
pub(super) fn directives(script: &[u8]) -> BatchResult<SbatchLine> {
    let text = String::from_utf8_lossy(script);
    let comments = text.lines().take_while(|line| {
        let line = line.trim_start();
        line.is_empty() || line.starts_with('#')
    });
    let mut all = Vec::new();
    for line in comments {
        if let Some(rest) = line.strip_prefix(DIRECTIVE) {
            all.append(&mut words(rest, line)?);
        }
    }
    Ok(SbatchLine::parse(&all, &|_| false))
}

/// Returns the variables that the directives of PBS in a script export.
///
/// # Errors
/// [`BatchError::Arguments`] if a quote is not closed, which `sbatch` refuses as well.
pub(super) fn pbs_variables(script: &[u8]) -> BatchResult<Vec<OsString>> {
    let text = String::from_utf8_lossy(script);
    let (mut all, mut others) = (Vec::new(), 0);
    for line in text.lines() {
        match line.strip_prefix(PBS_DIRECTIVE) {
            Some(rest) => all.append(&mut words(rest, line)?),
            None if line.starts_with('#') => {}
            None => others += 1,
        }
        if others > PBS_OTHER_LINES_MAX {
            break;
        }
    }
    Ok(exported_by_pbs(&all))
}

fn exported_by_pbs(words: &[OsString]) -> Vec<OsString> {
    let mut lists = Vec::new();
    let mut words = words.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        if let Some(rest) = word.strip_prefix(PBS_VARIABLES) {
            lists.extend(rest.strip_prefix('=').or_else(|| words.next()));
            continue;
        }
        let is_short = word.starts_with('-') && !word.starts_with("--");
        let letters = if is_short { &word[1..] } else { "" };
        // An argument follows the first letter that has one, in this word or the next.
        let has_argument = |letter: char| !PBS_WITHOUT_ARGUMENT.contains(letter);
        let Some((at, letter)) = letters.char_indices().find(|(_, one)| has_argument(*one)) else {
            continue;
        };
        let argument = match &letters[at + letter.len_utf8()..] {
            "" => words.next(),
            rest => Some(rest),
        };
        lists.extend(argument.filter(|_| letter == 'v'));
    }
    lists.into_iter().map(OsString::from).collect()
}

/// Divides a line into words as `sbatch` does: a `#` outside quotes ends the line, also within a word
/// (`_get_argument` in opt.c).
fn words(text: &str, line: &str) -> BatchResult<Vec<OsString>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => word.get_or_insert_default().extend(letters.next()),
            _ if quote == Some(letter) => quote = None,
            '"' | '\'' if quote.is_none() => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            '#' if quote.is_none() => break,
            _ if quote.is_none() && letter.is_ascii_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    match quote {
        None => Ok(words.into_iter().map(OsString::from).collect()),
        Some(_) => Err(BatchError::Arguments(format!(
            "sbatch: {}: a quote is not closed; close it",
            driftless_model::escape_text(line)
        ))),
    }
}

/// Reads the begin of a script as the user who submits it. Returns `None` if no regular file has the
/// name. `folder` is the working directory that the command line gives to the job.
pub(super) fn read_script(name: &OsStr, folder: Option<&Path>) -> Option<Vec<u8>> {
    crate::script::read_script(&found_script(name, folder)?)
}

/// Returns the path of a script: `sbatch` searches the working directory of the job, the PATH, and
/// the working directory of the user.
#[allow(
    clippy::disallowed_methods,
    reason = "the job script is the user's own file and no part of a tree"
)]
fn found_script(name: &OsStr, folder: Option<&Path>) -> Option<PathBuf> {
    let here = Path::new(name);
    let is_path = here.components().count() != 1;
    let folders = std::env::var_os("PATH").filter(|_| !is_path);
    let mut paths = vec![folder.unwrap_or(Path::new("")).join(here)];
    paths.extend(
        std::env::split_paths(&folders.unwrap_or_default()).map(|folder| folder.join(here)),
    );
    paths.push(here.to_owned());
    paths.into_iter().find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_sbatch() {
        for (text, expected) in [
            (
                " -n 1 --comment='my job' # text",
                &["-n", "1", "--comment=my job"] as &[&str],
            ),
            ("--export=NONE", &["--export=NONE"]),
            (" --export=NONE#x", &["--export=NONE"]),
            (" a\\ b \"c#d\"\te\\\"", &["a b", "c#d", "e\""]),
            (" --comment=''", &["--comment="]),
            ("", &[]),
        ] {
            assert_eq!(words(text, text).unwrap(), expected, "{text}");
        }
        words(" 'open", "").unwrap_err();
    }

    #[test]
    fn variables_of_pbs_directives_are_found() {
        for (script, expected) in [
            ("#PBS -v A=1\n", &["A=1"] as &[&str]),
            (
                "#!/bin/sh\ntrue\n#PBS -hvB -N v -l a=1\n#PBS-v C,D\n",
                &["B", "C,D"],
            ),
            ("#PBS --variable_list=E --variable_list F\n", &["E", "F"]),
            ("# PBS -v A\n#SBATCH -v\n", &[]),
        ] {
            assert_eq!(
                pbs_variables(script.as_bytes()).unwrap(),
                expected,
                "{script}"
            );
        }
        let late = format!("{}#PBS -v A\n", "true\n".repeat(101));
        assert!(pbs_variables(late.as_bytes()).unwrap().is_empty());
    }

    #[test]
    fn script_is_searched_in_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("only-in-sub.sh");
        std::io::Write::write_all(
            &mut tempfile::NamedTempFile::new()
                .unwrap()
                .persist(&path)
                .unwrap(),
            b"#SBATCH -n1\n",
        )
        .unwrap();
        let name = OsStr::new("only-in-sub.sh");
        assert_eq!(
            read_script(name, Some(folder.path())).unwrap(),
            b"#SBATCH -n1\n"
        );
        assert_eq!(read_script(name, None), None);
        assert!(read_script(OsStr::new("sh"), Some(folder.path())).is_some());
    }
}
