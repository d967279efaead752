//! Goal: no statement writes onto directories that hold more than the set, other databases, or the catalog.
//! Method: statements with every spelling of such places run in a session, and the files are read afterwards.

mod common;

use std::fs;
use std::path::Path;

use common::{Stage, cluster, numbers, run, said, value};
use longshore_pipeline::SourceSpec;

fn tree(path: &Path, text: &str) {
    fs::create_dir_all(path).unwrap();
    fs::write(path.join("note"), text).unwrap();
}

fn note(path: &Path) -> String {
    fs::read_to_string(path.join("note")).unwrap()
}

/// The last message before the end of a refused restore.
fn refused(session: &mut longshore_tsql::Session, batch: &str) -> Vec<u32> {
    let record = run(session, batch);
    let numbers = numbers(&record);
    println!("{batch}: {:?}", said(&record));
    assert_eq!(numbers.last(), Some(&3013));
    numbers
}

#[test]
fn a_set_of_another_kind_never_replaces_a_database_unasked() {
    let mut stage = Stage::new();
    tree(&stage.path("srv/docs"), "docs");
    tree(&stage.path("srv/beside"), "beside");
    stage.more = vec![("docs", SourceSpec::Files(vec![stage.path("srv/docs")]))];
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    for with in ["", " WITH REPLACE"] {
        let batch = format!("RESTORE DATABASE docs FROM DISK = 'a.bak'{with}");
        let numbers = refused(&mut session, &batch);
        let expected: &[u32] = if with.is_empty() {
            &[3154, 3013]
        } else {
            &[3156, 3119, 3013]
        };
        assert_eq!(numbers, expected, "{batch}");
    }
    assert_eq!(note(&stage.path("srv/docs")), "docs");
    assert_eq!(note(&stage.path("srv/beside")), "beside");
}

/// Goal: an equal name does not let one database replace another.
#[test]
fn a_set_of_the_same_name_from_another_path_replaces_a_database_only_with_replace() {
    let mut stage = Stage::new();
    tree(&stage.path("a/docs"), "first");
    tree(&stage.path("b/docs"), "second");
    for place in ["a/docs", "b/docs"] {
        stage.more = vec![("docs", SourceSpec::Files(vec![stage.path(place)]))];
        let to = place.replace("/docs", ".bak");
        run(
            &mut stage.session(),
            &format!("BACKUP DATABASE docs TO DISK = '{to}'"),
        );
    }
    let mut session = stage.session();
    let other = "RESTORE DATABASE docs FROM DISK = 'a.bak'";
    assert_eq!(refused(&mut session, other), [3154, 3013]);
    assert_eq!(note(&stage.path("b/docs")), "second");
    let own = run(&mut session, "RESTORE DATABASE docs FROM DISK = 'b.bak'");
    assert_eq!(numbers(&own), [4035, 3014], "{:?}", said(&own));
    // If nothing is there, nothing is lost.
    fs::remove_dir_all(stage.path("b/docs")).unwrap();
    let moved = run(&mut session, other);
    assert_eq!(numbers(&moved), [4035, 3014], "{:?}", said(&moved));
    let replaced = run(&mut session, &format!("{other} WITH REPLACE"));
    assert_eq!(numbers(&replaced), [4035, 3014], "{:?}", said(&replaced));
    assert_eq!(note(&stage.path("b/docs")), "first");
}

