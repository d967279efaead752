//! Measured from outside: the program as users start it, by the kernel's figures at its end.
//!
//! Peak memory compared with the bound that the program prints, the ceilings on rate and CPU, and other common
//! compressors.
//!
//! Invariants
//! - A run that fails ends the measurement with its output: no figure comes from a failed run.
//! - A compressor that is not installed, or fails, has no row.
//! - No password is on a command line.
//!
//! Leaves to others: the kernel's account (`longshore-facts`), and judging the figures (`goals.rs`).

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use longshore_facts::{self as facts, EndedChild, run_to_end};
use longshore_io::child;
use longshore_pipeline::{DeviceSpec, SourceSpec};
use serde_json::Value;

use super::corpus::Corpus;
use crate::report::counted;
use crate::scratch::Scratch;

/// The most file names for a peer; more may not fit in a command line.
const PEER_FILES_MAX: usize = 4000;

/// A run of the program with its peak memory.
pub struct Peak {
    pub what: String,
    pub rss_bytes: u64,
    pub bound_bytes: u64,
}

/// A run with a ceiling, and its result.
pub struct Ceiling {
    pub what: String,
    pub asked: f64,
    pub found: f64,
    pub unit: &'static str,
}

/// Another compressor over the same files.
pub struct Peer {
    pub command: String,
    pub version: String,
    /// 10^9 bytes per second.
    pub gb_per_s: f64,
    pub cpu_s_per_gb: f64,
}

/// Starts the measured program.
pub struct Outside<'a> {
    pub clock: &'a dyn longshore_io::Clock,
    pub program: &'a Path,
    pub scratch: &'a Scratch,
}

struct Answer {
    wall_s: f64,
    ended: EndedChild,
    json: Value,
}

