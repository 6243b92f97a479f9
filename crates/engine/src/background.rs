//! Background work: which job runs next, in which thread.
//!
//! 1. A job is one flush, one removal of obsolete files, one decision on a redesign, one compaction, or the building of
//!    one index; [`Inner::step`] runs the most urgent of them in the calling thread. In `Background::Manual` that is
//!    the only way they run.
//! 2. With threads, the first thread is there for flushes and removals. While there are none it does what it can
//!    interrupt for one (interruption.rs): it builds indexes, and compacts. So a long job never delays a flush, and the
//!    thread is not idle while compactions queue. With a single thread it does everything, and interrupts that. The
//!    others compact, and change tables.
//! 3. While writers are busy a merge of level 0 may wait for more files (patience.rs).
//! 4. An index that could be built does not wait for ever. Each flush and each compaction that is taken before it, by
//!    any thread, counts; after [`MOST_AHEAD_OF_BUILDING`] of them its building is the next job of the thread that
//!    builds, which is at one job by then at most. The flushes do not wait for it: it is interrupted for them.
//! 5. A shortage, of space on the disk or of files that may be open, is no reason to give up: the job is dropped, its
//!    outputs are removed, and it is tried again later; a flush at once, if files that nobody needs could be removed.
//!    Meanwhile writers that need it get the error. Any other failure latches the database read-only, and so does a
//!    panic: what the job held stays taken, and who waits for it would wait for ever.
//!
//! Expired rows are deleted beside these jobs, in a thread of its own (expiry/due.rs): who deletes them writes, and may
//! wait for the others as any writer does.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mycelium_base::{Error, ErrorKind, FileKind, Result};

use crate::core::Core;
use crate::database::Inner;
use crate::events::Event;
use crate::interruption::Interruption;
use crate::options::Background;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex};

/// Wakes threads that wait for work and threads that wait for its results.
#[derive(Default)]
pub(crate) struct Signals {
    /// Counts changes; a thread that saw the current count may sleep.
    changes: Mutex<u64>,
    changed: Condvar,
    shutdown: AtomicBool,
}

impl Signals {
    /// Waits until then, at most. After every change `is_over` is asked whether there is anything left to wait for.
    pub(crate) fn pause(&self, until: Instant, is_over: impl Fn() -> bool) {
        let mut changes = self.changes.lock();
        while !is_over() && !self.changed.wait_until(&mut changes, until).timed_out() {}
    }

    /// How many changes there were.
    pub(crate) fn count(&self) -> u64 {
        *self.changes.lock()
    }

    /// Waits until then, at most, for a change after the count was `seen`.
    pub(crate) fn pause_after(&self, seen: u64, until: Instant) {
        let mut changes = self.changes.lock();
        if *changes == seen {
            self.changed.wait_until(&mut changes, until);
        }
    }

    /// Whether the background threads are to stop.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutdown.load(Ordering::Acquire)
    }
}

/// What kinds of job a thread takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// Those of both others.
    Everything,
    /// Flushes and removals, and meanwhile what can be interrupted for them.
    Flushes,
    /// Compactions, and what changes tables.
    Compactions,
}

/// So many flushes and compactions are taken before an index that could be built, at most.
pub(crate) const MOST_AHEAD_OF_BUILDING: usize = 8;

/// How long a thread waits before it tries a job again that met a shortage.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(200);

/// How long a thread waits while readers hold files that are to be removed, or writers the lock that the dropping of a
/// failed index needs: they wake nobody when they let go.
const HELD_PAUSE: Duration = Duration::from_secs(1);

/// The shortage of space, or of files that may be open, that background work last met. Flushes have their own: a
/// compaction that does not fit keeps none of them. So has what the thread for flushes does meanwhile: that it has
/// nothing to do says nothing of the others. So have passes over expired rows, which nobody waits for who writes.
#[derive(Default)]
pub(crate) struct Shortages {
    of_flushes: Shortage,
    of_meanwhile: Shortage,
    of_others: Shortage,
    of_expiry: Shortage,
}

