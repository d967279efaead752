//! In-flight budgets, loaded estimates and a no-regret guard: may this request go to that device now, or
//! is it served sooner elsewhere?
//!
//! Arithmetic only: no clock, no I/O, no threads of its own. Time is an argument, so a test can replay any
//! schedule.
