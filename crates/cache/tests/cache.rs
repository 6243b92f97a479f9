//! The cache against a map: it forgets, but it never lies, and it keeps within its budget.

use std::collections::HashMap;
use std::sync::Arc;

use mycelium_base::{Error, ErrorKind};
use mycelium_cache::{BlockCache, BlockKind, BlockSlots, CacheKey, OpenedBlock};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn block(file: u64, offset: u64, len: usize) -> Arc<[u8]> {
    vec![(file * 31 + offset) as u8; len].into()
}

#[test]
fn what_is_found_is_what_was_put() {
    let cache = BlockCache::new(256 << 10);
    let mut model: HashMap<(u64, u64), usize> = HashMap::new();
    let mut random = SmallRng::seed_from_u64(11);
    let (mut hits, mut misses) = (0, 0);
    for _ in 0..50_000 {
        let key = CacheKey { file: random.random_range(0..4), offset: random.random_range(0..100) * 4096 };
        match cache.get(key) {
            Some(bytes) => {
                let len = model[&(key.file, key.offset)];
                assert_eq!(bytes, block(key.file, key.offset, len));
                hits += 1;
            }
            None => {
                let len = *model.entry((key.file, key.offset)).or_insert_with(|| random.random_range(0..5000));
                cache.insert(key, block(key.file, key.offset, len), BlockKind::Data);
                misses += 1;
            }
        }
        let stats = cache.stats();
        assert!(stats.used <= stats.capacity);
    }
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (hits, misses));
    assert_eq!(stats.inserts, misses);
    assert!(stats.hits > 1000 && stats.evictions > 1000, "{stats:?}");
    assert!(stats.data_bytes <= stats.used && stats.index_bytes == 0 && stats.filter_bytes == 0, "{stats:?}");
}

#[test]
fn bytes_are_counted_by_kind_and_once() {
    let cache = BlockCache::new(1 << 20);
    for (offset, kind) in [BlockKind::Data, BlockKind::Index, BlockKind::Filter].into_iter().enumerate() {
        let key = CacheKey { file: 1, offset: offset as u64 };
        for _ in 0..3 {
            cache.insert(key, block(1, 0, 100 * (offset + 1)), kind);
        }
    }
    let stats = cache.stats();
    assert_eq!((stats.data_bytes, stats.index_bytes, stats.filter_bytes), (100, 200, 300));
    assert_eq!((stats.inserts, stats.evictions), (9, 6), "a block inserted again takes the place of the one there");
}

#[test]
fn a_link_keeps_no_block_in_memory() {
    let cache = BlockCache::new(64 << 10);
    let key = |offset| CacheKey { file: 1, offset };
    for offset in [0, 1] {
        cache.insert(key(offset), block(1, offset, 1000), BlockKind::Data);
    }
    let first = cache.get_chained(key(0)).unwrap();
    first.set_next(&cache.get_chained(key(1)).unwrap());
    assert_eq!(first.next().map(|next| next.bytes().clone()), Some(block(1, 1, 1000)));
    assert_eq!(cache.get_chained(key(0)).unwrap().next().map(|next| next.bytes().len()), Some(1000));
    assert_eq!(cache.stats().data_bytes, 2000);
    cache.insert(key(1), block(1, 1, 1000), BlockKind::Data);
    assert!(first.next().is_none());
}

#[test]
fn reservations_shrink_the_cache_and_give_back() {
    let cache = Arc::new(BlockCache::new(1 << 20));
    for offset in 0..1000 {
        cache.insert(CacheKey { file: 1, offset }, block(1, offset, 2000), BlockKind::Data);
    }
    assert!(cache.stats().used > 900 << 10);
    let most = cache.reserve(896 << 10).expect("seven eighths of the capacity");
    let stats = cache.stats();
    assert_eq!((most.bytes(), stats.reserved), (896 << 10, 896 << 10));
    assert!(stats.used + stats.reserved <= stats.capacity, "{stats:?}");
    assert!(cache.reserve(1).is_none());
    drop(most);
    assert_eq!(cache.stats().reserved, 0);
    let parts: Vec<_> = (0..10).map(|_| cache.reserve(50 << 10)).collect();
    assert!(parts.iter().all(Option::is_some));
    assert!(cache.reserve(u64::MAX).is_none());
    for offset in 0..1000 {
        cache.insert(CacheKey { file: 2, offset }, block(2, offset, 2000), BlockKind::Data);
    }
    let stats = cache.stats();
    assert!(stats.used + stats.reserved <= stats.capacity, "{stats:?}");
}

