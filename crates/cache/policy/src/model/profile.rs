//! The parameters of devices, and the pairs of them that are studied.
//!
//! Invariants
//! - A profile says how far it can be trusted. Calibrated profiles are fitted to published measurements, and tests hold
//!   them to these; provisional ones come from data sheets, and nothing may quote them as facts about a device.
//! - Times are in µs, sizes in bytes, rates in bytes/µs.
//! - Every pair names two profiles that exist.
//!
//! Leaves to others: how the parameters act (`device.rs`), and measuring a device of one's own (`calibrate`).

/// How far a profile can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfileTrust {
    /// Fitted to published measurements of this device.
    Calibrated,
    /// From data sheets, or guessed: for what-if studies, never to be quoted as a fact about a device.
    Provisional,
}

/// Rare long service times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tail {
    /// Chance for a chunk, 0 to 1.
    pub chance: f64,
    /// The additional time, in µs.
    pub extra_us: f64,
}

/// Memory in front of flash that acknowledges writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WriteBuffer {
    pub bytes: f64,
    /// From submission to acknowledgement of an empty write while there is room, in µs.
    pub ack_us: f64,
}

/// A limit that a device may exceed for a while: a token bucket, as volumes of clouds have. It is full when the device begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Credit {
    /// Units that come back in a µs: the rate that lasts.
    pub per_us: f64,
    /// The most units that are kept.
    pub most: f64,
}

/// One kind of device. Times in µs, sizes in bytes, rates in bytes/µs (10^6 bytes/s).
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub name: &'static str,
    pub standing: ProfileTrust,
    /// Chunks served at the same time.
    pub units: u32,
    pub chunk_bytes: u32,
    /// A unit's time for a chunk.
    pub read_us: f64,
    pub write_us: f64,
    /// Latency that occupies no station.
    pub fixed_us: f64,
    pub read_link: f64,
    pub write_link: f64,
    /// Reads and writes share one link; otherwise each has its own.
    pub shared_link: bool,
    /// The largest command.
    pub command_bytes: u32,
    /// Time of the command server for a command.
    pub command_us: f64,
    /// Standard deviation of the logarithm of a unit's time.
    pub jitter: f64,
    pub tail: Option<Tail>,
    pub write_buffer: Option<WriteBuffer>,
    /// A limit of bytes, and one of commands, of reads and writes together; only without a buffer.
    pub byte_credit: Option<Credit>,
    pub command_credit: Option<Credit>,
}

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

/// The common values of most profiles: no jitter, no tail, no buffer, no limits, a link for each direction.
const PLAIN: Profile = Profile {
    name: "",
    standing: ProfileTrust::Provisional,
    units: 1,
    chunk_bytes: 4 * KIB,
    read_us: 1.0,
    write_us: 1.0,
    fixed_us: 0.0,
    read_link: 1.0,
    write_link: 1.0,
    shared_link: false,
    command_bytes: MIB,
    command_us: 0.0,
    jitter: 0.0,
    tail: None,
    write_buffer: None,
    byte_credit: None,
    command_credit: None,
};

const fn tail(chance: f64, extra_us: f64) -> Option<Tail> {
    Some(Tail { chance, extra_us })
}

const fn buffer(bytes: f64, ack_us: f64) -> Option<WriteBuffer> {
    Some(WriteBuffer { bytes, ack_us })
}

