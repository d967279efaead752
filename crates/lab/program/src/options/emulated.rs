//! Options of studies that can be made on emulated devices.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//!
//! Leaves to others: the devices (`longshore-studies`).

use std::num::NonZeroU64;
use std::time::Duration;

use clap::Args;
use longshore_studies::paced::{DeviceRate, EmulatedVolumes};
use longshore_terminal::values;

/// A slower device would keep one write of a stripe waiting for many seconds.
const LEAST: u64 = 1 << 20;
const LATENCY_MAX: Duration = Duration::from_secs(1);

/// Devices with stated rates instead of the machine's own.
#[derive(Debug, Clone, Args)]
pub struct EmulateOptions {
    /// Make each --dir a device that takes at most RATE bytes a second.
    ///
    /// For instance 200M, or 200M,0.5ms with a latency for each request. Several directories of one drive then stand for
    /// several drives, as long as the drive is faster than all of them together. Every caption says that they are emulated.
    /// By default the directories are what they are.
    #[arg(long, value_name = "RATE[,LATENCY]", value_parser = device)]
    pub emulate: Option<DeviceRate>,

    /// With --emulate: the source is such a device, too.
    ///
    /// Its bytes are then read at this rate, in the page cache or not. By default the source is as fast as it is.
    #[arg(long, value_name = "RATE[,LATENCY]", value_parser = device, requires = "emulate")]
    pub emulate_source: Option<DeviceRate>,
}

impl EmulateOptions {
    pub fn rates(&self) -> Option<EmulatedVolumes> {
        let source = self.emulate_source;
        self.emulate
            .map(|target| EmulatedVolumes { target, source })
    }
}

/// `200M` or `200M,0.5ms`.
fn device(text: &str) -> Result<DeviceRate, String> {
    let (rate, latency) = match text.split_once(',') {
        Some((rate, latency)) => (rate, Some(latency)),
        None => (text, None),
    };
    let bytes = values::positive_size(rate)?;
    let fast_enough = NonZeroU64::new(bytes).filter(|rate| rate.get() >= LEAST);
    Ok(DeviceRate {
        bytes_per_s: fast_enough.ok_or("the least rate of a device is 1M a second")?,
        latency: latency.map_or(Ok(Duration::ZERO), short_time)?,
    })
}

/// `0.5ms`, `100us`.
fn short_time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let wrong = || format!("{text:?} is no latency; write such as 0.5ms or 100us");
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(unit.ok_or_else(wrong)?);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        _ => return Err(wrong()),
    };
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    match time > LATENCY_MAX {
        true => Err("a device answers within a second".into()),
        false => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_rate_and_may_have_a_latency() {
        let told = |text| device(text).map(|device| device.to_string());
        assert_eq!(told("200M").unwrap(), "200 MB/s");
        assert_eq!(told("1.5G,0.5ms").unwrap(), "1536 MB/s and 0.5 ms");
        assert_eq!(told("1M,100us").unwrap(), "1 MB/s and 0.1 ms");
        for wrong in [
            "",
            "0",
            "100K",
            "200M,",
            "200M,5",
            "200M,2000ms",
            "200M,-1ms",
            "x,1ms",
        ] {
            assert!(device(wrong).is_err(), "{wrong}");
        }
    }
}