/// Goal: two machines with the same paths have two databases.
#[test]
fn a_set_from_another_machine_replaces_a_database_only_with_replace() {
    let mut stage = Stage::new();
    tree(&stage.path("srv/docs"), "standing");
    let source = SourceSpec::Files(vec![stage.path("srv/docs")]);
    let origin = longshore_pipeline::origin(&source);
    stage.more = vec![("docs", source)];
    let here = longshore_facts::host_name();
    for (name, machine) in [("own", &here[..]), ("far", "elsewhere")] {
        let device = stage.path(&format!("{name}.bak"));
        cluster::docs(&device, machine, &origin, name);
    }
    let mut session = stage.session();
    let far = "RESTORE DATABASE docs FROM DISK = 'far.bak'";
    assert_eq!(refused(&mut session, far), [3154, 3013]);
    assert_eq!(note(&stage.path("srv/docs")), "standing");
    let own = run(&mut session, "RESTORE DATABASE docs FROM DISK = 'own.bak'");
    assert_eq!(numbers(&own), [4035, 3014], "{:?}", said(&own));
    assert_eq!(note(&stage.path("srv/docs")), "own");
    let replaced = run(&mut session, &format!("{far} WITH REPLACE"));
    assert_eq!(numbers(&replaced), [4035, 3014], "{:?}", said(&replaced));
    assert_eq!(note(&stage.path("srv/docs")), "far");
}

