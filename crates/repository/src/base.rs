//! Which backup on a shelf a differential one builds on.

use longshore_pg::Relation;

use crate::Error;
use crate::branch;
use crate::chain::chain;
use crate::label::Kind;
use crate::shelf::{Listed, Listing, Loan, Shelf};

/// The base of a new differential backup. No expire removes it as long as the loan is held.
#[derive(Debug)]
pub struct Lent {
    pub loan: Loan,
    /// Newer backups that could not be the base although they should, for people.
    pub passed_over: Vec<String>,
}

/// Why a backup is not the base.
enum Unfit {
    /// Nobody would expect it to be.
    Meant(String),
    /// Something is wrong with it.
    Wrong(String),
}

/// How a backup relates to the server that is backed up, as far as the choice of a base goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The set's UUID.
    pub set: [u8; 16],
    pub relation: Relation,
    /// The backup is of the very process that still serves, which cannot have been set back since.
    pub same_run: bool,
}

impl Shelf {
    /// The newest backup that a differential one can build on: clean, not copy-only, with its whole chain, and of the
    /// server's own branch; with `full_only` a full one. One whose relation to the server is unknown is taken only where the
    /// server has been running ever since and none is proved. `candidates`: what is known of the sets; all others are refused.
    ///
    /// Errors: [`Error::NoBase`], and what [`Shelf::borrow`] refuses.
    pub fn borrow_base(&self, full_only: bool, candidates: &[Candidate]) -> Result<Lent, Error> {
        let listing = self.list()?;
        let facts = listing.facts();
        let (mut passed_over, mut reasons) = (Vec::new(), Vec::new());
        let candidate = |i: usize| {
            let id = *facts[i].id?.as_bytes();
            candidates.iter().find(|candidate| candidate.set == id)
        };
        let order = branch::in_order(&facts);
        let is_fit = |i: &usize| fitness(&listing, *i, full_only).is_ok();
        let any_proved = order
            .iter()
            .filter(|i| is_fit(i))
            .any(|i| candidate(*i).is_some_and(|c| c.relation.is_proved()));
        for i in order.into_iter().rev() {
            let set = &listing.sets[i];
            let fit = fitness(&listing, i, full_only).and_then(|()| match candidate(i) {
                None => Err(Unfit::Meant("is of no cluster with a log".into())),
                Some(Candidate {
                    relation, same_run, ..
                }) => match relation {
                    Relation::Proved(_) => Ok(()),
                    Relation::Refuted(what) => {
                        Err(Unfit::Wrong(format!("is of another branch: {what}")))
                    }
                    Relation::Unknown(_) if *same_run && !any_proved => Ok(()),
                    Relation::Unknown(what) => Err(Unfit::Wrong(format!(
                        "is not known to be of this server's branch: {what}"
                    ))),
                },
            });
            match fit {
                Ok(()) => {
                    let loan = self.borrow(Some(set.label.as_str()))?;
                    return Ok(Lent { loan, passed_over });
                }
                Err(Unfit::Meant(what)) => reasons.push(format!("{} {what}", set.label)),
                Err(Unfit::Wrong(what)) => {
                    passed_over.push(format!("{} {what}", set.label));
                    reasons.push(format!("{} {what}", set.label));
                }
            }
        }
        Err(Error::NoBase {
            target: self.target.name.clone(),
            database: self.database.clone(),
            reasons: match reasons.is_empty() {
                true => "there is no backup".to_owned(),
                false => reasons.join("; "),
            },
        })
    }
}

fn fitness(listing: &Listing, index: usize, full_only: bool) -> Result<(), Unfit> {
    let set: &Listed = &listing.sets[index];
    let facts = listing.facts();
    let Some(complete) = set.complete() else {
        return Err(Unfit::Wrong(format!("is {}", set.state.word())));
    };
    if full_only && facts[index].kind != Kind::Full {
        return Err(Unfit::Meant("is differential itself".into()));
    }
    if complete.header.copy_only {
        return Err(Unfit::Meant("is copy-only".into()));
    }
    if facts[index].log.is_none() {
        return Err(Unfit::Meant("is of no cluster with a log".into()));
    }
    let links = chain(&facts, index).map_err(|e| Unfit::Wrong(format!("cannot be: {e}")))?;
    match links.into_iter().find(|link| !facts[*link].is_clean()) {
        Some(link) if link == index => Err(Unfit::Wrong("is marked as damaged".into())),
        Some(link) => Err(Unfit::Wrong(format!(
            "needs {}, which is marked as damaged",
            facts[link].label
        ))),
        None => Ok(()),
    }
}
