//! The tree, its proofs and notes against the published vectors of certificate transparency.

use charter_kernel::hex::{hex, sha256, unhex};
use charter_kernel::merkle::{
    Frontier, Hash, Node, consistency, extends, includes, inclusion, leaf, node, root, subtrees,
};
use charter_kernel::note::{Checkpoint, NOTE_BYTES_MAX, Verifier};

const INPUTS: [&[u8]; 8] = [
    b"",
    b"\x00",
    b"\x10",
    b"\x20\x21",
    b"\x30\x31",
    b"\x40\x41\x42\x43",
    b"\x50\x51\x52\x53\x54\x55\x56\x57",
    b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
];

/// The root of the tree of the first so many inputs.
const ROOTS: [&str; 9] = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];

const LEAF_2: &str = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7";
const PAIR_3_4: &str = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e";
const HALF_5_8: &str = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4";
const LEAF_5: &str = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b";
const PAIR_7_8: &str = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0";
const PAIR_5_6: &str = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a";

fn hash(text: &str) -> Hash {
    unhex(text).unwrap().try_into().unwrap()
}

fn hashes(texts: &[&str]) -> Vec<Hash> {
    texts.iter().map(|text| hash(text)).collect()
}

fn tree(size: usize) -> Frontier {
    let mut tree = Frontier::default();
    INPUTS[..size].iter().for_each(|input| tree.push(leaf(input)));
    tree
}

#[test]
fn roots_of_each_size_are_the_published_ones() {
    for (size, expected) in ROOTS.iter().enumerate() {
        let tree = tree(size);
        assert_eq!(hex(&tree.root()), *expected, "{size}");
        assert_eq!((tree.size(), tree.roots().len()), (size as u64, size.count_ones() as usize));
    }
    assert_eq!(root(&[]), hash(ROOTS[0]));
    assert_eq!(node(&leaf(INPUTS[0]), &leaf(INPUTS[1])), hash(ROOTS[2]));
}

#[test]
fn leaves_are_proved_by_the_published_paths() {
    let paths: [(u64, u64, &[&str]); 5] = [
        (0, 1, &[]),
        (0, 8, &[LEAF_2, PAIR_3_4, HALF_5_8]),
        (5, 8, &[LEAF_5, PAIR_7_8, ROOTS[4]]),
        (2, 3, &[ROOTS[2]]),
        (1, 5, &[ROOTS[1], PAIR_3_4, LEAF_5]),
    ];
    for (index, size, path) in paths {
        let (own, all) = (leaf(INPUTS[index as usize]), hash(ROOTS[size as usize]));
        assert!(includes(&own, index, size, &hashes(path), &all), "{index} of {size}");
        assert!(!includes(&own, index, size + 8, &hashes(path), &all), "{index} of {size}");
        assert!(!includes(&own, size, size, &hashes(path), &all), "beyond the end");
        assert_eq!(inclusion(index, size).len(), path.len());
    }
}

#[test]
fn growth_is_proved_by_the_published_proofs() {
    let proofs: [(u64, u64, &[&str]); 4] = [
        (1, 1, &[]),
        (1, 8, &[LEAF_2, PAIR_3_4, HALF_5_8]),
        (6, 8, &[PAIR_5_6, PAIR_7_8, ROOTS[4]]),
        (2, 5, &[PAIR_3_4, LEAF_5]),
    ];
    for (old, size, proof) in proofs {
        let (before, after) = (hash(ROOTS[old as usize]), hash(ROOTS[size as usize]));
        let proof = hashes(proof);
        assert!(extends((old, &before), (size, &after), &proof), "{old} to {size}");
        assert!(!extends((old, &after), (size, &before), &proof) || old == size);
        let longer = [proof.clone(), vec![before]].concat();
        assert!(!extends((old, &before), (size, &after), &longer), "{old} to {size}");
    }
    let empty = hash(ROOTS[0]);
    assert!(extends((0, &empty), (8, &hash(ROOTS[8])), &[]), "everything begins with nothing");
    assert!(!extends((0, &empty), (8, &hash(ROOTS[8])), &[empty]));
    assert!(!extends((8, &hash(ROOTS[8])), (6, &hash(ROOTS[6])), &[]), "no log shrinks");
}

