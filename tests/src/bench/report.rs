//! Figures, the machine they ran on, and the record that `bench-check` compares with.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Whether more or less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aim {
    /// At least.
    AtLeast,
    /// At most.
    AtMost,
    /// For information.
    None,
}

/// One measured thing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// Stable name.
    pub name: String,
    /// Measured.
    pub value: f64,
    /// `ratio`, `ms`, `MiB`, `/s`.
    pub unit: String,
    /// Direction.
    pub aim: Aim,
    /// The aim's value.
    pub target: f64,
    /// What was compared with what.
    pub note: String,
}

impl Figure {
    /// A figure with an aim.
    pub fn new(name: &str, value: f64, unit: &str, aim: Aim, target: f64, note: impl Into<String>) -> Self {
        Self { name: name.into(), value, unit: unit.into(), aim, target, note: note.into() }
    }

    /// A figure for information.
    pub fn info(name: &str, value: f64, unit: &str, note: impl Into<String>) -> Self {
        Self::new(name, value, unit, Aim::None, 0.0, note)
    }

    fn aim_text(&self) -> String {
        match self.aim {
            Aim::AtLeast => format!("≥ {}", self.target),
            Aim::AtMost => format!("≤ {}", self.target),
            Aim::None => String::new(),
        }
    }

    /// Whether the aim was reached.
    pub fn reached(&self) -> bool {
        match self.aim {
            Aim::AtLeast => self.value >= self.target,
            Aim::AtMost => self.value <= self.target,
            Aim::None => true,
        }
    }

    /// For the terminal.
    pub fn line(&self) -> String {
        let mark = if self.reached() { ' ' } else { '!' };
        format!("{mark} {:<44} {:>10.3} {:<6} {:<8} {}", self.name, self.value, self.unit, self.aim_text(), self.note)
    }
}

/// All figures of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// Processor and memory.
    pub machine: String,
    /// Day.
    pub date: String,
    /// In the order measured.
    pub figures: Vec<Figure>,
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        text.lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split(':').nth(1))
            .unwrap_or("?")
            .trim()
            .to_owned()
    };
    let cpu = read("/proc/cpuinfo");
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    format!("{cores} × {}, {}", field(&cpu, "model name"), field(&read("/proc/meminfo"), "MemTotal"))
}

const RECORD: &str = "docs/benchmarks.json";

impl Report {
    /// With this machine and day.
    pub fn new(figures: Vec<Figure>) -> Self {
        let date = lanekeeper_core::time::format_rfc3339_ms(jiff::Timestamp::now().as_millisecond())[..10].to_owned();
        Self { machine: machine(), date, figures }
    }

    /// target/bench.json
    pub fn write(&self) -> Result<()> {
        std::fs::create_dir_all("target")?;
        std::fs::write("target/bench.json", serde_json::to_string_pretty(self)?).context("write target/bench.json")
    }

    /// docs/benchmarks.json and docs/benchmarks.md
    pub fn record(&self) -> Result<()> {
        let merged =
            match std::fs::read_to_string(RECORD).ok().and_then(|text| serde_json::from_str::<Self>(&text).ok()) {
                Some(mut before) => {
                    for figure in &self.figures {
                        before.figures.retain(|known| known.name != figure.name);
                        before.figures.push(figure.clone());
                    }
                    Self { machine: self.machine.clone(), date: self.date.clone(), figures: before.figures }
                }
                None => Self { machine: self.machine.clone(), date: self.date.clone(), figures: self.figures.clone() },
            };
        std::fs::write(RECORD, serde_json::to_string_pretty(&merged)? + "\n")?;
        let mut text = format!(
            "# Benchmarks\n\nMade by `make bench` on {} ({}). Ratios compare with a baseline in the same run; \
             absolute times are of this machine alone. A line with ✗ is short of its aim.\n\n| figure | value | aim | | what |\n|---|---|---|---|---|\n",
            merged.machine, merged.date
        );
        for figure in &merged.figures {
            let mark = match figure.aim {
                Aim::None => "",
                Aim::AtLeast | Aim::AtMost if figure.reached() => "✓",
                Aim::AtLeast | Aim::AtMost => "✗",
            };
            let _ = writeln!(
                text,
                "| {} | {:.3} {} | {} | {mark} | {} |",
                figure.name,
                figure.value,
                figure.unit,
                figure.aim_text(),
                figure.note
            );
        }
        if let Ok(notes) = std::fs::read_to_string("docs/benchmarks-notes.md") {
            text.push('\n');
            text.push_str(&notes);
        }
        std::fs::write("docs/benchmarks.md", text).context("write docs/benchmarks.md")
    }

    /// Ratios that fell under 0.8 of the recorded ones (for `≤` aims: rose over 1/0.8).
    pub fn worse_than_recorded(&self) -> Result<Vec<String>> {
        let recorded: Self = serde_json::from_str(&std::fs::read_to_string(RECORD).context("read the record")?)?;
        let mut worse = Vec::new();
        for before in recorded.figures.iter().filter(|figure| figure.unit == "ratio") {
            let Some(now) = self.figures.iter().find(|figure| figure.name == before.name) else { continue };
            let fell = match before.aim {
                Aim::AtLeast => now.value < before.value * 0.8,
                Aim::AtMost => now.value > before.value / 0.8,
                Aim::None => false,
            };
            if fell {
                worse.push(format!("{}: {:.3} now, {:.3} recorded", now.name, now.value, before.value));
            }
        }
        Ok(worse)
    }
}
