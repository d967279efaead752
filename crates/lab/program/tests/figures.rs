//! Goal: each of the 22 published figures has a command that works, a page that sets ours next to the published values,
//! and a row in docs/lab.md.
//! Method: the real program with samples of a few megabytes; every cell of every table, and every value of every chart, is
//! compared between JSON, Markdown and the page.
//! Not covered: whether the figures are right for a machine; one small size shows nothing about that.

mod reported;

use std::fs;
use std::path::Path;

use longshore_kit::program::{command, text};
use reported::{LAB, rows, run};
use serde_json::Value;
use tempfile::TempDir;

const FIGURES: usize = 22;

/// A directory that the servers' user can enter, with a short name.
fn stage() -> TempDir {
    longshore_kit::place::dir("lab")
}

/// A table as text: its head, then its rows.
type Grid = Vec<Vec<String>>;

/// A table of JSON as the other forms show it: numbers with the column's decimals, and a dash for what was not measured.
fn shown(table: &Value) -> Grid {
    let columns = table["columns"].as_array().unwrap();
    let head = columns
        .iter()
        .map(|c| c["name"].as_str().unwrap().to_owned());
    let cell = |(cell, column): (&Value, &Value)| match cell {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        number => {
            let decimals = column["decimals"].as_u64().unwrap() as usize;
            format!("{:.decimals$}", number.as_f64().unwrap())
        }
    };
    let row = |row: &Value| {
        row.as_array()
            .unwrap()
            .iter()
            .zip(columns)
            .map(cell)
            .collect()
    };
    let rows = table["row_values"].as_array().unwrap().iter().map(row);
    std::iter::once(head.collect()).chain(rows).collect()
}

/// The text between the first `from` and the next `to`, and the rest.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<(&'a str, &'a str)> {
    let (_, rest) = text.split_once(from)?;
    rest.split_once(to)
}

/// Every text between `from` and `to`, one after another.
fn every<'a>(mut text: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    while let Some((inner, rest)) = between(text, from, to) {
        found.push(inner);
        text = rest;
    }
    found
}

/// The text of an element, without the elements in it.
fn plain(html: &str) -> String {
    let mut text = String::new();
    let mut is_inside = true;
    for c in html.chars() {
        match c {
            '<' => is_inside = false,
            '>' => is_inside = true,
            c if is_inside => text.push(c),
            _ => {}
        }
    }
    let unescaped = text
        .replace("&quot;", "\"")
        .replace("&lt;", "<")
        .replace("&gt;", ">");
    unescaped.replace("&amp;", "&")
}

fn grid_of_html(table: &str) -> Grid {
    let head = every(table, "<th", "</th>");
    let name = |cell: &&str| {
        let (name, _) = cell
            .split_once('>')
            .unwrap()
            .1
            .split_once("<small>")
            .unwrap();
        plain(name)
    };
    let (body, _) = between(table, "<tbody>", "</tbody>").unwrap();
    let cell = |cell: &&str| plain(cell.split_once('>').unwrap().1);
    let row = |row: &&str| every(row, "<td", "</td>").iter().map(cell).collect();
    let rows = every(body, "<tr>", "</tr>");
    std::iter::once(head.iter().map(name).collect())
        .chain(rows.iter().map(row))
        .collect()
}

/// The table that each section of a page has of its own, if any: not those of maps and of charts' numbers.
fn tables_of_html(html: &str) -> Vec<Option<Grid>> {
    let own = |section: &&str| {
        let mut text = (*section).to_owned();
        for (from, to) in [("<figure", "</figure>"), ("<details>", "</details>")] {
            while let Some((before, rest)) = text.split_once(from) {
                let (_, after) = rest.split_once(to).unwrap();
                text = format!("{before}{after}");
            }
        }
        between(&text, "<table>", "</table>").map(|(table, _)| grid_of_html(table))
    };
    every(html, "<section>", "</section>")
        .iter()
        .map(own)
        .collect()
}

/// The cells of a line of a pipe table.
fn cells_of_line(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut chars = line.trim().trim_start_matches('|').chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => cells.last_mut().unwrap().extend(chars.next()),
            '|' => cells.push(String::new()),
            c => cells.last_mut().unwrap().push(c),
        }
    }
    cells.pop();
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

