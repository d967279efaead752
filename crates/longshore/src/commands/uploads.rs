//! `uploads`: shows uploads that have not ended, at any address, and aborts old ones.
//!
//! Invariants
//! - Without --abort nothing is aborted. With it, only what is shown, and what nothing protects at that moment.
//! - An address that fails does not keep the others from being looked at.
//!
//! Leaves to others: what protects an upload (`longshore-repository`).

use longshore_media::DeviceSpec;
use longshore_repository::{LeftUpload, StoreAddress, abort_left_upload, left_uploads};
use serde::Serialize;

use crate::context::Context;
use crate::options::Uploads;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::{Table, bytes, moment};
use longshore_terminal::text::plain;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    uploads: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    address: String,
    upload_id: String,
    begun_us: i64,
    parts: u64,
    bytes: u64,
    idle_s: Option<i64>,
    fate: UploadFate,
    protected_by: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum UploadFate {
    Aborted,
    WouldBeAborted,
    Protected,
}

impl UploadFate {
    fn word(self) -> &'static str {
        match self {
            UploadFate::Aborted => "aborted",
            UploadFate::WouldBeAborted => "may be aborted",
            UploadFate::Protected => "protected",
        }
    }
}

pub fn run(options: &Uploads, context: &Context) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    let mut failed = None;
    for device in &options.addresses {
        let DeviceSpec::Bucket(address) = device else {
            return Err(Failure::usage(
                format!(
                    "{} is no address in an object store",
                    device.open(&context.storage).name()
                ),
                "give one as s3://BUCKET/KEY or gs://BUCKET/KEY; files that a killed backup leaves are replaced by the next one",
            ));
        };
        if let Err(failure) = look(address, options, context, &mut rows) {
            if options.addresses.len() > 1 {
                context.output.warn(&failure.text);
            }
            failed = failed.or(Some(failure));
        }
    }
    context.output.say(&table(&rows));
    if let Some(failure) = failed {
        return Err(failure);
    }
    let exit = context.output.done();
    let action = "uploads";
    let uploads = rows;
    context.output.json(exit, Answer { action, uploads });
    Ok(exit)
}

fn look(
    address: &StoreAddress,
    options: &Uploads,
    context: &Context,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    let storage = &*context.storage;
    let idle_s = i64::from(options.idle) * 3600;
    for upload in left_uploads(address, storage, idle_s)? {
        let protected_by = match &upload.protected_by {
            None if options.abort => abort_left_upload(address, storage, &upload, idle_s)?,
            known => known.clone(),
        };
        let fate = match (&protected_by, options.abort) {
            (Some(_), _) => UploadFate::Protected,
            (None, true) => UploadFate::Aborted,
            (None, false) => UploadFate::WouldBeAborted,
        };
        rows.push(row(upload, fate, protected_by));
    }
    Ok(())
}

fn row(upload: LeftUpload, fate: UploadFate, protected_by: Option<String>) -> Row {
    Row {
        address: upload.address,
        upload_id: upload.id,
        begun_us: upload.begun_us,
        parts: upload.parts,
        bytes: upload.bytes,
        idle_s: upload.idle_s,
        fate,
        protected_by,
    }
}

fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no unfinished upload\n".to_owned();
    }
    let mut table = Table::new(&["object", "begun (UTC)", "parts", "bytes", "result"]);
    for row in rows {
        let result = match &row.protected_by {
            Some(by) => format!("{}: {}", row.fate.word(), plain(by)),
            None => row.fate.word().to_owned(),
        };
        table.row(vec![
            plain(&row.address),
            moment(row.begun_us),
            row.parts.to_string(),
            bytes(row.bytes),
            result,
        ]);
    }
    table.to_string()
}
