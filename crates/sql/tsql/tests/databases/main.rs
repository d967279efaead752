//! The contract of [`Databases`], kept by the doubles of this room's tests; the program's own list includes `suite.rs`.

#[path = "../common/mod.rs"]
mod common;
mod suite;

use common::Configured;
use longshore_pipeline::SourceSpec;
use longshore_tsql::{Database, Databases, Unusable};

fn database(name: &str) -> Database {
    Database {
        name: name.into(),
        source: SourceSpec::Sqlite(name.into()),
        algorithm: None,
        level: None,
        wal: None,
        trust_locks: false,
        server_config: true,
    }
}

#[test]
fn databases_that_are_there_or_lost_are_listed_and_found() {
    let configured = Configured {
        databases: vec![database("shop"), database("Shop 2")],
        lost: Some(("lost".into(), "/nowhere".into())),
    };
    assert_eq!(suite::keeps_its_contract(&configured), ["shop", "Shop 2"]);
}

/// Breaks the contract in one thing.
struct Lying(Lie);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    None,
    ListsTwice,
    ListsWhatIsNotThere,
    IgnoresCase,
    GivesNoReason,
}

impl Databases for Lying {
    fn names(&self) -> Vec<String> {
        let more = match self.0 {
            Lie::ListsTwice => "shop",
            Lie::ListsWhatIsNotThere => "gone",
            _ => "lost",
        };
        vec!["shop".into(), more.into()]
    }

    fn find(&self, name: &str) -> Result<Option<Database>, Unusable> {
        let is_shop = name == "shop" || self.0 == Lie::IgnoresCase && name == "SHOP";
        if name == "lost" {
            let text = if self.0 == Lie::GivesNoReason {
                ""
            } else {
                "it is lost"
            };
            return Err(Unusable {
                text: text.into(),
                hint: String::new(),
                place: None,
            });
        }
        Ok(is_shop.then(|| database("shop")))
    }
}

/// Goal: the suite sees whoever breaks the contract.
#[test]
fn every_lie_about_databases_breaks_the_contract() {
    for lie in [
        Lie::None,
        Lie::ListsTwice,
        Lie::ListsWhatIsNotThere,
        Lie::IgnoresCase,
        Lie::GivesNoReason,
    ] {
        let checked = std::panic::catch_unwind(|| suite::keeps_its_contract(&Lying(lie)));
        assert_eq!(checked.is_ok(), lie == Lie::None, "{lie:?}");
    }
}
