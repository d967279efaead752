//! The other targets of a database: whole copies there of a backup that is not good where it was read, and news for them of
//! what was found in its content.
//!
//! Invariants
//! - A copy is the same set, or a backup of the same label where the set cannot be read, and nothing has found it damaged.
//! - A target that is away has no copy: nobody waits for it twice. The next copy brings it what a drill found.
//!
//! Leaves to others: what is wrong with the backup itself (`results.rs`, `verify`).

use longshore_repository::Shelf;
use longshore_repository::chain::is_sound;
use longshore_repository::status::SetResult;

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
            .and_then(|there| Ok(there.heeding(shelf).list()?));
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

/// Records at the database's other targets, as far as they answer, what a drill here found in a backup's content: no rule
/// there counts a copy of one that is not good, and one that was taken for such counts again.
pub fn tell_result(shelf: &Shelf, result: &SetResult, context: &Context) {
    let own = context.config.target_of(&shelf.database).into_iter();
    let copies = context.config.copies_of(&shelf.database).iter();
    let all = own.chain(copies.map(String::as_str));
    for target in all.filter(|target| *target != shelf.target.name) {
        let there = devices::target(context, target)
            .and_then(|target| devices::shelf(context, &target, &shelf.database));
        let told = there.and_then(|there| Ok(there.record_drilled(vec![result.clone()])?));
        if let Err(failure) = told {
            tracing::info!(target, ?failure, "what a drill found is not recorded");
        }
    }
}

/// The place of copies, which counts what drills of the backups at the database's own target found in their content.
pub fn heeding_own(shelf: Shelf, context: &Context) -> Shelf {
    let own = context.config.target_of(&shelf.database);
    let other = own.filter(|own| *own != shelf.target.name);
    let there = other.and_then(|own| {
        let target = devices::target(context, own).ok()?;
        devices::shelf(context, &target, &shelf.database).ok()
    });
    match there {
        Some(there) => shelf.heeding(&there),
        None => shelf,
    }
}

/// The sentence for people, with the commands that use the copy.
pub fn told(shelf: &Shelf, label: &str, target: &str) -> String {
    let database = &shelf.database;
    format!(
        "target {target} has a copy of {label} that nothing found damaged: `longshore verify --database {database} --target {target} \
         --label {label}`, then `longshore restore --database {database} --target {target} --label {label}`"
    )
}
