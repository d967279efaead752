//! A backup scans the disk while a database works on it.

use longshore_blockcache::CachedBackend;

use crate::{LINE, Random, disk, settings, start};

const LINES: usize = 4000;
/// Lines that the database uses, out of `LINES`.
const HOT: u64 = 400;

/// Reads of 8 KiB in the hot part; returns the share of hits.
fn work(cached: &CachedBackend, random: &mut Random, count: u64) -> f64 {
    let before = cached.counters().hits;
    for _ in 0..count {
        let offset = random.below(HOT / 2) * 2 * LINE as u64;
        cached.read(&mut [0; 2 * LINE], offset).unwrap();
    }
    (cached.counters().hits - before) as f64 / count as f64
}

/// The share of hits before, during and after everything is read twice from beginning to end, 256 KiB at a time.
fn scanned(policy: &str) -> [f64; 3] {
    // Room for the hot part and a fifth more, of a tenth of the disk.
    let disk = disk(1, LINES, 30, 64 << 10);
    let (cached, _) = start(&disk, settings(policy)).unwrap();
    let mut random = Random(3);
    work(&cached, &mut random, 3000);
    let before = work(&cached, &mut random, 1000);
    let mut during = Vec::new();
    for offset in (0..2 * LINES as u64 - 64).step_by(64) {
        let offset = offset % (LINES as u64 - 64) * LINE as u64;
        cached.read(&mut vec![0; 64 * LINE], offset).unwrap();
        during.push(work(&cached, &mut random, 4));
    }
    let after = work(&cached, &mut random, 200);
    [
        before,
        during.iter().sum::<f64>() / during.len() as f64,
        after,
    ]
}

/// The loss depends on the policy's measurements of the devices, here two equally fast disks in memory; so the test
/// compares with a classic cache.
#[test]
fn a_scan_displaces_far_less_under_the_device_aware_policy() {
    let [aware_before, aware_during, aware_after] = scanned("aware");
    let [none_before, none_during, none_after] = scanned("none");
    let told = format!(
        "aware {aware_before} {aware_during} {aware_after}, none {none_before} {none_during} {none_after}"
    );
    println!("{told}");
    assert!(aware_before > 0.9 && none_before > 0.9, "{told}");
    assert!(1.0 - aware_after < (1.0 - none_after) / 2.0, "{told}");
}
