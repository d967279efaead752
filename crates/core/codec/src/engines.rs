//! The engines found on this host, for status views and `--verbose`.

use crate::deflate::{self, Isal};
use crate::{lz4, zstd};

/// One engine: its version, and its use on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFact {
    /// The name that [`Compressor::engine`](crate::Compressor::engine) returns.
    pub name: &'static str,
    /// `built in` for our own, `unknown` if the library does not report it.
    pub version: String,
    /// The widest vectors of this CPU that the engine has code for; `-` for none.
    pub instructions: &'static str,
    /// Algorithms and levels, for people.
    pub serves: String,
    /// Why it is not in use on this host; `None` if it is.
    pub absent: Option<String>,
}

/// All engines this program knows, found or not. Loads and tests ISA-L on first use.
pub fn engines() -> Vec<EngineFact> {
    let fact = |name, version: &str, instructions, serves: &str| EngineFact {
        name,
        version: version.to_owned(),
        instructions,
        serves: serves.to_owned(),
        absent: None,
    };
    let isal = Isal::load();
    let mut facts = vec![EngineFact {
        absent: isal.err().map(str::to_owned),
        ..fact(
            deflate::isal::NAME,
            isal.map_or("unknown", |isal| &isal.version),
            vectors(),
            "QAT_DEFLATE levels 1 to 3 and restore",
        )
    }];
    #[cfg(feature = "libdeflate")]
    facts.push(fact(
        deflate::libdeflate::NAME,
        deflate::libdeflate::VERSION,
        vectors(),
        if isal.is_ok() {
            "QAT_DEFLATE levels 5 to 12"
        } else {
            "QAT_DEFLATE, all levels but 4, and restore"
        },
    ));
    facts.push(fact(
        deflate::own::NAME,
        "built in",
        "-",
        "QAT_DEFLATE level 4",
    ));
    let spare = match (isal.is_ok(), cfg!(feature = "libdeflate")) {
        (_, true) => "QAT_DEFLATE when memory is short; judges ISA-L's self-test",
        (true, false) => "QAT_DEFLATE levels 5 to 12; judges ISA-L's self-test",
        (false, false) => "QAT_DEFLATE, all levels but 4, and restore",
    };
    facts.push(fact(deflate::miniz::NAME, "0.9", "-", spare));
    facts.push(fact("zstd", zstd::version(), "-", "ZSTD levels -7 to 22"));
    facts.push(fact("lz4", &lz4::version(), "-", "LZ4 levels 1 to 12"));
    facts.push(fact("xpress", "built in", "-", "MS_XPRESS levels 1 to 3"));
    facts.push(fact("pages", "built in", "-", "PAGES levels 1 to 3"));
    facts
}

/// The widest vectors of this CPU.
fn vectors() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("vpclmulqdq") {
            return "AVX-512";
        }
        if is_x86_feature_detected!("avx2") {
            return "AVX2";
        }
        "SSE"
    }
    #[cfg(not(target_arch = "x86_64"))]
    "-"
}
