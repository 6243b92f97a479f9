//! Moves of the cells of one column within a batch: into another order, apart, between others, and out.
//!
//! Places are counted from a first cell, and what lies before it stays. Each cell is moved once, in runs of neighbours.

use mycelium_base::{Error, Result};

/// Of the values from `first` on, keeps those at these places, counted from there, in this order.
pub(crate) fn arrange<T: Copy>(values: &mut Vec<T>, first: usize, places: &[u32]) {
    let appended = values.split_off(first);
    values.extend(places.iter().map(|&place| appended[place as usize]));
}

/// That places ascend and are none behind so many cells.
pub(crate) fn check_places(places: &[u32], cells: usize) -> Result<()> {
    match places.is_sorted() && places.last().is_none_or(|&last| last as usize <= cells) {
        true => Ok(()),
        false => Err(Error::invalid("new rows do not come in order between those appended")),
    }
}

/// Moves the values from `first` on so that there is room for one more before each of these places, counted from there.
/// From the last one on: each value is moved once.
pub(crate) fn make_room<T: Copy + Default>(values: &mut Vec<T>, first: usize, places: &[u32]) {
    let mut end = values.len();
    values.resize(end + places.len(), T::default());
    for (before, &place) in places.iter().enumerate().rev() {
        let start = first + place as usize;
        values.copy_within(start..end, start + before + 1);
        end = start;
    }
}

/// Of the values from `first` on, moves the last ones before those at these places.
pub(crate) fn weave<T: Copy + Default>(values: &mut Vec<T>, first: usize, places: &[u32]) {
    let moved = values.split_off(values.len() - places.len());
    make_room(values, first, places);
    for (before, (&place, value)) in places.iter().zip(moved).enumerate() {
        values[first + place as usize + before] = value;
    }
}

/// The same of texts, as their bytes and their ends, of which there is one more: the start of the first.
pub(crate) fn weave_texts(ends: &mut [i32], bytes: &mut [u8], first: usize, places: &[u32]) {
    let others = ends.len() - 1 - places.len();
    let moved_ends: Vec<usize> = ends[others..].iter().map(|&end| end as usize).collect();
    let moved = bytes[moved_ends[0]..].to_vec();
    // Where the next texts end, moved: from the last one on.
    let (mut row, mut end) = (others, bytes.len());
    for (before, &place) in places.iter().enumerate().rev() {
        let place = first + place as usize;
        let (start, behind) = (ends[place] as usize, ends[row] as usize);
        let shift = end - behind;
        bytes.copy_within(start..behind, start + shift);
        for row in (place + 1..row + 1).rev() {
            ends[row + before + 1] = ends[row] + shift as i32;
        }
        ends[place + before + 1] = (start + shift) as i32;
        let text = &moved[moved_ends[before] - moved_ends[0]..moved_ends[before + 1] - moved_ends[0]];
        end = start + shift - text.len();
        bytes[end..end + text.len()].copy_from_slice(text);
        row = place;
    }
}

/// Moves the last values to these places, counted from `first`, in the place of others.
pub(crate) fn lay<T: Copy>(values: &mut Vec<T>, first: usize, places: &[u32]) {
    let others = values.len() - places.len();
    let (replaced, moved) = values.split_at_mut(others);
    for (&place, &mut value) in places.iter().zip(moved) {
        replaced[first + place as usize] = value;
    }
    values.truncate(others);
}

/// Removes the values at these places, counted from `first`. Each other is moved once.
pub(crate) fn remove<T: Copy>(values: &mut Vec<T>, first: usize, places: &[u32]) {
    let len = values.len();
    for (removed, &place) in places.iter().enumerate() {
        let start = first + place as usize + 1;
        let end = places.get(removed + 1).map_or(len, |&next| first + next as usize);
        values.copy_within(start..end, start - removed - 1);
    }
    values.truncate(len - places.len());
}

/// The same of texts, as their bytes and their ends, of which there is one more: the start of the first.
pub(crate) fn remove_texts(ends: &mut Vec<i32>, bytes: &mut Vec<u8>, first: usize, places: &[u32]) {
    let rows = ends.len() - 1;
    let mut len = places.first().map_or(bytes.len(), |&place| ends[first + place as usize] as usize);
    for (removed, &place) in places.iter().enumerate() {
        let from = first + place as usize + 1;
        let to = places.get(removed + 1).map_or(rows, |&next| first + next as usize);
        let (start, end) = (ends[from] as usize, ends[to] as usize);
        bytes.copy_within(start..end, len);
        for row in from..to {
            ends[row - removed] = ends[row + 1] - (start - len) as i32;
        }
        len += end - start;
    }
    bytes.truncate(len);
    ends.truncate(rows + 1 - places.len());
}

/// So many cells but for those at these places.
pub(crate) fn without(cells: usize, places: &[u32]) -> Vec<u32> {
    let mut places = places.iter().peekable();
    (0..cells as u32).filter(|cell| places.next_if_eq(&cell).is_none()).collect()
}

/// The order of so many cells, and behind them those that take the place of those at these.
pub(crate) fn laid(cells: usize, places: &[u32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..cells as u32).collect();
    places.iter().zip(cells as u32..).for_each(|(&place, cell)| order[place as usize] = cell);
    order
}

/// The order of so many cells, and behind them those that come before these places.
pub(crate) fn woven(cells: usize, places: &[u32]) -> Vec<u32> {
    let mut order = Vec::with_capacity(cells + places.len());
    let mut new = places.iter().zip(cells as u32..).peekable();
    for cell in 0..=cells as u32 {
        while let Some((_, new)) = new.next_if(|(place, _)| **place <= cell) {
            order.push(new);
        }
        order.extend(((cell as usize) < cells).then_some(cell));
    }
    order
}
