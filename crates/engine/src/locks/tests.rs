//! The lock table by itself: against a model, its queues, circles, and under drawn schedules.

use std::sync::atomic::AtomicBool;
use std::thread;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

/// For ever.
const NEVER: Duration = Duration::MAX;

fn name(key: u8) -> LockName {
    LockName { table: TableId(1), key: vec![key] }
}

/// Takes a lock, or waits for it for that long.
fn take(held: &mut HeldLocks, locks: &Arc<LockTable>, key: u8, timeout: Duration) -> Result<bool, Refusal> {
    held.take(locks, name(key), LockLimits { count: usize::MAX, timeout }, || Ok(()))
}

/// Asserts that a lock was given, and that it was not held before.
fn must_take(held: &mut HeldLocks, locks: &Arc<LockTable>, key: u8) {
    assert!(take(held, locks, key, NEVER).unwrap());
}

fn assert_nothing_is_left(locks: &LockTable) {
    assert_eq!(locks.held_count(), 0);
    assert!(locks.waits.lock().is_empty());
}

/// Returns when so many wait.
fn wait_for_waiters(locks: &LockTable, count: usize) {
    while locks.waiting_count() < count {
        thread::yield_now();
    }
}

#[test]
fn locks_taken_at_random_are_those_of_the_model() {
    const HOLDERS: usize = 5;
    for seed in 0..20 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let locks = Arc::<LockTable>::default();
        let mut held: Vec<HeldLocks> = (0..HOLDERS).map(|_| HeldLocks::default()).collect();
        let mut model: Vec<Vec<u8>> = vec![Vec::new(); HOLDERS];
        for _ in 0..400 {
            let (at, key) = (rng.random_range(0..HOLDERS), rng.random_range(0..12));
            match rng.random_range(0..10) {
                0 => {
                    held[at] = HeldLocks::default();
                    model[at].clear();
                }
                1 => {
                    let kept = rng.random_range(0..6);
                    held[at].truncate(kept);
                    model[at].truncate(kept);
                }
                _ => {
                    let holder = model.iter().position(|keys| keys.contains(&key));
                    let outcome = take(&mut held[at], &locks, key, Duration::ZERO);
                    match holder {
                        None => {
                            assert!(outcome.unwrap());
                            model[at].push(key);
                        }
                        Some(holder) if holder == at => assert!(!outcome.unwrap()),
                        Some(_) => assert!(matches!(outcome, Err(Refusal::TimedOut)), "{outcome:?}"),
                    }
                }
            }
            assert_eq!(locks.held_count(), model.iter().map(Vec::len).sum::<usize>(), "seed {seed}");
            assert!(held.iter().map(HeldLocks::count).eq(model.iter().map(Vec::len)), "seed {seed}");
        }
        drop(held);
        assert_nothing_is_left(&locks);
    }
}

#[test]
fn keys_of_other_tables_are_other_locks() {
    let locks = Arc::<LockTable>::default();
    let limits = LockLimits { count: 9, timeout: Duration::ZERO };
    let [mut first, mut second] = [(); 2].map(|()| HeldLocks::default());
    for (held, table) in [(&mut first, 1), (&mut second, 2)] {
        let name = LockName { table: TableId(table), key: b"key".to_vec() };
        assert!(held.take(&locks, name, limits, || Ok(())).unwrap());
    }
    assert_eq!(locks.held_count(), 2);
}

#[test]
fn the_limit_counts_locks_that_are_held_and_each_once() {
    let locks = Arc::<LockTable>::default();
    let mut held = HeldLocks::default();
    let limits = LockLimits { count: 2, timeout: Duration::ZERO };
    let take = |held: &mut HeldLocks, key| held.take(&locks, name(key), limits, || Ok(()));
    assert!(take(&mut held, 1).unwrap());
    assert!(take(&mut held, 2).unwrap());
    assert!(!take(&mut held, 1).unwrap());
    assert!(matches!(take(&mut held, 3), Err(Refusal::TooMany)));
    held.truncate(1);
    assert!(take(&mut held, 3).unwrap());
}

#[test]
fn who_came_first_is_served_first() {
    const WAITERS: usize = 6;
    let locks = Arc::<LockTable>::default();
    let served = std::sync::Mutex::new(Vec::new());
    let mut first = HeldLocks::default();
    must_take(&mut first, &locks, 1);
    thread::scope(|scope| {
        for waiter in 0..WAITERS {
            let (locks, served) = (&locks, &served);
            scope.spawn(move || {
                let mut held = HeldLocks::default();
                must_take(&mut held, locks, 1);
                served.lock().unwrap().push(waiter);
            });
            wait_for_waiters(locks, waiter + 1);
        }
        drop(first);
    });
    assert!(served.into_inner().unwrap().into_iter().eq(0..WAITERS));
    assert_nothing_is_left(&locks);
}