#[test]
fn a_tree_goes_back_into_its_directory_and_nowhere_else() {
    let mut stage = Stage::new();
    for (name, files) in [("one", &["note"][..]), ("two", &["note", "more"])] {
        let path = stage.path("srv").join(name);
        fs::create_dir_all(&path).unwrap();
        files
            .iter()
            .for_each(|f| fs::write(path.join(f), name).unwrap());
        fs::write(stage.path("srv").join(format!("note-{name}")), "beside").unwrap();
        stage.more.push((name, SourceSpec::Files(vec![path])));
    }
    let mut session = stage.session();
    for name in ["one", "two"] {
        let path = stage.path("srv").join(name);
        run(
            &mut session,
            &format!("BACKUP DATABASE {name} TO DISK = '{name}.bak'"),
        );
        fs::write(path.join("note"), "newer").unwrap();
        let back = run(
            &mut session,
            &format!("RESTORE DATABASE {name} FROM DISK = '{name}.bak'"),
        );
        assert_eq!(numbers(&back).last(), Some(&3014), "{:?}", said(&back));
        assert_eq!(note(&path), name);
    }
    let mut names: Vec<_> = fs::read_dir(stage.path("srv"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["note-one", "note-two", "one", "two"]);
}

#[test]
fn a_set_with_more_roots_than_the_database_does_not_replace_its_neighbours() {
    let mut stage = Stage::new();
    fs::create_dir(stage.path("srv")).unwrap();
    let path = |stage: &Stage, name: &str| stage.path("srv").join(name);
    ["a", "b", "c"]
        .iter()
        .for_each(|n| fs::write(path(&stage, n), n).unwrap());
    let roots = |names: &[&str]| {
        let paths = names.iter().map(|n| path(&stage, n));
        SourceSpec::Files(paths.collect())
    };
    let (three, two) = (roots(&["a", "b", "c"]), roots(&["a", "b"]));
    stage.more = vec![("docs", three)];
    run(
        &mut stage.session(),
        "BACKUP DATABASE docs TO DISK = 'three.bak'",
    );
    stage.more = vec![("docs", two)];
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE docs TO DISK = 'two.bak'");
    ["a", "c"]
        .iter()
        .for_each(|n| fs::write(path(&stage, n), "newer").unwrap());
    let text = |name: &str| fs::read_to_string(path(&stage, name)).unwrap();
    let numbers = refused(
        &mut session,
        "RESTORE DATABASE docs FROM DISK = 'three.bak'",
    );
    assert_eq!(numbers, [3156, 3119, 3013]);
    assert_eq!((text("a"), text("c")), ("newer".into(), "newer".into()));
    let back = run(&mut session, "RESTORE DATABASE docs FROM DISK = 'two.bak'");
    assert_eq!(
        common::numbers(&back).last(),
        Some(&3014),
        "{:?}",
        said(&back)
    );
    assert_eq!((text("a"), text("c")), ("a".into(), "newer".into()));
}

#[test]
fn no_spelling_of_a_path_reaches_another_database() {
    let mut stage = Stage::new();
    common::fill(&stage.path("other.db"), 7);
    tree(&stage.path("srv/docs"), "docs");
    stage.more = vec![
        ("other", SourceSpec::Sqlite(stage.path("other.db"))),
        ("docs", SourceSpec::Files(vec![stage.path("srv/docs")])),
        ("SHOP", SourceSpec::Sqlite(stage.path("upper.db"))),
    ];
    fs::create_dir(stage.path("x")).unwrap();
    std::os::unix::fs::symlink(stage.path("x/.."), stage.path("link")).unwrap();
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    run(&mut session, "BACKUP DATABASE docs TO DISK = 'd.bak'");
    let before = fs::read(stage.path("other.db")).unwrap();
    for to in [
        "other.db",
        "x/../other.db",
        "nowhere/../other.db",
        "link/other.db",
        "other.db-wal",
        "srv/docs/inner.db",
        "srv",
        "upper.db",
        "state/catalog.db",
    ] {
        let batch = format!(
            "RESTORE DATABASE shop FROM DISK = 'a.bak' WITH REPLACE, MOVE 'shop.db' TO '{to}'"
        );
        assert_eq!(
            refused(&mut session, &batch),
            [1834, 3156, 3119, 3013],
            "{to}"
        );
    }
    assert_eq!(fs::read(stage.path("other.db")).unwrap(), before);
    // A tree over the directory that holds other databases.
    let over = format!(
        "RESTORE DATABASE fresh FROM DISK = 'd.bak' WITH REPLACE, MOVE 'docs' TO '{}'",
        stage.dir.path().display()
    );
    assert_eq!(refused(&mut session, &over)[0], 1834);
    assert_eq!(note(&stage.path("srv/docs")), "docs");
}

#[test]
fn files_are_not_restored_into_a_postgresql_data_directory() {
    let mut stage = Stage::new();
    tree(&stage.path("docs"), "docs");
    stage.more = vec![("docs", SourceSpec::Files(vec![stage.path("docs")]))];
    tree(&stage.path("running"), "running");
    fs::write(stage.path("running/postmaster.pid"), "1").unwrap();
    tree(&stage.path("stopped/global"), "stopped");
    fs::write(stage.path("stopped/PG_VERSION"), "17").unwrap();
    fs::write(stage.path("stopped/global/pg_control"), "").unwrap();
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE docs TO DISK = 'd.bak'");
    for to in ["running", "running/base", "stopped", "stopped/global"] {
        let batch = format!(
            "RESTORE DATABASE docs FROM DISK = 'd.bak' WITH REPLACE, MOVE 'docs' TO '{to}'"
        );
        assert_eq!(refused(&mut session, &batch)[0], 1834, "{to}");
    }
    assert_eq!(note(&stage.path("running")), "running");
}

#[test]
fn a_restore_elsewhere_does_not_redirect_later_backups() {
    let stage = Stage::new();
    let mut session = stage.session();
    fs::create_dir(stage.path("test")).unwrap();
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    let test = run(
        &mut session,
        "RESTORE DATABASE shop FROM DISK = 'a.bak' WITH MOVE 'shop.db' TO 'test/t.db'",
    );
    assert_eq!(numbers(&test), [50003, 4035, 3014], "{:?}", said(&test));
    let place = "SELECT f.physical_name FROM sys.master_files f JOIN sys.databases d ON d.database_id = f.database_id WHERE d.name = 'shop' AND f.type = 0";
    let shop = stage.path("shop.db").display().to_string();
    assert_eq!(value(&mut session, place), shop);
    // A database that is not in the configuration is at the path of its last restore.
    for to in ["n1.db", "n2.db"] {
        let batch =
            format!("RESTORE DATABASE new FROM DISK = 'a.bak' WITH REPLACE, MOVE 'shop' TO '{to}'");
        assert_eq!(numbers(&run(&mut session, &batch)), [4035, 3014], "{to}");
    }
    let place = place.replace("'shop'", "'new'");
    let new = stage.path("n2.db").display().to_string();
    assert_eq!(value(&mut session, &place), new);
}

#[test]
fn a_lost_database_can_be_restored_where_move_says() {
    let mut stage = Stage::new();
    run(
        &mut stage.session(),
        "BACKUP DATABASE shop TO DISK = 'a.bak'",
    );
    stage.lost = Some(("ledger".into(), stage.path("ledger.db")));
    let mut session = stage.session();
    let batch = "RESTORE DATABASE ledger FROM DISK = 'a.bak' WITH ";
    assert_eq!(
        refused(&mut session, "RESTORE DATABASE ledger FROM DISK = 'a.bak'"),
        [3154, 3013]
    );
    assert_eq!(
        refused(&mut session, &format!("{batch} REPLACE")),
        [3156, 3119, 3013]
    );
    // Its path stays its own.
    let other = "RESTORE DATABASE new FROM DISK = 'a.bak' WITH MOVE 'shop' TO 'ledger.db'";
    assert_eq!(refused(&mut session, other)[0], 1834);
    let back = run(
        &mut session,
        &format!("{batch} REPLACE, MOVE 'shop' TO 'ledger.db'"),
    );
    assert_eq!(numbers(&back).last(), Some(&3014), "{:?}", said(&back));
    let (from, to) = (stage.path("shop.db"), stage.path("ledger.db"));
    assert_eq!(fs::read(from).unwrap(), fs::read(to).unwrap());
}

#[test]
fn two_moves_of_one_file_are_refused() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    let batch = "RESTORE DATABASE new FROM DISK = 'a.bak' WITH MOVE 'shop' TO 'x.db', MOVE 'shop.db' TO 'y.db'";
    assert_eq!(refused(&mut session, batch), [4353, 3013]);
    assert!(!stage.path("x.db").exists() && !stage.path("y.db").exists());
}

