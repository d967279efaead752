//! Goal: the documentation is consistent: links lead somewhere, the index is complete, the pictures match their
//! sources, and each chosen number has a row that says what set it.
//! Method: the pages and the code are read as text. Links to the web are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Files directly in `dir` with this ending.
fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == ending))
        .collect()
}

/// The pages for people, without those of crates' assets.
fn pages() -> Vec<PathBuf> {
    let docs = root().join("docs");
    let mut found = files(&root(), "md");
    found.extend(files(&docs, "md"));
    found.extend(files(&docs.join("decisions"), "md"));
    found.extend(files(&docs.join("results"), "md"));
    for page in [
        "contrib/ansible",
        "contrib/systemd",
        "tests/golden",
        "tests/clients",
        "docs/results/figures",
    ] {
        found.push(root().join(page).join("README.md"));
    }
    found
}

/// The lines of a page that are not inside a fence.
fn prose(page: &str) -> Vec<&str> {
    let mut inside = false;
    page.lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            inside ^= fence;
            !inside && !fence
        })
        .collect()
}

/// The targets of a page's links and pictures, as written.
fn links(page: &str) -> Vec<String> {
    let joined = prose(page).join("\n");
    let after = joined.split("](").skip(1);
    after
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page).into_iter().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(&line.trim_start_matches('#').replace(['`', '\\'], "")))
        .collect()
}

/// The error in a link of `page`; none for links to the web.
fn wrong_with(page: &Path, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => page.to_owned(),
        _ => page.parent().unwrap().join(path),
    };
    if !target.exists() {
        return Some(format!("{link}: no such file"));
    }
    let known = heading.is_empty() || anchors(&text(&target)).contains(heading);
    (!known).then(|| format!("{link}: no such heading"))
}

#[test]
fn every_link_of_every_page_leads_to_a_file_and_a_heading_that_exist() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        for link in links(&text(&page)) {
            count += 1;
            let found = wrong_with(&page, &link);
            wrong.extend(found.map(|w| format!("{}: {w}", page.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "only {count} links were found");
}

#[test]
fn a_link_to_nowhere_is_found() {
    let page = root().join("docs/README.md");
    for good in [
        "format.md",
        "../README.md",
        "format.md#blocks",
        "#documentation",
        "https://x.y/",
    ] {
        assert_eq!(wrong_with(&page, good), None);
    }
    for bad in [
        "formats.md",
        "format.md#block",
        "#index",
        "README.md/format.md",
    ] {
        assert!(wrong_with(&page, bad).is_some(), "{bad}");
    }
    assert_eq!(
        links("a [b](c.md) and ![d](e.svg)\n```\n[f](g)\n```\n"),
        ["c.md", "e.svg"]
    );
}

#[test]
fn the_indexes_name_every_page() {
    for (index, dir) in [
        ("docs/README.md", "docs"),
        ("docs/decisions/README.md", "docs/decisions"),
    ] {
        let linked: BTreeSet<String> = links(&text(&root().join(index))).into_iter().collect();
        for page in files(&root().join(dir), "md") {
            let name = page.file_name().unwrap().to_str().unwrap();
            assert!(
                name == "README.md" || linked.contains(name),
                "{index} does not name {name}"
            );
        }
    }
}

#[test]
fn every_picture_is_what_the_script_draws_and_is_shown_on_a_page() {
    let script = root().join("docs/pictures/draw.py");
    let drawn = Command::new("python3")
        .arg(&script)
        .arg("--check")
        .output()
        .unwrap();
    assert!(
        drawn.status.success(),
        "{}",
        String::from_utf8_lossy(&drawn.stderr)
    );
    let shown: String = pages().iter().map(|page| text(page)).collect();
    for picture in files(&root().join("docs/pictures"), "svg") {
        let name = picture.file_name().unwrap().to_str().unwrap();
        assert!(
            shown.contains(&format!("pictures/{name})")),
            "no page shows {name}"
        );
    }
}

/// The constants of a Rust file's modules: `guard::SHARE` and its value, as written.
fn constants(source: &str) -> BTreeMap<String, String> {
    let (mut module, mut found) = ("", BTreeMap::new());
    for line in source.lines() {
        if let Some(name) = line.strip_prefix("pub mod ") {
            module = name.trim_end_matches(" {");
        }
        let constant = line.trim_start().strip_prefix("pub const ");
        if let Some((name, typed)) = constant.and_then(|rest| rest.split_once(": ")) {
            let (_, value) = typed.split_once(" = ").unwrap();
            let value = value.strip_suffix(';').unwrap();
            found.insert(format!("{module}::{name}"), value.to_owned());
        }
    }
    assert_eq!(found.len(), source.matches("const ").count());
    found
}

#[test]
fn every_constant_of_balance_has_a_row_that_says_what_set_it() {
    let source = text(&root().join("crates/core/balance/src/constants.rs"));
    let told = rows(&text(&root().join("docs/decisions/balance.md")));
    assert_eq!(told, constants(&source));
}

/// The rows of a table of constants: name and value. Each must say in its last cell what set the value.
fn rows(table: &str) -> BTreeMap<String, String> {
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [name, value, set_by] = cells[..] else {
            panic!("{row}: not three cells");
        };
        let set_by = set_by.trim_end_matches(" |");
        assert!(set_by.len() > 10, "{name}: set by what?");
        let unquoted = |cell: &str| cell.trim_matches('`').to_owned();
        (unquoted(name), unquoted(value))
    })
    .collect()
}

