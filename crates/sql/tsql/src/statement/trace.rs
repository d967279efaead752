//! Trace flag 3213: the plan as the lines that tuning scripts read.
//!
//! 3604 sends them to the client, 3605 to the log, as in SQL Server; without either they are not shown.

use longshore_codec::Algorithm;
use longshore_pipeline::Plan;

use crate::flow::Out;
use crate::message;
use crate::session::Session;
use crate::sink::ReceiverGone;

/// Shows the buffers of a backup or restore.
const BUFFERS: i64 = 3213;
const TO_CLIENT: i64 = 3604;
const TO_LOG: i64 = 3605;

pub fn plan(session: &Session, plan: &Plan, out: &mut Out) -> Result<(), ReceiverGone> {
    if session.traces(BUFFERS) {
        for line in lines(plan) {
            if session.traces(TO_CLIENT) {
                out.say(message::PRINTED.with(&[&line]))?;
            }
            if session.traces(TO_LOG) {
                session.server.write_log("Backup", &line);
            }
        }
    }
    // SQL Server has no such message, and scripts compare messages.
    for notice in &plan.notices {
        session.server.write_log("Backup", notice);
    }
    Ok(())
}

fn lines(plan: &Plan) -> Vec<String> {
    let (count, size) = (plan.buffer_count, plan.buffer_bytes);
    let compressed = plan.algorithm != Algorithm::None.name();
    let memory_mb = longshore_facts::memory_bytes().map_or(0, |n| n >> 20);
    let wide = |name: &str, value: String| format!("{:<28}{value}", format!("{name}:"));
    vec![
        "Backup/Restore buffer configuration parameters".to_owned(),
        format!("Memory limit: {memory_mb}MB"),
        wide("BufferCount", count.to_string()),
        // One set for reading, one for writing.
        wide("Sets Of Buffers", "2".to_owned()),
        wide("MaxTransferSize", format!("{} KB", size >> 10)),
        wide("Min MaxTransferSize", "64 KB".to_owned()),
        wide(
            "Total buffer space",
            format!("{} MB", count.saturating_mul(size) >> 20),
        ),
        wide(
            "Tabular data device count",
            plan.volumes.len().max(1).to_string(),
        ),
        wide("Fulltext data device count", "0".to_owned()),
        wide("Filestream device count", "0".to_owned()),
        wide("TXF device count", "0".to_owned()),
        wide("Filesystem i/o alignment", "4096".to_owned()),
        wide("Media Buffer count", count.to_string()),
        wide("Media Buffer size", format!("{} KB", size >> 10)),
        wide("Number of data file readers", plan.workers.to_string()),
        format!(
            "Effective options: Checksum=1, Compression={}, Encryption={}, BufferCount={count}, MaxTransferSize={} KB",
            u8::from(compressed),
            u8::from(plan.encrypted),
            size >> 10
        ),
    ]
}
