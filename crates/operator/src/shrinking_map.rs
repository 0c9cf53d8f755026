//! Maps that are large in a burst of work, and nearly empty otherwise.

use std::collections::HashMap;
use std::hash::Hash;

/// Smaller maps are not worth the copying.
const SMALL: usize = 64;

/// Removes an entry, and gives memory back when the map has become nearly empty: a `HashMap` keeps that of its largest size.
pub(crate) fn remove<K: Eq + Hash, V>(map: &mut HashMap<K, V>, key: &K) {
    map.remove(key);
    // It halves at least, so what is copied was removed before.
    if map.capacity() > 2 * SMALL && map.len() < map.capacity() / 4 {
        map.shrink_to((2 * map.len()).max(SMALL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_is_emptied_gives_its_memory_back() {
        let mut map: HashMap<usize, usize> = (0..10_000).map(|number| (number, number)).collect();
        for number in 0..10_000 {
            remove(&mut map, &number);
            assert_eq!(map.len(), 9_999 - number);
            assert!(map.capacity() <= (16 * map.len()).max(4 * SMALL), "{} for {}", map.capacity(), map.len());
        }
    }
}