#[test]
fn a_range_falls_apart_into_complete_subtrees() {
    let node = |level, index| Node { level, index };
    assert_eq!(subtrees(&(0..7)), [node(2, 0), node(1, 2), node(0, 6)]);
    assert_eq!(subtrees(&(4..6)), [node(1, 2)]);
    assert_eq!(subtrees(&(3..3)), []);
    assert_eq!(inclusion(0, 3), [1..2, 2..3]);
    assert_eq!(consistency(3, 7), [2..3, 3..4, 0..2, 4..7]);
}

#[test]
fn a_frontier_is_of_as_many_roots_as_its_size_has_ones() {
    let seven = tree(7);
    assert_eq!(Frontier::of(7, seven.roots().to_vec()), Some(seven.clone()));
    assert_eq!(Frontier::of(6, seven.roots().to_vec()), None);
    let mut eight = Frontier::of(7, seven.roots().to_vec()).unwrap();
    eight.push(leaf(INPUTS[7]));
    assert_eq!(eight.root(), hash(ROOTS[8]), "it goes on from where it was");
}

#[test]
fn a_note_that_is_not_the_keys_is_not_its() {
    let key = Verifier { name: "charter/log".into(), key: [7; 32] };
    let text = Checkpoint { origin: "charter/log".into(), size: 8, root: hash(ROOTS[8]) }.text();
    let note = key.write_note(&text, &[9; 64]);
    assert_eq!(key.signature_of(&note), Some((text.as_str(), [9; 64])));
    let renamed = Verifier { name: "charter/gol".into(), ..key.clone() };
    assert_eq!(renamed.signature_of(&note), None);
    assert_eq!(key.signature_of(text.as_str()), None, "nobody signed it");
    assert_eq!(key.signature_of(&note.replace('\u{2014}', "-")), None);
    let long = key.write_note(&format!("{}\n", "x".repeat(NOTE_BYTES_MAX)), &[9; 64]);
    assert_eq!(key.signature_of(&long), None);
    let others = key.write_note(&text, &[1; 64]);
    let second = format!("{note}{}", others.rsplit_once("\n\n").unwrap().1);
    assert_eq!(key.signature_of(&second), Some((text.as_str(), [9; 64])), "the first counts");
}

#[test]
fn a_checkpoint_reads_as_it_was_written_and_ignores_extensions() {
    for (size, root) in [(0, ROOTS[0]), (8, ROOTS[8]), (u64::MAX, ROOTS[3])] {
        let checkpoint = Checkpoint { origin: "charter/log".into(), size, root: hash(root) };
        assert_eq!(Checkpoint::parse(&checkpoint.text()), Some(checkpoint.clone()));
        let extended = format!("{}extra\n", checkpoint.text());
        assert_eq!(Checkpoint::parse(&extended), Some(checkpoint));
    }
    let text = Checkpoint { origin: "o".into(), size: 8, root: hash(ROOTS[8]) }.text();
    for (from, to) in [("o\n", "\n"), ("8\n", "-8\n"), ("8\n", "08\n"), ("8\n", "x\n")] {
        assert_eq!(Checkpoint::parse(&text.replacen(from, to, 1)), None, "{from} {to}");
    }
}

#[test]
fn a_key_is_refused_whose_id_or_algorithm_is_another() {
    let key = Verifier { name: "charter/log".into(), key: [7; 32] };
    let text = key.text();
    assert_eq!(Verifier::parse(&format!(" {text}\n")), Some(key.clone()));
    let (name, rest) = text.split_once('+').unwrap();
    let (id, body) = rest.split_once('+').unwrap();
    for bad in [
        name.to_owned(),
        format!("{name}+{id}"),
        format!("{name}+00000000+{body}"),
        format!("{name}+{id}+AAAA"),
        format!("{name}+{id}+{}", body.replacen('A', "B", 1)),
    ] {
        assert_eq!(Verifier::parse(&bad), None, "{bad}");
    }
}

#[test]
fn a_digest_is_of_the_texts_bytes() {
    assert_eq!(sha256(""), ROOTS[0]);
    assert_eq!(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
