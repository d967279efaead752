//! Whole copies, at the other targets of a database, of a backup that is not good where it was read.
//!
//! Invariants
//! - A copy is the same set, or a backup of the same label where the set cannot be read, and nothing has found it damaged.
//! - A target that is away has no copy: nobody waits for it twice.
//!
//! Leaves to others: what is wrong with the backup itself (`results.rs`, `verify`).

use longshore_repository::Shelf;
use longshore_repository::chain::is_sound;

use super::devices;
use crate::context::Context;

/// The first other target that has this backup whole.
pub fn copy_of(shelf: &Shelf, label: &str, context: &Context) -> Option<String> {
    let database = &shelf.database;
    let here = shelf.list().ok()?.facts();
    let id = here.iter().find(|set| set.label.as_str() == label)?.id;
    let own = context.config.target_of(database).into_iter();
    let copies = context.config.copies_of(database).iter();
    let all = own.chain(copies.map(String::as_str));
    let mut others = all.filter(|target| *target != shelf.target.name);
    let has_it = |target: &&str| {
        let there = devices::target(context, target)
            .and_then(|target| devices::shelf(context, &target, database))
            .and_then(|there| Ok(there.list()?));
        let Ok(there) = there else { return false };
        let facts = there.facts();
        let is_same = |i: &usize| match id {
            Some(id) => facts[*i].id == Some(id),
            None => facts[*i].label.as_str() == label,
        };
        let same = (0..facts.len()).find(is_same);
        same.is_some_and(|i| facts[i].is_whole() && is_sound(&facts, i))
    };
    others.find(has_it).map(str::to_owned)
}

/// The sentence for people, with the commands that use the copy.
pub fn told(shelf: &Shelf, label: &str, target: &str) -> String {
    let database = &shelf.database;
    format!(
        "target {target} has a copy of {label} that nothing found damaged: `longshore verify --database {database} --target {target} \
         --label {label}`, then `longshore restore --database {database} --target {target} --label {label}`"
    )
}
