//! How many attributes a tag of a text may have, whatever else stands in it.
//!
//! A tokenizer compares each attribute of a tag with those before it, so a tag with hundreds of
//! thousands costs minutes. Only the tokenizer knows at which byte a tag begins; here every `<`
//! that may begin one is followed through all the states that a tokenizer can be in then, and the
//! most attributes that any of them holds count. It never counts too few, and too many only in what
//! looks like a tag and is none.

/// The state of a tokenizer within a tag.
#[derive(Clone, Copy)]
enum State {
    TagName,
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    DoubleQuoted,
    SingleQuoted,
    Unquoted,
    AfterQuoted,
}

use State::{
    AfterName, AfterQuoted, BeforeName, BeforeValue, DoubleQuoted, Name, SingleQuoted, TagName,
    Unquoted,
};

const STATES: [State; 9] = [
    TagName,
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    DoubleQuoted,
    SingleQuoted,
    Unquoted,
    AfterQuoted,
];

/// A count of the attributes so far in each state that is possible: one more than there are, and 0
/// for an impossible one.
type Counts = [u32; STATES.len()];

/// The tags that may be open at one place of a text.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes {
    counts: Counts,
    /// The last byte but one, and the last.
    before: [u8; 2],
}

impl Attributes {
    /// Reads on; the most attributes that a tag may have had on the way. In code (a script, a
    /// style) only end tags begin.
    pub(super) fn read(&mut self, text: &str, code: bool) -> u32 {
        let mut most = 0;
        for byte in text.bytes() {
            if self.counts != Counts::default() {
                self.counts = step(&self.counts, byte);
                most = self.counts.iter().copied().fold(most, u32::max);
            }
            let begins = byte.is_ascii_alphabetic()
                && match self.before {
                    [b'<', b'/'] => true,
                    [_, b'<'] => !code,
                    _ => false,
                };
            if begins {
                let count = &mut self.counts[TagName as usize];
                *count = (*count).max(1);
            }
            self.before = [self.before[1], byte];
        }
        most.saturating_sub(1)
    }
}

fn step(counts: &Counts, byte: u8) -> Counts {
    let mut next = Counts::default();
    for state in STATES {
        let count = counts[state as usize];
        if count > 0
            && let Some((state, begun)) = after(state, byte)
        {
            let held = &mut next[state as usize];
            *held = (*held).max(count.saturating_add(u32::from(begun)));
        }
    }
    next
}

/// The state after a byte, and whether an attribute began; none where the tag ends.
fn after(state: State, byte: u8) -> Option<(State, bool)> {
    let space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c');
    let state = match (state, byte) {
        (DoubleQuoted, b'"') | (SingleQuoted, b'\'') => AfterQuoted,
        (DoubleQuoted | SingleQuoted, _) => state,
        (_, b'>') => return None,
        (BeforeValue, b'"') => DoubleQuoted,
        (BeforeValue, b'\'') => SingleQuoted,
        (BeforeValue, _) if space => BeforeValue,
        (BeforeValue, _) => Unquoted,
        (Unquoted, _) if space => BeforeName,
        (Unquoted, _) => Unquoted,
        (Name | AfterName, _) if space => AfterName,
        (_, _) if space => BeforeName,
        (_, b'/') => BeforeName,
        (Name | AfterName, b'=') => BeforeValue,
        (TagName | Name, _) => state,
        (BeforeName | AfterName | AfterQuoted, _) => return Some((Name, true)),
    };
    Some((state, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(text: &str) -> u32 {
        Attributes::default().read(text, false)
    }

    #[test]
    fn attributes_are_counted_as_a_tokenizer_would() {
        for (text, count) in [
            ("plain text, 1 < 2", 0),
            ("<p>a b c</p>", 0),
            ("<p a>", 1),
            ("<p a b=1 c='x y z' d=\"x y z\" e>", 5),
            ("<p a='1'b=\"2\"c>", 3),
            ("<p/a/b = 1 c=d/e f>", 4),
            ("<p =a ==b>", 1),
            ("<path d='M 1 2 3 4 5 6 7 8 9'>", 1),
            ("<p a>b c d e<i f g>", 2),
            ("</p a b c>", 3),
            ("<!-- <a b c d>", 3),
        ] {
            assert_eq!(most(text), count, "{text}");
        }
    }

    #[test]
    fn no_context_hides_a_tag() {
        let tag = format!("<x {}>", "a ".repeat(50));
        for before in [
            "",
            "<!-- <a b=\"",
            "<a b='",
            "<script>if (a<b) c = \"",
            "<![CDATA[<a b=\"'",
            "<a b=\"<c d='",
        ] {
            assert!(most(&format!("{before}{tag}")) >= 50, "{before}");
        }
    }

    #[test]
    fn it_reads_on_where_it_was_and_code_begins_no_tag() {
        let mut attributes = Attributes::default();
        assert_eq!(
            [
                attributes.read("<", false),
                attributes.read("a b", false),
                attributes.read(" c", false)
            ],
            [0, 1, 2]
        );
        assert_eq!(Attributes::default().read("for (i=0;i<n; i++) { a = [1, 2, 3] }", true), 0);
        assert_eq!(Attributes::default().read("</script a b>", true), 2);
    }
}