/// The error of a shortage, until the work that met it succeeds or has nothing to do.
#[derive(Default)]
struct Shortage(Mutex<Option<Error>>);

impl Shortage {
    fn noting(&self, work: impl FnOnce() -> Result<bool>) -> Result<bool> {
        let outcome = work();
        match &outcome {
            Err(error) if error.kind().is_shortage() => *self.0.lock() = Some(error.duplicate()),
            Err(_) => {}
            Ok(_) => *self.0.lock() = None,
        }
        outcome
    }

    fn check(&self) -> Result<()> {
        self.0.lock().as_ref().map_or(Ok(()), |error| Err(error.duplicate()))
    }
}

/// The error of work that panicked, with what the panic said.
pub(crate) fn panicked(what: &str, panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Error::new(ErrorKind::Io, what).caused_by(text)
}

impl Inner {
    /// Something changed that a waiting thread may care about.
    pub(crate) fn wake_background(&self) {
        *self.signals.changes.lock() += 1;
        self.signals.changed.notify_all();
    }

    /// Lets go of what a job held. That is a change, and one step: whoever finds nobody at work, and no change since
    /// before it looked for work itself, has missed none that another thread hid or left.
    pub(crate) fn end_job(&self, end: impl FnOnce(&mut Core)) {
        let mut core = self.core.lock();
        end(&mut core);
        self.wake_background();
    }

    /// Waits for any change, at most `timeout`.
    pub(crate) fn wait_for_progress(&self, timeout: Duration) {
        let mut changes = self.signals.changes.lock();
        self.signals.changed.wait_for(&mut changes, timeout);
    }

    /// Runs the most urgent job, if there is one.
    pub(crate) fn step(&self) -> Result<bool> {
        self.caught(|| self.run_job(Role::Everything))
    }

    /// Runs a job, or waits for one that another thread is at. `false` if there is neither.
    pub(crate) fn step_or_wait(&self) -> Result<bool> {
        let seen = *self.signals.changes.lock();
        if self.step()? {
            return Ok(true);
        }
        let is_working = self.is_at_work() || self.is_removing() || self.has_redesign_work();
        let mut changes = self.signals.changes.lock();
        if *changes != seen {
            return Ok(true);
        }
        if is_working {
            self.signals.changed.wait_for(&mut changes, Duration::from_millis(100));
        }
        Ok(is_working)
    }

    /// Whether a thread is removing files, which have left the graveyard then.
    fn is_removing(&self) -> bool {
        self.removal.try_lock().is_none()
    }

    fn run_job(&self, role: Role) -> Result<bool> {
        if self.options.read_only {
            return Ok(false);
        }
        self.reported(|| self.try_job(role))
    }

    /// Runs the flush that waits, or removes files; in the middle of another job, too.
    pub(crate) fn run_urgent(&self) -> Result<bool> {
        self.reported(|| self.flush_or_remove())
    }

    /// Runs a pass over expired rows, as a job is run. Its reads and writes are like those of callers, who are told
    /// that they failed: damage alone latches, and what the write itself could not undo.
    pub(crate) fn report_expiry(&self, pass: impl FnOnce() -> Result<bool>) -> Result<bool> {
        self.caught(|| self.reported_as(Error::is_corruption, || self.shortages.of_expiry.noting(pass)))
    }

    /// Runs a job, and tells everybody what became of it.
    fn reported(&self, job: impl FnOnce() -> Result<bool>) -> Result<bool> {
        self.reported_as(|error| !error.kind().is_shortage(), job)
    }

