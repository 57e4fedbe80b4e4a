//! The program `lanekeeper`; all of it is in the library, so that tests can run it too.

fn main() -> std::process::ExitCode {
    lanekeeper_cli::main()
}
