//! The processor, and the libraries that compress on it.

use longshore_codec::engines;
use longshore_facts as facts;

use super::checkup::Checkup;

const ABOUT: &str = "cpu";

pub fn examine() -> Vec<Checkup> {
    let model = facts::cpu_model().unwrap_or_else(|| "unknown processor".to_owned());
    let cores = facts::cores();
    let mut all = vec![Checkup::good(
        ABOUT,
        format!("{model}, {cores} processors for this program"),
    )];
    for engine in engines().iter().filter(|e| e.name == "isa-l") {
        all.push(match &engine.absent {
            None => Checkup::good(
                ABOUT,
                format!(
                    "ISA-L {} compresses QAT_DEFLATE with {}",
                    engine.version, engine.instructions
                ),
            ),
            Some(why) => Checkup::wanting(
                ABOUT,
                format!(
                    "ISA-L is not used, so QAT_DEFLATE takes several times the CPU time: {why}"
                ),
                "apt-get install libisal2, or dnf install isa-l",
            ),
        });
    }
    all
}
