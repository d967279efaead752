//! The backups whose state a run of `verify --all` knows.
//!
//! A set may lie in several places, and others may take its place: what is known of one is known of the very stripes.

use std::collections::BTreeMap;

use longshore_repository::SetIdentity;
use uuid::Uuid;

/// The backups that are known to be good, and those that are known not to be.
#[derive(Default)]
pub(super) struct Judged {
    good: BTreeMap<Uuid, SetIdentity>,
    bad: BTreeMap<Uuid, SetIdentity>,
}

impl Judged {
    pub(super) fn note(&mut self, identity: SetIdentity, is_good: bool) {
        let (into, other) = match is_good {
            true => (&mut self.good, &mut self.bad),
            false => (&mut self.bad, &mut self.good),
        };
        other.remove(&identity.set);
        into.insert(identity.set, identity);
    }

    pub(super) fn is_good(&self, identity: &SetIdentity) -> bool {
        self.good.get(&identity.set) == Some(identity)
    }

    pub(super) fn is_bad(&self, identity: &SetIdentity) -> bool {
        self.bad.get(&identity.set) == Some(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: neither a copy of the directory under another label nor other stripes under the same one are believed to be
    /// what was read.
    #[test]
    fn what_is_known_of_a_set_is_not_known_of_its_copies() {
        let identity = |second: u32, imprint: &str| SetIdentity {
            label: format!("20270131T0200{second:02}Z-full-1a2b3c4d")
                .parse()
                .unwrap(),
            set: Uuid::from_u128(7),
            imprint: imprint.to_owned(),
        };
        let read = identity(1, "aa");
        for is_good in [true, false] {
            let mut judged = Judged::default();
            judged.note(read.clone(), is_good);
            assert_eq!(judged.is_good(&read), is_good);
            assert_eq!(judged.is_bad(&read), !is_good);
            for other in [identity(2, "bb"), identity(2, "aa"), identity(1, "bb")] {
                assert!(!judged.is_good(&other) && !judged.is_bad(&other));
            }
            judged.note(read.clone(), !is_good);
            assert_eq!(judged.is_good(&read), !is_good);
        }
    }
}
