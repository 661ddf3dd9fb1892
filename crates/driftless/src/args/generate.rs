//! Documents that `driftless generate` prints.

use clap::ValueEnum;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Document {
    /// Manual page of driftless, or of the given command: man mirror status
    Man,
    /// Names of all commands, one a line
    Commands,
    /// All manual pages, each after a line with the name of its file
    Pages,
    /// List of exit codes
    ExitCodes,
    /// Completions for bash
    Bash,
    /// Completions for zsh
    Zsh,
    /// Completions for fish
    Fish,
    /// Command-line reference in Markdown
    Reference,
    /// Words of other programs in Markdown
    OtherTools,
}
