//! `--verbose`: prints the plan as lines that tuning scripts can read.
//!
//! If SQL Server's trace 3213 has a line for the same fact, its spelling is used.

use std::fmt::Write;

use longshore_codec::{Algorithm, engines};
use longshore_pipeline::Plan;

use longshore_terminal::text::plain;

pub fn plan(plan: &Plan) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<28}{value}", format!("{name}:"));
    };
    let compressed = plan.algorithm != Algorithm::None.name();
    line("Action", plan.action.to_owned());
    line("Database", plain(&plan.database));
    line("Backup devices", plan.devices.len().to_string());
    for device in &plan.devices {
        line("Device", device.clone());
    }
    for volume in &plan.volumes {
        line("Volume", volume.clone());
    }
    line("BufferCount", plan.buffer_count.to_string());
    line("MaxTransferSize", format!("{} KB", plan.buffer_bytes >> 10));
    line(
        "Total buffer space",
        format!("{} MB", (plan.buffer_count * plan.buffer_bytes) >> 20),
    );
    line(
        "Memory bound",
        format!("{} MB", plan.memory_bytes.div_ceil(1 << 20)),
    );
    line("Workers", plan.workers.to_string());
    line("CPUs", plan.cpus.to_string());
    if let Some(ceiling) = plan.cpu_ceiling {
        line("CPU ceiling", format!("{ceiling:.2} CPUs"));
    }
    if let Some(rate) = plan.rate_bytes_per_s {
        line("Rate limit", format!("{rate} bytes/s"));
    }
    if let Some(known) = plan.layouts {
        line(
            "Layouts",
            format!(
                "{} relations, Databases={}, NotAsked={}",
                known.relations, known.databases_asked, known.databases_not_asked
            ),
        );
    }
    line("Engine", plan.engine.clone());
    for fact in engines() {
        let state = match &fact.absent {
            Some(why) => format!("not in use: {why}"),
            None => format!("{} ({}): {}", fact.version, fact.instructions, fact.serves),
        };
        line("Engine found", format!("{} {state}", fact.name));
    }
    line(
        "Effective options",
        format!(
            "Checksum=1, Compression={}, Algorithm={}, Level={}, Encryption={}, BufferCount={}, MaxTransferSize={} KB",
            u8::from(compressed),
            plan.algorithm,
            plan.level,
            u8::from(plan.encrypted),
            plan.buffer_count,
            plan.buffer_bytes >> 10,
        ),
    );
    text
}
