//! The cost budget of CEL rules.
//!
//! The only loops of CEL are the comprehensions behind `all`, `exists`, `map` and `filter`. Each iteration of a
//! metered expression takes from the budget of the object under validation, so a rule that is quadratic in a long
//! list ends with an error instead of occupying the server.

use std::cell::Cell;
use std::time::{Duration, Instant};

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, operators};
use kube_cel::cel::parser::Expression;
use kube_cel::cel::{Context, ExecutionError};

/// How many iterations the rules of one object may take in total.
const ITERATIONS: u64 = 1_000_000;
/// How long they may take: building a list in a loop costs more with every iteration.
const TIME: Duration = Duration::from_secs(2);
/// The function that meters a loop; no rule can name it, as it is no identifier.
const METER: &str = "@meter";

thread_local! {
    static LEFT: Cell<Option<(u64, Instant)>> = const { Cell::new(None) };
}

/// The budget of one object, which ends with this value.
pub(super) struct Budget;

impl Budget {
    /// Begins a budget on this thread.
    pub(super) fn begin() -> Budget {
        LEFT.set(Some((ITERATIONS, Instant::now() + TIME)));
        Budget
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        LEFT.set(None);
    }
}

/// Returns whether the budget on this thread is used up.
pub(super) fn is_exhausted() -> bool {
    LEFT.get().is_some_and(|(left, _)| left == 0)
}

/// Adds the metering function to a context.
pub(super) fn with_meter(mut context: Context<'static>) -> Context<'static> {
    context.add_function(METER, |goes_on: bool| -> Result<bool, ExecutionError> {
        let Some((left, deadline)) = LEFT.get() else { return Ok(goes_on) };
        if left == 0 || Instant::now() > deadline {
            LEFT.set(Some((0, deadline)));
            return Err(ExecutionError::function_error(METER, "cost budget exceeded"));
        }
        LEFT.set(Some((left - 1, deadline)));
        Ok(goes_on)
    });
    context
}

/// Returns an expression whose loops are metered, and whose optional fields may be missing.
pub(super) fn metered(mut expression: Expression) -> Expression {
    meter(&mut expression);
    expression
}

fn meter(expression: &mut IdedExpr) {
    match &mut expression.expr {
        Expr::Comprehension(loop_) => {
            for part in [
                &mut loop_.iter_range,
                &mut loop_.accu_init,
                &mut loop_.loop_cond,
                &mut loop_.loop_step,
                &mut loop_.result,
            ] {
                meter(part);
            }
            let id = loop_.loop_cond.id;
            let condition = std::mem::take(&mut loop_.loop_cond);
            let call = CallExpr { func_name: METER.to_owned(), target: None, args: vec![condition] };
            loop_.loop_cond = IdedExpr { id, expr: Expr::Call(call) };
        }
        Expr::Call(call) => {
            // The library fails on `a.?b` where the field is missing, and not on `a[?"b"]`, which means the same.
            if call.func_name == operators::OPT_SELECT {
                call.func_name = operators::OPT_INDEX.to_owned();
            }
            call.target.as_deref_mut().into_iter().chain(&mut call.args).for_each(meter);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(meter),
        Expr::Select(select) => meter(&mut select.operand),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| meter_entry(&mut entry.expr)),
        Expr::Struct(fields) => fields.entries.iter_mut().for_each(|entry| meter_entry(&mut entry.expr)),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

fn meter_entry(entry: &mut EntryExpr) {
    match entry {
        EntryExpr::StructField(field) => meter(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            meter(&mut entry.key);
            meter(&mut entry.value);
        }
    }
}
