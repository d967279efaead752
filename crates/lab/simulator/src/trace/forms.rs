//! The forms of recorded traces: one line of each, and how a form is recognised by its first line.
//!
//! Invariants
//! - A line that is not of the form gives nothing, and the caller decides; no field is guessed.
//! - Times become nanoseconds and lengths bytes here, whatever the form's units.
//! - A request fits the address space and the bounds of a request or a discard.
//!
//! Leaves to others: reading files and sorting (`mod.rs`), and replaying (`replay.rs`).

use super::line::{DISCARD_MAX, Line, REQUEST_MAX, TraceFormat};
use crate::sim::Ask;
use longshore_policy::model::{Op, Request};

/// The form of a trace with this first line.
pub fn recognise(line: &str) -> Option<TraceFormat> {
    let headed = [
        ("t_us,op,", TraceFormat::Plain),
        ("version,time,", TraceFormat::CloudPhysics),
        ("Timestamp,Response,", TraceFormat::Systor),
        ("fio version ", TraceFormat::FioLog),
    ];
    if let Some((_, form)) = headed.iter().find(|(head, _)| line.starts_with(head)) {
        return Some(*form);
    }
    let bare = [
        TraceFormat::Msr,
        TraceFormat::Systor,
        TraceFormat::Plain,
        TraceFormat::CloudPhysics,
        TraceFormat::Tencent,
        TraceFormat::BlkParse,
        TraceFormat::DiskSim,
    ];
    let is = |form: &TraceFormat| {
        matches!(
            parse(*form, line),
            Some(Line::Request { .. } | Line::Skipped)
        )
    };
    bare.into_iter().find(is)
}

/// The content of a line; `None`: the line is not of this form.
pub fn parse(form: TraceFormat, line: &str) -> Option<Line> {
    match form {
        TraceFormat::Plain => plain(line),
        TraceFormat::CloudPhysics => cloud_physics(line),
        TraceFormat::Tencent => tencent(line),
        TraceFormat::Systor => systor(line),
        TraceFormat::Msr => msr(line),
        TraceFormat::DiskSim => disk_sim(line),
        TraceFormat::FioLog => fio(line),
        TraceFormat::BlkParse => blk_parse(line),
        TraceFormat::Numbers => None,
    }
}

fn fields<const N: usize>(line: &str, separator: char) -> Option<[&str; N]> {
    let mut all = line.split(separator).map(str::trim);
    let mut found = [""; N];
    for field in &mut found {
        *field = all.next()?;
    }
    all.next().is_none().then_some(found)
}

/// A time that is not negative, in ns.
fn time(text: &str, unit_ns: f64) -> Option<f64> {
    let time: f64 = text.parse().ok()?;
    (time.is_finite() && time >= 0.0).then_some(time * unit_ns)
}

fn sectors(text: &str) -> Option<u64> {
    text.parse::<u64>().ok()?.checked_mul(512)
}

/// A request that fits the address space; one without bytes is not replayed.
fn request(at: f64, op: Op, offset: u64, len: u64, took: Option<f64>) -> Option<Line> {
    if len == 0 {
        return Some(Line::Skipped);
    }
    offset.checked_add(len).filter(|end| *end <= 1 << 62)?;
    let ask = Ask::Io(Request {
        op,
        offset,
        len_bytes: len,
    });
    (len <= REQUEST_MAX).then_some(Line::Request { at, ask, took })
}

fn flush(at: f64, took: Option<f64>) -> Option<Line> {
    let ask = Ask::Flush;
    Some(Line::Request { at, ask, took })
}

/// A trimmed or zeroed range may be longer than a request.
fn discard(at: f64, offset: u64, len: u64, took: Option<f64>) -> Option<Line> {
    if len == 0 {
        return Some(Line::Skipped);
    }
    offset.checked_add(len).filter(|end| *end <= 1 << 62)?;
    let ask = Ask::Discard { offset, len };
    (len <= DISCARD_MAX).then_some(Line::Request { at, ask, took })
}

fn letter(op: &str) -> Option<Op> {
    match op {
        "R" | "r" | "Read" | "read" => Some(Op::Read),
        "W" | "w" | "Write" | "write" => Some(Op::Write),
        _ => None,
    }
}

fn plain(line: &str) -> Option<Line> {
    if line.starts_with("t_us,") {
        return Some(Line::Nothing);
    }
    let [at, op, offset, len, took] = fields(line, ',')?;
    let (at, took) = (time(at, 1e3)?, time(took, 1e3)?);
    let (offset, len) = (offset.parse().ok()?, len.parse().ok()?);
    match op {
        "F" => flush(at, Some(took)),
        "T" | "Z" => discard(at, offset, len, Some(took)),
        _ => request(at, letter(op)?, offset, len, Some(took)),
    }
}

fn cloud_physics(line: &str) -> Option<Line> {
    if line.starts_with("version,") {
        return Some(Line::Nothing);
    }
    let [_version, at, op, len, block] = fields(line, ',')?;
    let op = match op {
        "28" | "88" | "08" => Op::Read,
        "2a" | "2A" | "8a" | "8A" | "0a" | "0A" => Op::Write,
        // SYNCHRONIZE CACHE, of 10 and 16 bytes.
        "35" | "91" => return flush(time(at, 1e9)?, None),
        _ if op.len() == 2 && u8::from_str_radix(op, 16).is_ok() => return Some(Line::Skipped),
        _ => return None,
    };
    request(time(at, 1e9)?, op, sectors(block)?, len.parse().ok()?, None)
}

