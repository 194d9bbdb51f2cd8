//! Plain functions as handlers: up to four arguments, each an [`Extract`], and a `Result` of
//! something that is [`Respond`].

use crate::answer::{Answer, Respond};
use crate::bindings::Request;
use crate::contract::Contract;
use crate::extract::Extract;
use crate::failure::Result;

/// A function that serves an operation. `A` is the tuple of its arguments.
pub trait Handler<A>: 'static {
    /// Declares the operation from the signature.
    fn declare(contract: &mut Contract);
    /// Runs it.
    fn run(&self, request: &Request) -> Result<Answer>;
}

macro_rules! handler {
    ($($argument:ident),*) => {
        impl<F, R, $($argument),*> Handler<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> Result<R> + 'static,
            R: Respond,
            $($argument: Extract,)*
        {
            fn declare(contract: &mut Contract) {
                $($argument::declare(contract);)*
                R::declare(contract);
            }
            fn run(&self, _request: &Request) -> Result<Answer> {
                self($($argument::extract(_request)?),*)?.respond()
            }
        }
    };
}

handler!();
handler!(A);
handler!(A, B);
handler!(A, B, C);
handler!(A, B, C, D);
