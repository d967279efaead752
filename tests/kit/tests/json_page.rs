//! Goal: `docs/json.md` describes each answer of `--json`, and an answer that differs from it is found.
//! Method: a small page with answers that are wrong in one way each; the page of this tree next to the sources of the
//! commands. Every suite compares the answers that it gets with the page (`longshore_kit::program`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use longshore_kit::schema::{Schema, check_if_answer, page};

const PAGE: &str = "\
# Answers
## Types
| type | what it is |
|---|---|
| `string` | a text |
## Every answer
| member | type | meaning |
|---|---|---|
| `status` | `ok` or `error` | how it ended |
| `warnings` | array of string | texts |
| `action` (sometimes) | string | what was done |
| `error` (sometimes) | [error](#error) | why it failed |
## Parts
### error
| member | type | meaning |
|---|---|---|
| `text` | string | what failed |
| `number` | integer or null | its number |
### set
| member | type | meaning |
|---|---|---|
| `id` | string | which |
| `len` | integer | bytes |
| `at_ns` (sometimes) | long integer | when |
## Answers
### `list`
| member | type | meaning |
|---|---|---|
| `sets` | array of [set](#set) | the sets |
| `spaces` | array of pair of integer and string | OIDs and paths |

Of a target:

| member | type | meaning |
|---|---|---|
| `databases` | object of integer | how many of each |
### `one`
| member | type | meaning |
|---|---|---|
| all of | [set](#set) | |
| `share` | number or null | 0 to 1 |
| `good` | boolean | whether it is good |
| `rest` (sometimes) | any | the rest |
";

fn schema() -> Schema {
    Schema::read(PAGE).unwrap()
}

/// The answer with a frame around its members.
fn framed(members: &str) -> String {
    format!("{{\"status\":\"ok\",\"warnings\":[],{members}}}")
}

fn wrong(members: &str) -> String {
    schema().check(&framed(members)).unwrap_err().join("; ")
}

#[test]
fn an_answer_that_is_as_the_page_says_passes() {
    for members in [
        r#""action":"list","sets":[],"spaces":[]"#,
        r#""action":"list","sets":[{"id":"a","len":1}],"spaces":[[5,"/a"]]"#,
        r#""action":"list","databases":{"a":1,"b":2}"#,
        r#""action":"one","id":"a","len":-7,"share":0.5,"good":true"#,
        r#""action":"one","id":"a","len":9007199254740992,"share":null,"good":false,"rest":[{}]"#,
        r#""action":"one","id":"a","len":1,"at_ns":1764155144000000001,"share":1,"good":true"#,
        r#""error":{"text":"no","number":null}"#,
        // A stream that failed in the middle.
        r#""action":"list","databases":{},"error":{"text":"no","number":3}"#,
    ] {
        assert!(schema().check(&framed(members)).is_ok(), "{members}");
    }
}

#[test]
fn a_member_of_another_type_is_found_wherever_it_is() {
    for (members, found) in [
        (
            r#""action":"list","sets":[{"id":7,"len":1}],"spaces":[]"#,
            "list.sets[0].id: 7 is not a string",
        ),
        (
            r#""action":"list","sets":{},"spaces":[]"#,
            "list.sets: {} is not an array of a set",
        ),
        (
            r#""action":"list","sets":[],"spaces":[[5,6]]"#,
            "list.spaces[0][1]: 6 is not a string",
        ),
        (
            r#""action":"list","sets":[],"spaces":[[5]]"#,
            "list.spaces[0]: [5] is not a pair of",
        ),
        (
            r#""action":"list","databases":{"a":true}"#,
            "list.databases.a: true is not an integer",
        ),
        (
            r#""action":"one","id":"a","len":0.5,"share":0,"good":true"#,
            "one.len: 0.5 is not an integer",
        ),
        (
            r#""action":"one","id":"a","len":9007199254740993,"share":0,"good":true"#,
            "one.len: 9007199254740993 is not an integer up to 2^53",
        ),
        (
            r#""action":"one","id":"a","len":1,"share":"0","good":true"#,
            "one.share: \"0\" is not a number or null",
        ),
        (
            r#""action":"one","id":null,"len":1,"share":0,"good":true"#,
            "one.id: null is not a string",
        ),
        (
            r#""error":{"text":"no","number":0.5}"#,
            "error.error.number: 0.5 is not an integer up to 2^53 or null",
        ),
    ] {
        assert!(wrong(members).contains(found), "{}", wrong(members));
    }
    let text = r#"{"status":"fine","warnings":[],"action":"list","databases":{}}"#;
    let found = schema().check(text).unwrap_err();
    assert_eq!(found, [r#"list.status: "fine" is not "ok" or "error""#]);
}

#[test]
fn a_member_that_is_not_on_the_page_is_found() {
    let found = wrong(r#""action":"list","databases":{},"more":1"#);
    assert_eq!(found, "list.more: not on the page");
    let found = wrong(r#""action":"list","sets":[{"id":"a","len":1,"of":2}],"spaces":[]"#);
    assert_eq!(found, "list.sets[0].of: not on the page");
    // Members of two forms of one answer.
    let found = wrong(r#""action":"list","databases":{},"sets":[]"#);
    assert_eq!(found, "list.sets: not on the page");
    let found = wrong(r#""error":{"text":"no","number":null},"sets":[]"#);
    assert_eq!(found, "error.sets: not on the page");
}

#[test]
fn a_missing_member_is_found_unless_it_is_only_sometimes_there() {
    let found = wrong(r#""action":"one","id":"a","share":0,"good":true"#);
    assert_eq!(found, "one.len: missing");
    let found = wrong(r#""action":"list","sets":[{"len":1}],"spaces":[]"#);
    assert_eq!(found, "list.sets[0].id: missing");
    let found = schema().check(r#"{"status":"ok","action":"list","databases":{}}"#);
    assert_eq!(found.unwrap_err(), ["list.warnings: missing"]);
    assert_eq!(wrong(r#""sets":[]"#), "neither `action` nor `error`");
    assert_eq!(
        wrong(r#""action":"lst","sets":[]"#),
        "lst: no such action on the page"
    );
}

#[test]
fn two_members_of_one_name_are_found() {
    let found = wrong(r#""action":"list","databases":{"a":1,"a":2}"#);
    assert!(found.contains("two members \"a\""), "{found}");
    let found = wrong(r#""action":"list","databases":{},"status":{}"#);
    assert!(found.contains("two members \"status\""), "{found}");
    assert!(schema().check("{\"status\":").is_err());
    assert!(schema().check("[]").is_err());
}

#[test]
fn a_page_that_says_nothing_of_a_part_or_a_type_is_refused() {
    for (from, to, found) in [
        (
            "| array of [set](#set) |",
            "| array of set |",
            "unknown type",
        ),
        (
            "| array of [set](#set) |",
            "| [sett](#set) |",
            "no part sett",
        ),
        (
            "| all of | [set](#set) |",
            "| all of | string |",
            "not a part",
        ),
        (
            "| `id` | string | which |",
            "| `id` | string | |",
            "without a meaning",
        ),
        (
            "| `id` | string | which |",
            "| `id` | string |",
            "not three cells",
        ),
        ("### `one`", "### `list`", "twice"),
        ("| `len` | integer |", "| `id` | integer |", "twice"),
        ("| `len` | integer |", "| len | integer |", "unknown type"),
    ] {
        let page = PAGE.replacen(from, to, 1);
        assert_ne!(page, PAGE);
        let why = Schema::read(&page).unwrap_err();
        assert!(why.contains(found), "{why}");
    }
    let empty = PAGE.to_owned() + "### `two`\nNo table.\n";
    assert!(Schema::read(&empty).unwrap_err().contains("two: no table"));
}

#[test]
fn a_name_of_two_types_is_found_with_the_sections_of_both() {
    assert_eq!(schema().names_of_two_types(), [""; 0]);
    for (from, to, found) in [
        (
            "| `good` | boolean |",
            "| `text` | boolean |",
            "text: boolean in one; string in error",
        ),
        (
            "| `good` | boolean |",
            "| `sets` | [set](#set) |",
            "sets: array of object in list; object in one",
        ),
        (
            "| `good` | boolean |",
            "| `warnings` | array of integer or null |",
            "warnings: array of integer in one; array of string in Every answer",
        ),
        (
            "| `good` | boolean |",
            "| `databases` | object of string |",
            "databases: object of integer in list; object of string in one",
        ),
    ] {
        let page = Schema::read(&PAGE.replacen(from, to, 1)).unwrap();
        assert_eq!(page.names_of_two_types(), [found]);
    }
    // Words are strings, integers have two sizes, objects differ, and a value can be missing.
    for (from, to) in [
        ("| `good` | boolean |", "| `text` | `a`, `b` or null |"),
        ("| `good` | boolean |", "| `number` | long integer |"),
        (
            "| `good` | boolean |",
            "| `sets` | array of [error](#error) or null |",
        ),
    ] {
        let page = Schema::read(&PAGE.replacen(from, to, 1)).unwrap();
        assert_eq!(page.names_of_two_types(), [""; 0]);
    }
}

#[test]
fn a_name_has_one_type_in_all_answers() {
    let found = page().names_of_two_types();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
#[should_panic(expected = "no such action on the page")]
fn output_that_is_an_answer_is_checked() {
    check_if_answer(b"not an answer\n");
    check_if_answer(b"{\"title\":\"no answer\"}\n");
    check_if_answer(b"{\"status\":\"ok\",\"exit_code\":0,\"act");
    check_if_answer(b"{\"action\":\"lst\",\"exit_code\":0}\n");
}

/// All files of Rust below a directory.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect()
}

/// The words in quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// The actions that a source names: as a member, as a variable, or in a call of a function that takes one.
fn actions(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, mark) in source.match_indices("action: \"") {
        // Errors have a member of this name, too.
        if !source[..at].trim_end().ends_with("Error::Io {") {
            found.extend(source[at + mark.len()..].split('"').next());
        }
    }
    for rest in source.split("let action = ").skip(1) {
        found.extend(rest.split(';').take(1).flat_map(quoted));
    }
    for call in [" told(", " rows_of(", " answer(", "(told(", "(answer("] {
        for rest in source.split(call).skip(1) {
            let arguments = rest.split(')').next().unwrap_or_default();
            found.extend(quoted(arguments).next());
        }
    }
    found.into_iter().map(str::to_owned).collect()
}

#[test]
fn every_action_of_the_commands_has_a_section_and_every_section_an_action() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
    let mut found = BTreeSet::new();
    for commands in ["longshore/src/commands", "lab/program/src/commands"] {
        for source in sources(&crates.join(commands)) {
            found.extend(actions(&std::fs::read_to_string(source).unwrap()));
        }
    }
    let told: BTreeSet<String> = page().actions().map(str::to_owned).collect();
    assert_eq!(found, told);
    assert!(told.len() > 40, "{told:?}");
}
