//! The program `kubectl-lane`, which kubectl runs as `kubectl lane`.

fn main() -> std::process::ExitCode {
    lanekeeper_cli::kubectl_main()
}