    /// As [`Inner::reported`]; `latches` says which errors make the database read-only.
    fn reported_as(&self, latches: impl FnOnce(&Error) -> bool, job: impl FnOnce() -> Result<bool>) -> Result<bool> {
        self.check_writable()?;
        let outcome = job();
        match &outcome {
            Ok(true) => self.wake_background(),
            Ok(false) => {}
            Err(error) => {
                let latched = latches(error);
                if latched {
                    self.latch(error);
                }
                self.emit(|| Event::BackgroundError { message: error.to_string(), latched });
                self.wake_background();
            }
        }
        outcome
    }

    /// Runs jobs, or a commit, in this thread. A panic, of a user's transformer perhaps, is a failure that latches.
    pub(crate) fn caught<T>(&self, jobs: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(jobs)).unwrap_or_else(|panic| {
            let error = panicked("a job or a commit panicked", &*panic);
            self.latch(&error);
            Err(error)
        })
    }

    fn try_job(&self, role: Role) -> Result<bool> {
        let Shortages { of_meanwhile, of_others, .. } = &self.shortages;
        match role {
            Role::Everything => {
                self.flush_or(of_others, || Ok(self.change_or_compact(Interruption::ByFlushes)? || self.build_one()?))
            }
            Role::Flushes => {
                self.flush_or(of_meanwhile, || Ok(self.build_one()? || self.compact_one(Interruption::ByFlushes)?))
            }
            Role::Compactions => of_others.noting(|| self.change_or_compact(Interruption::Never)),
        }
    }

    /// What is urgent, or else another job, whose shortage is noted there. An index that has waited for its turn
    /// comes before both: its building is interrupted for what is urgent.
    fn flush_or(&self, shortage: &Shortage, other: impl FnOnce() -> Result<bool>) -> Result<bool> {
        if self.is_building_overdue() && shortage.noting(|| self.build_one())? {
            return Ok(true);
        }
        Ok(self.flush_or_remove()? || shortage.noting(other)?)
    }

    fn flush_or_remove(&self) -> Result<bool> {
        Ok(self.shortages.of_flushes.noting(|| self.flush_or_make_space())? || self.remove_obsolete_files())
    }

    fn change_or_compact(&self, interruption: Interruption) -> Result<bool> {
        Ok(self.redesign_one()? || self.drop_failed_index()? || self.compact_one(interruption)?)
    }

    /// Whether a flush waits, or files that nobody is at removing.
    pub(crate) fn has_urgent_work(&self) -> bool {
        let has_flush_work = self.core.lock().has_flush_work();
        has_flush_work || !self.graveyard.is_empty() && !self.is_removing()
    }

    /// A flush that meets a shortage may find space, and a descriptor, once a file is gone that nobody needs.
    fn flush_or_make_space(&self) -> Result<bool> {
        self.flush_oldest().or_else(|error| match error.kind().is_shortage() && self.remove_obsolete_files() {
            true => Ok(true),
            false => Err(error),
        })
    }

    /// The shortage that background work last met, until it succeeds or has nothing to do.
    pub(crate) fn check_background_shortage(&self) -> Result<()> {
        self.check_flush_shortage()?;
        self.shortages.of_meanwhile.check()?;
        self.shortages.of_others.check()
    }

    /// As [`Inner::check_background_shortage`], of flushes alone.
    pub(crate) fn check_flush_shortage(&self) -> Result<()> {
        self.shortages.of_flushes.check()
    }

    /// Removes files that no reader holds any more, and what is cached of them, until a generation waits for its flush
    /// and may hold up writers: to remove a large file takes the file system milliseconds. Whether there were any.
    fn remove_obsolete_files(&self) -> bool {
        if self.graveyard.is_empty() {
            return false;
        }
        let _serial = self.removal.lock();
        let mut removed = false;
        while let Some(sst) = self.graveyard.take_one() {
            removed = true;
            sst.forget_blocks();
            let file = sst.number();
            drop(sst);
            // A file that cannot be removed now is an orphan, and goes at the next open.
            if self.disk.remove(&self.directory.join(FileKind::Sst.name(file))).is_ok() {
                self.emit(|| Event::FileRemoved { file });
            }
            if self.core.lock().has_flush_work() {
                break;
            }
        }
        removed
    }

    /// Runs jobs until there are none (manual), or waits until the threads find none.
    pub(crate) fn wait_idle(self: &Arc<Self>) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        if self.options.background == Background::Manual {
            while self.step_or_wait()? || self.expire_due()? {}
            return Ok(());
        }
        let _impatience = self.be_impatient();
        loop {
            self.check_writable()?;
            self.check_background_shortage()?;
            self.shortages.of_expiry.check()?;
            if self.is_idle() {
                return Ok(());
            }
            // Reads may have made it due, or the time, and they wake nobody.
            let is_due = self.has_redesign_work() || self.has_expiry_work();
            if is_due || self.has_failed_index() || !self.graveyard.is_empty() {
                self.wake_background();
            }
            self.wait_for_progress(Duration::from_millis(20));
        }
    }

    fn is_idle(&self) -> bool {
        let seen = *self.signals.changes.lock();
        if self.has_generations() || self.is_at_work() {
            return false;
        }
        // In this order: a job lets its inputs go before it counts as done, and a removal begins before it takes them.
        let is_at_rest = self.graveyard.is_empty() && !self.is_removing() && !self.has_redesign_work();
        let is_nothing_due = is_at_rest
            && !self.has_compaction_work()
            && !self.has_building_work()
            && !self.has_failed_index()
            && !self.has_expiry_work();
        // A job that began after the first look hides what it is at from the others; one that has ended again changed
        // something.
        is_nothing_due && !self.is_at_work() && *self.signals.changes.lock() == seen
    }

    /// Whether a generation waits for its flush.
    fn has_generations(&self) -> bool {
        !self.core.lock().generations.is_empty()
    }

    /// Whether a thread is at a flush, a compaction or the building of an index.
    fn is_at_work(&self) -> bool {
        self.core.lock().is_working()
    }

    /// Waits before the job is tried again that met a shortage. Other threads that meet it change something, too: that
    /// alone is no reason.
    fn pause_on_shortage(&self, role: Role) {
        let until = Instant::now() + SHORTAGE_PAUSE;
        loop {
            let seen = self.signals.count();
            if Instant::now() >= until || self.has_to_go_on(role) {
                return;
            }
            self.signals.pause_after(seen, until);
        }
    }

    /// Whether a thread has something else to do than to try a job again that met a shortage: a flush, unless that is
    /// what met it.
    fn has_to_go_on(&self, role: Role) -> bool {
        let may_flush = role != Role::Compactions && self.check_flush_shortage().is_ok();
        self.signals.is_shutting_down() || self.is_latched() || may_flush && self.core.lock().has_flush_work()
    }

    fn run_thread(inner: &Self, role: Role) {
        let mut seen = 0;
        loop {
            if inner.signals.is_shutting_down() {
                return;
            }
            match inner.caught(|| inner.run_job(role)) {
                Ok(true) => continue,
                Err(error) if error.kind().is_shortage() => {
                    inner.pause_on_shortage(role);
                    continue;
                }
                Ok(false) | Err(_) => {}
            }
            let pace = inner.core.lock().pace;
            let patient_until = inner.patient_until(pace);
            // Not with the lock below, which is taken where the core's is held.
            let has_failed_index = inner.has_failed_index();
            let mut changes = inner.signals.changes.lock();
            if inner.signals.is_shutting_down() {
                return;
            }
            if *changes == seen {
                match patient_until {
                    Some(until) => drop(inner.signals.changed.wait_until(&mut changes, until)),
                    None if inner.graveyard.is_awaited() || has_failed_index => {
                        inner.signals.changed.wait_for(&mut changes, HELD_PAUSE);
                    }
                    None => inner.signals.changed.wait(&mut changes),
                }
            }
            seen = *changes;
        }
    }
}