fn grid_of_markdown(text: &str) -> Option<Grid> {
    let lines: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .collect();
    let lines = lines.into_iter().take_while(|line| line.starts_with('|'));
    let mut grid: Grid = lines.map(cells_of_line).collect();
    (!grid.is_empty()).then(|| {
        grid.remove(1);
        grid
    })
}

/// A section's own table in Markdown, and the tables of its charts with their titles.
type Told = (Option<Grid>, Vec<(String, Grid)>);

/// The tables of each section.
fn tables_of_markdown(markdown: &str) -> Vec<Told> {
    let sections = markdown.split("\n## ").skip(1);
    let own = |section: &str| {
        let mut parts = section.split("\n### ");
        let own = grid_of_markdown(parts.next().unwrap());
        let titled = parts.map(|part| {
            let title = part.lines().next().unwrap().replace('\\', "");
            (title, grid_of_markdown(part).unwrap())
        });
        (own, titled.collect())
    };
    sections.map(own).collect()
}

/// Heads in Markdown have their units in brackets.
fn without_units(mut grid: Grid, like: &Grid) -> Grid {
    for (name, expected) in grid[0].iter_mut().zip(&like[0]) {
        if let Some(unit) = name.strip_prefix(expected.as_str()) {
            assert!(unit.is_empty() || unit.starts_with(" ("), "{name}");
            name.clone_from(expected);
        }
    }
    grid
}

/// True if each value of a chart stands in a row of its place and a column of its quantity, or in a row of its series and a
/// column of its place. The same number anywhere else is another's.
fn has_where_it_belongs(table: &Value, chart: &Value) -> bool {
    let lower = |text: &Value| text.as_str().unwrap().to_lowercase();
    let columns = table["columns"].as_array().into_iter().flatten();
    let columns: Vec<String> = columns.map(|column| lower(&column["name"])).collect();
    let rows: Vec<&Vec<Value>> = table["row_values"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| row.as_array().unwrap())
        .collect();
    let positions = &chart["x"]["positions"];
    let place = |n: usize| match positions["names"].get(n) {
        Some(name) => name,
        None => &positions["numbers"][n],
    };
    let stands = |series: &Value, n: usize, value: &Value| {
        let axis = match series["axis"].as_str() {
            Some("right") => "y_right",
            _ => "y",
        };
        let quantities = [lower(&series["name"]), lower(&chart[axis]["label"])];
        let is_of_quantity = |column: &String| quantities.contains(column);
        let is_of_place =
            |column: &String| place(n).is_string() && column.ends_with(&lower(place(n)));
        rows.iter().any(|row| {
            let mut cells = row.iter().zip(&columns);
            cells.any(|(cell, column)| {
                let by_place = row.contains(place(n)) && is_of_quantity(column);
                let by_series = row.contains(&series["name"]) && is_of_place(column);
                cell == value && (by_place || by_series)
            })
        })
    };
    chart["series"].as_array().unwrap().iter().all(|series| {
        let values = series["values"].as_array().unwrap().iter().enumerate();
        let mut measured = values.filter(|(_, value)| value.is_number());
        measured.all(|(n, value)| stands(series, n, value))
    })
}

