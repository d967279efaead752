//! `uploads`: shows uploads that have not ended, at any address, and aborts old ones.
//!
//! Invariants
//! - Without --abort nothing is aborted. With it, only what is shown, and what nothing protects at that moment.
//! - An address that fails, or an abort, does not keep the others from being done. The answer has all that was done, and each
//!   failure.
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
    failures: Vec<UploadFailure>,
}

/// The failure at an address, or of one upload's abort.
#[derive(Serialize)]
struct UploadFailure {
    address: String,
    exit_code: u8,
    error: Failure,
}

#[derive(Serialize)]
struct Row {
    address: String,
    upload_id: String,
    begun_us: Option<i64>,
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
    Failed,
}

impl UploadFate {
    fn word(self) -> &'static str {
        match self {
            UploadFate::Aborted => "aborted",
            UploadFate::WouldBeAborted => "may be aborted",
            UploadFate::Protected => "protected",
            UploadFate::Failed => "could not be aborted",
        }
    }
}

pub fn run(options: &Uploads, context: &Context) -> Result<Exit, Failure> {
    // Before anything is aborted.
    let addresses = options.addresses.iter().map(|device| match device {
        DeviceSpec::Bucket(address) => Ok(address),
        other => Err(Failure::usage(
            format!(
                "{} is no address in an object store",
                other.open(&context.storage).name()
            ),
            "give one as s3://BUCKET/KEY or gs://BUCKET/KEY; files that a killed backup leaves are replaced by the next one",
        )),
    });
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    let mut answer = Answer {
        action: "uploads",
        uploads: Vec::new(),
        failures: Vec::new(),
    };
    for address in addresses {
        look(address, options, context, &mut answer);
    }
    context.output.say(&table(&answer));
    let exit = match answer.failures.first() {
        Some(failed) => failed.error.exit,
        None => context.output.done(),
    };
    context.output.json(exit, answer);
    Ok(exit)
}

/// Adds what is found at an address, and what fails there.
fn look(address: &StoreAddress, options: &Uploads, context: &Context, answer: &mut Answer) {
    let storage = &*context.storage;
    let idle_s = i64::from(options.idle) * 3600;
    let found = match left_uploads(address, storage, idle_s) {
        Ok(found) => found,
        Err(error) => return answer.fail(address.to_string(), error.into(), context),
    };
    for upload in found {
        let aborted = match &upload.protected_by {
            None if options.abort => abort_left_upload(address, storage, &upload, idle_s),
            known => Ok(known.clone()),
        };
        let (protected_by, fate) = match aborted {
            Ok(None) if options.abort => (None, UploadFate::Aborted),
            Ok(None) => (None, UploadFate::WouldBeAborted),
            Ok(Some(by)) => (Some(by), UploadFate::Protected),
            Err(error) => {
                answer.fail(upload.address.clone(), error.into(), context);
                (None, UploadFate::Failed)
            }
        };
        answer.uploads.push(row(upload, fate, protected_by));
    }
}

impl Answer {
    /// Tells a failure: people at once, scripts in the answer.
    fn fail(&mut self, address: String, error: Failure, context: &Context) {
        context.output.complain(&plain(&address), &error);
        self.failures.push(UploadFailure {
            address,
            exit_code: error.exit.code(),
            error,
        });
    }
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

fn table(answer: &Answer) -> String {
    let rows = &answer.uploads;
    if rows.is_empty() {
        // Where a look failed, there may be some.
        return match answer.failures.is_empty() {
            true => "no unfinished upload\n".to_owned(),
            false => String::new(),
        };
    }
    let mut table = Table::new(&["object", "begun (UTC)", "parts", "bytes", "result"]);
    for row in rows {
        let result = match &row.protected_by {
            Some(by) => format!("{}: {}", row.fate.word(), plain(by)),
            None => row.fate.word().to_owned(),
        };
        table.row(vec![
            plain(&row.address),
            row.begun_us.map_or_else(|| "not told".to_owned(), moment),
            row.parts.to_string(),
            bytes(row.bytes),
            result,
        ]);
    }
    table.to_string()
}
