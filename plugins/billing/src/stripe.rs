//! The payment provider: an account at Stripe.

use charter_sdk::prelude::*;
use charter_sdk::stripe::Stripe;
pub(crate) use charter_sdk::stripe::{Form, KIND, Refused, is_id, text};

/// The binding's name.
pub(crate) const PROVIDER: &str = "stripe";
/// The account.
pub(crate) const STRIPE: Stripe = Stripe::of_binding(PROVIDER);
/// The currency of every amount.
pub(crate) const CURRENCY: &str = "usd";

/// The payment cannot be made without a person who proves to be its holder.
pub(crate) fn needs_a_person() -> Failure {
    let told = "the payment was declined: its holder has to confirm it; pay with a return_url, on the provider's page";
    Failure::new("payment_rejected", told).reason("authentication_required")
}