#[test]
fn no_backup_overwrites_a_database_or_the_catalog() {
    let mut stage = Stage::new();
    tree(&stage.path("docs"), "docs");
    common::fill(&stage.path("unknown.db"), 3);
    tree(&stage.path("data"), "data");
    fs::write(stage.path("data/postmaster.pid"), "1").unwrap();
    stage.more = vec![("docs", SourceSpec::Files(vec![stage.path("docs")]))];
    std::os::unix::fs::symlink(stage.path("docs"), stage.path("link")).unwrap();
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    for to in [
        "shop.db",
        "shop.db-wal",
        "state/catalog.db",
        "state/catalog.db-wal",
        "state/catalog.db-journal",
        "docs/note",
        "docs/new.bak",
        "link/new.bak",
        "x/../docs/note",
        "data/new.bak",
        "unknown.db",
    ] {
        for source in ["shop", "docs"] {
            let batch = format!("BACKUP DATABASE {source} TO DISK = '{to}' WITH FORMAT");
            assert_eq!(refused(&mut session, &batch), [3201, 3013], "{to}");
        }
    }
    assert_eq!(note(&stage.path("docs")), "docs");
    assert!(!stage.path("docs/new.bak").exists());
    for name in ["shop.db", "unknown.db", "state/catalog.db"] {
        let db = rusqlite::Connection::open(stage.path(name)).unwrap();
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
            .unwrap();
    }
    // A device that was written before may be formatted again, and so may any other file.
    fs::write(stage.path("any"), "thing").unwrap();
    for to in ["a.bak", "any"] {
        let batch = format!("BACKUP DATABASE shop TO DISK = '{to}' WITH FORMAT");
        assert_eq!(
            numbers(&run(&mut session, &batch)).last(),
            Some(&3014),
            "{to}"
        );
    }
}

