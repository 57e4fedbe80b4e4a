//! Project chores: `cargo xtask <chore>`.
//!
//! Each chore is one file with a `run` that returns what went wrong; this file only names them. A new
//! one is a module, a variant and a line in the match.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line program speaks through both")]

mod cases;
mod codegen;
mod guards;
mod no_leak;
mod rbac_used;
mod reference;
mod sources;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Project chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Writes what is generated from the code: the CustomResourceDefinitions and the OpenAPI document.
    Codegen(codegen::Arguments),
    /// Every number of cases.md against the tests that stand for it, as `make test` ran them.
    Cases(cases::Arguments),
    /// Takes each guard out by name and demands that its tests fail.
    Guards(guards::Arguments),
    /// Puts a marker into every field and looks for it wherever the product speaks.
    NoLeak,
    /// The chart's RBAC rules against the audit log of `make e2e`, both ways.
    RbacUsed(rbac_used::Arguments),
    /// Checks the habits of the house that no lint checks.
    Tidy,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Codegen(arguments) => codegen::run(&arguments),
        Chore::Cases(arguments) => cases::run(&arguments),
        Chore::Guards(arguments) => guards::run(&arguments),
        Chore::NoLeak => no_leak::run(),
        Chore::RbacUsed(arguments) => rbac_used::run(&arguments),
        Chore::Tidy => tidy::run(),
    };
    match outcome {
        Ok(code) => code,
        // The chain is printed once, here.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
