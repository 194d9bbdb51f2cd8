//! The Merkle tree of RFC 6962, section 2: hashes, roots, proofs and their verification. Pure: who
//! has the hashes is asked for them.
//!
//! A proof is a list of ranges of leaves, each the root of its own tree; a range falls apart into
//! complete subtrees, which never change again once they are complete and can therefore be kept.

use std::ops::Range;

use sha2::{Digest as _, Sha256};

/// A SHA-256 hash.
pub type Hash = [u8; 32];

/// A complete subtree: `2^level` leaves from `index · 2^level` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// 0 for a leaf.
    pub level: u32,
    /// Among those of its level.
    pub index: u64,
}

/// The hash of a leaf.
pub fn leaf(bytes: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(bytes).finalize().into()
}

/// The hash of two subtrees beside each other.
pub fn node(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// The root over subtrees beside each other, largest first; that of no leaves is the hash of
/// nothing.
pub fn root(subtrees: &[Hash]) -> Hash {
    let mut from_right = subtrees.iter().rev();
    let Some(last) = from_right.next() else { return Sha256::new().finalize().into() };
    from_right.fold(*last, |right, left| node(left, &right))
}

/// The roots of a tree's complete subtrees, largest first: all that it takes to make it larger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    roots: Vec<Hash>,
}

impl Frontier {
    /// Of so many leaves; `None` where these cannot be its subtrees.
    pub fn of(size: u64, roots: Vec<Hash>) -> Option<Self> {
        (roots.len() == size.count_ones() as usize).then_some(Self { size, roots })
    }
    /// How many leaves.
    pub fn size(&self) -> u64 {
        self.size
    }
    /// The roots of its complete subtrees, largest first.
    pub fn roots(&self) -> &[Hash] {
        &self.roots
    }
    /// One leaf more.
    pub fn push(&mut self, leaf: Hash) {
        let mut hash = leaf;
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.roots.pop() {
                hash = node(&left, &hash);
            }
        }
        self.roots.push(hash);
        self.size += 1;
    }
    /// The tree's root.
    pub fn root(&self) -> Hash {
        root(&self.roots)
    }
}

/// The largest power of two below the length of a range of at least two leaves.
fn split(range: &Range<u64>) -> u64 {
    1 << (range.end - range.start - 1).ilog2()
}

/// The complete subtrees of a range that a proof names, largest first.
pub fn subtrees(range: &Range<u64>) -> Vec<Node> {
    let (mut at, mut found) = (range.start, Vec::new());
    while at < range.end {
        let level = (range.end - at).ilog2();
        found.push(Node { level, index: at >> level });
        at += 1 << level;
    }
    found
}

/// The proof that a leaf is in a tree (section 2.1.1), nearest first. `index` is less than
/// `size`.
pub fn inclusion(index: u64, size: u64) -> Vec<Range<u64>> {
    let (mut range, mut proof) = (0..size, Vec::new());
    while range.end - range.start > 1 {
        let middle = range.start + split(&range);
        if index < middle {
            proof.push(middle..range.end);
            range.end = middle;
        } else {
            proof.push(range.start..middle);
            range.start = middle;
        }
    }
    proof.reverse();
    proof
}

/// The proof that a tree of `size` leaves begins with one of `old` leaves (section 2.1.2). `0 <
/// old <= size`.
pub fn consistency(old: u64, size: u64) -> Vec<Range<u64>> {
    let (mut range, mut proof, mut whole) = (0..size, Vec::new(), true);
    while old < range.end {
        let middle = range.start + split(&range);
        if old <= middle {
            proof.push(middle..range.end);
            range.end = middle;
        } else {
            proof.push(range.start..middle);
            range.start = middle;
            whole = false;
        }
    }
    if !whole {
        proof.push(range);
    }
    proof.reverse();
    proof
}

/// Whether the proof leads from a leaf to the root.
pub fn includes(leaf: &Hash, index: u64, size: u64, proof: &[Hash], expected: &Hash) -> bool {
    if index >= size {
        return false;
    }
    let ranges = inclusion(index, size);
    let mut hash = *leaf;
    for (range, other) in ranges.iter().zip(proof) {
        hash = if range.start > index { node(&hash, other) } else { node(other, &hash) };
    }
    ranges.len() == proof.len() && hash == *expected
}