#[test]
fn no_statement_leaves_the_directories_that_it_may_name() {
    let mut stage = Stage::new();
    for dir in ["in", "out"] {
        fs::create_dir(stage.path(dir)).unwrap();
    }
    std::os::unix::fs::symlink(stage.path("out"), stage.path("in/link")).unwrap();
    // A device from before the server had a list of directories.
    let early = stage.path("out/early.bak");
    let add = format!(
        "EXEC sp_addumpdevice 'disk', 'early', '{}'",
        early.display()
    );
    run(&mut stage.session(), &add);
    stage.directories = Some(vec![stage.path("in")]);
    let mut session = stage.session();
    let early = run(&mut session, "BACKUP DATABASE shop TO early");
    assert_eq!(numbers(&early).first(), Some(&3201), "{:?}", said(&early));
    let inside = stage.path("in/a.bak").display().to_string();
    let good = run(
        &mut session,
        &format!("BACKUP DATABASE shop TO DISK = '{inside}', DISK = 'in/b.bak'"),
    );
    assert_eq!(numbers(&good).last(), Some(&3014), "{:?}", said(&good));
    let nul = run(&mut session, "BACKUP DATABASE shop TO DISK = 'NUL'");
    assert_eq!(numbers(&nul).last(), Some(&3014));
    fs::copy(stage.path("in/a.bak"), stage.path("out/a.bak")).unwrap();
    let out = stage.path("out/a.bak").display().to_string();
    let spellings = [
        out.as_str(),
        "out/a.bak",
        "in/../out/a.bak",
        "in/link/a.bak",
        r"in\..\out\a.bak",
        "/etc/passwd",
    ];
    for path in spellings {
        for statement in [
            format!("BACKUP DATABASE shop TO DISK = '{path}' WITH FORMAT"),
            format!("RESTORE HEADERONLY FROM DISK = '{path}'"),
            format!("RESTORE DATABASE copy FROM DISK = '{path}' WITH MOVE 'shop.db' TO 'in/c.db'"),
            format!("EXEC sp_addumpdevice 'disk', 'd', '{path}'"),
            format!("EXEC master.dbo.xp_create_subdir '{path}'"),
            format!(
                "RESTORE DATABASE copy FROM DISK = '{inside}', DISK = 'in/b.bak' WITH MOVE 'shop.db' TO '{path}', REPLACE"
            ),
        ] {
            let record = run(&mut session, &statement);
            let denied = numbers(&record).first() == Some(&3201)
                && said(&record)[0].ends_with("5(Access is denied.).");
            assert!(denied, "{statement}: {:?}", said(&record));
        }
    }
    assert_eq!(fs::read_dir(stage.path("out")).unwrap().count(), 1);
}

#[test]
fn databases_added_or_restored_elsewhere_are_out_of_reach() {
    let mut stage = Stage::new();
    for dir in ["in", "out"] {
        fs::create_dir(stage.path(dir)).unwrap();
    }
    let mut free = stage.session();
    for batch in [
        "BACKUP DATABASE shop TO DISK = 'in/a.bak'",
        "EXEC sp_addumpdevice 'disk', 'vault', 'out/x.bak'",
        "EXEC sp_addumpdevice 'disk', 'well', 'in/w.bak'",
        "EXEC sp_addumpdevice 'disk', 'nothing', 'NUL'",
        "BACKUP DATABASE shop TO vault",
        "RESTORE DATABASE far FROM vault WITH MOVE 'shop.db' TO 'out/far.db'",
        "RESTORE DATABASE near FROM vault WITH MOVE 'shop.db' TO 'in/near.db'",
    ] {
        let record = run(&mut free, batch);
        assert!(
            record.messages().all(|m| !m.is_error()),
            "{batch}: {:?}",
            said(&record)
        );
    }
    common::wait_for_more(&stage, "ledger", "out/ledger");
    let before = fs::read(stage.path("out/x.bak")).unwrap();
    stage.directories = Some(vec![stage.path("in")]);
    let mut session = stage.session();
    for batch in [
        "BACKUP DATABASE shop TO vault WITH FORMAT",
        "RESTORE HEADERONLY FROM vault",
        "RESTORE DATABASE new FROM vault WITH MOVE 'shop.db' TO 'in/new.db'",
        "BACKUP DATABASE far TO DISK = 'in/far.bak'",
        "RESTORE DATABASE far FROM DISK = 'in/a.bak' WITH REPLACE",
        "RESTORE DATABASE ledger WITH RECOVERY",
        "RESTORE LOG ledger FROM DISK = 'in/a.bak'",
    ] {
        let record = run(&mut session, batch);
        let denied = numbers(&record).first() == Some(&3201)
            && said(&record)[0].ends_with("5(Access is denied.).");
        assert!(denied, "{batch}: {:?}", said(&record));
    }
    assert_eq!(fs::read(stage.path("out/x.bak")).unwrap(), before);
    for batch in [
        "BACKUP DATABASE shop TO well",
        "BACKUP DATABASE shop TO nothing",
        "BACKUP DATABASE near TO DISK = 'in/near.bak'",
        "RESTORE DATABASE near FROM DISK = 'in/near.bak'",
        // Configured ones, at any path.
        "RESTORE DATABASE shop FROM DISK = 'in/a.bak' WITH REPLACE",
    ] {
        let record = run(&mut session, batch);
        assert_eq!(
            numbers(&record).last(),
            Some(&3014),
            "{batch}: {:?}",
            said(&record)
        );
    }
}

