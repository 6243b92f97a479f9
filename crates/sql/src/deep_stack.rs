//! Planning on a stack of its own.
//!
//! A chain of operators, `a OR b OR …`, is a tree as deep as the chain is long. Parser and planner walk it by
//! recursion, of which some takes more stack when little is left (DataFusion's feature `recursive_protection`) and some
//! does not (hashes of expressions, say). The stack of a thread of a server is 2 MiB: to run over ends the process. So
//! a statement is parsed and planned on [`STACK`] bytes, of which only those that are used become memory, and one that
//! would be deeper than [`DEEPEST`] is refused: its expressions are evaluated on the stacks of the runtime's threads.

use std::pin::Pin;
use std::task::{Context, Poll};

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;
use mycelium_base::{Error, ErrorKind, Result};

/// Bytes of the stack.
const STACK: usize = 128 << 20;
/// How deep the tree may be.
const DEEPEST: usize = 400;

/// Runs something on the stack.
pub(crate) fn run<T>(work: impl FnOnce() -> T) -> T {
    stacker::grow(STACK, work)
}

/// A future that is polled on the stack.
pub(crate) struct OnDeepStack<F>(Pin<Box<F>>);

impl<F: Future> OnDeepStack<F> {
    pub(crate) fn new(future: F) -> Self {
        Self(Box::pin(future))
    }
}

impl<F: Future> Future for OnDeepStack<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.0.as_mut();
        run(|| future.poll(context))
    }
}

/// Refuses a statement that would be a deeper tree.
pub(crate) fn check_depth(tokens: &[Token]) -> Result<()> {
    let depth = depth_of(tokens);
    if depth <= DEEPEST {
        return Ok(());
    }
    let message = format!(
        "chains of operators make a tree {depth} deep, at most {DEEPEST} are possible: a list, or a table of values, says more"
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

/// How deep the tree is at most: the operators before a place, within each of the parentheses around it.
fn depth_of(tokens: &[Token]) -> usize {
    let (mut outer, mut here, mut sum, mut deepest) = (Vec::new(), 0_usize, 0_usize, 0_usize);
    for token in tokens {
        match token {
            Token::LParen => outer.push(std::mem::take(&mut here)),
            Token::RParen => {
                sum -= here;
                here = outer.pop().unwrap_or_default();
            }
            Token::Comma => sum -= std::mem::take(&mut here),
            token if is_operator(token) => {
                here += 1;
                sum += 1;
                deepest = deepest.max(sum);
            }
            _ => {}
        }
    }
    deepest
}

/// Whether it may make a tree one deeper.
fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => {
            matches!(
                word.keyword,
                Keyword::AND
                    | Keyword::OR
                    | Keyword::NOT
                    | Keyword::IS
                    | Keyword::LIKE
                    | Keyword::UNION
                    | Keyword::JOIN
            )
        }
        Token::Whitespace(_)
        | Token::Comma
        | Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::DoubleQuotedString(_)
        | Token::LParen
        | Token::RParen
        | Token::SemiColon
        | Token::Period
        | Token::EOF => false,
        _ => true,
    }
}