/// Panics unless the three forms of a report say the same in every cell, and unless what its charts show stands in tables
/// of Markdown, each number where it belongs.
fn forms_agree(id: &str, report: &Value, html: &str, markdown: &str) {
    let sections = report["sections"].as_array().unwrap();
    let (of_html, of_markdown) = (tables_of_html(html), tables_of_markdown(markdown));
    assert_eq!(of_html.len(), sections.len(), "{id}");
    assert_eq!(of_markdown.len(), sections.len(), "{id}");
    for ((section, html), (own, titled)) in sections.iter().zip(of_html).zip(of_markdown) {
        let what = format!("{id}: {}", section["heading"]);
        let table = &section["table"];
        if table.is_null() {
            assert_eq!((html, own), (None, None), "{what}");
        } else {
            let expected = shown(table);
            assert_eq!(html.expect(&what), expected, "{what}");
            let own = without_units(own.expect(&what), &expected);
            assert_eq!(own, expected, "{what}");
        }
        let mut tables = titled.iter().peekable();
        for chart in section["charts"].as_array().unwrap() {
            let series = chart["series"].as_array().unwrap();
            let own = chart["title"].as_str().unwrap();
            let Some((title, grid)) = tables.next_if(|(title, _)| title == own) else {
                assert!(has_where_it_belongs(table, chart), "{what}: {own}");
                continue;
            };
            assert_eq!(grid[0].len(), 1 + series.len(), "{what}: {title}");
            for (n, series) in series.iter().enumerate() {
                let told = grid[1..].iter().map(|row| row[n + 1].as_str());
                let told: Vec<f64> = told.filter_map(|cell| cell.parse().ok()).collect();
                let values = series["values"].as_array().unwrap().iter();
                let values: Vec<f64> = values.filter_map(Value::as_f64).collect();
                assert_eq!(told.len(), values.len(), "{what}: {title}");
                let largest = values.iter().fold(0.0_f64, |a, b| a.max(b.abs()));
                for (told, value) in told.iter().zip(&values) {
                    let is_near = (told - value).abs() <= 0.001 * largest;
                    assert!(is_near, "{what}: {title}: {told} {value}");
                }
            }
        }
        assert!(tables.next().is_none(), "{what}");
    }
}

#[test]
fn the_comparison_of_forms_sees_one_changed_cell() {
    let report = serde_json::json!({"sections": [{
        "heading": "H",
        "table": {
            "columns": [{"name": "a", "unit": "", "decimals": 0}, {"name": "b", "unit": "s", "decimals": 2}],
            "row_values": [["x|<y>", 1.0], ["z", null]],
        },
        "charts": [],
    }]});
    let html = "<section><h2>H</h2><figure><table></table></figure><table><thead><tr><th>a<small></small></th>\
                <th class=\"number\">b<small>s</small></th></tr></thead><tbody><tr><td>x|&lt;y&gt;</td><td>1.00</td></tr>\
                <tr><td>z</td><td><span>–</span></td></tr></tbody></table></section>";
    let markdown = "# T\n\n## H\n\n| a | b (s) |\n|---|---:|\n| x\\|\\<y> | 1.00 |\n| z | – |\n";
    forms_agree("right", &report, html, markdown);
    for (html, markdown) in [
        (html.replace("1.00", "1.01"), markdown.to_owned()),
        (html.to_owned(), markdown.replace("| z |", "| zz |")),
        (html.replace("<td>z</td>", ""), markdown.to_owned()),
    ] {
        let same = std::panic::catch_unwind(|| forms_agree("wrong", &report, &html, &markdown));
        assert!(same.is_err(), "{html} {markdown}");
    }
}

#[test]
fn the_comparison_of_forms_sees_a_number_that_is_another_rows_or_columns() {
    let html = "<section><h2>H</h2><table><thead><tr><th>Backup<small></small></th><th>Elapsed<small>s</small></th>\
                <th>CPU<small>s</small></th></tr></thead><tbody><tr><td>a</td><td>1</td><td>3</td></tr><tr><td>b</td>\
                <td>2</td><td>4</td></tr></tbody></table></section>";
    let markdown = "# T\n\n## H\n\n| Backup | Elapsed (s) | CPU (s) |\n|---|---:|---:|\n| a | 1 | 3 |\n| b | 2 | 4 |\n";
    let agree = |values: [f64; 2]| {
        let column =
            |name: &str, unit: &str| serde_json::json!({"name": name, "unit": unit, "decimals": 0});
        let report = serde_json::json!({"sections": [{
            "heading": "H",
            "table": {
                "columns": [column("Backup", ""), column("Elapsed", "s"), column("CPU", "s")],
                "row_values": [["a", 1.0, 3.0], ["b", 2.0, 4.0]],
            },
            "charts": [{
                "title": "Time",
                "x": {"label": "", "unit": "", "positions": {"names": ["a", "b"]}},
                "y": {"label": "Elapsed", "unit": "s", "max": null},
                "series": [{"name": "Time", "axis": "left", "values": values}],
            }],
        }]});
        std::panic::catch_unwind(|| forms_agree("of charts", &report, html, markdown)).is_ok()
    };
    assert!(agree([1.0, 2.0]));
    for wrong in [[2.0, 1.0], [3.0, 4.0], [1.0, 1.0]] {
        assert!(!agree(wrong), "{wrong:?}");
    }
}

