//! The locations of tablespaces: as mapped by the operator, or as stored, if the operator accepts that explicitly.
//!
//! Invariants
//! - A set's own claim about a location outside the target is not enough: the author of the media would choose where
//!   this program writes. The links of the cluster in the target are shown, not followed.
//! - A tablespace has one location, an absolute path without `.` and `..`.
//! - No location overlaps the data directory or another one, by its text, or through links and mounts.
//!
//! Leaves to others: opening the directories, and links to them (`cluster/mod.rs`).

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use longshore_media::manifest::safe_path;
use longshore_pg::{format_tablespace_map, parse_tablespace_map};

use crate::cluster_error::ClusterError;
use crate::options::SpaceOptions;

/// The location of every tablespace of a set.
pub type Places = BTreeMap<u32, PathBuf>;

/// Decides the location of each of the `stored` tablespaces. `linked` has those to which the cluster that is changed in
/// place has links, for the message. `data` is the data directory.
pub fn decide(
    stored: &Places,
    linked: &Places,
    options: &SpaceOptions,
    data: &Path,
) -> Result<Places, ClusterError> {
    let mut mapped = Places::new();
    for (name, to) in &options.map {
        let by_oid = name.parse().ok().filter(|oid| stored.contains_key(oid));
        let by_place = || {
            stored
                .iter()
                .find(|(_, p)| *p == Path::new(name))
                .map(|(oid, _)| *oid)
        };
        let oid = by_oid.or_else(by_place);
        let oid = oid.ok_or_else(|| ClusterError::NoSuchTablespace { name: name.clone() })?;
        if mapped.insert(oid, to.clone()).is_some() {
            return Err(ClusterError::TablespaceTwice { oid });
        }
    }
    let missing = || stored.iter().filter(|(oid, _)| !mapped.contains_key(oid));
    if !options.as_stored && missing().next().is_some() {
        let list = missing().map(|(oid, path)| format!("{oid} at {}", path.display()));
        let links = missing().filter_map(|(oid, _)| Some((oid, linked.get(oid)?)));
        let links = links.map(|(oid, to)| format!("--tablespace-map {oid}={}", to.display()));
        return Err(ClusterError::TablespacesNotPlaced {
            list: list.collect::<Vec<_>>().join(", "),
            links: links.collect::<Vec<_>>().join(" "),
        });
    }
    let mut places = stored.clone();
    places.extend(mapped);
    check(&places, data)?;
    Ok(places)
}

/// The locations for a set whose tablespaces are not known before it is read: those that the operator named by OID.
pub fn of_pipe(options: &SpaceOptions, data: &Path) -> Result<Places, ClusterError> {
    let mut places = Places::new();
    for (name, to) in &options.map {
        let oid = name.parse().ok().filter(|oid| *oid > 0);
        let oid = oid.ok_or_else(|| ClusterError::NotAnOid { name: name.clone() })?;
        if places.insert(oid, to.clone()).is_some() {
            return Err(ClusterError::TablespaceTwice { oid });
        }
    }
    check(&places, data)?;
    Ok(places)
}

/// Refuses directories that overlap once symbolic links and bind mounts are followed. `real` gives a path without links, as
/// far as it exists; `id` tells one directory under two names. `data` is the data directory.
pub fn check_real(
    places: &Places,
    data: &Path,
    real: impl Fn(&Path) -> PathBuf,
    id: impl Fn(&Path) -> Option<(u64, u64)>,
) -> Result<(), ClusterError> {
    let data = real(data);
    let is_below = |path: &Path, top: &Path| {
        let top_id = id(top);
        path.starts_with(top) || top_id.is_some() && path.ancestors().any(|path| id(path) == top_id)
    };
    let places: Vec<_> = places.iter().map(|(o, p)| (*o, p, real(p))).collect();
    for (i, (oid, path, place)) in places.iter().enumerate() {
        let bad = |what| ClusterError::TablespacePath {
            oid: *oid,
            path: path.to_path_buf(),
            what,
        };
        if is_below(place, &data) || is_below(&data, place) {
            return Err(bad(
                "through a link or a mount it overlaps the data directory",
            ));
        }
        let overlaps = |other: &Path| is_below(other, place) || is_below(place, other);
        if places[..i].iter().any(|(.., other)| overlaps(other)) {
            return Err(bad(
                "through a link or a mount it overlaps another tablespace",
            ));
        }
    }
    Ok(())
}

fn check(places: &Places, data: &Path) -> Result<(), ClusterError> {
    for (oid, path) in places {
        let bad = |what| ClusterError::TablespacePath {
            oid: *oid,
            path: path.clone(),
            what,
        };
        let mut parts = path.components();
        if parts.next() != Some(Component::RootDir)
            || !parts.all(|part| matches!(part, Component::Normal(_)))
            || path.parent().is_none()
        {
            return Err(bad("the path is not absolute, or has `.` or `..` in it"));
        }
        if path.starts_with(data) || data.starts_with(path) {
            return Err(bad("it overlaps the data directory"));
        }
        let twice = |other: &(&u32, &PathBuf)| {
            other.0 != oid && (other.1.starts_with(path) || path.starts_with(other.1))
        };
        if places.iter().any(|other| twice(&other)) {
            return Err(bad("it overlaps another tablespace"));
        }
    }
    Ok(())
}

/// Whether a path inside a tablespace is one that PostgreSQL creates: below `PG_MAJOR_CATALOG`.
pub fn is_inside(path: &Path) -> bool {
    let first = path.iter().next().and_then(|name| name.to_str());
    first.is_some_and(|name| name.starts_with("PG_"))
        && safe_path(path.as_os_str().as_encoded_bytes()).is_ok()
}

