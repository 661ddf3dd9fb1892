//! What a configuration says, option by option, and what of it was left out.

use super::lines::{Line, lines};
use super::options::{Form, form};
use super::variables::Variables;
use super::{Component, LeftOut, fit, options, secret, units};
use std::collections::BTreeMap;

/// Things that are told of one configuration at most; the last one counts the others.
const LEFT_OUT_MAX: usize = 1000;

/// Bytes of a job's name at most.
const NAME_BYTES_MAX: usize = 64;

const NO_VALUE: &str = "it has no value, and sr3 takes no heed of it";

/// A value, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// Its line.
    pub(crate) line: usize,
    /// The option, as it is written there.
    pub(crate) shown: String,
    /// The value, with variables put in and without passwords.
    pub(crate) value: String,
    /// The option, by its one name.
    pub(crate) option: &'static str,
}

impl Said {
    /// Whether it is a word by which `sr3` takes a text for not there.
    pub(crate) fn is_nothing(&self) -> bool {
        let lower = self.value.to_ascii_lowercase();
        ["none", "off", "false"].contains(&lower.as_str())
    }
}

/// A value as `sr3` reads it: of words that are divided by spaces, however many.
fn read(option: &str, value: &str) -> Result<String, String> {
    let mut words = value.split_whitespace();
    let form = form(option);
    let read = match form {
        Form::Flag => match words.next() {
            Some(word) if units::is_on(word) != Some(true) => "off".into(),
            _ => "on".into(),
        },
        Form::Word => words.next().unwrap_or_default().to_owned(),
        Form::Text | Form::TextOrNone => words.collect::<Vec<_>>().join(" "),
    };
    match read.is_empty() {
        true => Err(NO_VALUE.into()),
        false => Ok(read),
    }
}

/// What a configuration says.
pub(crate) struct Given {
    /// Of which component.
    pub(crate) component: Component,
    /// What it is called.
    pub(crate) name: String,
    /// What is known of variables.
    pub(crate) variables: Variables,
    said: BTreeMap<&'static str, Vec<Said>>,
    left_out: Vec<LeftOut>,
    untold: usize,
}

impl Given {
    /// Reads a configuration.
    pub(crate) fn read(component: Component, name: &str, text: &str) -> Given {
        let mut given = Given {
            component,
            name: name.to_owned(),
            variables: Variables::of(component, name),
            said: BTreeMap::new(),
            left_out: Vec::new(),
            untold: 0,
        };
        lines(text).for_each(|line| given.add(line));
        given
    }

    fn add(&mut self, line: Line) {
        if line.option == "declare" && self.variables.declare(&line).is_some() {
            return;
        }
        let Some(option) = options::known(&line.option) else {
            return self.tell(line.number, &line.shown, options::why(&line.option));
        };
        // The queue's name is made when the broker and the share are known.
        let value = match option {
            "queuename" | "queueshare" => Ok(line.value.clone()),
            _ => self.variables.put_in(&line.value),
        };
        let value = match value {
            Ok(value) => read(option, &value),
            Err(unknown) => Err(format!("{unknown}: write its value into the job")),
        };
        let value = match value {
            Ok(value) => value,
            Err(why) => return self.tell(line.number, &line.shown, &why),
        };
        let said = Said {
            line: line.number,
            shown: line.shown,
            // A broker's URL is read whole, and then shown without a password.
            value: match option {
                "broker" | "postbroker" => value,
                _ => secret::without(&value),
            },
            option,
        };
        self.said.entry(option).or_default().push(said);
    }

    /// A name that a job can have, as near as can be.
    pub(crate) fn job_name(&self) -> String {
        let plain = secret::without(&self.name);
        let plain = plain.chars().map(|c| match c {
            c if c.is_ascii_alphanumeric() || "-_.".contains(c) => c,
            _ => '-',
        });
        let plain: String = plain.take(NAME_BYTES_MAX).collect();
        match plain.trim_start_matches(['.', '-']) {
            "" => "imported".into(),
            // What ends so is what failover and failback keep of another job.
            name if name.ends_with("-kept") => format!("{}_", &name[..name.len() - 1]),
            name => name.into(),
        }
    }

    /// Says that something is left out.
    pub(crate) fn tell(&mut self, line: usize, option: &str, why: &str) {
        if self.left_out.len() >= LEFT_OUT_MAX {
            self.untold += 1;
            return;
        }
        self.left_out.push(LeftOut {
            line,
            option: option.to_owned(),
            why: why.to_owned(),
        });
    }

    /// Says that a value is left out.
    pub(crate) fn leave(&mut self, said: &Said, why: &str) {
        self.tell(said.line, &said.shown, why);
    }

    /// The value of an option that a job has once: the last, as `sr3` does it. Others are left out.
    pub(crate) fn one(&mut self, option: &'static str) -> Option<Said> {
        let mut all = self.said.remove(option)?;
        let last = all.pop()?;
        for other in all.iter().filter(|other| other.value != last.value) {
            let why = format!(
                "line {} says otherwise, and a job has one: write a job for each",
                last.line
            );
            self.leave(other, &why);
        }
        let is_none = form(option) == Form::TextOrNone && last.is_nothing();
        (!is_none).then_some(last)
    }

    /// The path that an option says; why it is not in the job is told.
    pub(crate) fn path(&mut self, option: &'static str) -> Option<String> {
        let said = self.one(option)?;
        self.path_of(&said)
    }

    /// The path that a value is; why it is not in the job is told.
    pub(crate) fn path_of(&mut self, said: &Said) -> Option<String> {
        let path = fit::path(&said.value);
        path.map_err(|why| self.leave(said, why)).ok()
    }

    /// The value of an option without its place.
    pub(crate) fn value(&mut self, option: &'static str) -> Option<String> {
        self.one(option).map(|said| said.value)
    }

    /// All values of an option that there may be several of.
    pub(crate) fn all(&mut self, option: &'static str) -> Vec<Said> {
        self.said.remove(option).unwrap_or_default()
    }

    /// All lines of some options, in their order.
    pub(crate) fn in_order(&mut self, options: &[&'static str]) -> Vec<Said> {
        let mut all: Vec<Said> = options.iter().flat_map(|one| self.all(one)).collect();
        all.sort_by_key(|said| said.line);
        all
    }

    /// What was left out, those values too that nobody has asked for.
    pub(crate) fn into_left_out(mut self) -> Vec<LeftOut> {
        for said in std::mem::take(&mut self.said).into_values().flatten() {
            let component = self.component.name();
            self.leave(&said, &format!("it means nothing to {component}"));
        }
        let mut all = self.left_out;
        all.sort();
        if self.untold > 0 {
            all.push(LeftOut {
                line: 0,
                option: "...".into(),
                why: format!("{} more are not told", self.untold),
            });
        }
        all
    }
}
