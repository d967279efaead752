//! Goal: PostgreSQL's own tool finds every kind of damage to a restored directory with the manifest that we wrote.
//! Method: restored directories of real servers are damaged in the ways of PostgreSQL's
//! `pg_verifybackup/t/003_corruption.pl`, one at a time, and `pg_verifybackup` must name the damage.

use std::fs;
use std::path::{Path, PathBuf};

use longshore_kit::{User, place, representatives};

use crate::stage::{Stage, refused, succeed};

/// A kind of damage, its reversal, and the message of `pg_verifybackup`.
struct Damage {
    name: &'static str,
    act: fn(&Cluster) -> Undo,
    says: &'static str,
}

type Undo = Box<dyn FnOnce()>;

/// A restored directory and the version directory of its tablespace.
struct Cluster {
    data: PathBuf,
    space: PathBuf,
}

impl Cluster {
    /// The tablespace's directory, reached through the data directory's link.
    fn in_space(&self) -> PathBuf {
        files_below(&self.space).remove(0)
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files_below(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

fn made(path: PathBuf) -> Undo {
    fs::write(&path, "x").unwrap();
    User::of_servers().own(&path);
    Box::new(move || fs::remove_file(path).unwrap())
}

fn taken(path: PathBuf) -> Undo {
    let aside = path.with_extension("aside-of-the-tree");
    // On the file system of the stages: a rename cannot leave a file system.
    let aside = place::root().join(format!(
        "lsaside{}-{}",
        std::process::id(),
        aside.file_name().unwrap().display()
    ));
    fs::rename(&path, &aside).unwrap();
    Box::new(move || fs::rename(aside, path).unwrap())
}

fn rewritten(path: PathBuf, change: fn(&mut Vec<u8>)) -> Undo {
    let before = fs::read(&path).unwrap();
    let mut after = before.clone();
    change(&mut after);
    fs::write(&path, after).unwrap();
    Box::new(move || fs::write(path, before).unwrap())
}

fn longer(bytes: &mut Vec<u8>) {
    bytes.push(0);
}

fn flipped(bytes: &mut [u8]) {
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
}

const DAMAGES: &[Damage] = &[
    Damage {
        name: "a file more",
        act: |c| made(c.data.join("extra_file")),
        says: "\"extra_file\" is present on disk but not in the manifest",
    },
    Damage {
        name: "a file more in a tablespace",
        act: |c| made(c.in_space().with_file_name("extra_file")),
        says: "is present on disk but not in the manifest",
    },
    Damage {
        name: "a file less",
        act: |c| taken(c.data.join("pg_xact/0000")),
        says: "\"pg_xact/0000\" is present in the manifest but not on disk",
    },
    Damage {
        name: "a file less in a tablespace",
        act: |c| taken(c.in_space()),
        says: "is present in the manifest but not on disk",
    },
    Damage {
        name: "longer",
        act: |c| rewritten(c.data.join("global/pg_filenode.map"), longer),
        says: "has size",
    },
    Damage {
        name: "shorter",
        act: |c| {
            rewritten(c.data.join("global/pg_control"), |bytes| {
                bytes.truncate(4096)
            })
        },
        says: "global/pg_control",
    },
    Damage {
        name: "empty",
        act: |c| rewritten(c.data.join("pg_xact/0000"), Vec::clear),
        says: "has size 0",
    },
    Damage {
        name: "another byte",
        act: |c| rewritten(c.data.join("pg_xact/0000"), |bytes| flipped(bytes)),
        says: "checksum mismatch for file \"pg_xact/0000\"",
    },
    Damage {
        name: "another byte in a tablespace",
        act: |c| rewritten(c.in_space(), |bytes| flipped(bytes)),
        says: "checksum mismatch for file \"pg_tblspc/",
    },
    Damage {
        name: "another byte in the label",
        act: |c| rewritten(c.data.join("backup_label"), |bytes| flipped(bytes)),
        says: "checksum mismatch for file \"backup_label\"",
    },
    Damage {
        name: "no manifest",
        act: |c| taken(c.data.join("backup_manifest")),
        says: "could not open file",
    },
    Damage {
        name: "a manifest cut off",
        act: |c| {
            rewritten(c.data.join("backup_manifest"), |bytes| {
                bytes.truncate(bytes.len() - 30)
            })
        },
        says: "could not parse",
    },
    Damage {
        name: "a manifest with another checksum in it",
        act: |c| {
            rewritten(c.data.join("backup_manifest"), |bytes| {
                let text = String::from_utf8(std::mem::take(bytes)).unwrap();
                *bytes = text.replacen("\"Size\": 3,", "\"Size\": 4,", 1).into();
            })
        },
        says: "manifest checksum mismatch",
    },
    Damage {
        name: "a tablespace's link that leads nowhere",
        act: |c| taken(c.space.clone()),
        says: "is present in the manifest but not on disk",
    },
];

#[test]
fn every_damage_to_a_restored_directory_is_found_by_its_manifest() {
    for installation in representatives() {
        let major = installation.major;
        let stage = Stage::new(&installation, &[]);
        let old = stage.path("space");
        fs::create_dir(&old).unwrap();
        stage.server.user().own(&old);
        stage.server.psql(&format!(
            "create tablespace far location '{}'",
            old.display()
        ));
        stage
            .server
            .psql("create table t tablespace far as select generate_series(1, 500) i");
        let media = stage.back_up("full", &[]);
        let (data, new) = (stage.path("data"), stage.path("moved"));
        let map = format!("{}={}", old.display(), new.display());
        succeed(
            stage
                .restore(&media, &data)
                .args(["--tablespace-map", &map]),
        );
        let versions: Vec<_> = fs::read_dir(&new).unwrap().collect();
        assert_eq!(versions.len(), 1);
        let space = versions[0].as_ref().unwrap().path();
        let cluster = Cluster { data, space };
        let verify = || {
            let mut verify = stage.server.command("pg_verifybackup");
            // Its WAL reader exists for its own major version only.
            verify.arg("--no-parse-wal").arg(&cluster.data);
            verify
        };
        succeed(&mut verify());
        for damage in DAMAGES {
            let undo = (damage.act)(&cluster);
            let said = refused(&mut verify());
            undo();
            assert!(
                said.contains(damage.says),
                "{major}, {}: {said}",
                damage.name
            );
        }
        succeed(&mut verify());
        // From 17 on the manifest says whose it is.
        if major >= 17 {
            let other = Stage::new(&installation, &[]);
            let control = cluster.data.join("global/pg_control");
            let undo = rewritten(control.clone(), |_| {});
            fs::copy(other.server.data_dir().join("global/pg_control"), &control).unwrap();
            let said = refused(&mut verify());
            undo();
            assert!(said.contains("system identifier"), "{said}");
        }
        // Its own WAL reader follows the WAL in the set.
        if installation.bin_dir.join("pg_waldump").exists()
            && installation.bin_dir.join("pg_verifybackup").exists()
        {
            let mut whole = stage.server.command("pg_verifybackup");
            succeed(whole.arg(&cluster.data));
            let log = files_below(&cluster.data.join("pg_wal"));
            // Next to it is a history, of a line.
            let segment = log
                .iter()
                .find(|path| path.metadata().unwrap().len() >= 1 << 20);
            let undo = taken(segment.unwrap().clone());
            let mut whole = stage.server.command("pg_verifybackup");
            let said = refused(whole.arg(&cluster.data));
            undo();
            assert!(said.contains("WAL parsing failed"), "{said}");
        }
    }
}
