//! The tables of a sample for PostgreSQL.
//!
//! Invariants
//! - Names and types are those of SQLite; references are left out, and a moment has PostgreSQL's name.
//!
//! Leaves to others: the tables themselves (`tprocc`, `stae`).

/// The name of each table of a schema, and the statement that creates it in PostgreSQL.
pub fn tables(schema: &'static str) -> Vec<(&'static str, String)> {
    let statements = schema.split(';').filter_map(|text| {
        let name = text
            .trim()
            .strip_prefix("CREATE TABLE ")?
            .split(' ')
            .next()?;
        let columns = text.split(",\n  FOREIGN KEY").next()?;
        let mut create = String::new();
        let mut words = columns.split_inclusive([' ', ',']);
        while let Some(word) = words.next() {
            match word.trim() {
                // With the table that it names, and that table's column.
                "REFERENCES" => {
                    let mut last = words.next().unwrap_or_default();
                    let mut ahead = words.clone();
                    if let Some(column) = ahead.next().filter(|word| word.starts_with('(')) {
                        (last, words) = (column, ahead);
                    }
                    create.push_str(if last.ends_with(',') { ", " } else { " " });
                }
                _ => create.push_str(&word.replace("DATETIME", "TIMESTAMP")),
            }
        }
        let is_open = create.matches('(').count() > create.matches(')').count();
        create.push_str(if is_open { ")" } else { "" });
        Some((name, create))
    });
    statements.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_left_out_and_everything_else_stays() {
        let schema = "
CREATE TABLE a (x INTEGER PRIMARY KEY REFERENCES b, y CHAR(4) NOT NULL REFERENCES c (c_id),
  z NUMERIC(8,2) NOT NULL);
CREATE TABLE d (
  t DATETIME NOT NULL, u CHAR(4) REFERENCES c (c_id));
CREATE TABLE e (v INTEGER,
  FOREIGN KEY (v) REFERENCES a (x));
";
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let found: Vec<_> = tables(schema)
            .into_iter()
            .map(|(name, text)| (name, words(&text)))
            .collect();
        let expected = [
            (
                "a",
                "CREATE TABLE a (x INTEGER PRIMARY KEY , y CHAR(4) NOT NULL , z NUMERIC(8,2) NOT NULL)",
            ),
            ("d", "CREATE TABLE d ( t TIMESTAMP NOT NULL, u CHAR(4) )"),
            ("e", "CREATE TABLE e (v INTEGER)"),
        ];
        assert_eq!(found, expected.map(|(name, text)| (name, text.to_owned())));
    }
}
