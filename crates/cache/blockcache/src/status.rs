//! The state and content of a cache at one moment, for people, scripts and Prometheus.
//!
//! Invariants
//! - Names are part of the interface and do not change; each has its unit at its end.
//! - The numbers are read without stopping requests, so two of them may be of different moments.
//! - A cache that failed is shown as failed: the backend serves everything then.
//!
//! Leaves to others: counting (`meter.rs`), and asking over the socket (`control.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use longshore_policy::policy::{Choice, Gauges, Load, Side};
use serde::Serialize;

use crate::directory::Census;
use crate::geometry::LINE;
use crate::meter::{Counters, Latency};
use crate::start::Start;
use crate::store::Store;

#[derive(Debug, Clone, Serialize)]
pub struct Status {
    pub policy: String,
    pub backend_bytes: u64,
    /// `detached`, `attached`, or `failed`: given up, the backend serves everything.
    pub cache: &'static str,
    /// How the cache came to its content when it was attached.
    pub start: Option<Start>,
    pub capacity_bytes: u64,
    pub slot_bytes: u32,
    pub held_bytes: u64,
    /// How many of these would survive a crash.
    pub durable_bytes: u64,
    pub held_slots: u64,
    pub free_slots: u64,
    /// Slots out of use until the next start, because their medium cannot be trusted.
    pub retired_slots: u64,
    /// Errors and wrong bytes of the cache device since it was attached; at 16 it is given up.
    pub device_faults: u64,
    pub fast_in_flight_bytes: u64,
    pub fast_in_flight_requests: u64,
    pub slow_in_flight_bytes: u64,
    pub slow_in_flight_requests: u64,
    /// The time that the policy estimates to have saved.
    pub saved_us: f64,
    pub budget_bytes: Option<f64>,
    pub share: Option<f64>,
    pub drift: Option<[f64; 2]>,
    pub alarmed: bool,
    /// `fast` or `slow` while the policy's guard lets one side alone serve hits.
    pub only: Option<&'static str>,
}

impl Status {
    pub(crate) fn new(
        choice: &Choice,
        backend_bytes: u64,
        store: Option<&Arc<Store>>,
        slow: Load,
        census: Census,
        gauges: &Gauges,
    ) -> Status {
        let fast = store.map_or(Load::default(), |store| store.state.gauge.load());
        Status {
            policy: choice.to_string(),
            backend_bytes,
            cache: match store {
                None => "detached",
                Some(store) if store.has_failed() => "failed",
                Some(_) => "attached",
            },
            start: store.map(|store| store.start),
            capacity_bytes: store.map_or(0, |store| store.core().geometry().capacity_bytes()),
            slot_bytes: store.map_or(0, |store| store.geometry.slot_bytes),
            held_bytes: census.valid_lines * LINE,
            durable_bytes: census.durable_lines * LINE,
            held_slots: census.held_slots,
            free_slots: census.free_slots,
            retired_slots: census.retired_slots,
            device_faults: store.map_or(0, |store| store.state.errors.load(Relaxed)),
            fast_in_flight_bytes: fast.in_flight_bytes,
            fast_in_flight_requests: fast.in_flight_requests,
            slow_in_flight_bytes: slow.in_flight_bytes,
            slow_in_flight_requests: slow.in_flight_requests,
            saved_us: gauges.saved_us,
            budget_bytes: gauges.budget_bytes,
            share: gauges.share,
            drift: gauges.drift,
            alarmed: gauges.alarmed,
            only: gauges.only.map(|side| match side {
                Side::Fast => "fast",
                Side::Slow => "slow",
            }),
        }
    }

    /// Everything in the text format of Prometheus.
    pub fn prometheus(&self, counters: &Counters, reasons: &[(&'static str, u64)]) -> String {
        let mut text = String::new();
        let mut gauge = |name: &str, help: &str, value: f64| {
            text += &format!(
                "# HELP longshore_cache_{name} {help}\n# TYPE longshore_cache_{name} gauge\nlongshore_cache_{name} {value}\n"
            );
        };
        let attached = if self.cache == "attached" { 1.0 } else { 0.0 };
        gauge("attached", "1 while a cache is attached.", attached);
        gauge(
            "capacity_bytes",
            "Bytes that the cache can hold.",
            self.capacity_bytes as f64,
        );
        gauge(
            "held_bytes",
            "Bytes that the cache holds.",
            self.held_bytes as f64,
        );
        gauge(
            "durable_bytes",
            "Cached bytes that would survive a crash.",
            self.durable_bytes as f64,
        );
        gauge(
            "retired_slots",
            "Slots retired after errors of their device.",
            self.retired_slots as f64,
        );
        gauge(
            "device_faults",
            "Errors and wrong bytes of the cache device since it was attached.",
            self.device_faults as f64,
        );
        gauge(
            "fast_in_flight_bytes",
            "Bytes in flight on the cache device.",
            self.fast_in_flight_bytes as f64,
        );
        gauge(
            "slow_in_flight_bytes",
            "Bytes in flight on the backend.",
            self.slow_in_flight_bytes as f64,
        );
        gauge(
            "saved_seconds",
            "Seconds that the policy estimates to have saved.",
            self.saved_us / 1e6,
        );
        for (name, help, value) in counters.each() {
            text += &format!(
                "# HELP longshore_cache_{name}_total {}\n# TYPE longshore_cache_{name}_total counter\nlongshore_cache_{name}_total {value}\n",
                help.trim()
            );
        }
        text += "# HELP longshore_cache_decisions_total Requests, by the reason that decided them.\n# TYPE longshore_cache_decisions_total counter\n";
        for (reason, count) in reasons {
            text += &format!("longshore_cache_decisions_total{{reason=\"{reason}\"}} {count}\n");
        }
        histogram(&mut text, "read", "clients' reads", &counters.read_latency);
        histogram(
            &mut text,
            "write",
            "clients' writes",
            &counters.write_latency,
        );
        histogram(
            &mut text,
            "fast",
            "reads from the cache device",
            &counters.fast_latency,
        );
        histogram(
            &mut text,
            "slow",
            "reads from the backend",
            &counters.slow_latency,
        );
        text
    }
}

fn histogram(text: &mut String, name: &str, of: &str, latency: &Latency) {
    let name = format!("longshore_cache_{name}_seconds");
    *text += &format!("# HELP {name} Latency of {of}.\n# TYPE {name} histogram\n");
    let mut sum = 0;
    for (power, count) in latency.counts.iter().enumerate() {
        sum += count;
        let bound = match power + 1 < latency.counts.len() {
            true => format!("{}", (1u64 << power) as f64 / 1e6),
            false => "+Inf".to_owned(),
        };
        *text += &format!("{name}_bucket{{le=\"{bound}\"}} {sum}\n");
    }
    let seconds = latency.sum_us as f64 / 1e6;
    *text += &format!("{name}_sum {seconds}\n{name}_count {sum}\n");
}
