//! `longshore cache calibrate`: a model of a device that is there.

use std::path::Path;
use std::time::Duration;

use longshore_cache::calibrate::{
    self, BadModel, Fitted, Plan, Residual, Unfit, Unmeasured, read_model, write_model,
};
use longshore_cache::model::Profile;
use longshore_io::{Storage, Via};
use serde::Serialize;

use crate::commands::{Context, lab};
use crate::failure::{Exit, Failure};
use crate::options::CacheCalibrate;
use crate::output::{Table, moment};

/// A model file is some hundred bytes.
const MODEL_BYTES_MAX: u64 = 64 << 10;

#[derive(Serialize)]
struct CellAnswer {
    bytes: u64,
    depth: u32,
    reads: u64,
    measured_us: f64,
    predicted_us: f64,
}

#[derive(Serialize)]
struct Answer<'a> {
    action: &'static str,
    path: &'a Path,
    /// Nothing was written otherwise.
    fitted: bool,
    /// Of the cells, how many the model predicts within 15 %.
    near: f64,
    model: Option<String>,
    cells: Vec<CellAnswer>,
}

pub fn run(options: &CacheCalibrate, context: &Context) -> Result<Exit, Failure> {
    let storage = &*context.storage;
    let io = |e: std::io::Error| {
        let what = format!("{} cannot be measured", options.path.display());
        Failure {
            causes: vec![e.to_string()],
            exit: Exit::Source,
            ..Failure::usage(what, "name a block device, or a file on the device")
        }
    };
    let disk = storage.disk(&options.path).map_err(io)?;
    let len = disk.stat().map_err(io)?.len;
    let plan = Plan {
        time: Duration::from_secs_f64(options.seconds),
        ..Plan::default()
    };
    let cells = plan.cells().len();
    let output = context.output;
    output.remark(&format!(
        "{cells} sizes and depths, {} s each\n",
        options.seconds
    ));
    let points = calibrate::measure(&*disk, len, &plan, &*context.clock, &|point| {
        output.remark(&format!(
            "{:>7} bytes, {:>2} at a time: {:.1} us\n",
            point.len, point.depth, point.mean_us
        ));
    });
    let points = points.map_err(|e: Unmeasured| Failure::of(Exit::Source, &e, None, e.hint()))?;
    let largest = options.largest.and_then(|bytes| u32::try_from(bytes).ok());
    let (fitted, near, residuals, why) = match calibrate::fit(&points, largest) {
        Ok(Fitted {
            profile,
            residuals,
            near,
        }) => (Some(profile), near, residuals, None),
        Err(Unfit::Far { near, residuals }) => {
            let residuals_kept = residuals.clone();
            let why = Unfit::Far { near, residuals };
            (None, near, residuals_kept, Some(why))
        }
        Err(e) => return Err(Failure::of(Exit::No, &e, None, e.hint())),
    };
    output.say(&table(&residuals));
    let model = fitted.map(|profile| {
        let when = moment(context.clock.wall_ns() / 1000);
        let about = format!("{}, measured {when} UTC", options.path.display());
        write_model(&profile, near, &about)
    });
    if let Some(text) = &model {
        lab::write(&options.model, text, context)?;
        output.say(&format!(
            "\nwithin 15 % in {:.0} % of the cells: {} is written\n",
            near * 100.0,
            options.model.display()
        ));
    }
    let cells = residuals.iter().map(|r| CellAnswer {
        bytes: r.point.len,
        depth: r.point.depth,
        reads: r.point.count,
        measured_us: r.point.mean_us,
        predicted_us: r.predicted_us,
    });
    let exit = match &why {
        None => Exit::Done,
        Some(why) => {
            output.say(&format!("\n{why}\n{}\n", why.hint()));
            Exit::No
        }
    };
    let answer = Answer {
        action: "cache_calibrate",
        path: &options.path,
        fitted: model.is_some(),
        near,
        model,
        cells: cells.collect(),
    };
    output.json(exit, &answer);
    Ok(exit)
}

fn table(residuals: &[Residual]) -> String {
    let mut table = Table::new(&["Bytes", "At a time", "Measured us", "Model us", "Off by %"]);
    for residual in residuals {
        table.row(vec![
            residual.point.len.to_string(),
            residual.point.depth.to_string(),
            format!("{:.1}", residual.point.mean_us),
            format!("{:.1}", residual.predicted_us),
            format!("{:+.0}", residual.error() * 100.0),
        ]);
    }
    table.to_string()
}

/// The profile in a model file.
pub fn model(path: &Path, storage: &dyn Storage) -> Result<Profile, Failure> {
    let bytes = || -> std::io::Result<Vec<u8>> {
        let file = super::open(storage, path)?;
        let len = file.stat()?.len.min(MODEL_BYTES_MAX);
        let mut bytes = vec![0; len as usize];
        let read = file.read_full_at(&mut bytes, 0, Via::Cache)?;
        bytes.truncate(read);
        Ok(bytes)
    };
    let shown = path.display();
    let bytes = bytes().map_err(|e| {
        let hint = "`longshore cache calibrate` writes such files";
        Failure::usage(format!("{shown} cannot be read: {e}"), hint)
    })?;
    let text = String::from_utf8_lossy(&bytes);
    let bad = |e: BadModel| Failure::usage(format!("{shown} is no model: {e}"), e.hint());
    read_model(&text).map_err(bad)
}
