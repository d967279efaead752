//! An ordered set of slots, of which every replacement policy here is made.
//!
//! A doubly linked list in one vector, and an index from slot to position. Everything is O(1) except
//! [`Queue::oldest_first`].
//!
//! Invariants
//! - A slot is in the list once and in the index, or in neither.
//! - Positions are reused; the vector never exceeds the largest number of slots present at once.
//!
//! Leaves to others: what an order or a mark means (the bases).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::policy::Slot;

/// A map by slot. Slots are small whole numbers; a client cannot choose them freely enough to make many collide
/// cheaply. One multiplication spreads them.
pub type SlotMap<V> = HashMap<Slot, V, BuildHasherDefault<SlotHasher>>;

#[derive(Default)]
pub struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // Both the upper bits, which a map compares, and the lower ones, which choose the bucket, depend on all bits.
        let product = u128::from(number ^ self.0) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Node {
    slot: Slot,
    /// Towards the front.
    newer: u32,
    /// Towards the back.
    older: u32,
    mark: u8,
}

/// From the front, where new slots enter, to the back.
#[derive(Debug)]
pub struct Queue {
    nodes: Vec<Node>,
    free: Vec<u32>,
    index: SlotMap<u32>,
    front: u32,
    back: u32,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            nodes: Vec::new(),
            free: Vec::new(),
            index: SlotMap::default(),
            front: NONE,
            back: NONE,
        }
    }
}

impl Queue {
    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn contains(&self, slot: Slot) -> bool {
        self.index.contains_key(&slot)
    }

    pub fn back(&self) -> Option<Slot> {
        self.nodes.get(self.back as usize).map(|node| node.slot)
    }

    /// Puts a slot at the front, with mark 0. A slot that is already there only moves.
    pub fn push_front(&mut self, slot: Slot) {
        if self.refresh(slot) {
            return;
        }
        let node = Node {
            slot,
            newer: NONE,
            older: NONE,
            mark: 0,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.index.insert(slot, at);
        self.link_front(at);
    }

    /// Moves a slot to the front; false if it is not there.
    pub fn refresh(&mut self, slot: Slot) -> bool {
        let Some(&at) = self.index.get(&slot) else {
            return false;
        };
        if self.front != at {
            self.unlink(at);
            self.link_front(at);
        }
        true
    }

    /// Takes a slot out; false if it is not there.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let Some(at) = self.index.remove(&slot) else {
            return false;
        };
        self.unlink(at);
        self.free.push(at);
        true
    }

    pub fn pop_back(&mut self) -> Option<Slot> {
        let slot = self.back()?;
        self.remove(slot);
        Some(slot)
    }

    /// A small number kept for the slot; `None` if it is not there.
    pub fn mark(&mut self, slot: Slot) -> Option<&mut u8> {
        let at = *self.index.get(&slot)?;
        Some(&mut self.nodes[at as usize].mark)
    }

    /// Sets that number, if the slot is there.
    pub fn set_mark(&mut self, slot: Slot, mark: u8) {
        if let Some(place) = self.mark(slot) {
            *place = mark;
        }
    }

    /// The next slot towards the front; `None` at the front, or if the slot is not there.
    pub fn newer(&self, slot: Slot) -> Option<Slot> {
        let at = *self.index.get(&slot)?;
        let newer = self.nodes[at as usize].newer;
        self.nodes.get(newer as usize).map(|node| node.slot)
    }

    /// From the back to the front.
    pub fn oldest_first(&self) -> impl Iterator<Item = (Slot, u8)> {
        let mut at = self.back;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.newer;
            Some((node.slot, node.mark))
        })
    }

    fn link_front(&mut self, at: u32) {
        let old = self.front;
        let node = &mut self.nodes[at as usize];
        (node.newer, node.older) = (NONE, old);
        match self.nodes.get_mut(old as usize) {
            Some(old) => old.newer = at,
            None => self.back = at,
        }
        self.front = at;
    }

    fn unlink(&mut self, at: u32) {
        let Node { newer, older, .. } = self.nodes[at as usize];
        match self.nodes.get_mut(newer as usize) {
            Some(node) => node.older = older,
            None => self.front = older,
        }
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = newer,
            None => self.back = newer,
        }
    }
}

/// The slots of these queues, one queue after the other, each from its back.
pub fn chained<const N: usize>(queues: [&Queue; N]) -> impl Iterator<Item = Slot> {
    let all = queues.into_iter().flat_map(Queue::oldest_first);
    all.map(|(slot, _)| slot)
}
