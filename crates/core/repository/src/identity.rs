//! The facts in a backup's header that identify its branch or source, without judgement.
//!
//! Invariants
//! - Nothing is judged here: a header gives the same facts at every time and on every machine.
//! - Paths of one source that are written in different ways are one origin.
//!
//! Leaves to others: the verdict whether two backups are of one branch or source (`branch.rs`).

use longshore_media::SetHeader;
use longshore_media::header::{ORIGIN_MAX, PLACE_MAX};
use longshore_pg::Lineage;

/// The facts that identify the branch of a backup.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// `None` in sets of versions that stored none, and for sources without WAL.
    pub lineage: Option<Box<Lineage>>,
    /// Machine and source as named in the set's header: the only facts about older sets.
    pub whence: String,
    /// For sources without WAL.
    pub origin: Origin,
}

impl Identity {
    pub fn of(header: &SetHeader) -> Identity {
        Identity {
            lineage: Lineage::decode(&header.lineage).map(Box::new),
            whence: format!("{}\0{}", header.machine, header.origin),
            origin: Origin::of(header),
        }
    }
}

/// Distinguishes sources without WAL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The number of the source's kind.
    pub kind: u8,
    /// The name given by the user, otherwise machine and origin.
    pub name: String,
    /// Creation times of its file or root, as in [`longshore_media::SourceIdentity`]: the set's own last.
    pub births_ns: Vec<i64>,
}

impl Origin {
    /// The origin of a source on this machine, before its backup: without creation times.
    pub fn here(kind: u8, machine: &str, origin: &str, given: Option<&str>) -> Origin {
        let name = match given {
            Some(given) => given.to_owned(),
            None => {
                let (machine, origin) = (cut(machine, PLACE_MAX), cut(origin, ORIGIN_MAX));
                format!("{machine} {}", tidy(origin))
            }
        };
        Origin {
            kind,
            name,
            births_ns: Vec::new(),
        }
    }

    fn of(header: &SetHeader) -> Origin {
        let given = Some(header.identity.name.as_str()).filter(|name| !name.is_empty());
        let births_ns = header.identity.births_ns.clone();
        Origin {
            births_ns,
            ..Origin::here(header.source_kind, &header.machine, &header.origin, given)
        }
    }

    pub fn is_same(&self, other: &Origin) -> bool {
        (self.kind, &self.name) == (other.kind, &other.name)
    }

    pub fn birth(&self) -> Option<i64> {
        self.births_ns.last().copied()
    }
}

/// The part of a text that fits in a set's header.
fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The same text for all ways to write a path, or the roots of a tree.
fn tidy(origin: &str) -> String {
    let mut text = origin.replace("/./", "/");
    while text.contains("//") {
        text = text.replace("//", "/");
    }
    let short = |root: &str| match root.strip_suffix('/') {
        Some(short) if !short.is_empty() && !short.ends_with(':') => short.to_owned(),
        _ => root.to_owned(),
    };
    let Some(roots) = text.strip_prefix("files:/") else {
        return short(&text);
    };
    // The order of the roots does not make another source.
    let roots = roots.split(" /").map(|root| short(&format!("/{root}")));
    let mut roots: Vec<String> = roots.collect();
    roots.sort();
    format!("files:{}", roots.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_known_however_its_paths_are_written() {
        for (one, other) in [
            ("files:/a/ /b/./c", "files:/b//c /a"),
            ("files:/ /b", "files:/b/ /"),
            ("files:/a b/ /c", "files:/c /a b"),
            ("sqlite:/a//b.db", "sqlite:/a/b.db"),
            ("files:a/", "files:a"),
        ] {
            assert_eq!(tidy(one), tidy(other));
        }
        assert_eq!(tidy("files:/"), "files:/");
        assert_ne!(tidy("files:/a /b"), tidy("files:/a /c"));
        assert_ne!(tidy("files:/a b"), tidy("files:/b a"));
    }
}