/// The constants of number and time at the head of a Rust file, outside of its tests: `lane::NAP` and its value.
fn numbers(path: &Path) -> BTreeMap<String, String> {
    let source = longshore_tests::shipped(&text(path));
    let file = path.file_stem().unwrap().to_str().unwrap();
    let mut found = BTreeMap::new();
    for line in source.lines().filter(|line| !line.starts_with(' ')) {
        let Some((_, rest)) = line.split_once("const ") else {
            continue;
        };
        let Some((name, typed)) = rest.split_once(": ") else {
            continue;
        };
        if typed
            .trim_start_matches('[')
            .starts_with(['f', 'u', 'i', 'D'])
        {
            let (_, value) = typed.split_once(" = ").unwrap();
            let value = value.strip_suffix(';').unwrap();
            found.insert(format!("{file}::{name}"), value.to_owned());
        }
    }
    found
}

/// Whether a name of ARCHITECTURE.md, such as `pipeline/load` or `io/pool.rs`, is a file or folder: of the repository, or
/// of a crate's sources, whose `src` the page leaves out.
fn exists(name: &str) -> bool {
    let (room, rest) = name.split_once('/').unwrap_or((name, ""));
    let of_room = |parent: &str| {
        let sources = root().join("crates").join(parent).join(room).join("src");
        sources.join(rest).exists() || sources.join(rest).with_extension("rs").exists()
    };
    let products = ["", "core", "sql", "cache", "lab"];
    root().join(name).exists() || products.into_iter().any(of_room)
}

#[test]
fn every_file_and_folder_that_the_architecture_names_exists() {
    let page = text(&root().join("ARCHITECTURE.md"));
    let is_path = |name: &&str| {
        let plain = |c: char| c.is_ascii_lowercase() || "_/.".contains(c);
        name.contains('/') && !name.starts_with('/') && name.chars().all(plain)
    };
    let named: BTreeSet<&str> = page.split('`').skip(1).step_by(2).filter(is_path).collect();
    assert!(named.len() > 30, "{named:?}");
    let missing: Vec<_> = named.into_iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(!exists("blockcache/engine") && exists("blockcache/cached"));
}

/// The files of the dispatcher, without suites of tests in files of their own.
fn dispatcher() -> Vec<PathBuf> {
    let mut sources = files(&root().join("crates/core/accel/src/dispatch"), "rs");
    sources.retain(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        !["simulation.rs", "threads.rs", "notice_contract.rs"].contains(&name)
    });
    sources
}

/// The tables of the dispatcher's numbers and of the devices' own.
fn tables_of_accelerators() -> (String, String) {
    let page = text(&root().join("docs/decisions/codec.md"));
    let (dispatcher, devices) = page.split_once("The devices' own numbers").unwrap();
    (dispatcher.to_owned(), devices.to_owned())
}

#[test]
fn every_number_of_the_dispatcher_has_a_row_that_says_what_set_it() {
    let mut sources = dispatcher();
    sources.push(root().join("crates/core/pipeline/src/choice.rs"));
    sources.push(root().join("crates/core/accel/src/engine.rs"));
    let mut found: BTreeMap<String, String> =
        sources.iter().flat_map(|path| numbers(path)).collect();
    // This product's number of a message.
    assert!(found.remove("engine::RUN_TIME").is_some());
    assert!(found.len() > 12, "{found:?}");
    assert_eq!(rows(&tables_of_accelerators().0), found);
}

