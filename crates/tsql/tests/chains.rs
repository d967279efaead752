//! Restore chains of a cluster whose sets are made up: what is kept, what is refused, what the server is told.

mod common;

use std::path::Path;

use common::{Stage, cluster, run, said};
use longshore_pipeline::SourceSpec;

/// With a configured cluster `main`, a full set and a log set of it.
fn stage() -> Stage {
    let mut stage = Stage::new();
    // Nothing asks the source: it is the name that is configured.
    let nowhere = SourceSpec::Files(vec![stage.path("nowhere")]);
    stage.more.push(("main", nowhere));
    cluster::full(&stage.path("full.bak"));
    cluster::log(&stage.path("log.bak"));
    stage
}

fn settings(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("postgresql.auto.conf")).unwrap()
}

const OFF: &str = "\narchive_mode = 'off'\n";

#[test]
fn a_copy_archives_nothing_and_what_returns_to_its_place_does() {
    let stage = stage();
    let here = stage.dir.path().display().to_string();
    let done = |statements: &str| {
        let record = run(&mut stage.session(), &statements.replace("HERE", &here));
        let failed = record.messages().any(|m| m.is_error());
        assert!(!failed, "{statements}: {:?}", said(&record));
        said(&record).join("\n")
    };
    let full = "RESTORE DATABASE main FROM DISK = 'full.bak' WITH REPLACE, MOVE 'main' TO";
    let lines = done(&format!("{full} 'HERE/copy'"));
    assert!(lines.contains("it archives nothing"), "{lines}");
    assert!(settings(&stage.path("copy")).contains(OFF));
    // A copy stays one, whose name ever it is restored under.
    done(&format!("{full} 'HERE/copy'"));
    assert!(settings(&stage.path("copy")).contains(OFF));
    let other = full.replace("DATABASE main", "DATABASE other");
    done(&format!("{other} 'HERE/other'"));
    assert!(settings(&stage.path("other")).contains(OFF));

    // Log set by log set it is the same, and stays so when it is let go.
    let log = "RESTORE LOG main FROM DISK = 'log.bak' WITH RECOVERY";
    let lines = done(&format!("{full} 'HERE/steps', NORECOVERY; {log}"));
    assert!(lines.contains("it archives nothing"), "{lines}");
    let text = settings(&stage.path("steps"));
    assert!(
        text.contains(OFF) && text.contains("longshore_log"),
        "{text}"
    );

    // Where the original stood.
    let place = stage.path("original");
    std::fs::create_dir_all(place.join("global")).unwrap();
    std::fs::write(place.join("global/pg_control"), cluster::control()).unwrap();
    std::fs::write(place.join("postgresql.auto.conf"), "work_mem = '8MB'\n").unwrap();
    let lines = done(&format!("{full} 'HERE/original', NORECOVERY; {log}"));
    assert!(!lines.contains("it archives nothing"), "{lines}");
    let text = settings(&place);
    assert!(
        text.contains("work_mem = '4MB'") && !text.contains("archive_mode"),
        "{text}"
    );
    // Under another name it is another database.
    done(&format!("{other} 'HERE/original'"));
    assert!(settings(&place).contains(OFF));
}
