//! `--verbose`: prints the plan as lines that tuning scripts can read.
//!
//! Invariants
//! - If SQL Server's trace 3213 has a line for the same fact, its spelling is used.
//! - Requests to object stores are told for each bucket, and their sum.
//!
//! Leaves to others: sizes (`longshore-pipeline`) and counting requests (`longshore-bucket`).

use std::fmt::Write;

use longshore_codec::{Algorithm, engines};
use longshore_pipeline::Plan;
use longshore_repository::StoreRequests;

use longshore_terminal::output::{Table, bytes};
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

/// The requests to object stores: for each bucket by what they do, for each GB that they moved, and for each file of WAL.
pub fn requests(buckets: &[StoreRequests]) -> String {
    let total: u64 = buckets.iter().map(StoreRequests::total).sum();
    let mut table = Table::new(&[
        "bucket",
        "requests",
        "PUT",
        "GET",
        "LIST",
        "DELETE",
        "sent",
        "received",
        "per GB",
        "WAL files",
        "per file",
    ]);
    for bucket in buckets {
        // Those for WAL count for its files.
        let moved = bucket.sent_bytes + bucket.received_bytes;
        let for_each_gb = match moved >= GB_MIN {
            true => format!("{:.0}", bucket.total() as f64 * 1e9 / moved as f64),
            false => "-".to_owned(),
        };
        let for_each_file = match bucket.wal_files {
            0 => "-".to_owned(),
            files => format!("{:.1}", bucket.wal as f64 / files as f64),
        };
        table.row(vec![
            plain(&bucket.bucket),
            bucket.total().to_string(),
            bucket.puts.to_string(),
            bucket.gets.to_string(),
            bucket.lists.to_string(),
            bucket.deletes.to_string(),
            bytes(bucket.sent_bytes),
            bytes(bucket.received_bytes),
            for_each_gb,
            bucket.wal_files.to_string(),
            for_each_file,
        ]);
    }
    format!("longshore: {total} requests to object stores\n{table}")
}

/// Of fewer bytes, the number of requests for each GB says nothing.
const GB_MIN: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_for_each_bucket_each_gb_and_each_file_of_wal() {
        let near = StoreRequests {
            bucket: "s3://near".to_owned(),
            puts: 66,
            gets: 3,
            lists: 1,
            sent_bytes: 1_000_000_000,
            ..StoreRequests::default()
        };
        let far = StoreRequests {
            bucket: "s3+far://b".to_owned(),
            puts: 4,
            gets: 8,
            received_bytes: 90,
            wal: 10,
            wal_files: 4,
            ..StoreRequests::default()
        };
        let text = requests(&[near, far]);
        let words =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        let lines: Vec<_> = text.lines().map(words).collect();
        assert_eq!(
            text.lines().next(),
            Some("longshore: 82 requests to object stores")
        );
        assert_eq!(lines[2][..6], ["s3://near", "70", "66", "3", "1", "0"]);
        assert!(lines[2].contains(&"70".to_owned()) && text.contains("per GB"));
        assert_eq!(lines[3].last().map(String::as_str), Some("2.5"));
        assert!(lines[3].contains(&"-".to_owned()));
    }
}
