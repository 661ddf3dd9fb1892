//! The `driftless` command.

fn main() -> std::process::ExitCode {
    driftless::main()
}
