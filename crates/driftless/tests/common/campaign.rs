//! Many runs of one kind, of which none ends the others: figures at the end, and a failure if one
//! failed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// A campaign under way.
pub struct Campaign {
    name: &'static str,
    began: Instant,
    runs: u64,
    judged: u64,
    failed: Vec<String>,
}

impl Campaign {
    pub fn new(name: &'static str) -> Campaign {
        Campaign {
            name,
            began: Instant::now(),
            runs: 0,
            judged: 0,
            failed: Vec::new(),
        }
    }

    /// One run, which panics if it fails; what it prints is for whoever looks into it.
    pub fn run(&mut self, what: String, run: impl FnOnce()) {
        self.judge(what, || {
            run();
            true
        });
    }

    /// One run that panics if it fails, and says whether it met what it was to be judged by.
    pub fn judge(&mut self, what: String, run: impl FnOnce() -> bool) {
        self.runs += 1;
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(is_judged) => self.judged += u64::from(is_judged),
            Err(_) => {
                println!("FAILED: {what}");
                self.failed.push(what);
            }
        }
    }

    /// Prints the figures; panics if a run has failed. With no failure in N judged runs, at most
    /// 3/N fail with 95 % confidence.
    pub fn end(self) {
        let kernel = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        let (runs, judged, failures) = (self.runs, self.judged, self.failed.len());
        let seconds = self.began.elapsed().as_secs();
        println!(
            "campaign {}: {runs} runs, {judged} judged, {failures} failures, {seconds} s, Linux {kernel}",
            self.name
        );
        if failures == 0 && judged > 0 {
            println!(
                "campaign {}: at most {:.2} % fail, with 95 % confidence",
                self.name,
                (300.0 / judged as f64).min(100.0)
            );
        }
        assert!(runs > 0, "{}: nothing ran", self.name);
        assert!(
            failures > 0 || judged * 3 > runs,
            "{}: only {judged} of {runs} runs met what they were to meet",
            self.name
        );
        assert!(failures == 0, "{}: {:#?}", self.name, self.failed);
    }
}

/// A number from the environment.
pub fn count_of(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number"))
    })
}