/// Each of so many holds a lock and waits for the next one's; the last closes the circle.
fn close_a_circle(members: u8) {
    let locks = Arc::<LockTable>::default();
    let mut last = HeldLocks::default();
    must_take(&mut last, &locks, members - 1);
    thread::scope(|scope| {
        // From the end, so that each finds the lock taken that it waits for.
        for member in (0..members - 1).rev() {
            let locks = &locks;
            scope.spawn(move || {
                let mut held = HeldLocks::default();
                must_take(&mut held, locks, member);
                must_take(&mut held, locks, member + 1);
            });
            wait_for_waiters(locks, usize::from(members - 1 - member));
        }
        let Err(Refusal::Deadlock(circle)) = take(&mut last, &locks, 0, NEVER) else { panic!("no deadlock") };
        let keys: Vec<u8> = circle.iter().map(|name| name.key[0]).collect();
        assert!(keys.iter().copied().eq(0..members), "{keys:?}");
        assert_eq!(last.count(), 1, "what it held it still holds");
        assert_eq!(locks.waiting_count(), usize::from(members) - 1, "and the others wait");
        drop(last);
    });
    assert_nothing_is_left(&locks);
}

#[test]
fn a_circle_is_found_by_who_would_close_it() {
    for members in 2..6 {
        close_a_circle(members);
    }
}

/// Who is behind another in a queue waits for it, too, as soon as that has the lock.
#[test]
fn a_circle_by_way_of_a_lock_that_was_handed_over_is_found() {
    let locks = Arc::<LockTable>::default();
    let mut first = HeldLocks::default();
    must_take(&mut first, &locks, 1);
    thread::scope(|scope| {
        let locks = &locks;
        let second = scope.spawn(move || {
            let mut held = HeldLocks::default();
            must_take(&mut held, locks, 1);
            // The third, which holds this one, waits for the first by now.
            assert!(matches!(take(&mut held, locks, 2, NEVER), Err(Refusal::Deadlock(_))));
        });
        wait_for_waiters(locks, 1);
        let third = scope.spawn(move || {
            let mut held = HeldLocks::default();
            must_take(&mut held, locks, 2);
            must_take(&mut held, locks, 1);
        });
        wait_for_waiters(locks, 2);
        drop(first);
        second.join().unwrap();
        third.join().unwrap();
    });
    assert_nothing_is_left(&locks);
}

#[test]
fn who_waits_is_woken_when_there_is_nothing_left_to_wait_for() {
    let locks = Arc::<LockTable>::default();
    let is_gone = AtomicBool::new(false);
    let mut first = HeldLocks::default();
    must_take(&mut first, &locks, 1);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let check = || match is_gone.load(Ordering::Acquire) {
                true => Err(Error::invalid("gone")),
                false => Ok(()),
            };
            let mut held = HeldLocks::default();
            held.take(&locks, name(1), LockLimits { count: 1, timeout: NEVER }, check)
        });
        wait_for_waiters(&locks, 1);
        locks.wake_all();
        assert_eq!(locks.waiting_count(), 1, "it looked, and waits on");
        is_gone.store(true, Ordering::Release);
        locks.wake_all();
        assert!(matches!(waiter.join().unwrap(), Err(Refusal::Failed(_))));
    });
    drop(first);
    assert_nothing_is_left(&locks);
}

#[test]
fn memory_comes_back_with_the_locks() {
    let locks = Arc::<LockTable>::default();
    let mut held = HeldLocks::default();
    let limits = LockLimits { count: usize::MAX, timeout: Duration::ZERO };
    for n in 0..20_000_u32 {
        let name = LockName { table: TableId(1), key: n.to_be_bytes().to_vec() };
        assert!(held.take(&locks, name, limits, || Ok(())).unwrap());
    }
    drop(held);
    let kept: Vec<usize> = locks.shards.iter().map(|shard| shard.lock().capacity()).collect();
    assert!(kept.iter().all(|capacity| *capacity <= 2 * KEPT_CAPACITY), "{kept:?}");
}

/// The lock table under thousands of drawn schedules (shuttle):
/// `cargo test -p mycelium-engine --features schedule-tests --lib schedules`
#[cfg(feature = "schedule-tests")]
mod schedules {
    use shuttle::sync::atomic::{AtomicBool, AtomicUsize};
    use shuttle::sync::{Arc as SharedArc, Barrier};
    use shuttle::thread::{self, JoinHandle};

    use super::*;

    const SCHEDULES: usize = 4_000;

    fn explore(scenario: fn()) {
        shuttle::check_random(scenario, SCHEDULES / 2);
        shuttle::check_pct(scenario, SCHEDULES / 2, 3);
        println!("schedules: {SCHEDULES}, failures: 0");
    }