impl Outside<'_> {
    fn run(&self, build: impl FnOnce(&mut Command)) -> Result<Answer> {
        let mut command = child::again_at(self.program);
        build(&mut command);
        command.args(["--json", "--catalog", "none"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let start = self.clock.now();
        let ended = run_to_end(&mut command)
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        let wall_s = (self.clock.now() - start).as_secs_f64();
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        if !ended.status.success() {
            bail!("{command:?} ended with {}: {text}", ended.status);
        }
        let json = serde_json::from_str(&text)
            .with_context(|| format!("{command:?} did not print JSON"))?;
        Ok(Answer {
            wall_s,
            ended,
            json,
        })
    }

    fn backup(
        &self,
        source: &SourceSpec,
        devices: &[DeviceSpec],
        more: &[String],
    ) -> Result<Answer> {
        self.run(|command| {
            command.arg("backup");
            match source {
                SourceSpec::Sqlite(path) => command.arg(path),
                SourceSpec::Files(paths) => command.args(paths),
                // Passwords, above all, are left out of the text and are in its environment.
                SourceSpec::Postgres(server) => command.arg(server.for_people()),
            };
            for device in devices {
                command.arg("--to").arg(match device {
                    DeviceSpec::File(path) => path.as_os_str(),
                    _ => "nul:".as_ref(),
                });
            }
            command.args(more);
        })
    }

    fn restore(&self, devices: &[DeviceSpec]) -> Result<Answer> {
        self.run(|command| {
            command.arg("restore");
            for device in devices {
                if let DeviceSpec::File(path) = device {
                    command.arg(path);
                }
            }
            command.arg("--to").arg(self.scratch.path("restored"));
        })
    }

    /// Backup to disk and restore, with several algorithms and numbers of stripes.
    pub fn peaks(&self, source: &SourceSpec, on_step: &dyn Fn(&str)) -> Result<Vec<Peak>> {
        let kinds = [
            ("QAT_DEFLATE", 1),
            ("QAT_DEFLATE", 8),
            ("ZSTD", 1),
            ("NONE", 1),
        ];
        let mut peaks = Vec::new();
        for (algorithm, stripes) in kinds {
            let what = format!("{algorithm}, {}", counted(stripes, "stripe"));
            on_step(&format!("memory: {what}"));
            peaks.extend(self.peak(source, &what, algorithm, stripes)?);
        }
        Ok(peaks)
    }

    /// One backup to disk and its restore.
    pub fn peak(
        &self,
        source: &SourceSpec,
        what: &str,
        algorithm: &str,
        stripes: usize,
    ) -> Result<[Peak; 2]> {
        let devices = self.scratch.stripes(stripes);
        let more = ["--algorithm", algorithm].map(str::to_owned);
        let backup = self.backup(source, &devices, &more)?;
        let restore = self.restore(&devices)?;
        self.scratch.clear()?;
        Ok([
            peak(format!("backup, {what}"), &backup)?,
            peak(format!("restore, {what}"), &restore)?,
        ])
    }

    /// A ceiling on the rate at which the source lasts some seconds, and one of half a core.
    pub fn ceilings(
        &self,
        source: &SourceSpec,
        bytes: u64,
        on_step: &dyn Fn(&str),
    ) -> Result<Vec<Ceiling>> {
        let nul = [DeviceSpec::Nul];
        let rate_mib = (bytes >> 20).div_ceil(4).max(1);
        on_step(&format!("--max-rate {rate_mib}M"));
        let more = ["--max-rate".to_owned(), format!("{rate_mib}M")];
        let answer = self.backup(source, &nul, &more)?;
        let rate = Ceiling {
            what: "--max-rate".into(),
            asked: rate_mib as f64,
            found: bytes as f64 / f64::from(1 << 20) / answer.wall_s,
            unit: "MiB/s",
        };
        let percent = 50.0 / facts::cores() as f64;
        on_step(&format!("--max-cpu {percent}"));
        let more = ["--max-cpu".to_owned(), percent.to_string()];
        let answer = self.backup(source, &nul, &more)?;
        let used = answer.ended.usage.cpu().as_secs_f64() / answer.wall_s;
        let cpu = Ceiling {
            what: "--max-cpu".into(),
            asked: percent,
            found: 100.0 * used / facts::cores() as f64,
            unit: "% of the machine",
        };
        Ok(vec![rate, cpu])
    }
}

fn peak(what: String, answer: &Answer) -> Result<Peak> {
    let bound = &answer.json["run"]["plan"]["memory_bytes"];
    Ok(Peak {
        what,
        rss_bytes: answer.ended.usage.rss_max_bytes,
        bound_bytes: bound.as_u64().context("the answer has no memory bound")?,
    })
}

/// The compressors installed here, over the same files, with their output discarded.
pub fn peers(
    clock: &dyn longshore_io::Clock,
    corpus: &Corpus,
    on_step: &dyn Fn(&str),
) -> Vec<Peer> {
    if corpus.files() > PEER_FILES_MAX {
        on_step("other compressors are left out: too many files for a command line");
        return Vec::new();
    }
    let cores = facts::cores().to_string();
    let threads = format!("-T{cores}");
    let candidates = [
        ("pigz", vec!["-1", "-c", "-p", &cores]),
        ("zstd", vec!["-1", &threads, "-q", "-c"]),
        ("lz4", vec!["-1", "-q", "-c", "-m"]),
    ];
    let mut peers = Vec::new();
    for (program, options) in candidates {
        on_step(&format!("peer: {program}"));
        // A compressor that is not installed is no error: the table then lacks its row.
        let Ok(mut command) = child::installed(program) else {
            continue;
        };
        command.args(&options).args(corpus.paths());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let start = clock.now();
        let Ok(ended) = run_to_end(&mut command) else {
            continue;
        };
        let wall_s = (clock.now() - start).as_secs_f64();
        if !ended.status.success() {
            continue;
        }
        let gb = corpus.bytes as f64 / 1e9;
        peers.push(Peer {
            command: format!("{program} {} FILES > /dev/null", options.join(" ")),
            version: version(program),
            gb_per_s: gb / wall_s,
            cpu_s_per_gb: ended.usage.cpu().as_secs_f64() / gb,
        });
    }
    peers
}

/// The first word that looks like a version in the program's own output.
fn version(program: &str) -> String {
    let said = child::installed(program)
        .ok()
        .and_then(|mut command| command.arg("--version").output().ok());
    let text = said.map_or_else(String::new, |o| {
        let both = [o.stdout, o.stderr].concat();
        String::from_utf8_lossy(&both).into_owned()
    });
    let is_version = |word: &&str| {
        let word = word.trim_start_matches('v');
        word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.')
    };
    let word = text.split([' ', ',', '\n']).find(is_version);
    word.map_or_else(
        || "unknown".into(),
        |w| w.trim_start_matches('v').to_owned(),
    )
}