#[test]
fn every_number_of_a_device_has_a_row_unless_its_vendor_sets_it() {
    // Statuses and identifiers of vendors, and what their libraries take at most.
    let given = [
        "nvcomp/device::WRONG_ALIGNMENT",
        "nvcomp/batch_memory::NONSENSE",
        "nvcomp/batch_memory::OUTPUT_TOO_SMALL",
        "nvcomp/queues::CHUNK",
        "nvcomp/queues::GATHER_UNIT",
        "qatzip/device::INTEL",
        "qatzip/session::CALL_LEN_MAX",
        "qatzip/session::PINNED_MAX",
    ];
    let devices = root().join("crates/core/accel/src/devices");
    let mut found = BTreeMap::new();
    for (folder, before) in [("", ""), ("nvcomp", "nvcomp/"), ("qatzip", "qatzip/")] {
        for path in files(&devices.join(folder), "rs") {
            // The library's header, in Rust.
            if !path.ends_with("tests.rs") && !path.ends_with("qatzip/abi.rs") {
                let own = numbers(&path).into_iter();
                found.extend(own.map(|(name, value)| (format!("{before}{name}"), value)));
            }
        }
    }
    for name in given {
        assert!(found.remove(name).is_some(), "{name} is gone");
    }
    assert_eq!(rows(&tables_of_accelerators().1), found);
}

/// The numbers of some files, each named after its file, and that with its folder `below` the crate's sources.
fn numbers_of(sources: &[PathBuf], below: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for path in sources {
        let folder = path.parent().unwrap().strip_prefix(below).unwrap();
        for (name, value) in numbers(path) {
            let name = folder.join(name).display().to_string();
            found.insert(name, value);
        }
    }
    found
}

/// The files of the block cache and of a device's calibration, without suites of tests in files of their own.
fn block_cache() -> Vec<PathBuf> {
    let cache = root().join("crates/cache");
    let mut sources = Vec::new();
    for folder in [
        "blockcache/src",
        "blockcache/src/cached",
        "policy/src/calibrate",
    ] {
        sources.extend(files(&cache.join(folder), "rs"));
    }
    sources.retain(|path| !path.ends_with("tests.rs"));
    assert!(sources.len() > 25, "{}", sources.len());
    sources
}

#[test]
fn every_number_of_the_block_cache_has_a_row_unless_a_format_gives_it() {
    // Lengths and offsets of formats, ours and others', and what follows from them.
    let given = [
        "content::BTRFS_AT",
        "content::EXT_AT",
        "content::SECTOR",
        "format::BACKEND",
        "format::BIRTHLESS_LEN",
        "format::CLEAR",
        "format::OLD_LEN",
        "format::SET",
        "format::SUPER_LEN",
        "geometry::LOGS",
        "geometry::LOGS_AT",
        "geometry::SLOTS_MAX",
        "geometry::SLOT_BYTES_MAX",
        "guard::LEN",
        "journal::BODY",
        "log_size::PAGE_HEAD",
        "log_size::SET_HEAD",
    ];
    let cache = root().join("crates/cache");
    let (own, calibration): (Vec<_>, Vec<_>) = block_cache()
        .into_iter()
        .partition(|path| path.starts_with(cache.join("blockcache")));
    let mut found = numbers_of(&own, &cache.join("blockcache/src"));
    for name in given {
        assert!(found.remove(name).is_some(), "{name} is gone");
    }
    found.extend(numbers_of(&calibration, &cache.join("policy/src")));
    let page = text(&root().join("docs/decisions/cache.md"));
    assert_eq!(rows(&page), found);
}

/// The number literals of a line, without those inside of strings and names.
fn literals(line: &str) -> Vec<String> {
    let code = line.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
    let words = code.split(|c| !is_word(c));
    let starts = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    words
        .filter(starts)
        .map(|w| w.trim_end_matches('.').to_owned())
        .collect()
}

