//! `longshore cache calibrate`: fits a model to a real device.
//!
//! Invariants
//! - A device or a file that is named is only read. Writes go to a scratch file in a directory that is named; its name goes as
//!   soon as it is open, so nothing is left of it, however the command ends.
//! - A model that does not predict the measured cells is not written, and the exit code is 1, since a wrong model makes
//!   a policy worse than none. The measured cells are shown in both cases.
//!
//! Leaves to others: measuring, fitting and the file's form (`longshore-policy`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use longshore_io::{File, FileKind, OpenHow, Via};
use longshore_policy::calibrate::{
    self, AcceptedProfile, Course, Fall, FitRefusal, Kind, Known, MeasureError, MeasurePlan, Point,
    Probe, Residual, WriteFacts, write_model,
};
use longshore_policy::model::Op;
use longshore_terminal::files;
use serde::Serialize;

use crate::context::Context;
use crate::options::CacheCalibrate;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;
use longshore_terminal::output::{Table, bytes, moment};

/// Reads and writes at the same time are of this size and depth, which are also measured alone.
const TOGETHER: (u64, u32) = (128 << 10, 16);
/// A block of the scratch file is written at a time.
const BLOCK: usize = 1 << 20;

#[derive(Serialize)]
struct CellAnswer {
    op: &'static str,
    bytes: u64,
    depth: u32,
    count: u64,
    measured_us: f64,
    predicted_us: f64,
}

/// A rate that fell.
#[derive(Serialize)]
struct CourseAnswer {
    op: &'static str,
    unit: &'static str,
    first_per_s: f64,
    then_per_s: f64,
    /// Units above the later rate, until it fell.
    excess: f64,
    is_limit: bool,
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
    written_bytes: u64,
    courses: Vec<CourseAnswer>,
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
    let measured = Measuring::of(options, context)?.measured(largest)?;
    let fitted = fitted(&measured);
    let (near, residuals) = match &fitted {
        Ok(accepted) => (accepted.near, &accepted.residuals),
        Err(FitRefusal::Far {
            near, residuals, ..
        }) => (*near, residuals),
        Err(e) => return Err(Failure::of(Exit::No, e, numbers::CACHE, e.hint())),
    };
    output.say(&table(residuals));
    let model = fitted.as_ref().ok().map(|accepted| {
        let when = moment(context.clock.wall_ns() / 1000);
        let about = format!("{}, measured {when} UTC", options.path.display());
        write_model(accepted, &about)
    });
    if let Some(text) = &model {
        files::write(&options.model, text, &*context.storage)?;
        output.say(&format!(
            "\nwithin 15 % in {:.0} % of the cells: {} was written\n",
            near * 100.0,
            options.model.display()
        ));
    }
    if measured.written_bytes > 0 {
        let written = bytes(measured.written_bytes);
        output.say(&format!("{written} were written to the device\n"));
    }
    let cells = residuals.iter().map(|r| CellAnswer {
        op: r.point.op.noun(),
        bytes: r.point.len_bytes,
        depth: r.point.depth,
        count: r.point.count,
        measured_us: r.point.mean_us,
        predicted_us: r.predicted_us,
    });
    let exit = match &fitted {
        Ok(_) => Exit::Done,
        Err(why) => {
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
        written_bytes: measured.written_bytes,
        courses: measured.courses.iter().filter_map(told).collect(),
        cells: cells.collect(),
    };
    output.json(exit, &answer);
    Ok(exit)
}

/// All that was measured.
struct Measured {
    reads: Vec<Point>,
    /// Only in a directory.
    writes: Option<(Vec<Point>, WriteFacts)>,
    known: Known,
    courses: Vec<(Op, Kind, Course)>,
    written_bytes: u64,
}

/// A device, a file or a scratch file, and how it is measured.
struct Measuring<'a> {
    options: &'a CacheCalibrate,
    context: &'a Context,
    file: Arc<dyn File>,
    len_bytes: u64,
    is_scratch: bool,
    plan: MeasurePlan,
    written_bytes: AtomicU64,
}