#[test]
fn a_cache_of_nothing_caches_nothing() {
    let cache = Arc::new(BlockCache::new(0));
    let key = CacheKey { file: 1, offset: 0 };
    cache.insert(key, block(1, 0, 10), BlockKind::Data);
    assert!(cache.get(key).is_none());
    assert!(cache.reserve(1).is_none());
    assert_eq!(cache.stats().data_bytes, 0);
}

#[test]
fn threads_share_it() {
    let cache = Arc::new(BlockCache::new(1 << 20));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(thread);
                for _ in 0..20_000 {
                    let key = CacheKey { file: 1, offset: random.random_range(0..2000) };
                    match cache.get(key) {
                        Some(bytes) => assert_eq!(bytes, block(1, key.offset, 1000)),
                        None => cache.insert(key, block(1, key.offset, 1000), BlockKind::Data),
                    }
                    if random.random_range(0..100) == 0 {
                        assert!(cache.reserve(1000).is_some());
                    }
                }
            });
        }
    });
    let stats = cache.stats();
    assert_eq!(stats.reserved, 0);
    assert!(stats.used <= stats.capacity && stats.data_bytes <= stats.used, "{stats:?}");
}

#[test]
fn a_block_read_takes_the_memory_of_one_evicted() {
    let cache = BlockCache::new(64 << 10);
    let mut addresses = std::collections::HashSet::new();
    for offset in 0..1000 {
        let bytes = cache.spares().take(4096, 4160);
        addresses.insert(bytes.as_ptr());
        cache.insert(CacheKey { file: 1, offset }, bytes, BlockKind::Data);
    }
    assert!(addresses.len() <= 17, "{} buffers for a cache of 15 blocks", addresses.len());
}

/// What one insert evicts several of was freed but for the first, and other inserts had to allocate.
#[test]
fn all_that_one_insert_evicts_is_spare() {
    let cache = BlockCache::new(64 << 10);
    let is_spare = |block: &Arc<[u8]>| block[0] == 5;
    for offset in 0..100 {
        cache.insert(CacheKey { file: 1, offset }, vec![5; 1024].into(), BlockKind::Data);
    }
    while is_spare(&cache.spares().take(1024, 1024)) {}
    let before = cache.stats().evictions;
    cache.insert(CacheKey { file: 2, offset: 0 }, vec![7; 8192].into(), BlockKind::Data);
    let evicted = cache.stats().evictions - before;
    assert!(evicted >= 7, "{evicted} blocks of 1 KiB for one of 8 KiB");
    for _ in 0..evicted {
        assert!(is_spare(&cache.spares().take(1024, 1024)));
    }
}

#[test]
fn a_block_that_a_reader_holds_stays_as_it_is() {
    let cache = BlockCache::new(64 << 10);
    let key = CacheKey { file: 1, offset: 0 };
    cache.insert(key, block(1, 7, 4096), BlockKind::Data);
    let (held, chained) = (cache.get(key).expect("cached"), cache.get_chained(key).expect("cached"));
    for offset in 1..1000 {
        let mut bytes = cache.spares().take(4096, 4160);
        Arc::get_mut(&mut bytes).expect("unshared").fill(offset as u8);
        cache.insert(CacheKey { file: 1, offset }, bytes, BlockKind::Data);
    }
    assert!(cache.get(key).is_none(), "evicted");
    assert_eq!((&held, chained.bytes()), (&block(1, 7, 4096), &held));
}

#[test]
fn reservations_with_a_budget_of_their_own_leave_blocks_alone() {
    let cache = Arc::new(BlockCache::with_budgets(64 << 10, Some(100 << 10)));
    for offset in 0..10u64 {
        cache.insert(CacheKey { file: 1, offset }, vec![0u8; 4 << 10].into(), BlockKind::Data);
    }
    let before = cache.stats().used;
    let first = cache.reserve(90 << 10).expect("within the budget");
    assert!(cache.reserve(20 << 10).is_none());
    assert_eq!((cache.stats().used, cache.stats().reserved), (before, 90 << 10));
    drop(first);
    assert!(cache.reserve(100 << 10).is_some());
}

/// A block that is kept in its slot with nothing but a number.
#[derive(Clone, Debug)]
struct Numbered(Arc<[u8]>, usize);

impl OpenedBlock for Numbered {
    fn block(&self) -> &Arc<[u8]> {
        &self.0
    }

    fn bytes_beside(&self) -> u64 {
        8
    }

    fn prefetch(&self, _len: usize) {}
}

