//! Names of backups after the engine that really compressed them, which is not always the requested one.
//!
//! Invariant: a backup of which an accelerator left more than a rounding error to software shows the share in its name.
//!
//! Leaves to others: measuring the share (`timing.rs`), and what counts as hardware (the studies).

use longshore_pipeline::OffloadMode;

use crate::spread::RoundResults;
use crate::timing::{IN_HARDWARE, Timing};

/// From this share on, it is not shown in a backup's name.
const ALL_OF_IT: f64 = 0.9995;

/// The name of a backup with all its rounds. `software` is that of its algorithm without an accelerator, such as
/// `QAT_DEFLATE LOW`.
pub fn by_engine(software: &str, mode: OffloadMode, taken: &[Timing]) -> String {
    let wanted = match mode {
        OffloadMode::Software => return software.to_owned(),
        OffloadMode::Hybrid => "hybrid",
        _ => "hardware",
    };
    let shares = RoundResults::of(taken.iter().map(|t| 100.0 * t.accelerator_share()));
    let Some(shares) = shares else {
        return format!("{software} {wanted}");
    };
    let percent = match format!("{:.1}", shares.min) == format!("{:.1}", shares.max) {
        true => format!("{:.1}", shares.median),
        false => shares.range(1),
    };
    match wanted {
        _ if shares.max == 0.0 => format!("{software} software, {wanted} requested"),
        "hardware" if shares.min >= 100.0 * ALL_OF_IT => format!("{software} hardware"),
        "hardware" => format!("{software}, {percent} % in hardware"),
        _ => format!("{software} hybrid, {percent} % in hardware"),
    }
}

/// Whether the requested engine compressed a backup.
pub fn counts_as(mode: OffloadMode, taken: &Timing) -> bool {
    let share = taken.accelerator_share();
    match mode {
        OffloadMode::Software => share == 0.0,
        OffloadMode::Hybrid => share > 0.0,
        _ => share >= IN_HARDWARE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::tests::by_hardware;

    #[test]
    fn a_name_says_what_an_accelerator_left_to_software() {
        let named = |mode, thousandths: &[u64]| {
            let taken: Vec<Timing> = thousandths.iter().map(|n| by_hardware(*n)).collect();
            by_engine("QAT_DEFLATE", mode, &taken)
        };
        for (thousandths, name) in [
            (&[1000, 1000][..], "QAT_DEFLATE hardware"),
            (&[962], "QAT_DEFLATE, 96.2 % in hardware"),
            (&[381, 962], "QAT_DEFLATE, 38.1–96.2 % in hardware"),
            (&[0, 0], "QAT_DEFLATE software, hardware requested"),
            (&[], "QAT_DEFLATE hardware"),
        ] {
            assert_eq!(named(OffloadMode::Hardware, thousandths), name);
        }
        for (thousandths, name) in [
            (&[540][..], "QAT_DEFLATE hybrid, 54.0 % in hardware"),
            (&[1000], "QAT_DEFLATE hybrid, 100.0 % in hardware"),
            (&[0], "QAT_DEFLATE software, hybrid requested"),
        ] {
            assert_eq!(named(OffloadMode::Hybrid, thousandths), name);
        }
        assert_eq!(named(OffloadMode::Software, &[0]), "QAT_DEFLATE");
    }

    #[test]
    fn less_than_nine_tenths_is_no_hardware() {
        for (mode, thousandths, counts) in [
            (OffloadMode::Hardware, 900, true),
            (OffloadMode::Hardware, 899, false),
            (OffloadMode::Hybrid, 1, true),
            (OffloadMode::Hybrid, 0, false),
            (OffloadMode::Software, 0, true),
            (OffloadMode::Software, 1, false),
        ] {
            let counted = counts_as(mode, &by_hardware(thousandths));
            assert_eq!(counted, counts, "{mode:?} {thousandths}");
        }
    }
}
