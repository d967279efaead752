use super::*;
use crate::policy::{self, Outlook};

const GIB: u64 = 1 << 30;
const MS: Nanos = 1_000_000;

fn simulate(pair: (&str, &str), mix: &str, name: &str) -> Outcome {
    let (fast, slow) = (
        Profile::named(pair.0).unwrap(),
        Profile::named(pair.1).unwrap(),
    );
    let mut filter = policy::named(name, Outlook::of(fast), Outlook::of(slow)).unwrap();
    let scenario = Scenario {
        fast,
        slow,
        mix: &mix.parse().unwrap(),
        region_bytes: GIB,
        cache_bytes: 2 * GIB,
        warm: true,
        warm_up: 100 * MS,
        measured: 400 * MS,
        seed: 7,
    };
    run(&scenario, &mut *filter)
}

const PAPER: (&str, &str) = ("optane-905p", "samsung-970pro");

#[test]
fn show() {
    for pair in [PAPER, ("ec2-local-nvme", "ebs-gp3-max")] {
        for mix in ["8x4k+6x512k", "32x4k", "8x512k", "32x4k+6x512k"] {
            for name in [
                "none", "slow", "split=30", "split=50", "split=70", "balance", "orthus", "aware",
            ] {
                let o = simulate(pair, mix, name);
                println!(
                    "{:15} {mix:14} {name:9} {:6.0} MB/s small {:6.0}us bulk {:6.0} fast {:.2}",
                    pair.0, o.throughput_mb_s, o.small_reads.mean, o.bulk_reads.mean, o.fast_share
                );
            }
        }
    }
}
