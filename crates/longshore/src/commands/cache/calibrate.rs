//! `longshore cache calibrate`: fits a model to a real device.
//!
//! Invariants
//! - The device is only read.
//! - A model that does not predict the measured cells is not written, and the exit code is 1, since a wrong model makes
//!   a policy worse than none. The measured cells are shown in both cases.
//!
//! Leaves to others: measuring, fitting and the file's form (`longshore-policy`).

use std::path::Path;
use std::time::Duration;

use longshore_policy::calibrate::{
    self, AcceptedProfile, FitRefusal, MeasureError, MeasurePlan, Point, Residual, write_model,
};
use longshore_policy::model::Profile;
use longshore_terminal::files;
use serde::Serialize;

use crate::context::Context;
use crate::options::CacheCalibrate;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;
use longshore_terminal::output::{Table, moment};

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
    /// If false, nothing was written.
    fitted: bool,
    /// The share of cells that the model predicts within 15 %.
    near: f64,
    model: Option<String>,
    cells: Vec<CellAnswer>,
}

pub fn run(options: &CacheCalibrate, context: &Context) -> Result<Exit, Failure> {
    let largest = options.largest.map(u32::try_from).transpose();
    let largest = largest.map_err(|_| {
        Failure::usage(
            "no device takes requests of 4 GiB, so --largest cannot be meant",
            "/sys/block/DEVICE/queue/max_sectors_kb shows the size in KiB",
        )
    })?;
    let output = context.output;
    let points = measured(options, context)?;
    let Fitted {
        profile,
        near,
        residuals,
        why,
    } = fitted(largest, &points)?;
    output.say(&table(&residuals));
    let model = profile.map(|profile| {
        let when = moment(context.clock.wall_ns() / 1000);
        let about = format!("{}, measured {when} UTC", options.path.display());
        write_model(&profile, near, &about)
    });
    if let Some(text) = &model {
        files::write(&options.model, text, &*context.storage)?;
        output.say(&format!(
            "\nwithin 15 % in {:.0} % of the cells: {} was written\n",
            near * 100.0,
            options.model.display()
        ));
    }
    let cells = residuals.iter().map(|r| CellAnswer {
        bytes: r.point.len_bytes,
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

/// Reads of every size and depth of the plan, with each cell told as it is done.
fn measured(options: &CacheCalibrate, context: &Context) -> Result<Vec<Point>, Failure> {
    let io = |e: std::io::Error| {
        let what = format!("{} cannot be measured", options.path.display());
        let hint = "name a block device, or a file on the device";
        Failure::new(Exit::Source, numbers::CACHE, what, hint).because(e)
    };
    let disk = context.storage.disk(&options.path).map_err(io)?;
    let len = disk.stat().map_err(io)?.len;
    let plan = MeasurePlan {
        time: Duration::from_secs_f64(options.seconds),
        ..MeasurePlan::default()
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
            point.len_bytes, point.depth, point.mean_us
        ));
    });
    points.map_err(|e: MeasureError| Failure::of(Exit::Source, &e, numbers::CACHE, e.hint()))
}

/// A model, or why there is none, and how near it comes.
struct Fitted {
    profile: Option<Profile>,
    near: f64,
    residuals: Vec<Residual>,
    why: Option<FitRefusal>,
}

fn fitted(largest: Option<u32>, points: &[Point]) -> Result<Fitted, Failure> {
    match calibrate::fit(points, largest) {
        Ok(AcceptedProfile {
            profile,
            residuals,
            near,
        }) => Ok(Fitted {
            profile: Some(profile),
            near,
            residuals,
            why: None,
        }),
        Err(FitRefusal::Far { near, residuals }) => Ok(Fitted {
            profile: None,
            near,
            residuals: residuals.clone(),
            why: Some(FitRefusal::Far { near, residuals }),
        }),
        Err(e) => Err(Failure::of(Exit::No, &e, numbers::CACHE, e.hint())),
    }
}

fn table(residuals: &[Residual]) -> String {
    let mut table = Table::new(&["Bytes", "At a time", "Measured us", "Model us", "Off by %"]);
    for residual in residuals {
        table.row(vec![
            residual.point.len_bytes.to_string(),
            residual.point.depth.to_string(),
            format!("{:.1}", residual.point.mean_us),
            format!("{:.1}", residual.predicted_us),
            format!("{:+.0}", residual.error() * 100.0),
        ]);
    }
    table.to_string()
}
