//! Goal: every unit of contrib/systemd, and every unit that the cache's page shows, is one that systemd understands, and the
//! program understands its command.
//! Method: variables are expanded as systemd expands them, and the command is run up to its first refusal; systemd-analyze
//! reads the units and judges what they may do.
//! Not covered: systemd itself, which runs in no test. `tests/cache/ready.rs` has the cache's unit at work.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repository::configured;
use crate::stage::Stage;

/// The values of the variables in commands of units, as `/etc/longshore/cache-NAME.env` names them.
const VARIABLES: [(&str, &str); 3] = [
    ("BACKEND", "/no where/disk"),
    ("CACHE", "/no where/cache"),
    ("OPTIONS", "--policy none --threads 32"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The words of a command as systemd makes them: `${NAME}` is one word, `$NAME` as many as its value has.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for word in command.split_whitespace() {
        let word = word.replace("%i", "nobody");
        let value = |name: &str| VARIABLES.iter().find(|(known, _)| *known == name);
        match word.strip_prefix('$') {
            None => words.push(word),
            Some(name) => match name.strip_prefix('{').and_then(|n| n.strip_suffix('}')) {
                Some(name) => words.push(value(name).expect(name).1.to_owned()),
                None => words.extend(value(name).expect(name).1.split(' ').map(str::to_owned)),
            },
        }
    }
    assert!(words.iter().all(|word| !word.contains('$')), "{command}");
    words
}

/// The program understands the command of every unit in contrib/systemd, and systemd understands the units.
#[test]
fn the_systemd_units_run_commands_that_exist() {
    let stage = configured();
    let mut units = 0;
    let mut copies = Vec::new();
    for entry in std::fs::read_dir(root().join("contrib/systemd")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        if !name.contains("service") && !name.contains("timer") {
            continue;
        }
        units += 1;
        for line in text.lines().filter_map(|l| l.strip_prefix("ExecStart=")) {
            let args = line.strip_prefix("/usr/local/bin/longshore ").unwrap();
            // Most commands end at a configuration that cannot be read; the cache has none.
            let is_cache = name.starts_with("longshore-cache@");
            let config = ["--config", "/dev/null"].map(str::to_owned);
            let before = if is_cache { &[] } else { &config[..] };
            let ran = stage.run(&[before, &words(args)].concat());
            for refusal in [
                "unexpected argument",
                "unrecognized",
                "required arguments",
                "invalid value",
                "a value is required",
            ] {
                assert!(!ran.err.contains(refusal), "{name}: {}", ran.err);
            }
            // The options are taken; what systemd makes before the start is missing.
            let missing = "the directory of /run/longshore-cache-nobody/disk.sock";
            assert!(!is_cache || ran.err.contains(missing), "{}", ran.err);
        }
        // The program is not installed where the units expect it.
        let copy = stage.write(
            &name,
            text.replace("/usr/local/bin/longshore", "/bin/true")
                .as_bytes(),
        );
        copies.push(copy);
    }
    assert!(units >= 9, "{units}");
    if are_understood(&copies, "longshore") {
        are_confined(&copies);
    }
}

/// Whether systemd-analyze is here; if so, it finds nothing wrong in units whose names have `ours`.
fn are_understood(units: &[PathBuf], ours: &str) -> bool {
    match Command::new("systemd-analyze")
        .arg("verify")
        .args(units)
        .output()
    {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            // Whether the manual is installed does not concern the units.
            let ours = |l: &&str| l.contains(ours) && !l.contains("Command 'man ");
            let ours: Vec<_> = said.lines().filter(ours).collect();
            assert!(ours.is_empty(), "{ours:?}");
            true
        }
        Err(e) => {
            let required = std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_some();
            assert!(!required, "systemd-analyze: {e}; run scripts/setup.sh");
            eprintln!("skipped: systemd-analyze is not here, the units' form was not checked");
            false
        }
    }
}