#[test]
fn nul_is_a_device_and_no_file() {
    let mut stage = Stage::new();
    run(
        &mut stage.session(),
        "BACKUP DATABASE shop TO DISK = 'a.bak'",
    );
    for directories in [None, Some(vec![stage.dir.path().to_path_buf()])] {
        stage.directories = directories;
        let mut session = stage.session();
        for batch in [
            "RESTORE DATABASE new FROM DISK = 'a.bak' WITH MOVE 'shop.db' TO 'nul:'",
            "EXEC xp_create_subdir 'NUL'",
        ] {
            let record = run(&mut session, batch);
            assert_eq!(
                numbers(&record).first(),
                Some(&3201),
                "{batch}: {:?}",
                said(&record)
            );
        }
    }
    assert!(!Path::new("NUL").exists());
}

#[test]
fn no_directory_is_made_where_a_database_or_the_server_has_its_files() {
    let mut stage = Stage::new();
    tree(&stage.path("docs"), "docs");
    tree(&stage.path("data"), "data");
    fs::write(stage.path("data/postmaster.pid"), "1").unwrap();
    stage.more = vec![("docs", SourceSpec::Files(vec![stage.path("docs")]))];
    let mut session = stage.session();
    for path in [
        "docs/new",
        "data/new",
        "shop.db-journal",
        "state/logins",
        "state/errorlog.1",
        "state/catalog.db-journal",
    ] {
        let record = run(&mut session, &format!("EXEC xp_create_subdir '{path}'"));
        assert_eq!(numbers(&record), [3201], "{path}: {:?}", said(&record));
        assert!(!stage.path(path).is_dir(), "{path}");
    }
    for path in ["full/2027", "full", "state/more"] {
        let record = run(&mut session, &format!("EXEC xp_create_subdir '{path}'"));
        assert_eq!(numbers(&record), [0; 0], "{path}: {:?}", said(&record));
        assert!(stage.path(path).is_dir(), "{path}");
    }
}

/// Goal: REPLACE of a cluster removes no other cluster, and nothing that is not the cluster's.
#[test]
fn a_cluster_replaces_itself_and_nothing_else() {
    let stage = Stage::new();
    cluster::full(&stage.path("full.bak"));
    let made = |name: &str, control: &[u8]| {
        let path = stage.path(name);
        fs::create_dir_all(path.join("global")).unwrap();
        fs::write(path.join("PG_VERSION"), "17").unwrap();
        fs::write(path.join("global/pg_control"), control).unwrap();
        tree(&path, "precious");
    };
    let mut foreign = cluster::control();
    foreign[0] ^= 1;
    let crc = longshore_io::crc32c(&foreign[..288]);
    foreign[288..292].copy_from_slice(&crc.to_le_bytes());
    made("other", &foreign);
    made("same", &cluster::control());
    tree(&stage.path("vault/sub"), "precious");
    let mut session = stage.session();
    let to = |name: &str| {
        format!(
            "RESTORE DATABASE copy FROM DISK = 'full.bak' WITH MOVE 'main' TO '{name}', REPLACE"
        )
    };
    for (name, number) in [("other", 1834), ("vault", 3201)] {
        let place = stage.path(name);
        let numbers = refused(&mut session, &to(&place.display().to_string()));
        assert_eq!(numbers, [number, 3156, 3119, 3013], "{name}");
    }
    assert_eq!(note(&stage.path("other")), "precious");
    assert_eq!(note(&stage.path("vault/sub")), "precious");
    let place = stage.path("same").display().to_string();
    let replaced = run(&mut session, &to(&place));
    assert_eq!(
        numbers(&replaced).last(),
        Some(&3014),
        "{:?}",
        said(&replaced)
    );
    assert!(!stage.path("same/note").exists());
}