fn by_slot(cache: &BlockCache, slots: &Arc<BlockSlots<Numbered>>, number: usize, key: CacheKey) -> Option<Arc<[u8]>> {
    let found =
        cache.get_by_slot(slots, number, key, |block| Ok(Numbered(block, number))).expect("opening cannot fail");
    found.map(|Numbered(block, opened)| {
        assert_eq!(opened, number, "of another slot");
        block
    })
}

#[test]
fn a_block_that_cannot_be_opened_is_in_no_slot() {
    let cache = BlockCache::new(64 << 10);
    let slots = BlockSlots::new(1, 64);
    let key = CacheKey { file: 1, offset: 0 };
    cache.insert(key, block(1, 0, 64), BlockKind::Data);
    let failed = cache.get_by_slot(&slots, 0, key, |_| Err::<Numbered, _>(Error::corruption("malformed")));
    assert_eq!(failed.expect_err("as opening").kind(), ErrorKind::Corruption);
    assert_eq!(by_slot(&cache, &slots, 0, key), Some(block(1, 0, 64)));
}

#[test]
fn what_is_kept_beside_a_block_weighs_with_it() {
    let cache = BlockCache::new(64 << 10);
    let key = CacheKey { file: 1, offset: 0 };
    cache.insert(key, block(1, 0, 64), BlockKind::Data);
    let before = cache.stats().used;
    by_slot(&cache, &BlockSlots::new(1, 64), 0, key);
    assert!(cache.stats().used >= before + 8);
}

#[test]
fn what_leaves_the_cache_leaves_its_slot() {
    let cache = BlockCache::new(64 << 10);
    let slots = BlockSlots::new(2, 64);
    let keys = [0, 1].map(|offset| CacheKey { file: 1, offset });
    assert!(by_slot(&cache, &slots, 0, keys[0]).is_none());
    for (number, key) in keys.into_iter().enumerate() {
        cache.insert(key, block(1, key.offset, 4096), BlockKind::Data);
        for _ in 0..3 {
            assert_eq!(by_slot(&cache, &slots, number, key), Some(block(1, key.offset, 4096)));
        }
        slots.prefetch(number);
        slots.prefetch_block(number);
    }
    assert_eq!(by_slot(&cache, &slots, 2, keys[1]), Some(block(1, 1, 4096)), "there is no such slot");
    let [removed, evicted] = keys.map(|key| cache.get(key).expect("cached"));
    cache.remove(keys[0]);
    assert!(by_slot(&cache, &slots, 0, keys[0]).is_none());
    for offset in 0..1000 {
        cache.insert(CacheKey { file: 2, offset }, block(2, offset, 4096), BlockKind::Data);
    }
    assert!(by_slot(&cache, &slots, 1, keys[1]).is_none());
    assert_eq!([removed, evicted].map(|block| Arc::strong_count(&block)), [1, 1], "no slot holds them");
}

#[test]
fn a_block_that_is_found_by_its_slot_again_and_again_is_not_evicted() {
    let cache = BlockCache::new(1 << 20);
    let slots = BlockSlots::new(1, 64);
    let key = CacheKey { file: 1, offset: 0 };
    cache.insert(key, block(1, 0, 4096), BlockKind::Data);
    for offset in 0..20_000 {
        cache.insert(CacheKey { file: 2, offset }, block(2, offset, 4096), BlockKind::Data);
        assert!(by_slot(&cache, &slots, 0, key).is_some(), "after {offset} others");
    }
}

#[test]
fn blocks_that_threads_read_and_remove_are_in_no_slot_afterwards() {
    let cache = BlockCache::new(1 << 20);
    let slots = BlockSlots::new(8, 64);
    let key = |number: u64| CacheKey { file: 1, offset: number };
    let blocks: Vec<Arc<[u8]>> = (0..8).map(|number| block(1, number, 64)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (cache, slots, blocks) = (&cache, &slots, &blocks);
            scope.spawn(move || {
                for turn in 0..if cfg!(miri) { 50 } else { 20_000 } {
                    let number = (turn * 7 + thread) % 8;
                    match by_slot(cache, slots, number, key(number as u64)) {
                        Some(found) => assert_eq!(found, blocks[number]),
                        None => cache.insert(key(number as u64), blocks[number].clone(), BlockKind::Data),
                    }
                    if turn % 5 == thread {
                        cache.remove(key(number as u64));
                    }
                }
            });
        }
    });
    (0..8).for_each(|number| cache.remove(key(number)));
    assert!(blocks.iter().all(|block| Arc::strong_count(block) == 1));
}
