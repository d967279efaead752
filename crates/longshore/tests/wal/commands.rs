//! Goal: exit codes tell PostgreSQL, and people, the exact state.
//! Method: real segments of one server, without its archiver: the test runs the commands as the archiver would.

use std::path::Path;

use longshore_kit::{Server, Stop, installations};

use super::stage::*;

const REFUSED: i32 = 7;
const NO_ANSWER: i32 = 200;

/// A stopped server that left at least four segments.
pub fn stopped() -> Option<Server> {
    let installation = installations().pop()?;
    let server = server(&installation, &[("wal_keep_size", "64MB")]);
    server.start();
    work(&server, 4);
    server.stop(Stop::Fast);
    Some(server)
}

pub fn wal_files(server: &Server) -> Vec<String> {
    let dir = std::fs::read_dir(server.data_dir().join("pg_wal")).unwrap();
    let mut names: Vec<String> = dir
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.len() == 24)
        .collect();
    names.sort();
    names.truncate(4);
    names
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn the_commands_answer_with_codes_that_the_server_understands() {
    let Some(server) = stopped() else { return };
    let archive = new_archive(&server, "archive");
    let names = wal_files(&server);
    let path = |name: &str| format!("pg_wal/{name}");
    let push = |name: &str| {
        run(
            &server,
            &["wal", "push", &path(name), "--archive", &archive],
        )
    };
    let get = |name: &str| {
        let args = [
            "wal",
            "get",
            name,
            "pg_wal/RECOVERYXLOG",
            "--archive",
            &archive,
            "--json",
        ];
        let output = run(&server, &args);
        let told = longshore_kit::program::answer(&output);
        assert_eq!(told["exit_code"], code(&output), "{told}");
        code(&output)
    };
    // Nothing has arrived yet: whether the segment exists is unknown.
    assert_eq!(get(&names[0]), NO_ANSWER);
    for name in [&names[0], &names[1], &names[3]] {
        let output = push(name);
        assert_eq!(code(&output), 0, "{}", text(&output));
    }
    assert_eq!(code(&push(&names[0])), 0, "the same again");
    // The server reads the code alone: an answer for which there is no space holds up no WAL.
    let args = ["wal", "push", &path(&names[0]), "--archive", &archive];
    let full = std::fs::File::create("/dev/full").unwrap();
    let unheard = longshore(&server, &[&args[..], &["--json"]].concat())
        .stdout(full)
        .status();
    assert_eq!(unheard.unwrap().code(), Some(0));
    let args = [
        "wal",
        "push",
        &path(&names[0]),
        "--archive",
        &archive,
        "--json",
    ];
    let again = longshore_kit::program::answer(&run(&server, &args));
    assert_eq!(
        (&again["already"], &again["name"]),
        (&true.into(), &names[0].as_str().into())
    );

    // Other bytes, and another cluster's.
    let own = server.data_dir().join(path(&names[0]));
    let bytes = std::fs::read(&own).unwrap();
    let mut other = bytes.clone();
    other[500_000] ^= 1;
    std::fs::write(&own, &other).unwrap();
    let output = push(&names[0]);
    assert_eq!(code(&output), REFUSED, "{}", text(&output));
    assert!(text(&output).contains("other bytes"), "{}", text(&output));
    other.clone_from(&bytes);
    other[24] ^= 1;
    std::fs::write(&own, &other).unwrap();
    assert_eq!(code(&push(&names[0])), REFUSED);
    std::fs::write(&own, &bytes).unwrap();
    // Not a segment, not there, not a name.
    let strange = server.data_dir().join("pg_wal/0000000100000000000000FF");
    std::fs::write(&strange, [0; 5000]).unwrap();
    server.user().own(&strange);
    assert_eq!(code(&push("0000000100000000000000FF")), 3);
    assert_eq!(code(&push("0000000100000000000000FE")), 4);
    assert_eq!(code(&push("postgresql.conf")), 2);
    std::fs::remove_file(&strange).unwrap();

    // Out again.
    assert_eq!(get(&names[1]), 0);
    let got = std::fs::read(server.data_dir().join("pg_wal/RECOVERYXLOG")).unwrap();
    let own = std::fs::read(server.data_dir().join(path(&names[1]))).unwrap();
    assert_eq!(got, own);
    assert_eq!(get("00000002.history"), 1, "the probe of every recovery");
    assert_eq!(get("0000000100000000000000FF"), 1, "the end of the log");
    assert_eq!(get(&names[2]), 1, "the server has it itself");
    let own = server.data_dir().join(path(&names[2]));
    std::fs::rename(&own, own.with_extension("aside")).unwrap();
    assert_eq!(get(&names[2]), NO_ANSWER, "a gap is not the end");
    std::fs::write(server.data_dir().join("standby.signal"), "").unwrap();
    assert_eq!(get(&names[2]), 1, "a standby asks its primary");
    std::fs::remove_file(server.data_dir().join("standby.signal")).unwrap();
    let to_gap = [
        "wal",
        "get",
        &names[2],
        "pg_wal/R",
        "--archive",
        &archive,
        "--to-gap",
    ];
    assert_eq!(code(&run(&server, &to_gap)), 1);
    // Truncated, misspelt, not mounted.
    let stored = stored(&archive, &names[1]);
    let whole = std::fs::read(&stored).unwrap();
    std::fs::write(&stored, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(get(&names[1]), NO_ANSWER, "half a file");
    assert_eq!(code(&run(&server, &["wal", "get", "--oops"])), NO_ANSWER);
    assert_eq!(
        code(&run(&server, &["wal", "get", "--json", "nonsense"])),
        NO_ANSWER
    );
    assert_eq!(code(&run(&server, &["wal", "get", "--help"])), 0);
    // Words of other commands' options are not options of this one.
    for other in [
        &["backup", "wal", "--to", "get"][..],
        &["verify", "wal", "get"],
        &["list", "wal", "--oops", "get"],
    ] {
        let code = code(&run(&server, other));
        assert!((2..7).contains(&code), "{other:?}: {code}");
    }
    let away = format!("{archive}-away");
    std::fs::rename(&archive, &away).unwrap();
    assert_eq!(
        get("00000002.history"),
        NO_ANSWER,
        "an archive that is away says nothing"
    );
    std::fs::create_dir(&archive).unwrap();
    server.user().own(Path::new(&archive));
    assert_eq!(
        get("00000002.history"),
        NO_ANSWER,
        "nor does an empty mount point"
    );
    // Nor does it accept anything: the file would be hidden by the next mount.
    let output = push(&names[0]);
    assert_eq!(code(&output), 4, "{}", text(&output));
    assert!(
        text(&output).contains("longshore wal create"),
        "{}",
        text(&output)
    );
    assert_eq!(std::fs::read_dir(&archive).unwrap().count(), 0);
    let create = |path: &str| code(&run(&server, &["wal", "create", "--archive", path]));
    let deep = format!("{archive}/not/there");
    assert_eq!(create(&deep), 4, "parents are not made");
    assert_eq!(create(&archive), 0);
    assert_eq!(code(&push(&names[0])), 0);
    assert_eq!(create(&archive), 0, "it stays what it is");
    assert_eq!(get(&names[0]), 0);
}

#[test]
fn a_full_file_system_is_an_ordinary_failure() {
    let Some(server) = stopped() else { return };
    let names = wal_files(&server);
    // A limit on the size of files stands in for the full file system: a write fails half-way.
    let archive = new_archive(&server, "archive");
    let script = format!(
        "ulimit -f 100; exec {BINARY} wal push pg_wal/{} --archive {archive} --algorithm NONE",
        names[0]
    );
    let mut command = server.command_at(Path::new("/bin/bash"));
    let output = command
        .current_dir(server.data_dir())
        .args(["-c", &script])
        .output()
        .unwrap();
    assert_eq!(code(&output), 4, "{}", text(&output));
    assert!(text(&output).contains("`ulimit -f`"), "{}", text(&output));
    assert_eq!(segments(&archive), [] as [&str; 0]);
    let left = std::fs::read_dir(Path::new(&archive).join(&names[0][..16])).unwrap();
    assert_eq!(left.count(), 0, "nothing is left behind");
    let file = format!("pg_wal/{}", names[0]);
    let output = run(&server, &["wal", "push", &file, "--archive", &archive]);
    assert_eq!(code(&output), 0, "{}", text(&output));

    // A recovering server without room must not take that for the end of the WAL.
    let get = |limit: &str, how: &str| {
        let script = format!(
            "{limit}; exec {BINARY} wal get {} pg_wal/R --archive {archive} {how}",
            names[0]
        );
        let mut command = server.command_at(Path::new("/bin/bash"));
        command.current_dir(server.data_dir());
        command.args(["-c", &script]).output().unwrap()
    };
    for how in ["", "--async"] {
        let output = get("ulimit -f 100", how);
        assert_eq!(code(&output), NO_ANSWER, "{how}: {}", text(&output));
        assert!(!server.data_dir().join("pg_wal/R").exists(), "{how}");
        let output = get("true", how);
        assert_eq!(code(&output), 0, "{how}: {}", text(&output));
        std::fs::remove_file(server.data_dir().join("pg_wal/R")).unwrap();
    }
}

/// Goal: a read-only archive accepts nothing, says so, and still delivers what it has.
#[test]
fn an_archive_that_may_only_be_read_gives_and_takes_nothing() {
    let Some(server) = stopped() else { return };
    let names = wal_files(&server);
    let archive = new_archive(&server, "it's 5% \u{e9}");
    let push = |name: &str| {
        let file = format!("pg_wal/{name}");
        run(&server, &["wal", "push", &file, "--archive", &archive])
    };
    assert_eq!(code(&push(&names[0])), 0);
    let dirs = [
        Path::new(&archive).to_owned(),
        Path::new(&archive).join(&names[0][..16]),
    ];
    let allow = |mode: u32| {
        for dir in &dirs {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(dir, mode).unwrap();
        }
    };
    allow(0o555);
    let output = push(&names[1]);
    assert_eq!(code(&output), 4, "{}", text(&output));
    assert_eq!(segments(&archive), names[..1]);
    assert_eq!(code(&push(&names[0])), 0, "it already exists");
    let get = |name: &str| {
        let args = ["wal", "get", name, "pg_wal/R", "--archive", &archive];
        code(&run(&server, &args))
    };
    assert_eq!((get(&names[0]), get("00000002.history")), (0, 1));
    allow(0o755);
    assert_eq!(code(&push(&names[1])), 0);
}

/// Marks files as the server does when they wait to be archived.
fn mark_ready(server: &Server, names: &[String]) {
    let status = server.data_dir().join("pg_wal/archive_status");
    for name in names {
        let mark = status.join(format!("{name}.ready"));
        std::fs::write(&mark, "").unwrap();
        server.user().own(&mark);
    }
}

#[test]
fn working_ahead_is_bounded_ends_at_the_first_error_and_is_believed_only_for_unchanged_files() {
    let Some(server) = stopped() else { return };
    let archive = new_archive(&server, "archive");
    let names = wal_files(&server);
    let status = server.data_dir().join("pg_wal/archive_status");
    for mark in std::fs::read_dir(&status).unwrap() {
        std::fs::remove_file(mark.unwrap().path()).unwrap();
    }
    mark_ready(&server, &names);
    let path = |name: &str| format!("pg_wal/{name}");
    let ahead = |more: &[&str]| {
        let first = path(&names[0]);
        let args = ["wal", "push", &first, "--archive", &archive, "--only-ahead"];
        run(&server, &[&args, more].concat())
    };
    // One segment makes the archive its cluster's, so that bytes can be counted in segments.
    let first = path(&names[0]);
    assert_eq!(
        code(&run(
            &server,
            &["wal", "push", &first, "--archive", &archive]
        )),
        0
    );
    assert_eq!(code(&ahead(&["--queue-max", "2M"])), 0);
    assert_eq!(segments(&archive), names[..2], "two segments are 2 MiB");
    // The third is damaged: the fourth waits after it.
    let third = server.data_dir().join(path(&names[2]));
    let whole = std::fs::read(&third).unwrap();
    std::fs::write(&third, &whole[..1000]).unwrap();
    ahead(&["--workers", "1"]);
    assert_eq!(segments(&archive), names[..2]);
    std::fs::write(&third, &whole).unwrap();
    assert_eq!(code(&ahead(&[])), 0);
    assert_eq!(segments(&archive), names);

    let push = |name: &str| {
        let path = path(name);
        let args = [
            "wal",
            "push",
            &path,
            "--archive",
            &archive,
            "--async",
            "--queue-max",
            "3M",
        ];
        run(&server, &args)
    };
    let output = push(&names[3]);
    assert_eq!(code(&output), 0);
    assert!(
        text(&output).contains("more than --queue-max"),
        "{}",
        text(&output)
    );
    // Changed since it was pushed ahead: the note does not match, and neither does the archive.
    let mut other = whole.clone();
    other[500_000] ^= 1;
    std::fs::write(&third, &other).unwrap();
    assert_eq!(code(&push(&names[2])), REFUSED);
    // Another archive was not pushed to.
    let elsewhere = new_archive(&server, "elsewhere");
    let second = path(&names[1]);
    let args = ["wal", "push", &second, "--archive", &elsewhere, "--async"];
    assert_eq!(code(&run(&server, &args)), 0);
    assert!(stored(&elsewhere, &names[1]).exists());
}

#[test]
fn a_fetch_ahead_is_bounded_and_ends_at_a_gap() {
    let Some(server) = stopped() else { return };
    let archive = new_archive(&server, "archive");
    let names = wal_files(&server);
    for name in &names {
        let file = format!("pg_wal/{name}");
        let args = ["wal", "push", &file, "--archive", &archive];
        assert_eq!(code(&run(&server, &args)), 0);
    }
    let place = server.data_dir().join("pg_wal/longshore");
    // The names that a fetch ahead of the first segment leaves for the server.
    let fetched = |more: &[&str]| {
        if place.exists() {
            std::fs::remove_dir_all(&place).unwrap();
        }
        let args = [
            "wal",
            "get",
            &names[0],
            "pg_wal/R",
            "--archive",
            &archive,
            "--only-ahead",
        ];
        let output = run(&server, &[&args[..], more].concat());
        assert_eq!(code(&output), 0, "{}", text(&output));
        let entries = std::fs::read_dir(&place).unwrap();
        let entries = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut found: Vec<String> = entries.filter(|name| name.len() == 24).collect();
        found.sort();
        found
    };
    assert_eq!(fetched(&[]), names[1..]);
    assert_eq!(fetched(&["--queue-max", "2M"]), names[1..3]);
    // One worker takes the segments in their order, and ends at the first that is missing.
    std::fs::remove_file(stored(&archive, &names[1])).unwrap();
    assert_eq!(fetched(&["--workers", "1"]), [] as [&str; 0]);
}

#[test]
fn a_level_makes_a_smaller_file_and_a_restore_is_named_in_a_history() {
    let Some(server) = stopped() else { return };
    let names = wal_files(&server);
    let file = format!("pg_wal/{}", names[0]);
    let size = |name: &str, more: &[&str]| {
        let archive = new_archive(&server, name);
        let args = ["wal", "push", &file, "--archive", &archive];
        let output = run(&server, &[&args[..], more].concat());
        assert_eq!(code(&output), 0, "{}", text(&output));
        std::fs::metadata(stored(&archive, &names[0]))
            .unwrap()
            .len()
    };
    assert!(size("small", &["--level", "9"]) < size("usual", &[]));

    let archive = beside(&server, "usual");
    let other = beside(&server, "other");
    std::fs::create_dir(&other).unwrap();
    let history = format!("{other}/00000002.history");
    std::fs::write(&history, "1\t0/100000\tno recovery target specified\n").unwrap();
    server.user().own(Path::new(&other));
    let output = run(&server, &["wal", "push", &history, "--archive", &archive]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let got = |more: &[&str]| {
        let args = [
            "wal",
            "get",
            "00000002.history",
            "pg_wal/H",
            "--archive",
            &archive,
        ];
        let output = run(&server, &[&args[..], more].concat());
        assert_eq!(code(&output), 0, "{}", text(&output));
        std::fs::read_to_string(server.data_dir().join("pg_wal/H")).unwrap()
    };
    assert!(!got(&[]).contains("trial-of-may"));
    assert!(got(&["--restore", "trial-of-may"]).contains("trial-of-may"));
}

#[test]
fn the_archive_of_a_configured_database_is_below_its_target() {
    let Some(server) = stopped() else { return };
    let target = beside(&server, "target");
    let config = beside(&server, "longshore.toml");
    std::fs::write(
        &config,
        format!("[target.t]\ndirectories = [{target:?}]\n[database.main]\nurl = \"files:/\"\ntarget = \"t\"\nalgorithm = \"ZSTD\"\n"),
    )
    .unwrap();
    let file = format!("pg_wal/{}", wal_files(&server)[0]);
    let args = [
        "wal",
        "push",
        &file,
        "--database",
        "main",
        "--config",
        &config,
    ];
    let create = ["wal", "create", "--database", "main", "--config", &config];
    assert_eq!(code(&run(&server, &args)), 4, "the target is not mounted");
    assert_eq!(code(&run(&server, &create)), 4, "nor is it made");
    std::fs::create_dir(&target).unwrap();
    server.user().own(Path::new(&target));
    assert_eq!(code(&run(&server, &args)), 4, "nobody made the archive");
    assert_eq!(code(&run(&server, &create)), 0);
    let output = run(&server, &args);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let name = &wal_files(&server)[0];
    let stored = Path::new(&target).join("main/wal").join(&name[..16]);
    assert!(stored.join(format!("{name}.zst")).exists());

    // At another target there is another archive.
    let other = beside(&server, "other");
    std::fs::create_dir(&other).unwrap();
    server.user().own(Path::new(&other));
    let text_of = std::fs::read_to_string(&config).unwrap();
    let more = format!("[target.other]\ndirectories = [{other:?}]\n");
    std::fs::write(&config, text_of + &more).unwrap();
    let at_other = ["--target", "other"];
    let get = [
        "wal",
        "get",
        name.as_str(),
        "pg_wal/R",
        "--database",
        "main",
    ];
    let get = [&get[..], &["--config", &config]].concat();
    assert_eq!(
        code(&run(&server, &[&get[..], &at_other].concat())),
        NO_ANSWER
    );
    assert_eq!(code(&run(&server, &[&create[..], &at_other].concat())), 0);
    assert!(Path::new(&other).join("main/wal").is_dir());
    assert_eq!(code(&run(&server, &[&args[..], &at_other].concat())), 0);
    let copied = Path::new(&other).join("main/wal").join(&name[..16]);
    assert!(copied.join(format!("{name}.zst")).exists());
    std::fs::remove_dir_all(stored).unwrap();
    assert_eq!(code(&run(&server, &get)), 1, "the server has it itself");
    assert_eq!(code(&run(&server, &[&get[..], &at_other].concat())), 0);
    let args = [
        "wal",
        "push",
        &file,
        "--database",
        "other",
        "--config",
        &config,
    ];
    assert_eq!(code(&run(&server, &args)), 2);
}
