//! Goal: reports say the same in their forms (JSON, text, HTML, Markdown), no text breaks out of its form, and the HTML
//! form works in a real browser.
//! Method: an example with made-up numbers (`data/report.json`), texts that are hostile to each form, and Chromium,
//! which draws the charts.
//! Not covered: the drawing where Chromium is not installed.

use std::path::Path;
use std::process::Command;

use longshore_kit::Random;
use longshore_studies::cache_figures::{FiguresSpec, cache_figures};
use longshore_studies::report::{
    At, Axis, Cell, Chart, Column, Positions, Report, ReportFormat, Section, Series, Table,
};

/// A report of every kind of section. Its numbers are made up.
const EXAMPLE: &str = include_str!("data/report.json");

fn example() -> Report {
    serde_json::from_str(EXAMPLE).unwrap()
}

fn small(text: &str) -> Report {
    let columns = vec![Column::text("Algorithm"), Column::number("Rate", "MB/s", 1)];
    let rows = vec![
        vec![Cell::from(text), Cell::from(1234.56)],
        vec![Cell::from("ZSTD"), Cell::from(None::<f64>)],
        vec![Cell::from("LZ4"), Cell::from(f64::NAN)],
    ];
    Report {
        title: text.into(),
        summary: text.into(),
        platform: vec![
            ("CPU".into(), text.into()),
            ("Memory".into(), "24 GB".into()),
        ],
        sections: vec![Section {
            heading: "Rates".into(),
            prose: vec![text.into()],
            table: Some(Table {
                columns,
                row_values: rows,
            }),
            charts: Vec::new(),
        }],
    }
}

#[test]
fn the_json_of_the_html_form_reads_back_as_the_same_report() {
    let report = example();
    assert!(
        report
            .sections
            .iter()
            .all(|section| !section.charts.is_empty())
    );
    let page = report.to_html().unwrap();
    let (_, data) = page.split_once("id=\"report\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let back: Report = serde_json::from_str(data).unwrap();
    assert_eq!(back, report);
    // The page's script reads these names.
    let fields: serde_json::Value = serde_json::from_str(data).unwrap();
    let chart = &fields["sections"][0]["charts"][0];
    assert_eq!(chart["x"]["positions"]["numbers"][1], 2.0);
    assert_eq!(
        (chart["form"].as_str(), chart["series"][0]["axis"].as_str()),
        (Some("line"), Some("left"))
    );
    assert!(fields["sections"][0]["table"]["row_values"][0][7].is_null());
    // Reports of earlier versions have another one.
    let earlier = data.replace("\"row_values\"", "\"rows\"");
    assert_ne!(earlier, data);
    assert_eq!(Report::from_json(&earlier).unwrap(), report);
}

#[test]
fn text_aligns_numbers_and_shows_what_was_not_measured_as_a_dash() {
    let text = small("QAT_DEFLATE").to_text();
    let expected = "\
QAT_DEFLATE
===========
QAT_DEFLATE

  CPU     QAT_DEFLATE
  Memory  24 GB

Rates
-----
QAT_DEFLATE

Algorithm      Rate
               MB/s
-----------  ------
QAT_DEFLATE  1234.6
ZSTD              –
LZ4               –
";
    assert_eq!(text, expected);
}

#[test]
fn text_wraps_prose() {
    let text = small(&"word ".repeat(100)).to_text();
    let prose: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("word word"))
        .collect();
    assert!(
        prose
            .iter()
            .any(|line| line.len() > 90 && line.len() <= 100)
    );
}

#[test]
fn no_text_can_break_out_of_the_page() {
    let hostile = "</script><script>alert(1)</script><!-- \"onload='x' & \u{2028}";
    let html = small(hostile).to_html().unwrap();
    // The page's own blocks: data, library, script.
    assert_eq!(html.matches("<script").count(), 3);
    assert_eq!(html.matches("</script").count(), 3);
    let (page, rest) = html.split_once("id=\"report\">").unwrap();
    assert!(
        !page.contains("alert(1)</script") && !page.contains("<!--") && !page.contains("\"onload")
    );
    let data = rest.split("</script>").next().unwrap();
    let back: Report = serde_json::from_str(data).unwrap();
    assert_eq!(back.title, hostile);
}

