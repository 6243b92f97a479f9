//! When passes are made, and by whom.
//!
//! 1. A pass over a table is due when the database was opened, when what its rows expire by was changed, and
//!    [`crate::Options::expiry_interval`] after the last one began, by the clock of the options.
//! 2. The thread that makes them sleeps until the next is due. It is there from the first table on whose rows expire.
//! 3. One that meets a shortage is begun anew after a while, like any job; one that meets damage latches. Any other
//!    failure is that of a read or a write, which a caller would be told, and try again: it is told, and the next pass
//!    is made when it is due. One whose table is gone meanwhile is over.
//!
//! Passes write, and a write may wait for flushes and compactions: no thread makes them that those may need, and no
//! writer that waits in [`Background::Manual`](crate::Background::Manual) does. So the thread ends before the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mycelium_base::{Error, Result};

use super::pass::{Manner, Pass};
use crate::database::Inner;
use crate::events::Event;
use crate::sync::atomic::Ordering;
use crate::table::{Table, TableShared};

/// The thread that makes passes looks whether one is due after so long at the latest: the clock may have been set.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// How long it waits before it begins a pass anew that met a shortage.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(200);

impl Inner {
    /// Makes the pass that is due, if there is one.
    pub(crate) fn expire_due(self: &Arc<Self>) -> Result<bool> {
        self.make_due_pass(Manner::AtOnce)
    }

    fn make_due_pass(self: &Arc<Self>, manner: Manner) -> Result<bool> {
        if self.options.read_only || !self.is_expiry_due() {
            return Ok(false);
        }
        self.report_expiry(|| {
            let _running = self.passes.begin();
            let (now, interval) = (self.options.clock.now(), self.options.expiry_interval);
            let due = {
                let core = self.core.lock();
                core.tables.expiring().find(|table| table.expiry.begin_if_due(now, interval)).cloned()
            };
            let Some(table) = due else { return Ok(false) };
            match self.expire(&table, now, manner) {
                Err(error) if table.check_alive().is_ok() => {
                    if error.kind().is_shortage() {
                        table.expiry.forget_pass();
                    }
                    Err(error)
                }
                _ => Ok(true),
            }
        })
    }

    /// Makes a pass over this table, whether one is due or not. How many rows it deleted.
    pub(super) fn expire_now(self: &Arc<Self>, table: &Arc<TableShared>) -> Result<u64> {
        self.check_writable()?;
        table.check_alive()?;
        if table.expiry.present().is_none() {
            return Err(Error::invalid(format!("rows of table {} do not expire", table.name)));
        }
        let _running = self.passes.begin();
        let now = self.options.clock.now();
        table.expiry.begin(now);
        self.expire(table, now, Manner::AtOnce).inspect_err(|_| table.expiry.forget_pass())
    }

    fn expire(self: &Arc<Self>, table: &Arc<TableShared>, now: Duration, manner: Manner) -> Result<u64> {
        let Some(expiry) = table.expiry.present() else { return Ok(0) };
        let began = Instant::now();
        self.emit(|| Event::ExpiryBegin { table: table.id });
        let handle = Table { shared: table.clone(), database: self.clone() };
        let rows = Pass::new(handle, expiry, now, manner)?.map_or(Ok(0), |pass| pass.run())?;
        self.counters.expiry_passes.fetch_add(1, Ordering::Relaxed);
        self.emit(|| Event::ExpiryEnd { table: table.id, rows, seconds: began.elapsed().as_secs_f64() });
        Ok(rows)
    }

    /// Whether rows of any table expire.
    pub(crate) fn has_expiry(&self) -> bool {
        self.core.lock().tables.expiring().next().is_some()
    }

    /// Whether a pass is due, or being made. In this order: one that is begun counts as being made before it is due no
    /// more.
    pub(crate) fn has_expiry_work(&self) -> bool {
        self.is_expiry_due() || self.passes.are_running()
    }

    fn is_expiry_due(&self) -> bool {
        self.expiry_due_in().is_some_and(|wait| wait.is_zero())
    }

    /// How long it is until a pass is due; `None` if no rows expire.
    fn expiry_due_in(&self) -> Option<Duration> {
        let (now, interval) = (self.options.clock.now(), self.options.expiry_interval);
        self.core.lock().tables.expiring().filter_map(|table| table.expiry.due_in(now, interval)).min()
    }

    /// What the thread that makes passes does, until it is to end.
    pub(crate) fn run_expiry(self: &Arc<Self>) {
        loop {
            // Before it looks at anything: what changes from here on ends its sleep.
            let seen = self.signals.count();
            if self.passes.are_ending() {
                return;
            }
            match self.make_due_pass(Manner::WithRests) {
                Ok(true) => {}
                Ok(false) => {
                    let sleep = self.expiry_due_in().map_or(LONGEST_SLEEP, |wait| wait.min(LONGEST_SLEEP));
                    self.signals.pause_after(seen, Instant::now() + sleep);
                }
                Err(error) if error.kind().is_shortage() => {
                    self.signals.pause(Instant::now() + SHORTAGE_PAUSE, || self.passes.are_ending());
                }
                // The database takes no more writes.
                Err(_) if self.check_writable().is_err() => return,
                // It was told.
                Err(_) => {}
            }
        }
    }
}
