//! Databases that replay makes from directories which are gone: no base backup holds them, and ours says so.

use std::process::Command;

use longshore_test_servers::installations;

use crate::common::text;
use crate::live::place;
use crate::session::{begun, said, slow};
use crate::stage::{Stage, end};

pub const NOT_WHOLE: &str = "may not be whole in this backup";
/// Under a load that moves databases without pause, most backups are whole all the same.
const TRIES: u32 = 20;

/// Backs up until no database was lost to a move.
pub fn until_whole(mut backup: impl FnMut() -> Command) {
    for _ in 0..TRIES {
        let output = backup().output().unwrap();
        let said = text(&output.stderr);
        match output.status.code() {
            Some(5) if said.contains(NOT_WHOLE) => {}
            code => return assert_eq!(code, Some(0), "{said}"),
        }
    }
    panic!("{TRIES} backups and none whole");
}

/// Goal: a restore does not lose a database silently.
/// Method: databases are moved, copied, made and dropped while a slow backup runs. Those whose origin went are named,
/// nothing else is, and the next backup is whole. What PostgreSQL makes of the marked one depends on what was read before
/// it went; what is not named must be there.
#[test]
fn a_database_moved_meanwhile_is_named_and_the_set_marked() {
    let mut installations = installations();
    // The first is of a major that knows one way to copy; the last of one with two.
    if installations.len() > 2 {
        installations.drain(1..installations.len() - 1);
    }
    for installation in installations {
        let stage = Stage::new(&installation, &[]);
        let server = &stage.server;
        let location = place(&stage, "space").display().to_string();
        server.psql(&format!("create tablespace other location '{location}'"));
        for name in ["there", "back", "gone", "stays", "template_of"] {
            server.psql(&format!("create database {name}"));
        }
        server.psql("create table t as select repeat('x', 900) from generate_series(1, 10000) g");
        let strategy = match installation.major {
            14 => "",
            _ => "strategy file_copy",
        };

        let backup = begun(&stage, &mut slow(&stage, "moved.bak"));
        for statement in [
            "alter database there set tablespace other".to_owned(),
            "alter database back set tablespace other".to_owned(),
            "alter database back set tablespace pg_default".to_owned(),
            "alter database gone set tablespace other".to_owned(),
            "drop database gone".to_owned(),
            format!("create database copied template template_of {strategy}"),
            "drop database template_of".to_owned(),
            format!("create database sound template stays {strategy}"),
            "alter database sound set tablespace other".to_owned(),
            "alter database stays rename to stayed".to_owned(),
        ] {
            server.psql(&statement);
        }
        let said = said(backup, 5);
        for name in ["there", "back", "copied"] {
            assert!(
                said.contains(&format!("database {name} {NOT_WHOLE}")),
                "{said}"
            );
        }
        assert_eq!(said.matches(NOT_WHOLE).count(), 3, "{said}");

        let map = format!("{location}={location}.moved");
        let restored = |name: &str, code: i32| {
            let target = stage.path(&format!("{name}.restored"));
            let mut restore = crate::common::longshore(["restore"]);
            restore.arg(stage.path(name)).arg("--to").arg(&target);
            end(restore.args(["--tablespace-map", &map]), code);
            let server = stage.serve(&target);
            let connects = |database: &str| {
                let mut psql = server.command("psql");
                psql.args(["-d", database, "-c", "select 1"]);
                psql.output().unwrap().status.success()
            };
            let found = ["there", "back", "copied", "sound", "stayed"].map(connects);
            server.stop(longshore_test_servers::Stop::Fast);
            std::fs::remove_dir_all(&target).unwrap();
            std::fs::remove_dir_all(format!("{location}.moved")).unwrap();
            found
        };
        let found = restored("moved.bak", 5);
        println!(
            "PostgreSQL {}, there, back, copied: {found:?}",
            installation.major
        );
        assert_eq!(found[3..], [true, true]);
        end(&mut stage.backup("next.bak"), 0);
        assert_eq!(restored("next.bak", 0), [true; 5]);
    }
}