#[test]
fn the_page_asks_for_nothing_from_outside() {
    let html = example().to_html().unwrap();
    for reference in [
        " src=",
        "href=",
        "@import",
        "url(",
        "fetch(",
        "XMLHttpRequest",
    ] {
        assert!(!html.contains(reference), "{reference}");
    }
    assert!(html.contains("default-src 'none'"));
}

/// The vendored library is the published file: an update must change this test, and the licence.
#[test]
fn the_charting_library_is_the_published_file_with_its_licence() {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    let library = std::fs::read(assets.join("chart-4.6.1.umd.min.js")).unwrap();
    assert_eq!(
        (library.len(), longshore_io::crc32c(&library)),
        (210_082, 0xae7a_1ae7)
    );
    let licence = std::fs::read_to_string(assets.join("chart-LICENSE.md")).unwrap();
    assert!(licence.contains("MIT") && licence.contains("@kurkle/color"));
}

/// The page after Chromium has run its script; `None` without Chromium.
fn in_browser(report: &Report) -> Option<String> {
    let dir = tempfile::TempDir::new().unwrap();
    let page = dir.path().join("report.html");
    std::fs::write(&page, report.to_html().unwrap()).unwrap();
    let profile = dir.path().join("profile");
    let dump = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--virtual-time-budget=4000", "--dump-dom"])
        .arg(&page)
        .output();
    let dump = match dump {
        Err(e) if std::env::var_os("LONGSHORE_REQUIRE_TOOLS").is_none() => {
            eprintln!("skipped: chromium does not run: {e}");
            return None;
        }
        dump => dump.unwrap(),
    };
    Some(String::from_utf8_lossy(&dump.stdout).into_owned())
}

/// The script's answer at its end about `what`.
fn said<'a>(page: &'a str, what: &str) -> &'a str {
    let (_, said) = page
        .split_once(&format!("data-{what}=\""))
        .expect("the script did not end");
    said.split('"').next().unwrap()
}

/// How many charts of a page show data; `None` without Chromium.
fn drawn(report: &Report) -> Option<usize> {
    in_browser(report).map(|page| said(&page, "drawn").parse().unwrap())
}

/// Goal: the page works in a browser, with its policy, its data and the library together.
/// Method: Chromium runs it; its script reports at the end how many charts have visible data.
#[test]
fn a_browser_draws_every_chart() {
    assert!(drawn(&example()).is_none_or(|charts| charts == 7));
}

/// A chart of named points, as the comparison of algorithms has it.
fn scatter(mut points: Vec<(f64, f64)>) -> Chart {
    const NAMES: [&str; 9] = [
        "NONE",
        "LZ4 LOW",
        "ZSTD LOW",
        "QAT_DEFLATE LOW",
        "QAT_DEFLATE MEDIUM",
        "QAT_DEFLATE 4",
        "ZSTD MEDIUM",
        "MS_XPRESS LOW",
        "QAT_DEFLATE HIGH",
    ];
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let series = points.iter().enumerate().map(|(n, point)| {
        let mut values = vec![None; points.len()];
        values[n] = Some(point.1);
        Series::new(NAMES[n], values)
    });
    Chart {
        title: "Time and size".into(),
        form: ReportFormat::Scatter,
        x: Positions {
            label: "Elapsed".into(),
            unit: "s".into(),
            at: At::Numbers(points.iter().map(|point| point.0).collect()),
        },
        y: Axis::new("Stored", "MB"),
        y_right: None,
        series: series.collect(),
    }
}