/// The background threads; joined when dropped.
pub(crate) struct Threads {
    inner: Arc<Inner>,
    handles: Mutex<Vec<std::thread::JoinHandle<()>>>,
    /// The one that deletes expired rows.
    expiry: Mutex<Option<std::thread::JoinHandle<()>>>,
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(format!("mycelium-{name}")).spawn(run);
    thread.map_err(|e| Error::new(ErrorKind::Io, "cannot start a background thread").caused_by(e))
}

impl Threads {
    pub(crate) fn start(inner: &Arc<Inner>) -> Result<Self> {
        let count = match inner.options.background {
            Background::Threads(count) if !inner.options.read_only => count,
            _ => 0,
        };
        let handles = Mutex::new(Vec::with_capacity(count));
        let threads = Self { inner: inner.clone(), handles, expiry: Mutex::new(None) };
        for i in 0..count {
            let role = match (i, count) {
                (_, 1) => Role::Everything,
                (0, _) => Role::Flushes,
                _ => Role::Compactions,
            };
            let inner = inner.clone();
            let handle = spawn(&i.to_string(), move || Inner::run_thread(&inner, role))?;
            threads.handles.lock().push(handle);
        }
        Ok(threads)
    }

    /// Starts the thread that deletes expired rows, if rows of any table expire and it is not there yet.
    pub(crate) fn start_expiry(&self) -> Result<()> {
        let inner = &self.inner;
        let has_threads = matches!(inner.options.background, Background::Threads(_)) && !inner.options.read_only;
        let mut thread = self.expiry.lock();
        if has_threads && thread.is_none() && !inner.passes.are_ending() && inner.has_expiry() {
            let inner = inner.clone();
            *thread = Some(spawn("expiry", move || inner.run_expiry())?);
        }
        Ok(())
    }