/// Whether this row of a figure has a value in a run that lasts longer.
fn is_made(dir: &TempDir, id: &str, name: &str) -> bool {
    let line =
        format!("lab figure {id} --quick --size 64M --rounds 1 --work w --dir a --out longer");
    let compared = rows(&run(dir, &line, 0), 0);
    compared
        .iter()
        .any(|row| row[0] == name && row[3] != "not measured here")
}

#[test]
fn every_figure_has_a_command_that_works_small_and_a_row_in_the_page() {
    let dir = stage();
    let list = run(&dir, "lab figures --list", 0);
    let list = rows(&list, 0);
    assert_eq!(list.len(), FIGURES);

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let page = fs::read_to_string(root.join("docs/lab.md")).unwrap();
    let told: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| S"))
        .collect();
    assert_eq!(told.len(), FIGURES, "docs/lab.md");
    for (row, told) in list.iter().zip(told) {
        let expected = format!("| {} | {} | {} |", row[0], row[1], row[2]);
        assert!(
            told.starts_with(&expected),
            "docs/lab.md: {told}\nwanted: {expected}"
        );
        assert!(
            told.len() > expected.len() + 20,
            "{told}: what can it not show?"
        );
    }

    let line = "lab figures --quick --size 3M --rounds 1 --phase 1 --work w --dir a --dir b --dir c --dir d --out out \
                --emulate 400M --emulate-source 1G";
    let overview = run(&dir, line, 0);
    assert_eq!(overview["sections"].as_array().unwrap().len(), FIGURES);
    let read = |name: String| fs::read_to_string(dir.path().join("out").join(&name)).expect(&name);
    let index = read("index.html".into());
    assert_eq!(index.matches("<article>").count(), FIGURES);
    let mut missing = Vec::new();
    for row in &list {
        let id = &row[0];
        let report: Value = serde_json::from_str(&read(format!("{id}.json"))).unwrap();
        let summary = report["summary"].as_str().unwrap();
        assert!(summary.starts_with("Quick run"), "{id}: {summary}");
        let (html, markdown) = (read(format!("{id}.html")), read(format!("{id}.md")));
        assert!(index.contains(&format!("href=\"{id}.html\"")), "{id}");
        forms_agree(id, &report, &html, &markdown);
        let is_emulated = id.starts_with("S3.");
        assert_eq!(html.contains("emulated at 400 MB/s"), is_emulated, "{id}");
        let compared = rows(&report, 0);
        assert!(!compared.is_empty(), "{id}");
        for row in &compared {
            let is_hardware = row[0].contains("ardware") && !row[0].contains("oftware");
            if row[3] == "not measured here" && !is_hardware {
                missing.push(format!("{id}: {}", row[0]));
            }
        }
        let is_modelled = id.starts_with("S4");
        assert_eq!(summary.contains("Modelled"), is_modelled, "{id}: {summary}");
        for section in report["sections"].as_array().unwrap() {
            let charts = section["charts"].as_array().unwrap();
            let captions = charts.iter().map(|chart| &chart["title"]);
            for text in captions.chain([&section["heading"]]) {
                // The machine is a fact.
                let text = text.as_str().unwrap();
                let is_told = text.contains("modelled") || text == "The machine";
                assert!(is_told || !is_modelled, "{id}: {text}");
            }
        }
        let says_why = summary.contains("Not here: QAT_DEFLATE in hardware");
        let lacks = compared
            .iter()
            .any(|row| row[0].contains("ardware") && row[3].starts_with("not"));
        assert!(!lacks || says_why, "{id}: {summary}");
    }
    // Directories that the run itself made: their file system is known, also to the table of the hardware.
    let hardware: Value = serde_json::from_str(&read("S0.T2.json".into())).unwrap();
    let disk = rows(&hardware, 0).into_iter().find(|row| row[0] == "Disk");
    assert!(
        disk.as_ref().is_some_and(|row| row[2].contains(" on ")),
        "{disk:?}"
    );
    let made: Value = serde_json::from_str(&read("S3.F4.json".into())).unwrap();
    let parts = made["sections"].as_array().unwrap();
    let machine = parts.iter().position(|s| s["heading"] == "The machine");
    let parts = rows(&made, machine.unwrap());
    for dir in ["a", "b", "c", "d", "w"] {
        let name = format!("Storage of {dir}");
        assert!(parts.iter().any(|row| row[0] == name), "{name}: {parts:?}");
    }
    // A run of moments has no latency of reads from a disk, and files in memory have none in any case; another test makes
    // this figure where it has one.
    let latency = "S3.F3: Latency with most buffers by that with the fewest";
    // The machine's CPU time comes in hundredths of a second, so a run of moments may have used none. A longer one has used some.
    let is_of_moments = |row: &str| match row.split_once(": ") {
        Some((id, name)) if name.contains("CPU") => !is_made(&dir, id, name),
        _ => true,
    };
    missing.retain(|row| row != latency && is_of_moments(row));
    assert!(missing.is_empty(), "{missing:?}");
    let left: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .flat_map(|d| fs::read_dir(dir.path().join(d)).unwrap())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_figure_is_made_as_it_is_asked_for() {
    let dir = stage();
    let make = |id: &str| {
        let line =
            format!("lab figure {id} --quick --size 3M --rounds 3 --work w --dir a --out out");
        run(&dir, &line, 0)
    };
    let called = |report: &Value, what: &str| {
        let mut rows = rows(report, 0).into_iter();
        rows.find(|row| row[0].starts_with(what)).expect(what)
    };
    // A number that was published for hardware is no verdict on software.
    let report = make("s0.f5");
    assert!(report["title"].as_str().unwrap().starts_with("S0.F5"));
    let low = called(
        &report,
        "QAT_DEFLATE LOW in software smaller than MS_XPRESS, STAE",
    );
    assert!(low[0].ends_with("(published for hardware)"), "{low:?}");
    assert_eq!(
        (low[1].as_str(), low[3].as_str()),
        ("about 13.0 %", "another machine")
    );
    // Four volumes are not four files in one directory.
    let report = make("s3.f4");
    let layouts = called(&report, "4 devices on one volume by 4 on four");
    assert_eq!(layouts[3], "not measured here");
    let summary = report["summary"].as_str().unwrap();
    assert!(
        summary.contains("Not here: 4 devices on four volumes (1 directory"),
        "{summary}"
    );
    // The sign: LOW is larger here, and the publication says smaller.
    let report = make("s2.c");
    let low = called(&report, "QAT_DEFLATE LOW smaller");
    assert!(
        low[2].starts_with('-') && low[3] == "CONTRADICTS",
        "{low:?}"
    );
    let summary = report["summary"].as_str().unwrap();
    assert!(
        summary.contains("QAT_DEFLATE LOW smaller than MS_XPRESS: published smaller"),
        "{summary}"
    );
    assert!(
        !summary.contains("chance may decide"),
        "three rounds: {summary}"
    );
    for form in ["html", "md", "json"] {
        assert!(
            dir.path().join(format!("out/S0.F5.{form}")).exists(),
            "{form}"
        );
    }

    // An option that a figure has no use for is refused, with the command that makes it.
    for (line, id) in [("s0.f5 --phase 1", "S0.F5"), ("s4.f2 --rounds 2", "S4.F2")] {
        let refused = run(&dir, &format!("lab figure {line}"), 2).to_string();
        let next = format!("`longshore lab figure {id}`");
        assert!(
            refused.contains("has no effect on") && refused.contains(&next),
            "{refused}"
        );
    }

    let mut wrong = command(LAB, ["lab", "figure", "S9.F1"]);
    let refused = wrong.current_dir(dir.path()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(
        said.contains("no figure is called S9.F1") && said.contains("lab figures --list"),
        "{said}"
    );
}

/// Goal: S3.F3 has its latency wherever reads go to a device for longer than a moment.
/// Method: a source that is emulated, so that its reads are never in a page cache and take their time.
#[test]
fn the_latency_of_reads_is_shown_where_reads_go_to_a_device() {
    let dir = stage();
    let line = "lab figure s3.f3 --quick --size 3M --work w --dir a --emulate 100M --emulate-source 4M,2ms --out out";
    let report = run(&dir, line, 0);
    let compared = rows(&report, 0);
    let latency = compared.iter().find(|row| row[0].starts_with("Latency"));
    let latency = latency.unwrap();
    assert!(
        latency[2].ends_with(" ×") && latency[3] != "not measured here",
        "{latency:?}"
    );
    let over_time = &report["sections"][1];
    let charts = over_time["charts"].as_array().unwrap();
    let lines = charts
        .iter()
        .find(|c| c["title"].as_str().unwrap().starts_with("Read latency"));
    let series = lines.unwrap()["series"].as_array().unwrap();
    let values = series.iter().flat_map(|s| s["values"].as_array().unwrap());
    let values: Vec<f64> = values.filter_map(Value::as_f64).collect();
    // No read of the device is answered before its latency.
    assert!(
        values.len() >= 3 && values.iter().all(|ms| *ms >= 2.0),
        "{values:?}"
    );
    let summary = report["summary"].as_str().unwrap();
    assert!(
        summary.contains("emulated at 100 MB/s, the source at 4 MB/s and 2 ms"),
        "{summary}"
    );
    assert!(!summary.contains("reads from a disk"), "{summary}");
}

/// Goal: directories of one drive are never taken for drives, and emulated ones never for real ones.
#[test]
fn four_directories_of_one_drive_are_not_four_volumes_unless_they_are_emulated() {
    let dir = stage();
    let make = |more: &str| {
        let line = format!(
            "lab figure s3.f4 --quick --size 3M --work w --dir a --dir b --dir c --dir d --out out {more}"
        );
        run(&dir, &line, 0)
    };
    let volumes = |report: &Value| {
        let mut rows = rows(report, 0).into_iter();
        rows.find(|row| row[0].starts_with("4 devices on one volume by 4 on four"))
            .unwrap()
    };
    let titles = |report: &Value| -> Vec<String> {
        let sections = report["sections"].as_array().unwrap();
        let of = |s: &Value| -> Vec<String> {
            let charts = s["charts"].as_array().unwrap().iter().map(|c| &c["title"]);
            let all = charts.chain([&s["heading"]]);
            all.map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        let title = report["title"].as_str().unwrap().to_owned();
        sections.iter().flat_map(of).chain([title]).collect()
    };
    let report = make("");
    assert_eq!(volumes(&report)[3], "not measured here");
    let summary = report["summary"].as_str().unwrap();
    let told = "4 directories of one drive";
    assert!(
        summary.contains(&format!("The volumes are {told}.")),
        "{summary}"
    );
    assert!(
        summary.contains(&format!("Not here: 4 devices on four volumes ({told}")),
        "{summary}"
    );
    assert!(
        titles(&report)
            .iter()
            .all(|title| title.contains(told) || title == "The machine"),
        "{:?}",
        titles(&report)
    );
    let made = rows(&report, 1);
    assert!(
        made.iter()
            .any(|row| row[0] == format!("4 devices, {told}")),
        "{made:?}"
    );

    let report = make("--emulate 50M");
    assert_ne!(volumes(&report)[3], "not measured here");
    let summary = report["summary"].as_str().unwrap();
    assert!(
        summary.contains("The devices are not real: emulated at 50 MB/s."),
        "{summary}"
    );
    let told = "emulated at 50 MB/s";
    assert!(
        titles(&report)
            .iter()
            .all(|title| title.contains(told) || title == "The machine"),
        "{:?}",
        titles(&report)
    );
    assert!(summary.contains("Which limit held: "), "{summary}");

    let mut wrong = command(LAB, ["lab", "figure", "S0.F5", "--emulate", "50M"]);
    let refused = wrong.current_dir(dir.path()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("not made on emulated devices"));
}
