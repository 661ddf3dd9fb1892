//! The `driftless` command once more, for a test that links it statically.

fn main() -> std::process::ExitCode {
    driftless::main()
}