/// All profiles.
pub static PROFILES: &[Profile] = &[
    Profile {
        name: "optane-905p",
        standing: ProfileTrust::Calibrated,
        units: 7,
        read_us: 6.8,
        write_us: 7.5,
        fixed_us: 1.6,
        read_link: 2550.0,
        write_link: 2200.0,
        shared_link: true,
        command_bytes: 128 * KIB,
        command_us: 0.2,
        jitter: 0.06,
        ..PLAIN
    },
    Profile {
        name: "optane-p4800x",
        standing: ProfileTrust::Calibrated,
        units: 7,
        read_us: 5.4,
        write_us: 6.0,
        fixed_us: 1.6,
        read_link: 2420.0,
        write_link: 2000.0,
        shared_link: true,
        command_bytes: 128 * KIB,
        command_us: 0.2,
        jitter: 0.06,
        tail: tail(1e-5, 40.0),
        ..PLAIN
    },
    Profile {
        name: "samsung-970pro",
        standing: ProfileTrust::Calibrated,
        units: 64,
        chunk_bytes: 16 * KIB,
        read_us: 60.0,
        write_us: 400.0,
        fixed_us: 11.0,
        read_link: 3500.0,
        write_link: 2700.0,
        command_bytes: 2 * MIB,
        command_us: 1.9,
        jitter: 0.10,
        tail: tail(8e-4, 1500.0),
        write_buffer: buffer(1e9, 11.0),
        ..PLAIN
    },
    Profile {
        name: "nvme-pcie5",
        units: 256,
        chunk_bytes: 16 * KIB,
        read_us: 52.0,
        write_us: 400.0,
        fixed_us: 6.0,
        read_link: 13_500.0,
        write_link: 10_000.0,
        command_bytes: 512 * KIB,
        command_us: 0.30,
        jitter: 0.10,
        tail: tail(3e-4, 700.0),
        write_buffer: buffer(1e9, 15.0),
        ..PLAIN
    },
    Profile {
        name: "sata-ssd",
        units: 16,
        chunk_bytes: 16 * KIB,
        read_us: 75.0,
        write_us: 400.0,
        fixed_us: 40.0,
        read_link: 540.0,
        write_link: 500.0,
        command_bytes: 512 * KIB,
        command_us: 10.0,
        jitter: 0.10,
        tail: tail(1e-3, 1500.0),
        write_buffer: buffer(2.5e8, 40.0),
        ..PLAIN
    },
    Profile {
        name: "ebs-gp3-base",
        units: 64,
        chunk_bytes: 256 * KIB,
        read_us: 480.0,
        write_us: 480.0,
        fixed_us: 80.0,
        read_link: 131.0,
        write_link: 131.0,
        shared_link: true,
        command_bytes: 256 * KIB,
        command_us: 333.0,
        jitter: 0.20,
        tail: tail(3e-3, 4000.0),
        ..PLAIN
    },
    Profile {
        name: "ebs-gp3-max",
        units: 256,
        chunk_bytes: 256 * KIB,
        read_us: 480.0,
        write_us: 480.0,
        fixed_us: 80.0,
        read_link: 2097.0,
        write_link: 2097.0,
        shared_link: true,
        command_bytes: 256 * KIB,
        command_us: 12.5,
        jitter: 0.20,
        tail: tail(3e-3, 4000.0),
        ..PLAIN
    },
    Profile {
        name: "ec2-local-nvme",
        units: 24,
        chunk_bytes: 16 * KIB,
        read_us: 85.0,
        write_us: 400.0,
        fixed_us: 12.0,
        read_link: 1150.0,
        write_link: 560.0,
        command_bytes: 256 * KIB,
        command_us: 4.3,
        jitter: 0.12,
        tail: tail(5e-4, 900.0),
        write_buffer: buffer(2.5e8, 12.0),
        ..PLAIN
    },
    Profile {
        name: "cxl-memory",
        units: 8,
        read_us: 0.25,
        write_us: 0.25,
        fixed_us: 0.6,
        read_link: 22_000.0,
        write_link: 20_000.0,
        command_bytes: u32::MAX,
        command_us: 0.02,
        jitter: 0.05,
        ..PLAIN
    },
    Profile {
        name: "dram",
        units: 16,
        read_us: 0.08,
        write_us: 0.08,
        fixed_us: 0.4,
        read_link: 60_000.0,
        write_link: 60_000.0,
        command_bytes: u32::MAX,
        command_us: 0.01,
        jitter: 0.03,
        ..PLAIN
    },
];

impl Profile {
    /// The profile of that name, if there is one.
    pub fn named(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|p| p.name == name)
    }
}

/// A fast device in front of a slow one.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    pub fast: &'static str,
    pub slow: &'static str,
    pub about: &'static str,
}

/// The pairs that are studied.
pub static PAIRS: &[Pair] = &[
    Pair {
        fast: "optane-905p",
        slow: "samsung-970pro",
        about: "the published study's pair: low latency in front of more bandwidth",
    },
    Pair {
        fast: "optane-p4800x",
        slow: "sata-ssd",
        about: "a true hierarchy",
    },
    Pair {
        fast: "nvme-pcie5",
        slow: "ebs-gp3-base",
        about: "a true hierarchy over a network volume",
    },
    Pair {
        fast: "ec2-local-nvme",
        slow: "ebs-gp3-max",
        about: "reversed: the network volume has more bandwidth than the local device",
    },
    Pair {
        fast: "cxl-memory",
        slow: "nvme-pcie5",
        about: "memory in front of flash",
    },
];
