//! Statements that were read so far, and the rules on their number.

use crate::error::{Parsed, line_of, wrong};
use crate::keywords::{Keyword, Section};
use crate::{Cleanup, DATA_PATHS_MAX, DataPath, ParameterRange, ResultPattern};
use crate::{TaskFile, WorkloadManager};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Script with its arguments and the range of its tasks.
pub(crate) struct JobScript {
    pub path: PathBuf,
    pub arguments: Vec<OsString>,
    pub parameters: Option<ParameterRange>,
}

/// Statements of a file that is not read to its end.
#[derive(Default)]
pub(crate) struct Draft<'t> {
    text: &'t [u8],
    /// Offsets of the sections.
    sections: BTreeMap<Section, usize>,
    /// Offset of the first statement of each kind.
    keywords: BTreeMap<Keyword, usize>,
    /// Section that was read last.
    pub last: Option<Section>,
    pub system: Option<WorkloadManager>,
    pub options: Vec<String>,
    pub data: Vec<DataPath>,
    pub script: Option<JobScript>,
    pub results: Option<ResultPattern>,
    pub cleanup: Cleanup,
}

impl<'t> Draft<'t> {
    pub fn new(text: &'t [u8]) -> Draft<'t> {
        Draft {
            text,
            ..Draft::default()
        }
    }

    /// Enters a section. Fails if the file has this section already.
    pub fn enter(&mut self, section: Section, at: usize) -> Parsed<()> {
        if let Some(first) = self.sections.insert(section, at) {
            let line = line_of(self.text, first);
            let found = format!(
                "second section {}, the first is in line {line}",
                section.name()
            );
            return wrong(at, found, "write all its statements into the first");
        }
        self.last = Some(section);
        Ok(())
    }

    /// Begins a statement. Fails if the file has as many of its kind as it may.
    pub fn begin(&mut self, keyword: Keyword, at: usize) -> Parsed<()> {
        if keyword == Keyword::Transfer {
            return self.check_paths(at);
        }
        // One of the two is allowed.
        let kind = match keyword {
            Keyword::Keep => Keyword::PurgeAll,
            keyword => keyword,
        };
        let Some(first) = self.keywords.insert(kind, at) else {
            return Ok(());
        };
        let line = line_of(self.text, first);
        let (name, instead) = match kind {
            Keyword::Do => ("DO", "write a task file for each script"),
            Keyword::PurgeAll => ("PURGEALL or KEEP", "remove one of them"),
            kind => (kind.name(), "remove one of them"),
        };
        wrong(
            at,
            format!("second {name}, the first is in line {line}"),
            instead,
        )
    }

    fn check_paths(&self, at: usize) -> Parsed<()> {
        if self.data.len() < DATA_PATHS_MAX {
            return Ok(());
        }
        let found = format!("more than {DATA_PATHS_MAX} TRANSFER");
        wrong(at, found, "write TRANSFER for directories or globs")
    }

    /// Leaves a section at its closing brace. Fails if the section lacks its required statement.
    pub fn leave(&self, section: Section, at: usize) -> Parsed<()> {
        let is_there = match section {
            Section::Wlm => self.system.is_some(),
            Section::Data => !self.data.is_empty(),
            Section::Execute => self.script.is_some(),
            Section::Results | Section::Cleanup => true,
        };
        match section.required() {
            Some(keyword) if !is_there => {
                let found = format!("section {} without {}", section.name(), keyword.name());
                wrong(at, found, format!("write {}", keyword.form()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the task file. Fails at the offset `end` if a required section is missing: a section
    /// that is there has its statement.
    pub fn finish(self, end: usize) -> Parsed<TaskFile> {
        let Some(system) = self.system else {
            return missing(Section::Wlm, end);
        };
        if self.data.is_empty() {
            return missing(Section::Data, end);
        }
        let Some(script) = self.script else {
            return missing(Section::Execute, end);
        };
        Ok(TaskFile {
            system,
            options: self.options,
            data: self.data,
            script: script.path,
            arguments: script.arguments,
            parameters: script.parameters,
            results: self.results,
            cleanup: self.cleanup,
        })
    }
}

fn missing<T>(section: Section, end: usize) -> Parsed<T> {
    let found = format!("section {} is missing", section.name());
    wrong(end, found, format!("write {}", section.example()))
}