impl<'a> Measuring<'a> {
    fn of(options: &'a CacheCalibrate, context: &'a Context) -> Result<Measuring<'a>, Failure> {
        let io = |e: io::Error| {
            let what = format!("{} cannot be measured", options.path.display());
            let hint =
                "name a block device, a file on the device, or a directory with room for --size";
            Failure::new(Exit::Source, numbers::CACHE, what, hint).because(e)
        };
        let stat = context.storage.stat(&options.path).map_err(io)?;
        // The model replaces what is at its place.
        if let Ok(model) = context.storage.stat(&options.model)
            && (model.dev, model.ino) == (stat.dev, stat.ino)
        {
            return Err(Failure::usage(
                "--model names what is measured",
                "name another file for the model",
            ));
        }
        let plan = MeasurePlan {
            time: Duration::from_secs_f64(options.seconds),
            ..MeasurePlan::default()
        };
        let is_scratch = stat.kind == FileKind::Dir;
        let too_small = |have| {
            let least = plan.least_bytes();
            failed(MeasureError::TooSmall { have, least })
        };
        if is_scratch && options.size < plan.least_bytes() {
            return Err(too_small(options.size));
        }
        let file = match is_scratch {
            true => scratch(options, context).map_err(io)?,
            false => context.storage.disk(&options.path).map_err(io)?,
        };
        let len_bytes = file.stat().map_err(io)?.len;
        if len_bytes < plan.least_bytes() {
            return Err(too_small(len_bytes));
        }
        Ok(Measuring {
            len_bytes,
            options,
            context,
            file,
            is_scratch,
            plan,
            written_bytes: AtomicU64::new(if is_scratch { options.size } else { 0 }),
        })
    }

    fn probe(&self, op: Op) -> Probe<'_> {
        Probe {
            file: &*self.file,
            len_bytes: self.len_bytes,
            op,
            written_bytes: &self.written_bytes,
        }
    }

    /// All of it: first the courses, because a device that was measured may have no credit left.
    fn measured(mut self, largest: Option<u32>) -> Result<Measured, Failure> {
        let mut courses = Vec::new();
        let of_bytes = self.limit(&mut courses, (Op::Read, Kind::Bytes))?;
        let of_commands = self.limit(&mut courses, (Op::Read, Kind::Commands))?;
        let command_bytes = largest.map_or(u64::MAX, u64::from);
        let (bytes, commands) = calibrate::own_limits(of_bytes, of_commands, command_bytes);
        let known = Known {
            command_bytes: largest,
            bytes,
            commands,
        };
        let limits = [(Kind::Bytes, bytes), (Kind::Commands, commands)];
        let lasting = |(kind, limit): (Kind, Option<Fall>)| Some(limit?.lasting(kind));
        self.plan.lasting = limits.into_iter().filter_map(lasting).collect();
        // A buffer fills, gives up as much in a rest, and fills again: as a limit does, which reads would have, too.
        let fall = match self.is_scratch && self.plan.lasting.is_empty() {
            true => self.limit(&mut courses, (Op::Write, Kind::Bytes))?,
            false => None,
        };
        let reads = self.cells(Op::Read)?;
        let mut writes = None;
        if self.is_scratch {
            // A buffer that was emptied meanwhile is filled before each cell.
            self.plan.lasting.extend(lasting((Kind::Bytes, fall)));
            let points = self.cells(Op::Write)?;
            let probes = [Op::Read, Op::Write].map(|op| self.probe(op));
            let clock = &*self.context.clock;
            let together = calibrate::together(probes, TOGETHER, &self.plan, clock);
            let together = together.map_err(failed)?;
            writes = Some((points, WriteFacts { together, fall }));
        }
        Ok(Measured {
            written_bytes: self.written_bytes.into_inner(),
            reads,
            writes,
            known,
            courses,
        })
    }

    /// Whether the rate falls, told as soon as it is known.
    fn course(
        &self,
        courses: &mut Vec<(Op, Kind, Course)>,
        (op, kind): (Op, Kind),
    ) -> Result<Course, Failure> {
        let time = Duration::from_secs_f64(self.options.course);
        if time.is_zero() {
            return Ok(Course::Even);
        }
        let output = self.context.output;
        output.remark(&format!(
            "{}s, as many {} as the device takes, for {} s\n",
            op.noun(),
            unit(kind),
            self.options.course
        ));
        let found = calibrate::course(self.probe(op), kind, time, &*self.context.clock);
        let found = found.map_err(failed)?;
        if let Some(text) = course_text(op, kind, found) {
            output.say(&text);
        }
        courses.push((op, kind, found));
        Ok(found)
    }

    fn limit(
        &self,
        courses: &mut Vec<(Op, Kind, Course)>,
        of: (Op, Kind),
    ) -> Result<Option<Fall>, Failure> {
        Ok(match self.course(courses, of)? {
            Course::Limited(fall) => Some(fall),
            Course::Even | Course::Fell(_) => None,
        })
    }

    /// Requests of every size and depth of the plan, with each cell told as it is done.
    fn cells(&self, op: Op) -> Result<Vec<Point>, Failure> {
        let output = self.context.output;
        if op == Op::Write {
            output.remark(
                "the scratch file is written as fast as the device can: an SSD wears by that\n",
            );
        }
        output.remark(&format!(
            "{}s in {} sizes and depths, {} s each\n",
            op.noun(),
            self.plan.cells().len(),
            self.options.seconds
        ));
        let clock = &*self.context.clock;
        let points = calibrate::measure(self.probe(op), &self.plan, clock, &|point| {
            output.remark(&format!(
                "{:>7} bytes, {:>2} at a time: {:.1} us\n",
                point.len_bytes, point.depth, point.mean_us
            ));
        });
        points.map_err(failed)
    }
}