/// Goal: the clean-up of a maintenance plan leaves the sets of a target to their retention, and removes nothing because of
/// a date that was never set.
#[test]
fn xp_delete_file_leaves_sets_of_targets_and_takes_no_unset_date() {
    let stage = Stage::new();
    let mut session = stage.session();
    run(&mut session, "BACKUP DATABASE shop TO DISK = 'a.bak'");
    let set = stage.path("tgt/shop/20261130T020000Z-full-1a2b3c4d");
    fs::create_dir_all(&set).unwrap();
    fs::copy(stage.path("a.bak"), set.join("family-1.bak")).unwrap();
    let root = stage.path("");
    let clean = |at: &Path, date: &str| {
        format!(
            "EXEC xp_delete_file 0, '{}', 'bak', {date}, 1",
            at.display()
        )
    };
    run(&mut session, &clean(&set, "'2099-01-01'"));
    run(&mut session, &clean(set.parent().unwrap(), "'2099-01-01'"));
    assert!(set.join("family-1.bak").exists());
    for date in ["NULL", "''"] {
        let record = run(&mut session, &clean(&root, date));
        assert_eq!(numbers(&record), [241], "{date}: {:?}", said(&record));
    }
    assert!(stage.path("a.bak").exists());
    run(&mut session, &clean(&root, "'2099-01-01'"));
    assert!(!stage.path("a.bak").exists());
}

/// Goal: no backup goes with the data directory that is replaced, also if it is the same cluster's.
#[test]
fn a_cluster_replaces_no_directory_in_which_backups_are() {
    let stage = Stage::new();
    cluster::full(&stage.path("full.bak"));
    let same = stage.path("same");
    fs::create_dir_all(same.join("global")).unwrap();
    fs::write(same.join("PG_VERSION"), "17").unwrap();
    fs::write(same.join("global/pg_control"), cluster::control()).unwrap();
    tree(&same, "kept");
    let kept = same.join("backups/copy.bak");
    fs::create_dir(same.join("backups")).unwrap();
    fs::copy(stage.path("full.bak"), &kept).unwrap();
    let mut session = stage.session();
    for with in ["REPLACE", "REPLACE, NORECOVERY"] {
        let batch = format!(
            "RESTORE DATABASE copy FROM DISK = 'full.bak' WITH MOVE 'main' TO 'same', {with}"
        );
        assert_eq!(refused(&mut session, &batch)[0], 3156, "{batch}");
        assert_eq!(note(&same), "kept");
        assert!(kept.exists());
    }
}

/// Goal: a directory that a tree replaces takes no backups with it.
#[test]
fn a_tree_replaces_no_directory_in_which_backups_are() {
    let stage = Stage::new();
    cluster::docs(&stage.path("docs.bak"), "elsewhere", "files:/docs", "new");
    fs::create_dir_all(stage.path("to/more/deep")).unwrap();
    let kept = stage.path("to/more/deep/copy.bak");
    fs::copy(stage.path("docs.bak"), &kept).unwrap();
    let mut session = stage.session();
    let batch = "RESTORE DATABASE copy FROM DISK = 'docs.bak' WITH MOVE 'docs' TO 'to', REPLACE";
    assert_eq!(refused(&mut session, batch)[0], 3156);
    assert!(kept.exists());
    fs::remove_file(&kept).unwrap();
    let back = run(&mut session, batch);
    assert_eq!(numbers(&back).last(), Some(&3014), "{:?}", said(&back));
    assert_eq!(note(&stage.path("to")), "new");
}