/// Different volumes lie this far apart.
const VOLUME_BYTES: u64 = 1 << 44;

fn volume(number: u64, offset: u64) -> Option<u64> {
    let offset = (offset < VOLUME_BYTES).then_some(offset)?;
    // 2^18 volumes fit; further ones share their places.
    Some(number % (1 << 17) * VOLUME_BYTES + offset)
}

fn tencent(line: &str) -> Option<Line> {
    let [at, offset, len, op, number] = fields(line, ',')?;
    let op = match op {
        "0" => Op::Read,
        "1" => Op::Write,
        _ => return None,
    };
    let offset = volume(number.parse().ok()?, sectors(offset)?)?;
    request(time(at, 1e9)?, op, offset, sectors(len)?, None)
}

fn systor(line: &str) -> Option<Line> {
    if line.starts_with("Timestamp,") {
        return Some(Line::Nothing);
    }
    let [at, took, op, lun, offset, len] = fields(line, ',')?;
    let offset = volume(lun.parse().ok()?, offset.parse().ok()?)?;
    // Some responses are missing in these traces.
    let took = if took.is_empty() {
        0.0
    } else {
        time(took, 1e9)?
    };
    request(
        time(at, 1e9)?,
        letter(op)?,
        offset,
        len.parse().ok()?,
        Some(took),
    )
}

fn msr(line: &str) -> Option<Line> {
    let [at, _host, disk, op, offset, len, took] = fields(line, ',')?;
    let offset = volume(disk.parse().ok()?, offset.parse().ok()?)?;
    // File times are too large for fractions of 100 ns; only differences count.
    let at = at.parse::<u64>().ok()? as f64 * 100.0;
    request(
        at,
        letter(op)?,
        offset,
        len.parse().ok()?,
        Some(time(took, 100.0)?),
    )
}

fn disk_sim(line: &str) -> Option<Line> {
    let mut fields = line.split_ascii_whitespace();
    let at = time(fields.next()?, 1.0)?;
    let device = fields.next()?.parse().ok()?;
    let offset = volume(device, sectors(fields.next()?)?)?;
    let len = sectors(fields.next()?)?;
    let op = match fields.next()? {
        "1" => Op::Read,
        "0" => Op::Write,
        _ => return None,
    };
    fields.next().is_none().then_some(())?;
    request(at, op, offset, len, None)
}

/// Version 2 has no times; version 3 begins with milliseconds.
fn fio(line: &str) -> Option<Line> {
    if line.starts_with("fio version ") {
        return Some(Line::Nothing);
    }
    let all: Vec<&str> = line.split_ascii_whitespace().take(6).collect();
    let timed = all.len() > 2 && all[0].parse::<u64>().is_ok();
    let (at, rest) = match timed {
        true => (time(all[0], 1e6)?, &all[1..]),
        false => (0.0, &all[..]),
    };
    match rest {
        [_, "add" | "open" | "close"] => Some(Line::Nothing),
        [_, "wait", _] => Some(Line::Skipped),
        [_, "sync" | "datasync", _, _] | [_, "sync" | "datasync"] => flush(at, None),
        [_, "trim", offset, len] => discard(at, offset.parse().ok()?, len.parse().ok()?, None),
        [_, "wait", _, _] => Some(Line::Skipped),
        [_, op, offset, len] => request(
            at,
            letter(op)?,
            offset.parse().ok()?,
            len.parse().ok()?,
            None,
        ),
        _ => None,
    }
}

/// `8,0 3 11 0.009507758 697 Q W 223490 + 8 [kjournald]`; any other action than Q is another stage of the same
/// request, and the text after the events is a summary.
fn blk_parse(line: &str) -> Option<Line> {
    let mut fields = line.split_ascii_whitespace();
    let device = fields.next()?;
    let Some((major, minor)) = device.split_once(',') else {
        let summary = [
            "CPU",
            "Total",
            "Reads",
            "Read",
            "Writes",
            "IO",
            "Throughput",
            "Events",
            "Skips",
            "Dispatch",
        ];
        return summary
            .iter()
            .any(|word| line.starts_with(word))
            .then_some(Line::Nothing);
    };
    let number = major
        .parse::<u64>()
        .ok()?
        .checked_mul(4096)?
        .checked_add(minor.parse().ok()?)?;
    let _cpu: u32 = fields.next()?.parse().ok()?;
    let _sequence: u64 = fields.next()?.parse().ok()?;
    let at = time(fields.next()?, 1e9)?;
    let _pid: u64 = fields.next()?.parse().ok()?;
    let (action, kind) = (fields.next()?, fields.next()?);
    if action != "Q" {
        return Some(Line::Nothing);
    }
    let place = fields.next().filter(|sector| !sector.starts_with('['));
    let Some(sector) = place else {
        // A flush alone has no offset.
        return match kind.contains('F') {
            true => flush(at, None),
            false => Some(Line::Skipped),
        };
    };
    let offset = volume(number, sectors(sector)?)?;
    (fields.next()? == "+").then_some(())?;
    let len = sectors(fields.next()?)?;
    match kind {
        _ if kind.contains('D') => discard(at, offset, len, None),
        _ if kind.contains('R') => request(at, Op::Read, offset, len, None),
        _ if kind.contains('W') => request(at, Op::Write, offset, len, None),
        _ => Some(Line::Skipped),
    }
}
