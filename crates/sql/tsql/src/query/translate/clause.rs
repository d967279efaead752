//! The clause that is being translated, and what the rules of groups have to know of each SELECT.
//!
//! Leaves to others: the rules (`rules.rs`).

/// The clause of the innermost SELECT that is being translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Clause {
    #[default]
    Elsewhere,
    Where,
    GroupBy,
    Items,
    Having,
    OrderBy,
}

/// A SELECT whose clauses after FROM are being translated.
#[derive(Debug)]
pub(super) struct GroupRule {
    /// Those of its tables' columns.
    pub prefixes: Vec<String>,
    pub clause: Clause,
    /// The expressions of its GROUP BY, as they are the same: their SQL, and their own texts.
    pub by: Vec<String>,
    pub texts: Vec<String>,
    pub is_aggregated: bool,
    /// Only whether it has rows counts, so a star in it names no columns.
    pub is_existence: bool,
    /// The first column outside of all groups, and its clause.
    pub loose: Option<(Clause, String)>,
}

/// The place of an aggregate's argument.
#[derive(Debug, Default)]
pub(super) struct AggregateRule {
    /// It counts aggregates that are open, and texts that are compared only.
    pub open: usize,
    /// The outermost SELECT whose column the argument names.
    pub owner: Option<usize>,
    /// Queries that were open where the aggregate began.
    pub queries: usize,
}
