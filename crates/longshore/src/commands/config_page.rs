//! `longshore.toml(5)`, made from `docs/configuration.md`: one description of the keys, which a test compares with the
//! program.
//!
//! Understands the Markdown that the page uses: headings, paragraphs, tables, lists, fences, and code, bold and links
//! within a line. A table row becomes a paragraph with its first cell as the tag.
//!
//! Invariants
//! - No text of the page becomes a request of roff, and every character is one that each roff reads.
//! - Every key of every table is in the manual page.
//!
//! Leaves to others: the other manual pages (made from the options), and Markdown that the page does not use.

const PAGE: &str = include_str!("../../../../docs/configuration.md");
pub const NAME: &str = "longshore.toml.5";

/// The manual page in roff.
pub fn page() -> String {
    let mut text = format!(
        ".TH longshore.toml 5 \"\" \"longshore {}\" \"File formats\"\n\
         .SH NAME\nlongshore.toml \\- what longshore backs up, where, and what is kept\n.SH DESCRIPTION\n",
        env!("CARGO_PKG_VERSION")
    );
    let mut block = Block::None;
    for line in PAGE.lines().skip_while(|line| line.starts_with("# ")) {
        block = put(&mut text, block, line);
    }
    text += ".SH FILES\n.TP\n\\fI/etc/longshore/longshore.toml\\fR\nThe configuration of the machine.\n\
             .TP\n\\fI~/.config/longshore/longshore.toml\\fR\nThe configuration of a user.\n\
             .SH SEE ALSO\n\\fBlongshore\\fR(1), \\fBlongshore\\-config\\-check\\fR(1)\n";
    text
}

/// The part of the page that a line continues.
#[derive(Clone, Copy, PartialEq)]
enum Block {
    None,
    Paragraph,
    Item,
    /// A table of which the head, or the head and the line below it, was read.
    Head,
    Rows,
    Fence,
}

/// Adds a line to the page and says which part the next one continues.
fn put(text: &mut String, block: Block, line: &str) -> Block {
    let is_fence = line.starts_with("```");
    match block {
        Block::Fence if is_fence => {
            *text += ".fi\n.RE\n";
            return Block::None;
        }
        Block::Fence => {
            *text += &guarded(escaped(line));
            return Block::Fence;
        }
        _ if is_fence => {
            *text += ".PP\n.RS 4\n.nf\n";
            return Block::Fence;
        }
        _ => {}
    }
    if let Some(heading) = line.strip_prefix("## ") {
        *text += &format!(".SH {}\n", capitals(inline(heading)));
        Block::None
    } else if let Some(row) = line.strip_prefix("| ") {
        row_of(text, block, row)
    } else if line.starts_with("|--") {
        Block::Rows
    } else if let Some(item) = line.strip_prefix("- ") {
        *text += &format!(".IP \\(bu 2\n{}", guarded(inline(item)));
        Block::Item
    } else if line.trim().is_empty() {
        Block::None
    } else {
        if block == Block::None {
            *text += ".PP\n";
        }
        *text += &guarded(inline(line.trim_start()));
        match block {
            Block::Item => Block::Item,
            _ => Block::Paragraph,
        }
    }
}

fn row_of(text: &mut String, block: Block, row: &str) -> Block {
    if block != Block::Rows {
        return Block::Head;
    }
    let mut cells = row.trim_end_matches('|').split(" | ").map(str::trim);
    let tag = cells.next().unwrap_or_default();
    let rest: Vec<String> = cells.map(inline).collect();
    *text += &format!(".TP\n{}{}", guarded(inline(tag)), guarded(rest.join(", ")));
    Block::Rows
}

/// A heading in capitals, unless it names a table or a command, which are written small.
fn capitals(heading: String) -> String {
    match heading.contains(['[', '\\']) {
        true => heading,
        false => heading.to_uppercase(),
    }
}

/// A line that roff must not take for a request.
fn guarded(line: String) -> String {
    match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}\n"),
        false => format!("{line}\n"),
    }
}

/// Characters that mean something to roff, and those that not every roff reads.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out += "\\e",
            '-' => out += "\\-",
            c if c.is_ascii() => out.push(c),
            c => out += &format!("\\[u{:04X}]", u32::from(c)),
        }
    }
    out
}

/// Code and bold in bold; of a link its text.
fn inline(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['`', '*', '[']) {
        out += &escaped(&rest[..at]);
        let (mark, after) = rest[at..].split_at(1);
        let marked = match mark {
            "`" => after
                .split_once('`')
                .map(|(code, rest)| (bold(escaped(code)), rest)),
            "*" => after.strip_prefix('*').and_then(|after| {
                let (strong, rest) = after.split_once("**")?;
                Some((bold(inline(strong)), rest))
            }),
            _ => after.split_once("](").and_then(|(shown, rest)| {
                let (_, rest) = rest.split_once(')')?;
                // A bracket outside of code belongs to the text: the link begins later.
                let plain = shown.split('`').step_by(2).all(|part| !part.contains('['));
                plain.then(|| (inline(shown), rest))
            }),
        };
        match marked {
            Some((made, after)) => {
                out += &made;
                rest = after;
            }
            None => {
                out += mark;
                rest = after;
            }
        }
    }
    out + &escaped(rest)
}

fn bold(text: String) -> String {
    format!("\\fB{text}\\fR")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_key_of_every_table() {
        let page = page();
        for keys in [
            crate::config::Database::KEYS,
            crate::config::Target::KEYS,
            crate::config::Retention::KEYS,
            crate::config::Defaults::KEYS,
            crate::config::Serve::KEYS,
        ] {
            for key in keys {
                let key = key.strip_prefix("wal.").unwrap_or(key);
                assert!(page.contains(&format!(".TP\n\\fB{key}\\fR\n")), "{key}");
            }
        }
        // A secret is shown as three stars.
        let page = page.replace("\\fB***\\fR", "");
        for wrong in ["](", "```", "\n|", "**"] {
            assert!(!page.contains(wrong), "{wrong} is left");
        }
    }

    #[test]
    fn text_of_a_line_becomes_roff() {
        assert_eq!(inline("a `b-c` d"), "a \\fBb\\-c\\fR d");
        assert_eq!(inline("**Which [file](x.md).** y"), "\\fBWhich file.\\fR y");
        assert_eq!(inline("[`[t]`](#t) *"), "\\fB[t]\\fR *");
        assert_eq!(inline("[a [b](c)"), "[a b");
        assert_eq!(guarded(".x".into()), "\\&.x\n");
        assert_eq!(escaped("a\\b…"), "a\\eb\\[u2026]");
    }
}
