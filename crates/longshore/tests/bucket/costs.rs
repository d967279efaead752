//! Goal: what a backup to an object store costs is what docs/buckets.md says, and the study of the way to a store
//! measures it with the options that it is given.
//! Method: real servers; requests are counted by `--verbose`, and the numbers are read from the page.

use super::*;

/// The requests of a run, as `--verbose` tells them.
fn requests(server: &Server, line: &str) -> u64 {
    let line = format!("{line} --verbose");
    let args: Vec<_> = line.split_whitespace().collect();
    let mut program = server.program(&args);
    let output = ended(0, program.env("LONGSHORE_PART_MIB", "5"));
    let said = text(&output.stderr);
    let told = said.lines().find_map(|line| {
        let (before, _) = line.split_once(" requests")?;
        before.rsplit(' ').next()?.replace(',', "").parse().ok()
    });
    told.unwrap_or_else(|| panic!("no number of requests: {said}"))
}

/// The number on the page between two texts.
fn promised(before: &str, after: &str) -> u64 {
    let page = include_str!("../../../../docs/buckets.md");
    let rest = page.split_once(before).unwrap().1;
    rest.split_once(after).unwrap().0.parse().unwrap()
}

/// Goal: a backup and a restore make no more requests than the page says: some for each stripe, and one for each part.
#[test]
fn requests_are_as_few_as_the_page_says() {
    on_servers(&[Kind::Versitygw], as_few);
}

fn as_few(server: &Server) {
    const PARTS: u64 = 4;
    let of_stripe = promised("GB with parts of 16 MiB, and ", " requests for each stripe");
    let with_history = promised("requests for each stripe, ", " where a history is kept");
    let of_restore = promised("120 GET for each GB, and ", " requests for each stripe");
    for (name, parts) in [("small", 0), ("large", PARTS)] {
        let tree = server.path(name);
        std::fs::create_dir(&tree).unwrap();
        let bytes = content(2, ((parts as usize * 5) << 20) + 1000);
        std::fs::write(tree.join("file"), bytes).unwrap();
        let to = server.stripes(name, "--to");
        let stripes = to.matches("--to").count() as u64;
        let line = format!("backup {name}{to} --algorithm none --catalog none");
        let made = requests(server, &line);
        let most = of_stripe * stripes + parts;
        assert!(
            made <= most,
            "{line}: {made} requests, and the page says {most}"
        );
        assert!(made >= 4 * stripes + parts, "{line}: {made} requests");
        let to = server.stripes(&format!("kept-{name}"), "--to");
        let line = format!("backup {name}{to} --algorithm none --catalog history.db");
        let made = requests(server, &line);
        let most = with_history * stripes + parts;
        assert!(
            made <= most,
            "{line}: {made} requests, and the page says {most}"
        );
        let from = server.stripes(name, "");
        let line = format!("restore{from} --to back-{name} --catalog none");
        let made = requests(server, &line);
        // Ranges of 8 MiB and shorter ones at the beginning.
        let most = of_restore * stripes + parts * 5;
        assert!(
            made <= most,
            "{line}: {made} requests, and the page says {most}"
        );
    }
}

/// The stripes in a server's directory.
fn objects_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(objects_below(&path)),
            false => found.push(path),
        }
    }
    found.retain(|path| path.extension().is_some_and(|ending| ending == "bak"));
    found
}

/// Goal: the study measures all three kinds of backups with the options given, and leaves no object.
#[test]
fn the_study_of_the_way_measures_and_leaves_nothing() {
    on_each_server(|server| {
        let tree = server.path("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("file"), vec![b'a'; 3 << 20]).unwrap();
        let bucket = server.bucket();
        let line = format!(
            "lab network --to {bucket}/lab --to {bucket}/other/ --source tree --stripes 3 --rounds 2 --algorithm LZ4 --json \
             --html way.html --markdown way.md"
        );
        let report = answer(&server.run(0, &line));
        let table = &report["sections"][0]["table"]["row_values"];
        let rows = table.as_array().unwrap();
        assert_eq!(rows.len(), 3, "{table}");
        assert_eq!(rows[0][0], "LZ4 LOW to NUL");
        assert_eq!(rows[1][0], "LZ4 LOW to the store");
        let stored = |row: usize| rows[row][3].as_f64().unwrap();
        assert!(stored(1) < 0.2 && stored(2) > 3.0, "{table}");
        let said = report["sections"][0]["prose"][0].as_str().unwrap();
        assert!(said.contains("3 stripes, medians of 2 rounds"), "{said}");
        let summary = report["summary"].as_str().unwrap();
        assert!(
            summary.contains("to be stored, and the way takes"),
            "{summary}"
        );
        for page in ["way.html", "way.md"] {
            let page = std::fs::read_to_string(server.path(page)).unwrap();
            assert!(page.contains("The way to an object store"));
        }
        if server.kind != Kind::Azurite {
            let left = objects_below(&server.path("store"));
            assert!(left.is_empty(), "{left:?}");
        }

        let quick = format!("lab network --to {bucket}/lab --quick --size 3M --work kept --json");
        let report = answer(&server.run(0, &quick));
        let said = report["sections"][0]["prose"][0].as_str().unwrap();
        assert!(said.contains("4 stripes, medians of 1 round"), "{said}");
        assert!(report["summary"].as_str().unwrap().contains("Quick run"));
        assert!(server.path("kept/stae-3145728.db").exists());
        // A path, and an address that has no key.
        server.run(2, "lab network --to /tmp/x --source tree");
    });
}

/// Goal: a search for settings measures backups to a store, tries several stripes below an address, and leaves neither an object
/// nor an upload.
#[test]
fn a_search_for_settings_measures_the_store_and_leaves_nothing() {
    on_each_server(|server| {
        let tree = server.path("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("file"), vec![b'a'; 3 << 20]).unwrap();
        let bucket = server.bucket();
        let line = format!("tune tree --to {bucket}/tuned --algorithm LZ4 --time 20 --json");
        let report = answer(&server.run(0, &line));
        let rows = &report["sections"][1]["table"]["row_values"];
        let settings: Vec<&str> = rows
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|row| row[0].as_str())
            .collect();
        assert!(settings.contains(&"LZ4 LOW, 1 stripe"), "{settings:?}");
        // Those that measure best are tried with more stripes, in whichever order.
        let striped = settings.iter().any(|told| told.contains("2 stripes"));
        assert!(striped, "{settings:?}");
        if server.kind != Kind::Azurite {
            // Azure has no uploads that could be listed.
            let left = answer(&server.run(0, &format!("uploads {bucket}/tuned --json")));
            assert_eq!(left["uploads"].as_array().map(Vec::len), Some(0), "{left}");
            let left = objects_below(&server.path("store"));
            assert!(left.is_empty(), "{left:?}");
        }
    });
}
