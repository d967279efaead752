//! A shadow policy next to an active one.

use crate::{LINE, Random, disk, settings, start};

/// With the active policy as its shadow: the shadow may not differ by a byte if fills are not dropped.
#[test]
fn a_shadow_of_the_policy_at_work_would_do_what_was_done() {
    for policy in ["none", "none+arc", "slow"] {
        let disk = disk(1, 640, 20, 16 << 10);
        let (cached, _) = start(&disk, settings(policy)).unwrap();
        let mut random = Random(1);
        let mut work = |count| {
            for _ in 0..count {
                let offset = random.below(600) * LINE as u64;
                let len = LINE * (1 + random.below(8) as usize);
                match random.below(4) {
                    0 => cached.write(&vec![1; len], offset, false).unwrap(),
                    _ => cached.read(&mut vec![0; len], offset).unwrap(),
                }
            }
        };
        // A policy that remembers evicted blocks can be followed from its beginning only.
        let early = if policy.ends_with("arc") { 0 } else { 300 };
        work(early);
        cached.set_shadow(Some(policy.parse().unwrap())).unwrap();
        work(1000);
        let told = cached.shadow().unwrap();
        assert!(told.did.reads > 500, "{told:?}");
        assert_eq!(told.would, told.did, "{policy}");
        cached.set_shadow(None).unwrap();
        assert!(cached.shadow().is_none());
    }
}

/// A write of less than a line takes the only line of a block from the cache; the slot is free then, for the shadow as
/// for the policy at work.
#[test]
fn a_shadow_gives_up_blocks_without_lines() {
    for policy in ["none", "none+arc"] {
        let disk = disk(1, 640, 20, 16 << 10);
        let (cached, _) = start(&disk, settings(policy)).unwrap();
        cached.set_shadow(Some(policy.parse().unwrap())).unwrap();
        let mut random = Random(2);
        for _ in 0..2000 {
            let offset = random.below(40) * 4 * LINE as u64;
            match random.below(3) {
                0 => cached.write(&[1; 100], offset + 50, false).unwrap(),
                _ => cached.read(&mut [0; LINE], offset).unwrap(),
            }
        }
        let told = cached.shadow().unwrap();
        assert!(told.did.hits > 200, "{told:?}");
        assert_eq!(told.would, told.did, "{policy}");
    }
}

/// A loop slightly longer than the cache: a policy that resists scans keeps some of it, LRU nothing.
#[test]
fn a_shadow_shows_the_content_that_another_policy_would_keep() {
    let disk = disk(1, 640, 20, 16 << 10);
    let (cached, _) = start(&disk, settings("none+lru")).unwrap();
    cached
        .set_shadow(Some("none+larc".parse().unwrap()))
        .unwrap();
    for round in 0..40 {
        // Twice, so that it is soon seen again.
        for block in 0..24 {
            for _ in 0..if block < 12 { 2 } else { 1 } {
                let offset = (block * 4 * LINE) as u64;
                cached.read(&mut [0; 4 * LINE], offset).unwrap();
            }
        }
        assert!(round < 40);
    }
    let told = cached.shadow().unwrap();
    assert_eq!(told.policy, "none+larc");
    assert!(told.would.hits > told.did.hits, "{told:?}");
    assert!(told.would.fill_bytes < told.did.fill_bytes, "{told:?}");
}
