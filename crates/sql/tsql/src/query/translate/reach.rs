//! The reach of an expression: the queries around it of which it names columns.

/// The scopes of columns that were named: the least and the greatest.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reach(Option<(usize, usize)>);

impl Reach {
    pub fn add(&mut self, scope: usize) {
        *self = self.with(Reach(Some((scope, scope))));
    }

    pub fn with(self, other: Reach) -> Reach {
        Reach(match (self.0, other.0) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        })
    }

    /// Whether no column was named.
    pub fn is_empty(self) -> bool {
        self.0.is_none()
    }

    /// Whether a column is of a query around the one of this scope.
    pub fn is_outside(self, scope: usize) -> bool {
        self.0.is_some_and(|(least, _)| least < scope)
    }

    pub fn is_inside(self, scope: usize) -> bool {
        self.0.is_some_and(|(_, greatest)| greatest >= scope)
    }

    /// The row outside, and nothing else.
    pub fn is_outer(self, scope: usize) -> bool {
        self.is_outside(scope) && !self.is_inside(scope)
    }

    pub fn is_own(self, scope: usize) -> bool {
        self.is_inside(scope) && !self.is_outside(scope)
    }
}
