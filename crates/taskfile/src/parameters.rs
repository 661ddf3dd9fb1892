//! Range of task indices: `parms=[START:STOP;STEP]%MAX`.

use crate::error::{Parsed, shown, unexpected, wrong};
use crate::lexer::{TextInput, blanks, offset};
use std::num::NonZeroU32;
use winnow::Parser;
use winnow::ascii::Caseless;
use winnow::combinator::opt;
use winnow::token::take_while;

pub(crate) const INSTEAD: &str = "write parms=[START:STOP;STEP]";

/// Indices of the tasks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterRange {
    /// Index of the first task.
    pub start: u32,
    /// Upper bound of the indices. The parser rejects a bound below `start`.
    pub stop: u32,
    /// Distance of two indices. The default is 1.
    pub step: NonZeroU32,
    /// Tasks that may run at the same time. `None` leaves this to the batch system.
    pub tasks_at_once_max: Option<NonZeroU32>,
}

impl ParameterRange {
    /// Returns the number of tasks.
    pub fn count(&self) -> u64 {
        let distance = self.stop.saturating_sub(self.start) / self.step;
        u64::from(distance) + 1
    }
}

/// Parses the range if the text starts with `parms=`, else fails with a mismatch.
pub(crate) fn parameters(input: &mut TextInput) -> Parsed<ParameterRange> {
    (Caseless("parms"), blanks, b'=').void().parse_next(input)?;
    expect(input, b'[')?;
    blanks(input)?;
    let at = offset(input);
    let start = number(input)?;
    expect(input, b':')?;
    let stop = number(input)?;
    if start > stop {
        let found = format!("range {start}:{stop} ends before it starts");
        return wrong(at, found, format!("write parms=[{stop}:{start}]"));
    }
    blanks(input)?;
    let step = match opt(b';').parse_next(input)? {
        Some(_) => positive(input, "a step")?,
        None => NonZeroU32::MIN,
    };
    expect(input, b']')?;
    let tasks_at_once_max = match opt((blanks, b'%')).parse_next(input)? {
        Some(_) => Some(positive(input, "a number of tasks at once")?),
        None => None,
    };
    Ok(ParameterRange {
        start,
        stop,
        step,
        tasks_at_once_max,
    })
}

fn expect(input: &mut TextInput, sign: u8) -> Parsed<()> {
    blanks(input)?;
    match opt(sign).parse_next(input)? {
        Some(_) => Ok(()),
        None => out_of_range(input),
    }
}

/// Fails at the character at which the range is wrong.
fn out_of_range<T>(input: &TextInput) -> Parsed<T> {
    let at = offset(input);
    let found = format!("{} in a range", unexpected(&input.state[at..]));
    wrong(at, found, INSTEAD)
}

fn number(input: &mut TextInput) -> Parsed<u32> {
    blanks(input)?;
    let at = offset(input);
    let digits = opt(take_while(1.., |byte: u8| byte.is_ascii_digit())).parse_next(input)?;
    let Some(digits) = digits else {
        return out_of_range(input);
    };
    let number = String::from_utf8_lossy(digits).parse();
    number.or_else(|_| {
        let found = format!("number {} is too large", shown(digits));
        wrong(at, found, format!("write a number from 0 to {}", u32::MAX))
    })
}

/// Parses a number from 1. `thing` names the number in an error.
fn positive(input: &mut TextInput, thing: &str) -> Parsed<NonZeroU32> {
    blanks(input)?;
    let at = offset(input);
    match NonZeroU32::new(number(input)?) {
        Some(number) => Ok(number),
        None => wrong(at, format!("0 is not {thing}"), "write a number from 1"),
    }
}