/// The lines with a number that is neither plain nor a constant's, except those that hold a text of `named` in the file
/// of that name. Each of these must be found.
fn unnamed(sources: &[PathBuf], plain: &[&str], named: &[(&str, &str)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for path in sources {
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        for line in longshore_tests::shipped(&text(path)).lines() {
            let is_code = !line.trim_start().starts_with("//") && !line.contains("const ");
            let odd = literals(line)
                .iter()
                .any(|l| !plain.contains(&l.as_str()) && !l.contains(".."));
            if !is_code || !odd {
                continue;
            }
            let has = |known: &&(&str, &str)| known.0 == file && line.contains(known.1);
            match named.iter().find(has) {
                Some(known) => drop(used.insert(known)),
                None => wrong.push(format!("{file}: {}", line.trim())),
            }
        }
    }
    let unused = named.iter().filter(|known| !used.contains(known));
    wrong.extend(unused.map(|(file, part)| format!("{file} has no line with {part}")));
    wrong
}

#[test]
fn no_line_of_the_dispatcher_has_a_chosen_number_without_a_name() {
    // Counting and halves, a second in µs, quarters of `SLACK_QUARTERS`, and the quotient of rates.
    let plain = ["0", "1", "2", "0.0", "1.0", "2.0", "1e6"];
    let named = [
        ("inner.rs", "bytes / 4 * SLACK_QUARTERS"),
        ("lane.rs", "2u64.saturating_pow"),
        // Spreads sequence numbers.
        ("check.rs", "0x9e37_79b9_7f4a_7c15"),
        // CRC-32, bit by bit.
        ("check.rs", "0_u32.wrapping_sub"),
    ];
    let wrong = unnamed(&dispatcher(), &plain, &named);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(literals(r#"let a1 = 2.5 * x2 / 30; f("7")"#), ["2.5", "30"]);
}

#[test]
fn no_line_of_the_block_cache_has_a_chosen_number_without_a_name() {
    // Counting and halves, thousands between units, and per cent.
    let plain = [
        "0", "1", "2", "1000", "1000.0", "0.0", "1.0", "1e6", "100.0",
    ];
    let named = [
        // SplitMix64.
        ("open.rs", "wrapping_add(0x9e37_79b9_7f4a_7c15)"),
        ("open.rs", "wrapping_mul(0xbf58_476d_1ce4_e5b9)"),
        ("open.rs", "wrapping_mul(0x94d0_49bb_1331_11eb)"),
        ("open.rs", "z ^ (z >> 31)"),
        // Powers of two, and the bytes of a checksum.
        ("directory.rs", "1u64 << count"),
        ("geometry.rs", "1u32 << count"),
        ("status.rs", "1u64 << power"),
        ("log_size.rs", "4 * lines"),
        // The owner alone may connect; a page of memory to read into.
        ("control.rs", "0o600"),
        ("control.rs", "[0; 4096]"),
        // Cells read other places.
        ("cell.rs", "len << 32 ^ u64::from(depth) << 16"),
    ];
    let mut sources = block_cache();
    // Formats, the kernel's texts among them, and a hash that one of them holds.
    let of_formats = ["content.rs", "disks.rs", "format.rs", "guard.rs", "mark.rs"];
    sources.retain(|path| !of_formats.iter().any(|name| path.ends_with(name)));
    let wrong = unnamed(&sources, &plain, &named);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The files of `balance` and of the cache's policies, without algorithms of others.
fn deciding() -> Vec<PathBuf> {
    let policy = root().join("crates/cache/policy/src/policy");
    let mut sources = files(&root().join("crates/core/balance/src"), "rs");
    sources.extend(files(&policy, "rs"));
    sources.extend(files(&policy.join("filter"), "rs"));
    for name in ["valued.rs", "contest.rs", "frequency.rs", "order.rs"] {
        sources.push(policy.join("replace").join(name));
    }
    sources
        .retain(|path| !path.ends_with("balance/src/constants.rs") && !path.ends_with("tests.rs"));
    assert!(sources.len() > 20);
    sources
}

#[test]
fn no_line_of_balance_or_of_the_caches_policy_has_a_chosen_number_without_a_name() {
    // Counting and halves, and thousands between units.
    let plain = [
        "0", "1", "2", "1000", "1000.0", "0.0", "1.0", "2.0", "1e3", "1e6",
    ];
    let named = [
        // Both, the one, the other.
        ("guard.rs", "[ArmHistory"),
        // Follows from the law of queues in the comment before it.
        ("aware.rs", "crowded * 2.0 / 3.0"),
        // Mixes numbers of slots.
        ("contest.rs", "group ^ group >> 31"),
        ("contest.rs", "mixed >> 32"),
        ("frequency.rs", "slot.0 ^ slot.0 >> 32"),
        ("frequency.rs", "mixed ^ mixed >> 29"),
        ("frequency.rs", "mixed >> 32"),
    ];
    let wrong = unnamed(&deciding(), &plain, &named);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A number that was chosen is easily left where it was first used.
#[test]
fn no_other_file_of_balance_or_of_the_caches_policy_has_a_chosen_number() {
    // Bounds of arithmetic, the resolution of a histogram, and what follows from other constants.
    let derived = [
        "LONGEST_US",
        "RATE_LEAST",
        "ROUNDING",
        "STEPS",
        "STEPS_LOG",
        "BUCKETS",
        "KEEP",
        "LINE_BYTES",
    ];
    for path in deciding() {
        // Numbers that tests choose are their own.
        let own = longshore_tests::shipped(&text(&path));
        for line in own.lines() {
            let Some((_, rest)) = line.split_once("const ") else {
                continue;
            };
            let Some((name, typed)) = rest.split_once(": ") else {
                continue;
            };
            let number = typed.starts_with(['f', 'u', 'i']) && typed.contains(" = ");
            assert!(
                !number || derived.contains(&name),
                "{}: {name}",
                path.display()
            );
        }
    }
}