/// The set's `tablespace_map` with the decided locations.
pub fn edit_map(stored: &[u8], places: &Places) -> Result<Vec<u8>, ClusterError> {
    let mut map = parse_tablespace_map(stored).ok_or(ClusterError::TablespaceMap)?;
    for tablespace in &mut map {
        if let Some(place) = places.get(&tablespace.oid) {
            tablespace.location.clone_from(place);
        }
    }
    Ok(format_tablespace_map(&map))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Places {
        Places::from([(16384, "/srv/fast".into()), (16390, "/srv/slow".into())])
    }

    fn decided(map: &[(&str, &str)], as_stored: bool) -> Result<Places, ClusterError> {
        let options = SpaceOptions {
            map: map.iter().map(|(a, b)| ((*a).into(), b.into())).collect(),
            as_stored,
        };
        decide(&stored(), &Places::new(), &options, Path::new("/data"))
    }

    #[test]
    fn a_set_alone_does_not_choose_where_is_written() {
        let refused = decided(&[("16384", "/new/fast")], false).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the set has tablespaces outside the data directory: 16390 at /srv/slow"
        );
        assert_eq!(decided(&[], true).unwrap(), stored());
    }

    #[test]
    fn the_links_of_a_cluster_are_shown_and_not_followed() {
        let linked = Places::from([(16384, "/here/fast".into()), (16390, "/here/slow".into())]);
        let options = SpaceOptions {
            map: vec![("16390".into(), "/b".into())],
            as_stored: false,
        };
        let refused = decide(&stored(), &linked, &options, Path::new("/data")).unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("16384 at /srv/fast"), "{said}");
        assert!(said.contains("--tablespace-map 16384=/here/fast"), "{said}");
        assert!(!said.contains("/here/slow"), "{said}");
    }

    /// Goal: a path that leads into the data directory through a link is refused: the tablespace would be lost when the
    /// directory gets its files.
    #[test]
    fn places_that_overlap_through_links_are_refused() {
        let real = |path: &Path| match path.strip_prefix("/link") {
            Ok(rest) => Path::new("/data").join(rest),
            Err(_) => path.to_owned(),
        };
        let judged = |one: &str, other: &str| {
            let places = Places::from([(16384, one.into()), (16390, other.into())]);
            check_real(&places, Path::new("/data"), real, |_| None)
        };
        assert!(judged("/a", "/b").is_ok());
        for (one, other) in [
            ("/link/x", "/b"),
            ("/a", "/link"),
            ("/link/../data/y", "/b"),
        ] {
            assert!(judged(one, other).is_err(), "{one} {other}");
        }
        let same = |path: &Path| match path.starts_with("/alias") {
            true => "/a".into(),
            false => path.to_owned(),
        };
        let places = Places::from([(16384, "/alias".into()), (16390, "/a".into())]);
        assert!(check_real(&places, Path::new("/data"), same, |_| None).is_err());
        // A mount of the data directory under another name.
        let mounted = |path: &Path| match path.to_str() {
            Some("/data" | "/mnt") => Some((1, 2)),
            _ => Some((1, path.as_os_str().len() as u64 + 100)),
        };
        let places = Places::from([(16384, "/mnt/x".into())]);
        let judged = check_real(&places, Path::new("/data"), Path::to_owned, mounted);
        assert!(judged.is_err());
    }

    #[test]
    fn a_tablespace_is_mapped_once() {
        let twice = [("16384", "/a"), ("/srv/fast", "/b"), ("16390", "/c")];
        assert!(matches!(
            decided(&twice, false),
            Err(ClusterError::TablespaceTwice { oid: 16384 })
        ));
    }

    #[test]
    fn for_a_pipe_tablespaces_are_named_by_number() {
        let options = |name: &str, to: &str| SpaceOptions {
            map: vec![(name.into(), to.into())],
            as_stored: true,
        };
        let places = |name, to| of_pipe(&options(name, to), Path::new("/data"));
        assert_eq!(
            places("16384", "/a").unwrap(),
            Places::from([(16384, "/a".into())])
        );
        for (name, to) in [("/srv/fast", "/a"), ("0", "/a"), ("16384", "/data/x")] {
            assert!(places(name, to).is_err(), "{name} {to}");
        }
    }

    #[test]
    fn tablespaces_are_named_by_number_or_place() {
        let places = decided(&[("16384", "/a"), ("/srv/slow", "/b")], false).unwrap();
        assert_eq!(
            places,
            Places::from([(16384, "/a".into()), (16390, "/b".into())])
        );
        assert!(decided(&[("16385", "/a")], true).is_err());
    }

    #[test]
    fn places_that_overlap_are_refused() {
        for (a, b) in [
            ("/data/x", "/b"),
            ("/", "/b"),
            ("/a", "/a"),
            ("/a", "/a/b"),
            ("relative", "/b"),
            ("/a/../b", "/c"),
        ] {
            assert!(
                decided(&[("16384", a), ("16390", b)], false).is_err(),
                "{a} {b}"
            );
        }
    }

    #[test]
    fn the_map_follows_the_decision() {
        let places = Places::from([(16384, "/new".into())]);
        let edited = edit_map(b"16384 /srv/fast\n16390 /srv/slow\n", &places).unwrap();
        assert_eq!(edited, b"16384 /new\n16390 /srv/slow\n");
        assert!(edit_map(b"nonsense", &places).is_err());
    }
}
