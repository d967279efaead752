//! Goal: reports say the same in their forms (JSON, text, HTML, Markdown), no text breaks out of its form, and the HTML
//! form works in a real browser.
//! Method: an example with made-up numbers (`data/report.json`), texts that are hostile to each form, and Chromium,
//! which draws the charts.
//! Not covered: the drawing where Chromium is not installed.

use std::path::Path;
use std::process::Command;

use longshore_kit::Random;
use longshore_policy::model::Profile;
use longshore_studies::cache_figures::{FiguresSpec, PairSpec, cache_figures, pair_figures};
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

/// The way in which a page is looked at.
#[derive(Debug, Clone, Copy)]
struct View {
    /// CSS pixels; `None`: the browser's own window.
    width: Option<u32>,
    is_dark: bool,
}

const USUAL: View = View {
    width: None,
    is_dark: false,
};

/// The page after Chromium has run its script; `None` without Chromium.
fn in_browser(report: &Report, view: View) -> Option<String> {
    let dir = tempfile::TempDir::new().unwrap();
    let mut page = dir.path().join("report.html");
    std::fs::write(&page, report.to_html().unwrap()).unwrap();
    if let Some(width) = view.width {
        // Chromium's windows are 500 pixels wide or wider; a frame can have any width, and hands on what the script says.
        let frame = format!(
            "<!doctype html><iframe id=f width={width} height=900 style=\"border:0\" src=\"report.html\"></iframe>\
             <script>f.onload = () => Object.assign(document.documentElement.dataset, \
             f.contentDocument.documentElement.dataset)</script>"
        );
        page = dir.path().join("frame.html");
        std::fs::write(&page, frame).unwrap();
    }
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
        .args(view.is_dark.then_some("--force-dark-mode"))
        .args(view.width.map(|_| "--allow-file-access-from-files"))
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
    in_browser(report, USUAL).map(|page| said(&page, "drawn").parse().unwrap())
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
    let Some(page) = in_browser(&report, USUAL) else {
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

fn chart(title: &str, form: ReportFormat, at: At, series: Vec<Series>) -> Chart {
    Chart {
        title: title.into(),
        form,
        x: Positions {
            label: "Place".into(),
            unit: String::new(),
            at,
        },
        y: Axis::new("Elapsed", "s"),
        y_right: None,
        series,
    }
}

/// A report with all that a page must hold: long words, a wide table, families, a bar that flattens, a curve with a gap,
/// points with names, and a map.
fn crowded() -> Report {
    let algorithms = [
        "NONE",
        "MS_XPRESS LOW",
        "QAT_DEFLATE LOW",
        "QAT_DEFLATE HIGH",
        "ZSTD LOW",
        "LZ4 LOW",
        "PAGES LOW",
        "pgBackRest",
        "WAL-G",
        "pg_basebackup",
        "quiet",
    ];
    let names = || At::Names(algorithms.map(str::to_owned).into());
    let heights =
        (0..algorithms.len()).map(|n| Some(if n == 4 { 123.0 } else { 1.0 + n as f64 / 10.0 }));
    let bars = chart(
        "Time of a backup",
        ReportFormat::Bar,
        names(),
        vec![Series::new("Elapsed", heights.collect())],
    );
    let steps = At::Numbers(vec![1.0, 2.0, 4.0, 10.0, 64.0]);
    let lines =
        algorithms.map(|name| Series::new(name, (0..5).map(|n| Some(f64::from(n))).collect()));
    let lines = chart(
        "Over buffers",
        ReportFormat::Line,
        steps.clone(),
        lines.into(),
    );
    let gap = vec![Some(1.0), None, Some(3.0), None, Some(4.0)];
    let default = vec![None, None, None, Some(3.5), None];
    let curve = chart(
        "A curve and its default",
        ReportFormat::Line,
        steps,
        vec![
            Series::new("1 MiB", gap).joined(),
            Series::new("1 MiB, default", default).like("1 MiB"),
        ],
    );
    let row = (0..12).map(|n| Some(0.2 + f64::from(n) / 3.0)).collect();
    let places = (0..12).map(|n| format!("{n} KiB")).collect();
    let map = chart(
        "A map",
        ReportFormat::Map,
        At::Names(places),
        vec![Series::new(
            "4 devices, 4 directories of one drive, 4 MiB",
            row,
        )],
    );
    let mut report = small("crowded");
    report.summary = "a/very/long/path/".repeat(20);
    report
        .platform
        .push(("Storage of /a/path".into(), "x".repeat(200)));
    let section = &mut report.sections[0];
    let table = section.table.as_mut().unwrap();
    for n in 0..12 {
        table
            .columns
            .push(Column::number(&format!("Column {n}"), "MB/s", 1));
        table
            .row_values
            .iter_mut()
            .for_each(|row| row.push(1.0.into()));
    }
    section.prose.push("word".repeat(100));
    section.charts = vec![
        bars,
        lines,
        curve,
        scatter(vec![(1.0, 2.0), (3.0, 4.0)]),
        map,
    ];
    report
}

/// Goal: nobody has to move a page to and fro to read it on a phone.
/// Method: Chromium lays pages out in a frame as wide as a phone; the script tells how wide they became.
#[test]
fn on_a_phone_no_page_is_wider_than_the_screen_and_every_chart_is_drawn() {
    for (report, charts) in [(crowded(), 4), (example(), 7)] {
        for is_dark in [false, true] {
            let view = View {
                width: Some(400),
                is_dark,
            };
            let Some(page) = in_browser(&report, view) else {
                return;
            };
            let widths: Vec<u32> = said(&page, "width")
                .split(' ')
                .map(|n| n.parse().unwrap())
                .collect();
            assert_eq!(widths[2], 400, "the frame is a phone");
            assert!(widths[0] <= widths[1], "{}: {widths:?}", report.title);
            assert_eq!(said(&page, "drawn"), charts.to_string(), "{}", report.title);
        }
    }
}

/// The parts of a colour as the browser tells it, 0 to 255.
fn parts(colour: &str) -> [f64; 3] {
    let numbers: Vec<f64> = match colour.strip_prefix('#') {
        Some(hex) => (0..3)
            .map(|n| f64::from(u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()))
            .collect(),
        None => {
            let inner = colour
                .strip_prefix("rgb(")
                .and_then(|c| c.strip_suffix(')'));
            let inner = inner.unwrap_or_else(|| panic!("{colour:?}"));
            inner.split(", ").map(|n| n.parse().unwrap()).collect()
        }
    };
    numbers.try_into().unwrap()
}

/// The lightness of a colour, 0 to 1, as WCAG counts it.
fn luminance(colour: &str) -> f64 {
    let linear = parts(colour).map(|part| {
        let part = part / 255.0;
        if part <= 0.03928 {
            part / 12.92
        } else {
            ((part + 0.055) / 1.055).powf(2.4)
        }
    });
    0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
}

/// WCAG's contrast of two colours, 1 to 21.
fn contrast(a: &str, b: &str) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// Goal: pages are read in the dark and in the light.
/// Method: the colours that Chromium computed for the page, its text and each series, by WCAG's contrast.
#[test]
fn in_the_dark_and_in_the_light_text_and_charts_stand_out_from_the_page() {
    for is_dark in [false, true] {
        let view = View {
            width: None,
            is_dark,
        };
        let Some(page) = in_browser(&crowded(), view) else {
            return;
        };
        let colours: Vec<&str> = said(&page, "colours").split(" | ").collect();
        let [ground, text, shades @ ..] = colours.as_slice() else {
            panic!("{colours:?}");
        };
        assert_eq!(luminance(ground) < 0.05, is_dark, "{ground}");
        assert!(contrast(ground, text) >= 7.0, "{ground} {text}");
        assert!(shades.len() >= 2 * 11 + 2, "{shades:?}");
        for shade in shades {
            let least = if is_dark { 3.0 } else { 1.9 };
            assert!(contrast(ground, shade) >= least, "{ground} {shade}");
        }
        // Eleven bars: six families, the second of one in the colour of the first, three greys, and what is none.
        let (bars, lines) = (&shades[..11], &shades[11..22]);
        assert_eq!(bars[2], bars[3]);
        let different: std::collections::BTreeSet<_> = bars.iter().collect();
        assert_eq!(different.len(), 10, "{bars:?}");
        for grey in &bars[7..10] {
            let [red, green, blue] = parts(grey);
            assert!(
                (red - blue).abs() < 30.0 && (red - green).abs() < 30.0,
                "{grey}"
            );
        }
        // A family has the same colour in lines; the second of its lines is told apart.
        for n in [0, 1, 2, 4, 5, 6] {
            assert_eq!(parts(bars[n]), parts(lines[n]), "{}", lines[n]);
        }
        assert_ne!(lines[2], lines[3]);
        // The point of a default has its curve's colour.
        assert_eq!(shades[22], shades[23]);
    }
}

/// Goal: one bar does not flatten the others, and its value is still read; a curve does not break at others' points.
/// Method: the script tells which bars it cut and which lines pass gaps; the page has the same in words.
#[test]
fn a_bar_that_would_flatten_the_others_is_cut_with_its_value_and_a_curve_passes_gaps() {
    let report = crowded();
    let html = report.to_html().unwrap();
    let told = "Cut, because they would flatten the others: ZSTD LOW: 123 s.";
    assert_eq!(html.matches(told).count(), 1);
    assert!(
        html.contains("data-cut=\"2.5\""),
        "1.25 times the highest of the others"
    );
    let Some(page) = in_browser(&report, USUAL) else {
        return;
    };
    assert_eq!(said(&page, "cut"), "123");
    let joined: Vec<&str> = said(&page, "joined").split(' ').collect();
    assert_eq!(
        joined.iter().filter(|n| **n == "1").count(),
        1,
        "{joined:?}"
    );
    assert_eq!(
        joined[12], "1",
        "bars, eleven lines, then the curve: {joined:?}"
    );
}

/// Goal: whoever has only the Markdown knows what the charts of the page show.
#[test]
fn markdown_and_the_page_have_the_numbers_of_charts_that_no_table_has() {
    let report = crowded();
    let markdown = report.to_markdown();
    for title in [
        "Time of a backup",
        "Over buffers",
        "A curve and its default",
        "Time and size",
        "A map",
    ] {
        assert_eq!(
            markdown.matches(&format!("### {title}\n")).count(),
            1,
            "{title}"
        );
    }
    assert!(markdown.contains("| ZSTD LOW | 123.0 |"), "{markdown}");
    let html = report.to_html().unwrap();
    // The map is a table of the page.
    assert_eq!(html.matches("<details><summary>Numbers: ").count(), 4);
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
    says_what_is_modelled(&report);
    assert!(
        report.summary.contains("Published, Q13 and Q16 alone"),
        "{}",
        report.summary
    );
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

/// Nothing that was not measured is without the word: neither a heading nor a caption of what was drawn from models.
fn says_what_is_modelled(report: &Report) {
    assert!(report.summary.starts_with("Modelled"), "{}", report.summary);
    assert_eq!(report.sections.len(), 4);
    for section in &report.sections {
        let told = section.charts.iter().map(|chart| &chart.title);
        for text in told.chain([&section.heading]) {
            assert!(text.contains("modelled"), "{text}");
        }
    }
    // Of the queries some columns say what was recorded, and all others that they are modelled.
    let mut sections = report.sections.iter();
    let queries = sections.find(|s| s.heading.starts_with("Queries"));
    let columns = &queries.unwrap().table.as_ref().unwrap().columns;
    for column in &columns[1..] {
        let words = ["modelled", "recorded"];
        let is_told = words.iter().any(|word| column.name.contains(word));
        assert!(is_told, "{}", column.name);
    }
}

#[test]
fn the_figures_of_two_devices_say_what_is_modelled_and_replay_the_recorded_queries() {
    let spec = FiguresSpec {
        seed: 1,
        quick: true,
    };
    let named = |name: &str| Profile::named(name).unwrap().clone();
    let pair = PairSpec {
        fast: named("optane-p4800x"),
        slow: named("sata-ssd"),
        fast_name: "a.model".into(),
        slow_name: "b.model".into(),
    };
    let report = pair_figures(&pair, &spec, &|_| {}).unwrap();
    says_what_is_modelled(&report);
    assert!(
        report
            .summary
            .contains("Of TPC-H's 22 queries, as PostgreSQL reads for them, "),
        "{}",
        report.summary
    );
    assert!(!report.summary.contains("Published"), "{}", report.summary);
    let queries = report.sections[2].table.as_ref().unwrap();
    assert_eq!(queries.columns[5].name, "I/O on a.model, modelled");
    // A SATA drive has a fifth of the bandwidth and eight times the latency.
    for row in &queries.row_values {
        let [Cell::Number(fast), Cell::Number(slow)] = &row[5..7] else {
            panic!("{row:?}");
        };
        assert!(slow > fast, "{row:?}");
    }
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