/// Whether the proof shows that the newer tree begins with the older one.
pub fn extends(old: (u64, &Hash), new: (u64, &Hash), proof: &[Hash]) -> bool {
    let ((old, old_root), (size, new_root)) = (old, new);
    if old > size {
        return false;
    }
    if old == 0 || old == size {
        return proof.is_empty() && (old == 0 || old_root == new_root);
    }
    let ranges = consistency(old, size);
    if ranges.len() != proof.len() {
        return false;
    }
    // An older tree that is a subtree of the newer one does not have its root repeated.
    let mut parts = ranges.iter().zip(proof);
    let (mut older, mut newer) = match parts.len() == ranges.len() && old.is_power_of_two() {
        true => (*old_root, *old_root),
        false => match parts.next() {
            Some((_, first)) => (*first, *first),
            None => return false,
        },
    };
    for (range, hash) in parts {
        if range.start < old {
            older = node(hash, &older);
            newer = node(hash, &newer);
        } else {
            newer = node(&newer, hash);
        }
    }
    older == *old_root && newer == *new_root
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition of section 2.1, word for word.
    fn defined(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Sha256::new().finalize().into(),
            [one] => *one,
            many => {
                let k = many.len().next_power_of_two() / 2;
                node(&defined(&many[..k]), &defined(&many[k..]))
            }
        }
    }

    fn leaves(count: u64) -> Vec<Hash> {
        (0..count).map(|n| leaf(&n.to_be_bytes())).collect()
    }

    fn hashes(leaves: &[Hash], ranges: &[Range<u64>]) -> Vec<Hash> {
        let of = |range: &Range<u64>| {
            let parts: Vec<Hash> = subtrees(range)
                .iter()
                .map(|part| {
                    defined(
                        &leaves[(part.index << part.level) as usize
                            ..((part.index + 1) << part.level) as usize],
                    )
                })
                .collect();
            root(&parts)
        };
        ranges.iter().map(of).collect()
    }

    #[test]
    fn hashes_are_those_of_the_certificate_transparency_test_vectors() {
        let hex = |hash: Hash| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let inputs: [&[u8]; 8] = [
            b"",
            b"\x00",
            b"\x10",
            b"\x20\x21",
            b"\x30\x31",
            b"\x40\x41\x42\x43",
            b"\x50\x51\x52\x53\x54\x55\x56\x57",
            b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
        ];
        let mut tree = Frontier::default();
        let mut roots = vec![hex(tree.root())];
        for input in inputs {
            tree.push(leaf(input));
            roots.push(hex(tree.root()));
        }
        assert_eq!(roots[0], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(roots[1], "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
        assert_eq!(roots[2], "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125");
        assert_eq!(roots[8], "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328");
    }

    proptest! {
        #[test]
        fn a_frontier_has_the_defined_root(count in 0_u64..200) {
            let leaves = leaves(count);
            let mut tree = Frontier::default();
            leaves.iter().for_each(|leaf| tree.push(*leaf));
            prop_assert_eq!(tree.root(), defined(&leaves));
            prop_assert_eq!(Frontier::of(count, tree.roots().to_vec()), Some(tree.clone()));
            prop_assert_eq!(Frontier::of(count + 1, tree.roots().to_vec()).is_some(), (count + 1).count_ones() == count.count_ones());
        }

        #[test]
        fn a_leaf_is_proved_where_it_is_and_nowhere_else(size in 1_u64..200, at in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>()) {
            let leaves = leaves(size);
            let index = at.index(size as usize) as u64;
            let (mut proof, all) = (hashes(&leaves, &inclusion(index, size)), defined(&leaves));
            let own = leaves[index as usize];
            prop_assert!(includes(&own, index, size, &proof, &all));
            prop_assert!(!includes(&leaf(b"another"), index, size, &proof, &all));
            prop_assert!(!includes(&own, index, size, &proof, &leaf(b"another")));
            prop_assert!(!includes(&own, size, size, &proof, &all));
            if size > 1 {
                prop_assert!(!includes(&own, (index + 1) % size, size, &proof, &all));
                let flipped = flip.index(proof.len());
                proof[flipped][0] ^= 1;
                prop_assert!(!includes(&own, index, size, &proof, &all));
                proof.pop();
                prop_assert!(!includes(&own, index, size, &proof, &all));
            }
        }

        #[test]
        fn what_only_grew_is_proved_and_what_changed_is_not(size in 1_u64..200, at in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>()) {
            let leaves = leaves(size);
            let old = at.index(size as usize) as u64 + 1;
            let (before, after) = (defined(&leaves[..old as usize]), defined(&leaves));
            let mut proof = hashes(&leaves, &consistency(old, size));
            prop_assert!(extends((old, &before), (size, &after), &proof));
            prop_assert!(!extends((old, &leaf(b"another")), (size, &after), &proof));
            prop_assert!(!extends((old, &before), (size, &leaf(b"another")), &proof));
            if !proof.is_empty() {
                let flipped = flip.index(proof.len());
                proof[flipped][0] ^= 1;
                prop_assert!(!extends((old, &before), (size, &after), &proof));
                proof.pop();
                prop_assert!(!extends((old, &before), (size, &after), &proof));
            }
        }
    }
}
