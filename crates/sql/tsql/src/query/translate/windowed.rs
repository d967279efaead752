//! Translates functions with OVER: aggregates, ranks, neighbours and percentiles over windows.
//!
//! Invariants
//! - A window is a specification of its own or one of the clause WINDOW; what neither says is refused by name.
//!
//! Leaves to others: aggregates themselves (`call.rs`), and percentiles (`query/percentile.rs`).

use sqlparser::ast::{
    Expr, Function, Ident, NamedWindowExpr, Value as Literal, WindowFrame, WindowFrameBound,
    WindowFrameUnits, WindowSpec, WindowType,
};

use super::call::{ELSEWHERE, FUNCTION, averaged, plain_arguments};
use super::state::{Translator, TypedSql, direction, folded, not_here};
use crate::message::{self, Message};
use crate::value::{Type, Value};

impl Translator<'_> {
    pub(super) fn windowed(
        &mut self,
        name: &str,
        function: &Function,
        over: &WindowType,
    ) -> Result<TypedSql, Message> {
        self.may_window()?;
        self.seen.window = true;
        let window = &self.window(over)?;
        self.inside("OVER", |t| t.over(name, function, window))
    }

    /// The specification of a window, which a clause WINDOW may name or begin. Errors: a name that is not there.
    fn window(&self, over: &WindowType) -> Result<WindowSpec, Message> {
        let find = |name: &Ident| {
            let mut all = self.windows.iter();
            let found = all.find(|w| w.0.value.eq_ignore_ascii_case(&name.value));
            match found.map(|w| &w.1) {
                Some(NamedWindowExpr::WindowSpec(spec)) if spec.window_name.is_none() => {
                    Ok(spec.clone())
                }
                Some(_) => Err(not_here("a window that is made of another one")),
                None => Err(not_here(&format!("OVER of the unknown window {name}"))),
            }
        };
        match over {
            WindowType::NamedWindow(name) => find(name),
            WindowType::WindowSpec(own) => {
                let Some(name) = &own.window_name else {
                    return Ok(own.clone());
                };
                let mut spec = find(name)?;
                let parts = [&spec.order_by, &own.order_by];
                if !own.partition_by.is_empty() || parts.iter().all(|order| !order.is_empty()) {
                    return Err(not_here("a window that says again what its name says"));
                }
                spec.order_by.extend(own.order_by.iter().cloned());
                if own.window_frame.is_some() {
                    spec.window_frame.clone_from(&own.window_frame);
                }
                Ok(spec)
            }
        }
    }

    fn over(
        &mut self,
        name: &str,
        function: &Function,
        window: &WindowSpec,
    ) -> Result<TypedSql, Message> {
        let base = match name {
            "ROW_NUMBER" | "RANK" | "DENSE_RANK" => {
                TypedSql::of(format!("{}()", name.to_lowercase()), Type::BigInt)
            }
            "PERCENT_RANK" | "CUME_DIST" => {
                TypedSql::of(format!("{}()", name.to_lowercase()), Type::Float)
            }
            "NTILE" => {
                let arguments = plain_arguments(function)?;
                let [count] = arguments.as_slice() else {
                    return Err(message::ARGUMENT_COUNT.with(&[&"ntile", &1]));
                };
                let count = self.expression(count)?.sql;
                TypedSql::of(format!("ntile({count})"), Type::BigInt)
            }
            "LAG" | "LEAD" | "FIRST_VALUE" | "LAST_VALUE" => self.neighbour(name, function)?,
            "PERCENTILE_CONT" | "PERCENTILE_DISC" => self.percentile(name, function, window)?,
            "STDEV" | "STDEVP" | "VAR" | "VARP" => return Err(not_here(&format!("{name} OVER"))),
            _ => self.aggregate(name, function, true)?.ok_or_else(|| {
                match ELSEWHERE.contains(&name) {
                    true => not_here(&format!("the function {name}")),
                    false => message::NOT_RECOGNIZED.with(&[&name, &FUNCTION]),
                }
            })?,
        };
        let mut parts = Vec::new();
        let mut by = Vec::new();
        for expr in &window.partition_by {
            let typed = self.expression(expr)?;
            typed.text_label().resolved("PARTITION BY")?;
            by.push(folded(&typed));
        }
        if !by.is_empty() {
            parts.push(format!("PARTITION BY {}", by.join(", ")));
        }
        let mut orders = Vec::new();
        for order in &window.order_by {
            let typed = self.expression(&order.expr)?;
            typed.text_label().as_column("ORDER BY", orders.len() + 1)?;
            orders.push(folded(&typed) + direction(order));
        }
        if !orders.is_empty() {
            parts.push(format!("ORDER BY {}", orders.join(", ")));
        }
        if let Some(frame) = &window.window_frame {
            parts.push(frame_words(frame)?);
        }
        let sql = format!("{} OVER ({})", base.sql, parts.join(" ")).into();
        Ok(averaged(name, TypedSql { sql, ..base }))
    }

    /// PERCENTILE_CONT and PERCENTILE_DISC of numbers.
    fn percentile(
        &mut self,
        name: &str,
        function: &Function,
        window: &WindowSpec,
    ) -> Result<TypedSql, Message> {
        let shown = name.to_lowercase();
        let arguments = plain_arguments(function)?;
        let [fraction] = arguments.as_slice() else {
            return Err(message::ARGUMENT_COUNT.with(&[&shown, &1]));
        };
        let fraction = match fraction {
            Expr::Value(value) => match &value.value {
                Literal::Number(digits, _) => digits.parse::<f64>().ok(),
                _ => None,
            },
            _ => None,
        };
        let fraction = fraction
            .filter(|fraction| (0.0..=1.0).contains(fraction))
            .ok_or_else(|| not_here(&format!("{name} of anything but a number from 0.0 to 1.0")))?;
        let order = match function.within_group.as_slice() {
            [] => return Err(message::WITHIN_GROUP_MISSING.with(&[&shown])),
            [order] => order,
            _ => return Err(not_here(&format!("{name} in the order of several values"))),
        };
        if !window.order_by.is_empty() || window.window_frame.is_some() {
            return Err(not_here(&format!(
                "{name} with an order or a frame in OVER"
            )));
        }
        let value = self.expression(&order.expr)?;
        let (kind, is_discrete) = (value.kind(), name == "PERCENTILE_DISC");
        if !kind.is_number() {
            return Err(not_here(&format!("{name} of values that are no numbers")));
        }
        let is_descending = !direction(order).is_empty();
        let fraction = self.bind(Value::Float(fraction));
        let sql = format!(
            "ts_{shown}({}, {fraction}, {})",
            value.sql,
            u8::from(is_descending)
        );
        Ok(TypedSql::of(
            sql,
            if is_discrete { kind } else { Type::Float },
        ))
    }

    /// LAG, LEAD and their kin.
    fn neighbour(&mut self, name: &str, function: &Function) -> Result<TypedSql, Message> {
        let arguments = plain_arguments(function)?;
        let most = if matches!(name, "LAG" | "LEAD") { 3 } else { 1 };
        let (Some(value), true) = (arguments.first(), arguments.len() <= most) else {
            return Err(message::ARGUMENT_COUNT.with(&[&name.to_lowercase(), &most]));
        };
        let value = self.expression(value)?;
        let operation = if name == "LAG" { "lag" } else { "lead" };
        let (kind, mut label) = (value.kind, value.text_label());
        let mut all = vec![value.sql.to_string()];
        for (i, argument) in arguments.iter().enumerate().skip(1) {
            let argument = self.expression(argument)?;
            all.push(match i {
                1 => argument.sql.to_string(),
                _ => {
                    label = label.with(argument.text_label(), operation)?;
                    self.widened(argument, kind).to_string()
                }
            });
        }
        let label = label.of_text(kind.unwrap_or(Type::Int))?;
        let sql = format!("{}({})", name.to_lowercase(), all.join(", "));
        Ok(TypedSql::new(sql, kind).labelled(label))
    }
}