    fn join_all<T>(threads: Vec<JoinHandle<T>>) -> Vec<T> {
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    #[test]
    fn of_two_that_lock_in_opposite_order_one_is_told() {
        explore(|| {
            let (locks, both) = (Arc::<LockTable>::default(), SharedArc::new(Barrier::new(2)));
            let threads = [(1, 2), (2, 1)].map(|(own, other)| {
                let (locks, both) = (locks.clone(), both.clone());
                thread::spawn(move || {
                    let mut held = HeldLocks::default();
                    must_take(&mut held, &locks, own);
                    both.wait();
                    match take(&mut held, &locks, other, NEVER) {
                        Ok(is_new) => {
                            assert!(is_new);
                            false
                        }
                        Err(refusal) => {
                            assert!(matches!(refusal, Refusal::Deadlock(_)), "{refusal:?}");
                            true
                        }
                    }
                })
            });
            let told = join_all(threads.into()).into_iter().filter(|is_told| *is_told).count();
            assert_eq!(told, 1);
            assert_nothing_is_left(&locks);
        });
    }

    #[test]
    fn of_many_in_any_order_each_gets_through_in_the_end() {
        explore(|| {
            let locks = Arc::<LockTable>::default();
            let threads = [[1, 2, 3], [2, 3, 1], [3, 2, 1]].map(|keys| {
                let locks = locks.clone();
                thread::spawn(move || {
                    loop {
                        let mut held = HeldLocks::default();
                        let taken = keys.iter().try_for_each(|key| take(&mut held, &locks, *key, NEVER).map(drop));
                        match taken {
                            Ok(()) => return,
                            Err(refusal) => assert!(matches!(refusal, Refusal::Deadlock(_)), "{refusal:?}"),
                        }
                        drop(held);
                        thread::yield_now();
                    }
                })
            });
            join_all(threads.into());
            assert_nothing_is_left(&locks);
        });
    }

    #[test]
    fn a_chain_of_waiters_holds_the_lock_one_after_the_other() {
        explore(|| {
            let (locks, count) = (Arc::<LockTable>::default(), SharedArc::new(AtomicUsize::new(0)));
            let threads = (0..4).map(|_| {
                let (locks, count) = (locks.clone(), count.clone());
                thread::spawn(move || {
                    let mut held = HeldLocks::default();
                    must_take(&mut held, &locks, 1);
                    let before = count.load(Ordering::SeqCst);
                    thread::yield_now();
                    count.store(before + 1, Ordering::SeqCst);
                })
            });
            join_all(threads.collect());
            assert_eq!(count.load(Ordering::SeqCst), 4);
            assert_nothing_is_left(&locks);
        });
    }

    /// One whose time is over beside one that is dropped: it has the lock or not, and who comes after it gets it.
    #[test]
    fn a_lock_given_at_the_deadline_is_held_or_handed_on() {
        explore(|| {
            let locks = Arc::<LockTable>::default();
            let mut first = HeldLocks::default();
            must_take(&mut first, &locks, 1);
            let threads = [Duration::ZERO, NEVER, Duration::ZERO].map(|timeout| {
                let locks = locks.clone();
                thread::spawn(move || {
                    let mut held = HeldLocks::default();
                    let outcome = take(&mut held, &locks, 1, timeout);
                    assert_eq!(held.count(), usize::from(outcome.is_ok()));
                    match outcome {
                        Ok(is_new) => assert!(is_new),
                        Err(refusal) => {
                            assert!(matches!(refusal, Refusal::TimedOut), "{refusal:?}");
                            assert_eq!(timeout, Duration::ZERO);
                        }
                    }
                })
            });
            thread::yield_now();
            drop(first);
            join_all(threads.into());
            assert_nothing_is_left(&locks);
        });
    }

    /// The holder lets go as the database is closed.
    #[test]
    fn who_waits_as_all_ends_does_not_wait_for_ever() {
        explore(|| {
            let (locks, is_gone) = (Arc::<LockTable>::default(), SharedArc::new(AtomicBool::new(false)));
            let mut first = HeldLocks::default();
            must_take(&mut first, &locks, 1);
            let threads = (0..2).map(|_| {
                let (locks, is_gone) = (locks.clone(), is_gone.clone());
                thread::spawn(move || {
                    let check = || match is_gone.load(Ordering::Acquire) {
                        true => Err(Error::invalid("gone")),
                        false => Ok(()),
                    };
                    let mut held = HeldLocks::default();
                    let outcome = held.take(&locks, name(1), LockLimits { count: 1, timeout: NEVER }, check);
                    assert!(matches!(outcome, Ok(true) | Err(Refusal::Failed(_))), "{outcome:?}");
                })
            });
            let threads: Vec<_> = threads.collect();
            is_gone.store(true, Ordering::Release);
            locks.wake_all();
            thread::yield_now();
            drop(first);
            join_all(threads);
            assert_nothing_is_left(&locks);
        });
    }
}