    /// Stops the threads after the jobs they are at. First the one that deletes expired rows, which may wait for the
    /// others, after the rows that it is at.
    pub(crate) fn stop(&self) {
        self.inner.passes.end();
        self.inner.wake_background();
        let expiry = self.expiry.lock().take();
        self.join(expiry);
        self.inner.signals.shutdown.store(true, Ordering::Release);
        self.inner.wake_background();
        self.join(std::mem::take(&mut *self.handles.lock()));
    }

    fn join(&self, handles: impl IntoIterator<Item = std::thread::JoinHandle<()>>) {
        for handle in handles {
            if handle.join().is_err() {
                self.inner.latch(&Error::new(ErrorKind::Io, "a background thread panicked"));
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
        // The error has nowhere to go: callers who care call `close`.
        drop(self.inner.close());
    }
}

/// Who waits for the background to come to rest, beside a thread that works, under drawn schedules (shuttle):
/// `cargo test -p mycelium-engine --features schedule-tests --lib schedules`
#[cfg(all(test, feature = "schedule-tests"))]
mod schedules {
    use std::sync::Arc;

    use mycelium_vfs::MemoryDisk;
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::{Config, Runner, thread};

    use crate::{Background, Database, Durability, LeveledOptions, Options, Policy, TableOptions};

    /// What the stack of a thread takes: shuttle's is 60 KiB, and a compaction needs more where nothing is optimised.
    const STACK_BYTES: usize = 256 << 10;

    /// Of so many, one or none is that in which a job ended between two looks.
    const SCHEDULES: usize = 40_000;
    /// How often who does not wait looks whether all is done.
    const LOOKS: usize = 20;

    fn explore(scenario: fn()) {
        let mut config = Config::new();
        config.stack_size = STACK_BYTES;
        Runner::new(RandomScheduler::new(SCHEDULES / 2), config.clone()).run(scenario);
        Runner::new(PctScheduler::new(3, SCHEDULES / 2), config).run(scenario);
        println!("schedules: {SCHEDULES}, failures: 0");
    }

    /// A thread flushes a generation, and compacts what comes of it, while `comes_to_rest` tells when all is done, if
    /// it can.
    fn beside_a_worker(comes_to_rest: fn(&Database) -> bool) {
        let options =
            Options { disk: Arc::new(MemoryDisk::new()), background: Background::Manual, ..Options::default() };
        let database = Database::open("db", options).unwrap();
        let policy = Policy::Leveled(LeveledOptions { level0_trigger: 1, ..LeveledOptions::default() });
        let table = database.create_table("t", TableOptions { policy, ..TableOptions::default() }).unwrap();
        table.put(b"key", b"value", Durability::Os).unwrap();
        {
            let mut writer = database.inner.commits.writer.lock();
            database.inner.seal_generation(&mut writer).unwrap();
        }
        let worker = {
            let database = database.clone();
            thread::spawn(move || {
                for _ in 0..3 {
                    database.step().unwrap();
                }
            })
        };
        if comes_to_rest(&database) {
            assert!(!database.inner.is_at_work(), "a job was running");
            assert!(!database.step().unwrap(), "a job was left");
        }
        worker.join().unwrap();
    }

    /// It saw neither the job, which had just ended, nor what was due after it.
    #[test]
    fn waiting_for_rest_by_hand_ended_between_two_jobs_of_another_thread() {
        explore(|| {
            beside_a_worker(|database| {
                database.wait_idle().unwrap();
                true
            });
        });
    }

    /// Nobody was at work yet, and then nothing was due any more: a thread had taken it in between.
    #[test]
    fn a_job_that_began_between_two_looks_was_taken_for_rest() {
        explore(|| {
            beside_a_worker(|database| {
                (0..LOOKS).any(|_| {
                    thread::yield_now();
                    database.inner.is_idle()
                })
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::TableShared;

    use mycelium_encoding::{DatumRef, Schema};
    use mycelium_vfs::MemoryDisk;

    use crate::{Database, Durability, IndexOptions, Options, Table, TableOptions};

    fn options(disk: &MemoryDisk, background: Background) -> Options {
        Options { disk: Arc::new(disk.clone()), background, ..Options::default() }
    }

    fn by_number(name: &str) -> IndexOptions {
        IndexOptions { name: name.into(), on: vec!["number".into()], ..IndexOptions::default() }
    }

    /// Files in level 0 for compactions of a table and of its index to be due, in a database whose jobs the test runs.
    const FILES: i64 = 4;

    fn with_due_compactions() -> (Database, Table) {
        let database = Database::open("db", options(&MemoryDisk::new(), Background::Manual)).unwrap();
        let schema = Schema::parse("id int64 not null, number int64, primary key (id)").unwrap();
        let table = database.create_typed_table("t", schema, TableOptions::default()).unwrap();
        database.create_index(&table, &by_number("first")).unwrap();
        for file in 0..FILES {
            for id in (0..400).filter(|id| id % FILES == file) {
                table.insert_row(&[DatumRef::Int64(id), DatumRef::Int64(id % 10)], Durability::Os).unwrap();
            }
            database.inner.seal_generation(&mut database.inner.commits.writer.lock()).unwrap();
            assert!(database.inner.flush_oldest().unwrap());
        }
        (database, table)
    }

    fn level0(table: &TableShared) -> i64 {
        table.state.load().tree.version.level(0).runs.len() as i64
    }

    fn run_all(database: &Database, role: Role) {
        while database.inner.run_job(role).unwrap() {}
    }

    /// It took those of indexes alone, and was idle while those of the table queued for the others.
    #[test]
    fn the_thread_for_flushes_was_idle_while_compactions_queued() {
        let (database, table) = with_due_compactions();
        let index = table.shared.state.load().indexes[0].table.clone();
        assert_eq!((level0(&table.shared), level0(&index)), (FILES, FILES));
        run_all(&database, Role::Flushes);
        let left = (level0(&table.shared), level0(&index));
        assert!(left.0 < FILES && left.1 < FILES, "{left:?} files");
        assert!(!database.inner.run_job(Role::Compactions).unwrap());
    }

    /// It came last of all, and while it was at it nothing was compacted.
    #[test]
    fn the_building_of_an_index_and_compactions_waited_for_each_other() {
        let (database, table) = with_due_compactions();
        let index = database.create_index(&table, &by_number("second")).unwrap();
        run_all(&database, Role::Flushes);
        assert!(index.is_built());
        let index = database.create_index(&table, &by_number("third")).unwrap();
        run_all(&database, Role::Compactions);
        assert!(!index.is_built());
        run_all(&database, Role::Flushes);
        assert!(index.is_built());
    }

    #[test]
    fn a_thread_with_nothing_to_do_forgot_that_another_had_found_the_disk_full() {
        let database = Database::open("db", options(&MemoryDisk::new(), Background::Manual)).unwrap();
        let full = || Err(Error::new(ErrorKind::NoSpace, "the disk is full"));
        assert!(database.inner.shortages.of_others.noting(full).is_err());
        run_all(&database, Role::Flushes);
        assert_eq!(database.inner.check_background_shortage().unwrap_err().kind(), ErrorKind::NoSpace);
        run_all(&database, Role::Compactions);
        database.inner.check_background_shortage().unwrap();
    }

    /// The thread paused before it tried the compaction again.
    #[test]
    fn a_flush_waited_because_a_compaction_in_its_thread_had_found_the_disk_full() {
        let (database, table) = with_due_compactions();
        let full = || Err(Error::new(ErrorKind::NoSpace, "the disk is full"));
        assert!(database.inner.shortages.of_meanwhile.noting(full).is_err());
        assert!(!database.inner.has_to_go_on(Role::Flushes));
        table.insert_row(&[DatumRef::Int64(400), DatumRef::Int64(0)], Durability::Os).unwrap();
        database.inner.seal_generation(&mut database.inner.commits.writer.lock()).unwrap();
        assert!(database.inner.has_to_go_on(Role::Flushes));
        assert!(!database.inner.has_to_go_on(Role::Compactions));
        // It would find it full again.
        assert!(database.inner.shortages.of_flushes.noting(full).is_err());
        assert!(!database.inner.has_to_go_on(Role::Flushes));
    }

    /// It stood behind what the compaction in its thread owed, for twelve days.
    #[test]
    fn a_flush_waited_for_a_compaction_that_the_rate_limit_held_back() {
        let disk = MemoryDisk::new();
        let database = Database::open("db", options(&disk, Background::Manual)).unwrap();
        database.create_table("t", TableOptions::default()).unwrap();
        database.close().unwrap();
        // Its threads are not started: the test is the one that compacts.
        let limited = Options { rate_limit_bytes_per_second: Some(1), ..options(&disk, Background::Threads(2)) };
        let inner = Arc::new(crate::recover::recover("db".as_ref(), limited).unwrap());
        let shared = inner.core.lock().tables.named("t").cloned().unwrap();
        let table = Table { shared, database: inner.clone() };
        inner.limit_job(Interruption::ByFlushes, 1 << 20).unwrap();
        std::thread::scope(|scope| {
            let compaction = scope.spawn(|| inner.limit_job(Interruption::ByFlushes, 1));
            table.put(b"key", b"value", Durability::Os).unwrap();
            inner.seal_generation(&mut inner.commits.writer.lock()).unwrap();
            for _ in 0..600 {
                if !inner.has_generations() {
                    break;
                }
                inner.wait_for_progress(Duration::from_millis(100));
            }
            let was_flushed = !inner.has_generations();
            inner.signals.shutdown.store(true, Ordering::Release);
            inner.wake_background();
            compaction.join().unwrap().unwrap();
            assert!(was_flushed);
        });
        inner.close().unwrap();
    }
}