/// Goal: who looks at a point knows its name.
/// Method: Chromium draws a run of `make demo`, points everywhere, and points in a heap; the script tells where it put
/// the names. Names further than a few pixels from their points have a line, which is not looked at.
#[test]
fn names_stand_next_to_their_points_and_cover_no_others() {
    const NEXT_PX: f64 = 10.0;
    let demo = [
        (0.10, 208.9),
        (0.49, 169.5),
        (1.25, 132.8),
        (1.43, 131.6),
        (2.12, 130.8),
        (2.67, 128.7),
        (3.00, 129.5),
        (3.10, 129.0),
        (5.36, 126.4),
    ];
    let mut random = Random(7);
    let mut points = |from: f64, width: f64| {
        let mut number = || from + width * random.below(1000_u64) as f64 / 1000.0;
        scatter((0..9).map(|_| (number(), number())).collect())
    };
    let mut charts = vec![scatter(demo.to_vec()), points(3.0, 0.0)];
    for n in 0..30 {
        let (from, width) = [(0.0, 5.0), (2.0, 1.0), (4.9, 0.1)][n % 3];
        charts.push(points(from, width));
    }
    let mut report = small("Names");
    report.sections[0].charts = charts;
    let Some(page) = in_browser(&report) else {
        return;
    };
    // The frame's edges and a name's are left, top, right, bottom; after a name's: its point, and 1 for a line.
    let told: Vec<Vec<Vec<f64>>> = serde_json::from_str(said(&page, "names")).unwrap();
    assert_eq!(told.len(), report.sections[0].charts.len());
    for chart in &told {
        let (frame, names) = chart.split_first().unwrap();
        assert_eq!(names.len(), 9, "{chart:?}");
        for (n, name) in names.iter().enumerate() {
            assert!(name[2] > name[0] + 20.0, "a name has no width: {name:?}");
            let is_inside = (0..2).all(|i| name[i] >= frame[i] && name[i + 2] <= frame[i + 2]);
            assert!(is_inside, "{name:?} leaves {frame:?}");
            let beyond = |i: usize| {
                (name[i] - name[i + 4])
                    .max(name[i + 4] - name[i + 2])
                    .max(0.0)
            };
            let far = beyond(0).hypot(beyond(1));
            assert!(
                far <= NEXT_PX || name[6] == 1.0,
                "{name:?} is {far} px away"
            );
            for other in &names[..n] {
                let meets = |i: usize| name[i] < other[i + 2] && other[i] < name[i + 2];
                assert!(!(meets(0) && meets(1)), "{name:?} covers {other:?}");
            }
        }
    }
    let moved = told[0].iter().skip(1).filter(|name| name[6] == 1.0);
    assert!(moved.count() <= 5, "{:?}", told[0]);
}

/// Goal: the figure says what the recorded requests and the models make of each query, whether or not that is what was published.
#[test]
fn the_cache_figures_are_those_of_the_recording_and_a_browser_draws_them() {
    let spec = FiguresSpec {
        seed: 1,
        quick: true,
    };
    let report = cache_figures(&spec, &|_| {}).unwrap();
    let table = report.sections[1].table.as_ref().unwrap();
    assert_eq!(table.row_values.len(), 22);
    let numbers = |row: &[Cell]| -> Vec<f64> {
        let number = |cell: &Cell| match cell {
            Cell::Number(number) => *number,
            other => panic!("{other:?}"),
        };
        row[1..].iter().map(number).collect()
    };
    let mut faster_on_flash = 0;
    for row in &table.row_values {
        let [
            requests,
            _,
            commands,
            cpu,
            on_optane,
            on_flash,
            optane,
            flash,
            slower,
        ] = numbers(row)[..]
        else {
            panic!("{row:?}");
        };
        assert!(requests >= 100.0 && cpu > 0.0 && on_optane > 0.0, "{row:?}");
        assert!((1.0..=16.0).contains(&commands), "{row:?}");
        assert!((optane - cpu - on_optane).abs() < 1e-9);
        assert!((flash - cpu - on_flash).abs() < 1e-9);
        assert!((slower - 100.0 * (optane / flash - 1.0)).abs() < 1e-9);
        faster_on_flash += usize::from(slower > 0.0);
        // Reads of 1 MiB, which the Optane splits, and reads of single pages, for which it has the lower latency.
        match &row[0] {
            Cell::Text(name) if name == "Q1" => assert!(on_optane > on_flash, "{row:?}"),
            Cell::Text(name) if name == "Q20" => assert!(on_optane < on_flash, "{row:?}"),
            _ => {}
        }
    }
    let told = format!("{faster_on_flash} are faster with all data on the flash");
    assert!(report.summary.contains(&told), "{}", report.summary);
    let charts = || report.sections.iter().flat_map(|s| &s.charts);
    let maps = charts().filter(|chart| chart.form == ReportFormat::Map);
    assert_eq!((charts().count(), maps.count()), (7, 1));
    // A map is a table, which needs no drawing.
    assert!(drawn(&report).is_none_or(|drawn| drawn == 6));
    let page = report.to_html().unwrap();
    // The Optane answers one small read sooner, and not a large one of many.
    assert!(
        page.contains("<tr><th>depth 1</th><td class=\"number m3\">7."),
        "{page}"
    );
    assert!(page.contains("class=\"number m-1\">0."), "{page}");
}