/// ROWS and RANGE of a window: numbers of rows are literals.
fn frame_words(frame: &WindowFrame) -> Result<String, Message> {
    let count = |expr: &Expr| match expr {
        Expr::Value(value) => match &value.value {
            Literal::Number(n, _) => n.parse::<u32>().ok(),
            _ => None,
        },
        _ => None,
    };
    let is_rows = matches!(frame.units, WindowFrameUnits::Rows);
    let bound = |bound: &WindowFrameBound| -> Result<String, Message> {
        let (given, word) = match bound {
            WindowFrameBound::CurrentRow => return Ok("CURRENT ROW".to_owned()),
            WindowFrameBound::Preceding(n) => (n, "PRECEDING"),
            WindowFrameBound::Following(n) => (n, "FOLLOWING"),
        };
        match (given.as_ref().map(|n| count(n)), is_rows) {
            (None, _) => Ok(format!("UNBOUNDED {word}")),
            (Some(Some(n)), true) => Ok(format!("{n} {word}")),
            (Some(Some(_)), false) => Err(message::RANGE_FRAME.plain()),
            (Some(None), _) => Err(not_here("a frame of a window that is no number")),
        }
    };
    let units = match frame.units {
        WindowFrameUnits::Rows => "ROWS",
        WindowFrameUnits::Range => "RANGE",
        WindowFrameUnits::Groups => return Err(not_here("GROUPS of a window")),
    };
    let start = bound(&frame.start_bound)?;
    match &frame.end_bound {
        Some(end) => Ok(format!("{units} BETWEEN {start} AND {}", bound(end)?)),
        None => Ok(format!("{units} {start}")),
    }
}
