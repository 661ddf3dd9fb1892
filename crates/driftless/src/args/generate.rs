//! What documents `driftless generate` prints.

use clap::ValueEnum;

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Document {
    /// Manual page driftless(1)
    Man,
    /// Manual page driftless-sync(1)
    ManSync,
    /// Manual page driftless-verify(1)
    ManVerify,
    /// Manual page driftless-audit(1)
    ManAudit,
    /// Manual page driftless-sum(1)
    ManSum,
    /// Manual page driftless-mover(1)
    ManMover,
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