fn failed(error: MeasureError) -> Failure {
    Failure::of(Exit::Source, &error, numbers::CACHE, error.hint())
}

/// A file in a directory, of `--size`, that nothing else can open and that is gone as soon as it is closed.
fn scratch(options: &CacheCalibrate, context: &Context) -> io::Result<Arc<dyn File>> {
    let dir = context.storage.dir(&options.path)?;
    // As much stays free: a database may be there, and some file systems write a changed block to another place.
    let (free, size) = (dir.free_bytes()?, options.size);
    if free / 2 < size {
        let (free, size) = (bytes(free), bytes(size));
        let why = format!("it has room for {free}, and twice the scratch file's {size} is needed");
        return Err(io::Error::new(io::ErrorKind::StorageFull, why));
    }
    let name = format!(
        ".longshore-calibrate-{}-{}",
        std::process::id(),
        context.clock.wall_ns()
    );
    let name = PathBuf::from(name);
    let file = dir.open(&name, OpenHow::CreateNew)?;
    dir.remove_file(&name)?;
    // A hole would be read from nowhere, and blocks that are equal may be kept once.
    let mut block = vec![0_u8; BLOCK];
    let mut state = context.clock.wall_ns() as u64 | 1;
    let mut at = 0;
    while at < options.size {
        for word in block.chunks_exact_mut(8) {
            // Marsaglia's generator: any bytes that do not repeat.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let len = (options.size - at).min(BLOCK as u64);
        file.write_all_at(&block[..len as usize], at, Via::Direct)?;
        at += len;
    }
    file.sync()?;
    // Its bytes were written past the cache; some file systems keep them there all the same.
    if file.is_cached(0..BLOCK as u64) {
        let why = "its file system keeps what is written in memory, and would be measured instead of a device";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(file)
}

fn unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Bytes => "bytes",
        Kind::Commands => "commands",
    }
}

/// Units for a second of a rate in units for a µs.
fn per_s(per_us: f64) -> f64 {
    per_us * 1e6
}

fn course_text(op: Op, kind: Kind, course: Course) -> Option<String> {
    let (fall, is_limit) = fall_of(course)?;
    let shown = |count: f64| match kind {
        Kind::Bytes => bytes(count as u64),
        Kind::Commands => format!("{count:.0}"),
    };
    let (first, then) = (shown(per_s(fall.before)), shown(per_s(fall.after)));
    let (excess, unit) = (shown(fall.excess), unit(kind));
    Some(match (op, is_limit) {
        (Op::Read, true) => format!(
            "limit of {unit}: {then} a second; a burst has {first} a second, until {excess} are used up\n"
        ),
        (Op::Write, true) => format!(
            "a buffer takes {first} a second until it holds {excess}, then {then} a second\n"
        ),
        (_, false) => format!(
            "{unit} a second by {}s fell from {first} to {then}, after {excess} more than at the lower rate; after a rest this did \
             not come back as it would if the device did it: it may be another user, a cache or heat\n",
            op.noun()
        ),
    })
}

/// A fall, and whether the device itself does it.
fn fall_of(course: Course) -> Option<(Fall, bool)> {
    match course {
        Course::Even => None,
        Course::Limited(fall) => Some((fall, true)),
        Course::Fell(fall) => Some((fall, false)),
    }
}

fn told((op, kind, course): &(Op, Kind, Course)) -> Option<CourseAnswer> {
    let (fall, is_limit) = fall_of(*course)?;
    Some(CourseAnswer {
        op: op.noun(),
        unit: unit(*kind),
        first_per_s: per_s(fall.before),
        then_per_s: per_s(fall.after),
        excess: fall.excess,
        is_limit,
    })
}

fn fitted(measured: &Measured) -> Result<AcceptedProfile, FitRefusal> {
    let reads = calibrate::fit(&measured.reads, measured.known)?;
    match &measured.writes {
        Some((points, facts)) => calibrate::fit_writes(reads, points, *facts),
        None => Ok(reads),
    }
}

fn table(residuals: &[Residual]) -> String {
    let mut table = Table::new(&[
        "",
        "Bytes",
        "At a time",
        "Measured us",
        "Model us",
        "Off by %",
    ]);
    for residual in residuals {
        table.row(vec![
            residual.point.op.noun().to_owned(),
            residual.point.len_bytes.to_string(),
            residual.point.depth.to_string(),
            format!("{:.1}", residual.point.mean_us),
            format!("{:.1}", residual.predicted_us),
            format!("{:+.0}", residual.error() * 100.0),
        ]);
    }
    table.to_string()
}
