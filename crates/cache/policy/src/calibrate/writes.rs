//! Fits what a profile says of writes to measured latencies, after its reads were fitted.
//!
//! Two kinds of devices are tried: one whose units write before the request is done, and one with a buffer that takes a
//! write at once. How large a buffer is shows only if the rate of writes falls; otherwise it held all that was written.
//!
//! Invariants
//! - Nothing that is known of reads changes.
//! - A profile is accepted only if writes are predicted as well as reads must be.
//!
//! Leaves to others: reads (`fit.rs`), the descent (`search.rs`).

use super::Point;
use super::course::Fall;
use super::fit::{AcceptedProfile, FitRefusal, checked};
use super::search::{Move, SHARE, near, residuals, search};
use crate::model::{Op, Profile, WriteBuffer};

/// Reads and writes together move this many times as much as the better of them alone, if each has a link of its own.
const OWN_LINKS: f64 = 1.5;

/// Facts about writes besides the cells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WriteFacts {
    /// Reads and writes of one size and depth at the same time.
    pub together: [Point; 2],
    /// The fall of the rate of writes, in bytes, as a buffer that fills makes it.
    pub fall: Option<Fall>,
}

/// The nearest profile with writes.
pub fn fit_writes(
    reads: AcceptedProfile,
    points: &[Point],
    facts: WriteFacts,
) -> Result<AcceptedProfile, FitRefusal> {
    checked(points)?;
    let best_of = |points: &mut dyn Iterator<Item = &Point>| {
        let rates = points.map(Point::bytes_per_us);
        rates.fold(f64::MIN_POSITIVE, f64::max)
    };
    // Cells without credit say nothing of the link.
    let is_limited = reads
        .profile
        .byte_credit
        .or(reads.profile.command_credit)
        .is_some();
    let write_link = match is_limited {
        true => reads.profile.read_link,
        false => best_of(&mut points.iter()),
    };
    let moved: f64 = facts.together.iter().map(Point::bytes_per_us).sum();
    let shape = |p: &Point| (p.len_bytes, p.depth);
    let alike = |p: &&Point| shape(p) == shape(&facts.together[0]);
    let read = reads.residuals.iter().map(|one| &one.point);
    let shared_link = moved < OWN_LINKS * best_of(&mut read.chain(points).filter(alike));
    let plain = Profile {
        write_link,
        shared_link,
        ..reads.profile.clone()
    };
    let written = points.iter().map(|p| (p.count * p.len_bytes) as f64);
    let shortest = points.iter().min_by_key(|p| (p.len_bytes, p.depth));
    let ack_us = shortest.map_or(reads.profile.fixed_us, |p| p.mean_us);
    let in_units = f64::from(plain.units) * f64::from(plain.chunk_bytes);
    let (bytes, drained) = match facts.fall {
        Some(fall) => (fall.excess, fall.after),
        None => (written.fold(0.0, f64::max), write_link),
    };
    let buffered = Profile {
        write_us: in_units / drained,
        write_buffer: Some(WriteBuffer {
            bytes: bytes.max(in_units),
            ack_us,
        }),
        ..plain.clone()
    };
    let mut moves = vec![WRITE_TIME];
    moves.extend((!is_limited).then_some(WRITE_LINK));
    let unbuffered = search(plain, &moves, points);
    let (profile, _) = match is_limited {
        // A buffer would take writes past the limits.
        true => unbuffered,
        false => {
            let buffered = search(buffered, &[WRITE_LINK, ACK, WRITE_TIME], points);
            match buffered.1 < unbuffered.1 {
                true => buffered,
                false => unbuffered,
            }
        }
    };
    let written = residuals(&profile, points);
    if near(&written) < SHARE {
        return Err(FitRefusal::Far {
            op: Op::Write,
            near: near(&written),
            residuals: written,
        });
    }
    let residuals = [reads.residuals, written].concat();
    Ok(AcceptedProfile {
        profile,
        near: near(&residuals),
        residuals,
    })
}

const WRITE_LINK: Move = |p, factor| {
    Some(Profile {
        write_link: p.write_link * factor,
        ..p.clone()
    })
};
const WRITE_TIME: Move = |p, factor| {
    Some(Profile {
        write_us: p.write_us * factor,
        ..p.clone()
    })
};
const ACK: Move = |p, factor| {
    let buffer = p.write_buffer?;
    Some(Profile {
        write_buffer: Some(WriteBuffer {
            ack_us: buffer.ack_us * factor,
            ..buffer
        }),
        ..p.clone()
    })
};