#[test]
fn markdown_tables_keep_their_columns_whatever_the_text() {
    let markdown = small("a|b *c*\n<d>").to_markdown();
    let expected = "\
# a\\|b \\*c\\* \\<d>

a\\|b \\*c\\* \\<d>

| | |
|---|---|
| CPU | a\\|b \\*c\\* \\<d> |
| Memory | 24 GB |

## Rates

a\\|b \\*c\\* \\<d>

| Algorithm | Rate (MB/s) |
|---|---:|
| a\\|b \\*c\\* \\<d> | 1234.6 |
| ZSTD | – |
| LZ4 | – |
";
    assert_eq!(markdown, expected);
}

#[test]
fn a_headline_carries_what_limits_its_figures() {
    let report = |platform: &[(&str, &str)], quick| {
        let mut report = small("Twice as fast.");
        let rows = platform
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        report.platform = rows.collect();
        report.caution(quick);
        report.summary
    };
    assert_eq!(
        report(&[("CPU of others before", "9 %")], false),
        "Twice as fast."
    );
    let busy = report(
        &[
            ("CPU of others before", "97 %"),
            ("Overridden", "LONGSHORE_SYSFS=/x"),
        ],
        true,
    );
    let parts = [
        "Quick run",
        "97 % busy",
        "LONGSHORE_SYSFS=/x",
        "Twice as fast.",
    ];
    let places: Vec<usize> = parts
        .iter()
        .map(|part| busy.find(part).expect(part))
        .collect();
    assert!(places.is_sorted(), "{busy}");
}

#[test]
fn the_parts_of_the_machine_stand_in_a_table_at_the_end_and_a_line_in_the_head() {
    let mut report = small("a");
    let row = |name: &str| (name.to_owned(), format!("{name} here"));
    report.platform = ["Machine", "Sockets", "Storage of /a", "Command"]
        .map(row)
        .into();
    report.tell_parts_last();
    assert_eq!(report.platform, ["Machine", "Command"].map(row));
    let last = report.sections.last().unwrap();
    assert_eq!(last.heading, "The machine");
    let rows = &last.table.as_ref().unwrap().row_values;
    assert_eq!(
        rows[1],
        ["Storage of /a", "Storage of /a here"].map(Cell::from)
    );
    // A second call finds nothing more.
    let sections = report.sections.len();
    report.tell_parts_last();
    assert_eq!(report.sections.len(), sections);
}

#[test]
fn the_release_of_a_report_is_what_its_program_says() {
    let mut report = small("a");
    let rows = report.platform.clone();
    report.name_release("0.1.0 (commit abc)".into());
    assert_eq!(report.platform, rows, "no row says it yet");
    report.platform.push(("Longshore".into(), "0.1.0".into()));
    report.name_release("0.1.0 (commit abc)".into());
    assert_eq!(report.platform.last().unwrap().1, "0.1.0 (commit abc)");
}
