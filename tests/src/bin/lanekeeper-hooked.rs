//! The program with test hooks: the same code, in which a test can take one guard out or make a step
//! fail. Never shipped: a product build (`cargo build -p lanekeeper-cli`) has no such switch.

fn main() -> std::process::ExitCode {
    lanekeeper_cli::main()
}
