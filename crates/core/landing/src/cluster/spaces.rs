//! The locations of tablespaces: as mapped by the operator, or as stored, if the operator accepts that explicitly.
//!
//! A set's own claim about a location outside the target is not enough: the author of the media would choose where
//! this program writes.

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
        mapped.insert(oid, to.clone());
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
        places.insert(oid, to.clone());
    }
    check(&places, data)?;
    Ok(places)
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