/// The services have few rights, as systemd-analyze judges them.
fn are_confined(units: &[PathBuf]) {
    for copy in units
        .iter()
        .filter(|c| c.extension().is_some_and(|e| e == "service"))
    {
        // "OK" ends at 4.9; in tenths.
        let mut security = Command::new("systemd-analyze");
        let judged = security
            .args(["security", "--offline=true", "--threshold=40"])
            .arg(copy)
            .output();
        let judged = judged.unwrap();
        // systemd 249 and older judge only units that are installed.
        if String::from_utf8_lossy(&judged.stderr).contains("unrecognized option") {
            eprintln!("skipped: this systemd-analyze judges no files");
            break;
        }
        let said = String::from_utf8_lossy(&judged.stdout).into_owned();
        let last = said.lines().last().unwrap_or_default();
        assert!(judged.status.success(), "{}: {last}", copy.display());
    }
}

/// The files that a page shows: blocks of code whose first line is `# /etc/…/NAME`, as that path and the rest.
fn shown(page: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let blocks = text.split("```").skip(1).step_by(2);
    let code = blocks.filter_map(|block| block.split_once('\n'));
    let named = code.filter_map(|(_, code)| code.strip_prefix("# ")?.split_once('\n'));
    let files = named.filter(|(path, _)| path.starts_with("/etc/"));
    files.map(|(p, c)| (p.to_owned(), c.to_owned())).collect()
}

/// The units that systemd makes of a table of mounts; `None` where its generator is not.
fn mounts(stage: &Stage, table: &str) -> Option<Vec<PathBuf>> {
    let made = stage.path("made");
    std::fs::create_dir(&made).unwrap();
    let generator = "/lib/systemd/system-generators/systemd-fstab-generator";
    let mut command = Command::new(generator);
    command.args([&made, &made, &made]);
    command.env("SYSTEMD_FSTAB", stage.write("fstab", table.as_bytes()));
    if let Err(e) = command.output() {
        eprintln!("skipped: {generator}: {e}");
        return None;
    }
    let units = stage.names("made").into_iter();
    let mounts = units.filter(|name| name.ends_with(".mount"));
    let content = |name: &String| std::fs::read(made.join(name)).unwrap();
    Some(mounts.map(|n| stage.write(&n, &content(&n))).collect())
}

/// The units of the page's example fit the cache's unit, and one another.
#[test]
fn the_units_that_the_caches_page_shows_are_understood() {
    let stage = configured();
    let shown = shown("docs/cache-daemon.md");
    let file = |end: &str| {
        let found = shown.iter().find(|(path, _)| path.ends_with(end));
        &found.unwrap_or_else(|| panic!("no {end}: {shown:?}")).1
    };
    let environment = file("/longshore/cache-shop.env").lines();
    let names = environment.map(|line| line.split_once('=').unwrap().0);
    assert!(names.eq(VARIABLES.iter().map(|(name, _)| *name)));
    let cache = std::fs::read_to_string(root().join("contrib/systemd/longshore-cache@.service"));
    let mut units = Vec::new();
    for (name, content) in [
        ("longshore-cache@.service", cache.unwrap()),
        ("shop-disk.service", file("/shop-disk.service").clone()),
        (
            "shop-database.service",
            format!("{}[Service]\nExecStart=/bin/true\n", file("/disk.conf")),
        ),
    ] {
        // Programs that need not be here.
        let lines = content.lines().map(|line| match line.split_once('=') {
            Some((key, _)) if key.starts_with("Exec") => format!("{key}=/bin/true\n"),
            _ => format!("{line}\n"),
        });
        units.push(stage.write(name, lines.collect::<String>().as_bytes()));
    }
    if let Some(mounts) = mounts(&stage, file("/fstab")) {
        assert_eq!(mounts.len(), 1, "{mounts:?}");
        assert!(mounts[0].ends_with("srv-shop.mount"), "{mounts:?}");
        let text = std::fs::read_to_string(&mounts[0]).unwrap();
        assert!(text.contains("\nRequires=shop-disk.service\n"), "{text}");
        units.extend(mounts);
    }
    are_understood(&units, "shop");
}
