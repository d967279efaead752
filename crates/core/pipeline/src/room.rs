//! Whether a run fits the system's limits, and how its size is reduced to fit.
//!
//! Fewer buffers need fewer workers, which open fewer files; smaller buffers need less memory. Both only cost time.
//! Without this check a run would be killed, or fail at some file in the middle.
//!
//! Invariants
//! - A size that was set explicitly is never changed, nor is the buffer size that media determine.
//! - A run that does not fit with its smallest sizes is refused with the number that it needs and the number that is
//!   allowed.
//! - Buffers are reduced in number first, then in size; size is not reduced to save open files.
//!
//! Leaves to others: the sizes of a run without limits (`plan.rs`), and reading the limits (`longshore-facts`).

use longshore_facts as facts;
use longshore_landing::FILES_OWN;

use crate::Error;
use crate::plan::{Demand, Sizes};

/// Files that a worker has open at a time: one with its second descriptor for direct transfers, and a directory.
const FILES_OF_WORKER: u64 = 3;
/// Files that a stripe has open.
const FILES_OF_STRIPE: u64 = 3;
/// Address space of a thread's stack.
const STACK_BYTES: u64 = 2 << 20;
/// The fewest buffers with which a run works.
const BUFFERS_MIN: usize = 1;
/// The smallest buffers that a backup chooses by itself.
const BUFFER_BYTES_MIN: usize = 64 << 10;

/// The limits for this run, beyond what the process already uses.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    files: Option<u64>,
    open: u64,
    memory: Option<u64>,
    addresses: Option<u64>,
}

impl Room {
    pub fn now() -> Room {
        let descriptors = facts::descriptors();
        Room {
            files: descriptors.allowed,
            open: descriptors.open,
            memory: facts::memory_allowed(),
            addresses: facts::address_space_left(),
        }
    }

    /// The largest sizes that fit, starting from `demand`. `more`: memory needed in addition, in bytes. Media
    /// determine their buffer size.
    ///
    /// Errors: [`Error::Room`].
    pub fn fit(&self, demand: &Demand, more: u64) -> Result<Sizes, Error> {
        let mut tuning = *demand.tuning;
        let streams = demand.streams;
        let fixed = demand.buffer_bytes_of_media.is_some();
        let (asked_count, asked_bytes) = (tuning.buffer_count, tuning.buffer_bytes);
        loop {
            let sizes = Sizes::decide(&Demand {
                tuning: &tuning,
                ..*demand
            });
            let Err(lacking) = self.check(&sizes, streams, more) else {
                return Ok(sizes);
            };
            if asked_count.is_none() && sizes.buffer_count > BUFFERS_MIN {
                tuning.buffer_count = Some(sizes.buffer_count - 1);
            } else if !fixed
                && asked_bytes.is_none()
                && sizes.buffer_bytes > BUFFER_BYTES_MIN
                && !matches!(lacking, Error::Room { what: FILES, .. })
            {
                tuning.buffer_bytes = Some(sizes.buffer_bytes / 2);
            } else {
                return Err(lacking);
            }
        }
    }

    fn check(&self, sizes: &Sizes, streams: usize, more: u64) -> Result<(), Error> {
        let (workers, streams) = (sizes.workers as u64, streams as u64);
        let memory = sizes.memory_bytes.saturating_add(more);
        let files = self.open + FILES_OWN + FILES_OF_WORKER * workers + FILES_OF_STRIPE * streams;
        let addresses = memory.saturating_add(STACK_BYTES * (workers + streams + 2));
        let limits = [
            (FILES, files, self.files),
            ("bytes of memory", memory, self.memory),
            ("bytes of address space", addresses, self.addresses),
        ];
        for (what, needed, allowed) in limits {
            if let Some(allowed) = allowed.filter(|allowed| needed > *allowed) {
                return Err(Error::Room {
                    what,
                    needed,
                    allowed,
                });
            }
        }
        Ok(())
    }
}

const FILES: &str = "open files";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Limits, Tuning};

    const EMPTY: Room = Room {
        files: None,
        open: 5,
        memory: None,
        addresses: None,
    };

    fn fit(room: &Room, tuning: Tuning, media_bytes: Option<usize>) -> Result<Sizes, Error> {
        let demand = Demand {
            tuning: &tuning,
            limits: &Limits::default(),
            devices: 1,
            volumes: 1,
            buffer_bytes_of_media: media_bytes,
            streams: 1,
            algorithm: longshore_codec::Algorithm::Zstd,
        };
        room.fit(&demand, 0)
    }

    #[test]
    fn a_run_takes_what_it_wants_where_it_may_and_less_where_less_is_allowed() {
        let free = fit(&EMPTY, Tuning::default(), None).unwrap();
        assert_eq!(free.buffer_bytes, 1 << 20);
        let tight = Room {
            files: Some(23),
            memory: Some(40_000_000),
            ..EMPTY
        };
        for media_bytes in [None, Some(1 << 20)] {
            let sizes = fit(&tight, Tuning::default(), media_bytes).unwrap();
            assert!(sizes.memory_bytes <= 40_000_000, "{sizes:?}");
            assert!(sizes.workers >= 1 && sizes.workers <= 2, "{sizes:?}");
        }
    }

    #[test]
    fn a_plan_that_does_not_fit_is_refused_with_its_need() {
        let asked = Tuning {
            buffer_count: Some(64),
            buffer_bytes: Some(4 << 20),
        };
        for (room, tuning, media_bytes, of) in [
            (
                Room {
                    files: Some(12),
                    ..EMPTY
                },
                Tuning::default(),
                None,
                "open files",
            ),
            (
                Room {
                    memory: Some(20 << 20),
                    ..EMPTY
                },
                Tuning::default(),
                None,
                "memory",
            ),
            (
                Room {
                    memory: Some(99 << 20),
                    ..EMPTY
                },
                asked,
                None,
                "memory",
            ),
            (
                Room {
                    memory: Some(32 << 20),
                    ..EMPTY
                },
                Tuning::default(),
                Some(4 << 20),
                "memory",
            ),
            (
                Room {
                    addresses: Some(20 << 20),
                    ..EMPTY
                },
                Tuning::default(),
                None,
                "address space",
            ),
        ] {
            let refused = fit(&room, tuning, media_bytes).unwrap_err();
            let Error::Room {
                what,
                needed,
                allowed,
            } = &refused
            else {
                panic!("{refused}");
            };
            assert!(what.contains(of) && needed > allowed, "{refused}");
        }
    }
}
