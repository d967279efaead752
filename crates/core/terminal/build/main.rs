//! Records the commit that is built, for `--version`.
//!
//! A debug build records none unless LONGSHORE_BUILD_COMMIT names it: otherwise each commit would compile both programs
//! again. Nothing else of the machine or the moment of the build is recorded, so equal sources give equal programs.

mod stamp;

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-env-changed=LONGSHORE_BUILD_COMMIT");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let given = std::env::var("LONGSHORE_BUILD_COMMIT").ok();
    let is_debug = std::env::var("PROFILE").as_deref() == Ok("debug");
    let stamp = match (given, is_debug) {
        (Some(given), _) => stamp::given(&given),
        (None, true) => "debug build".to_owned(),
        (None, false) => {
            for file in stamp::watched(&root) {
                println!("cargo::rerun-if-changed={}", file.display());
            }
            stamp::of_checkout(&root)
        }
    };
    println!("cargo::rustc-env=LONGSHORE_STAMP={stamp}");
}
